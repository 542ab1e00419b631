"""The documentation site: its tutorials run, its reference is complete, and links that lead nowhere are found."""

from __future__ import annotations

import re
import sys

import matplotlib.pyplot as plt
import pytest

import curvae
from paths import ROOT
from running import few_surrogates, tiny

sys.path.insert(0, str(ROOT / "docs" / "extensions"))

from internal_links import broken

DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))


@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")  # of pandas 3, by anndata 0.12
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(path, tmp_path, monkeypatch, capsys):
    """With the shortest of trainings; `make docs` runs them as they are."""
    if needed := {"bayesian": "pyro", "lineages": "anndata"}.get(path.stem):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    with plt.rc_context({"backend": "agg"}), few_surrogates():
        exec(compile(tiny(path.read_text(encoding="utf-8")), str(path), "exec"), {"__name__": "__main__"})
        assert plt.get_fignums()
        plt.close("all")
    assert capsys.readouterr().out


def test_tutorials_are_kept_as_text():
    assert len(TUTORIALS) == 6
    assert [path for path in DOCS.rglob("*.ipynb") if "_build" not in path.parts] == []


def test_the_contents_have_every_page():
    contents = re.findall(r"^root: (\S+)|- file: (\S+)$", (DOCS / "_toc.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [*DOCS.glob("*.md"), *DOCS.glob("project/*.md"), *DOCS.glob("api/*.md"), *TUTORIALS]
    assert sorted(root or page for root, page in contents) == sorted(
        str(path.relative_to(DOCS).with_suffix("")) for path in pages
    )


def test_the_reference_has_every_name():
    listed = set()
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        listed |= set(re.findall(r"py:data:: ([\w.]+)", text))
        for module, names in re.findall(
            r"currentmodule:: ([\w.]+)\n\n\.\. autosummary::\n.*?\n\n((?:   \w+\n)+)", text, re.S
        ):
            listed |= {f"{module}.{name}" for name in names.split()}
    packages = set(re.findall(r"\((\w+)\.md\)", (DOCS / "api" / "index.md").read_text(encoding="utf-8")))
    assert packages < set(curvae.__all__)
    expected = {f"curvae.{package}.{name}" for package in packages for name in getattr(curvae, package).__all__}
    elsewhere = {f"curvae.{name}" for name in ("PoincareVAE", "PoincareGraphVAE", "CellVAE", "CurvaeError")}
    # What torch says about its own function is in the documentation of torch.
    assert listed == (expected | elsewhere) - {"curvae.distributions.kl_divergence"}


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.html").write_text('<a href="../b.html#here">b</a> <a href="#there">a</a> <p id="there">')
    (tmp_path / "b.html").write_text('<p id="here"> <a href="sub/a.html">a</a> <a href="https://c.org/x#y">c</a>')
    assert broken(tmp_path) == []
    (tmp_path / "b.html").write_text('<img src="no.png"> <a href="sub/a.html#nowhere">a</a>')
    assert broken(tmp_path) == ["b.html: no.png", "b.html: sub/a.html#nowhere", "sub/a.html: ../b.html#here"]
