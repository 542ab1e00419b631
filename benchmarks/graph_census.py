"""How well hidden edges of many graphs are found: by Curvae in the ball and the plane, by rules, and by other programs.

python -m benchmarks.census_graphs FOLDER …                   the graphs, see there
python -m benchmarks.graph_census FOLDER                      all that is not there yet, into results/graphs.json
python -m benchmarks.graph_census FOLDER --graphs cora,csphd --methods ball,plane --dims 16 --splits 3 --out F
python -m benchmarks.graph_census FOLDER --jobs 15 --seconds 400       that many cells at once, none begun after that

Each graph is split ten times, 85/5/10 % of the edges, and every method is judged on the same hidden edges, against
pairs drawn uniformly and against pairs of equal degrees. Graphs with a hierarchy are fitted as a whole too: how well do
the nearest nodes turn out to be the neighbours? A cell (graph, method, dimension, split) is a file in `PATH.cells`,
written at once or not at all; an interrupted run goes on. Delete the files of a method to measure it again.

`ball` and `plane` are trained with the defaults of `GraphConfig`, of whole graphs with `encoder="free"`, as `curvae
graph` and `curvae graph --reconstruct` do. `vgae` needs torch-geometric, `node2vec` and `poincare` a Python that has
gensim, given with --rivals. What cannot be had is left out, and said.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.manifold import spectral_embedding

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graph_data import BASELINES, Rule, link_matrix, matched_pairs, neighbourhood_ranks, rules
from curvae.maps.statistics import mean_interval
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import embed_graph, feature_scaling, feature_tensor, fit_graph, link_scores
from curvae.training.storage import read_json, versions, write_json

from .census_graphs import EDGES, FEATURES

__all__ = ["GRAPHS", "METHODS", "Cell", "compute", "main", "summary"]

RESULT = Path(__file__).parent.parent / "results" / "graphs.json"
DIMS = (2, 5, 16)
SPLITS = 10
WHOLE = -1  # in place of a split: all edges are fitted

Edges = NDArray[np.int64]


# --- graphs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A graph of the census: defaults were chosen on one half of them, on the other they are judged."""

    half: str
    whole: bool = False
    """whether it is fitted as a whole too"""


GRAPHS: dict[str, Source] = {
    "karate": Source("choice"),
    "phylogenetic": Source("choice", whole=True),
    "csphd": Source("choice"),
    "diseases": Source("choice"),
    "mammals": Source("choice", whole=True),
    "disease_lp": Source("choice"),
    "disease_lp+features": Source("choice"),
    "cora": Source("choice"),
    "cora+features": Source("choice"),
    "python_packages": Source("choice"),
    "florentine": Source("verdict"),
    "davis": Source("verdict"),
    "miserables": Source("verdict"),
    "fly": Source("verdict"),
    "airports": Source("verdict"),
    "munin": Source("verdict"),
    "r_packages": Source("verdict"),
    "birds": Source("verdict", whole=True),
    "grid": Source("verdict"),
    "metabolism": Source("verdict"),
}
_FEATURED = "+features"


def _edges_file(folder: Path, name: str) -> Path:
    return folder / f"{name.removesuffix(_FEATURED)}{EDGES}"


@cache
def _graph(folder: Path, name: str) -> Graph:
    beside = folder / f"{name.removesuffix(_FEATURED)}{FEATURES}" if _FEATURED in name else None
    return load_graph(_edges_file(folder, name), features_file=beside, header=False)


# --- methods --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A graph of which some edges may be seen; `rivals` is the Python that has other programs."""

    graph: Graph
    seen: Edges
    split: Any
    dim: int
    seed: int
    rivals: str | None


def _dot(vectors: NDArray[Any]) -> Rule:
    return lambda pairs: np.einsum("pk,pk->p", vectors[pairs[:, 0]], vectors[pairs[:, 1]])


def _rule(name: str, asked: Question) -> Rule:
    return rules(asked.seen, asked.graph.n_nodes, asked.dim)[name]


def _spectral(asked: Question) -> Rule:
    """Products of the vectors of a spectral embedding (Tang and Liu, 2011), as Kipf and Welling (2016) have them."""
    adjacency = link_matrix(asked.seen, asked.graph.n_nodes)
    dim = min(asked.dim, asked.graph.n_nodes - 1)
    vectors = spectral_embedding(adjacency, n_components=dim, random_state=asked.seed, drop_first=False)
    return _dot(vectors)


def _ours(curvature: float, asked: Question) -> Rule:
    config = GraphConfig(dim=asked.dim, curvature=curvature, seed=asked.seed)
    if asked.split is None:
        config = replace(config, encoder="free")
    fitted = fit_graph(config, asked.graph, split=asked.split)
    return embed_graph(fitted, asked.graph).nearness_of


