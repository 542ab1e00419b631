"""What stands where a file should: pipes, devices, folders, links to nowhere. Nothing hangs."""

from __future__ import annotations

import faulthandler
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curvae import PoincareVAE
from curvae.data import load, load_graph
from curvae.data.matrices import read_idx
from curvae.errors import CurvaeError
from curvae.hierarchy import read_tree
from curvae.training.storage import read_metadata, read_tensors
from make_fixtures import FOLDERS
from running import refused

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    # A read that hangs ends the process with a traceback.
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "is a pipe"


def zeros(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "is a device"


def folder(path: Path) -> str:
    path.mkdir()
    return "is a folder"


def dangling(path: Path) -> str:
    path.symlink_to("nowhere")
    return "is a dangling link to nowhere"


def circle(path: Path) -> str:
    path.symlink_to(path.name)
    return "is a loop of symbolic links"


OTHERS = (pipe, zeros, folder, dangling, circle)
Make = Callable[[Path], str]


def refuses(call: Callable[[], object], says: str) -> None:
    with pytest.raises(CurvaeError) as caught:
        call()
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [pipe, zeros, dangling, circle])
@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.npy", "t.npz", "t.mtx", "t.mtx.gz", "t.graphml", "t", "flat"]
)
def test_data(make: Make, name: str) -> None:
    says = make(Path(name))
    refuses(lambda: load(name), f"{name} {says}")
    refuses(lambda: load(Path(name), label="a"), f"{name} {says}")


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("name", ["t.edges", "t.csv.gz", "t.npz", "t.mtx", "t.graphml", "diseases"])
def test_graphs(make: Make, name: str) -> None:
    says = make(Path(name))
    refuses(lambda: load_graph(name), f"{name} {says}")


@pytest.mark.parametrize("make", OTHERS)
def test_tables_of_nodes_trees_and_idx(make: Make) -> None:
    says = make(Path("n.csv"))
    refuses(lambda: load_graph([("a", "b")], nodes="n.csv", label="x"), f"n.csv {says}")
    refuses(lambda: read_tree(Path("n.csv")), f"n.csv {says}")
    refuses(lambda: read_idx(Path("n.csv"), 3), f"n.csv {says}")


@pytest.mark.parametrize("make", [pipe, dangling])
def test_images(make: Make) -> None:
    Path("in").mkdir()
    Image.fromarray(np.zeros((3, 5), dtype=np.uint8)).save("in/a.png")
    says = make(Path("in/b.png"))
    refuses(lambda: load("in"), f"b.png {says}")


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "embedding.safetensors", "metrics.jsonl", "embedding.csv"]
)
def test_run_folders(make: Make, name: str) -> None:
    shutil.copytree(FOLDERS[-1], "run")
    Path("run", name).unlink()
    says = make(Path("run", name))
    if name == "embedding.csv":
        # A run without a map is not finished.
        said = "not finished" if make in (dangling, circle) else f"embedding.csv {says}"
        refused("view", "run", says=[said])
        refused("diagnose", "run", "--newick", "t.nwk", says=[said])
    else:
        refuses(lambda: PoincareVAE.load("run"), f"{name} {says}")


@pytest.mark.parametrize("make", OTHERS)
def test_checkpoints(make: Make) -> None:
    says = make(Path("state.safetensors"))
    refuses(lambda: read_tensors(Path("state.safetensors")), f"state.safetensors {says}")
    refuses(lambda: read_metadata(Path("state.safetensors")), f"state.safetensors {says}")


def test_a_link_to_a_file_is_a_file() -> None:
    Path("there.csv").write_text("a,b\n1,2\n3,5\n")
    Path("t.csv").symlink_to("there.csv")
    assert load("t.csv")[0].x.tolist() == [[1, 2], [3, 5]]
