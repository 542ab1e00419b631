"""What reports say and show of the factors of a latent space: of the one, or of each in a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..data.messages import count
from ..nn.space import FactorFigures
from ..report import Picture, Section
from ..training.evaluate import Embedding
from ..training.fitted import FittedModel

__all__ = ["by_factor", "curvature_text", "each_factor", "map_files", "place_text", "space_text"]


def curvature_text(c: float) -> str:
    """ "c = 1 (curvature −1)"."""
    return f"c = {c:.4g} (curvature −{c:.4g})" if c else "c = 0 (flat)"


def space_text(embedding: Embedding) -> str:
    """Curvatures: "c = 1 (curvature −1)", or of a product "h1: c = 1 (curvature −1), e2: flat"."""
    factors = embedding.placed
    if len(factors) == 1:
        return curvature_text(factors[0].c)
    return ", ".join(f"{factor.name}: {curvature_text(factor.c) if factor.c else 'flat'}" for factor in factors)


def place_text(embedding: Embedding) -> str:
    """Where rows are, for a sentence: "a map of 2 dimensions, c = 1 (curvature −1)"."""
    if len(embedding.placed) == 1:
        return f"a map of {count(embedding.dim, 'dimension')}, {space_text(embedding)}"
    factors = (
        f"{one.name} ({count(one.dim, 'dimension')}, {f'c = {one.c:.4g}' if one.c else 'flat'})"
        for one in embedding.placed
    )
    return f"a product of {' and '.join(factors)}"


def by_factor(embedding: Embedding, draw: Callable[[Embedding, int], Sequence[Picture]]) -> list[Picture]:
    """Pictures of every factor, which `draw` makes of the embedding in the factor and its place in the product.

    In a product their captions begin with the factor.
    """
    drawn = [(part, draw(part, place)) for place, part in enumerate(embedding.parts)]
    if len(drawn) == 1:
        return list(drawn[0][1])
    return [
        replace(one, caption=f"Factor {part.placed[0].name}. {one.caption}", alt=f"{one.alt}, {part.placed[0].name}")
        for part, pictures in drawn
        for one in pictures
    ]


def map_files(embedding: Embedding, section: Section) -> dict[str, Picture]:
    """The maps of a section by the names of their files: "map", or of a product "map-h1", "map-e2"."""
    maps = section.pictures[:: len(section.pictures) // len(embedding.placed)]
    names = [f"map-{factor.name}" for factor in embedding.placed] if len(maps) > 1 else ["map"]
    return dict(zip(names, maps, strict=True))


def each_factor(fitted: FittedModel, text: Callable[[FactorFigures, int], str]) -> str:
    """A text about the one factor, or about every factor of a product after its name."""
    texts = {one.name: text(one, place) for place, one in enumerate(fitted.figures)}
    return ", ".join(f"{name}: {said}" if len(texts) > 1 else said for name, said in texts.items())
