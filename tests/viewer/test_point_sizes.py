"""Points that are drawn larger or smaller: the popularity of the nodes of a graph."""

from __future__ import annotations

import base64
import io
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curvae import Euclidean
from curvae.errors import CurvaeError
from curvae.viewer import View
from running import curvae

POINTS = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])


def levels(html):
    text = re.search(r'data-block="size">([^<]*)<', html)
    return None if text is None else list(zlib.decompress(base64.b64decode(text[1])))


def test_sizes_are_levels_from_the_smallest_to_the_largest():
    assert levels(View(POINTS, Euclidean(2), sizes=[-2.0, 0.0, 2.0]).html()) == [0, 64, 127]
    assert levels(View(POINTS, Euclidean(2)).html()) is None
    assert '"sizes": false' in View(POINTS, Euclidean(2), sizes=[1.0, 1.0, 1.0]).html()
    hidden = View(POINTS, Euclidean(2), {"x": [-1.0, 0.0, 1.0]}, sizes=[-2.0, 0.0, 2.0], anonymous=True)
    np.testing.assert_allclose(np.asarray(hidden.sizes), 2 * np.asarray(hidden.points)[:, 0])
    for wrong, said in (([1.0], "1 sizes for 3 points"), ([1.0, np.nan, 2.0], "must be finite")):
        with pytest.raises(CurvaeError, match=said):
            View(POINTS, Euclidean(2), sizes=wrong).html()


def test_the_page_of_a_graph_has_popularity_as_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("star.csv").write_text("".join(f"hub,n{i}\n" for i in range(8)) + "n0,n1\nn2,n3\n", encoding="utf-8")
    made = curvae("graph", "star.csv", "-o", "r", "--splits", "0", "--set", "hidden=4", "--epochs", "2")
    shown = curvae("view", "r", "-o", "map.html", "--show", "popularity")
    assert made.code == shown.code == 0 and "sizes of the points" in shown.err
    found = levels(Path("map.html").read_text(encoding="utf-8"))
    assert found is not None and found[0] == max(found) == 127  # the hub is the first node of the file
    assert levels(Path("r", "report.html").read_text(encoding="utf-8")) is not None


def test_a_larger_number_is_a_larger_point(browser, tmp_path):
    page = tmp_path / "map.html"
    page.write_text(View(POINTS, Euclidean(2), sizes=[0.0, 1.0, 5.0]).html(), encoding="utf-8")
    browser.open(page)
    picture = np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"), float)[:, :590]
    blue = picture[..., 2] - picture[..., 0] > 60
    columns = np.flatnonzero(blue.any(0))
    apart = np.split(columns, np.flatnonzero(np.diff(columns) > 20) + 1)
    widths = [len(one) for one in apart]
    assert len(widths) == 3 and widths[0] < widths[1] < widths[2]
    assert 4 < widths[2] / widths[0] < 8  # 0.6 to 3 times the usual diameter, with an outline around each
