"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["app", "main"]

app = typer.Typer(
    name="curvae",
    help="Learn hierarchies with variational auto-encoders in curved latent spaces.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
console = Console()


@app.callback()
def _root() -> None:
    """Learn hierarchies with variational auto-encoders in curved latent spaces."""


@app.command(epilog="Example: curvae demo -o pictures")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the pictures.")] = Path("demo"),
) -> None:
    """Draw the geometry that everything rests on: a tree, geodesics, both normals, hyperplanes."""
    from .paper.figures import save

    for path in save(output):
        console.print(f"wrote {path}")


def main() -> None:
    """Entry point of the `curvae` program."""
    app()
