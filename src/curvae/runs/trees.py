"""Trees that are known, and the rows that belong to their nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import branching_diffusion
from ..errors import CurvaeError
from ..hierarchy import Match, NamedTree, match_rows, read_tree

__all__ = ["known_tree"]

_BUILT_IN = "branching-diffusion"  # whose tree is known


def known_tree(
    tree: Path, what: str, ids: NDArray[np.str_], labels: NDArray[np.str_] | None
) -> tuple[NamedTree, Match]:
    """A tree from a file, or that of the built-in branching diffusion, and the node of each row.

    Arguments:
        tree: the file, or the name of the data.
        what: has these rows, for the error.
        ids, labels: of the rows.
    """
    if str(tree) != _BUILT_IN or tree.exists():
        known = read_tree(tree)
        return known, match_rows(known, ids, labels)
    made = branching_diffusion()
    nodes = dict(zip(made.dataset().ids.tolist(), made.node.tolist(), strict=True))
    node = np.array([nodes.get(name, -1) for name in ids.tolist()], dtype=np.intp)
    if (node < 0).all():
        raise CurvaeError(f"{what} has no rows of {_BUILT_IN}; give the tree of its data as a file")
    names = np.array([f"node{k}" for k in range(len(made.parent))], dtype=np.str_)
    known = NamedTree(names, made.parent, np.ones(len(names)))
    return known, Match(node, "id", len(names) - len(np.unique(node[node >= 0])))
