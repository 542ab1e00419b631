"""The one report template: plain data in, a self-contained HTML page out."""

from .citation import bibtex, citation
from .page import Picture, Report, Section, Table

__all__ = ["Picture", "Report", "Section", "Table", "bibtex", "citation"]
