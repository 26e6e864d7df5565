"""The files of a release directory that follow from its record alone."""

from __future__ import annotations

from gate.record import Record


def rendered(record: Record) -> dict[str, bytes]:
    """The files of a release that follow from its record alone."""
    from gate.report import html, junit, markdown, predicate  # only here: a dry run need not wait for matplotlib

    return {
        "verdict.json": record.to_json().encode(),
        "report.html": html.render(record).encode(),
        "report.md": markdown.render(record).encode(),
        "junit.xml": junit.render(record).encode(),
        "predicate.json": predicate.render(record).encode(),
    }
