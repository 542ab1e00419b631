"""What a model must know about data to be built for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """What a row of data is made of.

    Arguments:
        features: values of a row.
        blocks: for each column of the source the number of its categories, which are one-hot features: 0 for a column
            of numbers, 1 for a binary one; () where all columns are numbers of one kind.
        shape: of one row; (height, width) for images, () for a plain row.
        covariates: width of the context that the decoder is told.
        missing: whether entries may be missing, of which the encoder is told.
        size: whether every row has an exposure.
        names: of the features, for messages; not stored.
    """

    features: int
    blocks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    covariates: int = 0
    missing: bool = False
    size: bool = False
    names: Sequence[str] = field(default=(), compare=False, repr=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """Features of each column.

        Example:
            >>> Layout(5, (0, 3, 1)).widths, Layout(2).widths
            ((1, 3, 1), (1, 1))
        """
        return tuple(max(1, block) for block in self.blocks) or (1,) * self.features

    def called(self, feature: int) -> str:
        """A feature in words.

        Example:
            >>> Layout(2).called(1), Layout(2, names=("age", "smoker")).called(1)
            ('column 2', "column 'smoker'")
        """
        return f"column {self.names[feature]!r}" if len(self.names) else f"column {feature + 1}"

    @property
    def inputs(self) -> int:
        """Width of what the encoder reads: the features, and where entries may be missing which of them are there.

        Example:
            >>> Layout(3).inputs, Layout(3, missing=True).inputs
            (3, 6)
        """
        return self.features * (2 if self.missing else 1)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if name != "names"
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Layout:
        """Inverse of `to_json`."""
        return cls(**{**values, "blocks": tuple(values["blocks"]), "shape": tuple(values["shape"])})
