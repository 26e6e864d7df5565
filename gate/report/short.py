"""The verdict in at most 500 characters, for chats and titles."""

from __future__ import annotations

from html import escape

from gate.record import Record
from gate.report.numbers import clean
from gate.report.rows import headline, in_order, plain_reason
from gate.report.templates import shortened

MAX_CHARACTERS = 500


def render(record: Record) -> str:
    """The verdict, why, and what to do where something blocks."""
    remedies = [clean(finding.remedy) for finding in in_order(record.findings) if finding.blocks and finding.remedy]
    said = [headline(record), clean(plain_reason(record))]
    said += [f"What to do: {remedies[0]}"] if remedies else []
    return shortened(". ".join(said) + ".", MAX_CHARACTERS - 1) + "\n"


def render_html(record: Record) -> str:
    """The same for a notebook."""
    return f"<p><strong>{escape(headline(record))}</strong><br>{escape(clean(plain_reason(record)))}.</p>"
