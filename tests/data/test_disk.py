"""Matrices and texts on disk: the rows that are asked for, in any order, and one line for what is broken."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, save_npz

from curvae.data import disk, load
from curvae.data.disk import CsrFile, DenseFile, DiskMatrix, DiskTexts, StoredTexts, repeated_texts, text_codes
from curvae.errors import CurvaeError
from disk_data import COLUMNS, MEMORY, numbered

ROWS = 3000
CHOSEN = [
    slice(None),
    slice(7, 900),
    slice(5, 2000, 3),
    [0, 1, 700, 1500, 2999],
    [2999, 3, 3, 4, 1500, 0],
    [5, 5, 7],
    [-1, 2],
    [],
    np.arange(ROWS) % 7 == 2,
]


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def counts(rows=8000, seed=0):
    random = np.random.default_rng(seed)
    found = random.poisson(3, (rows, COLUMNS)) * (random.random((rows, COLUMNS)) < 0.1)
    found[7] = 0
    return csr_array(found.astype(np.float32))


def opened(x, memory=10**6):
    if isinstance(x, np.ndarray):
        np.save("x.npy", x)
        return DiskMatrix.of(DenseFile.open_npy(Path("x.npy")), x.shape[1], memory)
    save_npz("x.npz", x, compressed=False)
    return DiskMatrix.of(CsrFile(Path("x.npz")), x.shape[1], memory)


@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
@pytest.mark.parametrize("gap", [0, disk._GAP])
def test_rows_in_any_order(chosen, gap, monkeypatch):
    monkeypatch.setattr(disk, "_GAP", gap)
    x = numbered(ROWS)
    rows = np.zeros(0, np.int64) if isinstance(chosen, list) and not chosen else chosen
    for made in (x, x.astype(np.float64), x.astype(np.int16)):
        stored = opened(made)
        found = stored[rows]
        assert found.shape == made[rows].shape and len(found) == len(made[rows])
        assert found.load().dtype == (np.float32 if made.dtype == np.float32 else np.float64) == found.dtype
        np.testing.assert_array_equal(found.load(), made[rows])
        again = np.arange(len(found))[::-2]
        np.testing.assert_array_equal(found[again].load(), made[rows][again])
    sparse = csr_array(x)
    np.testing.assert_array_equal(opened(sparse)[rows].toarray(), x[rows])
    texts = np.array([f"  {'é' * (i % 4)}{i} " for i in range(ROWS)])
    np.testing.assert_array_equal(stored_texts(texts)[rows].load(), texts[rows])
    np.testing.assert_array_equal(stored_texts(texts, strip=True)[rows].load(), np.char.strip(texts[rows]))
    np.testing.assert_array_equal(DiskTexts.numbers(ROWS)[rows].load(), np.arange(ROWS).astype(str)[rows])


def stored_texts(texts, **how):
    encoded = [text.encode() for text in texts.tolist()]
    Path("a.texts").write_bytes(b"".join(encoded))
    np.cumsum([len(text) for text in encoded]).astype(np.int64).tofile("a.ends")
    return DiskTexts.of(StoredTexts(Path("a.texts")), **how)


def test_nothing_is_read_before_it_is_needed(monkeypatch):
    x = opened(numbered(ROWS))
    read = []
    plain = DenseFile.read
    monkeypatch.setattr(DenseFile, "read", lambda file, *rows: read.append(rows) or plain(file, *rows))
    part = x[[0, 1, 2, 2990]][:, [3, 1]]
    assert part.shape == (4, 2) and not read
    part.load()
    assert read == [(0, 3), (2990, 2991)]


def test_columns_vectors_and_functions():
    x = numbered(ROWS)
    stored = opened(x)
    np.testing.assert_array_equal(stored[:, [3, 1]].load(), x[:, [3, 1]])
    np.testing.assert_array_equal(stored[:, 2:5][10:20].load(), x[10:20, 2:5])
    np.testing.assert_array_equal(stored[:, 4][[7, 3]].load(), x[[7, 3], 4])
    assert stored[:, 4].shape == (ROWS,) and stored[:, 4].ndim == 1
    np.testing.assert_array_equal(np.asarray(stored[:2].apply(np.negative, COLUMNS)), -x[:2])


def test_a_row_that_is_not_there():
    with pytest.raises(IndexError, match="there are 3,000 rows"):
        opened(numbered(ROWS))[[3000]]


def test_another_process_reads_the_same_rows():
    stored = opened(numbered(ROWS))[5:40][:, [1, 2]]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stored)).load(), stored.load())


@pytest.mark.parametrize("made", [np.asfortranarray, lambda x: x[:, :, None], lambda x: x.astype(complex)])
def test_arrays_whose_rows_do_not_lie_one_after_the_other(made):
    np.save("x.npy", made(numbered(30)))
    assert DenseFile.open_npy(Path("x.npy")) is None


def test_blocks_take_a_share_of_the_memory_also_as_features():
    x = opened(numbered(ROWS), memory=10**8)
    assert x.block_rows * COLUMNS * 8 <= 10**8 / 32
    wide = x.apply(np.asarray, 100 * COLUMNS)
    assert 1 <= wide.block_rows <= x.block_rows / 99


# --- texts ------------------------------------------------------------------------------------------------------------


def test_repeated_texts_and_codes():
    texts = np.array([f"c{i % 2990}" for i in range(ROWS)] + [""])
    for made in (texts, stored_texts(texts)):
        assert repeated_texts(made).tolist() == sorted(f"c{i}" for i in range(10))
        np.testing.assert_array_equal(text_codes(made), np.unique(texts, return_inverse=True)[1])
    assert not len(repeated_texts(stored_texts(texts)[:2990])) and not len(repeated_texts(DiskTexts.numbers(5)))


def test_equal_hashes_are_not_equal_texts(monkeypatch):
    monkeypatch.setattr(disk.pd.util, "hash_array", lambda texts: np.zeros(len(texts), np.uint64))
    assert repeated_texts(stored_texts(np.array(["a", "b", "a", "c"]))).tolist() == ["a"]


# --- CSR --------------------------------------------------------------------------------------------------------------


def test_a_csr_matrix_is_that_of_the_file():
    x = counts()
    x.data[3] = np.nan
    save_npz("x.npz", x, compressed=False)
    stored, schema = load("x.npz", memory=MEMORY, missing="model")
    plain, expected = load("x.npz", missing="model")
    assert stored.on_disk and stored.x.sparse and not plain.on_disk
    np.testing.assert_array_equal(stored.load().x.toarray(), plain.x.toarray())
    assert stored.fingerprint == plain.fingerprint and schema.to_json() == expected.to_json()


@pytest.mark.parametrize("gaps", [False, True])
def test_a_compressed_matrix_is_unpacked_once(gaps):
    x = counts()
    save_npz("x.npz", x, compressed=True)
    told = []
    data, _ = load("x.npz", memory=MEMORY, counter=lambda task, rows: told.append(task) or told.append)
    assert told[0].startswith("copying ") and data.on_disk
    np.testing.assert_array_equal(data.load().x.toarray(), x.toarray())
    assert len(list(Path("cache").rglob("rows.npz"))) == 1
    del data
    assert not list(Path("cache").rglob("rows.npz"))


def test_other_sparse_matrices_are_read_as_a_whole():
    save_npz("x.npz", csc_array(counts()), compressed=False)
    assert not load("x.npz", memory=MEMORY)[0].on_disk


@pytest.mark.parametrize(("part", "value", "says"), [("indices", COLUMNS, "column index"), ("indptr", -1, "pointers")])
def test_a_broken_matrix(part, value, says):
    x = counts()
    getattr(x, part)[700] = value
    save_npz("x.npz", x, compressed=False)
    with pytest.raises(
        CurvaeError, match=f"x.npz cannot be read as a matrix of scipy.sparse.save_npz: .*{says}"
    ) as error:
        load("x.npz", memory=MEMORY)
    assert "\n" not in str(error.value)


# --- files that change ------------------------------------------------------------------------------------------------


def test_a_file_that_changes_while_it_is_read():
    for x, name in ((opened(counts()), "x.npz"), (opened(numbered(ROWS)), "x.npy")):
        x[:10].load()
        opened(counts(1400)) if name == "x.npz" else opened(numbered(2999))
        with pytest.raises(CurvaeError, match=f"{name} was changed while it was being read; restore it and resume"):
            x[:10].load()
        Path(name).unlink()
        with pytest.raises(CurvaeError, match=f"{name} cannot be read: No such file"):
            x[:10].load()


@pytest.mark.parametrize("rows", [3, 100])  # which cannot be read, and which can
def test_a_file_that_changes_after_it_was_looked_at(monkeypatch, rows):
    x, plain = opened(np.ones((200, 4))), np.fromfile

    def late(path, *how, **more):
        np.save(path, np.zeros((rows, 4)))
        os.truncate(path, path.stat().st_size - (8 if rows == 3 else 0))
        return plain(path, *how, **more)

    monkeypatch.setattr(disk.np, "fromfile", late)
    with pytest.raises(CurvaeError, match=r"^x.npy was changed while it was being read; restore it and resume"):
        x[:90].load()


@pytest.mark.parametrize("memory", ["much", "-1GB", "10kB", 0])
def test_sizes_that_are_none(memory):
    np.save("x.npy", numbered(30))
    with pytest.raises(CurvaeError, match=r'give a size of at least 1MB, such as "2GB"'):
        load("x.npy", memory=memory)


def test_a_file_that_was_cut_off():
    np.save("x.npy", numbered(ROWS))
    Path("x.npy").write_bytes(Path("x.npy").read_bytes()[:-100])
    with pytest.raises(CurvaeError, match="x.npy cannot be read as"):
        load("x.npy", memory=MEMORY)