def _vgae(asked: Question) -> Rule:
    """Kipf and Welling (2016): 32 hidden units, 200 steps of Adam with learning rate 0.01."""
    from torch_geometric.nn import VGAE, GCNConv

    class Encoder(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = GCNConv(width, 32)
            self.means, self.scales = GCNConv(32, asked.dim), GCNConv(32, asked.dim)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.first(x, edges).relu()
            return self.means(hidden, edges), self.scales(hidden, edges)

    torch.manual_seed(asked.seed)
    x = torch.eye(asked.graph.n_nodes)
    if asked.graph.features is not None:
        scaling = feature_scaling(asked.graph.features)
        x = feature_tensor(asked.graph.features, scaling, "cpu", torch.float32)
    x = x.to_dense() if x.is_sparse else x
    edges = torch.from_numpy(np.concatenate([asked.seen, asked.seen[:, ::-1]]).T.copy())
    model: Any = VGAE(Encoder(x.shape[1]))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        z = model.encode(x, edges)
        loss = model.recon_loss(z, edges) + model.kl_loss() / asked.graph.n_nodes
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        return _dot(model.encode(x, edges).numpy())


def _rival(name: str, asked: Question) -> Rule:
    if asked.rivals is None:
        raise ImportError(f"{name} needs a Python that has it; give --rivals")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "edges.npy"), Path(folder, "vectors.npy")
        np.save(source, asked.seen)
        script = Path(__file__).with_name("graph_rivals.py")
        words = [asked.rivals, script, name, asked.dim, asked.seed, source, asked.graph.n_nodes, target]
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([*map(str, words)], check=True, env=plain, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        vectors = np.load(target)
    return _ball_nearness(vectors) if name == "poincare" else _dot(vectors)


def _ball_nearness(places: NDArray[Any]) -> Rule:
    """Minus the distance in the unit ball."""
    room = 1 - (places**2).sum(1)

    def nearness(pairs: Edges) -> NDArray[np.float64]:
        a, b = pairs.T
        gaps = ((places[a] - places[b]) ** 2).sum(1)
        return -np.arccosh(1 + 2 * gaps / np.maximum(room[a] * room[b], 1e-15))

    return nearness


@dataclass(frozen=True)
class Method:
    """How to score pairs; `flat` ones are the same for all dimensions, `featured` ones see features."""

    make: Callable[[Question], Rule]
    flat: bool = False
    featured: bool = False


METHODS: dict[str, Method] = {
    **{name: Method(partial(_rule, name), flat=name != "singular vectors") for name in BASELINES},
    "spectral": Method(_spectral),
    "node2vec": Method(partial(_rival, "node2vec")),
    "poincare": Method(partial(_rival, "poincare")),
    "vgae": Method(_vgae, featured=True),
    "ball": Method(partial(_ours, 1.0), featured=True),
    "plane": Method(partial(_ours, 0.0), featured=True),
}


# --- cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A graph, a method, a dimension and a split, or `WHOLE`."""

    graph: str
    method: str
    dim: int
    split: int

    @property
    def name(self) -> str:
        parts = (self.graph, self.method, self.dim, "whole" if self.split == WHOLE else self.split)
        return f"{'-'.join(str(part).replace(' ', '_') for part in parts)}.json"


def cells(graphs: Sequence[str], methods: Sequence[str], dims: Sequence[int], splits: int) -> Iterator[Cell]:
    """Those that there are: rules are the same for all dimensions, and only some methods see features."""
    for name in graphs:
        for method in methods:
            kind = METHODS[method]
            if _FEATURED in name and not kind.featured:
                continue
            for dim in dims[:1] if kind.flat else dims:
                for split in (*range(splits), *([WHOLE] if GRAPHS[name].whole else [])):
                    yield Cell(name, method, dim, split)


def compute(cell: Cell, folder: Path, rivals: str | None = None) -> dict[str, Any]:
    """Compute the figures of a cell, and the CPU seconds of what was trained for it."""
    graph = _graph(folder, cell.graph)
    split = None if cell.split == WHOLE else split_edges(graph, seed=cell.split)
    seen = graph.edges if split is None else split.train
    began = _cpu()
    score = METHODS[cell.method].make(Question(graph, seen, split, cell.dim, max(cell.split, 0), rivals))
    spent = {"cpu_seconds": round(_cpu() - began, 3)}
    if split is None:
        return {**_neighbourhoods(graph, score), **spent}
    edges, absent = matched_pairs(graph, split.test, np.bincount(seen.ravel(), minlength=graph.n_nodes))
    auc, ap = link_scores(score(split.test), score(split.test_absent))
    equal = link_scores(score(edges), score(absent)) if len(edges) else (None, None)
    return {"auc": auc, "ap": ap, "auc_matched": equal[0], "ap_matched": equal[1], **spent}


def _neighbourhoods(graph: Graph, score: Rule) -> dict[str, float]:
    """Mean average precision with which the nodes of the highest scores are the neighbours, and their mean rank."""

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        pairs = np.stack(np.meshgrid(np.arange(start, stop), np.arange(graph.n_nodes), indexing="ij"), -1)
        found = -score(pairs.reshape(-1, 2)).reshape(stop - start, -1)
        found[np.arange(stop - start), np.arange(start, stop)] = np.inf  # a node is no neighbour of its own
        return found

    return dict(zip(("map", "rank"), neighbourhood_ranks(graph, rows), strict=True))


def _cpu() -> float:
    return sum(os.times()[:4])


# --- results --------------------------------------------------------------------------------------------------------


def summary(folder: Path, graphs: Path) -> dict[str, Any]:
    """All cells by graph, method and dimension: every figure, its mean and the half-width of its 95 % interval."""
    found: dict[str, Any] = {}
    for file in sorted(folder.glob("*.json")):
        one = read_json(file)
        graph, method, dim = one["graph"], one["method"], one["dim"]
        place = found.setdefault(graph, {"half": GRAPHS[graph].half, "methods": {}})["methods"]
        place = place.setdefault(method, {}).setdefault(str(dim), {})
        figures = {name: None if value is None else round(value, 5) for name, value in one["figures"].items()}
        if one["split"] == WHOLE:
            place["whole"] = figures
        else:
            place.setdefault("splits", {})[str(one["split"])] = figures
    for graph, entry in found.items():
        data = _graph(graphs, graph)
        entry |= {"nodes": data.n_nodes, "edges": data.n_edges, "features": len(data.feature_names)}
        entry["sparse"] = issparse(data.features)
        for dims in entry["methods"].values():
            for place in dims.values():
                place["mean"] = _means(list(place.get("splits", {}).values()))
    return found


def _means(rows: Sequence[Mapping[str, float | None]]) -> dict[str, list[float]]:
    """Mean and half-width of its interval, 0 for a single split, of each figure."""
    found = {}
    for name in rows[0] if rows else ():
        values = [value for row in rows if (value := row[name]) is not None]
        if values:
            found[name] = list(mean_interval(values)) if len(values) > 1 else [values[0], 0.0]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the graphs")
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=list(GRAPHS))
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--dims", type=lambda text: [int(dim) for dim in text.split(",")], default=list(DIMS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--rivals", help="Python that has gensim")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further cell is begun")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(arguments)
    done = asked.out.with_suffix(".cells")
    done.mkdir(parents=True, exist_ok=True)
    for graph in asked.graphs:
        if not _edges_file(asked.folder, graph).exists():
            print(f"left out: {graph} (no {_edges_file(asked.folder, graph)})", file=sys.stderr)
    known = [graph for graph in asked.graphs if _edges_file(asked.folder, graph).exists()]
    every = cells(known, asked.methods, asked.dims, asked.splits)
    _run([cell for cell in every if not (done / cell.name).exists()], asked, done)
    write_json(asked.out, {"graphs": summary(done, asked.folder), "versions": versions()})


def _run(cells: Sequence[Cell], asked: argparse.Namespace, done: Path) -> None:
    """Compute cells in the order given, and store each at once."""
    began, waiting, lacking = time.perf_counter(), deque(cells), set[str]()
    running: dict[Future[dict[str, Any]], Cell] = {}
    one: Any = {"initializer": torch.set_num_threads, "initargs": (1,)}
    several = asked.jobs > 1
    with (
        ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn"), **one)
        if several
        else ThreadPoolExecutor(1, **one)
    ) as pool:
        while waiting or running:
            while waiting and len(running) < asked.jobs and time.perf_counter() - began < asked.seconds:
                cell = waiting.popleft()
                if cell.method not in lacking:
                    running[pool.submit(compute, cell, asked.folder, asked.rivals)] = cell
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                try:
                    write_json(done / cell.name, {**vars(cell), "figures": future.result()})
                except ImportError as error:
                    if cell.method not in lacking:
                        print(f"left out: {cell.method} ({error})", file=sys.stderr)
                    lacking.add(cell.method)
                else:
                    print(f"{time.perf_counter() - began:.0f} s", cell.name, future.result(), flush=True)


if __name__ == "__main__":
    main()
