"""Examples of the pages that need files of the reader: they run on files such as those that they name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from cell_files import counts, describe, write_h5ad
from curvae import PoincareBall, PoincareVAE
from curvae.data import branching_diffusion, flat
from curvae.paper.experiment import Experiment, Page, Shard
from curvae.training import Config
from paths import ROOT
from reading import idx
from running import few_surrogates, tiny, undrawn

sys.path.insert(0, str(ROOT))

from benchmarks.examples import pages_with_examples, run_command, run_page, unrecorded

_SMALL = "--hidden 8 --epochs 2 -q"
_DATA = os.environ.get("CURVAE_DATA")


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
    calls = pd.DataFrame(nx.karate_club_graph().edges, columns=["caller", "called"]).assign(year=2020, minutes=3)
    calls.to_csv("calls.csv", index=False)
    calls.to_csv("messages.txt", index=False, header=False, sep=" ")
    _edges("mammals.csv", nx.balanced_tree(2, 3))
    _edges("packages.csv", nx.gn_graph(40, seed=0))
    _edges("miserables.csv", nx.les_miserables_graph(), "character", "meets")
    return ""


def _labelled() -> str:
    _cells().drop(columns="barcode").to_csv("cells.csv", index=False)
    return ""


def _many() -> str:
    imports = "import numpy as np\nfrom curvae.training import Config, fit_many\n"
    return (
        f"{imports}x, configs = np.random.rand(40, 3), [Config(epochs=1, hidden=(8,), curvature=c) for c in (0.0, 1.0)]"
    )


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
    events = np.random.default_rng(0).poisson(4, (60, 3))
    pd.DataFrame(events, columns=["falls", "calls", "pills"]).assign(days=range(1, 61)).to_csv(
        "visits.csv", index=False
    )
    read = 'pd.read_csv("cells.csv").drop(columns=["barcode", "type"])'
    return f"import pandas as pd\nfrom curvae import PoincareVAE\nframe = {read}"


def _gallery() -> str:
    """Digits that are noise, and nouns in a tree as the files of WordNet have them."""
    Path("files/mnist").mkdir(parents=True)
    for prefix in ("train", "t10k"):
        images = np.random.default_rng(0).integers(0, 256, (100, 28, 28)).astype(np.uint8)
        Path(f"files/mnist/{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        Path(f"files/mnist/{prefix}-labels-idx1-ubyte").write_bytes(idx((np.arange(100) % 10).astype(np.uint8)))
    for path in Path(_DATA).iterdir() if _DATA else ():
        if path.name != "mnist":
            Path("files", path.name).symlink_to(path)
    tree = nx.balanced_tree(3, 3, create_using=nx.DiGraph)
    for noun, below in tree.adjacency():
        name = f"noun{noun}" if noun else "mammal"
        pointers = " ".join(f"~ {lower} n 0000" for lower in below)
        with Path("files/data.noun").open("a") as file:
            file.write(f"{noun} 05 n 01 {name} 0 {len(below):03} {pointers} | a noun\n")
    return ""


def _cell_file() -> str:
    write_h5ad(Path("cells.h5ad"), counts(120), describe(120), layers={"counts": counts(120)})
    return ""


def _batches() -> str:
    for name, plate, rows in (("cells.h5ad", "p1", 60), ("new-cells.h5ad", "p2", 40), ("atlas.h5ad", "p3", 40)):
        write_h5ad(Path(name), counts(rows), describe(rows).assign(plate=plate), layers={"counts": counts(rows)})
    return ""


def _lineages() -> str:
    kinds = np.array(["stem", "left", "right"])[np.arange(120) % 3]
    obs = describe(120).assign(type=kinds, cluster=kinds)
    write_h5ad(Path("cells.h5ad"), counts(120), obs, ["Gata1", *(f"g{j}" for j in range(1, 40))])
    return ""


def _donors() -> None:
    obs = describe().rename(columns={"kind": "cell_type", "plate": "donor"})
    for name in ("cells.h5ad", "new-cells.h5ad"):
        write_h5ad(Path(name), counts(), obs, layers={"counts": counts()})


def _pieces() -> str:
    pytest.importorskip("pyarrow")
    _donors()
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
    events = np.random.default_rng(0).poisson(4, (60, 3))
    pd.DataFrame(events, columns=["falls", "calls", "pills"]).assign(hours=range(1, 61)).to_parquet("counts.parquet")
    run_command(f"curvae fit cells.parquet --id barcode --label type --missing model -o runs/cells-1 {_SMALL}")
    return ""


def _sources() -> str:
    for name in ("cells.csv", "more_cells.csv"):
        _cells().to_csv(name, index=False)
    _graphs()
    _donors()
    people = pd.read_csv("people.csv")
    people.assign(height=people["age"] + 130).to_csv("people.csv", index=False)
    return ""


PAGES: dict[str, Callable[[], str]] = {
    "guide-cells": _cell_file,
    "guide-faithful": _faithful,
    "guide-graph": _graphs,
    "guide-lineages": _lineages,
    "guide-many": _many,
    "guide-new-cells": _batches,
    "guide-reading": _reading,
    "guide-table": _tables,
    "scale": _pieces,
    "data": _sources,
    "README": _labelled,
    "index": _labelled,
    "install": str,
    "settings-advanced": str,
    "gallery": _gallery,
    "reproduction": str,
}


def _here(line: str) -> str:
    """Without what needs other machines, or data sets that are not here, and few trainings."""
    if "diseases" in line and _DATA is None:
        return "curvae cite"
    program, _, words = line.partition(" ")
    if program in ELSEWHERE:
        return ELSEWHERE[program](words.partition("#")[0].strip())
    line = line.replace(" --processes 2", "")
    line = line.replace("--find AAACCTGAGAAACCAT", "--find cell7")
    line = re.sub(r"-o (map.png|runs/flat)$", r"\g<0> --force", line)  # of several entries of the gallery
    line = line.replace("size=(5000, 20)", "size=(1000, 20)")
    return tiny(line.replace("curvae compare ", "curvae compare --repeats 3 "))


def _make(target: str) -> str:
    """What make does after the installation; nothing where that is to run all the other tests."""
    done = [f"-o.venv/.{extra}" for extra in ("core", "dev")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of a make around it
    words = ["make", "-n", f"-f{ROOT}/Makefile", *done, target]
    called = subprocess.run(words, check=True, capture_output=True, text=True, env=plain)
    command = called.stdout.strip().removeprefix("PYTHONDONTWRITEBYTECODE= ").removeprefix(".venv/bin/")
    return "" if command == "python -m pytest --ignore tests/project" else command


def _dask(words: str) -> str:
    """The servers would not end: only their arguments are read."""
    name, *arguments = words.split()
    import_module(f"distributed.cli.dask_{name}").main.make_context(name, arguments)
    return ""


ELSEWHERE: dict[str, Callable[[str], str]] = {
    "make": _make,
    "pip": lambda words: "",  # what is installed already
    "torchrun": lambda words: "",  # by a test of its own
    "dask": _dask,
    "python": lambda words: f"{sys.executable} {words}",
}


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path / "files"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))


def _page(name: str) -> str:
    folder = ROOT if name in ("README", "CONTRIBUTING") else ROOT / "docs"
    return (folder / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")  # of pandas 3, by anndata 0.12
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.docs if name == "gallery" else ()) for name in PAGES]
)
def test_examples_run_on_files_of_the_reader(name, monkeypatch):
    monkeypatch.setattr(branching_diffusion, "__defaults__", (50, 4, 2, 3, *branching_diffusion.__defaults__[4:]))
    if name == "gallery":
        monkeypatch.setenv("CURVAE_DATA", "files")
    # The demonstration and the experiments of the paper have tests of their own; here they are small.
    small = {
        "_DEMO_CONFIG": Config(hidden=(8,), epochs=2),
        "_DEMO_REPEATS": 3,
        "branching_diffusion": lambda seed: branching_diffusion(dim=5, depth=3, seed=seed),
        "flat": lambda seed: flat(75, 5, seed),
    }
    shards = [Shard("one", {}, lambda workspace: {"figure": 1})]
    tried = Experiment("table1", "tried", lambda plan: shards, dict, lambda result: Page("done", "good", []), 1.0)
    monkeypatch.setattr("curvae.paper.EXPERIMENTS", {"table1": tried})
    examples = unrecorded(_page(name), recorded=name in pages_with_examples())
    examples = examples.replace('Client("tcp://HOST:8786")', "Client(processes=False, dashboard_address=None)")
    with undrawn(), few_surrogates(), mock.patch.multiple("curvae.runs.training", **small):
        found = run_page(f"```python\n{PAGES[name]()}\n```\n{examples}", _here)
    assert len(found) > 1


# --- programs of others -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R with jsonlite")
def test_distances_in_r_are_geodesic():
    _cells().to_csv("cells.csv", index=False)
    with undrawn():
        run_command(f"curvae fit cells.csv --id barcode --label type -o runs/tree {_SMALL}")
    (code,) = re.findall(r"```r\n(.*?)```", _page("guide-using"), re.DOTALL)
    Path("example.R").write_text(
        f"{code}\nwrite.csv(distances, 'distances.csv', row.names = FALSE)\n", encoding="utf-8"
    )
    subprocess.run(["Rscript", "example.R"], check=True)
    found = pd.read_csv("distances.csv").to_numpy()
    model = PoincareVAE.load("runs/tree")
    ball, points = PoincareBall(2, model.curvature_), torch.from_numpy(model.embedding_)
    np.testing.assert_allclose(found, ball.dist(points[:, None], points), rtol=1e-3, atol=1e-3)


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore")  # of scanpy and of what it imports
def test_the_guide_to_other_programs_runs():
    """All of it, with scanpy and ONNX."""
    counts = "np.random.default_rng(0).poisson(3, (635, 40)).astype(np.float32)"
    told = '{"donor": list("abcde") * 127, "cell_type": ["x"] * 635}, index=[f"cell{k}" for k in np.arange(635)]'
    imports = "import numpy as np\nimport pandas as pd\nfrom anndata import AnnData\n"
    setup = f"{imports}adata = AnnData({counts}, pd.DataFrame({told}))"
    with undrawn():
        run_page(f"```python\n{setup}\n```\n{unrecorded(_page('guide-using'), recorded=False)}", tiny)
    assert len(pd.read_csv("runs/cells/embedding.csv")) == 635
    assert Path("exported/decoder.onnx").exists() and Path("exported-torch/decoder.pt2").exists()


@pytest.mark.docs
def test_torchrun():
    np.save("cells.npy", np.random.default_rng(0).normal(size=(300, 4)))
    lines = re.findall(r"^torchrun (.*)$", _page("scale"), re.MULTILINE)
    for k, words in enumerate(lines):
        for there, here in (
            ("--nnodes 8", "--nnodes 1"),
            ("HOST:29400", "localhost:0"),
            ("--nproc-per-node 8", "--nproc-per-node 2"),
            ("--batch-size 65536 --device cuda", "--device cpu"),
            (" …", ""),
        ):
            words = words.replace(there, here)
        run_command(f"{sys.executable} -m torch.distributed.run {words} -o run{k} --batch-size 64 {_SMALL}")
        assert Path(f"run{k}/report.html").exists()
    assert len(lines) == 2


# --- nothing is left out ----------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n]*)\n(.*?)^\1\2$", re.DOTALL | re.MULTILINE)


def _claimed(name: str, kind: str, marked: bool) -> bool:
    """Whether something runs a fence, or whether it is what a program prints or a directive of the site."""
    if kind == "text" or kind.startswith("{"):
        return True
    if kind == "r":
        return name == "guide-using"
    if name == "objectives":
        return kind == "python"  # test_models
    recorded = name in pages_with_examples() and not marked  # test_docs
    elsewhere = name in ("CONTRIBUTING", "guide-using")  # test_contributing, above
    return kind in ("python", "sh") and (recorded or elsewhere or name in PAGES)


def test_every_example_is_run():
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        found = list(_FENCE.finditer(text))
        assert len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(found), path
        for fence in found:
            marked = text[: fence.start()].endswith("<!-- not recorded -->\n")
            assert _claimed(path.stem, fence[3], marked), f"nothing runs this example of {path.name}:\n{fence[0]}"
            assert not fence[1] or fence[3] not in ("python", "sh", "r"), f"{path.name}: examples are not indented"
