"""Scores in rising order, in any storage: how many, which one at a rank, how many reach one. No judgement.

Code that uses only these questions, and one pass in ranges of scores, gives the same result for an array, for rows that
stand for many, and for files larger than the memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gate.contract import Floats, Ints

Entries = tuple[Any, Ints | None]  # values in rising order, perhaps repeated, and the rows of each if not one

RANGE = 1 << 18  # rows; the digest depends on it
_MAGNITUDE = np.int64(2**63 - 1)


class Ordered:
    """Values in rising order in memory; `counts` are the rows that each stands for, or None if each is one row.

    A subclass with another storage gives `n`, `at_rank`, `at_or_above` and `between`; all else follows.
    """

    def __init__(self, values: Any, counts: Ints | None = None) -> None:
        self.values = values
        self.ends = None if counts is None else np.cumsum(counts)

    @cached_property
    def n(self) -> int:
        """How many rows."""
        return len(self.values) if self.ends is None else int(self.ends[-1]) if len(self.ends) else 0

    def at_rank(self, ranks: Any) -> Any:
        """The scores at some ranks, counted from 1 for the highest."""
        places = self.n - np.asarray(ranks, dtype=np.int64)
        return self.values[places if self.ends is None else np.searchsorted(self.ends, places, side="right")]

    def at_or_above(self, scores: Any) -> Ints:
        """How many rows reach each of some scores, inclusively."""
        places = np.searchsorted(self.values, scores, side="left")
        return np.asarray(self.n - (places if self.ends is None else self._before(places)), dtype=np.int64)

    def between(self, low: Any, high: Any) -> Entries:
        """The rows from one score on, or from the lowest, to below another one, or to the highest."""
        start = 0 if low is None else int(np.searchsorted(self.values, low))
        stop = len(self.values) if high is None else int(np.searchsorted(self.values, high))
        counts = None if self.ends is None else np.diff(self.ends[start:stop], prepend=self._before(start))
        return self.values[start:stop], counts

    def _before(self, places: Any) -> Any:
        assert self.ends is not None
        return np.where(places > 0, self.ends[np.maximum(places, 1) - 1], 0)

    # --- what follows from these ---------------------------------------------------------------------------

    def cuts(self, rows: int = RANGE) -> list[Any]:
        """Scores that cut the sample into ranges of about so many rows; all rows of one score are in one range."""
        cuts = np.unique(self.at_rank(self.n - np.arange(0, self.n, rows)))
        return list(cuts[1:])  # no row lies below the lowest score

    def ranges(self, rows: int = RANGE) -> Iterator[Entries]:
        """All rows, range by range."""
        cuts = self.cuts(rows)
        return (self.between(*ends) for ends in zip([None, *cuts], [*cuts, None], strict=True))

    @cached_property
    def survey(self) -> TieSurvey:
        """The results of one pass over all rows, several ranges at a time."""
        cuts = self.cuts()
        if not cuts:
            return join_surveys([survey(*self.between(None, None))], self.n)
        with ThreadPoolExecutor(cores()) as pool:
            parts = pool.map(lambda low, high: survey(*self.between(low, high)), [None, *cuts], [*cuts, None])
            return join_surveys(list(parts), self.n)


@dataclass(frozen=True)
class TieSurvey:
    """The number of distinct scores, the most rows that share one, and the digest."""

    distinct: int
    largest_tie: int
    sha256: str


def cores() -> int:
    """How many threads or children work side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(scores: Ordered | Floats) -> Ordered:
    """The ordered scores of a sample, or of an array that is in rising order already."""
    return scores if isinstance(scores, Ordered) else Ordered(np.asarray(scores, dtype=np.float64).ravel())


def sort(values: Floats, in_place: bool = False) -> Floats:
    """Sort into rising order, with -0.0 as 0.0. Integers sort twice as fast, with the same result."""
    ordered = np.add(values, 0.0, out=values if in_place else None, dtype=np.float64)
    bits = ordered.view(np.int64)
    has_negative = bool(len(bits)) and bits.min() < 0
    if has_negative:
        bits ^= (bits >> 63) & _MAGNITUDE
    bits.sort()
    if has_negative:
        bits ^= (bits >> 63) & _MAGNITUDE
    ordered.setflags(write=False)
    return ordered


def sort_counted(values: Floats, counts: Ints | None) -> Ordered:
    """Rows in any order, each of them one or as many as `counts` says."""
    if counts is None:
        return Ordered(sort(values))
    values = values + 0.0
    order = np.argsort(values, kind="stable")
    return Ordered(*collapse(values[order], counts[order]))


def collapse(values: Any, counts: Ints | None) -> tuple[Any, Ints]:
    """Every value once, with the number of its rows."""
    starts = np.flatnonzero(np.concatenate([values[:1] == values[:1], values[1:] != values[:-1]]))
    if counts is None:
        return values[starts], np.diff(starts, append=len(values))
    return values[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def join_entries(parts: Sequence[Entries]) -> Entries:
    """The rows of several parts together, in rising order."""
    values = np.concatenate([values for values, _ in parts])
    if all(counts is None for _, counts in parts):
        values.sort(kind="stable")  # a merge of rising runs
        return values, None
    counts = [np.ones(len(values), np.int64) if counts is None else counts for values, counts in parts]
    order = np.argsort(values, kind="stable")
    return values[order], np.concatenate(counts)[order]


def survey(values: Floats, counts: Ints | None) -> tuple[int, int, bytes]:
    """The distinct scores of one range, the most rows of one score, and a digest of scores and counts.

    The digest is over the number of distinct scores, the scores as little-endian float64, and the place and the rows of
    each score that several rows have.
    """
    if counts is None and not (values[1:] == values[:-1]).any():
        distinct, tied, rows = values, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    else:
        distinct, rows = collapse(values, counts)
        tied = np.flatnonzero(rows > 1)
        rows = rows[tied]
    digest = hashlib.sha256(len(distinct).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(distinct, dtype="<f8").data)
    digest.update(tied.astype("<i8", copy=False).data)
    digest.update(rows.astype("<i8", copy=False).data)
    return len(distinct), int(rows.max(initial=1)), digest.digest()


def join_surveys(parts: list[tuple[int, int, bytes]], n: int) -> TieSurvey:
    """SHA-256 over the number of rows and the digests of all ranges, from the lowest scores up.

    The ranges depend on the rows alone: neither on their order, nor on files, nor on where they were sorted.
    """
    digest = hashlib.sha256(n.to_bytes(8, "little"))
    for _, _, part in parts:
        digest.update(part)
    return TieSurvey(sum(part[0] for part in parts), max((part[1] for part in parts), default=0), digest.hexdigest())
