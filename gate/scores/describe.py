"""Describes a sample for the record: its facts, without its rows. It judges nothing."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from gate.scores.sample import Scores
from gate.sources import MAX_LISTED_FILES, FileRows, Files, SampleFacts, digest_files

EPOCH = date(1970, 1, 1)
DAY = 86_400_000_000  # in microseconds


def describe(scores: Scores) -> SampleFacts:
    """The facts that the record keeps of any sample."""
    files = tuple(FileRows(path=piece.file.name, rows=piece.rows) for piece in scores.pieces)
    oldest, newest = (day.isoformat() for day in days) if (days := days_of(scores)) else (None, None)
    return SampleFacts(
        sources=scores.sources,
        sha256=scores.sha256,
        n=len(scores),
        files=Files(count=len(files), sha256=digest_files(files), first=files[:MAX_LISTED_FILES]) if files else None,
        labels=scores.labels,
        unread_labels=scores.unread,
        rows_sha256=scores.rows_sha256,
        groups=scores.group_count if scores.has_groups else None,
        largest_group=int(scores.by_group(np.empty(0)).sizes.max()) if scores.has_groups else None,
        oldest=oldest,
        newest=newest,
        unscored=scores.unscored,
    )


def days_of(scores: Scores) -> tuple[date, date] | None:
    """The days of the oldest and of the newest row; None where rows have no times."""
    seen = scores.seen
    return None if seen is None else (_day(seen[0]), _day(seen[1]))


def _day(microseconds: int) -> date:
    try:
        return EPOCH + timedelta(days=microseconds // DAY)
    except OverflowError:
        return date.max if microseconds > 0 else date.min
