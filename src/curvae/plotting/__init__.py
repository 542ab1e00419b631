"""Pictures."""

from ..maps.charts import Projection, project_from, project_to_disc
from .maps import (
    density,
    disc,
    fit_window,
    geodesics,
    graph_map,
    grid,
    gyroplane,
    gyroplane_heat,
    latent_map,
    project,
    regular_tree,
)
from .panels import (
    bands,
    beside_surrogates,
    confusion,
    curvature_profile,
    curves,
    decoded_mosaic,
    dendrogram,
    mosaic,
    radius_histogram,
    reconstructions,
    sample_grid,
    volcano,
)
from .style import PALETTE, figure_bytes, quiet

__all__ = [
    "PALETTE",
    "Projection",
    "bands",
    "beside_surrogates",
    "confusion",
    "curvature_profile",
    "curves",
    "decoded_mosaic",
    "dendrogram",
    "density",
    "disc",
    "figure_bytes",
    "fit_window",
    "geodesics",
    "graph_map",
    "grid",
    "gyroplane",
    "gyroplane_heat",
    "latent_map",
    "mosaic",
    "project",
    "project_from",
    "project_to_disc",
    "quiet",
    "radius_histogram",
    "reconstructions",
    "regular_tree",
    "sample_grid",
    "volcano",
]
__dir__ = __all__.copy  # completion lists public names only
