"""Results as pages: sections made for HTML, written as Markdown too, and cells of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..report import Table
from .experiment import FIGURES, Page

__all__ = ["LEGEND", "SIGNS", "interval_text", "markdown", "number", "p_text", "requirements_table", "table_lines"]

SIGNS = {"better": "▲", "equal": "=", "worse": "▼"}
LEGEND = (
    "▲ better, = no significant difference, ▼ worse than the paper's figure (Welch's test at 5 %, the paper's variance "
    "from its printed interval)."
)


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """With a true minus sign."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def interval_text(value: Mapping[str, Any] | None, digits: int = 2) -> str:
    """ "57.02 ± 0.14" from mean and half-width, with a dash for what is not known."""
    if value is None or value.get("mean") is None:
        return "–"
    half = value.get("half")
    return number(value["mean"], digits) + ("" if half is None else f" ± {half:.{digits}f}")


def p_text(p: float | None) -> str:
    """A p-value as people write it.

    Example:
        >>> p_text(0.034), p_text(1e-9)
        ('0.034', '< 0.0001')
    """
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def requirements_table(requirements: Sequence[Mapping[str, Any]]) -> Table:
    """What had to be shown, and whether it was."""
    rows = [[str(r["what"]), str(r["found"]), "yes" if r["holds"] else "no"] for r in requirements]
    return Table(["to be shown", "found", "holds"], rows)


def markdown(title: str, page: Page, note: str, files: Mapping[int, str]) -> str:
    """The page as Markdown; `files` says where each picture lies."""
    lines = [f"# {title}", "", page.verdict, ""]
    for warning in page.warnings:
        lines += [f"> {warning}", ""]
    for section in page.sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.text:
            lines += [paragraph, ""]
        for picture in section.pictures:
            lines += [f"![{picture.alt}]({files[id(picture)]})", "", picture.caption, ""]
        for table in section.tables:
            lines += [*table_lines(table), ""]
            if table.note:
                lines += [table.note, ""]
    for name, caption in page.gallery.items():
        lines += [f"![{caption}]({FIGURES}/{name})", "", caption, ""]
    return "\n".join([*lines, note, ""])


def table_lines(table: Table) -> list[str]:
    """A table in Markdown."""
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]
