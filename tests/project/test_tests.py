"""The tests themselves: a folder a package of the library, and what they share in modules of its own."""

from __future__ import annotations

import re
from itertools import combinations, product

from combining import every_pair
from paths import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))


def test_folders_are_those_of_the_library():
    packages = {path.name.removesuffix(".py") for path in (ROOT / "src" / "curvae").iterdir()}
    assert {path.parent.name for path in MODULES} - {"project"} <= packages
    assert all(path.parent.parent == TESTS for path in MODULES)
    assert len({path.name for path in MODULES}) == len(MODULES)  # pytest imports them by their names alone


def test_no_test_module_imports_another():
    names = {path.stem for path in MODULES}
    for path in [*MODULES, TESTS / "conftest.py"]:
        found = re.findall(r"^ *(?:import|from) +([\w., ]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not {part for line in found for part in re.split(r"\W+", line)} & names, path


def test_every_pair_of_settings_meets_in_few_combinations():
    axes = ["abcde", (0, 1, 2), (True, False), (0.5, 1.0, 2.0)]
    chosen = every_pair(*axes)
    assert len(chosen) == len(set(chosen)) <= 18 and set(chosen) <= set(product(*axes))
    for i, j in combinations(range(4), 2):
        assert {(one[i], one[j]) for one in chosen} == set(product(axes[i], axes[j]))
