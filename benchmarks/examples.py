"""The examples of README, home page and guides: find them, run them, keep what they print.

A fence of `python` or `sh` is an example. Its output is recorded, unless `<!-- not recorded -->` stands before it. A
fence of `text` right behind it holds what it printed. A command commented `# refused` must fail.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image

from curvae.cli import commands
from curvae.data import branching_diffusion
from curvae.runs import demonstrate, pages
from curvae.training.storage import versions

__all__ = [
    "IMAGES",
    "ROOT",
    "demonstration",
    "fill_outputs",
    "pages_with_examples",
    "record",
    "run_command",
    "run_page",
    "shrink",
    "unrecorded",
]

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
Record = list[dict[str, str]]

_MAPS = {
    "guide-graph": {"runs/miserables": "guide-graph.png"},
    "guide-spheres": {"runs/day": "guide-spheres.png"},
}

_EXAMPLE = re.compile(
    r"(?P<skip><!-- not recorded -->\n)?```(?P<kind>python|sh)\n(?P<code>.*?)```\n"
    r"(?P<open>\n```text\n)?(?(open).*?```\n)",
    re.DOTALL,
)


def pages_with_examples() -> dict[str, Path]:
    """README, the home page of the site and guides, by the names that results use."""
    guides = sorted((ROOT / "docs").glob("guide-*.md"))
    return {path.stem: path for path in (ROOT / "README.md", ROOT / "docs" / "index.md", *guides)}


def run_page(text: str, change: Callable[[str], str] = str) -> Record:
    """Run the examples of a page in the present folder, each as `change` turns it; returns code and output."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for example in _EXAMPLE.finditer(text):
        if example["skip"]:
            continue
        with _captured() as stream:
            if example["kind"] == "python":
                exec(compile(change(example["code"]), "example", "exec"), names)
            else:
                for line in example["code"].splitlines():
                    run_command(change(line))
        found.append({"code": example["code"], "printed": _tidy(stream.getvalue())})
    return found


def unrecorded(text: str, recorded: bool = True) -> str:
    """Return a page of the examples alone that are not run when the outputs of a page are recorded.

    All examples, for a page whose outputs are not.
    """
    found = (example for example in _EXAMPLE.finditer(text) if example["skip"] or not recorded)
    return "".join(f"```{example['kind']}\n{example['code']}```\n" for example in found)


@contextmanager
def _captured() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with patch.dict(os.environ, COLUMNS="118"), redirect_stdout(stream), redirect_stderr(stream):
        yield stream


def run_command(line: str) -> None:
    """Run a line of a shell: `curvae` in this process, others in one of their own."""
    words = shlex.split(line, comments=True)
    if words[:1] != ["curvae"]:
        if words:
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return
    with patch.object(sys, "argv", words):
        try:
            commands.main()
            code: str | int | None = 0
        except SystemExit as end:
            code = end.code
    if bool(code) != ("# refused" in line):
        raise RuntimeError(f"{line} ended with exit code {code}")


def _tidy(text: str) -> str:
    """Without progress bars, blank lines and blanks at ends of lines."""
    lines = (line.rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and "━" not in line)


def record(name: str) -> Record:
    """Run the examples of a page in a folder of their own; its pictures become those of the guides: `demo-*.png`, and
    maps of runs that `_MAPS` names."""
    text = pages_with_examples()[name].read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        found = run_page(text)
        for picture in Path().glob("demo-*.png"):
            shutil.copy(picture, IMAGES / picture.name)
        for run, picture_name in _MAPS.get(name, {}).items():
            shrink(Image.open(Path(run, "map.png")), IMAGES / picture_name)
    return found


def shrink(picture: Image.Image, path: Path) -> None:
    # An octree keeps colours that few dots have, which the median cut would merge with others.
    picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def fill_outputs(text: str, found: Record) -> str:
    """Return the page with the outputs of its examples as recorded; raise when the examples have changed since."""
    records = iter(found)

    def output(example: re.Match[str]) -> str:
        if example["skip"]:
            return example[0]
        known = next(records, None)
        if known is None or known["code"] != example["code"]:
            raise ValueError(f"this example has not been run since it was changed:\n{example['code']}")
        if example["open"] is None:
            return example[0]
        return f"```{example['kind']}\n{example['code']}```\n\n```text\n{known['printed']}```\n"

    return _EXAMPLE.sub(output, text)


def demonstration() -> dict[str, Any]:
    """Return the figures of `curvae demo`; its two maps of the tree become `docs/images/demo.png`."""
    with tempfile.TemporaryDirectory() as folder:
        _, found = demonstrate(Path(folder))
    tree, result = branching_diffusion(), next(iter(found.values()))
    maps = [
        Image.open(io.BytesIO(pages.map_picture(result.embeddings[c], tree.dataset().labels, title, tree).png))
        for c, title in ((0.0, "ordinary VAE"), (result.best, "Poincaré VAE"))
    ]
    both = Image.new("RGB", (sum(picture.width for picture in maps), max(picture.height for picture in maps)), "white")
    both.paste(maps[0], (0, 0))
    both.paste(maps[1], (maps[0].width, 0))
    shrink(both, IMAGES / "demo.png")
    figures = {name: part.to_json() for name, part in found.items()}
    return {"command": "curvae demo --json", "versions": versions(), **figures}
