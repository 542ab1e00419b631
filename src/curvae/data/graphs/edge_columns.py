"""The columns of an edge list: which of them name the two nodes of an edge or hold its weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..text import NUMBER

__all__ = ["INTEGER", "end_columns", "looks_like_header", "name_nodes", "weight_column"]

INTEGER = r"-?(?:0|[1-9]\d{0,17})"  # as it would be printed

_ENDS = (
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("source", "destination"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
    ("id1", "id2"),
    ("start", "end"),
    ("head", "tail"),
    ("tail", "head"),
    ("parent", "child"),
    ("child", "parent"),
    ("subject", "object"),
    ("u", "v"),
    ("i", "j"),
)
_WEIGHTS = ("weight", "weights", "value", "score", "strength", "count", "w")


def _named_ends(cells: Sequence[str]) -> tuple[int, int] | None:
    """Find two columns with usual names for the ends of an edge."""
    folded = [re.sub(r"[\W_]", "", cell.casefold()) for cell in cells]
    return next(((folded.index(a), folded.index(b)) for a, b in _ENDS if a in folded and b in folded), None)


def end_columns(header: Sequence[str] | None) -> tuple[int, int]:
    """Find the two columns that name nodes: by their names, else the first two.

    Example:
        >>> end_columns(["Id", "Source", "Target", "Weight"]), end_columns(["ann", "ben"])
        ((1, 2), (0, 1))
    """
    return (_named_ends(header) if header else None) or (0, 1)


def weight_column(source: str, header: Sequence[str] | None, width: int) -> int:
    """Find the column of weights: by its name, else the first that does not name nodes."""
    folded = [cell.strip().casefold() for cell in header or ()]
    named = [folded.index(name) for name in _WEIGHTS if name in folded]
    others = [column for column in range(width) if column not in end_columns(header)]
    if not others:
        raise CurvaeError(f"{source} has no third column for weights; add it, or leave out weighted=True")
    return next((column for column in named if column in others), others[0])


def looks_like_header(records: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some records holds column names.

    It does if it has the usual names, or two names that differ only in a 1 and a 2 and start no other record, or a
    text where all other records have a number.

    Example:
        >>> looks_like_header([["protein1", "protein2"], ["p53", "mdm2"]])
        True
        >>> looks_like_header([["ann", "ben", "weight"], ["ben", "cem", "2"]])
        True
        >>> looks_like_header([["n1", "n2"], ["n2", "n3"]])
        False
    """
    first, rest = records[0], records[1:]
    if _named_ends(first) is not None:
        return True
    a = re.fullmatch(r"(.+?)[\W_]*[1ax]", first[0].casefold())
    b = re.fullmatch(r"(.+?)[\W_]*[2by]", first[1].casefold())
    if a and b and a[1] == b[1]:
        series = re.compile(rf"{re.escape(a[1])}[\W_]*(?:\d+|\w)", re.IGNORECASE)
        return not any(series.fullmatch(cell) for record in rest for cell in record[:2])
    if not rest:
        return False
    numbers = [all(re.fullmatch(NUMBER, record[k]) for record in rest) for k in range(len(first))]
    texts = [cell != "" and re.fullmatch(NUMBER, cell) is None for cell in first]
    if numbers[0] and numbers[1]:
        return texts[0] and texts[1]
    return any(number and text for number, text in zip(numbers[2:], texts[2:], strict=True))


def name_nodes(left: Any, right: Any) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """List the names of all nodes, (nodes,), and the links between their positions, (links, 2).

    Nodes are ordered by number if all names are integers, else by first appearance.

    Arguments:
        left, right: series with the names of the two nodes of each link.

    Example:
        >>> names, links = name_nodes(pd.Series(["b", "c "]), pd.Series(["c", "a"]))
        >>> names.tolist(), links.tolist()
        (['b', 'c', 'a'], [[0, 1], [1, 2]])
    """
    codes, found = pd.factorize(pd.concat([left, right], ignore_index=True))
    # Names that differ only in blanks around them are the same.
    same, names = pd.factorize(pd.Series(found, dtype=object).str.strip())
    links = same[codes].reshape(2, -1).T
    texts = names.to_numpy(dtype=np.str_)
    if all(re.fullmatch(INTEGER, text) for text in texts.tolist()):
        order = np.argsort(texts.astype(np.int64), kind="stable")
    else:
        order = pd.unique(links.ravel())
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return texts[order], place[links]
