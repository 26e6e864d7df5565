"""The Markdown report, for step summaries and release notes."""

from __future__ import annotations

import re

from gate.release import Record
from gate.report.rows import HEADLINES, clean, notes, rows
from gate.report.templates import environment

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&$^]|:(?! )|(?<=\bwww)\.", re.IGNORECASE)
_REFERENCE = re.compile(r"(?<!\w)@(?=\w)|#(?=\d)")
_ZERO_WIDTH_SPACE = "&#8203;"


def escape(text: str) -> str:
    """Text that renders as itself: no table break, HTML, link, mention, emphasis or command comes of it.

    Markdown has no escaping of its own for all of these, so the characters that start them become entities.
    GitHub looks for `@name` and `#1` in the finished page, where an entity is the character itself: a space of no
    width parts those.
    """
    parted = _REFERENCE.sub(lambda match: f"{match[0]}\0", clean(text))
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", parted).replace("\0", _ZERO_WIDTH_SPACE)


def render(record: Record) -> str:
    template = environment(escape).get_template("report.md")
    return template.render(record=record, rows=rows(record), notes=notes(record), headline=HEADLINES[record.outcome])
