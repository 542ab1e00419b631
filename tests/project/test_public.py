"""The public face: what `import curvae` gives, at what cost, and what must be installed for it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import numpy as np
import pytest

import curvae
from paths import ROOT

SUBMODULES = ["data", "distributions", "geometry", "hierarchy", "models", "nn", "plotting", "training", "viewer"]
HEAVY = ["dask", "joblib", "matplotlib", "numpy", "pandas", "PIL", "pyro", "scipy", "sklearn", "torch"]


def python(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imported_lazily():
    """What a new interpreter says of imports: at first, of the submodules, after a draw, and after every name."""
    return python(
        "import sys, curvae\n"
        f"names = {SUBMODULES}\n"
        "print(set(names) <= set(dir(curvae)), [name for name in names if f'curvae.{name}' in sys.modules])\n"
        "print([getattr(curvae, name) is sys.modules[f'curvae.{name}'] for name in names])\n"
        "print({'networkx', 'scipy.stats', 'sklearn'} & set(sys.modules))\n"
        "import torch\n"
        "q = curvae.RiemannianNormal(torch.zeros(3, 2), 1.0, curvae.Lorentz(2))\n"
        "q.log_prob(q.sample((4,)))\n"
        "print('sympy' in sys.modules)\n"
        "for name in curvae.__all__:\n    getattr(curvae, name)\n"
        "print('pyro' in sys.modules, 'torch' in sys.modules)\n"
        "sys.modules['pyro'] = None\n"
        "try:\n    curvae.distributions.to_pyro(curvae.SphericalUniform(3))\n"
        "except ImportError as error:\n    print(error)\n"
    ).splitlines()


def test_submodules_are_imported_when_they_are_used(imported_lazily):
    assert imported_lazily[:2] == ["True []", f"{[True] * len(SUBMODULES)}"]


def test_what_takes_long_to_import_is_imported_by_the_functions_that_use_it(imported_lazily):
    assert imported_lazily[2] == "set()"


def test_a_distribution_imports_no_computer_algebra(imported_lazily):
    """As `torch.broadcast_shapes` does."""
    assert imported_lazily[3] == "False"


def test_every_name_leads_to_something():
    assert set(SUBMODULES) < set(curvae.__all__) and dir(curvae) == sorted([*curvae.__all__, "__version__"])
    for name in SUBMODULES:
        module = getattr(curvae, name)
        assert dir(module) == sorted(module.__all__)
    for name in curvae.__all__:
        assert getattr(curvae, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        curvae.nonsense  # noqa: B018


def test_functions_are_exported():
    from curvae.hierarchy import diagnose
    from curvae.training import Config, compare, embed, fit

    assert (curvae.compare, curvae.diagnose, curvae.embed) == (compare, diagnose, embed)
    x = np.random.default_rng(0).normal(size=(30, 3))
    config = Config(hidden=(4,), epochs=1, likelihood="unit_gaussian")
    found = curvae.embed(fit(config, x), x[:7])
    assert found.ball.shape == (7, 2) and found.sigma.shape == (7,) and (found.sigma > 0).all()
    assert len(curvae.compare(config, x, (1.0,), 3, samples=5, jobs=1).repeats) == 3
    assert curvae.diagnose(x).kind == "table"


def test_names_are_shown_to_a_type_checker():
    """What it must accept and refuse is in a file of its own, which is checked together with the library."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] and "tests/project/public_types.py" in settings["files"]
    names = set(re.findall(r"curvae\.(\w+)", (ROOT / "tests/project/public_types.py").read_text(encoding="utf-8")))
    assert set(SUBMODULES) <= names


# --- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--help",), ("fit", "--help"), ("--version",)])
def test_help_imports_nothing_heavy(words):
    found = python(
        "import runpy, sys\n"
        f"sys.argv = ['curvae', *{words}]\n"
        "try:\n    runpy.run_module('curvae', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"print('imported:', sorted({{name.split('.')[0] for name in sys.modules}} & set({HEAVY})))\n"
    )
    assert found.endswith("imported: []\n") and found.count("\n") > 1


