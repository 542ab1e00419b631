"""Pictures."""

from .disc import density, disc, fit_window, geodesics, grid, gyroplane, project, regular_tree
from .maps import graph_map, gyroplane_heat, latent_map
from .mosaics import decoded_mosaic, mosaic, sample_grid
from .panels import beside_surrogates, confusion, curves, dendrogram, radius_histogram, reconstructions
from .projection import Projection, project_from, project_to_disc
from .style import PALETTE, figure_bytes, quiet

__all__ = [
    "PALETTE",
    "Projection",
    "beside_surrogates",
    "confusion",
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
]
__dir__ = __all__.copy  # completion lists public names only
