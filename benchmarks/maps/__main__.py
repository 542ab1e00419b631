"""How faithful are maps by Curvae, beside those by others? In stages, each of which goes on where it was interrupted.

python -m benchmarks.maps export    the data sets, to DATA (needs scanpy, $CURVAE_DATA for MNIST, WordNet for mammals)
python -m benchmarks.maps others    maps by PCA, UMAP, t-SNE, PHATE and PaCMAP, to MAPS (needs these packages)

Stages `export` and `others` need no torch and may run in an environment of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import data, others
from .cells import SEEDS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.maps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("export", "others"))
    parser.add_argument("--data", type=Path, default=Path("runs/maps/data"), help="folder of the data sets")
    parser.add_argument("--maps", type=Path, default=Path("runs/maps/maps"), help="folder of the maps")
    parser.add_argument("--sets", nargs="+", choices=data.SETS, default=list(data.SETS), help="only these data sets")
    parser.add_argument("--methods", nargs="+", help="only these methods")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    options = parser.parse_args(arguments)
    if options.stage == "export":
        data.export(options.data, options.sets)
    elif options.stage == "others":
        methods = options.methods or list(others.METHODS)
        others.draw_all(options.data, options.maps, options.sets, methods, options.seeds)


if __name__ == "__main__":
    main()
