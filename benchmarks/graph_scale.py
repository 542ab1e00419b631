"""Graphs of 10⁷ edges on CPUs and 10⁸ on a GPU: reading, steps a second, memory, and hidden edges that are found.

python -m benchmarks.graph_scale reading [FILE]  lists of edges as .csv, .csv.gz and .parquet
python -m benchmarks.graph_scale cpu [FILE]      training on CPUs, on edges that are read from Parquet
python -m benchmarks.graph_scale cuda [FILE]     training on edges that are made on the device

Each adds to results/graph_scale.json, or to FILE, after every size. `--edges 100000` takes other sizes, with ten edges
a node, and `--device cpu` another device. Whatever is measured runs in a process of its own. The graph has hubs at all
scales: a node is joined to nodes near it on a line that are multiples of 2ᵏ, the rarer, the larger k.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graph_data import degree_product, link_matrix
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import embed_graph, fit_graph, hidden_links, link_scores, plan_graphs
from curvae.training.storage import versions

from .memory import peak_mb

__all__ = ["RESULT", "edges_made", "measure", "table"]

RESULT = Path("results/graph_scale.json")
SIZES = {"reading": (1_000_000, 10_000_000), "cpu": (10_000_000,), "cuda": (10_000_000, 100_000_000)}
SECONDS = {"reading": 0.0, "cpu": 240.0, "cuda": 35.0}
"""for the steps of a training, of which there are at most 400"""
_DEVICES = {"reading": "cpu", "cpu": "cpu", "cuda": "cuda"}
_FALL, _REACH = 0.8, 8  # how much rarer each level is, and how many nodes of a level are near on either side
_HELD = 100_000  # edges to watch, and as many to predict


def edges_made(nodes: int, edges: int, device: str = "cpu") -> Tensor:
    """Different edges, (2, edges), i < j and sorted."""
    random = torch.Generator(device).manual_seed(0)
    name, found = torch.randperm(nodes, generator=random, device=device), torch.empty(0, dtype=torch.int64).to(device)
    while len(found) < edges:
        draws = int(1.3 * (edges - len(found))) + 1000
        node = torch.randint(nodes, (draws,), generator=random, device=device)
        level = torch.rand(draws, generator=random, device=device).log_().div_(math.log(_FALL)).long()
        level.clamp_(max=max(1, nodes.bit_length() - 2))
        other = torch.randint(-_REACH, _REACH + 1, (draws,), generator=random, device=device)
        other = (node >> level).add_(other) << level
        proper = (other >= 0) & (other < nodes) & (other != node)
        low, high = torch.stack([name[node[proper]], name[other[proper]]]).aminmax(dim=0)
        found = torch.cat([found, low * nodes + high]).unique()
    while len(found) > edges:
        kept = torch.rand(len(found), generator=random, device=device).argsort()[:edges]
        found = found[kept].sort().values
    return torch.stack([found // nodes, found % nodes])


def write(folder: Path, edges: Tensor, kinds: Sequence[str]) -> list[Path]:
    """Write the edges as files of several kinds: "parquet", and "csv" before "csv.gz"."""
    arrow, text, parquet = (import_module(f"pyarrow{part}") for part in ("", ".csv", ".parquet"))
    files = {kind: folder / f"edges.{kind}" for kind in kinds}
    rows = arrow.table({"source": edges[0].numpy(), "target": edges[1].numpy()})
    parquet.write_table(rows, files["parquet"])
    if "csv" in files:
        text.write_csv(rows, files["csv"])
        with files["csv"].open("rb") as plain, gzip.open(files["csv.gz"], "wb", 1) as packed:
            shutil.copyfileobj(plain, packed)
    return list(files.values())


def reading(path: Path) -> dict[str, Any]:
    """Seconds to read a file."""
    before, began, used = peak_mb(), time.perf_counter(), time.process_time()
    graph = load_graph(path)
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    memory = {"libraries_mb": before, "peak_mb": peak_mb()}
    return {"nodes": graph.n_nodes, "edges": graph.n_edges, **seconds, **memory, "file_mb": path.stat().st_size / 1e6}


def training(graph: Graph, device: str, seconds: float) -> dict[str, Any]:
    """Measure steps a second, and how well hidden edges are told from other pairs, beside the product of degrees."""
    began = time.perf_counter()
    share = min(0.05, _HELD / graph.n_edges)
    split = split_edges(graph, share, share)
    held = time.perf_counter()
    problem, tasks = plan_graphs([GraphConfig()], graph, [split], asked=device)
    engine = problem.engine(tasks, problem.models(tasks))
    engine.epoch(0)
    made, used = _time(device), time.process_time()
    for step in (1, 2):
        engine.epoch(step)
    step_s = (_time(device) - made) / 2
    steps = max(10, min(GraphConfig().epochs, int(seconds / step_s)))
    found = {"step_s": step_s, "step_cpu_s": (time.process_time() - used) / 2, "steps": steps}
    del engine
    trained = _time(device)
    fitted = fit_graph(GraphConfig(epochs=steps), graph, split=split, device=device)
    embedded = _time(device)
    embedding = embed_graph(fitted, graph)
    links = hidden_links(embedding, split)["test"]
    product = degree_product(link_matrix(split.train, graph.n_nodes))
    rule = link_scores(product(split.test), product(split.test_absent))
    if device != "cpu":
        found["device_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        **found,
        "splitting_s": held - began,
        "preparing_s": made - held,
        "training_s": embedded - trained,
        "judging_s": _time(device) - embedded,
        "kept_step": fitted.last["epoch"],
        "auc": links.auc,
        "ap": links.ap,
        "degree_product_auc": rule[0],
        "degree_product_ap": rule[1],
        "peak_mb": peak_mb(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device != "cpu" else "CPU",
    }


def _time(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def _made_graph(nodes: int, edges: int, device: str) -> tuple[Graph, float]:
    """Return a graph of edges that are made on the device, and the seconds that this takes."""
    began = time.perf_counter()
    ends = edges_made(nodes, edges, device).T.contiguous().cpu().numpy()
    if device != "cpu":
        torch.cuda.empty_cache()
    graph = Graph(np.arange(nodes).astype(np.str_), ends)
    return graph, time.perf_counter() - began


def one(what: str, argument: str, device: str, seconds: float) -> dict[str, Any]:
    """Measure reading or training, in a process of its own."""
    if what == "read":
        return reading(Path(argument))
    if what == "file":
        return training(load_graph(Path(argument)), device, seconds)
    edges = int(argument)
    graph, took = _made_graph(max(10, edges // (10 if edges < 5e7 else 20)), edges, device)
    return {"making_s": took, **training(graph, device, seconds)}


def _apart(what: str, argument: str | int | Path, device: str, seconds: float) -> dict[str, Any]:
    """Start `one` as a process of its own, with as many threads as there are cores."""
    words = [sys.executable, "-m", "benchmarks.graph_scale", what, str(argument), "--device", device]
    plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([*words, "--seconds", str(seconds)], check=True, stdout=subprocess.PIPE, text=True, env=plain)
    return json.loads(done.stdout.splitlines()[-1])


def measure(group: str, edges: int, device: str, seconds: float) -> dict[str, Any]:
    """Measure the figures of one size."""
    if group == "cuda":
        return _apart("made", edges, device, seconds)
    kinds = ("parquet", "csv", "csv.gz") if group == "reading" else ("parquet",)
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), edges_made(edges // 10, edges), kinds)
        if group == "cpu":
            return _apart("file", files[0], device, seconds)
        return {kind: _apart("read", path, device, seconds) for kind, path in zip(kinds, files, strict=True)}


def table(result: dict[str, Any]) -> str:
    """Show times of reading, and of training on CPUs and a GPU."""
    lines = ["| edges | file | size (MB) | reading (s) | peak memory (GB) |", "|---|---|---|---|---|"]
    for row in result.get("reading", ()):
        for kind, found in row.items():
            sizes = f"{found['file_mb']:,.0f} | {found['cpu_seconds']:.1f} | {found['peak_mb'] / 1e3:.1f}"
            lines.append(f"| {found['edges']:,} | `.{kind}` | {sizes} |")
    lines += [
        "",
        "| device | nodes | edges | step (s) | steps | AUC | product of degrees | memory (GB) | of the device |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in (*result.get("cpu", ()), *result.get("cuda", ())):
        device = f"{row['device_gb']:.1f}" if "device_gb" in row else ""
        step = row["step_s" if device else "step_cpu_s"]
        sizes = f"{row['nodes']:,} | {row['edges']:,} | {step:.3g} | {row['steps']}"
        aucs = f"{100 * row['auc']:.1f} | {100 * row['degree_product_auc']:.1f}"
        lines.append(f"| {row['device']} | {sizes} | {aucs} | {row['peak_mb'] / 1e3:.1f} | {device} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", help="reading, cpu or cuda")
    parser.add_argument("file", nargs="?", default=str(RESULT), help="to add to")
    parser.add_argument("--edges", type=int, nargs="+", help="sizes")
    parser.add_argument("--device", help="by default that of the group")
    parser.add_argument("--seconds", type=float, help="for the steps of a training")
    asked = parser.parse_args()
    if asked.group not in SIZES:
        print(json.dumps(one(asked.group, asked.file, asked.device, asked.seconds)))
        return
    file = Path(asked.file)
    seconds = asked.seconds or SECONDS[asked.group]
    found: list[dict[str, Any]] = []
    for edges in asked.edges or SIZES[asked.group]:
        found.append(measure(asked.group, edges, asked.device or _DEVICES[asked.group], seconds))
        print(json.dumps(found[-1]), flush=True)
        known = json.loads(file.read_text()) if file.exists() else {}
        machine = {"cores": os.cpu_count(), "versions": versions()}
        text = json.dumps({**known, asked.group: found, f"{asked.group}_on": machine}, indent=1)
        part = file.with_suffix(".part")
        part.write_text(text + "\n")
        part.replace(file)


if __name__ == "__main__":
    main()
