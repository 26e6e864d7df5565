"""Describes a sample for the record: its facts, without its rows. It judges nothing."""

from __future__ import annotations

from datetime import date, timedelta

from gate.rows.sample import Sample
from gate.rows.wording import one_line
from gate.sources import MAX_LISTED_FILES, MAX_UNREAD, FileRows, Files, SampleFacts, digest_files

EPOCH = date(1970, 1, 1)
DAY = 86_400_000_000  # in microseconds


def describe(sample: Sample) -> SampleFacts:
    """The facts that the record keeps of any sample."""
    files = tuple(FileRows(path=piece.file.name, rows=piece.rows, sha256=piece.sha256) for piece in sample.pieces)
    oldest, newest = (day.isoformat() for day in days) if (days := days_of(sample)) else (None, None)
    return SampleFacts(
        sources=sample.sources,
        sha256=sample.fingerprint,
        n=len(sample),
        files=Files(count=len(files), sha256=digest_files(files), first=files[:MAX_LISTED_FILES]) if files else None,
        labels=sample.labels,
        unread=tuple(one_line(name, 80) for name in sample.unread[:MAX_UNREAD]),
        rows_sha256=sample.rows_sha256,
        groups=sample.group_count if sample.has_groups else None,
        largest_group=sample.largest_group if sample.has_groups else None,
        oldest=oldest,
        newest=newest,
        unscored=sample.unscored,
    )


def days_of(sample: Sample) -> tuple[date, date] | None:
    """The days of the oldest and of the newest row; None where rows have no times."""
    seen = sample.seen
    return None if seen is None else (_day(seen[0]), _day(seen[1]))


def _day(microseconds: int) -> date:
    try:
        return EPOCH + timedelta(days=microseconds // DAY)
    except OverflowError:
        return date.max if microseconds > 0 else date.min
