"""What is known about some rows, from the data to the likelihood, and the layout of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..geometry.checks import real, tensor

__all__ = ["Batch", "Layout", "Parts"]


class Parts:
    """Named tensors of which some may be absent: immutable, and a pytree whose leaves are those that are there.

    So `vmap` and `tree_map` take all of them as one argument, never meet a None, and absent parts cost nothing.
    """

    __slots__ = ("_held",)
    _NAMES: ClassVar[tuple[str, ...]]
    _held: dict[str, Any]

    def __init__(self, *given: Any) -> None:
        """Hold the parts that are given, in the order of their names; None for one that is absent."""
        held = {name: part for name, part in zip(self._NAMES, given, strict=True) if part is not None}
        object.__setattr__(self, "_held", held)

    def __getattr__(self, name: str) -> Any:
        if name not in self._NAMES:
            raise AttributeError(f"a {type(self).__name__} has no part {name}")
        return self._held.get(name)

    def __init_subclass__(cls) -> None:
        pytree.register_pytree_node(
            cls,
            lambda held: (list(held._held.values()), held.parts),
            lambda values, parts: cls._from(dict(zip(parts, values, strict=True))),
            serialized_type_name=f"curvae.models.{cls.__name__}",
        )

    @classmethod
    def _from(cls, held: dict[str, Any]) -> Self:
        new = cls.__new__(cls)
        object.__setattr__(new, "_held", held)
        return new

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable; make another with {name} changed")

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are there."""
        return tuple(self._held)


class Batch(Parts):
    """Some rows of data: what the encoder sees, what the likelihood scores, and what else is known about them.

    A batch is immutable, and a pytree whose leaves are the parts that are there: `vmap` and `tree_map` take it as one
    argument, and parts that are absent cost nothing. Every part has the rows as its first dimension; in a stack of
    models that is the second, after the models.

    Arguments:
        x: what the encoder sees, (rows, …).
        target: what the likelihood scores, (rows, …); by default x.
        context: covariates that are given to the decoder, (rows, covariates).
        size: the exposure of a row, such as the library size of a cell, (rows,).
        observed: which entries of the target count, 1 or 0, of its shape.
        weight: of a row, (rows,).
        index: which row of the data it is, (rows,).
        near: how near every row is in the data to those of the batch and its companions, as probabilities,
            (rows, rows + companions): 0 for those that are not; −1 for a pair that does not count, such as a row with
            itself.
        far: how far it is from them, likewise; −1 for a pair that does not count.
        start: where it starts on the spheres of a map, unit vectors, one after the other, (rows, widths).
        companions: other rows that are placed together with those of the batch, as a batch of their own.

    Example:
        >>> batch = Batch(torch.zeros(8, 3), size=torch.ones(8))
        >>> len(batch), batch.parts, batch.target.shape, batch.observed is None
        (8, ('x', 'size'), torch.Size([8, 3]), True)
    """

    __slots__ = ()
    _NAMES = ("x", "target", "context", "size", "observed", "weight", "index", "near", "far", "start", "companions")

    def __init__(
        self,
        x: Tensor,
        target: Tensor | None = None,
        context: Tensor | None = None,
        size: Tensor | None = None,
        observed: Tensor | None = None,
        weight: Tensor | None = None,
        index: Tensor | None = None,
        near: Tensor | None = None,
        far: Tensor | None = None,
        start: Tensor | None = None,
        companions: Batch | None = None,
    ) -> None:
        super().__init__(real("x", x), target, context, size, observed, weight, index, near, far, start, companions)
        for name, part in self._held.items():
            if name != "companions":
                tensor(name, part)

    @classmethod
    def of(cls, rows: Tensor | Batch) -> Batch:
        """Return rows alone, as a tensor, or a batch as it is."""
        return rows if isinstance(rows, Batch) else cls(rows)

    @property
    def target(self) -> Tensor:
        """What the likelihood scores, one row of features each."""
        return self._held.get("target", self.x).flatten(1)

    @property
    def observed(self) -> Tensor | None:
        observed = self._held.get("observed")
        return None if observed is None else observed.flatten(1)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> torch.device:
        return self.x.device

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with a function applied to every part, such as a choice of rows."""
        return Batch._from(
            {
                name: part.map(function) if isinstance(part, Batch) else function(part)
                for name, part in self._held.items()
            }
        )

    def joined(self, **parts: Tensor | Batch) -> Batch:
        """Return the batch with further parts."""
        return Batch._from({**self._held, **parts})

    def __repr__(self) -> str:
        shapes = {name: part if isinstance(part, Batch) else tuple(part.shape) for name, part in self._held.items()}
        return f"Batch({', '.join(f'{name}: {shape}' for name, shape in shapes.items())})"


# What a model must know about data to be built for them.


@dataclass(frozen=True)
class Layout:
    """What a row of data is made of.

    Arguments:
        features: values of a row.
        blocks: for each column of the source the number of its categories, which are one-hot features: 0 for a column
            of numbers, 1 for a binary one; () where all columns are numbers of one kind.
        shape: of one row; (height, width) for images, () for a plain row.
        covariates: width of the context that is given to the decoder.
        missing: whether entries may be missing; the encoder then reads which of them are there.
        size: whether every row has an exposure.
        total: whether the exposure of a row is the sum of its values, of which a likelihood of counts gives the shares.
        batch: where the context tells the batch of a row: the first column, and the number of batches; () if nowhere.
        counts: whether the values are known to be counts, as those of cells are.
        queried: how many of the batches, the last ones, were learned from queries, and have weights of their own in the
            last layer of the decoder.
        names: of the features, for messages; not stored.
    """

    features: int
    blocks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    covariates: int = 0
    missing: bool = False
    size: bool = False
    total: bool = False
    batch: tuple[int, ...] = ()
    counts: bool = False
    queried: int = 0
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
        """Describe a feature in words.

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
        known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**known)
