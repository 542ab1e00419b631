"""All settings: names, defaults, help and checks. Imports nothing heavy, so that the command line can show them."""

from .checks import require_count
from .configs import ADDED, GraphSettings, RowSettings, Settings, flattened
from .factors import FactorSettings, parse_space
from .names import (
    LIKELIHOODS,
    DecoderKind,
    DistributionKind,
    EdgeKind,
    EncoderKind,
    InitKind,
    NeighbourKind,
    NetworkKind,
    ObjectiveKind,
    PairKind,
    PopularityKind,
)
from .parts import (
    DrawSettings,
    EdgeSettings,
    LayerSettings,
    LikelihoodSettings,
    NeighbourSettings,
    NetworkSettings,
    ObjectiveSettings,
    SpaceSettings,
    StepSettings,
    TrainingSettings,
    rounds,
)
from .setting import Part, Setting, described

__all__ = [
    "ADDED",
    "LIKELIHOODS",
    "DecoderKind",
    "DistributionKind",
    "DrawSettings",
    "EdgeKind",
    "EdgeSettings",
    "EncoderKind",
    "FactorSettings",
    "GraphSettings",
    "InitKind",
    "LayerSettings",
    "LikelihoodSettings",
    "NeighbourKind",
    "NeighbourSettings",
    "NetworkKind",
    "NetworkSettings",
    "ObjectiveKind",
    "ObjectiveSettings",
    "PairKind",
    "Part",
    "PopularityKind",
    "RowSettings",
    "Setting",
    "Settings",
    "SpaceSettings",
    "StepSettings",
    "TrainingSettings",
    "described",
    "flattened",
    "parse_space",
    "require_count",
    "rounds",
]
