"""What a page holds: its tags, its text, the words of its figures."""

from __future__ import annotations

import hashlib
import re
from html import escape
from html.parser import HTMLParser


def figures_as_text(page: str) -> str:
    """The page with the words of each figure in its place: how lines are drawn is matplotlib's, and changes with it."""

    def words(match: re.Match[str]) -> str:
        return "<svg>\n" + "\n".join(re.findall(r">([^<>]*[^<>\s])<", match[0])) + "\n</svg>"

    return re.sub(r"<svg.*?</svg>", words, page, flags=re.DOTALL)


def stand_in(display: object, name: str, title: str = "", description: str = "", standalone: bool = False) -> str:
    """A substitute for a figure if no test looks at it: other words or numbers give other bytes, as in the figure."""
    shown = hashlib.sha256(repr(vars(display)).encode()).hexdigest()
    return f'<svg role="img"><title>{escape(title)}</title><desc>{escape(description)}</desc><g id="{shown}" /></svg>'


class Elements(HTMLParser):
    """Every tag with its attributes, in order, and every comment, declaration and piece of text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[object] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("declaration", decl))

    def handle_pi(self, data: str) -> None:
        self.tags.append(("instruction", data))

    def unknown_decl(self, data: str) -> None:
        self.tags.append(("unknown", data))