def test_pyro_is_not_imported(imported_lazily):
    assert imported_lazily[4] == "False True"


def test_pyro_is_asked_for_where_it_is_needed(imported_lazily):
    assert imported_lazily[5:] == ["to_pyro needs Pyro: pip install pyro-ppl"]


# --- pages ----------------------------------------------------------------------------------------------------------


def imported(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Modules, with the names that are taken from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module, [alias.name for alias in node.names]


def deep(page: str) -> list[str]:
    """What a page takes from deeper than `curvae.SUBMODULE`, or what is not public there."""
    found = []
    for code in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for module, names in imported(ast.parse(code)):
            package, _, submodule = module.partition(".")
            if package != "curvae":
                continue
            home = getattr(curvae, submodule, None) if submodule in SUBMODULES else None if submodule else curvae
            found += [module] if home is None else [f"{module}.{n}" for n in names if n not in home.__all__]
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.stem)
def test_pages_import_what_is_public(page):
    assert deep(page.read_text(encoding="utf-8")) == []


def test_a_deep_import_is_noticed():
    code = "import curvae.nn.layers\nfrom curvae.data import load, tables\nfrom curvae.runs import train_run\n"
    assert deep(f"```python\n{code}```\n") == ["curvae.nn.layers", "curvae.data.tables", "curvae.runs"]


# --- dependencies ---------------------------------------------------------------------------------------------------


def packages(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Top-level names of the packages that a module needs to be imported, and of those that it imports later."""
    at_once: set[str] = set()
    later: set[str] = set()

    def visit(node: ast.AST, found: set[str]) -> None:
        match node:
            case ast.Import(names):
                found |= {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(str(module), _, 0):
                found.add(module.split(".")[0])
            case ast.Call(ast.Name("import_module" | "require"), [ast.Constant(str(module)), *_]):
                found.add(module.split(".")[0])
            case ast.FunctionDef():
                found = later
        for child in ast.iter_child_nodes(node):
            visit(child, found)

    visit(tree, at_once)
    return at_once, later


def requirements(lines: list[str]) -> set[str]:
    """Distributions: what is required, and the extras of it that are distributions of their own."""
    found = set()
    for line in lines:
        name, _, extras = re.match(r"([\w.-]+)(\[([\w,]+)\])?", line).groups()
        found |= {name.lower(), *(extras or "").split(",")} - {""}
    return found


def test_imports_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = requirements(project["dependencies"])
    extras = {name: requirements(lines) for name, lines in project["optional-dependencies"].items()}
    users = set().union(*(extra for name, extra in extras.items() if name not in ("dev", "docs")))
    known = {"pyro": ["pyro-ppl"], **packages_distributions()}  # which may not be installed
    at_once, later = set(), set()
    for path in (ROOT / "src").rglob("*.py"):
        found = packages(ast.parse(path.read_text(encoding="utf-8")))
        at_once |= found[0]
        later |= found[1]
    ours = {"curvae", *sys.stdlib_module_names}
    needed, optional = (
        {dist.lower() for name in names - ours for dist in known.get(name, [name])} for names in (at_once, later)
    )
    assert needed <= core <= needed | optional  # networkx is slow to import, and not always needed
    assert optional <= users | core
    # An extra that nothing imports is not one; joblib imports dask, and torch onnx by itself.
    assert users - {"dask", "distributed", "onnx", "onnxscript", "onnxruntime"} <= optional


def test_an_import_is_found_where_it_stands():
    code = (
        "import a.b\nif 1:\n    from c import d\ndef f():\n    import a, e\n    import_module('g.h')\nfrom . import i\n"
    )
    assert packages(ast.parse(code)) == ({"a", "c"}, {"a", "e", "g"})
