"""Examples of the pages that need files of the reader: they run on files such as those that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from paths import ROOT
from running import few_surrogates, tiny, undrawn

sys.path.insert(0, str(ROOT))

from benchmarks.examples import run_command, run_page, unrecorded

_SMALL = "--hidden 8 --epochs 2 -q"


def _cells(rows: int = 60, **more: object) -> pd.DataFrame:
    """Three types of cells that differ in all genes."""
    kind = np.arange(rows) % 3
    genes = np.random.default_rng(0).normal(size=(rows, 4)) + 3 * kind[:, None]
    table = pd.DataFrame(genes, columns=["g1", "g2", "g3", "g4"])
    table.insert(0, "barcode", [f"cell{k}" for k in range(rows)])
    table.insert(1, "type", np.array(["stem", "neuron", "glia"])[kind])
    return table.assign(**more)


def _edges(name: str, graph: nx.Graph, first: str = "source", second: str = "target") -> None:
    pd.DataFrame(list(graph.edges), columns=[first, second]).to_csv(name, index=False)


def _faithful() -> str:
    _cells().to_csv("cells.csv", index=False)
    pd.DataFrame({"child": ["neuron", "glia"], "parent": ["stem", "stem"]}).to_csv("lineages.csv", index=False)
    return ""


def _graphs() -> str:
    for name in ("friends.csv", "papers.csv", "next-year.csv", "all-papers.csv"):
        _edges(name, nx.connected_caveman_graph(5, 6))
    people = pd.DataFrame({"name": range(30), "team": list("ab") * 15, "age": range(20, 50)})
    for name in ("people.csv", "next-year-people.csv"):
        people.to_csv(name, index=False)
    for name in ("words.npz", "all-words.npz"):
        sparse.save_npz(name, sparse.random(30, 12, 0.3, "csr", random_state=0))
    _edges("mammals.csv", nx.balanced_tree(2, 3))
    _edges("packages.csv", nx.gn_graph(40, seed=0))
    _edges("miserables.csv", nx.les_miserables_graph(), "character", "meets")
    return ""


def _many() -> str:
    _cells().drop(columns=["barcode", "type"]).to_csv("cells.csv", index=False)
    return ""


def _reading() -> str:
    _cells().to_csv("cells.csv", index=False)
    run_command(f"curvae fit cells.csv --id barcode --label type -o runs/cells {_SMALL}")
    return 'from curvae import PoincareVAE\nmodel = PoincareVAE.load("runs/cells")'


def _tables() -> str:
    told = {"batch": np.where(np.arange(60) < 30, "a", "b"), "age": np.arange(60)}
    _cells(**told).to_csv("cells.csv", index=False)
    _cells(20, batch="a", age=40).to_csv("new.csv", index=False)
    features = {"ward": list("xyz") * 20, "stage": list("ab") * 30, "smokes": np.arange(60) // 3 % 2}
    patients = _cells(**features).drop(columns="type").rename(columns={"barcode": "patient"})
    patients.to_csv("patients.csv", index=False)
    counts = np.random.default_rng(0).poisson(4, (60, 3))
    pd.DataFrame(counts, columns=["falls", "calls", "pills"]).assign(days=range(1, 61)).to_csv(
        "visits.csv", index=False
    )
    read = 'pd.read_csv("cells.csv").drop(columns=["barcode", "type"])'
    return f"import pandas as pd\nfrom curvae import PoincareVAE\nframe = {read}"


def _pieces() -> str:
    pytest.importorskip("pyarrow")
    cells = _cells()
    for name in ("cells.parquet", "more-cells.parquet"):
        cells.to_parquet(name)
    gaps = cells.copy()
    gaps.loc[3, "g2"] = np.nan
    gaps.to_parquet("cells-with-gaps.parquet")
    Path("folder-of-parquet-files").mkdir()
    numbers = cells.drop(columns=["barcode", "type"])
    numbers.to_parquet("folder-of-parquet-files/part.parquet")
    numbers.to_csv("cells.csv", index=False)
    np.save("cells.npy", numbers.to_numpy())
    who = {"sex": list("fm") * 30, "clinic": list("abc") * 20, "patient": np.arange(60) // 3}
    numbers.assign(**who).to_parquet("patients.parquet")
    counts = np.random.default_rng(0).poisson(4, (60, 3))
    pd.DataFrame(counts, columns=["falls", "calls", "pills"]).assign(hours=range(1, 61)).to_parquet("counts.parquet")
    run_command(f"curvae fit cells.parquet --id barcode --label type --missing model -o runs/cells-1 {_SMALL}")
    return ""


def _sources() -> str:
    for name in ("cells.csv", "more_cells.csv"):
        _cells().to_csv(name, index=False)
    _graphs()
    people = pd.read_csv("people.csv")
    people.assign(height=people["age"] + 130).to_csv("people.csv", index=False)
    return ""


PAGES: dict[str, Callable[[], str]] = {
    "guide-faithful": _faithful,
    "guide-graph": _graphs,
    "guide-many": _many,
    "guide-reading": _reading,
    "guide-table": _tables,
    "scale": _pieces,
    "data": _sources,
}


def _here(line: str) -> str:
    """Without what needs other machines, or data sets that are not here, and few trainings."""
    if "diseases" in line and "CURVAE_DATA" not in os.environ:
        return "curvae cite"
    line = line.replace(" --scheduler tcp://HOST:8786", "").replace(" --processes 2", "")
    line = line.replace("--find AAACCTGAGAAACCAT", "--find cell7")
    return tiny(line.replace("curvae compare ", "curvae compare --repeats 3 "))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_examples_run_on_files_of_the_reader(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    examples = unrecorded(page, recorded=name.startswith("guide-"))
    with undrawn(), few_surrogates():
        found = run_page(f"```python\n{PAGES[name]()}\n```\n{examples}", _here)
    assert len(found) > 1
