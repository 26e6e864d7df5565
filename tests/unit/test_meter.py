"""How far the work is, in words: rows per second, share done and time left, as far as they are known."""

from __future__ import annotations

import time

import pytest

from gate import progress
from gate.cli import streams
from gate.progress import Meter


@pytest.mark.parametrize(
    ("rows", "share", "took", "text"),
    [
        (0, 0.0, 5.0, "reading fit"),
        (12_000_000, 0.45, 4.0, "reading fit: 12,000,000 rows, 3,000,000 rows/s, 45 % done, 5 s left"),
        (999, 0.0, 3.0, "reading fit: 999 rows, 330 rows/s"),
        (0, 0.999, 3.0, "reading fit: 99 % done, 1 s left"),
        (10, 1.0, 1.0, "reading fit: 10 rows, 10 rows/s"),
        (1, 0.01, 36.0, "reading fit: 1 rows, 0 rows/s, 1 % done, 59 min left"),
        (0, 0.001, 36.0, "reading fit: 0 % done, 10.0 h left"),
    ],
)
def test_what_is_known_is_said(rows: int, share: float, took: float, text: str) -> None:
    meter = Meter("reading fit")
    meter.advance(rows, share)
    assert meter.text(meter.stage_begun + took) == text


def test_a_stage_begins_anew_and_nobody_need_count() -> None:
    progress.enter("sorting")
    progress.advance(5, 0.5)
    with progress.metered("reading fit") as meter:
        progress.advance(5, 0.5)
        progress.enter("sorting")
        assert meter.text() == "reading fit: sorting"
        progress.advance(0, 0.25)
        assert meter.text(meter.stage_begun + 1) == "reading fit: sorting, 25 % done, 3 s left"


def test_a_log_has_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(streams, "MINUTE", 0.05)
    monkeypatch.setenv("CI", "true")
    with streams.working("reading fit"):
        progress.advance(100, 0.5)
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 8
    assert lines[0].startswith("gate: reading fit: 100 rows, ")
    assert " 50 % done, " in lines[0]
