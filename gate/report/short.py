"""Writes the verdict in at most 500 characters, for chats and titles."""

from __future__ import annotations

from html import escape

from gate.record import Record
from gate.report.numbers import clean
from gate.report.rows import each_remedy, headline, in_order, plain_reason, word_row
from gate.report.templates import shortened

MAX_CHARACTERS = 500


def render(record: Record) -> str:
    """Write the verdict, why, and what to do if something blocks."""
    blocking = [word_row(finding) for finding in in_order(record.findings) if finding.blocks]
    remedies = each_remedy(blocking)
    said = [headline(record), clean(plain_reason(record))]
    several = [f"{', '.join(row.check for row in rows[:3])}: {remedy}" for remedy, rows in remedies[:3]]
    said += [f"What to do: {remedies[0][0] if len(remedies) == 1 else '; '.join(several)}"] if remedies else []
    return shortened(". ".join(said) + ".", MAX_CHARACTERS - 1) + "\n"


def render_html(record: Record) -> str:
    """Write the same text as HTML for a notebook."""
    return f"<p><strong>{escape(headline(record))}</strong><br>{escape(clean(plain_reason(record)))}.</p>"
