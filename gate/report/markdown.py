"""The Markdown report, for step summaries and release notes."""

from __future__ import annotations

import re

from gate.release import Record
from gate.report.rows import HEADLINES, clean, rows
from gate.report.templates import environment

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&@:$=^\"'/])")


def escape(text: str) -> str:
    """Text that renders as itself: no table break, HTML, link, mention, emphasis or command comes of it.

    Markdown has no escaping of its own for all of these, so every special character becomes an entity.
    """
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", clean(text))


def render(record: Record) -> str:
    template = environment(escape).get_template("report.md")
    return template.render(record=record, rows=rows(record), headline=HEADLINES[record.outcome])
