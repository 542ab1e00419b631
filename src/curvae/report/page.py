"""What a report is made of, and the page it becomes.

The page asks for nothing: style and pictures lie inside it, and its policy forbids requests, and scripts but the one
that moves its maps.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import CurvaeError
from ..viewer.markup import Html, tag

if TYPE_CHECKING:
    from ..viewer import View

__all__ = ["Picture", "Report", "Section", "Table", "Tone", "bibtex", "citation"]

Tone = Literal["good", "neutral", "bad"]

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
# A sign or a bound, then a digit; or nothing to tell.
_NUMBER = re.compile(r"[-−+±<>≤≥≈~ ]*(\.?\d|inf\b|nan\b)|[-−–—\s]*$", re.IGNORECASE)
# Columns of a table that may be wider than the text.
_MANY = 6

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
        live: the same as a map that can be moved, shown in its place where scripts run.
    """

    png: bytes
    caption: str
    alt: str
    wide: bool = False
    live: View | None = None

    def __post_init__(self) -> None:
        if self._type() is None:
            raise CurvaeError(
                f"a picture must be the bytes of a PNG or SVG file, got {len(self.png)} bytes that begin with "
                f"{self.png[:8]!r}; make them with curvae.plotting.figure_bytes"
            )

    def _type(self) -> str | None:
        if self.png.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png"
        return "image/svg+xml" if re.match(rb"\s*<(\?xml|!DOCTYPE svg|svg)\b", self.png) else None

    def _html(self) -> Html:
        data = base64.b64encode(self.png).decode("ascii")
        still = None if self.live is None else "still"
        image = tag("img", src=f"data:{self._type()};base64,{data}", alt=self.alt, class_=still)
        if self.live is not None:
            image = Html(self.live.fragment(image))
        caption = [tag("figcaption", self.caption)] if self.caption else []
        return tag("figure", image, *caption, class_="wide" if self.wide else None)


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

    def _html(self) -> Html:
        kinds = [
            "number" if k and all(_NUMBER.match(row[k]) for row in self.rows) else None for k in range(len(self.header))
        ]
        head = [tag("th", cell, scope="col", class_=kind) for cell, kind in zip(self.header, kinds, strict=True)]
        body = [
            tag(
                "tr",
                tag("th", row[0], scope="row"),
                *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
                class_="best" if index == self.best else None,
            )
            for index, row in enumerate(self.rows)
        ]
        table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", _lines(*body)))
        note = [tag("p", self.note, class_="note")] if self.note else []
        kind = "scroll wide" if len(self.header) >= _MANY else "scroll"
        return tag("div", tag("div", table, class_=kind), *note, class_="table")


@dataclass(frozen=True)
class Section:
    """A section of a report: paragraphs, a command, pictures, tables. One that holds nothing is left out.

    Arguments:
        title: its heading.
        text: paragraphs.
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
        _refuse_single("text", self.text)

    def _html(self) -> Html | None:
        blocks = [tag("p", paragraph) for paragraph in self.text if paragraph.strip()]
        if self.command:
            blocks.append(tag("pre", self.command))
        if self.pictures:
            narrow = sum(not picture.wide for picture in self.pictures)
            columns = 2 if narrow in (2, 4) else min(narrow, 3)
            pictures = _lines(*(picture._html() for picture in self.pictures))
            blocks.append(tag("div", pictures, class_=f"pictures columns-{columns}"))
        blocks += [table._html() for table in self.tables if table.rows]
        if not blocks:
            return None
        title = tag("h2", self.title)
        if self.collapsed:
            return tag("details", tag("summary", title), _lines(*blocks), class_="section")
        return tag("section", title, _lines(*blocks))


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
        _refuse_single("warnings", self.warnings)
        if self.tone not in get_args(Tone):
            raise CurvaeError(f"tone = {self.tone!r} is not known; give one of {', '.join(get_args(Tone))}")

    def html(self) -> str:
        """The page, the same for the same report; write it to a file in UTF-8."""
        style, policy, scripts = resources.files(__package__).joinpath("style.css").read_text("utf-8"), _POLICY, []
        if any(picture.live is not None for section in self.sections for picture in section.pictures):
            from .. import viewer  # which draws, so that it takes long to import

            style += viewer.style()
            policy += f"; script-src {viewer.policy(viewer.script())}"
            scripts.append(tag("script", Html(viewer.script())))
        head = _lines(
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", self.title),
            tag("link", rel="icon", href="data:,"),  # or a browser asks the server for one
            tag("style", Html(style)),
        )
        sections = [html for html in (section._html() for section in self.sections) if html is not None]
        body = _lines(
            tag("h1", self.title),
            tag("p", self.verdict, class_=f"verdict {self.tone}"),
            *([tag("pre", self.following)] if self.following else []),
            *self._warnings(),
            *sections,
            self._footer(),
            *scripts,
        )
        return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"

    def _warnings(self) -> list[Html]:
        if not self.warnings:
            return []
        title = "Warning" if len(self.warnings) == 1 else f"{len(self.warnings)} warnings"
        return [tag("aside", tag("h2", title), tag("ul", _lines(*(tag("li", text) for text in self.warnings))))]

    def _footer(self) -> Html:
        versions = " · ".join(f"{name} {version}" for name, version in self.versions.items())
        cite = (
            tag("p", software()),
            tag("p", f"{PAPER} ", tag("a", PAPER_URL, href=PAPER_URL)),
            tag("details", tag("summary", "BibTeX"), tag("pre", bibtex())),
        )
        facts = (
            ("Command", (tag("pre", self.command),)),
            ("Versions", (versions,)),
            ("Seed", (str(self.seed),)),
            ("To cite", cite),
            ("Date", (self.created,)),
        )
        entries = _lines(*(entry for name, value in facts for entry in (tag("dt", name), tag("dd", *value))))
        return tag("footer", tag("h2", "How this report was made"), tag("dl", entries))


def _lines(*blocks: Html) -> Html:
    """Blocks of HTML, each on a line of its own."""
    return Html("\n".join(("", *blocks, "")))


def _refuse_single(name: str, texts: Sequence[str]) -> None:
    # A text is a sequence of texts too, one a letter.
    if isinstance(texts, str):
        raise CurvaeError(f"{name} must be a sequence of texts, got the text {texts[:40]!r}; put it in a list")


# --- how to cite ------------------------------------------------------------------------------------------------------


def _release() -> tuple[str, int]:
    """Return version and year."""
    # Not at the top: the package sets its version after importing its parts, of which this file may be one.
    from .. import _YEAR, __version__

    return __version__, _YEAR


def software() -> str:
    """Return the reference of the software alone."""
    version, year = _release()
    return f"The Curvae authors ({year}). Curvae, version {version}. Software."


def citation() -> str:
    """The references of the software and of the paper as plain text, one a line.

    Example:
        >>> software, paper = citation().splitlines()
        >>> paper[:31]
        'Emile Mathieu, Charline Le Lan,'
    """
    return f"{software()}\n{PAPER} {PAPER_URL}"


def bibtex() -> str:
    """The two references as BibTeX entries, in ASCII.

    Example:
        >>> print(bibtex()[:13])
        @misc{curvae,
    """
    # Braces keep capitals that a bibliography style would lower; @misc is known to BibTeX and biblatex alike.
    version, year = _release()
    title = _TITLE.replace("Poincaré Variational Auto-Encoders", r"{Poincar\'e} Variational Auto-Encoders")
    return f"""\
@misc{{curvae,
  author = {{{{The Curvae authors}}}},
  title = {{{{Curvae}}}},
  year = {{{year}}},
  note = {{Software, version {version}}}
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
