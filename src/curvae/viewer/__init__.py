"""The interactive map: what it shows, how its points are packed, and the page that it becomes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal

import numpy as np
import torch
from jinja2 import Environment, FunctionLoader
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

from ..data.files import count as counted
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..geometry.manifolds import HyperbolicManifold
from ..maps.charts import Chart, Points, as_number, tensor
from ..plotting import figure_bytes, graph_map, latent_map, mosaic
from ..plotting.pictures import (
    DARK_GREY,
    DARK_PALETTE,
    DARK_SEQUENTIAL,
    GREY,
    PALETTE,
    SEQUENTIAL,
    Levels,
    colouring,
    fit_window,
    half_width,
    levels,
    on_page,
)

__all__ = ["View", "page", "policy", "script", "style"]
__dir__ = __all__.copy  # completion lists public names only


# Numbers, names and small grey pictures of rows as compact text inside a page.
#
# Points travel as (radius, turn): the distance from the origin in units of the curvature, and the direction as a part
# of a full turn, both as whole numbers of fixed steps. In float32 coordinates of the disc or the hyperboloid, points at
# radius 12 and beyond fall together with their neighbours; fixed-point angles differ by an exact subtraction. The steps
# are chosen by how far out the points lie, so that no point is displaced by more than `resolution`.

FEW = 100_000  # up to so many points space is no concern
FARTHEST = 40.0  # radius at which points beyond it are drawn, since products of two cosh must fit in float32
EACH = 1024  # thumbnails on a sheet; one that is not looked at is never decoded
_COLUMNS = 32
_SMALLEST = 8  # pixels a side
_PIXELS = 20_000_000  # in all; about 5 MB of page
_GREYS = 16


@dataclass
class Blocks:
    """Blocks of compressed bytes by name, as base64, and what the page must know to read them."""

    texts: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, name: str, content: bytes) -> int:
        """Add bytes; returns the length of their text."""
        self.texts[name] = base64.b64encode(zlib.compress(content, 6)).decode("ascii")
        return len(self.texts[name])

    def add_numbers(self, name: str, values: ArrayLike, bits: int) -> None:
        """Add whole numbers of at most so many bits, as all their lowest bytes, then the next: high bytes are alike."""
        whole, width = np.ascontiguousarray(values, "<u8"), max(1, -(-bits // 8))
        self.add(name, whole.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes())
        self.facts[name] = {"length": len(whole), "width": width}


def shortened(text: str) -> str:
    """Return somebody else's text in one line, whole unless it is very long, with escapes for what is no Unicode."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\n", " ").replace("\r", " ")
    return text if len(text) <= 200 else text[:199] + "…"


def pack_points(blocks: Blocks, radius: NDArray[np.float64], turn: NDArray[np.float64], curved: bool) -> dict[str, Any]:
    """Add points, their radii in units of the curvature."""
    reach = float(radius.max()) or 1.0
    # Distances below 1 look flat: there the picture is only as large as they are.
    resolution = min(1.0, reach) * (1e-6 if len(radius) <= FEW else 1e-4)
    radius_bits = min(31, math.ceil(math.log2(reach / resolution)))
    around = 2 * math.pi * (math.sinh(reach) if curved else reach)
    turn_bits = min(52, math.ceil(math.log2(around / resolution)))  # what a double can hold
    step = reach / (2**radius_bits - 1)
    blocks.add_numbers("radius", np.rint(radius / step), radius_bits)
    blocks.add_numbers("turn", np.rint(turn * 2**turn_bits) % 2**turn_bits, turn_bits)
    return {"radius": {"step": step}, "turn": {"bits": turn_bits}}


def pack_sigma(blocks: Blocks, sigma: NDArray[np.float64]) -> dict[str, float]:
    """Add standard deviations, in units of the curvature, on a scale of equal ratios."""
    if not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        raise CurvaeError("standard deviations must be positive and finite; leave sigma out where there is none")
    bits = 16 if len(sigma) <= FEW else 8
    low, high = math.log(sigma.min()), math.log(sigma.max())
    step = (high - low) / (2**bits - 1)
    blocks.add_numbers("sigma", np.rint((np.log(sigma) - low) / (step or 1.0)), bits)
    return {"low": low, "step": step}


def pack_sizes(blocks: Blocks, sizes: NDArray[np.float64]) -> bool:
    """Add how large points are drawn, on a scale of 128 levels from the smallest to the largest."""
    if not bool(np.isfinite(sizes).all()):
        raise CurvaeError("sizes must be finite; leave them out where there are none")
    low, high = float(sizes.min()), float(sizes.max())
    blocks.add_numbers("size", np.rint(127 * (sizes - low) / ((high - low) or 1.0)), 7)
    return high > low


