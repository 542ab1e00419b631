"""The report is a well-formed page that shows what it is given, as text, and asks for nothing."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

import curvae
from curvae.errors import CurvaeError
from curvae.plotting import figure_bytes
from curvae.report import Picture, Report, Section, Table, bibtex, citation
from pages import VOID, Page
from paths import ROOT

ALLOWED = {
    *VOID,
    *("html", "head", "title", "style", "body", "h1", "h2", "p", "a", "pre", "aside", "ul", "li", "section", "details"),
    *(
        "summary",
        "div",
        "figure",
        "figcaption",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "footer",
        "dl",
        "dt",
        "dd",
    ),
}


@pytest.fixture(scope="module")
def png() -> bytes:
    return figure_bytes(Figure(figsize=(1, 1)))


@pytest.fixture(scope="module")
def svg() -> bytes:
    return figure_bytes(Figure(figsize=(1, 1)), "svg")


def report(**changes) -> Report:
    plain = Report(
        title="Cells",
        verdict="No detectable difference; use curvature 0.",
        tone="neutral",
        warnings=["KL is 0.02 nat; train longer with --epochs 400."],
        sections=[Section("The map", ["Each dot is a row."]), Section("Data", ["All columns kept."], collapsed=True)],
        command="curvae compare cells.csv --seed 7",
        versions={"curvae": "0.1.0", "torch": "2.13.0"},
        seed=1234567,
        created="2026-01-31 14:05",
    )
    return replace(plain, **changes)


@pytest.fixture
def full(png, svg) -> Report:
    table = Table(["model", "nats"], [["PCA", "−71.2"], ["Poincaré VAE", "−56.1"]], note="5000 samples.", best=1)
    pictures = [
        Picture(png, "Left", "left disc"),
        Picture(svg, "Right", "right disc"),
        Picture(png, "", "curves", True),
    ]
    return report(sections=[Section("First", ["One.", "Two."], pictures, [table]), Section("Second", tables=[table])])


def test_page_is_well_formed_and_repeatable(full):
    text = full.html()
    assert text.startswith("<!DOCTYPE html>\n<html")
    assert text.encode() == full.html().encode()
    page = Page(text)
    assert {name for name, _ in page.tags} <= ALLOWED
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("meta")[0] == {"charset": "utf-8"}


def test_page_asks_for_nothing(full):
    text = full.html()
    page = Page(text)
    for name, attributes in page.tags:
        for key in ("src", "href"):
            link = attributes.get(key) or "data:"
            assert link.startswith("data:") or (name == "a" and link.startswith("https://arxiv.org/abs/"))
    assert not re.search(r"url\(|@import|https?:", "".join(page.said("style")))
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "script-src" not in policy
    # A page without an icon makes browsers ask for one.
    assert {"rel": "icon", "href": "data:,"} in page.all("link")


def test_everything_given_is_shown_as_text(png):
    seen = []

    def hostile(field: str) -> str:
        seen.append(
            f"""'"/></p></td></pre></title><script>alert("{field}")</script><img src=x onerror=y> &amp; {field}"""
        )
        return seen[-1]

    table = Table([hostile("head"), hostile("head 2")], [[hostile("name"), hostile("cell")]], hostile("note"))
    alt = hostile("alt")
    shown = Section(hostile("section"), [hostile("text")], [Picture(png, hostile("caption"), alt)], [table])
    folded = Section(hostile("folded"), [hostile("folded text")], collapsed=True, command=hostile("section command"))
    page = Page(
        report(
            title=hostile("title"),
            verdict=hostile("verdict"),
            warnings=[hostile("warning")],
            sections=[shown, folded],
            command=hostile("command"),
            versions={hostile("software"): hostile("version")},
            seed=hostile("seed"),
            created=hostile("date"),
            following=hostile("next command"),
        ).html()
    )
    assert {name for name, _ in page.tags} <= ALLOWED
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert [image["alt"] for image in page.all("img")] == [alt]
    visible = "\n".join(text for _, text in page.texts)
    assert [text for text in seen if text not in visible] == [alt]


def test_names_that_are_no_unicode_can_be_written():
    name = b"caf\xe9.csv".decode("utf-8", "surrogateescape")
    assert rb"caf\udce9.csv" in report(title=name).html().encode("utf-8")


def test_order_of_the_page(full):
    text = "\n".join(data for _, data in Page(full.html()).texts)
    expected = [
        *(full.title, full.verdict, *full.warnings, "First", "One.", "Two.", "Left", "Right", "PCA", "5000 samples."),
        *("Second", full.command, "torch 2.13.0", str(full.seed), "The Curvae authors", "Emile Mathieu", "@misc"),
        full.created,
    ]
    body = text[text.rindex(full.title) :]  # past the head
    places = [body.index(part) for part in expected]
    assert places == sorted(places)


def test_what_is_empty_is_left_out():
    nothing = [Section("Void"), Section("Blank", ["", " "]), Section("No rows", tables=[Table(["a"], [], "note")])]
    page = Page(report(warnings=[], sections=[*nothing, Section("Here", ["Text."])]).html())
    assert page.said("h2") == ["Here", "How this report was made"]
    assert not page.all("aside")
    assert "note" not in page.said("p")


def test_a_section_may_be_a_command_alone():
    page = Page(
        report(sections=[Section("Next", command="curvae fit 'a & b.csv'"), Section("None", command="")]).html()
    )
    assert page.said("pre")[0] == "curvae fit 'a & b.csv'"
    assert page.said("h2") == ["Warning", "Next", "How this report was made"]


