"""What a report is made of, and the page it becomes by the template `page.html`.

The page is self-contained: style and pictures lie inside it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal, get_args

from jinja2 import Environment, PackageLoader

from ..errors import CurvaeError

if TYPE_CHECKING:
    from ..viewer import View

__all__ = ["Picture", "Report", "Section", "Table", "Tone", "bibtex", "citation"]

Tone = Literal["good", "neutral", "bad"]

# A sign or a bound, then a digit; or an empty cell.
_NUMBER = re.compile(r"[-−+±<>≤≥≈~ ]*(\.?\d|inf\b|nan\b)|[-−–—\s]*$", re.IGNORECASE)

_TEMPLATES = Environment(loader=PackageLoader(__package__, ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)

# The paper whose model the software implements, as in CITATION.cff.
_AUTHORS = (
    ("Emile", "Mathieu"),
    ("Charline", "Le Lan"),
    ("Chris J.", "Maddison"),
    ("Ryota", "Tomioka"),
    ("Yee Whye", "Teh"),
)
_TITLE = "Continuous Hierarchical Representations with Poincaré Variational Auto-Encoders"
_VENUE = "Advances in Neural Information Processing Systems"

PAPER = f"{', '.join(' '.join(name) for name in _AUTHORS)}. {_TITLE}. {_VENUE} 32 (NeurIPS 2019), 12565–12576."
PAPER_URL = "https://arxiv.org/abs/1901.06033"


@dataclass(frozen=True)
class Picture:
    """A picture of a report.

    Arguments:
        png: bytes of a PNG file, or of an SVG file; see `curvae.plotting.figure_bytes`.
        caption: shown under it.
        alt: what it shows, for those who cannot see it.
        wide: it takes a row of its own, where others stand side by side.
        live: the same as an interactive map, shown in its place where scripts run.
        name: of its file in a run folder, without the ending; such a file is written only for named pictures.
    """

    png: bytes
    caption: str
    alt: str
    wide: bool = False
    live: View | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.media_type is None:
            raise CurvaeError(
                f"a picture must be the bytes of a PNG or SVG file, got {len(self.png)} bytes that begin with "
                f"{self.png[:8]!r}; make them with curvae.plotting.figure_bytes"
            )

    @property
    def media_type(self) -> str | None:
        """The type of the file; None if it is neither PNG nor SVG."""
        if self.png.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png"
        return "image/svg+xml" if re.match(rb"\s*<(\?xml|!DOCTYPE svg|svg)\b", self.png) else None

    @property
    def url(self) -> str:
        """A URL that holds the file itself."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.png).decode('ascii')}"


