"""Who is near whom in the data, and how far apart rows are: what the map of a model can be held to."""

from .batches import Neighbourhoods
from .rows import COMPONENTS, Neighbourhood, neighbourhood

__all__ = ["COMPONENTS", "Neighbourhood", "Neighbourhoods", "neighbourhood"]
