"""Records in directories, read together as a history, and what renders one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gate.history import History, collect
from gate.record import Record
from gate.report import history as report

RENDERERS: dict[str, Callable[[History], str]] = {
    "txt": report.render,
    "md": report.render_markdown,
    "html": report.render_html,
}


def write(directory: Path, record: Record) -> Path:
    directory.mkdir(parents=True)
    (directory / "verdict.json").write_text(record.to_json(), encoding="utf-8")
    return directory


def history_of(directory: Path, records: list[Record]) -> History:
    for i, record in enumerate(records):
        write(directory / f"r{i}", record)
    return collect([str(directory)])
