"""Matrices and images in files and folders."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import sys
import tracemalloc
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from PIL import Image

from curvae.data import Dataset, Schema, from_arrays, load, load_graph, memory, mnist
from curvae.data.matrices import read_sparse
from curvae.errors import CurvaeError
from paths import ROOT
from reading import idx, refusal, write
from running import refused

RANDOM = np.random.default_rng(0)


DENSE = RANDOM.standard_normal((6, 4)) * (RANDOM.random((6, 4)) < 0.5)


# --- matrices ---------------------------------------------------------------------------------------------------------


def save(path: Path, x: Any) -> Path:
    if path.name.endswith(".npy"):
        np.save(path, x)
    elif path.name.endswith(".npz"):
        sp.save_npz(path, x)
    else:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
            scipy.io.mmwrite(stream, x)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool])
def test_npy(tmp_path: Path, dtype: Any) -> None:
    x = (DENSE * 10).astype(dtype)
    data, schema = load(save(tmp_path / "m.npy", x))
    assert data.names == ("x1", "x2", "x3", "x4") and schema.kind == "matrix"
    assert data.x.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(data.x, x)
    (tmp_path / "m.npy").unlink()
    assert data.x.flags.writeable and np.isfinite(data.x).all()  # nothing is left on the disk


@pytest.mark.parametrize("name", ["m.npz", "m.mtx", "m.mtx.gz"])
def test_sparse_files(tmp_path: Path, name: str) -> None:
    for stored in (sp.csr_matrix(DENSE), sp.csc_array(DENSE), sp.coo_array(DENSE)):
        data = load(save(tmp_path / name, stored))[0]
        assert isinstance(data.x, sp.csr_array)
        np.testing.assert_array_equal(data.x.toarray(), DENSE)
        assert data.fingerprint == load(save(tmp_path / "m.npy", DENSE))[0].fingerprint


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (DENSE, {}),
        (sp.coo_array((DENSE * 100).astype(int)), {}),
        (sp.coo_array(DENSE != 0), {"field": "pattern"}),
        (sp.coo_array(DENSE.T @ DENSE), {"symmetry": "symmetric"}),
        (sp.coo_array(DENSE[:4] - DENSE[:4].T), {"symmetry": "skew-symmetric"}),
        (sp.coo_array((3, 4)), {}),
    ],
    ids=["array", "integer", "pattern", "symmetric", "skew", "empty"],
)
def test_matrix_market_against_what_was_written(tmp_path: Path, x: Any, options: dict[str, Any]) -> None:
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, x, comment="one\ntwo", **options)
    dense = x.toarray() if sp.issparse(x) else x
    np.testing.assert_array_equal(load(path)[0].x.toarray(), dense)
    path.write_bytes(path.read_bytes().replace(b"\n", b" \r\n"))
    np.testing.assert_array_equal(load(path)[0].x.toarray(), dense)


@pytest.mark.parametrize(
    "body",
    [
        "2 2 2\n1 1 1.5\n",
        "2 2 2\n1 1 1.5\n2 2 1.3E",
        "2 2 2\n1 1 1.5\n2 2",
        "2 2 2\n1 1\n2 2 4\n",
        "2 2 2\n1 1 1.5 7\n2 2 4\n",
        "2 2 1\n1 3 1.5\n",
        "2 2 1\n0 1 1.5\n",
        "2 2 1\n1.5 1 1.5\n",
        "2 2 1\n1 nan 1.5\n",
        "2 2 1\n1 1 x\n",
        "2 2 2\n1 1 1.\0005\n2 2 4\n",
        "2 2 1\n1 1 1,5\n",
        "2 2 1\n1 1 1.5D3\n",
        "2 2\n1 1 1\n",
        "2 2 -1\n",
        "",
    ],
)
def test_broken_matrix_market_is_refused(tmp_path: Path, body: str) -> None:
    path = write(tmp_path, "%%MatrixMarket matrix coordinate real general\n" + body, "m.mtx")
    assert "cannot be read as Matrix Market" in refusal(path)


@pytest.mark.parametrize(
    "rest",
    [
        "coordinate integer general\n2 2 1\n1 1 1.5\n",
        "coordinate integer general\n2 2 1\n1 1 99999999999999999999\n",
        "coordinate pattern general\n2 2 1\n1 1 1.5\n",
        "coordinate real skew-symmetric\n2 2 1\n1 1 1.5\n",
        "array real skew-symmetric\n3 3\n1\n2\n3\n4\n",
        "array real symmetric\n2 2\n1\n2\n3\n4\n",
        "array real general\n2 2\n1\n2\n3\n4\n5\n",
        "array real general\n2 2\n1 2\n3\n4\n",
    ],
)
def test_matrix_market_that_is_not_what_its_banner_says(tmp_path: Path, rest: str) -> None:
    path = write(tmp_path, f"%%MatrixMarket matrix {rest}", "m.mtx")
    assert "cannot be read as Matrix Market" in refusal(path)


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz"])
def test_damaged_matrix_market_never_crashes(tmp_path: Path, name: str) -> None:
    """scipy ends the interpreter at a NUL byte, and at a number without an end of line."""
    x = sp.coo_array([[0, -1.25e-30], [3.5, 0], [0, 7]])
    path = save(tmp_path / name, x)
    whole = path.read_bytes()
    text = gzip.decompress(whole) if name.endswith(".gz") else whole
    random = np.random.default_rng(0)
    damaged = [whole[:cut] for cut in range(len(whole))]
    for _ in range(200):
        place, byte = random.integers(len(text)), random.choice([0, 0, 9, 13, 32, 44, 46, 48, 69, 255])
        changed = text[:place] + bytes([byte]) + text[place + 1 : random.choice([len(text), place + 5])]
        damaged.append(gzip.compress(changed) if name.endswith(".gz") else changed)
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            read = read_sparse(path)
        except CurvaeError:
            refused += 1
        else:
            assert read.shape[1] == 2 and read.nnz <= 3
    assert refused > 0.8 * len(damaged)


@pytest.mark.parametrize(
    ("banner", "body"),
    [
        ("coordinate real symmetric", "4 3 2\n2 1 5\n4 2 7\n"),
        ("coordinate real skew-symmetric", "3 4 1\n2 1 5\n"),
        ("coordinate pattern symmetric", "30 4 2\n2 1\n3 2\n"),
        ("coordinate integer symmetric", "0 4 0\n"),
        ("array real symmetric", "2 3\n1\n2\n3\n"),
        ("array real skew-symmetric", "3 2\n1\n2\n3\n"),
        ("coordinate complex hermitian", "3 4 1\n2 1 5 0\n"),
    ],
)
def test_what_is_symmetric_is_square(tmp_path: Path, banner: str, body: str) -> None:
    path = write(tmp_path, f"%%MatrixMarket matrix {banner}\n{body}", "m.mtx")
    height, width = body.split()[:2]
    symmetry = banner.split()[-1]
    says = f"m.mtx is {symmetry} and {height} × {width}, which is not square"
    says = "complex hermitian" if symmetry == "hermitian" else says
    assert says in refusal(path)
    with pytest.raises(CurvaeError, match=says):
        load_graph(path)


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
def test_dense_matrix_market(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 4))
    x = {"general": x, "symmetric": x + x.T, "skew-symmetric": x - x.T}[kind]
    scipy.io.mmwrite(tmp_path / "m.mtx", x, symmetry=kind, precision=17)
    np.testing.assert_array_equal(load(tmp_path / "m.mtx")[0].x.toarray(), x)


@pytest.mark.parametrize("name", ["m.npy", "m.npz"])
def test_missing_values_of_a_matrix(tmp_path: Path, name: str) -> None:
    x = np.array([[1.0, 0, 2], [np.nan, 4, 0], [3, 0, np.inf], [0, 8, 0]])
    path = save(tmp_path / name, x if name == "m.npy" else sp.csr_array(x))

    def dense(data: Dataset) -> Any:
        return data.x.toarray() if sp.issparse(data.x) else data.x

    assert "'x1' (1), 'x3' (1)" in refusal(path)
    dropped = load(path, missing="drop")[0]
    np.testing.assert_array_equal(dense(dropped), x[[0, 3]])
    assert dropped.ids.tolist() == ["0", "3"]
    filled, schema = load(path, missing="mean")
    np.testing.assert_allclose(dense(filled), [[1, 0, 2], [4 / 3, 4, 0], [3, 0, 2 / 3], [0, 8, 0]])
    again = load(save(tmp_path / "new.npy", np.array([[np.nan, 1, 1]])), schema=schema, missing="mean")[0]
    np.testing.assert_allclose(again.x, [[4 / 3, 1, 1]])


def test_constant_columns_of_a_sparse_matrix_are_noted(tmp_path: Path) -> None:
    x = np.array([[1.0, 0, 5], [2, 0, 5], [0, 0, 5]])
    assert load(save(tmp_path / "m.npz", sp.csr_array(x)))[0].notes == (
        "2 columns are constant; they are kept: 'x2', 'x3'.",
    )


def test_matrices_refused(tmp_path: Path) -> None:
    assert "shape (4,)" in refusal(save(tmp_path / "m.npy", np.zeros(4)))
    assert "shape (2, 2, 2, 3)" in refusal(save(tmp_path / "m.npy", np.zeros((2, 2, 2, 3))))
    assert "only 1 row" in refusal(save(tmp_path / "m.npy", np.zeros((1, 3))))
    assert "not real numbers" in refusal(save(tmp_path / "m.npy", np.array([["a", "b"]])))
    assert "complex" in refusal(save(tmp_path / "m.mtx", sp.coo_array([[1j, 2], [3, 4]])))
    assert "only a table or a cell file has columns such as 'a'" in refusal(save(tmp_path / "m.npy", DENSE), label="a")
    for name in ("m.npy", "m.npz", "m.mtx", "m.mtx.gz"):
        assert f"{name} cannot be read" in refusal(write(tmp_path, "nonsense", name))
    whole = save(tmp_path / "m.npy", DENSE).read_bytes()
    assert "cannot be read" in refusal(write(tmp_path, whole[:-8], "m.npy"))
    np.savez(tmp_path / "m.npz", DENSE)
    assert "save_npz" in refusal(tmp_path / "m.npz")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    np.save(tmp_path / "m.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    assert "cannot be read" in refusal(tmp_path / "m.npy")
    np.savez(tmp_path / "m.npz", format=np.array(Trap(), dtype=object), allow_pickle=True)
    assert "cannot be read" in refusal(tmp_path / "m.npz")


def test_sparse_indices_out_of_range_are_refused(tmp_path: Path) -> None:
    parts = {"data": np.ones(1), "indices": np.array([10**6]), "indptr": np.array([0, 1, 1]), "shape": (2, 3)}
    np.savez(tmp_path / "m.npz", format=np.array("csr".encode("ascii")), **parts)
    assert "cannot be read" in refusal(tmp_path / "m.npz")


@pytest.mark.parametrize("name", ["m.npy", "m.npz", "m.mtx"])
def test_matrices_too_large_are_refused_before_they_are_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / name, DENSE if name == "m.npy" else sp.csr_array(DENSE))
    for reader in ("curvae.data.matrices.load_npz", "scipy.io.mmread"):
        monkeypatch.setattr(reader, lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr(memory, "available", lambda: 100)
    assert "needs about" in refusal(path)


def test_a_huge_header_allocates_nothing(tmp_path: Path) -> None:
    with (tmp_path / "m.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)})
    assert "cannot be read" in refusal(tmp_path / "m.npy")
    write(tmp_path, f"%%MatrixMarket matrix coordinate real general\n9 9 {10**13}\n1 1 1\n", "m.mtx")
    assert "10,000,000,000,000 entries" in refusal(tmp_path / "m.mtx")
    write(tmp_path, f"%%MatrixMarket matrix array real symmetric\n{10**9} {10**9}\n1\n", "m.mtx")
    assert "500,000,000,500,000,000 entries" in refusal(tmp_path / "m.mtx")


# --- images: arrays, folders of files, and the MNIST digits ----------------------------------------------------------


DOCUMENT = ROOT / "docs" / "data.md"


PIXELS = RANDOM.integers(0, 256, (4, 3, 5), dtype=np.uint8)


def save_images(folder: Path, name: str, pixels: Any, mode: str | None = None, **options: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_bytes_are_divided_and_floats_are_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", PIXELS)
    data, schema = load(tmp_path / "i.npy")
    assert data.shape == (3, 5) == schema.shape and schema.kind == "images" and data.x.dtype == np.float32
    np.testing.assert_array_equal(data.x, (PIXELS.reshape(4, 15) / 255).astype(np.float32))
    assert data.names[:2] == ("r1c1", "r1c2") and data.names[-1] == "r3c5"
    assert data.notes == ("grey levels from 0 to 255 were divided by 255.",)
    for dtype in (np.float32, np.float64):
        np.save(tmp_path / "f.npy", PIXELS.astype(dtype))
        kept = load(tmp_path / "f.npy", schema=schema)[0]
        assert kept.x.dtype == dtype and kept.notes == () and kept.x.max() == PIXELS.max()


def test_other_sizes_do_not_fit_a_trained_model(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", PIXELS)
    schema = load(tmp_path / "i.npy")[1]
    np.save(tmp_path / "i.npy", PIXELS[:, :2])
    assert "2 × 5 values and the model was trained on 3 × 5" in refusal(tmp_path / "i.npy", schema=schema)
    assert "trained on images" in refusal(write(tmp_path, "a\n1\n2\n"), schema=schema)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_images(tmp_path: Path) -> None:
    for name, pixels in zip(("b.png", "a.bmp", "C.PNG", "d.gif"), PIXELS, strict=True):
        save_images(tmp_path, name, pixels)
    write(tmp_path, "x", "readme.txt")
    data, schema = load(tmp_path)
    assert data.ids.tolist() == ["C.PNG", "a.bmp", "b.png", "d.gif"] and data.labels is None
    assert data.shape == (3, 5) and data.x.dtype == np.float32 and schema.kind == "images"
    np.testing.assert_array_equal(data.x, (PIXELS[[2, 1, 0, 3]].reshape(4, 15) / 255).astype(np.float32))
    assert any("1 file" in note for note in data.notes) and not any("colour" in note for note in data.notes)


def test_sub_folders_are_labels(tmp_path: Path) -> None:
    save_images(tmp_path, "cat/1.png", PIXELS[0])
    save_images(tmp_path, "dog/1.png", PIXELS[1])
    save_images(tmp_path, "dog/old/1.png", PIXELS[2])
    data = load(tmp_path)[0]
    assert data.ids.tolist() == ["cat/1.png", "dog/1.png", "dog/old/1.png"] and data.label_name == "folder"
    assert data.labels is not None and data.labels.tolist() == ["cat", "dog", "dog/old"]
    save_images(tmp_path, "0.png", PIXELS[3])
    mixed = load(tmp_path)[0]
    assert mixed.labels is None and any("not used as labels" in note for note in mixed.notes)


def test_modes_of_images(tmp_path: Path) -> None:
    level = np.full((3, 5), 51, dtype=np.uint8)
    save_images(tmp_path, "grey.png", level)
    save_images(tmp_path, "grey_as_colour.png", np.dstack([level] * 3))
    save_images(tmp_path, "colour.png", np.dstack([level, level, level + 1]))
    save_images(tmp_path, "alpha.png", np.dstack([level] * 4))
    save_images(tmp_path, "photo.jpg", np.dstack([level] * 3), quality=100)
    palette = Image.fromarray(level).convert("P")
    palette.save(tmp_path / "palette.png", transparency=bytes([0, 10, 20]))
    Image.fromarray(np.full((3, 5), 13107, dtype=np.uint16)).save(tmp_path / "sixteen.png")
    frames = [Image.fromarray(level), Image.fromarray(255 - level)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    data = load(tmp_path)[0]
    assert len(data) == 8
    np.testing.assert_allclose(data.x, 0.2, atol=0.5 / 255)
    assert any("from colour to grey: 1 image." in note for note in data.notes)


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    save_images(tmp_path, "a.png", PIXELS[0])
    save_images(tmp_path, "b.png", PIXELS[1].T.copy())
    message = refusal(tmp_path)
    assert "a.png is 5 × 3" in message and "b.png 3 × 5" in message and "one size" in message


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for name in ("a.png", "b.png"):
        save_images(inside, name, PIXELS[0])
    save_images(outside, "secret.png", PIXELS[1])
    (inside / "link.png").symlink_to(outside / "secret.png")
    (inside / "folder").symlink_to(outside)
    (inside / "c.png").symlink_to(inside / "a.png")
    data = load(inside)[0]
    assert data.ids.tolist() == ["a.png", "b.png", "c.png"]
    assert any("'link.png'" in note for note in data.notes)


def test_broken_images_and_empty_folders_are_refused(tmp_path: Path) -> None:
    assert "contains no images" in refusal(tmp_path)
    save_images(tmp_path, "a.png", PIXELS[0])
    assert "only 1 row" in refusal(tmp_path)
    write(tmp_path, "nonsense", "b.png")
    assert "b.png cannot be read as an image" in refusal(tmp_path)
    save_images(tmp_path, "b.png", RANDOM.integers(0, 256, (3, 5), dtype=np.uint8))
    whole = (tmp_path / "b.png").read_bytes()
    write(tmp_path, whole[: len(whole) - 25], "b.png")
    assert "b.png cannot be read as an image" in refusal(tmp_path)


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_images(tmp_path, "a.png", PIXELS[0])
    save_images(tmp_path, "b.png", PIXELS[1])
    for limit in (14, 7):  # Pillow warns over the limit and raises over twice the limit
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        assert f"a.png unpacks to more than {limit} pixels" in refusal(tmp_path)


def test_images_too_large_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_images(tmp_path, "a.png", PIXELS[0])
    save_images(tmp_path, "b.png", PIXELS[1])
    monkeypatch.setattr(memory, "available", lambda: 100)
    assert "2 images of 5 × 3" in refusal(tmp_path)


def test_large_images_take_twice_their_size(tmp_path: Path) -> None:
    save_images(tmp_path, "a.bmp", RANDOM.integers(0, 256, (1000, 1000), dtype=np.uint8))
    for number in range(39):  # against so many, figures of the columns are small
        shutil.copy(tmp_path / "a.bmp", tmp_path / f"{number}.bmp")
    for number in range(2):
        save_images(tmp_path / "small", f"{number}.bmp", PIXELS[number])
    load(tmp_path / "small")  # what is imported on the way
    shutil.rmtree(tmp_path / "small")
    tracemalloc.start()
    try:
        data, schema = load(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data.x.nbytes == 160_000_000 and peak < 2.05 * data.x.nbytes
    assert len(data.names) == len(schema.columns) == 1_000_000
    assert data.names[-1] == data.names[999_999] == schema.columns[-1].name == "r1000c1000"
    assert schema.columns[1234].fill == pytest.approx(data.x[:, 1234].mean()) and schema.blocks == ()
    with pytest.raises(IndexError):
        data.names[1_000_000]


def test_a_model_of_large_images_is_refused_before_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.png", "b.png"):
        save_images(tmp_path / "in", name, RANDOM.integers(0, 256, (500, 500), dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    refused("fit", "in", says=["a model with layers of 250,000, 200, 2 needs about 1.6 GB of memory and 1 GB are free"])
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_names_of_pixels_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", PIXELS / 255)
    data, schema = load(tmp_path / "i.npy")
    names = [f"r{i}c{j}" for i in (1, 2, 3) for j in (1, 2, 3, 4, 5)]
    assert data.names == names and [column.name for column in schema.columns] == names and schema.names != names[:-1]
    assert data.fingerprint == from_arrays(PIXELS / 255, names=names).fingerprint
    assert data.fingerprint != from_arrays(PIXELS / 255).fingerprint
    assert Schema.from_json(schema.to_json()) == schema


# --- MNIST ------------------------------------------------------------------------------------------------------------


TRAIN = RANDOM.integers(0, 256, (5, 4, 4), dtype=np.uint8)


TEST = RANDOM.integers(0, 256, (3, 4, 4), dtype=np.uint8)


DIGITS = np.array([3, 1, 4, 1, 5], dtype=np.uint8)


FILES = {
    "train-images-idx3-ubyte": idx(TRAIN),
    "train-labels-idx1-ubyte": idx(DIGITS),
    "t10k-images-idx3-ubyte": idx(TEST),
    "t10k-labels-idx1-ubyte": idx(DIGITS[:3]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small files of the same form, two of them packed."""
    for place, (name, content) in enumerate(FILES.items()):
        packed = place % 2 == 0
        write(tmp_path, gzip.compress(content) if packed else content, name + ".gz" * packed)
    return tmp_path


