"""The jinja2 templates; `*.html` is autoescaped, and text from outside goes through the `safe_text` filter."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import jinja2

from gate.report.numbers import clean, grouped

_PROSE = re.compile(r"<(p|li|figcaption|small)\b.*?</\1>", re.DOTALL)
_OPTION = re.compile(r"(<[^>]*>)|(?<![\w-])\(?--[a-z][a-z-]*")  # a tag, with all that is in it, is left as it is


@cache
def template(
    name: str, escape: Callable[[str], str], verbatim: Callable[[str], str], characters: int
) -> jinja2.Template:
    """Return a template that cuts texts from outside after so many characters, and then escapes them."""

    def safe_text(text: str) -> str:
        return escape(shortened(clean(text), characters))

    env = jinja2.Environment(
        loader=jinja2.PackageLoader("gate.report", "templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["safe_text"] = safe_text
    env.filters["sentence"] = lambda text: safe_text(f"{text[:1].upper()}{text[1:]}")
    env.filters["verbatim"] = lambda text: verbatim(shortened(clean(text), characters))
    env.filters["tied"] = tied
    env.filters["count"] = grouped
    return env.get_template(name)


def tied(page: str) -> str:
    """Tie the sentences of a page: no line ends between a number and its percent sign, or inside an option's name."""
    return _PROSE.sub(lambda prose: _OPTION.sub(_whole, prose[0].replace(" %", "&nbsp;%")), page)


def _whole(found: re.Match[str]) -> str:
    return found[1] or f'<span class="whole">{found[0]}</span>'


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
