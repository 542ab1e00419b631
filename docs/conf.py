"""The documentation site: `make docs` builds it, offline and with warnings as errors."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import curvae

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
os.environ["MATPLOTLIBRC"] = str(HERE)  # of the tutorials

project = "Curvae"
author = "The Curvae authors"
copyright = author  # noqa: A001
version = release = curvae.__version__

extensions = [
    "sphinx_external_toc",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "docstrings",  # before napoleon, which it prepares the text for
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "internal_links",
]
exclude_patterns = ["conf.py", "extensions", "inventories", "_build", "_templates"]
nitpicky = True
default_role = "py:obj"  # of docstrings

# The pages are Markdown as GitHub reads it. Those of the repository outside of this folder have a page that includes
# them, which links are led to.
myst_heading_anchors = 4
suppress_warnings = [
    "etoc.toctree",  # the lists of names in the reference
    "misc.highlighting_failure",  # an ellipsis in place of code
    "myst.header",
]
_OUTSIDE = {"../CONTRIBUTING.md": "project/contributing.md", "../CHANGELOG.md": "project/changelog.md"}

# Tutorials are Python files in percent format, run when they have changed.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "cache")
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # the tests turn warnings into errors

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autosummary_generate_overwrite = True
templates_path = ["_templates"]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_param = False  # one line may describe several
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Names of others that signatures mention, by page: no build waits for the network.
intersphinx_mapping = {
    name: (url, str(HERE / "inventories" / f"{name}.txt"))
    for name, url in {
        "python": "https://docs.python.org/3",
        "torch": "https://docs.pytorch.org/docs/stable",
        "sklearn": "https://scikit-learn.org/stable",
        "numpy": "https://numpy.org/doc/stable",
        "scipy": "https://docs.scipy.org/doc/scipy",
        "pandas": "https://pandas.pydata.org/docs",
        "matplotlib": "https://matplotlib.org/stable",
        "networkx": "https://networkx.org/documentation/stable",
    }.items()
}

highlight_language = "none"  # of code that does not say which
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "Curvae"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def _lead_inside(app, name, text):
    for outside, inside in _OUTSIDE.items():
        text[0] = re.sub(rf"\]\({re.escape(outside)}([)#])", rf"]({inside}\1", text[0])


def _keep_intervals_together(app, name, text):
    text[0] = re.sub(
        r"^\|.*", lambda row: row[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"), text[0], flags=re.M
    )


def setup(app):
    app.connect("source-read", _lead_inside)
    app.connect("source-read", _keep_intervals_together)
