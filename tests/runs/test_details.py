"""Small things that users noticed: widths as a number, missing values as in the run, units, commands to copy."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from curvae import PoincareVAE
from curvae.data import load
from curvae.errors import CurvaeError
from curvae.report import Section
from curvae.runs import pages
from curvae.runs.rows_run import _beaten
from curvae.training import Embedding, Scaling
from curvae.training.evaluate import embed
from curvae.training.storage import load_fitted
from pages import Page
from running import SMALL, curvae, undrawn, write_table


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fit(*words):
    found = curvae("fit", *words, "-o", "run", "-q", *SMALL)
    assert found.code == 0, found.err


# --- the width of a single layer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [5, np.int64(5)])
def test_a_number_is_the_width_of_one_layer(width, tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 3))
    settings = {"epochs": 1, "random_state": 0, "device": "cpu"}
    found, expected = (PoincareVAE(hidden=hidden, **settings).fit(x) for hidden in (width, (5,)))
    assert np.array_equal(found.embedding_, expected.embedding_)
    assert found.hidden is width and clone(found).hidden == 5  # stored as given
    found.save(tmp_path / "run")
    assert PoincareVAE.load(tmp_path / "run").hidden == (5,)


@pytest.mark.parametrize("width", [0, -3, True, 2.5, "9"])
def test_numbers_that_are_no_width(width):
    with pytest.raises(CurvaeError, match="hidden must hold one or more positive widths"):
        PoincareVAE(hidden=width, epochs=1).fit(np.eye(4))


# --- missing values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "rows"), [("mean", 40), ("drop", 38)])
def test_new_data_are_treated_as_those_of_the_run(missing, rows):
    table = pd.read_csv(write_table(Path("t.csv")))
    table.loc[[3, 5], "a"] = np.nan
    table.to_csv("t.csv", index=False)
    fit("t.csv", "--missing", missing)
    found = curvae("embed", "run", "t.csv", "-o", "new.csv")
    assert found.code == 0, found.err
    assert "'a' (2)" in found.err  # and it is said
    columns = ["ball_1", "ball_2"]
    new, trained = (pd.read_csv(path)[columns] for path in ("new.csv", "run/embedding.csv"))
    assert len(new) == rows
    pd.testing.assert_frame_equal(new, trained)
    parts = curvae("evaluate", "run", "t.csv", "--samples", "5", "--json").json["parts"]
    assert sum(part["rows"] for part in parts.values()) == rows
    # Another word is obeyed, and goes on into the next command.
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: ")]
    assert shlex.split(line)[1:] == ["curvae", "view", "run", "--rows", "t.csv"]
    other = {"mean": "drop", "drop": "mean"}[missing]
    found = curvae("embed", "run", "t.csv", "-o", "other.csv", "--missing", other)
    assert len(pd.read_csv("other.csv")) == 78 - rows and f"run --rows t.csv --missing {other}" in found.out
    assert curvae("evaluate", "run", "t.csv", "--missing", "error").code == 2


def test_a_run_without_a_word_on_missing_values_refuses_them():
    PoincareVAE(epochs=1, hidden=4, random_state=0).fit(pd.read_csv(write_table(Path("t.csv")))).save("saved")
    Path("new.csv").write_text("a,b,c\n1,,2\n3,4,5\n")
    found = curvae("embed", "saved", "new.csv")
    assert found.code == 2 and found.err.endswith("; run this:\ncurvae embed saved new.csv --missing mean\n")
    description = json.loads(Path("saved/config.json").read_text())
    for source in ({"missing": "perhaps"}, {"missing": 5}):
        Path("saved/config.json").write_text(json.dumps({**description, "source": source}))
        found = curvae("embed", "saved", "new.csv")
        assert found.code == 2 and "missing is" in found.err


# --- constant columns -----------------------------------------------------------------------------------------------


def with_constants(rows=40):
    """A column of 0.1, whose mean is not quite 0.1, one of 0 and one that varies."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    x[:, 1], x[:, 2] = 0.1, 0.0
    return x


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array], ids=["float64", "float32", "sparse"])
def test_constant_columns_are_known_to_the_scaling(form):
    x = form(with_constants(30)) if form is not np.float32 else with_constants(30).astype(np.float32)
    scaling = Scaling.standard(x)
    dense = x.toarray() if sparse.issparse(x) else x
    assert scaling.constant.tolist() == [False, True, True, False]
    assert scaling.scale[1:3].tolist() == [1.0, 1.0] and np.array_equal(scaling.shift[1:3], dense[0, 1:3])
    assert (scaling.apply(dense)[:, 1:3] == 0).all()
    back = scaling.invert(np.random.default_rng(1).normal(size=(5, 4)))
    assert (back[:, 1:3] == dense[0, 1:3]).all() and len(np.unique(back[:, [0, 3]])) == 10
    assert Scaling.standard(dense[:, [0, 3]]).constant is None


def test_constant_columns_are_drawn_exactly(tmp_path):
    x = with_constants()
    model = PoincareVAE(epochs=2, hidden=4, random_state=0).fit(x)
    model.save(tmp_path / "saved")
    for one in (model, PoincareVAE.load(tmp_path / "saved")):
        drawn = one.sample(50)
        assert (drawn[:, 1] == 0.1).all() and (drawn[:, 2] == 0.0).all() and drawn[:, [0, 3]].std() > 0.1
        assert (one.inverse_transform(one.transform(x))[:, 1] == 0.1).all()
    np.save("x.npy", x)
    fit("x.npy")
    assert curvae("sample", "run", "-n", "20", "-q").code == 0
    assert (pd.read_csv("run-samples.csv")["x2"] == 0.1).all()


