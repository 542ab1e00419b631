"""Yardsticks of a comparison besides the likelihood, each with its own test, and what to choose for which purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from .paired import Outcome, Paired

__all__ = ["Repeat", "Yardstick", "best_curvature"]


@dataclass(frozen=True)
class Repeat:
    """Scores of one split, by curvature: mean log-likelihoods of rows, or `Links` of a graph.

    For Gaussian likelihoods, `pca` is that of probabilistic PCA of the same dimension on the test rows; for
    faithfulness, that of PCA.
    """

    seed: int
    validation: dict[float, Any]
    test: dict[float, Any]
    pca: float | None = None

    @property
    def chosen(self) -> float:
        """The c > 0 that is best on validation data."""
        return max((c for c in self.validation if c > 0), key=lambda c: float(self.validation[c]))

    @property
    def difference(self) -> float:
        """What the chosen curvature gains on test data: in nats a row, or of a graph in AUC."""
        return float(self.test[self.chosen]) - float(self.test[0.0])


def best_curvature(repeats: Sequence[Repeat]) -> float:
    """The c > 0 with the best mean on validation data."""
    curved = [c for c in repeats[0].validation if c > 0]
    return max(curved, key=lambda c: fmean(float(one.validation[c]) for one in repeats))


@dataclass(frozen=True)
class Yardstick:
    """What curvature gains by another measure than the likelihood, on the same splits.

    Arguments:
        name: of the measure, such as "faithfulness".
        meaning: what it measures, in a few words.
        purpose: whoever wants this should choose by it: "for a map that keeps neighbours".
        repeats: scores of every split, higher is better. The c of a split is the best one on the validation data of the
            others: trainings are lucky with their maps, and chosen by its own a split would choose its luck.
        ratio: test data over training data, as of `Paired`.
    """

    name: str
    meaning: str
    purpose: str
    repeats: list[Repeat]
    ratio: float

    @property
    def paired(self) -> Paired:
        """The differences on test data."""
        return Paired(self.differences, self.ratio)

    @property
    def chosen(self) -> list[float]:
        """The c > 0 of every split: the best in the mean over the validation data of the others."""
        return [best_curvature(self.repeats[:i] + self.repeats[i + 1 :]) for i in range(len(self.repeats))]

    @property
    def differences(self) -> list[float]:
        """What it gains over c = 0 on test data."""
        return [one.test[c] - one.test[0.0] for one, c in zip(self.repeats, self.chosen, strict=True)]

    @property
    def outcome(self) -> Outcome:
        return self.paired.outcome

    @property
    def best(self) -> float:
        """The c > 0 with the best mean on validation data."""
        return best_curvature(self.repeats)

    @property
    def choice(self) -> float:
        """The curvature to use by this measure: the best one if it is better than 0."""
        return self.best if self.outcome == "hyperbolic" else 0.0

    @property
    def sentence(self) -> str:
        """What was found."""
        found = self.paired
        ends = {"hyperbolic": "curved is better", "euclidean": "flat is better", "none": "no detectable difference"}
        margin = f"{found.mean:+.3f} ± {found.interval:.3f} (p = {found.p_value:.2g})"
        return f"By {self.name}, {self.meaning}, curved minus flat is {margin}: {ends[self.outcome]}."

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        found = self.paired
        return {
            "outcome": self.outcome,
            "gain": found.mean,
            "interval": found.interval,
            "p_value": found.p_value,
            "best_curvature": self.best,
            "repeats": [
                {
                    "seed": one.seed,
                    "chosen": c,
                    "difference": difference,
                    "validation": {str(c): score for c, score in one.validation.items()},
                    "test": {str(c): score for c, score in one.test.items()},
                    **({} if one.pca is None else {"pca": one.pca}),
                }
                for one, c, difference in zip(self.repeats, self.chosen, self.differences, strict=True)
            ],
        }
