"""The paper's figures: of the geometry, of maps of the branching diffusion, and of maps of the digits."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image

from ..data import branching_diffusion
from ..plotting import figure_bytes
from ..training import Config
from ..training.files import write_bytes
from . import figures, table1, table2
from .baselines import scaled
from .experiment import Experiment, Page, Plan, Results, Shard, Workspace
from .gplvm import GPLVM, principal_components
from .maps import DRAWS, HYPERPLANES, Map, digit_maps, distance_maps, tree_maps
from .table_cells import PLAIN
from .trainings import spread_settings, train

__all__ = ["EXPERIMENT"]

# Of the maps in appendix D; the comparison with other methods and the heat map have c = 1.
CURVATURES = (1.2, 0.3, 0.1)
TREE = replace(table1.SETTINGS, prior_scale=1.7, posterior="riemannian")
DIGITS_CURVATURE = 1.4
SAMPLES = 100

CAPTIONS = {
    "tree": "A regular tree in the Poincaré disc; all edges have the same length.",
    "geodesics": "Geodesics, and exponential maps of tangent vectors.",
    "densities": "Riemannian and wrapped normal for several means, c = 10, at the same σ.",
    "anisotropic": "The wrapped normal with diagonal covariance, c = 1; σ are standard deviations.",
    "projection": "Orthogonal projection on a hyperplane, in the disc and in the plane.",
    "acceptance": "Acceptance rates of the appendix's radius samplers, c = 1.",
    "maps-models": "The branching diffusion: P-VAE, N-VAE, PCA and GPLVM. Dots are posterior samples, lines the true "
    "hierarchy, colours its branches; the models see neither.",
    "maps-curvatures": "The branching diffusion for decreasing curvature, with posterior samples.",
    "maps-gyroplanes": f"The same maps with the {HYPERPLANES} steepest hyperplanes of the decoder.",
    "maps-distance": "The log distance to the hyperplane that divides the rows most evenly, in the ball and the plane.",
    "maps-digits": "MNIST, in the ball and in the plane: posterior means, test images at their places, and samples of "
    "the model.",
}
# Pictures of continuous colour, which a palette would cut into bands.
SHADED = ("densities", "anisotropic", "maps-distance")


def shards(plan: Plan) -> list[Shard]:
    """Geometry, branching diffusion, digits."""
    curved = [replace(TREE, curvature=c, seed=plan.seed) for c in (*CURVATURES, 1.0)]
    tree = [*curved, replace(TREE, curvature=0.0, decoder=PLAIN, seed=plan.seed)]
    if plan.quick:
        tree = [replace(config, epochs=60) for config in tree]
    iterations = 20 if plan.quick else table1.GPLVM_ITERATIONS
    base, _, rows, test = table2.sizes(plan)
    digits = [
        replace(base, dim=2, curvature=DIGITS_CURVATURE, posterior="riemannian", seed=plan.seed),
        replace(base, dim=2, curvature=0.0, posterior="wrapped", decoder=PLAIN, seed=plan.seed),
    ]
    maps = ["maps-models", "maps-curvatures", "maps-gyroplanes", "maps-distance"]
    return [
        Shard(
            "geometry",
            {"files": list(figures.FIGURES)},
            lambda workspace: _save(workspace, {name: draw() for name, draw in figures.FIGURES.items()}),
        ),
        Shard("tree", _described(tree, maps) | {"gplvm_iterations": iterations}, partial(_tree, tree, iterations)),
        Shard("digits", _described(digits, ["maps-digits"]), partial(_digits, digits, rows, test)),
    ]


def _described(configs: Sequence[Config], names: Sequence[str]) -> dict[str, Any]:
    common, own = spread_settings(configs)
    return {"files": list(names), "config": common, "trainings": own}


def _save(workspace: Workspace, drawn: Mapping[str, Figure]) -> dict[str, Any]:
    for name, figure in drawn.items():
        png = figure_bytes(figure)
        write_bytes(workspace.figures / f"{name}.png", png if name in SHADED else _small(png))
    return {"files": list(drawn)}


def _small(png: bytes) -> bytes:
    """The same picture with a palette of 256 colours, a third of the size."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _tree(configs: Sequence[Config], iterations: int, workspace: Workspace) -> dict[str, Any]:
    dataset, tree = table1.dataset(configs[0].seed), branching_diffusion(seed=configs[0].seed)
    fitted = train(configs, [dataset] * len(configs), workspace, "tree-maps")
    *decreasing, unit, flat = (Map(one, dataset.x, DRAWS) for one in fitted)
    y = scaled(tree)
    others = {"PCA": principal_components(y), "GPLVM": GPLVM.fit(y, iterations=iterations).x}
    drawn = {
        "maps-models": tree_maps([unit, flat], tree, others),
        "maps-curvatures": tree_maps([*decreasing, flat], tree),
        "maps-gyroplanes": tree_maps([*decreasing, flat], tree, gyroplanes=True),
        "maps-distance": distance_maps([unit, flat], tree),
    }
    return _save(workspace, drawn)


def _digits(configs: Sequence[Config], rows: int | None, test: int | None, workspace: Workspace) -> dict[str, Any]:
    dataset = table2.dataset(0, rows, test)
    fitted = train(configs, [dataset] * len(configs), workspace, "digit-maps")
    _, labels = table2.digits("test", test)

    def samples(one: Map) -> torch.Tensor:
        model = one.fitted.model
        return model.sample(SAMPLES, torch.Generator(model.device).manual_seed(0), mean=True).cpu()

    maps = [Map(one, dataset.test) for one in fitted]
    return _save(workspace, {"maps-digits": digit_maps(maps, dataset.test, labels, samples)})


def summarise(results: Results) -> dict[str, Any]:
    """Which pictures there are."""
    return {"files": [name for result in results.values() for name in result["files"]]}


def page(result: Mapping[str, Any]) -> Page:
    """All pictures with their captions."""
    gallery = {f"{name}.png": CAPTIONS[name] for name in result["files"]}
    return Page(f"{len(gallery)} figures.", "neutral", [], gallery=gallery)


EXPERIMENT = Experiment("figures", "The paper's figures", shards, summarise, page, minutes=1)
