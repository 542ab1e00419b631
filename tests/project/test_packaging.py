"""What is published: versions that agree, and a distribution with all that it names."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

import curvae
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_supported_versions_are_those_that_are_tested():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    matrices = re.findall(r"python: \[(.*)\]", WORKFLOWS["tests"])
    assert len(matrices) == 2 and all(re.findall(r"3\.\d+", matrix) == named for matrix in matrices)
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_the_version_is_the_same_everywhere():
    for name, pattern in (("CITATION.cff", r"^version: (.+)$"), (".github/scverse-meta.yaml", r"^version: v(.+)$")):
        found = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert found == [curvae.__version__], name


def test_the_distribution_holds_what_it_names():
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"] == {"packages": ["src/curvae"]}
    assert all((ROOT / name).exists() for name in targets["sdist"]["include"])


def test_templates_and_styles_are_in_the_wheel():
    """A wheel holds all files of the package but those that git ignores."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    package = ROOT / "src" / "curvae"
    files = [path for ending in ("html", "css", "js") for path in package.rglob(f"*.{ending}")]
    assert {"report/page.html", "viewer/page.html", "viewer/map.html"} <= {
        path.relative_to(package).as_posix() for path in files
    }
    parts = {part for path in files for part in path.relative_to(ROOT).parts}
    assert not [part for part in parts if any(fnmatch(part, pattern) for pattern in ignored)]


def test_workflows_run_what_the_makefile_has():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = {name for text in WORKFLOWS.values() for name in re.findall(r"run: make (\w+)", text)}
    assert called == {"check", "docs", "test"} <= targets


def test_only_the_publishing_job_may_ask_for_an_identity():
    for name, text in WORKFLOWS.items():
        assert "permissions:\n  contents: read\n" in text
        assert text.count("id-token: write") == (name == "release")
        assert "secrets." not in text
