"""Distributions as latent sample sites of Pyro: SVI, autoguides and NUTS against exact answers."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch.distributions import kl_divergence

from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from curvae.distributions import to_pyro

pyro = pytest.importorskip("pyro")

import pyro.distributions as dist  # noqa: E402 - without Pyro the tests above are skipped
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceMeanField_ELBO, autoguide  # noqa: E402

F64 = torch.float64
ORIGIN = torch.zeros(2, dtype=F64)
BALL = PoincareBall(2, 1.0)
SITES = {
    "riemannian": RiemannianNormal(ORIGIN, 0.7, BALL),
    "wrapped": WrappedNormal(ORIGIN, torch.tensor([0.5, 0.9], dtype=F64), Lorentz(2, 0.3)),
    "centred": RiemannianNormal.centred(torch.tensor(0.7, dtype=F64), BALL),
    "radius": HyperbolicRadius(3, torch.tensor(0.8, dtype=F64), 1.0),
    "direction": SphericalUniform(3, F64),
}


@pytest.fixture(autouse=True)
def _clean():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


# --- sites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SITES)
def test_a_site_is_the_same_distribution(name):
    plain = SITES[name]
    site = to_pyro(plain)
    assert isinstance(site, type(plain)) and isinstance(site, dist.Distribution)
    assert not isinstance(plain, dist.Distribution)
    assert repr(site) == repr(plain) and type(to_pyro(site)) is type(site)
    value = site()
    for other in (copy.copy(site), copy.deepcopy(site), pickle.loads(pickle.dumps(site))):
        assert type(other) is type(site)
        assert torch.equal(other.log_prob(value), plain.log_prob(value))
    expanded = site.expand((4, 3))
    assert type(expanded) is type(site)
    assert expanded.shape() == (4, 3, *plain.event_shape) == expanded().shape
    assert site.expand_by((4,)).to_event(1).log_prob(site((4,))).shape == ()
    assert torch.equal(site.mask(False).log_prob(value), torch.zeros_like(plain.log_prob(value)))


def test_divergences_find_the_site():
    p, q = (WrappedNormal(ORIGIN, scale, Euclidean(2)) for scale in (0.5, 0.8))
    assert torch.equal(kl_divergence(to_pyro(p), to_pyro(q)), kl_divergence(p, q))


def test_plates():
    def model():
        with pyro.plate("rows", 5, dim=-2), pyro.plate("columns", 3, dim=-1):
            return pyro.sample("z", to_pyro(SITES["riemannian"]))

    trace = pyro.poutine.trace(model).get_trace()
    trace.compute_log_prob()
    assert trace.nodes["z"]["value"].shape == (5, 3, 2) and trace.nodes["z"]["log_prob"].shape == (5, 3)


# --- SVI ------------------------------------------------------------------------------------------------------------

PRIOR, NOISE = 0.8, 0.5
SEEN = torch.tensor([0.9, -1.7], dtype=F64)


def wrapped_model(manifold):
    """v ~ N(0, PRIOR²), x ~ N(v, NOISE²) for z = exp_0(v): the posterior of v and the evidence are known."""
    z = pyro.sample("z", to_pyro(WrappedNormal(ORIGIN, PRIOR, manifold)))
    pyro.sample("x", dist.Normal(vector(z, manifold), NOISE).to_event(1), obs=SEEN)


def vector(z, manifold):
    """log_0(z) in units of length; λ_0 of the charts by hand."""
    return manifold.logmap0(z) * (2.0 if isinstance(manifold, PoincareBall) else 1.0)


SHRINKAGE = PRIOR**2 / (PRIOR**2 + NOISE**2)
EVIDENCE = multivariate_normal(np.zeros(2), (PRIOR**2 + NOISE**2) * np.eye(2)).logpdf(SEEN.numpy())
SPACES = (Euclidean(2), Lorentz(2, 0.3), PoincareBall(2, 5.0), PoincareBall(2, torch.tensor(1.0, dtype=F64)))


@pytest.mark.parametrize("manifold", SPACES, ids=str)
def test_an_exact_guide_has_the_evidence_as_its_elbo(manifold):
    """At the posterior every draw gives log p(x): the densities of model and guide have one measure."""
    guide = autoguide.AutoNormal(wrapped_model)
    guide(manifold)
    guide.locs.z = SHRINKAGE * SEEN
    guide.scales.z = torch.full_like(SEEN, math.sqrt(SHRINKAGE) * NOISE)
    for _ in range(3):
        assert -Trace_ELBO().loss(wrapped_model, guide, manifold) == pytest.approx(EVIDENCE, rel=1e-9)


@pytest.mark.slow
def test_a_guide_learns_the_posterior():
    manifold = PoincareBall(2, 5.0)
    guide = autoguide.AutoMultivariateNormal(wrapped_model)
    svi = SVI(wrapped_model, guide, pyro.optim.ClippedAdam({"lr": 0.1, "lrd": 0.975}), Trace_ELBO())
    first = -svi.evaluate_loss(manifold)
    for _ in range(150):
        svi.step(manifold)
    assert first < EVIDENCE - 1
    assert -np.mean([svi.evaluate_loss(manifold) for _ in range(20)]) == pytest.approx(EVIDENCE, abs=0.1)
    assert torch.allclose(vector(guide.median()["z"], manifold), SHRINKAGE * SEEN, rtol=0, atol=0.1)


CURVED = PoincareBall(2, 4.0)
CENTRE = torch.tensor([0.1, 0.05], dtype=F64)
POLES = torch.tensor([[0.45, 0.0], [-0.2, 0.4], [0.0, -0.3]], dtype=F64)
LENGTHS = torch.tensor([1.3, 1.0, 2.4], dtype=F64)


def distances_model(copies=1):
    """A point seen through its distances to three others."""
    with pyro.plate("copies", copies):
        z = pyro.sample("z", to_pyro(RiemannianNormal(CENTRE, 1.0, CURVED)))
        pyro.sample(
            "x", dist.Normal(CURVED.dist(z.unsqueeze(-2), POLES), 0.7).to_event(1), obs=LENGTHS.expand(copies, 3)
        )


def radius_model(copies=1):
    with pyro.plate("copies", copies):
        r = pyro.sample("r", to_pyro(SITES["radius"]))
        pyro.sample("x", dist.Normal(r, 0.3), obs=torch.ones(copies, dtype=F64))


GUIDES = [
    "AutoDelta",
    "AutoGaussian",
    "AutoIAFNormal",
    "AutoLaplaceApproximation",
    "AutoMultivariateNormal",
    "AutoNormalMessenger",
    "AutoStructured",
]


@pytest.mark.parametrize("name", GUIDES)
def test_guides(name):
    default = torch.get_default_dtype()
    torch.set_default_dtype(F64)  # some guides keep buffers of the default dtype
    try:
        guide = getattr(autoguide, name)(distances_model)
        svi = SVI(distances_model, guide, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
        losses = [svi.step() for _ in range(25)]
        drawn = guide()
    finally:
        torch.set_default_dtype(default)
    assert np.isfinite(losses).all() and np.mean(losses[-8:]) < np.mean(losses[:8])
    if isinstance(drawn, dict):  # of others the draws have no names
        assert bool(CURVED.contains(drawn["z"]).all()) and drawn["z"].shape == (1, 2)


def test_a_guide_written_by_hand():
    """With a parameter that stays on the manifold, and a divergence in closed form, which flat space has."""
    space = Euclidean(2)

    def guide(manifold):
        loc = pyro.param("loc", ORIGIN.clone(), constraint=WrappedNormal(ORIGIN, 1.0, manifold).support)
        pyro.sample("z", to_pyro(WrappedNormal(loc, math.sqrt(SHRINKAGE) * NOISE, manifold)))

    svi = SVI(wrapped_model, guide, pyro.optim.ClippedAdam({"lr": 0.1, "lrd": 0.97}), TraceMeanField_ELBO())
    for _ in range(120):
        svi.step(space)
    assert torch.allclose(pyro.param("loc"), SHRINKAGE * SEEN, rtol=0, atol=0.05)


def test_a_direction_has_a_point_estimate_and_no_bijection():
    target = torch.tensor([0.0, 0.6, -0.8], dtype=F64)

    def model():
        u = pyro.sample("u", to_pyro(SphericalUniform(3, F64)))
        pyro.sample("x", dist.Normal(u, 0.1).to_event(1), obs=target)

    guide = autoguide.AutoDelta(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    for _ in range(200):
        svi.step()
    assert torch.allclose(guide.median()["u"], target, atol=0.01)
    with pytest.raises(ValueError, match="cannot handle spherical sample site 'u'"):  # what Pyro makes of our error
        autoguide.AutoNormal(model)()


# --- NUTS -----------------------------------------------------------------------------------------------------------


def exact_means() -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior means by quadrature: of the ball coordinates of z with the Riemannian measure sinh(√c·t)/√c dt dφ, of
    the same with t dt dφ, as if exp_0 kept volumes, and of r."""
    t, phi = np.linspace(0, 8, 1601)[1:, None], np.linspace(0, 2 * np.pi, 401)[None, :-1]
    z = np.tanh(t)[..., None] / 2 * np.stack([np.cos(phi), np.sin(phi)], -1)

    def distance(a):
        gap = ((z - a) ** 2).sum(-1) / ((1 - 4 * (z**2).sum(-1)) * (1 - 4 * (a**2).sum()))
        return np.arccosh(1 + 8 * gap) / 2

    log_p = -(distance(CENTRE.numpy()) ** 2) / 2
    for pole, length in zip(POLES.numpy(), LENGTHS.numpy(), strict=True):
        log_p = log_p - (distance(pole) - length) ** 2 / (2 * 0.7**2)
    weights = (np.exp(log_p) * np.sinh(2 * t), np.exp(log_p) * t)
    r = np.linspace(0, 10, 4001)
    other = np.exp(-(r**2) / (2 * 0.8**2) - (r - 1) ** 2 / (2 * 0.3**2)) * np.sinh(r) ** 2
    points, wrong = (np.tensordot(weight, z, 2) / weight.sum() for weight in weights)
    return points, wrong, float((other * r).sum() / other.sum())


def nuts(model, site: str, copies: int, step: float) -> torch.Tensor:
    """Mean of the site over many copies of the problem in one plate: exact to 0.006 after few iterations.

    The step is given, for half of all steps would be those that look for it.
    """
    given = {"step_size": step, "adapt_step_size": False, "adapt_mass_matrix": False}
    kernel = NUTS(model, max_tree_depth=5, init_strategy=autoguide.init_to_sample, **given)
    mcmc = MCMC(kernel, num_samples=6, warmup_steps=5, disable_progbar=True)
    mcmc.run(copies)
    drawn = mcmc.get_samples()[site]
    # Copies are independent, iterations are not.
    error = drawn.mean(0).std(0) / math.sqrt(copies)
    assert bool((error < 0.006).all()), error
    return drawn.mean((0, 1))


@pytest.mark.slow
def test_nuts_has_the_mean_of_the_posterior():
    expected, wrong, _ = exact_means()
    assert np.abs(expected - wrong).max() > 0.02
    assert nuts(distances_model, "z", 500, 0.1).numpy() == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
def test_nuts_has_the_mean_of_a_radius():
    assert nuts(radius_model, "r", 600, 0.07).item() == pytest.approx(exact_means()[2], abs=0.015)
