"""The scores of a sample in rising order: how many rows, which score at a rank, how many rows reach one. No judgement.

A sample that fits the memory is fetched and sorted. One that does not is known as a partition, which a question divides
further where it falls. Both give the same answers to the last bit, and nothing else knows which of the two it asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gate.contract import Floats, Ints
from gate.errors import GateError
from gate.rows.engine import Engine, Reply, number, values
from gate.statistics.floats import from_ordinal, ordinal

FIRST = 16  # bits of the first division: 65,536 cells; more of them miss the processor's cache
LAST = 49  # bits of the last one; a double between 0.5 and 1 has 53
COARSE = 29  # bits of the first of two sums over scores; of 10^10 rows it stays below 2^63
EACH = 32  # rows of a cell, if there are not too many
FETCH = 1 << 21  # rows that are fetched rather than divided again
Ask = Callable[[str], Reply]
ANSWERED = 4096  # bytes of memory for each line of an answer, with what the engine holds to make it
_MAGNITUDE = np.int64(2**63 - 1)


class Ordered(Protocol):
    """Scores in rising order, wherever they stand."""

    n: int

    def at_rank(self, ranks: Any) -> Any:
        """The scores at some ranks, counted from 1 for the highest."""

    def at_or_above(self, scores: Any) -> Ints:
        """How many rows reach each of some scores, inclusively."""


class Sorted:
    """Scores in memory; `counts` are the rows that each stands for, or None if each is one row."""

    def __init__(self, values: Any, counts: Ints | None = None) -> None:
        self.values = values
        self.ends = None if counts is None else np.concatenate([[0], np.cumsum(counts)])
        self.n = len(values) if self.ends is None else int(self.ends[-1])

    def at_rank(self, ranks: Any) -> Any:
        places = self.n - np.asarray(ranks, dtype=np.int64)
        return self.values[places if self.ends is None else np.searchsorted(self.ends, places, side="right") - 1]

    def at_or_above(self, scores: Any) -> Ints:
        places = np.searchsorted(self.values, scores, side="left")
        return np.asarray(self.n - (places if self.ends is None else self.ends[places]), dtype=np.int64)


def pooled_at_rank(one: Ordered, other: Ordered, ranks: Ints) -> Floats:
    """The scores at some ranks of both samples together."""
    if isinstance(one, Divided) and isinstance(other, Divided):
        return _pooled(one, other, ranks)
    lowest, highest = np.array([sample.at_rank([sample.n, 1]) for sample in (one, other)]).T
    ends = ordinal(np.array([lowest.min(), highest.max()]))
    low, high = np.full(len(ranks), ends[0]), np.full(len(ranks), ends[1])
    while np.any(low < high):  # the highest score that `rank` rows of both reach
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without overflow
        reached = sum(sample.at_or_above(from_ordinal(middle)) for sample in (one, other)) >= ranks
        low, high = np.where(reached, middle, low), np.where(reached, high, middle - 1)
    return from_ordinal(low)


def _pooled(one: Divided, other: Divided, ranks: Ints) -> Floats:
    """The same of two partitions: intervals are opened as long as one of them may hold a score that is asked for."""
    while True:
        ends = np.unique(np.concatenate([one.lo, one.hi, other.lo, other.hi]))
        most = sum(sample.n - sample.starts[np.searchsorted(sample.hi, ends)] for sample in (one, other))
        least = sum(sample.n - sample.starts[np.searchsorted(sample.lo, ends)] for sample in (one, other))
        first = np.searchsorted(-least, -ranks, side="right") - 1  # the last end that so many rows reach for certain
        beyond = np.searchsorted(-most, -ranks, side="right")  # the first end that fewer rows reach
        stop = np.append(ends, np.inf)[beyond]
        opened = [sample.open_between(ends[first], stop) for sample in (one, other)]
        if not any(opened):
            return ends[first]


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


def sort_counted(values: Floats, counts: Ints) -> Sorted:
    """Scores in any order, each with the rows that it stands for; every score comes once."""
    distinct, places = np.unique(values + 0.0, return_inverse=True)
    rows = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(rows, places, counts)
    return Sorted(distinct[rows > 0], rows[rows > 0])


def scale_of(domain: tuple[float, float]) -> float:
    """What makes a domain as wide as one; zero where its ends are one score, or too near for a float to say."""
    width = domain[1] - domain[0]
    return 1 / width if width > 1e-300 else 0.0


def place_in(engine: Engine, domain: tuple[float, float], score: str = "score") -> str:
    """The SQL of where a score lies in a domain, from 0 to 1; below it -1, beyond it 2, so that it is always a number.

    Served scores may be anything, and one that was not served is the lowest of all.
    """
    low, high = (max(min(end, 1e300), -1e300) for end in domain)
    scale = scale_of((low, high)) if (low, high) == domain else 0.0
    inside = f"({score}) * {number(engine, scale)} + {number(engine, -low * scale)}"
    below, above = (number(engine, end) for end in (-1.0, 2.0))
    least, most = number(engine, low), number(engine, high)
    return f"CASE WHEN ({score}) < {least} THEN {below} WHEN ({score}) <= {most} THEN {inside} ELSE {above} END"


def mixing(engine: Engine, domain: tuple[float, float], score: str = "score") -> tuple[str, ...]:
    """The SQL of whole numbers that a score gives: their sums tell samples apart, in any order of rows."""
    place = place_in(engine, domain, score)
    coarse, fine = (f"CAST(floor(({place}) * {number(engine, 2.0**bits)}) AS BIGINT)" for bits in (COARSE, LAST))
    return coarse, f"({fine} & {2 ** (LAST - COARSE) - 1})"


class Divided:
    """Scores that stay where they are: intervals in rising order, each with its lowest and highest score and its rows.

    Rescaled scores are put on a grid, whose cells find the rows; every interval ends at scores that rows have, so that
    no rounding of the grid enters an answer. Rows must add up from one question to the next.

    bits, cell   the grid cell that holds an interval's rows; -1 where it is one of the parts of such a cell
    """

    def __init__(
        self, engine: Engine, rows: str, count: str, domain: tuple[float, float], ask: Ask | None = None
    ) -> None:
        self.engine, self.rows, self.counted, self.ask = engine, rows, count, ask or engine.ask
        self.place = f"score * {number(engine, scale_of(domain))} + {number(engine, -domain[0] * scale_of(domain))}"
        if not np.isfinite(domain).all():  # of served scores some are missing, or are no numbers
            self.place = place_in(engine, (0.0, 1.0))
        self._keep(*self._ask(self._cell(FIRST), "", FIRST))
        self.n = int(self.starts[-1])

    def at_rank(self, ranks: Any) -> Any:
        places = self.n - np.asarray(ranks, dtype=np.int64)
        inner = (places > 0) & (places < self.n - 1)  # the ends are known

        def find() -> Ints:
            return np.searchsorted(self.starts, places[inner], side="right") - 1

        self._settle(find)
        found = np.where(places > 0, self.hi[-1], self.lo[0])
        found[inner] = self.lo[find()]
        return found[()]

    def at_or_above(self, scores: Any) -> Ints:
        wanted = np.asarray(scores, dtype=np.float64)

        def find() -> Ints:
            place = np.searchsorted(self.hi, wanted)  # the first interval that ends at the score or above it
            inside = place < len(self.hi)
            return place[inside][self.lo[place[inside]] < wanted[inside]]

        self._settle(find)
        return np.asarray(self.n - self.starts[np.searchsorted(self.hi, wanted)], dtype=np.int64)

    def open_between(self, start: Floats, stop: Floats) -> bool:
        """Open the intervals that reach into some stretches of scores; whether there was one that is not settled."""
        first, last = np.searchsorted(self.hi, start), np.searchsorted(self.lo, stop)
        edges = np.bincount(first, minlength=len(self.lo) + 1) - np.bincount(last, minlength=len(self.lo) + 1)
        at = np.flatnonzero((np.cumsum(edges)[: len(self.lo)] > 0) & (self.lo < self.hi))
        if len(at):
            self._open(at)
        return bool(len(at))

    def _settle(self, find: Callable[[], Any]) -> None:
        """Open intervals until those that are found hold one score each."""
        while True:
            at = np.unique(find())
            at = at[self.lo[at] < self.hi[at]]
            if not len(at):
                return
            self._open(at)

    def _open(self, at: Ints) -> None:
        """Fetch the scores of these intervals if they are few, else divide those of the coarsest grid among them."""
        least = int(self.bits[at].min())
        at = at[self.bits[at] == least]
        if least < 0:
            at = at[:1]
        rows = int(self.count[at].sum())
        most = min(FETCH, max(self.engine.memory // ANSWERED, 1 << 16))
        if rows <= most:
            at = self._with_neighbours(at, most - rows)
            found = self._ask("", self._within(at), -1)
        elif 0 <= least < LAST:
            finer = math.ceil(math.log2(max(rows / len(at) / max(EACH, rows / max(most, 1)), 1)))
            bits = min(least + min(max(finer, 4), 17), LAST)
            found = self._ask(self._cell(bits), self._within(at), bits)
        else:
            at = at[:1]
            found = self._ask(self._part(at[0]), self._within(at), -1)
        self._replace(at, found)

    def _with_neighbours(self, at: Ints, room: int) -> Ints:
        """Some intervals and those next to them of the same grid, if they are small: the next question is for them."""
        beside = np.setdiff1d(np.concatenate([at - 1, at + 1]), at)
        beside = beside[(beside >= 0) & (beside < len(self.lo))]
        bits = self.bits[at[0]]
        beside = beside[(self.bits[beside] == bits) & (bits >= 0) & (self.count[beside] <= 8 * EACH)]
        return np.union1d(at, beside) if self.count[beside].sum() <= room else at

    def _replace(self, at: Ints, found: tuple[Any, ...]) -> None:
        lo, _, count, _, _ = found
        owner = np.searchsorted(self.lo[at], lo, side="right") - 1
        told = np.zeros(len(at), dtype=np.int64)
        np.add.at(told, owner, count)
        if (owner < 0).any() or not np.array_equal(told, self.count[at]):
            raise GateError("rows: must stay as they are while gate asks, got other ones; run again on rows at rest")
        kept = np.ones(len(self.lo), dtype=bool)
        kept[at] = False
        old = self.lo, self.hi, self.count, self.bits, self.cell
        self._keep(*(np.concatenate([a[kept], b]) for a, b in zip(old, found, strict=True)))

    def _keep(self, lo: Floats, hi: Floats, count: Ints, bits: Ints, cell: Ints) -> None:
        order = np.argsort(lo, kind="stable")
        self.lo, self.hi, self.count, self.bits, self.cell = (part[order] for part in (lo, hi, count, bits, cell))
        self.starts = np.concatenate([[0], np.cumsum(self.count)]).astype(np.int64)

    # --- questions ------------------------------------------------------------------------------------------

    def _ask(self, key: str, where: str, bits: int) -> tuple[Any, ...]:
        """The parts of some rows by a key, or each score by itself: lowest, highest, rows, and the grid cell."""
        what = f"{key} AS k, min(score) AS lo, max(score) AS hi" if key else "score AS k, score AS lo, score AS hi"
        by = "1" if key else "1, 2, 3"
        found = self.ask(f"SELECT {what}, {self.counted} AS n FROM {self.rows}{where} GROUP BY {by}")
        lo, hi = (np.asarray(found[end], dtype=np.float64) + 0.0 for end in ("lo", "hi"))
        cell = np.asarray(found["k"], dtype=np.int64) if bits >= 0 else np.full(len(lo), -1, dtype=np.int64)
        return lo, hi, np.asarray(found["n"], dtype=np.int64), np.full(len(lo), bits, dtype=np.int64), cell

    def _cell(self, bits: int) -> str:
        return f"CAST(floor(({self.place}) * {number(self.engine, 2.0**bits)}) AS BIGINT)"

    def _part(self, place: int) -> str:
        """A part of one interval, between its own lowest and highest score, so scaled that no float is lost."""
        ends = self.lo[place].item(), self.hi[place].item()
        factor = 2.0**600 if max(map(abs, ends)) < 2.0**-400 else 0.5
        low, high = (number(self.engine, end * factor) for end in ends)
        inside = f"(score * {number(self.engine, factor)} - {low}) / ({high} - {low})"
        return f"CAST(floor({inside} * {number(self.engine, 65536.0)}) AS BIGINT)"

    def _within(self, at: Ints) -> str:
        """The rows of some intervals, all of one grid, or of one interval that is a part of a cell."""
        bits = int(self.bits[at[0]])
        if bits < 0:
            low, high = (number(self.engine, end[at[0]].item()) for end in (self.lo, self.hi))
            return f" WHERE score BETWEEN {low} AND {high}"
        return f" WHERE {self._cell(bits)} IN (SELECT c FROM {values({'c': self.cell[at]})})"
