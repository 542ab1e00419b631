"""Curvature and layers as modules."""

from .curvature import Curvature
from .layers import ExpMap0, Gyroplane, LogMap0, MobiusLinear

__all__ = ["Curvature", "ExpMap0", "Gyroplane", "LogMap0", "MobiusLinear"]
