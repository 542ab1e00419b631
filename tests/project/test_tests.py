"""The tests themselves: a file a module of the library, and what they share in modules of its own."""

from __future__ import annotations

import re
from itertools import combinations, product

from combining import every_pair
from paths import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))


SOURCE = ROOT / "src" / "curvae"
# Files that test no single module, each with the reason.
ACROSS = {
    "estimators/test_cell_lineages.py": "groups of cells on their way to a tree, and genes along it",
    "data/test_graph_merging.py": "links of any reader on their way to a graph, and what describes its nodes",
    "distributions/test_radius.py": "distances and directions of draws, as test_normal.py tests draws",
    "hierarchy/test_drivers.py": "columns that change on a way, as test_lineages.py tests the way",
    "plotting/test_maps.py": "pictures of maps",
    "plotting/test_panels.py": "pictures of all else",
    "maps/test_frames.py": "from where a map is seen, as test_charts.py tests how it is drawn",
    "models/test_neighbour_terms.py": "what the map misses of neighbourhoods, a part of the terms of test_vae.py",
    "estimators/test_inputs.py": "data frames, arrays and rows on disk on their way into estimators",
    "distributions/test_spherical.py": "normals and their radius on spheres, from integrals to divergences",
    "models/test_autocast.py": "layers, distributions and models of all kinds, under autocast",
    "models/test_covariates.py": "a column of a table on its way through model, estimator and commands",
    "models/test_missing.py": "missing values on their way through model, estimator and commands",
    "nn/test_transforms.py": "geometry, distributions and layers, each under torch.compile, vmap and grad",
    "runs/test_product_runs.py": "one trained product of spaces, in every command",
    "runs/test_cell_runs.py": "cell files in every command",
    "runs/test_rows_run.py": "rows in `curvae fit` and `compare`, from files to reports",
    "runs/test_graph_run.py": "graphs in `curvae graph` and `compare`, from files to reports",
    "runs/test_mapping.py": "cells of new batches on their way to a map with labels",
    "runs/test_disk_memory.py": "the peak memory of reading, training and writing",
    "training/test_cuda.py": "what needs a CUDA device, to be run by its name where there is one",
    "training/test_disk_rows.py": "rows on disk on their way to a trained model, beside rows in memory",
    "training/test_graph_evaluate.py": "what models of graphs say, as test_fitted.py does for rows",
    "training/test_graph_fitting.py": "graphs on their way to trained models, alone, together and compared",
    "training/test_golden.py": "recorded losses and trainings, which no change of structure may change",
    "training/test_workers.py": "trainings in processes and on clusters, beside those in one process",
    "viewer/test_viewer_browser.py": "what needs a browser",
}


def test_a_file_is_named_after_a_module():
    """Where two packages have a module of one name, the name of the package may stand before it."""
    allowed = {f"test_{path.stem}.py" for path in SOURCE.glob("*.py")}
    for path in SOURCE.glob("*/**/*.py"):
        package, name = path.relative_to(SOURCE).parts[0], path.parent.name if path.stem == "__init__" else path.stem
        allowed |= {f"{package}/test_{name}.py", f"{package}/test_{package}_{name}.py"}
    found = {path.relative_to(TESTS).as_posix() for path in MODULES if path.parent.name != "project"}
    assert found - allowed == ACROSS.keys()
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
