"""One browser for all tests of pages: the first page that it draws takes most of its time."""

from __future__ import annotations

import sys

import pytest

from paths import ROOT

PREFERRED = {"color_scheme": "light", "reduced_motion": "reduce"}


@pytest.fixture(scope="package")
def browser():
    """A browser with a page of 900 times 620 pixels, in light colours and without motions, each frame of which takes
    long in software."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.browser import Browser, find

    program = find()
    if program is None:
        pytest.skip("there is no Chromium; apt-get install chromium")
    # Maps are drawn by WebGL all the same; the rest of a page would first have programs of the graphics card compiled.
    with Browser(program, 900, 620, flags=["--disable-gpu-compositing"]) as opened:
        opened.prefer(**PREFERRED)
        yield opened


@pytest.fixture
def moving(browser):
    """With motions."""
    browser.prefer(color_scheme="light")
    yield
    browser.prefer(**PREFERRED)
