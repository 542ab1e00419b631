"""Methods beside the model: GPLVM, principal components, classifiers."""

from __future__ import annotations

import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from curvae.data import branching_diffusion
from curvae.geometry import PoincareBall
from curvae.hierarchy import Embedded
from curvae.nn import Gyroplane
from curvae.paper.methods import (
    classifier,
    confusions,
    gplvm,
    negative_log_likelihood,
    principal_components,
    recovery,
)
from curvae.training import Scaling, fit
from experiments import TINY, X
from paths import ROOT

# --- the map's baselines --------------------------------------------------------------------------------------------


def test_the_likelihood_of_the_gplvm():
    random = np.random.default_rng(0)
    y, x, logs = random.normal(size=(9, 4)), random.normal(size=(9, 2)), np.array([0.2, -0.3, -0.9])
    s, length, noise = np.exp(logs)
    value, in_x, in_logs = negative_log_likelihood(x, logs, y)
    squares = ((x[:, None] - x) ** 2).sum(-1)
    kernel = s**2 * np.exp(-squares / (2 * length**2)) + (noise**2 + 1e-8 * s**2) * np.eye(9)
    assert value == pytest.approx(-stats.multivariate_normal(np.zeros(9), kernel).logpdf(y.T).sum(), rel=1e-12)

    def objective(p):
        return negative_log_likelihood(p[3:].reshape(9, 2), p[:3], y)[0]

    start = np.concatenate([logs, x.ravel()])
    steps = 1e-5 * np.eye(len(start))
    slopes = [(objective(start + e) - objective(start - e)) / 2e-5 for e in steps]
    np.testing.assert_allclose(np.concatenate([in_logs, in_x.ravel()]), slopes, atol=1e-6)
    assert gplvm(y, iterations=30)[1] > gplvm(y, iterations=1)[1]


def test_the_likelihood_of_the_gplvm_is_gpy_s():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpy = pytest.importorskip("GPy")
        random = np.random.default_rng(0)
        y, x, logs = random.normal(size=(9, 4)), random.normal(size=(9, 2)), np.array([0.2, -0.3, -0.9])
        kernel = gpy.kern.RBF(2, variance=np.exp(2 * logs[0]), lengthscale=np.exp(logs[1]))
        model = gpy.models.GPLVM(y, 2, X=x.copy(), kernel=kernel)
        model.likelihood.variance = np.exp(2 * logs[2])
        value, in_x, _ = negative_log_likelihood(x, logs, y)
        assert value == pytest.approx(-float(model.log_likelihood()), rel=1e-6)
        np.testing.assert_allclose(in_x, -np.asarray(model.X.gradient), atol=1e-5)


def test_recovery_of_a_tree():
    """Turns of observations, one by one, and the committed figures of PCA."""
    tree, c = branching_diffusion(depth=3, per_node=2), 1.3
    z = PoincareBall(2, c).random(len(tree.x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    latent, hops = [], []
    for i, j in itertools.combinations(range(len(tree.x)), 2):
        if i % 2 == j % 2:
            latent.append(float(PoincareBall(2, c).dist(z[i], z[j])))
            hops.append(float(tree.distances()[tree.node[i], tree.node[j]]))
    latent, hops = np.array(latent), np.array(hops)
    best = optimize.minimize_scalar(lambda s: np.abs(s * latent / hops - 1).mean(), (0.1, 3.0))
    radius = PoincareBall(2, c).dist0(z)
    expected = {
        "distortion": best.fun,
        "distance_correlation": stats.spearmanr(hops, latent).statistic,
        "depth_correlation": stats.spearmanr(tree.depth[tree.node], radius).statistic,
    }
    assert recovery(tree, Embedded(z.numpy(), c)) == pytest.approx(expected, abs=1e-6)
    assert list(recovery(tree, Embedded(np.zeros((30, 2)), c)).values()) == [1.0, 0.0, 0.0]
    stored = json.loads((ROOT / "results" / "paper" / "table1.json").read_text())["shards"]["baselines"]["maps"]["PCA"]
    for seed in (0, 7):
        tree = branching_diffusion(seed=seed)
        found = recovery(tree, Embedded(principal_components(Scaling.standard(tree.x).apply(tree.x)), 0.0))
        assert {"seed": seed, **found} == pytest.approx(stored[seed], abs=1e-9)


def test_principal_components_are_scikit_learn_s():
    from sklearn.decomposition import PCA

    found, expected = principal_components(X), PCA(2).fit_transform(X)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)


# --- classifiers and hyperplanes ------------------------------------------------------------------------------------


def test_classifiers_learn_and_do_not_disturb_each_other():
    fitted = [fit(replace(TINY, curvature=c, seed=s, epochs=1), X) for c, s in ((0.5, 0), (1.4, 1))]
    labels = torch.arange(90) % 3
    centre = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    points = [centre[labels] + 0.1 * torch.randn(90, 2, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    settings = {"trainings": 2, "epochs": 30, "batch_size": 20, "learning_rate": 0.01}
    both = confusions(fitted, (points, labels), (points, labels), 3, **settings)
    assert both.shape == (2, 2, 3, 3) and (both.sum(-1) == 30).all()
    assert (both.diagonal(dim1=-2, dim2=-1).sum(-1) >= 88).all()
    short = settings | {"epochs": 1}
    together = confusions(fitted, (points, labels), (points, labels), 3, **short)
    for k in (0, 1):
        alone = confusions(fitted[k : k + 1], (points[k : k + 1], labels), (points[k : k + 1], labels), 3, **short)
        assert torch.equal(alone[0], together[k])
    none = confusions(fitted, (points, labels), (points, labels), 3, **(short | {"learning_rate": 1e-12}))
    assert not torch.equal(none, both)


def test_a_classifier_starts_at_the_decoder_s_first_layer():
    learned = {"learn_curvature": True, "decoder": "gyroplane_scalar"}
    for c, more in ((0.7, {}), (0.0, {}), (0.0, {"decoder": "log_mlp"}), (0.7, learned)):
        fitted = fit(replace(TINY, curvature=c, **more), X)
        made = classifier(fitted, 10, 3)
        plain = more.get("decoder") == "log_mlp"
        assert isinstance(made[0], torch.nn.Linear if plain else Gyroplane) and made[-1].out_features == 10
        for name, t in fitted.model.decoder[0].named_parameters():
            if name != "curvature.log_c":
                assert torch.equal(t, made[0].state_dict()[name])
        if not plain:
            assert not made[0].curvature.learnable
            assert float(made[0].curvature()) == float(fitted.model.space.curvatures()[0].detach())
