"""Pictures."""

from .disc import density, disc, geodesics, grid, gyroplane, project, regular_tree

__all__ = ["density", "disc", "geodesics", "grid", "gyroplane", "project", "regular_tree"]