def test_pictures_are_found_by_their_names(png):
    named, other = Picture(png, "", "", name="curves"), Picture(png, "", "")
    assert Section("Training", pictures=[other, named, other]).named_pictures == {"curves": named}


def test_warnings_are_counted():
    assert "Warning" in Page(report().html()).said("h2")
    page = Page(report(warnings=["a; mend a", "b; mend b"]).html())
    assert "2 warnings" in page.said("h2") and page.said("li") == ["a; mend a", "b; mend b"]


@pytest.mark.parametrize("tone", ["good", "neutral", "bad"])
def test_tone_colours_the_verdict(tone):
    page = Page(report(tone=tone).html())
    assert {"class": f"verdict {tone}"} in page.all("p")
    assert f".{tone} {{" in "".join(page.said("style"))


def test_collapsed_sections_fold():
    page = Page(report().html())
    assert page.said("summary") == ["BibTeX"] and {"class": "section"} in page.all("details")
    assert page.said("h2") == ["Warning", "The map", "Data", "How this report was made"]


def test_pictures_are_inside_the_page(full, png, svg):
    images = [re.fullmatch("data:(.*);base64,(.*)", image["src"]) for image in Page(full.html()).all("img")]
    assert [(image[1], b64decode(image[2])) for image in images] == [
        ("image/png", png),
        ("image/svg+xml", svg),
        ("image/png", png),
    ]


@pytest.mark.parametrize(("narrow", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (7, 3)])
def test_pictures_stand_side_by_side(png, narrow, columns):
    pictures = [Picture(png, "wide", "", wide=True), *[Picture(png, "", "")] * narrow]
    page = Page(report(sections=[Section("Maps", pictures=pictures)]).html())
    assert {"class": f"pictures columns-{columns}"} in page.all("div")
    assert page.all("figure") == [{"class": "wide"}, *[{}] * narrow]
    assert page.said("figcaption") == ["wide"]


def test_tables_align_numbers_and_mark_the_best_row():
    rows = [["0", "−71.2 ± 0.3", "–", "3 of 5", "nan", "inference"], ["1", "< 0.01", "+2", "all", " inf", "3"]]
    page = Page(report(sections=[Section("T", tables=[Table(list("abcdef"), rows, best=0)])]).html())
    number = {"class": "number"}
    assert page.all("td") == 2 * [number, number, {}, number, {}]
    heads = [{"scope": "col", **extra} for extra in ({}, number, number, {}, number, {})]
    assert [head for head in page.all("th") if head["scope"] == "col"] == heads
    assert page.all("tr") == [{}, {"class": "best"}, {}]
    assert page.said("td") == [cell.strip() for row in rows for cell in row[1:]]


def test_tables_of_many_columns_may_be_wider_than_the_text():
    tables = [Table(list("abcdef")[:columns], [["1"] * columns]) for columns in (5, 6)]
    page = Page(report(sections=[Section("T", tables=tables)]).html())
    assert [div for div in page.all("div") if "scroll" in div.get("class", "")] == [
        {"class": "scroll"},
        {"class": "scroll wide"},
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Picture(b"GIF89a...", "", ""),
            r"PNG or SVG file, got 9 bytes that begin with b'GIF89a\.\.'.*figure_byt",
        ),
        (lambda: Picture(b"", "", ""), "got 0 bytes"),
        (lambda: Table(["a", "b"], [["1", "2"], ["3"]]), "row 1 of a table has 1 cells for 2 headings"),
        (lambda: Table(["a"], [["1"]], best=1), "best = 1 is no row of a table with 1"),
        (lambda: Table(["a"], [["1"]], best=-1), "best = -1"),
        (lambda: Section("s", "one text"), "text must be a sequence of texts, got the text 'one text'"),
        (lambda: report(warnings="careful"), "warnings must be a sequence"),
        (lambda: report(tone="great"), "tone = 'great' is not known; give one of good, neutral, bad"),
    ],
)
def test_mistakes_are_said_in_one_line(make, message):
    with pytest.raises(CurvaeError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_citations_agree_with_the_citation_file():
    file = (ROOT / "CITATION.cff").read_text("utf-8")
    software, paper = citation().splitlines()
    entries = bibtex()

    def field(key):
        return re.findall(rf"^\W*{key}: (.*)$", file, re.MULTILINE)

    assert field("version") == [curvae.__version__]
    assert curvae.__version__ in software and f"version {curvae.__version__}}}" in entries
    assert field("name") == ["The Curvae authors"] and "The Curvae authors" in software
    assert field("title")[0] == "Curvae" and field("title")[1] in paper
    names = list(zip(field("given-names"), field("family-names"), strict=True))
    assert paper.startswith(", ".join(f"{given} {family}" for given, family in names) + ". ")
    assert " and ".join(f"{family}, {given}" for given, family in names) in entries


def test_bibtex_is_ascii_and_its_braces_close():
    entries = bibtex()
    assert entries.isascii() and entries.count("{") == entries.count("}")
    assert re.findall(r"^@(\w+){", entries, re.MULTILINE) == ["misc", "inproceedings"]
    for entry in entries.strip().split("\n\n"):
        head, *fields, end = entry.splitlines()
        assert re.fullmatch(r"@\w+{\w+,", head) and end == "}"
        assert all(re.fullmatch(r"  \w+ = {.+},?", field) for field in fields)
        assert all(field.endswith("},") for field in fields[:-1]) and fields[-1].endswith("}")
        assert sum(bool(re.fullmatch(r"  year = {20\d\d},", field)) for field in fields) == 1
    assert f"year = {{{curvae._YEAR}}}" in entries and f"({curvae._YEAR})" in citation()
    assert entries in Page(report().html()).said("pre")[-1] + "\n"
