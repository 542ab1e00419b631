"""Tables that runs write for people, and read again."""

from __future__ import annotations

from csv import QUOTE_MINIMAL, QUOTE_NONNUMERIC
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from ..data.files import require_file
from ..data.reading import EXACT
from ..data.spreadsheets import guard, unguard
from ..training.evaluate import Embedding
from ..training.files import write_text

__all__ = ["embedding_table", "read_embedding", "write_table"]


def embedding_table(
    embedding: Embedding, ids: NDArray[Any], labels: NDArray[Any] | None, split: Any, thing: str = "row"
) -> pd.DataFrame:
    """The rows of `embedding.csv`: in input order, full precision. What has no place on the map is an error."""
    embedding.require_finite(ids, thing)
    columns: dict[str, Any] = {"id": ids, "label": [""] * len(ids) if labels is None else labels, "split": split}
    for name, values in (("ball", embedding.ball), ("tangent", embedding.tangent)):
        columns |= {f"{name}_{i + 1}": values[:, i] for i in range(embedding.dim)}
    return pd.DataFrame({**columns, "radius": embedding.radius, "sigma": embedding.sigma})


def write_table(path: Path, table: pd.DataFrame) -> None:
    """A CSV file, written atomically, in which a spreadsheet finds no formulas."""
    texts = table.select_dtypes(exclude="number").astype(str)
    # Without quotes, some readers drop blanks around a cell or take a return for the end of the line.
    delicate = any(bool(texts[name].str.contains(r"^\s|\s$|\r").any()) for name in texts)
    table = table.copy(deep=False)
    for name in texts:
        table[name] = texts[name].map(guard)
    table = table.rename(columns=guard)
    write_text(path, table.to_csv(index=False, quoting=QUOTE_NONNUMERIC if delicate else QUOTE_MINIMAL))


def read_embedding(path: Path) -> pd.DataFrame:
    """What `write_table` wrote of an `embedding_table`."""
    require_file(path)
    texts = ("id", "label")
    table = pd.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, **EXACT)
    return table.assign(**{name: table[name].map(unguard) for name in texts if name in table})
