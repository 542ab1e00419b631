"""The pictures and figures of docs/gallery.md. `python -m benchmarks.gallery [NAME…]`, all unless some are named.

`python -m benchmarks.gallery front` draws `docs/images/front.png`, the picture of the README and the home page.

Every entry is a list of commands, run as they stand in the gallery, in a folder of its own below `runs/gallery/`. Their
pictures become `docs/images/gallery-NAME.png`, what they print as JSON goes to `results/gallery.json`, and the page is
filled from there by `python -m benchmarks.tables`. MNIST and the diseases graph are found through CURVAE_DATA.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image

from curvae import PoincareBall, PoincareVAE
from curvae.plotting import disc, geodesics
from curvae.plotting.pictures import colouring
from curvae.training.storage import versions

from . import wordnet
from .examples import IMAGES, ROOT, run_command, shrink
from .maps.data import SETS

__all__ = ["ENTRIES", "Entry", "main", "table"]

RESULTS = ROOT / "results" / "gallery.json"
WIDTH = 1000  # pixels of a picture

Found = Mapping[str, Any]  # what a command printed
Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """Something to be seen.

    Arguments:
        commands: as they are typed; one of them writes `map.png`.
        rows: from what the commands printed, by command, to a table, its header first.
    """

    commands: Sequence[str]
    rows: Callable[[Mapping[str, Found]], Rows]


def _recovery(models: Sequence[Found]) -> Rows:
    """How well the tree was recovered, one column a model."""
    figures = {
        "rank correlation of distances with the tree's": "distance_correlation",
        "mean distortion (0 is best)": "distortion",
        "dendrogram purity": "purity",
        "mean average precision of nearest rows": "mean_average_precision",
        "rank correlation of radius with depth": "depth_correlation",
    }
    return [(text, *(_number(found[name]) for found in models)) for text, name in figures.items()]


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


# --- the entries ------------------------------------------------------------------------------------------------------

_TREE = "curvae fit branching-diffusion --prior-scale 1.7 --epochs 300"
_KNOWN = "--tree branching-diffusion"


def _tree_rows(found: Mapping[str, Found]) -> Rows:
    models = [found[f"curvae diagnose runs/{name} {_KNOWN}"] for name in ("tree", "flat")]
    return [("figure", "curvature −1", "curvature 0"), *_recovery(models)]


_MNIST = (
    "curvae fit mnist --likelihood bernoulli --hidden 400 --batch-size 128 --epochs 8 "
    "--set validation=0.02 -o runs/mnist"
)


def _mnist_rows(found: Mapping[str, Found]) -> Rows:
    fitted = found[_MNIST]
    return [
        ("figure", "value"),
        (
            "log-likelihood of held-out images, nats",
            f"{_number(fitted['log_likelihood'], 1)} ± {fitted['log_likelihood_interval']:.1f}",
        ),
        ("divergence from the prior, nats an image", _number(fitted["kl"], 2)),
    ]


_DISEASES = "curvae graph diseases -o runs/diseases"


def _diseases_rows(found: Mapping[str, Found]) -> Rows:
    fitted = found[_DISEASES]
    return [
        ("figure", "value"),
        *(
            (f"hidden edges, {text}", f"{100 * fitted[name]:.1f} ± {100 * fitted[f'{name}_interval']:.1f} %")
            for name, text in (("auc", "AUC"), ("ap", "average precision"))
        ),
        ("neighbourhoods on the map, mean average precision", _number(fitted["neighbourhood_map"])),
        ("nodes", f"{fitted['neighbourhood_nodes']:,}"),
    ]


_MAMMALS = "curvae graph mammals.csv --nodes mammal-nodes.csv --label branch --splits 0"
_MAMMAL_TREE = "--tree mammals-tree.csv"
_MODELS = {
    "mammals": "--set weight=0.5",
    "mammals2": "--set weight=2",
    "flat": "--curvature 0 --set weight=0.5",
    "flat2": "--curvature 0 --set weight=2",
}


def _mammal_rows(found: Mapping[str, Found]) -> Rows:
    judged = [found[f"curvae diagnose runs/{name} {_MAMMAL_TREE}"] for name in _MODELS]
    links = [found[f"curvae evaluate runs/{name} mammals.csv"]["parts"]["train"] for name in _MODELS]
    fitted = [found[f"{_MAMMALS} {options} -o runs/{name}"] for name, options in _MODELS.items()]
    return [
        ("figure", *(f"curvature {c}, weight {weight}" for c in ("−1", "0") for weight in ("0.5", "2"))),
        *_recovery(judged),
        ("AUC of the pairs it was trained on", *(f"{100 * part['auc']:.1f} %" for part in links)),
        ("nodes", *(f"{one['neighbourhood_nodes']:,}" for one in fitted)),
    ]


_JUDGED = [
    part
    for name, options in _MODELS.items()
    for part in (
        f"{_MAMMALS} {options} -o runs/{name}",
        f"curvae diagnose runs/{name} {_MAMMAL_TREE}",
        f"curvae evaluate runs/{name} mammals.csv",
    )
]

ENTRIES = {
    "tree": Entry(
        (
            f"{_TREE} -o runs/tree",
            "curvae view runs/tree -o map.png",
            f"curvae diagnose runs/tree {_KNOWN}",
            f"{_TREE} --curvature 0 -o runs/flat",
            f"curvae diagnose runs/flat {_KNOWN}",
        ),
        _tree_rows,
    ),
    "mnist": Entry((_MNIST, "curvae view runs/mnist --thumbnails -o map.png"), _mnist_rows),
    "diseases": Entry((_DISEASES, "curvae view runs/diseases --label sigma -o map.png"), _diseases_rows),
    "mammals": Entry(
        (
            "python -m benchmarks.wordnet",
            "curvae diagnose mammals-tree.csv --graph",
            "curvae diagnose mammals.csv --graph",
            *_JUDGED,
            "curvae view runs/mammals --names 24 -o map.png",
        ),
        _mammal_rows,
    ),
}

# --- the first picture ------------------------------------------------------------------------------------------------

_NAMES = {  # of the branches, short enough for a picture 350 pixels wide
    "canine": "dogs",
    "feline": "cats",
    "carnivore": "other carnivores",
    "odd-toed ungulate": "horses",
    "even-toed ungulate": "cattle, deer",
    "rodent": "rodents",
    "primate": "primates",
    "bat": "bats",
    "aquatic mammal": "whales, seals",
    "marsupial": "marsupials",
    "lagomorph": "rabbits",
}


def front() -> None:
    """Draw the mammals of WordNet as the default model places them, with the lines of the true hierarchy."""
    x, branches, likelihood = SETS["mammals"]()
    with wordnet.find().open(encoding="ascii") as lines:
        above = wordnet.read(lines).above
    model = PoincareVAE(likelihood=likelihood, random_state=0).fit(x)
    places, labels, ball = model.embedding_, np.array(branches), PoincareBall(2, model.curvature_)
    colours = colouring(labels, len(x))
    figure = Figure(figsize=(3.9, 3.9))
    ax = disc(figure.add_axes((0.0, 0.0, 1.0, 1.0)), ball)
    lower = [noun for noun, parents in enumerate(above) if parents]
    upper = [above[noun][0] for noun in lower]
    geodesics(ax, ball, places[upper], places[lower], colors=colours.colours[lower], linewidths=0.6, alpha=0.6)
    ax.scatter(*places.T, s=7, c=colours.colours, linewidths=0, zorder=2)
    for branch, name in _NAMES.items():
        own = places[labels == branch]
        place = (own[:, 0].mean(), own[:, 1].min() - 0.01)
        halo = [withStroke(linewidth=3, foreground="white")]
        ax.annotate(name, place, ha="center", va="top", fontsize=10.5, path_effects=halo, zorder=3)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=200)
    shrink(Image.open(stream), IMAGES / "front.png")


# --- running them -----------------------------------------------------------------------------------------------------


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run the commands of an entry in this folder and keep its picture.

    What was done is noted there, so that an interrupted entry goes on; one that was finished begins anew.
    """
    entry, note = ENTRIES[name], folder / "printed.json"
    if not note.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    found: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
    with chdir(folder):
        for command in entry.commands:
            if command in found:
                continue
            print(command, file=sys.stderr, flush=True)
            if command.startswith("curvae "):
                found[command] = _printed(f"{command} --force" if " -o " in command else command)
            else:
                wordnet.main(Path())
                found[command] = {}
            note.write_text(json.dumps(found), encoding="utf-8")
        picture = Image.open("map.png")
        picture.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
        shrink(picture, IMAGES / f"gallery-{name}.png")
    note.unlink()
    return {"commands": list(entry.commands), "printed": found}


def _printed(command: str) -> dict[str, Any]:
    stream = io.StringIO()
    with redirect_stdout(stream):
        run_command(f"{command} --json")
    printed: dict[str, Any] = json.loads(stream.getvalue())
    printed.pop("seconds", None)
    return printed


def table(name: str, result: Mapping[str, Any]) -> str:
    """Write the commands of an entry and its figures, as they stand in the gallery."""
    stored = result["entries"][name]
    header, *rows = ENTRIES[name].rows(stored["printed"])
    lines = ["```sh", *stored["commands"], "```", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main(names: Sequence[str]) -> None:
    if names == ["front"]:
        front()
        return
    if unknown := set(names) - set(ENTRIES):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(ENTRIES)}")
    for name in names or ENTRIES:
        found = {"versions": versions(), **run(name, ROOT / "runs" / "gallery" / name)}
        entries = json.loads(RESULTS.read_text(encoding="utf-8"))["entries"] if RESULTS.exists() else {}
        entries[name] = found
        result = {
            "command": "python -m benchmarks.gallery",
            "entries": {k: entries[k] for k in ENTRIES if k in entries},
        }
        RESULTS.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
