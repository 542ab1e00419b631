"""The tests themselves: a folder a package of the library, and what they share in modules of its own."""

from __future__ import annotations

import ast

from paths import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))


def test_folders_are_those_of_the_library():
    packages = {path.name.removesuffix(".py") for path in (ROOT / "src" / "curvae").iterdir()}
    assert {path.parent.name for path in MODULES} - {"project"} <= packages
    assert all(path.parent.parent == TESTS for path in MODULES)


def test_no_test_module_imports_another():
    names = {path.stem for path in MODULES}
    for path in [*MODULES, TESTS / "conftest.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {part for name in found for part in name.split(".")} & names, path
