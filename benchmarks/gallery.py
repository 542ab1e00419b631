"""The pictures and figures of docs/gallery.md. `python -m benchmarks.gallery [NAME…]`, all unless some are named.

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

from PIL import Image

from curvae.training.storage import versions

from . import wordnet
from .examples import IMAGES, ROOT, run_command, shrink

__all__ = ["ENTRIES", "Entry", "main", "table"]

RESULTS = ROOT / "results" / "gallery.json"
WIDTH = 1000  # pixels of a picture
STRIP = 240  # pixels a side of a map in the README

Found = Mapping[str, Any]  # what a command printed
Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """Something to be seen.

    Arguments:
        commands: as they are typed; one of them writes `map.png`.
        rows: from what the commands printed, by command, to a table, its header first.
        from_right: the map for the README is at the right of the picture.
    """

    commands: Sequence[str]
    rows: Callable[[Mapping[str, Found]], Rows]
    from_right: bool = False


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
    "curvae fit mnist --likelihood bernoulli --hidden 400 --batch-size 128 --epochs 8 --validation 0.02 -o runs/mnist"
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
    "mammals": "--weight 0.5",
    "mammals2": "--weight 2",
    "flat": "--curvature 0 --weight 0.5",
    "flat2": "--curvature 0 --weight 2",
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
    "mnist": Entry((_MNIST, "curvae view runs/mnist --thumbnails -o map.png"), _mnist_rows, from_right=True),
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


def strip() -> None:
    """The maps of all entries in one row, for the README."""
    row = Image.new("RGB", (STRIP * len(ENTRIES), STRIP), "white")
    for place, (name, entry) in enumerate(ENTRIES.items()):
        picture = Image.open(IMAGES / f"gallery-{name}.png").convert("RGB")
        left = picture.width - picture.height if entry.from_right else 0
        square = picture.crop((left, 0, left + picture.height, picture.height))
        row.paste(square.resize((STRIP - 8, STRIP - 8), Image.Resampling.LANCZOS), (place * STRIP + 4, 4))
    shrink(row, IMAGES / "gallery.png")


def table(name: str, result: Mapping[str, Any]) -> str:
    """The commands of an entry and its figures, as they stand in the gallery."""
    stored = result["entries"][name]
    header, *rows = ENTRIES[name].rows(stored["printed"])
    lines = ["```sh", *stored["commands"], "```", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main(names: Sequence[str]) -> None:
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
    if all((IMAGES / f"gallery-{name}.png").exists() for name in ENTRIES):
        strip()


if __name__ == "__main__":
    main(sys.argv[1:])
