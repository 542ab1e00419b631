"""Lists of edges that are read in pieces, against the general reader and against sets of pairs."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvae.data import load_graph
from curvae.data.graphs import edgelist
from curvae.data.graphs import edgelist as coded
from curvae.data.graphs import edgelist as plain_lists
from curvae.errors import CurvaeError

pytest.importorskip("pyarrow")

LISTS = {
    "numbers.csv": "3,1\n1,3\n2,2\n10,3\n3,1\n",
    "header.csv": "source,target\n3,1\n1,2\n10,3\n",
    "quoted_header.csv": '"source","target"\n3,1\n1,2\n10,3\n',
    "named_header.csv": "package,depends\na,b\nb,c\nc,a\nd,b\nd,c\n",
    "more.tsv": "id\tsource\ttarget\tyear\n7\ta\tb\t1\n8\tb\tc\t2\n9\tc\ta\t1\n",
    "weights.csv": "source,target,weight\n1,2,0.5\n2,1,0.25\n3,1,2e1\n2,1,1\n",
    "weights_first.csv": "weight,source,target\n2,1,2\n3,2,3\n0.5,3,1\n",
    "no_header_weights.csv": "1,2,0.5\n2,3,0.25\n3,1,2\n",
    "blanks.txt": "# a comment\n%and another\n\n1 2\n2 3\n3 1\n",
    "two_blanks.txt": "1 2\n2  3\n3 1\n",
    "late_comment.txt": "1 2\n2 3\n# late\n3 1\n",
    "comment_like_edge.csv": "1,2\n2,3\n#3,1\n",
    "spaces.csv": "ann lee, ben\n ben,cem\ncem ,ann lee\n",
    "spaced_numbers.csv": "1, 2\n 2,3\n3 ,1\n",
    "quotes.csv": 'a,b\n"b, c",a\nc,"b, c"\n',
    "zeros.csv": "01,1\n1,2\n2,01\n007,1\n",
    "signs.csv": "-1,0\n0,5\n5,-1\n",
    "minus_zero.csv": "-0,0\n0,5\n5,-0\n",
    "hexadecimal.csv": "0xFF,255\n255,1\n0xFFFFFFFF,1\n",
    "long_numbers.csv": "1234567890123456789,1\n1,2\n999999999999999999,2\n",
    "mixed.csv": "a,1\n1,2\n2,a\n",
    "letters.tsv": "ü\tö\nö\tß\nß\tü\n",
    "last_line.csv": "1,2\n2,3\n3,1",
    "windows.csv": "1,2\r\n2,3\r\n3,1\r\n",
    "blank_lines.csv": "1,2\n\n2,3\n3,1\n\n",
    "mark.csv": "\ufeffsource,target\n1,2\n2,3\n",
    "decimal_commas.csv": "a;b;1,5\nb;c;2,5\nc;a;1\n",
    "loops.csv": "1,1\n2,2\n1,2\n",
    "empty.csv": "1,2\n2,\n3,1\n",
    "widths.csv": "1,2\n2,3,4\n3,1\n",
    "bad_weight.csv": "1,2,1\n2,3,none\n3,1,2\n",
    "negative_weight.csv": "1,2,1\n2,3,-1\n3,1,2\n",
    "one_line.csv": "1,2\n",
    "header_only.csv": "source,target\n",
}


def read(path, large, monkeypatch, **how):
    monkeypatch.setattr(edgelist, "LARGE", 0 if large else 1 << 40)
    try:
        graph = load_graph(path, **how)
    except CurvaeError as error:
        return str(error)
    weights = None if graph.weights is None else graph.weights.tolist()
    return graph.names.tolist(), graph.edges.tolist(), weights, graph.notes, graph.warnings


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_as_the_general_reader(name, packed, tmp_path, monkeypatch):
    path, text = tmp_path / (f"{name}.gz" if packed else name), LISTS[name].encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    for how in ({}, {"header": True}, {"header": False}, {"weighted": True}, {"directed": True}):
        assert read(path, True, monkeypatch, **how) == read(path, False, monkeypatch, **how)


def random_pairs(kind):
    random = np.random.default_rng(3)
    pairs = random.integers(0, 60, (400, 2))
    pairs[:50] = pairs[50:100, ::-1]  # both directions
    pairs[100:120, 1] = pairs[100:120, 0]  # loops
    if kind == "far":
        pairs = pairs * 10**15 - 3
    return np.char.add("node ", pairs.astype(str)) if kind == "texts" else pairs


@pytest.mark.parametrize("kind", ["numbers", "far", "texts"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
@pytest.mark.parametrize("piece", [256, 1 << 24])
def test_edges_against_sets_of_pairs(kind, ending, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(edgelist, "LARGE", 0)
    monkeypatch.setattr(plain_lists, "_PIECE", piece)
    monkeypatch.setattr(edgelist, "_Frame", None)  # nothing here needs the general reader
    pairs = random_pairs(kind)
    frame = pd.DataFrame(pairs, columns=["from", "to"]).assign(weight=np.linspace(0.5, 2, len(pairs)), more="x")
    path = tmp_path / f"edges.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    graph = load_graph(path, weighted=True)
    expected = {}
    for (a, b), weight in zip(pairs.tolist(), frame["weight"], strict=True):
        if a != b:
            key = frozenset((str(a), str(b)))
            expected[key] = expected.get(key, 0.0) + weight
    found = {frozenset(graph.names[edge].tolist()): w for edge, w in zip(graph.edges, graph.weights, strict=True)}
    assert found.keys() == expected.keys()
    assert all(np.isclose(found[key], expected[key], rtol=1e-12) for key in found)
    seen = dict.fromkeys(pairs.ravel().tolist())
    assert graph.names.tolist() == [str(name) for name in (seen if kind == "texts" else sorted(seen))]
    bare = load_graph(path)
    assert np.array_equal(bare.edges, graph.edges)
    assert bare.weights is None
    assert any(note.startswith("left out: 2 columns beside the names") for note in bare.notes)


def test_parquet_of_two_columns_and_types(tmp_path):
    frames = {
        "small": pd.DataFrame({"a": np.array([3, 1], np.int32), "b": np.array([1, 2], np.int32)}),
        "texts": pd.DataFrame({"a": ["x ", "y"], "b": ["y", "x"]}),
        "categories": pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"]}).astype("category"),
        "floats": pd.DataFrame({"a": [3.0, 1.0], "b": [1.0, 2.0]}),
        "both": pd.DataFrame({"a": [1, 2], "b": ["2", "x"]}),
    }
    found = {}
    for name, frame in frames.items():
        frame.to_parquet(path := tmp_path / f"{name}.parquet")
        graph = load_graph(path)
        found[name] = graph.names.tolist(), graph.edges.tolist()
        assert found[name] == (load_graph(frame).names.tolist(), load_graph(frame).edges.tolist())
    assert found["small"] == (["1", "2", "3"], [[0, 1], [0, 2]])
    assert found["texts"] == (["x", "y"], [[0, 1]])


@pytest.mark.parametrize(
    ("columns", "how", "said"),
    [
        ({"a": [1]}, {}, "one column or none"),
        ({"a": ["x", None], "b": ["y", "z"]}, {}, "row 2 names only one node"),
        ({"a": ["x", " "], "b": ["y", "z"]}, {}, "row 2 names only one node"),
        ({"a": [1, 2], "b": [2, 3]}, {"weighted": True}, "no third column for weights"),
        ({"a": [1, 2], "b": [2, 3], "weight": [1.0, -2.0]}, {"weighted": True}, "row 2 has weight -2"),
        ({"a": [1, 2], "b": [2, 3]}, {"header": True}, "which alone has a header"),
    ],
)
def test_parquet_that_is_refused(columns, how, said, tmp_path):
    pd.DataFrame(columns).to_parquet(path := tmp_path / "edges.parquet")
    with pytest.raises(CurvaeError, match=said):
        load_graph(path, **how)


def test_broken_parquet_is_refused(tmp_path):
    (path := tmp_path / "edges.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(CurvaeError, match="cannot be read as Parquet"):
        load_graph(path)


@pytest.mark.parametrize("scale", [1, 10**6])
def test_codes_of_numbers(scale):
    numbers = np.random.default_rng(0).integers(-50, 50, (2, 300)) * scale
    found, codes = coded.code_numbers(numbers)
    assert np.array_equal(found, np.unique(numbers))
    assert codes.dtype == np.int32
    assert np.array_equal(found[codes], numbers)


def test_a_large_file_is_not_looped_over(tmp_path, monkeypatch):
    monkeypatch.setattr(edgelist, "LARGE", 0)
    looked = []
    look = edgelist._look
    monkeypatch.setattr(edgelist, "_look", lambda file, whole=True: looked.append(whole) or look(file, whole))
    Path(path := tmp_path / "edges.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(500)))
    assert load_graph(path).n_edges == 500
    assert looked == [False]