def pack_column(blocks: Blocks, block: str, name: str, values: ArrayLike, count: int) -> dict[str, Any]:
    """Add a column to colour by: 0 for no category and k+1 for the category k, or the first bits of float32 numbers."""
    found = levels(values, count)
    if isinstance(found, Levels):
        blocks.add_numbers(block, found.codes + 1, max(1, len(found.texts).bit_length()))
        return {
            "name": name,
            "kind": "levels",
            "texts": [*map(shortened, found.texts)],
            "shown": [*map(int, found.shown)],
        }
    numbers = _pack_floats(blocks, block, found)
    return {"name": name, "kind": "numbers", "low": float(np.nanmin(numbers)), "high": float(np.nanmax(numbers))}


def _pack_floats(blocks: Blocks, block: str, values: ArrayLike) -> NDArray[np.float32]:
    """Add the first bits of float32 numbers; returns these."""
    huge = float(np.finfo(np.float32).max)
    numbers = np.clip(np.asarray(values), -huge, huge).astype(np.float32)
    bits = 32 if len(numbers) <= FEW else 24
    blocks.add_numbers(block, numbers.view(np.uint32) >> (32 - bits), bits)
    return numbers


def pack_expected(blocks: Blocks, expected: Mapping[str, tuple[ArrayLike, ArrayLike, float]]) -> list[dict[str, Any]]:
    """Add what a model expects in columns at every point, and the standard deviation of that."""
    for k, (values, deviations, _) in enumerate(expected.values()):
        _pack_floats(blocks, f"expected{k}", values)
        _pack_floats(blocks, f"deviation{k}", deviations)
    return [{"name": shortened(name), "unit": float(unit)} for name, (_, _, unit) in expected.items()]


