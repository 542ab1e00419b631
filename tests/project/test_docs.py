"""The pages: their examples run, their figures are those of the results, their links lead somewhere."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from paths import ROOT
from running import few_surrogates, tiny, undrawn

sys.path.insert(0, str(ROOT))

from benchmarks import tables
from benchmarks.examples import fill_outputs, pages_with_examples, run_page

from curvae.data import branching_diffusion, flat

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").glob("*.md")),
]
SOURCE = ROOT / "src" / "curvae"


@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")  # of pandas 3, by anndata 0.12
@pytest.mark.parametrize("name", pages_with_examples())
def test_examples_run(name, tmp_path, monkeypatch):
    text = pages_with_examples()[name].read_text(encoding="utf-8")
    if re.search(r"curvae graph diseases|mnist\(", text) and "CURVAE_DATA" not in os.environ:
        pytest.skip("needs the data sets in CURVAE_DATA")
    if "import pyro" in text:
        pytest.importorskip("pyro")
    monkeypatch.chdir(tmp_path)
    # Built-in data of fewer rows: a tree of 31 nodes, observed three times each.
    monkeypatch.setattr(branching_diffusion, "__defaults__", (50, 4, 2, 3, *branching_diffusion.__defaults__[4:]))
    monkeypatch.setattr(flat, "__defaults__", (93, *flat.__defaults__[1:]))
    with undrawn(), few_surrogates():
        found = run_page(text, tiny)
    assert any(example["printed"] for example in found)


def test_a_failing_example_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in ("```sh\ncurvae fit nothing.csv\n```\n", "```sh\ncurvae cite   # refused\n```\n"):
        with pytest.raises(RuntimeError, match="exit code"):
            run_page(page)
    with pytest.raises(NameError):
        run_page("```python\nprint(undefined)\n```\n")
    assert run_page("<!-- not recorded -->\n```python\nprint(undefined)\n```\n") == []


@pytest.fixture
def _without_pictures(monkeypatch):
    """Tables of the paper without the pictures beside them, which are not compared."""
    monkeypatch.setattr("curvae.paper.paper_tables.figure_bytes", lambda figure: b"\x89PNG\r\n\x1a\n")


@pytest.mark.usefixtures("_without_pictures")
def test_figures_are_those_of_the_results():
    assert tables.stale() == [], "run: python -m benchmarks.tables"


@pytest.mark.usefixtures("_without_pictures")
def test_changed_figures_are_noticed(capsys, monkeypatch):
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    changed = re.sub(r"(<!-- table:maps_verdict -->\n.*\n.*\n[^\d]*)\d", r"\g<1>9", text)
    assert changed != text
    assert tables.fill("README", changed) == text
    with pytest.raises(ValueError, match="table:unheard"):
        tables.fill("index", "<!-- table:unheard -->\n<!-- /table -->")
    monkeypatch.setattr(tables, "fill", lambda name, text: text + "x" if name == "README" else text)
    with pytest.raises(SystemExit) as end:
        tables.main(["--check"])
    assert end.value.code == 1
    assert "stale: README" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == text


def test_changed_examples_are_noticed():
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    assert fill_outputs(page, [{"code": "print(1)\n", "printed": "1\n"}]) == page.replace("2", "1")
    with pytest.raises(ValueError, match="has not been run"):
        fill_outputs(page, [{"code": "print(2)\n", "printed": "2\n"}])


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name} points to {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} points to {target}"


def test_every_page_is_listed():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES if page.parent.name == "docs" and f"({page.name})" not in index]
    assert missing == ["index.md"]


def test_pictures_of_the_guides_are_small():
    pictures = list((ROOT / "docs" / "images").glob("demo*.png"))
    assert len(pictures) >= 5
    assert all(picture.stat().st_size < 150_000 for picture in pictures)
    used = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"images/{picture.name}" in used for picture in pictures)


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert len(text) <= 6000 and len([line for line in example.splitlines() if line]) <= 6


# --- pages for contributors -------------------------------------------------------------------------------------------


def test_the_diagram_has_the_order_of_the_packages():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    diagram = text.split("```text\n")[1].split("```")[0]
    shown = [name for line in re.findall(r"^  ((?:\w+, )*\w+)(?=  |$)", diagram, re.M) for name in line.split(", ")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [set(layer.split(" | ")) for layer in contracts[0]["layers"]][1:]  # without __main__
    assert set(shown) == set().union(*layers)
    assert shown == sorted(shown, key=lambda name: next(i for i, layer in enumerate(layers) if name in layer))


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_and_names_exist(page):
    """Every file in backticks, and in tables what the cell after it names in that file."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    paths = [path for path in re.findall(r"`([\w./-]+)`", text) if "/" in path and not path.startswith("checkpoint")]
    assert len(paths) > 10
    for path in paths:
        assert (SOURCE / path).exists() or (ROOT / path).exists(), path
    for path, names in re.findall(r"\| `([\w/]+\.py)` \| (.*?) \|", text):
        code = (SOURCE / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            assert all(re.search(rf"\b(def|class) {part}\b", code) for part in name.split(".")), f"{path}: {name}"
