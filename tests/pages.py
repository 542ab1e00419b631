"""Pages taken apart."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["VOID", "Page"]

VOID = {"img", "link", "meta"}


class Page(HTMLParser):
    """A page taken apart; fails when elements do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self._open[-1], data.strip()))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def said(self, tag):
        return [text for name, text in self.texts if name == tag]
