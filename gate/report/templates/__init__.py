"""The jinja2 templates; `*.html` is autoescaped, and text from outside goes through the `safe_text` filter."""

from __future__ import annotations

from collections.abc import Callable

import jinja2

from gate.report.rows import spaced


def environment(safe_text: Callable[[str], str]) -> jinja2.Environment:
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
    env.filters["count"] = spaced
    return env
