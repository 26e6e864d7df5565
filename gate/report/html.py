"""The HTML report: one file, no scripts, no network, readable without its style sheet."""

from __future__ import annotations

from gate.release import Record
from gate.report.rows import HEADLINES, clean, notes, rows
from gate.report.templates import environment


def render(record: Record) -> str:
    template = environment(clean).get_template("report.html")
    return template.render(record=record, rows=rows(record), notes=notes(record), headline=HEADLINES[record.outcome])
