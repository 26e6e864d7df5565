"""The record itself, as JSON."""

from __future__ import annotations

from gate.record import Record


def render(record: Record) -> str:
    return record.to_json()
