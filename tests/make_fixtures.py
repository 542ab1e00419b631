"""Make `tests/data/run-format-2`, a run folder in the format of today: `python tests/make_fixtures.py`.

A folder of each format stays, so that later versions can be seen to read it. It is made once, when its format is new.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["FOLDERS", "fixture_table"]

FOLDERS = [Path(__file__).parent / "data" / f"run-format-{name}" for name in ("1", "1-flat", "2")]
KEPT = ("config.json", "embedding.csv", "metrics.jsonl", "model.safetensors")
OPTIONS = "--id name --label kind --hidden 4 --epochs 3 --batch-size 8 --learn-curvature --curvature 0.7 --seed 3 -q"


def fixture_table() -> pd.DataFrame:
    """The data of the run, by a formula that no version of anything changes."""
    i = np.arange(24)
    columns = {name: np.sin(i * (j + 1.3)) * 10**j for j, name in enumerate("abc")}
    return pd.DataFrame({**columns, "name": [f"row{n}" for n in i], "kind": np.where(i % 3 == 0, "x", "y")})


def make() -> None:
    """Write the folder."""
    from running import curvae

    with tempfile.TemporaryDirectory() as home:
        table, run = Path(home, "table.csv"), Path(home, "run")
        fixture_table().to_csv(table, index=False)
        found = curvae("fit", table, "-o", run, *OPTIONS.split())
        if found.code:
            raise SystemExit(found.err)
        FOLDERS[-1].mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            (FOLDERS[-1] / name).write_bytes((run / name).read_bytes())


if __name__ == "__main__":
    make()
