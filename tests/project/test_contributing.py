"""The recipes of CONTRIBUTING.md: their code is run as the module that it is meant to be."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from curvae.nn import HyperbolicFactor, Space, decoder, mlp
from curvae.settings import RowSettings, configs as parts, setting as names
from curvae.settings.setting import setting
from paths import ROOT

EXAMPLES = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
# What each of them has, and no other.
WANTED = (
    *("class Exponential", "LIKELIHOODS = ", "class HeavyTailed", "space = Space", "class CircleFactor", "TABLES = "),
    *("def read_json_lines", "sharpness: ", "benchmarks.against"),
)


def example(part: str) -> str:
    """The example that has this in it, one of `WANTED`."""
    assert part in WANTED
    (code,) = (code for _, code in EXAMPLES if part in code)
    return code


def test_every_example_is_run() -> None:
    assert sorted(map(example, WANTED)) == sorted(code for _, code in EXAMPLES)


def added(name: str, before: Mapping[str, Any], **known: object) -> dict[str, Any]:
    """What a table of the library is when the lines of an example are added to it."""
    names = {"before": before, **known}
    exec(example(f"{name} = ").replace("…", "**before,"), names)
    return names[name]  # type: ignore[return-value]


def module(package: str, kind: str, name: str) -> SimpleNamespace:
    """The example that defines a name, as a module of a package."""
    code = example(f"{kind} {name}")
    names = {"__name__": f"{package}.example", "__package__": package}
    exec(compile(code, name, "exec"), names)
    return SimpleNamespace(**names)


def test_a_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    family = module("curvae.models.likelihoods", "class", "Exponential").EXPONENTIAL
    likelihood = family.make(Layout(3), RowSettings())
    random = np.random.default_rng(0)
    outputs, x = random.normal(size=(2, 5, 3)), random.exponential(size=(5, 3))
    entries = likelihood.entries(torch.from_numpy(outputs), Batch(torch.from_numpy(x)))
    np.testing.assert_allclose(entries, stats.expon.logpdf(x, scale=np.exp(outputs)))
    mean = torch.tensor([0.5, 1.0, 4.0])
    torch.testing.assert_close(likelihood.mean(likelihood.start(mean)), mean)
    listed = added("LIKELIHOODS", names.LIKELIHOODS)
    assert listed.keys() - names.LIKELIHOODS.keys() == {family.name}
    assert listed[family.name] == f"{family.name}:EXPONENTIAL"
    monkeypatch.setitem(LIKELIHOODS, family.name, family)
    assert choose_likelihood(x, family.name)[0] == family.name
    with pytest.raises(CurvaeError, match="needs positive values"):
        choose_likelihood(-x, family.name)


@pytest.mark.parametrize("c", [0.0, 0.7])
@pytest.mark.parametrize("d", [1, 3])
def test_a_distribution(d: int, c: float) -> None:
    kind = module("curvae.distributions", "class", "HeavyTailed").HeavyTailed
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
    kind = module("curvae.distributions", "class", "HeavyTailed").HeavyTailed
    for line in example("space = Space").splitlines():
        names = {"Space": Space, "HyperbolicFactor": HyperbolicFactor, "HeavyTailed": kind}
        exec(line, names)
        space = names["space"]
        model = VAE(mlp(6, 8), decoder("gyroplane", space, (8,), 6), Posterior(8, space), Bernoulli(6))
        loss = -model.elbo(torch.rand(4, 6)).mean()
        loss.backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = module("curvae.data", "def", "read_json_lines").read_json_lines
    for ending, known in added("TABLES", TABLES, read_json_lines=reader).items():
        monkeypatch.setitem(TABLES, ending, known)
    frame = pd.DataFrame({"name": ["a", "b", "c"], "size": [1.5, None, 3.0], "on": [True, False, True]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected, _ = load(tmp_path / "t.csv", id="name", missing="mean")
    for ending in (".jsonl", ".jsonl.gz"):
        frame.to_json(tmp_path / f"t{ending}", orient="records", lines=True)
        read, _ = load(tmp_path / f"t{ending}", id="name", missing="mean", memory="1MB")  # as commands read it
        assert read.fingerprint == expected.fingerprint
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


def test_a_setting() -> None:
    made: dict[str, Any] = {"__annotations__": {}}
    exec(example("sharpness: "), {"setting": setting, "_SHARE_OF_1": parts._SHARE_OF_1}, made)
    settings = make_dataclass("Settings", [("sharpness", float, made["sharpness"])])
    assert settings().sharpness == 0 and fields(settings)[0].metadata["setting"].help.startswith("Weight of the")


def test_speed_against_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, with figures that take no time."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import against

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(against, "run", lambda folder, benchmarks, names, seconds: ({f"{names[0]}: x": 1.0}, {}))
    for line in example("benchmarks.against").splitlines():
        program, option, name, other, out, *more = shlex.split(line, comments=True)
        assert (program, option, name) == ("python", "-m", "benchmarks.against")
        against.main([other.replace("main", str(ROOT)).replace("../checkout", str(ROOT)), out, *more])
        assert json.loads(Path(out).read_text())["figures"]