def sheets(images: NDArray[np.floating]) -> tuple[dict[str, int], list[str]]:
    """Return pictures of shape (rows, height, width), from black at their least value to white at their largest.

    They are shrunk to at most 32 pixels a side, and further when there are many.

    Returns:
        Height and width of one, how many stand on a sheet and in a line of it; the sheets as base64 of PNG files.
    """
    rows, height, width = images.shape
    side = min(32, math.isqrt(_PIXELS // max(1, rows)))
    if side < _SMALLEST:
        raise CurvaeError(
            f"{rows:,} thumbnails do not fit into a page; leave out `thumbnails=True`, or embed fewer rows "
            f"(at most {_PIXELS // _SMALLEST**2:,})"
        )
    factor = max(1.0, max(height, width) / side)
    size = max(1, round(height / factor)), max(1, round(width / factor))
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    scale = (_GREYS - 1) / ((high - low) or 1.0)
    made = []
    for start in range(0, rows, EACH):
        whole = np.nan_to_num(images[start : start + EACH], nan=low).astype(np.float32)
        shrunk = (Image.fromarray(image).resize(size[::-1], Image.Resampling.BOX) for image in whole)
        part = np.stack([np.asarray(image) for image in shrunk])
        lines = -(-len(part) // _COLUMNS)
        sheet = np.zeros((lines * _COLUMNS, *size), np.uint8)
        sheet[: len(part)] = np.rint((part - low) * scale).clip(0, _GREYS - 1)
        made.append(_png(sheet.reshape(lines, _COLUMNS, *size).swapaxes(1, 2).reshape(lines * size[0], -1)))
    return {"height": size[0], "width": size[1], "columns": _COLUMNS, "each": EACH}, made


def _png(levels: NDArray[np.uint8]) -> str:
    picture = Image.fromarray(levels)
    picture.putpalette([value for k in range(_GREYS) for value in (k * 255 // (_GREYS - 1),) * 3])
    stream = io.BytesIO()
    picture.save(stream, "PNG", bits=4, optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


# The program and the style of a page with maps, from the files beside this one.


def text(name: str) -> str:
    """Read a file of this package."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


_TEMPLATES = Environment(loader=FunctionLoader(text), autoescape=True, trim_blocks=True, lstrip_blocks=True)


@cache
def script() -> str:
    """Return the program that brings the maps of a page to life: all parts in one scope of their own."""
    parts = ("geometry", "store", "shaders", "drawing", "map", "panel", "start")
    return "\n".join(['(() => {\n"use strict";\n', *(text(f"{part}.js") for part in parts), "})();\n"])


@cache
def style(name: str = "map") -> str:
    """Return the style of a map inside any page, or with "page" of the page around one map."""
    return text(f"{name}.css")


def policy(text: str) -> str:
    """Return what a content-security policy calls an inline script or style with that text, to allow no other.

    Example:
        >>> policy("alert(1)")
        "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


_BUDGET = 19_000_000  # letters of coordinates, label and ids together
_OF_POINTS = ("sigma", "sizes", "new", "images")  # what there is one of a point, besides names and columns
_COLOURS = {
    theme: {"palette": palette, "grey": grey, "scale": [to_hex(colour) for colour in colours(np.arange(255) / 254)]}
    for theme, palette, grey, colours in (
        ("light", PALETTE, GREY, SEQUENTIAL),
        ("dark", DARK_PALETTE, DARK_GREY, DARK_SEQUENTIAL),
    )
}


@dataclass(frozen=True, eq=False)
class View:
    """A map of points, coloured by columns, to be looked at.

    Arguments:
        points: coordinates of N points in the manifold, shape (N, 2).
        manifold: a `PoincareBall`, `Lorentz` or `Euclidean` of dimension 2.
        columns: N categories or numbers each, by name; the first colours the map (see `plotting.pictures.levels`).
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
        chart: of the factor whose points these are, if the manifold does not say it.

    Example:
        >>> ball = PoincareBall(2)
        >>> view = View(ball.random(50, generator=torch.Generator().manual_seed(0)), ball, {"kind": ["a", "b"] * 25})
        >>> view.inside[0]
        '50 points: coordinates'
        >>> "<script src" in view.html()
        False
    """

    points: Points
    manifold: HyperbolicManifold = field(default_factory=lambda: PoincareBall(2))
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
    chart: Chart | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.manifold, HyperbolicManifold) or self.manifold.dim != 2:
            raise CurvaeError(f"a map needs points of dimension 2, got {self.manifold}; see project_to_disc")
        count = len(self._space)
        given: dict[str, Any] = {name: getattr(self, name) for name in ("ids", *_OF_POINTS)} | dict(self.columns)
        given |= {f"values of {name}": values for name, pair in self.expected.items() for values in pair[:2]}
        for name, values in given.items():
            if values is not None and len(values) != count:
                raise CurvaeError(f"{len(values)} {name} for {count} points; give one a point")
        if self.edges is not None and self.new is not None:
            raise CurvaeError("new rows have no edges; give `new=…` or `edges=…`, not both")
        for name, ends, limit in zip(
            ("edges", "edges of the hierarchy"), self._ends, (count, len(self._nodes)), strict=True
        ):
            if ends.ndim != 2 or len(ends) != 2 or (ends.size and not 0 <= ends.min() <= ends.max() < limit):
                raise CurvaeError(
                    f"{name} must be pairs of indices below {limit}, shape (2, E), got shape {ends.shape}; count from 0"
                )
        if self.anonymous:
            self._shuffle()

    def _shuffle(self) -> None:
        """Forget names and order, of edges and their ends too, once and before anything is drawn or packed.

        Without names, the order of rows would still tell which is which to whoever has the table.
        """
        random = np.random.default_rng()  # seeded by the operating system, so that no seed brings the order back
        order = random.permutation(len(self._space))
        hidden: dict[str, Any] = {
            "points": _array(tensor(self.points))[order],
            "columns": {name: _array(values)[order] for name, values in self.columns.items()},
            "expected": {k: (_array(a)[order], _array(b)[order], unit) for k, (a, b, unit) in self.expected.items()},
            "ids": None,
        }
        hidden |= {name: _array(values)[order] for name in _OF_POINTS if (values := getattr(self, name)) is not None}
        if self.edges is not None:
            hidden["edges"] = random.permuted(random.permutation(np.argsort(order)[self._ends[0]], axis=1), axis=0)
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

    @property
    def _ends(self) -> list[NDArray[np.int64]]:
        """Both ends of the edges, and of those of the hierarchy, (2, E) each."""
        return [
            np.asarray(np.zeros((2, 0)) if self.edges is None else self.edges, np.int64),
            np.asarray(() if self.hierarchy is None else self.hierarchy[1], np.int64).reshape(-1, 2).T,
        ]

    @cached_property
    def _nodes(self) -> Tensor:
        return self._space[:0] if self.hierarchy is None else self._read(self.hierarchy[0])

    # --- the page ---------------------------------------------------------------------------------------------------

    @cached_property
    def _packed(self) -> tuple[dict[str, Any], Blocks, list[str]]:
        """What the page knows, its blocks, and what is inside in words."""
        blocks, count, ball = Blocks(), len(self._space), PoincareBall(2, self.c)
        chart = on_page(self.chart or ball)
        unit = math.sqrt(self.c) or 1.0  # by which lengths become those in units of the curvature; 1 in the plane
        distance, angle = (part.numpy() for part in chart.polar(torch.cat([self._space, self._nodes])))
        radius, turn = unit * distance, angle / (2 * math.pi) % 1.0  # the direction as a part of a turn
        reach = fit_window(*(ball.from_lorentz(part) for part in (self._space, self._nodes) if len(part)))
        inside = [f"{counted(count, 'point')}: coordinates"]
        facts: dict[str, Any] = {
            "count": count,
            "c": self.c,
            "motion": chart.motion,
            "outline": chart.outline * unit if math.isfinite(chart.outline) else None,
            "title": self.title,
            "about": list(self.about),
            # Half the width of the window at first, in units of the disc; as `plotting.disc` chooses it.
            "extent": (chart.outline if chart.motion == "globe" else half_width(chart, reach)) * unit,
            "colours": _COLOURS,
            **pack_points(blocks, np.minimum(radius, FARTHEST), turn, chart.motion == "disc"),
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
        edges, hierarchy = self._ends
        count = len(self._space)
        if self.hierarchy is not None:
            inside.append(f"a hierarchy of {counted(len(self._nodes), 'node')}")
        if self.edges is not None:
            inside.append(counted(edges.shape[1], "edge"))
        ends = np.concatenate([edges, count + hierarchy], 1)
        for name, half in zip(("edge_from", "edge_to"), ends, strict=True) if ends.size else ():
            blocks.add_numbers(name, half, (count + len(self._nodes)).bit_length())
        return int(ends.shape[1])

    @property
    def inside(self) -> list[str]:
        """What the page holds of the data, in words, as its footer says it."""
        return self._packed[2]

    def fragment(self, still: str = "", mode: Literal["page", "report"] = "report") -> str:
        """Return the map as HTML for a page that has `script()` at its end and `style()` in its head.

        `still` is the HTML of the picture that stands in its place without scripts, an `img` of the class "still".
        """
        facts, blocks, inside = self._packed
        # In a script "</script" and "<!--" would end it or change how it is read.
        known = json.dumps(facts, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
        return _TEMPLATES.get_template("map.html").render(
            mode=mode, title=self.title, still=still, inside=inside, facts=known, blocks=blocks.texts
        )

    def html(self) -> str:
        """Return the page, in one file that asks for nothing; write it in UTF-8."""
        picture = base64.b64encode(self.picture("svg", 2000)).decode("ascii")
        still = f'<img class="still" alt="map of the points" src="data:image/svg+xml;base64,{picture}">'
        program, sheet = script(), style() + style("page")
        page = _TEMPLATES.get_template("page.html").render(
            title=self.title,
            style=sheet,
            style_hash=policy(sheet),
            map=self.fragment(still, "page"),
            script=program,
            script_hash=policy(program),
        )
        return f"{page}\n".encode("utf-8", "backslashreplace").decode("utf-8")

    # --- the still picture ------------------------------------------------------------------------------------------

    def picture(
        self,
        format: Literal["svg", "png", "pdf"] = "svg",  # noqa: A002 - matplotlib's word
        most: int | None = None,
        hubs: int = 0,
    ) -> bytes:
        """Draw a still picture as bytes of a file. Images, where there are some, stand at their places beside the map.

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
        chart, z = on_page(self.chart or ball), ball.from_lorentz(self._space)
        name, first = next(iter(self.columns.items()), ("", None))
        labels = None if first is None else replace(colouring(_array(first)[some], len(some)), title=name)
        if self.images is not None and most is None:
            figure = Figure(figsize=(10.4, 4.6), layout="constrained")
            ax, beside = figure.subplots(1, 2)
            mosaic(beside, chart, z, self.images, cmap="gray")
        else:
            figure = Figure(figsize=(5.2, 4.6))
            ax = figure.subplots()
        hierarchy = None if self.hierarchy is None else (ball.from_lorentz(self._nodes), self.hierarchy[1])
        if self.edges is not None and len(some) == count:
            names = None if self.anonymous or self.ids is None else np.asarray(self.ids).astype(np.str_)
            graph_map(ax, chart, z, np.transpose(self.edges), labels, names=names, hubs=hubs, hierarchy=hierarchy)
        else:
            latent_map(ax, chart, z[some], labels, new=new, hierarchy=hierarchy)
        return figure_bytes(figure, format, dpi=300)


def page(points: Points, manifold: HyperbolicManifold | None = None, **more: Any) -> str:
    """Return an interactive map as one HTML file that asks for nothing.

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


def _array(values: ArrayLike | Tensor) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
