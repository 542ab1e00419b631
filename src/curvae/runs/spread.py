"""Where several trainings place the same rows: the figures, the sentence and the pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ..data import Dataset
from ..geometry import PoincareBall
from ..geometry.frames import Frame
from ..plotting import geodesics, latent_map, project_from
from ..plotting.disc import RIM
from ..plotting.style import colouring
from ..report import Picture, Section
from ..training.evaluate import Embedding, Stability
from ..training.orientation import AlignedMaps
from .factors import by_factor
from .pages import picture

__all__ = ["spread_figures", "spread_pictures", "spread_text", "stability_section"]

_PAIRS = 2000  # by which the distance between rows is measured
_FOLLOWED = 60  # rows whose places are drawn
_UNLIKE = "The maps have other curvatures, so no isometry brings them together, and no spread is measured."


def stability_section(found: Stability | None, again: str, *more: str, pictures: Sequence[Picture] = ()) -> Section:
    """How alike the maps of several trainings are, with further sentences; `again` is the command that trains some."""
    if found is None:
        text = ["There was one training. To see how much of the map depends on the random seed:"]
        return Section("Stability", text, command=again)
    alike = (
        f"Over {found.pairs} pairs of trainings with different seeds the rank correlation of latent distances is "
        f"{found.correlation:.2f}, and {found.overlap:.0%} of the {found.neighbours} nearest neighbours agree."
    )
    return Section("Stability", [alike, *more], pictures)


def spread_figures(found: AlignedMaps | None) -> dict[str, float] | None:
    """Median and 95 % quantile of the spread, and the median distance between rows to compare them with."""
    if found is None:
        return None
    random, rows = np.random.default_rng(0), len(found.spread)
    first = random.integers(0, rows, _PAIRS)
    second = (first + random.integers(1, max(2, rows), _PAIRS)) % rows
    return {
        "maps": len(found.copies),
        "median": float(np.median(found.spread)),
        "quantile_95": float(np.quantile(found.spread, 0.95)),
        "row_distance": float(np.median(found.first.pairs(first, second))),
    }


def spread_text(figures: dict[str, float] | None) -> str:
    if figures is None:
        return _UNLIKE
    return (
        f"Brought onto the first by the best isometries, {figures['maps']} maps place half of the rows within "
        f"{figures['median']:.2f} of their mean place (root mean square over maps), and 95 % of them within "
        f"{figures['quantile_95']:.2f}; two rows are {figures['row_distance']:.2f} apart in the median."
    )


def spread_pictures(data: Dataset, found: AlignedMaps, frames: Sequence[Frame]) -> list[Picture]:
    """Every factor twice: with the places of some rows in all maps, and coloured by the spread."""
    followed = np.sort(np.random.default_rng(0).permutation(len(data))[:_FOLLOWED])
    copies = found.parts

    def draw(part: Embedding, place: int) -> list[Picture]:
        ball, frame = PoincareBall(2, part.c), frames[place]
        points = project_from(frame, torch.from_numpy(part.space)).points
        figure = Figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        places = ball.from_lorentz(frame.apply(torch.from_numpy(copies[place][:, followed])))
        labels: Any = None if data.labels is None else data.labels[followed]
        title = "places of a row in all maps"
        latent_map(left, ball, places[0], labels, samples=places[1:].transpose(0, 1), title=title)
        start, end = (one.reshape(-1, 2) for one in (places[:1].expand_as(places[1:]), places[1:]))
        geodesics(left, ball, start, end, colors=RIM, linewidths=0.5, alpha=0.6, zorder=1.5)
        latent_map(right, ball, points, colouring(found.spread, len(data)), title="spread")
        some = f"{len(followed)} rows, chosen at random" if len(followed) < len(data) else "all rows"
        caption = (
            f"Left: {some}, on this map, and faintly where the maps of the other seeds have them. Right: all rows, "
            "coloured by the spread of their places, the column spread of embedding.csv."
        )
        return [picture(figure, caption, "places of rows in all maps, and their spread", wide=True)]

    return by_factor(found.first, draw)
