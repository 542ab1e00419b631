"""Data on disk that are read in pieces: small files, in so little memory that they are many blocks and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["COLUMNS", "MEMORY", "numbered", "write_parquet"]

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
