"""Public names as a type checker sees them; `make check` has mypy check this file, nothing runs it.

The last lines are wrong. Each says which error must be found: mypy complains of a comment that hides none.
"""

from __future__ import annotations

import curvae
from curvae import nn

layer: nn.Gyroplane = curvae.nn.Gyroplane(2, 3, curvae.nn.Curvature(1.0))
ball: curvae.geometry.Manifold = curvae.PoincareBall(2)
prior: curvae.distributions.HyperbolicNormal = curvae.WrappedNormal(ball.random(3), 1.0, ball)
model: type[curvae.models.VAE] = curvae.models.VAE
graph: curvae.data.Graph = curvae.data.load_graph("phylogenetic")
answer: curvae.hierarchy.Diagnosis = curvae.diagnose(graph)
config: curvae.training.Config = curvae.training.Config()
palette = curvae.plotting.PALETTE
view: type[curvae.viewer.View] = curvae.viewer.View
verdict: curvae.training.Comparison = curvae.compare(config, curvae.data.load("flat")[0].x)

place: int = curvae.embed  # type: ignore[assignment]
unknown_layer = curvae.nn.Gyroplan  # type: ignore[attr-defined]
unknown_name = curvae.nonsense  # type: ignore[attr-defined]