# --- reports --------------------------------------------------------------------------------------------------------


def drawn_reconstructions(path, *words):
    """What the report draws of the rows of a table."""
    fit(path, *words)
    fitted = load_fitted(Path("run")).fitted
    data, _ = load(path)
    rows = np.arange(len(data))
    with mock.patch.multiple(pages, reconstructions=mock.DEFAULT, figure_bytes=lambda f: b"\x89PNG\r\n\x1a\n") as made:
        section = pages.reconstruction_section(fitted, data, embed(fitted, data.x), rows, rows, "training")
    _, originals, found, *_ = made["reconstructions"].call_args.args
    return originals, found, section.pictures[0].caption, fitted, data.x[[0, len(data) // 2, -1]]


def test_columns_of_very_different_units_share_an_axis():
    write_table(Path("t.csv"))
    table = pd.read_csv("t.csv") * [1.0, 1e6, 1e-4] + [0.0, 5e7, 0.0]
    table.to_csv("t.csv", index=False)
    originals, found, caption, fitted, rows = drawn_reconstructions("t.csv")
    np.testing.assert_allclose(originals, (rows - table.mean().to_numpy()) / table.std(ddof=0).to_numpy(), rtol=1e-6)
    assert np.abs(originals).max() < 5 and np.abs(found).max() < 5
    expected = fitted.reconstruct(embed(fitted, rows).space)
    np.testing.assert_allclose(fitted.scaling.invert(found), expected, rtol=1e-5)
    assert "units of its standard deviation" in caption


def test_values_that_are_not_scaled_are_shown_as_they_are():
    Path("bits.csv").write_text("a,b\n" + "0,1\n1,1\n1,0\n0,0\n" * 5)
    originals, _, caption, _, rows = drawn_reconstructions("bits.csv")
    np.testing.assert_array_equal(originals, rows)
    assert "deviation" not in caption
    np.save("faces.npy", np.random.default_rng(0).normal(size=(20, 4, 4)))
    originals, _, caption, _, rows = drawn_reconstructions("faces.npy", "--force")  # images are pictures
    np.testing.assert_array_equal(originals, rows)
    assert "deviation" not in caption


def test_commands_stand_by_themselves():
    write_table(Path("my table.csv"), kind=list("xy") * 20)
    fit("my table.csv", "--label", "kind")
    page = Page(Path("run/report.html").read_text(encoding="utf-8"))
    commands = [text.strip() for tag, text in page.texts if tag == "pre" and text.startswith("curvae ")]
    typed = "--hidden 8 --epochs 2 --batch-size 16"  # and no setting that was chosen
    for command, more in (("compare", ""), ("fit", " --repeats 5")):
        assert f"curvae {command} 'my table.csv' --label kind {typed}{more}" in commands
    assert not any("curvae fit" in text or "curvae compare" in text for tag, text in page.texts if tag == "p")


def test_a_section_may_be_a_command_alone():
    html = Section("Next", command="curvae fit 'a & b.csv'")._html()
    assert "<pre>curvae fit &#x27;a &amp; b.csv&#x27;</pre>" in html
    assert Section("Next", command="")._html() is None


@pytest.mark.parametrize(
    ("likelihood", "faithful", "said"),
    [
        (-3.0, 0.5, []),
        (-3.0, 0.7, ["so the comparison by faithfulness says little; the one by likelihood stands"]),
        (-1.0, 0.7, ["so the comparison by likelihood says little", "so the comparison by faithfulness says little"]),
    ],
)
def test_a_comparison_says_what_pca_leaves_of_it(likelihood, faithful, said):
    repeats = [SimpleNamespace(test={0.0: -2.0, 1.0: -2.5}, pca=likelihood)]
    criterion = SimpleNamespace(name="faithfulness", repeats=[SimpleNamespace(test={0.0: 0.6, 1.0: 0.5}, pca=faithful)])
    warned = _beaten(SimpleNamespace(repeats=repeats, criteria=(criterion,)))
    assert [text.partition("), ")[2] for text in warned] == said


def test_the_legend_of_a_map_has_the_name_of_the_labels():
    embedding = Embedding(np.zeros((4, 2)), np.ones(4), 1.0)
    with undrawn():
        pages.map_picture(embedding, np.array(list("abab")), label_name="kind")
        assert pages.latent_map.call_args.args[3].title == "kind"


def test_numbers_in_sentences_have_a_minus_sign(tmp_path):
    write_table(Path("t.csv"))
    found = curvae("fit", "t.csv", "-o", "run", *SMALL)
    said = re.search(r"log-likelihood of [a-z, ]+ (.*?) ± .* divergence from the prior (\S+) nats", found.err)
    assert said is not None and re.fullmatch(r"−?\d+\.\d\d", said[1]) and said[2] != "-0.00"
    evaluated = curvae("evaluate", "run", "t.csv", "--samples", "5").out
    assert re.search(r"log-likelihood −\d", evaluated) and not re.search(r"[ (]-\d", evaluated + found.err)
