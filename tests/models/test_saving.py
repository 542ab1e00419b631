"""Models as safetensors: one name a tensor, fixed and learned curvatures in each other's place."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file, save_file

from curvae.models import VAE, Gaussian, GeodesicEdges, GraphVAE, Posterior
from curvae.nn import Curvature, GraphEncoder, HyperbolicFactor, Layers, LogMap0, MobiusLinear, Space, decoder, mlp
from curvae.training import Config, build
from curvae.training.fitted import restored_model

LEARNED = pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])


def vae(learned, kind="mobius", c=0.7):
    space = Space([HyperbolicFactor(2, c, learned)])
    return VAE(mlp(5, 8), decoder(kind, space, (8,), 5), Posterior(8, space), Gaussian(5))


def shared(learned, c=0.7):
    """A model with layers that own the curvature of the space."""
    curvature = Curvature(c, learnable=learned)
    layers = MobiusLinear(2, 8, curvature), LogMap0(curvature), torch.nn.ReLU(), torch.nn.Linear(8, 5)
    return VAE(mlp(5, 8), Layers(*layers), Posterior(8, Space([HyperbolicFactor(2, curvature)])), Gaussian(5))


def graph(learned, c=0.7):
    return GraphVAE(GraphEncoder(7), Posterior(32, Space([HyperbolicFactor(2, c, learned)])), GeodesicEdges())


MAKERS = pytest.mark.parametrize(
    "make",
    [vae, graph, shared],
)


def with_aliases(model):
    """Return the state with every shared tensor under all of its names."""
    names = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return {name: t.detach().clone() for tensors in names for name, t in tensors}


@MAKERS
@LEARNED
def test_plain_safetensors(make, learned, tmp_path):
    model = make(learned, c=0.3)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    assert sum("curvature" in name for name in state) == 1
    for copy in (make(learned), deepcopy(make(learned))):
        copy.load_state_dict(state)
        for (name, t), (_, other) in zip(with_aliases(copy).items(), with_aliases(model).items(), strict=True):
            assert torch.equal(t, other), name
    torch.nn.Sequential(make(learned)).load_state_dict({f"0.{name}": t for name, t in state.items()})
    del state[next(name for name in state if "curvature" in name)]
    with pytest.raises(RuntimeError, match="Missing key"):
        make(learned).load_state_dict(state)


@MAKERS
@LEARNED
def test_states_with_all_names_still_load(make, learned):
    old, model = make(learned, c=0.3), make(learned)
    model.load_state_dict(with_aliases(old))
    for name, t in with_aliases(model).items():
        assert torch.equal(t, with_aliases(old)[name]), name


@MAKERS
@LEARNED
@pytest.mark.parametrize("state", [torch.nn.Module.state_dict, with_aliases], ids=["one name", "all names"])
def test_fixed_and_learned_curvature_load_into_each_other(make, learned, state):
    old, model = make(learned, c=0.3), make(not learned)
    model.load_state_dict(state(old))
    (curvature,) = {part for part in model.modules() if isinstance(part, Curvature)}
    assert curvature.learnable is not learned
    torch.testing.assert_close(curvature().detach(), torch.tensor(0.3))


def test_prior_scale_likewise_and_a_flat_space_cannot_be_learned():
    for learned in (False, True):
        factor = HyperbolicFactor(2, 0.7, learn_prior_scale=not learned)
        factor.load_state_dict(HyperbolicFactor(2, 0.7, prior_scale=1.5, learn_prior_scale=learned).state_dict())
        torch.testing.assert_close(factor.scale().detach(), torch.tensor(1.5))
    with pytest.raises(RuntimeError, match="a learned curvature must start above 0"):
        Curvature(1.0, learnable=True).load_state_dict(Curvature(0.0).state_dict())


def test_run_folders_load_with_a_learned_curvature():
    """The tensors of a run with a fixed curvature, and the configuration of one that learns it."""
    fixed = build(Config(curvature=0.3, likelihood="unit_gaussian"), 5)
    config = Config(curvature=1.0, learn_curvature=True, likelihood="unit_gaussian")
    for state in (fixed.state_dict(), with_aliases(fixed)):
        tensors = {f"model.{name}": t for name, t in state.items()}
        model = restored_model(tensors, (5, *config.layers), lambda: build(config, 5))
        torch.testing.assert_close(model.space.curvatures()[0].detach(), torch.tensor(0.3))
        x, noise = torch.randn(4, 5), torch.randn(2, 4, 2)
        torch.testing.assert_close(model.elbo(x, noise=noise), fixed.elbo(x, noise=noise), rtol=1e-5, atol=1e-5)
