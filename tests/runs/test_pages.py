"""What reports say and draw."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from curvae.data import load
from curvae.runs import pages
from curvae.training import Embedding
from curvae.training.fitted import embed
from curvae.training.storage import load_fitted
from pages import Page
from running import SMALL, curvae, undrawn, write_table


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fit(*words):
    found = curvae("fit", *words, "-o", "run", "-q", *SMALL)
    assert found.code == 0, found.err


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


def test_the_legend_of_a_map_has_the_name_of_the_labels():
    embedding = Embedding(np.zeros((4, 2)), np.ones(4), 1.0)
    with undrawn(), mock.patch.object(pages, "latent_map") as drawn:
        pages.map_picture(embedding, np.array(list("abab")), label_name="kind")
    assert drawn.call_args.args[3].title == "kind"
