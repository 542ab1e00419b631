"""Data on disk that are read in pieces: small files, in so little memory that they are many blocks and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["COLUMNS", "MEMORY", "mixed_table", "numbered", "write_parquet", "write_parts"]

MEMORY = "1MB"
# So many that rows of 4 bytes a value take several rounds of that memory.
COLUMNS = 80


def numbered(rows: int, columns: int = COLUMNS, seed: int = 0) -> np.ndarray:
    """Rows around a plane, whose first column is the number of the row."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 2)) @ random.normal(size=(2, columns)) + 0.3 * random.normal(size=(rows, columns))
    x[:, 0] = np.arange(rows)
    return x.astype(np.float32)


def write_parquet(
    path: Path, x: np.ndarray, group: int = 300, start: int = 0, drop: Sequence[str] = ()
) -> pd.DataFrame:
    """A table with ids and labels in row groups of so many rows."""
    table = pd.DataFrame(x, columns=[f"g{i}" for i in range(x.shape[1])])
    table["cell"] = [f"c{start + i}" for i in range(len(x))]
    table["kind"] = np.where(np.arange(start, start + len(x)) % 3, "a", "b")
    table = table.drop(columns=list(drop))
    table.to_parquet(path, row_group_size=group, index=False)
    return table


def mixed_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """A table with columns of every kind and role; one category occurs only in the last rows."""
    random = np.random.default_rng(seed)
    batch = random.integers(3, size=rows)
    age = random.normal(40, 9, rows)
    factor = random.normal(size=rows)
    colour = np.array(["red", "blue", "green"])[random.integers(3, size=rows)].astype(object)
    colour[-5:] = "violet"
    return pd.DataFrame(
        {
            "a": 1000 + 3 * factor + 2 * batch + random.normal(size=rows),
            "colour": colour,
            "b": factor - 0.1 * age + random.normal(size=rows),
            "flag": (factor + random.normal(size=rows) > 0).astype(float),
            "grade": random.integers(8, 12, size=rows),
            "batch": np.array(["x", "y", "z"])[batch],
            "age": age,
            "time": random.uniform(0.5, 3.0, rows),
            "patient": [f"p{i}" for i in random.integers(12, size=rows)],
            "kind": np.where(factor > 0, "plus", "minus"),
            "cell": [f"c{i}" for i in range(rows)],
        }
    )


def write_parts(folder: str, table: pd.DataFrame, files: int = 3, group: int = 70) -> Path:
    """A table as a folder of Parquet files with several row groups each."""
    path = Path(folder)
    path.mkdir(exist_ok=True)
    size = -(-len(table) // files)
    for i in range(files):
        table[i * size : (i + 1) * size].to_parquet(path / f"{i}.parquet", row_group_size=group, index=False)
    return path
