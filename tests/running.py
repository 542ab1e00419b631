"""The command line inside the tests: calls of its `main`, small data, and pictures that cost nothing."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from curvae.cli.commands import main
from curvae.viewer import View

__all__ = [
    "SMALL",
    "Outcome",
    "config",
    "curvae",
    "few_surrogates",
    "refused",
    "settings",
    "snapshot",
    "tiny",
    "undrawn",
    "untouched",
    "write_table",
]

# A model that trains in a blink.
SMALL = ("--hidden", "8", "--epochs", "2", "--batch-size", "16")


class _Blank:
    """A figure, axes or function that takes every call and draws nothing."""

    def __getattr__(self, name: str) -> _Blank:
        return self

    def __call__(self, *given: Any, **more: Any) -> _Blank:
        return self

    def subplots(self, rows: int = 1, columns: int = 1, **more: Any) -> Any:
        return self if rows * columns == 1 else [self] * (rows * columns)


@contextmanager
def undrawn() -> Iterator[None]:
    """Reports of runs with pictures that cost nothing, and pages without what is shown where scripts do not run."""
    plain = View.picture
    charts = ("beside_surrogates", "curvature_profile", "curves", "dendrogram", "radius_histogram", "reconstructions")
    names = ("Figure", "geodesics", "graph_map", "latent_map", "mosaic", "sample_grid", *charts)
    drawn = dict.fromkeys(names, _Blank()) | {"figure_bytes": lambda figure: b"\x89PNG\r\n\x1a\n"}
    with (
        mock.patch.multiple("curvae.runs.pages", **drawn),
        mock.patch("curvae.runs.groups.bands", _Blank()),
        mock.patch("curvae.runs.groups.volcano", _Blank()),
        mock.patch.object(
            View, "picture", lambda *given, **more: b"<svg></svg>" if given[2:] else plain(*given, **more)
        ),
    ):
        yield


@contextmanager
def few_surrogates() -> Iterator[None]:
    """Diagnoses whose figures of the data are as ever, and whose p-values, from few surrogates, do not matter."""
    with (
        mock.patch("curvae.hierarchy.diagnosis._COUNT", 9),
        mock.patch("curvae.hierarchy.diagnosis._DRAWN", 9),
    ):
        yield


def tiny(code: str) -> str:
    """An example with the shortest of trainings, of small networks."""
    if command := re.match(r"curvae (fit|compare|graph|map) ", code):
        words, mark, remark = code.partition("#")
        words += "" if "--epochs" in words else " --epochs 2 "
        words += "" if "--hidden" in words or command[1] in ("graph", "map") else " --hidden 16 "
        code = f"{words}{mark}{remark}"
    code = re.sub(r"(GraphConfig|PoincareGraphVAE)\((?![^()]*epochs)", r"\g<1>(epochs=2, ", code)
    code = re.sub(r"PoincareVAE\((?![^()]*epochs)", "PoincareVAE(epochs=2, ", code)
    code = re.sub(r"PoincareVAE\((?![^()]*hidden)", "PoincareVAE(hidden=(16,), ", code)
    code = re.sub(r"\brange\(\d{3}\)", "range(20)", code)  # steps of a training
    few = {"epochs": 2, "max_epochs": 2, "repeats": 3, "samples": 20, "refine": 2}
    for setting, value in (few | dict.fromkeys(("num_samples", "n_mc_samples", "warmup_steps"), 10)).items():
        code = re.sub(rf'\b({setting}(?:[ =]|": ))\d+', rf"\g<1>{value}", code)
    return code


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def config(folder: str | Path = "run") -> Any:
    """The description of a run."""
    return json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))


def settings(folder: str | Path = "run") -> dict[str, Any]:
    """The settings of the model of a run, by name."""
    return {name: value for part in config(folder)["config"].values() for name, value in part.items()}


def curvae(*words: object, pictures: bool = False, thorough: bool = False) -> Outcome:
    """Run a command in this process; drawing, most of its time, only with `pictures`, and all surrogates of a test for
    a hierarchy only where it is `thorough`."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch("sys.argv", ["curvae", *map(str, words)]),
        redirect_stdout(out),
        redirect_stderr(err),
        nullcontext() if pictures else undrawn(),
        nullcontext() if thorough else few_surrogates(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code  # type: ignore[assignment]
    return Outcome(code, out.getvalue(), err.getvalue())


def refused(*words: object, says: Iterable[str] = ()) -> str:
    """Run a command that must fail as a user's mistake does; returns its line, and a command that works if any."""
    found = curvae(*words)
    assert found.code == 2, found
    assert found.out == ""
    said, *commands = found.err.splitlines()
    assert said.startswith("curvae: ") and [line[:7] for line in commands] == ["curvae "] * said.endswith(":"), (
        found.err
    )
    for part in says:
        assert part in found.err, found.err
    return found.err


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, to see that nothing has changed; but for the lock that a killed process left."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


def untouched(*words: object, says: Iterable[str] = ()) -> None:
    """Run a command that must fail as a user's mistake does, and see that it has changed nothing here."""
    before = snapshot(Path())
    refused(*words, says=says)
    assert snapshot(Path()) == before


def write_table(path: Path, rows: int = 40, columns: str = "abc", seed: int = 0, **more: Any) -> Path:
    """A CSV file of normal numbers, and more columns."""
    x = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    pd.DataFrame(x, columns=list(columns)).assign(**more).to_csv(path, index=False)
    return path