@dataclass(frozen=True)
class Table:
    """A table of a report. The first column names the rows; columns of numbers are set to the right.

    Arguments:
        header: a heading for each column.
        rows: as many cells each as there are headings.
        note: shown under it.
        best: index of the row to highlight.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: int | None = None

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise CurvaeError(
                    f"row {index} of a table has {len(row)} cells for {len(self.header)} headings; give one for each"
                )
        if self.best is not None and not 0 <= self.best < len(self.rows):
            raise CurvaeError(
                f"best = {self.best} is no row of a table with {len(self.rows)}; count from 0, or give None"
            )

    @property
    def number_columns(self) -> list[int]:
        """Indices of the columns after the first whose cells are all numbers or empty."""
        return [k for k in range(1, len(self.header)) if all(_NUMBER.match(row[k]) for row in self.rows)]


@dataclass(frozen=True)
class Section:
    """A section of a report: paragraphs, a command, pictures, tables. One that holds nothing is left out.

    Arguments:
        title: its heading.
        text: paragraphs; empty ones are left out.
        pictures: side by side, unless they are wide.
        tables: one under the other; those without rows are left out.
        collapsed: show only the heading until the reader opens it.
        command: to type, which the last paragraph speaks of; it stands by itself, to be copied whole.
    """

    title: str
    text: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    collapsed: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.text, str):  # which is a sequence of texts too, one a letter
            raise CurvaeError(f"text must be a sequence of texts, got the text {self.text[:40]!r}; put it in a list")

    @property
    def named_pictures(self) -> dict[str, Picture]:
        """The pictures that have a file of their own in a run folder, by its name."""
        return {picture.name: picture for picture in self.pictures if picture.name}


@dataclass(frozen=True)
class Report:
    """A report, and the self-contained page it becomes. All text is shown as it is: nothing in it is markup.

    Arguments:
        title: of the page.
        verdict: what was found, in plain words.
        tone: whether the verdict is good news.
        warnings: each a sentence with the cause and the fix.
        sections: in order.
        command: that makes the same report again.
        versions: of the software, by name.
        seed: of all randomness.
        created: when the report was made.
        following: command to run next, shown under the verdict; none by default.

    Example:
        >>> report = Report("Digits", "The map is empty.", "bad", ["KL is 0.02 nat; train longer."], [],
        ...                 "curvae fit digits.csv", {"curvae": "0.1.0"}, 0, "2026-01-31")
        >>> page = report.html()
        >>> "The map is empty." in page and "<script" not in page
        True
    """

    title: str
    verdict: str
    tone: Tone
    warnings: Sequence[str]
    sections: Sequence[Section]
    command: str
    versions: Mapping[str, str]
    seed: int
    created: str
    following: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.warnings, str):
            raise CurvaeError(
                f"warnings must be a sequence of texts, got the text {self.warnings[:40]!r}; put it in a list"
            )
        if self.tone not in get_args(Tone):
            raise CurvaeError(f"tone = {self.tone!r} is not known; give one of {', '.join(get_args(Tone))}")

    def html(self) -> str:
        """Return the page, the same for the same report; write it to a file in UTF-8."""
        style, script, script_hash = resources.files(__package__).joinpath("style.css").read_text("utf-8"), "", ""
        if any(picture.live is not None for section in self.sections for picture in section.pictures):
            from .. import viewer  # which draws, so that it takes long to import

            style, script = style + viewer.style(), viewer.script()
            script_hash = viewer.policy(script)
        page = _TEMPLATES.get_template("page.html").render(
            report=self,
            style=style,
            script=script,
            script_hash=script_hash,
            software=software(),
            paper=PAPER,
            paper_url=PAPER_URL,
            bibtex=bibtex(),
        )
        # A file name that is no UTF-8 has surrogates, which cannot be written; they become escapes.
        return f"{page.lstrip()}\n".encode("utf-8", "backslashreplace").decode("utf-8")


# --- how to cite ------------------------------------------------------------------------------------------------------


def software() -> str:
    """Return the reference of the software alone."""
    # Not at the top: the package sets its version after importing its parts, of which this file may be one.
    from .. import _YEAR, __version__

    return f"The Curvae authors ({_YEAR}). Curvae, version {__version__}. Software."


def citation() -> str:
    """Return the references of the software and of the paper as plain text, one a line.

    Example:
        >>> software, paper = citation().splitlines()
        >>> paper[:31]
        'Emile Mathieu, Charline Le Lan,'
    """
    return f"{software()}\n{PAPER} {PAPER_URL}"


def bibtex() -> str:
    """Return the two references as BibTeX entries, in ASCII.

    Example:
        >>> print(bibtex()[:13])
        @misc{curvae,
    """
    from .. import _YEAR, __version__

    # Braces keep capitals that a bibliography style would lower; @misc is known to BibTeX and biblatex alike.
    title = _TITLE.replace("Poincaré Variational Auto-Encoders", r"{Poincar\'e} Variational Auto-Encoders")
    return f"""\
@misc{{curvae,
  author = {{{{The Curvae authors}}}},
  title = {{{{Curvae}}}},
  year = {{{_YEAR}}},
  note = {{Software, version {__version__}}}
}}

@inproceedings{{mathieu2019poincare,
  author = {{{" and ".join(f"{family}, {given}" for given, family in _AUTHORS)}}},
  title = {{{title}}},
  booktitle = {{{_VENUE}}},
  volume = {{32}},
  pages = {{12565--12576}},
  year = {{2019}},
  url = {{{PAPER_URL}}}
}}
"""
