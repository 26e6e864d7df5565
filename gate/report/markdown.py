"""The Markdown report, for step summaries and release notes."""

from __future__ import annotations

import re
from typing import Any

from gate.record import Record
from gate.report.changes import Changes
from gate.report.numbers import clean
from gate.report.page import Limit, fitting, forest, parts
from gate.report.templates import template

MAX_BYTES = 60_000

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&$^]|:(?! )|(?<=\bwww)\.", re.IGNORECASE)
_REFERENCE = re.compile(r"(?<!\w)@(?=\w)|#(?=\d)")
_ZERO_WIDTH_SPACE = "&#8203;"


def escape(text: str) -> str:
    """Escape text so that it shows as it is written: it makes no table break, HTML, link, mention, emphasis or command.

    Markdown has no escaping of its own for all of these, so the characters that start them become entities.
    GitHub looks for `@name` and `#1` in the finished page, where entities are characters again: a space of no
    width divides those.
    """
    parted = _REFERENCE.sub(lambda match: f"{match[0]}\0", clean(text))
    return verbatim(parted).replace("\0", _ZERO_WIDTH_SPACE)


def verbatim(text: str) -> str:
    """Escape text inside `<pre>`, where GitHub looks for no references: what one copies from it must be the text."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text)


def render(record: Record) -> str:
    return fitting(lambda limit: _render(record, limit), MAX_BYTES)


def render_changes(changed: Changes, record: Record) -> str:
    """Show two releases side by side, without a verdict."""

    def page(limit: Limit) -> str:
        lists: dict[str, list[Any]] = {}
        lists |= {
            "changed_rows": changed.rows,
            "changed_detection": changed.detection,
            "policy_changes": changed.policy,
        }
        shown = {name: entries[: limit.entries] for name, entries in lists.items()}
        more = {f"{name}_more": max(0, len(entries) - limit.entries) for name, entries in lists.items()}
        text = template("compare.md", escape, verbatim, limit.characters)
        return text.render(record=record, changed=changed, **shown, **more)

    return fitting(page, MAX_BYTES)


def _render(record: Record, limit: Limit) -> str:
    page = template("report.md", escape, verbatim, limit.characters)
    return page.render(parts(record, limit), forest=forest(record, limit.entries))
