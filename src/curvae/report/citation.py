"""How to cite the software and the paper whose model it implements, as in CITATION.cff."""

from __future__ import annotations

__all__ = ["PAPER", "PAPER_URL", "bibtex", "citation", "software"]

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


def _version() -> str:
    # Not at the top: the package sets its version after importing its parts, of which this file may be one.
    from .. import __version__

    return __version__


def software() -> str:
    """The reference of the software alone."""
    return f"The Curvae authors. Curvae, version {_version()}. Software."


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
    title = _TITLE.replace("Poincaré Variational Auto-Encoders", r"{Poincar\'e} Variational Auto-Encoders")
    return f"""\
@misc{{curvae,
  author = {{{{The Curvae authors}}}},
  title = {{{{Curvae}}}},
  note = {{Software, version {_version()}}}
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
