"""How well a map of a graph tells who is linked to whom."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score

from ..data.graphs.ranking import neighbourhood_map
from ..errors import CurvaeError

__all__ = ["link_scores", "neighbourhood_map"]


def link_scores(scores_present: ArrayLike, scores_absent: ArrayLike) -> tuple[float, float]:
    """Area under the ROC curve, and average precision, of telling edges from pairs without one.

    Arguments:
        scores_present: one an edge, higher where an edge is expected.
        scores_absent: one a pair without an edge.

    Example:
        >>> link_scores([3.0, 2.0], [1.0, 0.0])
        (1.0, 1.0)
    """
    present, absent = (np.asarray(s, dtype=np.float64).reshape(-1) for s in (scores_present, scores_absent))
    scores = np.concatenate([present, absent])
    if not len(present) or not len(absent):
        raise CurvaeError("scores of edges and of pairs without an edge are needed; give at least one of each")
    if not np.isfinite(scores).all():
        raise CurvaeError("scores are not finite; the model has diverged: lower the learning rate")
    truth = np.repeat([1, 0], [len(present), len(absent)])
    return float(roc_auc_score(truth, scores)), float(average_precision_score(truth, scores))
