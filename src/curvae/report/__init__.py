"""The one report template: plain data in, a self-contained HTML page out."""

from .page import Picture, Report, Section, Table, bibtex, citation

__all__ = ["Picture", "Report", "Section", "Table", "bibtex", "citation"]
