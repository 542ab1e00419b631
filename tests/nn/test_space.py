"""The latent space: how it is written, what it is made of, and that a product is what its factors are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from another_distribution import HeavyTailed
from curvae.distributions import HyperbolicNormal, ProductNormal, RiemannianNormal, WrappedNormal
from curvae.errors import CurvaeError
from curvae.nn import Curvature, HyperbolicFactor, Space
from curvae.settings import FactorSettings, parse_space
from curvae.training import Config
from curvae.training.fitted import GraphConfig
from products import PRODUCTS, FactorTests

F64 = torch.float64


# --- factors --------------------------------------------------------------------------------------------------------


class TestHyperbolic(FactorTests):
    text = "h2:1.3"


class TestHyperbolicLine(FactorTests):
    text = "h1:0.6"


class TestWrapped(FactorTests):
    text, options = "h3:0.7", {"distribution": "wrapped"}


class TestDiagonal(FactorTests):
    text, options = "h3:0.7", {"distribution": "wrapped", "diagonal": True}


class TestLearned(FactorTests):
    text, options = "h2:learn", {"distribution": "wrapped"}


class TestFlat(FactorTests):
    text = "e3"


class TestAnotherDistribution(FactorTests):
    text, options = "h3:0.7", {"distribution": HeavyTailed}


@pytest.mark.parametrize("kind", [Config, GraphConfig])
def test_one_factor_is_its_short_form(kind):
    assert kind(space="h3:1.2") == kind(dim=3, curvature=1.2) and kind(space="h3:1.2").space is None
    assert kind(space="h2:learn") == kind(learn_curvature=True)
    assert kind(space="e4") == kind(dim=4, curvature=0.0)
    assert kind(space="h3:1.2", dim=3, curvature=1.2) == kind(space="h3:1.2")
    for wrong in ({"dim": 4}, {"curvature": 0.5}, {"learn_curvature": True}):
        with pytest.raises(CurvaeError, match=f"{next(iter(wrong))}=.*contradicts"):
            kind(space="h3:1.2", **wrong)


@pytest.mark.parametrize("kind", [Config, GraphConfig])
def test_a_product_is_a_text_and_a_dimension(kind):
    config = kind(space=" h2:1.0, e3,h2:learn ")
    assert config.space == "h2,e3,h2:learn" and config.dim == 7
    assert [(one.kind, one.dim, one.curved) for one in config.factors] == [
        ("h", 2, True),
        ("e", 3, False),
        ("h", 2, True),
    ]
    assert kind.from_json(config.to_json()) == config and kind(space="h2,e3", dim=5).dim == 5
    assert config.with_curvature(0.5).space == "h2:0.5,e3,h2:learn"
    assert kind(space="h2,e3").with_curvature(0.0).space == "e2,e3"
    for wrong in ({"dim": 4}, {"curvature": 0.5}, {"learn_curvature": True}):
        with pytest.raises(CurvaeError, match=f"{next(iter(wrong))}=.*contradicts"):
            kind(space="h2,e3", **wrong)


# --- spaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PRODUCTS)
@pytest.mark.parametrize("distribution", ["wrapped", "riemannian"])
def test_a_product_has_the_distributions_of_its_factors(text, distribution):
    space = Space(text, distribution=distribution, prior_scale=1.3)
    q, p = space.posterior(torch.randn(5, space.outputs)), space.prior()
    assert isinstance(q, ProductNormal) and isinstance(p, ProductNormal)
    assert q.batch_shape == (5,) and p.batch_shape == () and q.event_shape == p.event_shape == (space.dim,)
    kind = {"wrapped": WrappedNormal, "riemannian": RiemannianNormal}[distribution]
    for factor, of_q, of_p, c in zip(space, q.factors, p.factors, space.curvatures(), strict=True):
        assert type(of_q) is type(of_p) is kind and of_q.manifold.dim == factor.dim
        assert of_q.manifold.c.item() == of_p.manifold.c.item() == c.item()
        assert float(of_p.scale) == pytest.approx(1.3) and not of_p.loc.any()
    single = Space("h2", distribution=distribution)
    assert isinstance(single.prior(), HyperbolicNormal) and isinstance(single.posterior(torch.zeros(3)), kind)


def test_every_parameter_has_one_name():
    space = Space("h2:learn,e3,h2:learn", prior_scale=2.0)
    assert sorted(name for name, _ in space.named_parameters()) == [
        "factors.0.curvature.log_c",
        "factors.2.curvature.log_c",
    ]
    assert space.learned and not Space("h2,e3").learned
    numbers = {name: value.item() for name, value in space.numbers().items()}
    assert numbers == {
        f"{name}_{i}": v for i, c in enumerate((1, 0, 1), 1) for name, v in (("c", c), ("prior_scale", 2))
    }


def test_factors_may_be_given_as_modules():
    shared = Curvature(0.7)
    space = Space(
        [
            HyperbolicFactor(2, shared, prior_scale=0.5),
            HyperbolicFactor(3, 0.0, distribution="wrapped"),
            FactorSettings(1),
        ]
    )
    assert [(f.name, f.dim, f.prior_scale) for f in space.figures()] == [("h1", 2, 0.5), ("e2", 3, 1.0), ("h3", 1, 1.0)]
    assert next(iter(space)).curvature is shared and float(next(iter(space)).identifiable()) == pytest.approx(0.175)


def test_a_prior_of_another_kind():
    """Posteriors of one kind and a prior of another go through their own methods."""
    space = Space([HyperbolicFactor(2, 0.7, distribution="wrapped", prior="riemannian"), HyperbolicFactor(1, 0.0)])
    outputs, noise = torch.randn(4, space.outputs, dtype=F64), torch.randn(2, 4, 3, dtype=F64)
    z, kl = space.draw(outputs, noise, F64)
    q, p = space.posterior(outputs), space.prior()
    assert type(p.factors[0]) is RiemannianNormal and type(q.factors[0]) is WrappedNormal
    torch.testing.assert_close(kl, q.log_prob(z) - p.log_prob(z), rtol=1e-8, atol=1e-8)


def test_spaces_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="a diagonal posterior needs"):
        Space("h2", diagonal=True)
    with pytest.raises(ValueError, match="distribution must be one of"):
        Space("h2", distribution="normal")
    with pytest.raises(CurvaeError, match="reaches out to"):
        Space("h2,h2:1e6")
    with pytest.raises(CurvaeError, match="must start above 0"):
        Config(curvature=0.0, learn_curvature=True)


def test_options_are_not_for_factors_that_are_modules():
    with pytest.raises(TypeError, match="give prior_scale to each Factor"):
        Space([HyperbolicFactor(2)], prior_scale=2.0)


def test_a_distribution_says_whether_it_can_be_diagonal():
    class Own(WrappedNormal):
        allows_diagonal = False

    assert HyperbolicFactor(2, distribution="wrapped", diagonal=True).outputs == 4
    with pytest.raises(ValueError, match="Own has one standard deviation for all axes"):
        HyperbolicFactor(2, distribution=Own, diagonal=True)


@pytest.mark.parametrize("text", ["h5:1.4", "h3:0.4,e2,h4:2.0"])
def test_networks_in_units_of_the_prior_scale_see_the_same_model(text):
    """A model of curvature c with the chosen σ0 is that of curvature c·σ0² with σ0 = 1: only c·σ0² can be told."""
    factors = parse_space(text)
    scales = [factor.prior_scale for factor in factors]
    assert [not factor.curved or scale < 1 for factor, scale in zip(factors, scales, strict=True)] == [True] * len(
        factors
    )
    same = [replace(one, curvature=one.curvature * s * s) for one, s in zip(factors, scales, strict=True)]
    found = []
    for each, sizes, units in ((factors, scales, True), (same, 1.0, False)):
        space = Space(each, prior_scale=sizes, units=units).double()
        torch.manual_seed(0)
        outputs, noise = torch.randn(6, space.outputs).double(), torch.randn(2, 6, space.dim).double()
        S, kl = space.draw(outputs, noise, torch.float64)
        points, c = space.in_units(S)
        found.append((points, kl, torch.stack(c).double()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # c and σ0 are float32
