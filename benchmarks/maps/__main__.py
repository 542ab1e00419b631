"""How faithful are maps by Curvae, beside those by others? In stages, each of which goes on where it was interrupted.

export   the data sets, to DATA (needs scanpy, MNIST in $CURVAE_DATA, and WordNet as benchmarks/wordnet.py says)
others   maps by PCA, UMAP, t-SNE, PHATE and PaCMAP, to MAPS (needs these packages)
ours     maps by Curvae, and Poincaré maps, to MAPS
lost     what rows lose that are held out, with five seeds, to MAPS
score    figures of all maps, beside them
results  results/maps.json and pictures; methods of which there are no figures in MAPS keep those of the file

`export` and `others` need no torch, and may run in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from . import data
from .cells import SEEDS


def _export(options: argparse.Namespace) -> None:
    data.export(options.data, options.sets)


def _others(options: argparse.Namespace) -> None:
    from .others import METHODS, draw_all

    draw_all(options.data, options.maps, options.sets, options.methods or list(METHODS), options.seeds, options.folds)


def _ours(options: argparse.Namespace) -> None:
    from .ours import METHODS, draw_all

    draw_all(
        options.data,
        options.maps,
        options.sets,
        options.methods or METHODS,
        options.seeds,
        options.jobs,
        options.stack,
        options.folds,
        options.device,
    )


def _lost(options: argparse.Namespace) -> None:
    from .lost import measure

    measure(options.data, options.maps, options.sets, options.seeds, options.jobs, options.device)


def _score(options: argparse.Namespace) -> None:
    from .score import score_all

    score_all(options.data, options.maps, options.sets, options.jobs)


def _results(options: argparse.Namespace) -> None:
    from .pictures import draw
    from .results import TABLES, summary

    result = Path("results/maps.json")
    before = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    found = summary(options.data, options.maps, options.timed or options.maps, before)
    result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in found["sets"]:
        draw(options.data, options.maps, name, Path(f"docs/images/maps-{name}.png"))
    for table in TABLES.values():
        print(table(found), end="\n\n")


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "export": _export,
    "others": _others,
    "ours": _ours,
    "lost": _lost,
    "score": _score,
    "results": _results,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.maps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--data", type=Path, default=Path("runs/maps/data"), help="folder of the data sets")
    parser.add_argument("--maps", type=Path, default=Path("runs/maps/maps"), help="folder of the maps")
    parser.add_argument(
        "--timed",
        type=Path,
        help="folder of maps, each drawn alone on one idle machine, that times are read from; MAPS by default",
    )
    parser.add_argument("--sets", nargs="+", choices=data.SETS, default=list(data.SETS), help="only these data sets")
    parser.add_argument("--methods", nargs="+", help="only these methods")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--stack", type=int, default=5, help="maps by Curvae that a process draws at once; 1 times them"
    )
    parser.add_argument(
        "--folds", action=argparse.BooleanOptionalAction, default=True, help="hold out rows in turn, too"
    )
    parser.add_argument("--device", default="cpu", help="on which Curvae trains")
    options = parser.parse_args(arguments)
    STAGES[options.stage](options)


if __name__ == "__main__":
    main()
