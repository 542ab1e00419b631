"""Make run folders in the format of today, `tests/data/run-format-N…`: `python tests/make_fixtures.py`.

Folders of every supported format stay, so that later versions can be seen to read them. They are made once, when the
format is new; the figures that the models gave at that time are in `tests/data/run-figures.json`.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

__all__ = ["BEGUN", "COMPARISONS", "DATA", "FIGURES", "FOLDERS", "GRAPHS", "figures", "fixture_table", "write_data"]

DATA = Path(__file__).parent / "data"
FIGURES = DATA / "run-figures.json"


def _folders(*names: str) -> list[Path]:
    return [DATA / f"run-format-{name}" for name in names]


FOLDERS = _folders("3-categorical")
"""models of the table"""
GRAPHS = _folders("3-graph")
BEGUN = _folders("3-begun")
"""trainings of the table that were interrupted"""
COMPARISONS = _folders("3-comparison")

KEPT = ("config.json", "embedding.csv", "metrics.jsonl", "model.safetensors", "embedding.safetensors")
KEPT_TO_GO_ON = ("config.json", "comparison.json", "metrics.jsonl", "checkpoint/*")
TINY = "--hidden 4 --epochs 3 --learn-curvature --curvature 0.7 --seed 3 -q"
TABLE = f"fit table.csv -o run --id name --label kind --categorical colour --batch-size 8 {TINY}"
COMPARED = "compare table.csv -o run --id name --label kind --categorical colour --curvatures 0.5 --repeats 3 --jobs 1"
COMMANDS = {
    "categorical": TABLE,
    "graph": f"graph edges.csv --nodes nodes.csv --label kind --features age --splits 0 -o run {TINY}",
    "begun": TABLE,
    "comparison": f"{COMPARED} --hidden 4 --epochs 3 --batch-size 8 --seed 3 -q",
}


def fixture_table(colour: bool = False) -> pd.DataFrame:
    """The data of the runs, by a formula that no version of anything changes."""
    i = np.arange(24)
    columns: dict[str, Any] = {name: np.sin(i * (j + 1.3)) * 10**j for j, name in enumerate("abc")}
    if colour:
        columns["colour"] = np.array(["red", "green", "blue"])[i * i % 3 + (i % 5 == 0)]
    return pd.DataFrame({**columns, "name": [f"row{n}" for n in i], "kind": np.where(i % 3 == 0, "x", "y")})


def write_data(home: Path, colour: bool = True) -> None:
    """The data of the runs as files: a table, and a tree of 15 nodes with their own table."""
    fixture_table(colour).to_csv(home / "table.csv", index=False)
    pairs = "".join(f"n{(i - 1) // 2},n{i}\n" for i in range(1, 15))
    (home / "edges.csv").write_text(f"source,target\n{pairs}", encoding="utf-8")
    kinds = ["root" if i == 0 else "branch" if i < 7 else "leaf" for i in range(15)]
    ages = [math.floor(math.log2(i + 1)) + i / 8 for i in range(15)]
    pd.DataFrame({"node": [f"n{i}" for i in range(15)], "kind": kinds, "age": ages}).to_csv(
        home / "nodes.csv", index=False
    )


def figures(folder: Path) -> dict[str, list[float]]:
    """What the model of a folder says of its data."""
    from curvae import PoincareGraphVAE, PoincareVAE

    if folder in GRAPHS:
        graph = PoincareGraphVAE.load(folder)
        pairs = [[0, i] for i in range(1, 15)]
        return {"link_probability": graph.link_probability(pairs).tolist(), "sigma": graph._embedding.sigma.tolist()}
    model = PoincareVAE.load(folder)
    x = fixture_table(colour=True)[list(model.feature_names_in_)]
    return {"log_prob": model.score_samples(x).tolist(), "nearest": model.kneighbors(k=1)[0][:, 0].tolist()}


def _interrupted(_: Any) -> Callable[[dict[str, Any], int], None]:
    def progress(record: dict[str, Any], epochs: int) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    return progress


def make() -> None:
    """Write the folders of the format of today, and the figures of their models."""
    from curvae.training import stacks
    from curvae.training.storage import FORMAT
    from running import curvae

    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name, command in COMMANDS.items():
        if (DATA / f"run-format-{FORMAT}-{name}").exists():
            continue
        target = DATA / f"run-format-{FORMAT}-{name}"
        with tempfile.TemporaryDirectory() as home, mock.patch("joblib.cpu_count", return_value=1):
            write_data(Path(home))
            words = [str(Path(home, word)) if word == "run" or ".csv" in word else word for word in command.split()]
            if name == "begun":
                often = {"_CHECKPOINT_EVERY": 0.0, "_CHECKPOINT_SHARE": math.inf}
                with (
                    mock.patch.multiple(stacks, **often),
                    mock.patch("curvae.runs.training.epoch_progress", _interrupted),
                ):
                    found = curvae(*words)
            else:
                found = curvae(*words)
            if found.code != (130 if name == "begun" else 0):
                raise SystemExit(found.err)
            run, going_on = Path(home, "run"), name in ("begun", "comparison")
            target.mkdir(parents=True)
            for path in [path for pattern in (KEPT_TO_GO_ON if going_on else KEPT) for path in run.glob(pattern)]:
                place = target / path.relative_to(run)
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(path.read_bytes())
    for folder in (*FOLDERS, *GRAPHS):
        if folder.name not in known and folder.exists():
            known[folder.name] = figures(folder)
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    make()
