"""The record itself, as JSON."""

from __future__ import annotations

from gate.record import Record
from gate.record.system import SystemRecord


def render(record: Record | SystemRecord) -> str:
    return record.to_json()
