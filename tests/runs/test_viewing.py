"""Maps as they are drawn: from a centre and axes that the data decide, and thinned where a page is too small."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from curvae import PoincareBall
from curvae.data.files import EXACT
from curvae.errors import CurvaeError
from curvae.runs import view_run, viewing
from curvae.runs.viewing import read_thinned
from curvae.training import storage
from running import SMALL, config, curvae, refused, untouched, write_table

NAMES = [f"cell{i}" for i in range(40)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)


def fit(*words, data="t.csv", command="fit"):
    found = curvae(command, data, "-o", "run", *words, "--json")
    assert found.code == 0, found.err
    return found.json


def rows(**more):
    return write_table(Path("t.csv"), name=NAMES, **more)


def drawn(table, name="map"):
    return torch.from_numpy(table[[f"{name}_1", f"{name}_2"]].to_numpy())


def distances(x, c):
    return PoincareBall(x.shape[1], c).dist(x[:, None], x)


def viewed(**how):
    """The map that `curvae view` shows, and its points in ball coordinates."""
    _, view = view_run(Path("run"), Path("map.html"), force=True, **how)
    return view, PoincareBall(2, view.c).from_lorentz(torch.as_tensor(view.points))


@pytest.mark.parametrize("c", [0.0, 1.3])
def test_a_root_is_at_the_centre_of_an_isometric_picture(c):
    rows()
    fit("--id", "name", "--root", "cell7", "--curvature", c, *SMALL)
    table = pd.read_csv("run/embedding.csv")
    assert config()["root"] == "cell7" and drawn(table)[7].abs().max() == 0
    ball = torch.from_numpy(table[["ball_1", "ball_2"]].to_numpy())
    torch.testing.assert_close(distances(drawn(table), c), distances(ball, c), rtol=1e-6, atol=1e-9)
    assert "row 'cell7' is at the centre" in html.unescape(Path("run/report.html").read_text(encoding="utf-8"))
    view, seen = viewed()
    torch.testing.assert_close(seen, drawn(table), rtol=1e-9, atol=1e-12)
    assert "cell7 is at the centre" in view.about and not any(
        "cell7" in text for text in viewed(anonymous=True)[0].about
    )
    # The same rows, embedded later, are drawn where they were, and so is one of them alone.
    assert curvae("embed", "run", "t.csv", "-o", "again.csv", "-q").code == 0
    torch.testing.assert_close(drawn(pd.read_csv("again.csv")), drawn(table), rtol=1e-9, atol=1e-9)
    pd.read_csv("t.csv")[5:6].to_csv("one.csv", index=False)
    assert curvae("embed", "run", "one.csv", "-o", "one-map.csv", "-q").code == 0
    torch.testing.assert_close(drawn(pd.read_csv("one-map.csv")), drawn(table)[5:6], rtol=1e-6, atol=1e-6)


def test_without_a_root_the_mean_is_at_the_centre_and_the_data_turn_the_map():
    x = np.random.default_rng(0).normal(size=(40, 1)) @ np.ones((1, 4))
    noise = np.random.default_rng(1).normal(size=(40, 4))
    pd.DataFrame(x + 0.2 * noise, columns=list("abcd")).to_csv("t.csv", index=False)
    for seed in (0, 1):
        fit(
            "--force",
            "--seed",
            seed,
            "--hidden",
            "16",
            "--epochs",
            "20",
            "--batch-size",
            "16",
            "--set",
            "learning_rate=0.01",
        )
        assert config()["root"] is None
        seen = drawn(pd.read_csv("run/embedding.csv"))
        ball = PoincareBall(2, 1.0)
        assert ball.logmap0(seen).mean(0).abs().max() < 1e-6
        # The first principal component, whose loadings are all of one sign, grows to the right.
        assert np.corrcoef(seen[:, 0], x[:, 0])[0, 1] > 0.7


def test_a_root_can_be_changed_when_a_run_is_resumed():
    rows()
    first = fit("--id", "name", *SMALL)
    before = pd.read_csv("run/embedding.csv")
    fit("--id", "name", "--root", "cell3", "--resume")
    table = pd.read_csv("run/embedding.csv")
    assert drawn(table)[3].abs().max() == 0 and config()["root"] == "cell3"
    pd.testing.assert_frame_equal(table.drop(columns=["map_1", "map_2"]), before.drop(columns=["map_1", "map_2"]))
    again = fit("--id", "name", "--resume")  # it is kept
    # The next command has what was typed at the start, and nothing that was chosen since.
    said = curvae("fit", "t.csv", "--resume", "-o", "run").out.splitlines()[-1]
    assert said.startswith("next: curvae compare t.csv --id name --hidden 8 --epochs 2 --batch-size 16  # is curvature")
    assert config()["root"] == "cell3" and again["log_likelihood"] == first["log_likelihood"]


def test_a_root_that_is_not_there_is_refused():
    rows()
    says = ["no row 'nobody'", "--root", "'cell0'"]
    untouched("fit", "t.csv", "--id", "name", "--root", "nobody", "-o", "run", *SMALL, says=says)
    Path("edges.csv").write_text("a,b\nb,c\nc,d\n")
    untouched("graph", "edges.csv", "--root", "z", "-o", "run", says=["no node 'z'", "'a'"])


def test_repeats_tell_the_spread_of_every_row():
    rows(kind=list("xy") * 20)
    found = fit("--id", "name", "--label", "kind", "--repeats", "3", *SMALL)["spread"]
    table = pd.read_csv("run/embedding.csv", **EXACT)
    assert found["maps"] == 3 and found["median"] == pytest.approx(table["spread"].median())
    assert found["quantile_95"] == pytest.approx(table["spread"].quantile(0.95)) and found["row_distance"] > 0
    report = Path("run/report.html").read_text(encoding="utf-8")
    assert "3 maps place half of the rows within" in report and "places of rows in all maps" in report
    assert '"name": "kind"' in report and '"name": "spread"' in report  # columns of the map that can be moved
    view, _ = viewed()
    assert list(view.columns) == ["kind", "spread"]
    np.testing.assert_array_equal(view.columns["spread"], table["spread"])
    assert list(viewed(show=("spread",))[0].columns) == ["kind", "spread"]


def test_a_learned_curvature_has_no_spread():
    rows()
    found = fit("--id", "name", "--repeats", "2", "--curvature", "learn", *SMALL)
    assert found["spread"] is None and found["stability"] is not None
    assert "spread" not in pd.read_csv("run/embedding.csv")
    assert "no isometry brings them together" in Path("run/report.html").read_text(encoding="utf-8")


def test_factors_and_projections_are_drawn_from_their_frames():
    rows()
    fit("--id", "name", "--space", "h3:0.5,e2", "--repeats", "2", "--root", "cell1", *SMALL)
    table = pd.read_csv("run/embedding.csv")
    for name, c in (("h1", 0.5), ("e2", 0.0)):
        assert drawn(table, f"{name}_map")[1].abs().max() < 1e-12
        view, seen = viewed(factor=name)
        assert view.c == c
        torch.testing.assert_close(seen, drawn(table, f"{name}_map"), rtol=1e-9, atol=1e-12)
    assert (table["spread"] > 0).all()


def test_a_graph_has_a_root_too():
    Path("edges.csv").write_text("".join(f"n{(i - 1) // 2},n{i}\n" for i in range(1, 31)))
    words = ("--set", "hidden=8", "--epochs", "3", "--splits", "0")
    found = fit(*words, "--root", "n5", data="edges.csv", command="graph")
    table = pd.read_csv("run/embedding.csv", index_col="id")
    assert found["centre"] == "n5" and found["centre_radius"] == 0
    assert table.loc["n5", ["map_1", "map_2"]].abs().max() == 0
    found = fit(*words, "--force", data="edges.csv", command="graph")
    table = pd.read_csv("run/embedding.csv", index_col="id")
    seen = PoincareBall(2, 1.0).dist0(drawn(table))
    assert found["centre"] == table.index[int(seen.argmin())]
    assert found["centre_radius"] == pytest.approx(float(seen.min()))


def test_a_broken_orientation_is_said_to_be():
    rows()
    fit("--id", "name", *SMALL)
    stored = config()
    stored["orientation"][0]["axes"] = [[1.0, 0.0]]
    Path("run/config.json").write_text(json.dumps(stored), encoding="utf-8")
    refused("view", "run", says=["orientation", "train again"])
    refused("embed", "run", "t.csv", says=["orientation", "train again"])
    del stored["orientation"]  # which estimators do not write
    Path("run/config.json").write_text(json.dumps(stored), encoding="utf-8")
    _, seen = viewed()
    ball = pd.read_csv("run/embedding.csv")[["ball_1", "ball_2"]].to_numpy()
    torch.testing.assert_close(seen, torch.from_numpy(ball), rtol=1e-9, atol=1e-12)
    assert curvae("embed", "run", "t.csv", "-o", "again.csv", "-q").code == 0
    assert "map_1" not in pd.read_csv("again.csv")


# --- samples by density ----------------------------------------------------------------------------------------------


DENSE, FAR = 6000, 80


def written(path, ball, ids=None):
    """The columns of the table of a map that a sample is drawn by."""
    ids = [f"c{i}" for i in range(len(ball))] if ids is None else ids
    table = pd.DataFrame({"id": ids, "label": "", "map_1": ball[:, 0], "map_2": ball[:, 1]})
    storage.write_tables(path, [table])
    return table


def crowd(seed=0):
    """Many points near the centre and few around them, in a random order."""
    random = np.random.default_rng(seed)
    turn = random.uniform(0, 2 * np.pi, FAR)
    far = np.tanh(random.uniform(1.5, 4.0, FAR) / 2)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    return random.permutation(np.concatenate([random.normal(0, 0.02, (DENSE, 2)), far]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_few_rows_are_kept_and_many_are_thinned(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(viewing, "_ROWS", 700)
    table = written(tmp_path / f"embedding.{ending}", crowd())
    wanted = table["id"][[17, 4004]].tolist()
    found, rows = read_thinned(tmp_path / f"embedding.{ending}", 1000, 1.0, wanted)
    assert rows == DENSE + FAR and 950 < len(found) <= 1000
    assert set(wanted) <= set(found["id"])
    places = found["id"].str[1:].astype(int)
    assert places.is_monotonic_increasing
    np.testing.assert_array_equal(found["map_1"], table["map_1"][places])
    far = table["id"][np.hypot(table["map_1"], table["map_2"]) > 0.5]
    assert len(far) == FAR and set(far) <= set(found["id"])


def test_cells_have_equal_areas(tmp_path):
    """Of points that lie evenly in the hyperbolic disc, all parts are thinned alike."""
    random = np.random.default_rng(0)
    radius = np.arccosh(1 + random.uniform(size=40_000) * (np.cosh(4.0) - 1))
    turn = random.uniform(0, 2 * np.pi, 40_000)
    ball = np.tanh(radius / 2)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    written(tmp_path / "embedding.parquet", ball)
    found, _ = read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0)
    kept = np.zeros(40_000, bool)
    kept[found["id"].str[1:].astype(int)] = True
    for inner, outer in ((0, 2.5), (2.5, 3.5), (3.5, 4.0)):
        own = (radius >= inner) & (radius < outer)
        assert kept[own].mean() == pytest.approx(0.25, abs=0.03)


def test_the_level_at_which_cells_are_cut():
    counts = np.random.default_rng(1).integers(0, 50, 200)
    for total in (1, 150, 1000, counts.sum() - 1):
        assert np.minimum(counts, viewing._level(counts, total)).sum() == pytest.approx(total)
    assert viewing._level(counts, counts.sum() + 5) >= counts.max()


def test_all_rows_where_they_are_few(tmp_path):
    table = written(tmp_path / "embedding.parquet", crowd())
    found, rows = read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0)
    assert rows == len(found) and found["id"].tolist() == table["id"].tolist()
    with pytest.raises(CurvaeError, match="no row of the run has the id 'c99999'; check it"):
        read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0, ["c99999"])


def test_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", rows=120)
    assert curvae("fit", "t.csv", *SMALL, "-o", "run").code == 0
    monkeypatch.setattr(viewing, "LARGEST", 50)
    said = curvae("view", "run", "--find", "77", "-o", "map.html")
    sample = re.search(r"sample by density is shown: (\d+) of 120 rows", said.err)
    assert said.code == 0 and sample and 40 <= int(sample[1]) <= 50 and "give --find" in said.err, said
    page = (tmp_path / "map.html").read_text()
    assert f"A {sample[0]}" in page and "Found among all rows: 77" in page
    line = refused("view", "run", "--find", "x", "-o", "other.html", says=["no row of the run has the id 'x'"])
    assert "train again" not in line
    refused("view", "run", "--explain", "-o", "other.html", says=["120 rows, of which a map shows a sample"])
    refused("view", "run", "--find", "7", "--anonymous", "-o", "other.html", says=["--find", "not both"])
