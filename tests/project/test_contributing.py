"""The recipes of CONTRIBUTING.md: their code is run as the module that it is meant to be."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats

from curvae import CurvaeError, Lorentz
from curvae.data import load
from curvae.data.tables import TABLES
from curvae.models import VAE, Batch, Bernoulli, Layout, Posterior
from curvae.models.likelihoods import LIKELIHOODS, choose_likelihood
from curvae.nn import Factor, Space, decoder, mlp
from paths import ROOT

CODE = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)


def module(package: str, name: str) -> SimpleNamespace:
    """The example that defines a name, as a module of a package."""
    (code,) = (code for code in CODE if re.search(rf"^(class|def) {name}\b", code, re.M))
    names = {"__name__": f"{package}.example", "__package__": package}
    exec(compile(code, name, "exec"), names)
    return SimpleNamespace(**names)


def test_a_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    family = module("curvae.models.likelihoods", "Exponential").EXPONENTIAL
    likelihood = family.make(Layout(3))
    random = np.random.default_rng(0)
    outputs, x = random.normal(size=(2, 5, 3)), random.exponential(size=(5, 3))
    entries = likelihood.entries(torch.from_numpy(outputs), Batch(torch.from_numpy(x)))
    np.testing.assert_allclose(entries, stats.expon.logpdf(x, scale=np.exp(outputs)))
    mean = torch.tensor([0.5, 1.0, 4.0])
    torch.testing.assert_close(likelihood.mean(likelihood.start(mean)), mean)
    monkeypatch.setitem(LIKELIHOODS, family.name, family)
    assert choose_likelihood(x, family.name)[0] == family.name
    with pytest.raises(CurvaeError, match="needs positive values"):
        choose_likelihood(-x, family.name)


@pytest.mark.parametrize("c", [0.0, 0.7])
@pytest.mark.parametrize("d", [1, 3])
def test_a_distribution(d: int, c: float) -> None:
    kind = module("curvae.distributions", "HeavyTailed").HeavyTailed
    manifold = Lorentz(d, c)
    q = kind(torch.zeros(d, dtype=torch.float64), 0.5, manifold)
    area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)

    def density(r: float) -> float:
        sinh = math.sinh(math.sqrt(c) * r) / math.sqrt(c) if c else r
        point = manifold.expmap0(r * torch.eye(d, dtype=torch.float64)[0])
        return area * sinh ** (d - 1) * math.exp(q.log_prob(point))

    assert integrate.quad(density, 0, 40, limit=200)[0] == pytest.approx(1, abs=1e-4)
    median = float(manifold.dist0(q.sample((20_000,))).median())
    assert integrate.quad(density, 0, median)[0] == pytest.approx(0.5, abs=0.02)
    _, log_q = q.rsample_and_log_prob((20_000,))
    assert abs(float(q.entropy() + log_q.mean())) < 5 * float(log_q.std()) / math.sqrt(20_000)


def test_a_distribution_in_a_model() -> None:
    kind = module("curvae.distributions", "HeavyTailed").HeavyTailed
    (code,) = (code for code in CODE if code.startswith("space = "))
    for line in code.splitlines():
        names = {"Space": Space, "Factor": Factor, "HeavyTailed": kind}
        exec(line, names)
        space = names["space"]
        model = VAE(mlp(6, 8), decoder("gyroplane", space, (8,), 6), Posterior(8, space), Bernoulli(6))
        loss = -model.elbo(torch.rand(4, 6)).mean()
        loss.backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = module("curvae.data", "read_json_lines").read_json_lines
    for ending in (".jsonl", ".jsonl.gz"):
        monkeypatch.setitem(TABLES, ending, reader)
    frame = pd.DataFrame({"name": ["a", "b", "c"], "size": [1.5, None, 3.0], "on": [True, False, True]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected, _ = load(tmp_path / "t.csv", id="name", missing="mean")
    for ending in (".jsonl", ".jsonl.gz"):
        frame.to_json(tmp_path / f"t{ending}", orient="records", lines=True)
        assert load(tmp_path / f"t{ending}", id="name", missing="mean")[0].fingerprint == expected.fingerprint
    whole = (tmp_path / "t.jsonl.gz").read_bytes()
    for name, content, says in [
        ("cut.jsonl", b'{"a": 1}\n{"a"', "cannot be read as JSON lines"),
        ("cut.jsonl.gz", whole[: len(whole) // 2], "cannot be read as JSON lines"),
        ("bytes.jsonl", bytes(range(256)), "cannot be read as JSON lines"),
        ("deep.jsonl", b"[" * 100_000, "cannot be read as JSON lines"),
        ("list.jsonl", b"[1, 2]\n", "not JSON objects"),
        ("empty.jsonl", b"", "no rows"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CurvaeError, match=says):
            load(tmp_path / name)