def test_idx_files_in_a_folder(folder: Path) -> None:
    data, schema = load(folder)
    both = np.concatenate([TRAIN, TEST])
    np.testing.assert_array_equal(data.x, (both.reshape(8, 16) / 255).astype(np.float32))
    assert data.shape == (4, 4) and data.label_name == "digit" and data.x.dtype == np.float32
    assert data.labels is not None and data.labels.tolist() == list("31415314")
    assert data.ids.tolist() == list("01234567") and schema.kind == "images"
    assert mnist("all", folder).fingerprint == data.fingerprint
    np.testing.assert_array_equal(mnist("train", folder).x, data.x[:5])
    np.testing.assert_array_equal(mnist("test", str(folder)).x, data.x[5:])
    with pytest.raises(CurvaeError, match="'valid'"):
        mnist("valid", folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("t10k-labels-idx1-ubyte", b"", "starts with nothing"),
        ("t10k-labels-idx1-ubyte", idx(TEST), "starts with 00 00 08 03"),
        ("t10k-labels-idx1-ubyte", b"\0\0\x0d\x01" + idx(DIGITS[:3])[4:], "starts with 00 00 0d 01"),
        ("t10k-labels-idx1-ubyte", idx(DIGITS[:3])[:-1], "ends too early"),
        ("t10k-labels-idx1-ubyte", idx(DIGITS[:3]) + b"\0", "longer than it says"),
        ("t10k-labels-idx1-ubyte", idx(DIGITS), "3 images and t10k-labels-idx1-ubyte 5 labels"),
        ("t10k-images-idx3-ubyte.gz", b"nonsense", "not a complete gzip file"),
        (
            "t10k-images-idx3-ubyte.gz",
            gzip.compress(FILES["t10k-images-idx3-ubyte"], mtime=0)[:-20],
            "not a complete gzip file",
        ),
        ("t10k-images-idx3-ubyte.gz", gzip.compress(idx(TEST[:, :2]), mtime=0), "differ in size"),
        ("t10k-images-idx3-ubyte.gz", gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12, mtime=0), "needs about"),
        ("t10k-images-idx3-ubyte.gz", None, "no t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz"),
    ],
)
def test_bad_idx_files_are_refused(folder: Path, name: str, content: bytes | None, part: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    message = refusal(folder)
    assert part in message, message


def test_mnist_is_looked_for_then_fetched(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CURVAE_DATA", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert "pip install pooch" in refusal("mnist")

    fetched: list[tuple[str, str]] = []

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> None:
        fetched.append((url, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(gzip.compress(FILES[fname.removesuffix(".gz")]))

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))  # type: ignore[arg-type]
    expected = mnist("all", folder).fingerprint
    assert load("mnist")[0].fingerprint == expected
    assert len(fetched) == 4 and all(re.fullmatch(r"sha256:[0-9a-f]{64}", checksum) for _, checksum in fetched)
    assert all(url.startswith("https://") and url.endswith("-ubyte.gz") for url, _ in fetched)
    for url, checksum in fetched:
        assert re.search(rf"`{Path(url).name}` .* `{checksum.removeprefix('sha256:')}`", DOCUMENT.read_text())
    assert load("mnist")[0].fingerprint == expected and len(fetched) == 4  # from the cache
    (home / "cache" / "curvae" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert load("mnist")[0].fingerprint == expected and len(fetched) == 8  # after a fetch that broke off
    (home / "data" / "mnist").mkdir(parents=True)
    for name, content in FILES.items():
        (home / "data" / "mnist" / name).write_bytes(content.replace(idx(TEST), idx(255 - TEST)))
    assert load("mnist")[0].fingerprint != expected  # CURVAE_DATA before the cache


def test_a_failed_fetch_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(*_: Any, **__: Any) -> None:
        raise OSError("no\nnetwork")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CURVAE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))  # type: ignore[arg-type]
    message = refusal("mnist")
    assert "no network" in message and "CURVAE_DATA" in message


@pytest.mark.skipif("CURVAE_DATA" not in os.environ, reason="needs the MNIST files in CURVAE_DATA")
def test_the_real_digits() -> None:
    data = mnist("test")
    assert data.x.shape == (10_000, 784) and data.shape == (28, 28)
    assert data.labels is not None and data.labels[:5].tolist() == list("72104")
    assert data.x.min() == 0 and data.x.max() == 1 and abs(data.x.mean() - 0.1325) < 1e-4
    stated = dict(re.findall(r"`(\S+-ubyte)` \| [\d,]+ \| `([0-9a-f]{64})`", DOCUMENT.read_text()))
    files = Path(os.environ["CURVAE_DATA"], "mnist")
    assert set(stated) == set(FILES)
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-labels-idx1-ubyte"):
        packed = files / f"{name}.gz"
        content = gzip.decompress(packed.read_bytes()) if packed.exists() else (files / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == stated[name]
