"""What a map shows, and the page, the part of a report or the picture that it becomes."""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from string import Template
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..data.messages import count as counted
from ..errors import CurvaeError
from ..geometry import Lorentz, Manifold, PoincareBall
from ..markup import escaped, writable
from ..plotting import figure_bytes, graph_map, latent_map, mosaic
from ..plotting.disc import Points, as_number, fit_window, half_width, tensor
from ..plotting.style import DARK_GREY, DARK_PALETTE, DARK_SEQUENTIAL, GREY, PALETTE, SEQUENTIAL, colouring
from .assets import policy, script, style, text
from .packing import (
    FARTHEST,
    Blocks,
    pack_column,
    pack_expected,
    pack_points,
    pack_sigma,
    pack_sizes,
    sheets,
    shortened,
)

__all__ = ["View", "page"]

_OF_POINTS = ("sigma", "sizes", "new", "images")  # what there is one of a point, besides names and columns
_STILL = 2000  # points of the picture that stands where there are no scripts
_BUDGET = 19_000_000  # letters of coordinates, label and ids together
Format = Literal["svg", "png", "pdf"]


@dataclass(frozen=True, eq=False)
class View:
    """A map of points, coloured by columns, to be looked at.

    Arguments:
        points: coordinates of N points in the manifold, shape (N, 2).
        manifold: a `PoincareBall`, `Lorentz` or `Euclidean` of dimension 2.
        columns: N categories or numbers each, by name; the first colours the map (see `plotting.style.levels`).
        ids: names of the points; their numbers by default.
        sigma: standard deviation of the posterior of each point, shown as discs of that radius.
        sizes: a number a point, which is drawn the larger the higher it is, such as the popularity of a node.
        new: which points are new rows, N booleans: they are larger than the others, outlined and on top.
        edges: indices of points that are joined by geodesics, shape (2, E); not together with new rows.
        hierarchy: nodes of shape (M, 2) and edges as pairs of their indices, drawn under the points.
        images: shown beside the pointer, shape (N, height, width).
        expected: what a model expects of a column at each point, the standard deviations of that, and the unit in which
            changes of the column are compared, by name; two clicks show what changes between two points.
        anonymous: leave out ids, and the order in which points and edges were given.
        title: of the page.
        about: sentences under it.

    Example:
        >>> ball = PoincareBall(2)
        >>> view = View(ball.random(50, generator=torch.Generator().manual_seed(0)), ball, {"kind": ["a", "b"] * 25})
        >>> view.inside[0]
        '50 points: coordinates'
        >>> "<script src" in view.html()
        False
    """

    points: Points
    manifold: Manifold = field(default_factory=lambda: PoincareBall(2))
    columns: Mapping[str, ArrayLike | Tensor] = field(default_factory=dict)
    ids: ArrayLike | None = None
    sigma: ArrayLike | None = None
    sizes: ArrayLike | None = None
    new: ArrayLike | None = None
    edges: ArrayLike | None = None
    hierarchy: tuple[Points, Sequence[tuple[int, int]]] | None = None
    images: NDArray[Any] | None = None
    expected: Mapping[str, tuple[ArrayLike, ArrayLike, float]] = field(default_factory=dict)
    anonymous: bool = False
    title: str = "Map"
    about: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.manifold.dim != 2:
            raise CurvaeError(f"a map needs points of dimension 2, got {self.manifold}; see project_to_disc")
        count = len(self._space)
        given: dict[str, Any] = {name: getattr(self, name) for name in ("ids", *_OF_POINTS)} | dict(self.columns)
        given |= {f"values of {name}": values for name, pair in self.expected.items() for values in pair[:2]}
        for name, values in given.items():
            if values is not None and len(values) != count:
                raise CurvaeError(f"{len(values)} {name} for {count} points; give one a point")
        if self.edges is not None:
            if self.new is not None:
                raise CurvaeError("new rows have no edges; give new=… or edges=…, not both")
            _check_edges("edges", np.asarray(self.edges), count)
        if self.hierarchy is not None:
            _check_edges("edges of the hierarchy", np.asarray(self.hierarchy[1]).reshape(-1, 2).T, len(self._nodes))
        if self.anonymous:
            self._shuffle()

    def _shuffle(self) -> None:
        """Forget names and order, of edges and their ends too, once and before anything is drawn or packed.

        Without names, the order of rows would still tell which is which to whoever has the table.
        """
        order = _secret_order(len(self._space))
        columns = {name: _array(values)[order] for name, values in self.columns.items()}
        expected = {name: (_array(a)[order], _array(b)[order], unit) for name, (a, b, unit) in self.expected.items()}
        hidden: dict[str, Any] = {
            "expected": expected,
            "points": _array(tensor(self.points))[order],
            "columns": columns,
            "ids": None,
        }
        hidden |= {name: _array(values)[order] for name in _OF_POINTS if (values := getattr(self, name)) is not None}
        if self.edges is not None:
            ends = np.argsort(order)[np.asarray(self.edges, np.int64)]
            ends = ends[:, _secret_order(ends.shape[1])]
            turned = np.frombuffer(secrets.token_bytes(ends.shape[1]), np.uint8) % 2 == 1
            hidden["edges"] = np.where(turned, ends[::-1], ends)
        for name, values in hidden.items():
            object.__setattr__(self, name, values)
        del self.__dict__["_space"]  # read from points in their old order

    # --- coordinates ------------------------------------------------------------------------------------------------

    @property
    def c(self) -> float:
        return as_number(self.manifold.c)

    def _read(self, points: Points) -> Tensor:
        z = tensor(points)
        if z.dim() != 2 or not len(z):
            raise CurvaeError(f"points of a map must have shape (N, 2) with N at least 1, got {tuple(z.shape)}")
        try:
            self.manifold.check(z)
        except ValueError as error:
            raise CurvaeError(f"{error}; give points inside") from error
        return self.manifold.to_lorentz(z)

    @cached_property
    def _space(self) -> Tensor:
        """Space parts of the points on the hyperboloid."""
        return self._read(self.points)

    @cached_property
    def _nodes(self) -> Tensor:
        return self._space[:0] if self.hierarchy is None else self._read(self.hierarchy[0])

    # --- the page ---------------------------------------------------------------------------------------------------

    @cached_property
    def _packed(self) -> tuple[dict[str, Any], Blocks, list[str]]:
        """What the page knows, its blocks, and what is inside in words."""
        blocks, count, ball = Blocks(), len(self._space), PoincareBall(2, self.c)
        unit = math.sqrt(self.c) or 1.0  # by which lengths become those in units of the curvature; 1 in the plane
        space = torch.cat([self._space, self._nodes])
        x, y = space.T.numpy()
        radius = unit * Lorentz(2, self.c).dist0(space).numpy()
        turn = np.arctan2(y, x) / (2 * math.pi) % 1.0  # the direction as a part of a turn
        reach = fit_window(*(ball.from_lorentz(part) for part in (self._space, self._nodes) if len(part)))
        inside = [f"{counted(count, 'point')}: coordinates"]
        facts: dict[str, Any] = {
            "count": count,
            "c": self.c,
            "title": self.title,
            "about": list(self.about),
            # Half the width of the window at first, in units of the disc; as `plotting.disc` chooses it.
            "extent": half_width(ball, reach) * unit,
            "colours": _colours(),
            **pack_points(blocks, np.minimum(radius, FARTHEST), turn, self.c > 0),
        }
        if beyond := int((radius[:count] > FARTHEST).sum()):
            inside.append(f"{counted(beyond, 'point')} beyond √c·r = {FARTHEST:g}, drawn at that distance")
        if self.sigma is not None:
            facts["sigma"] = pack_sigma(blocks, np.asarray(self.sigma, np.float64) * unit)
            inside.append("standard deviations of the posterior (σ)")
        if self.sizes is not None:
            facts["sizes"] = pack_sizes(blocks, np.asarray(self.sizes, np.float64))
            inside.append("sizes of the points")
        if self.new is not None:
            facts["new"] = int(np.sum(self.new))
            blocks.add_numbers("new", np.asarray(self.new, bool), 1)
            inside.append(f"{counted(facts['new'], 'new row')} among the points")
        facts["columns"] = [
            pack_column(blocks, f"column{k}", name, _array(values), count)
            for k, (name, values) in enumerate(self.columns.items())
        ]
        inside += [f"column {name}" for name in self.columns]
        facts["expected"] = pack_expected(blocks, self.expected)
        inside += [f"what the model expects of {name}" for name in self.expected]
        facts["ids"] = self._pack_ids(blocks, inside)
        facts["edges"] = self._pack_edges(blocks, inside)
        if self.images is not None:
            facts["thumbnails"], pictures = sheets(np.asarray(self.images))
            blocks.texts |= {f"sheet{k}": picture for k, picture in enumerate(pictures)}
            inside.append(f"images of {facts['thumbnails']['height']} × {facts['thumbnails']['width']} pixels")
        facts["blocks"] = blocks.facts
        return facts, blocks, inside

    def _pack_ids(self, blocks: Blocks, inside: list[str]) -> str | None:
        if self.anonymous:
            inside.append("no ids, and not the order of the rows")
            return None
        texts = None if self.ids is None else [str(name) for name in np.asarray(self.ids).tolist()]
        if texts is None or all(text == str(k) for k, text in enumerate(texts)):
            inside.append("numbers of the rows")
            return "numbers"
        first = sum(len(text) for name, text in blocks.texts.items() if name in ("turn", "radius", "sigma", "column0"))
        if first + blocks.add("ids", "\n".join(map(shortened, texts)).encode()) > _BUDGET:
            del blocks.texts["ids"]
            inside.append("numbers of the points in place of ids, which would make the page too large")
            return "numbers"
        inside.append("ids")
        return "names"

    def _pack_edges(self, blocks: Blocks, inside: list[str]) -> int:
        count = len(self._space)
        ends = np.zeros((2, 0), np.int64) if self.edges is None else np.asarray(self.edges, np.int64)
        if self.hierarchy is not None:
            ends = np.concatenate([ends, count + np.asarray(self.hierarchy[1], np.int64).reshape(-1, 2).T], 1)
            inside.append(f"a hierarchy of {counted(len(self._nodes), 'node')}")
        if self.edges is not None:
            inside.append(counted(np.asarray(self.edges).shape[1], "edge"))
        for name, half in zip(("edge_from", "edge_to"), ends, strict=True) if ends.size else ():
            blocks.add_numbers(name, half, (count + len(self._nodes)).bit_length())
        return int(ends.shape[1])

    @property
    def inside(self) -> list[str]:
        """What the page holds of the data, in words, as its footer says it."""
        return self._packed[2]

    def fragment(self, still: str = "", mode: Literal["page", "report"] = "report") -> str:
        """The map as HTML for a page that has `script()` at its end and `style()` in its head.

        `still` is the HTML of the picture that stands in its place without scripts, an `img` of the class "still".
        """
        facts, blocks, inside = self._packed
        # In a script "</script" and "<!--" would end it or change how it is read.
        known = writable(json.dumps(facts, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"))
        parts = [still]
        if mode == "page":
            told = "".join(f"<li>{escaped(text)}</li>" for text in inside)
            parts = [
                f'<h1 class="heading">{escaped(self.title)}</h1>',
                still,
                f'<footer class="inside">This page holds, and asks for nothing else:<ul>{told}</ul></footer>',
            ]
        return "\n".join(
            [
                f'<div class="curvae-map" data-mode="{mode}">',
                *parts,
                f'<script type="application/json" class="facts">{known}</script>',
                *(f'<script type="text/plain" data-block="{k}">{text}</script>' for k, text in blocks.texts.items()),
                "</div>",
            ]
        )

    def html(self) -> str:
        """The page, in one file that asks for nothing; write it in UTF-8."""
        picture = base64.b64encode(self.picture("svg", _STILL)).decode("ascii")
        still = f'<img class="still" alt="map of the points" src="data:image/svg+xml;base64,{picture}">'
        program, sheet = script(), style() + style("page")
        rules = (
            "default-src 'none'",
            "img-src data:",
            f"script-src {policy(program)}",
            f"style-src {policy(sheet)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
        return Template(text("page.html").rstrip("\n") + "\n").substitute(
            policy="; ".join(rules),
            title=escaped(self.title),
            style=sheet,
            map=self.fragment(still, "page"),
            script=program,
        )

    # --- the still picture ------------------------------------------------------------------------------------------

    def picture(
        self,
        format: Format = "svg",  # noqa: A002 - matplotlib's word
        most: int | None = None,
        hubs: int = 0,
    ) -> bytes:
        """A still picture as the bytes of a file. Images, where there are some, stand at their places beside the map.

        Arguments:
            format: of the file.
            most: draw at most so many points, chosen at random, besides new rows, and neither edges nor images of more.
            hubs: how many points to name, those with the most edges.
        """
        count = len(self._space)
        some = np.arange(count)
        if most is not None and count > most:
            some = np.sort(np.random.default_rng(0).choice(count, most, replace=False))
        new = None
        if self.new is not None:
            some = np.union1d(some, np.flatnonzero(self.new))
            new = _array(self.new)[some]
        ball = PoincareBall(2, self.c)
        z = ball.from_lorentz(self._space)
        name, first = next(iter(self.columns.items()), ("", None))
        labels = None if first is None else replace(colouring(_array(first)[some], len(some)), title=name)
        if self.images is not None and most is None:
            figure = Figure(figsize=(10.4, 4.6), layout="constrained")
            ax, beside = figure.subplots(1, 2)
            mosaic(beside, ball, z, self.images, cmap="gray")
        else:
            figure = Figure(figsize=(5.2, 4.6))
            ax = figure.subplots()
        hierarchy = None if self.hierarchy is None else (ball.from_lorentz(self._nodes), self.hierarchy[1])
        if self.edges is not None and len(some) == count:
            names = None if self.anonymous or self.ids is None else np.asarray(self.ids).astype(np.str_)
            graph_map(ax, ball, z, np.transpose(self.edges), labels, names=names, hubs=hubs, hierarchy=hierarchy)
        else:
            latent_map(ax, ball, z[some], labels, new=new, hierarchy=hierarchy)
        return figure_bytes(figure, format, dpi=300)


def page(points: Points, manifold: Manifold | None = None, **more: Any) -> str:
    """An interactive map as one HTML file that asks for nothing.

    Arguments:
        points: coordinates of N points in the manifold, shape (N, 2).
        manifold: a `PoincareBall` (of curvature −1 by default), `Lorentz` or `Euclidean` of dimension 2.
        more: as for `View`: columns to colour by, ids, sigma, sizes, new, edges, hierarchy, images, anonymous, title,
            about.

    Example:
        >>> page([[0.1, 0.2], [-0.3, 0.1]], ids=["left", "right"]).startswith("<!DOCTYPE html>")
        True
    """
    return View(points, PoincareBall(2) if manifold is None else manifold, **more).html()


def _check_edges(name: str, ends: NDArray[Any], count: int) -> None:
    if ends.ndim != 2 or len(ends) != 2 or (ends.size and not 0 <= ends.min() <= ends.max() < count):
        raise CurvaeError(
            f"{name} must be pairs of indices below {count}, shape (2, E), got shape {ends.shape}; count from 0"
        )


def _array(values: ArrayLike | Tensor) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _secret_order(count: int) -> NDArray[np.intp]:
    """An order that no seed brings back."""
    return np.argsort(np.frombuffer(secrets.token_bytes(8 * count), np.uint64))


@cache
def _colours() -> dict[str, Any]:
    def scale(colours: Any) -> list[str]:
        return [to_hex(colours(k / 254)) for k in range(255)]

    return {
        "light": {"palette": PALETTE, "grey": GREY, "scale": scale(SEQUENTIAL)},
        "dark": {"palette": DARK_PALETTE, "grey": DARK_GREY, "scale": scale(DARK_SEQUENTIAL)},
    }
