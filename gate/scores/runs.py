"""Sorted runs: numbers in files, in rising order, that answer like an array in memory; small parts are read at once."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from gate.contract import Ints
from gate.errors import GateError
from gate.ordered import Entries, Ordered, collapse, join_entries
from gate.scores.place import locate
from gate.scores.wording import reason_of

STEP = 4096  # entries from one value of an index to the next
LARGE_TIE = 1000  # rows of one score that are written as one entry


@dataclass(frozen=True)
class Slice:
    """Some entries of a file of numbers; where an entry may stand for several rows, a second file has their number."""

    path: str
    form: str  # NumPy's name of the type: <f8, <i8 or <u8
    counted: bool
    start: int
    stop: int

    def read(self) -> Entries:
        values = _read(self.path, self.start, self.stop).view(self.form)
        return values, _read(f"{self.path}.rows", self.start, self.stop).view("<i8") if self.counted else None


@dataclass(frozen=True)
class Run:
    """One sorted file: how many entries and rows, every STEP-th value, and the rows before each of these."""

    path: str
    entries: int
    rows: int
    index: Any
    before: Ints | None  # None where every entry is one row
    last: Any

    def part(self, start: int, stop: int) -> Slice:
        return Slice(self.path, self.index.dtype.str, self.before is not None, start, stop)

    def find(self, scores: Any) -> Ints:
        """Count the entries below each score."""
        blocks = np.searchsorted(self.index, scores, side="left") - 1
        found = np.zeros(len(scores), dtype=np.int64)
        for block in np.unique(blocks[blocks >= 0]):
            values, _ = self._block(int(block))
            here = blocks == block
            found[here] = block * STEP + np.searchsorted(values, scores[here], side="left")
        return found

    def rows_before(self, places: Ints) -> Ints:
        """Count the rows that so many entries stand for."""
        if self.before is None:
            return places
        found = np.full(len(places), self.rows, dtype=np.int64)
        blocks = places // STEP
        for block in np.unique(blocks[places < self.entries]):
            here = (blocks == block) & (places < self.entries)
            counts: Any = self._block(int(block))[1]
            ends = np.concatenate([[0], np.cumsum(counts)])
            found[here] = self.before[block] + ends[places[here] - block * STEP]
        return found

    def at(self, rows: Ints) -> Any:
        """Return the scores of some rows; row 0 has the lowest."""
        blocks = rows // STEP if self.before is None else np.searchsorted(self.before, rows, side="right") - 1
        found = np.empty(len(rows), dtype=self.index.dtype)
        for block in np.unique(blocks):
            values, counts = self._block(int(block))
            here = blocks == block
            if self.before is None or counts is None:
                found[here] = values[rows[here] - block * STEP]
            else:
                found[here] = values[np.searchsorted(np.cumsum(counts), rows[here] - self.before[block], side="right")]
        return found

    def _block(self, block: int) -> Entries:
        return self.part(block * STEP, min((block + 1) * STEP, self.entries)).read()


def write_run(directory: str, values: Any, counts: Ints | None = None) -> Run:
    """Write rows in rising order as a new file; many rows of one score are one entry."""
    tied = np.count_nonzero(values[1:] == values[:-1]) if counts is None else 0
    if tied and tied >= min(LARGE_TIE - 1, len(values) / 2):  # else no entry stands for many rows
        distinct, sizes = collapse(values, None)
        if sizes.max() >= LARGE_TIE or 2 * len(distinct) <= len(values):
            values, counts = distinct, sizes
    path = new_path(directory)
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    with having_room(directory):
        _write(path, values)
        if counts is not None:
            _write(f"{path}.rows", counts.astype("<i8", copy=False))
    before = None if counts is None else np.concatenate([[0], np.cumsum(counts)[:-1]])[::STEP]
    rows = len(values) if counts is None else int(counts.sum())
    return Run(path, len(values), rows, values[::STEP].copy(), before, values[-1] if len(values) else 0)


def new_path(directory: str) -> str:
    """Return a path that nobody else writes to: a task that is done twice leaves two files."""
    return f"{directory}/{secrets.token_hex(12)}"


@contextlib.contextmanager
def having_room(directory: str) -> Iterator[None]:
    """Report an error in writing as a place that is too small."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise GateError(
            f"--scratch: must have room for what is sorted, some 16 bytes for each row and its other columns twice, "
            f"got {directory}: {reason_of(error)}; name a larger one"
        ) from None


class RunParts(Ordered):
    """A sample in runs that follow one another: no score of one reaches into the next. They live with `place`."""

    def __init__(self, runs: Sequence[Run], place: object = None) -> None:
        self.runs, self.place = list(runs), place
        self.starts = np.concatenate([[0], np.cumsum([run.rows for run in self.runs])])
        self.form = self.runs[0].index.dtype if self.runs else np.dtype(np.float64)
        self.lasts = np.array([run.last for run in self.runs], dtype=self.form)

    @cached_property
    def n(self) -> int:
        return int(self.starts[-1])

    def at_rank(self, ranks: Any) -> Any:
        wanted = np.asarray(ranks, dtype=np.int64)
        places = np.atleast_1d(self.n - wanted)
        found, owner = np.empty(len(places), dtype=self.form), np.searchsorted(self.starts, places, side="right") - 1
        for i in np.unique(owner):
            found[owner == i] = self.runs[i].at(places[owner == i] - self.starts[i])
        return found.reshape(wanted.shape)[()]

    def at_or_above(self, scores: Any) -> Ints:
        wanted = np.asarray(scores, dtype=self.form)
        flat = np.atleast_1d(wanted)
        owner = np.searchsorted(self.lasts, flat, side="left")
        found = np.zeros(len(flat), dtype=np.int64)
        for i in np.unique(owner[owner < len(self.runs)]):
            run, here = self.runs[i], owner == i
            found[here] = self.n - self.starts[i] - run.rows_before(run.find(flat[here]))
        return np.asarray(found.reshape(wanted.shape))

    def between(self, low: Any, high: Any) -> Entries:
        places = [None if end is None else np.array([end], dtype=self.form) for end in (low, high)]
        first = 0 if places[0] is None else int(np.searchsorted(self.lasts, places[0][0], side="left"))
        last = len(self.runs) if places[1] is None else int(np.searchsorted(self.lasts, places[1][0], side="left"))
        parts = []
        for run in self.runs[first : last + 1]:
            start = 0 if places[0] is None else int(run.find(places[0])[0])
            stop = run.entries if places[1] is None else int(run.find(places[1])[0])
            parts.append(run.part(start, stop).read())
        values = np.concatenate([np.empty(0, dtype=self.form), *(values for values, _ in parts)])
        if all(counts is None for _, counts in parts):
            return values, None
        return values, np.concatenate([np.ones(len(v), np.int64) if c is None else c for v, c in parts])


def plan_ranges(runs: Sequence[Run], rows: int) -> Iterable[list[Slice]]:
    """Plan what to merge: from every run the entries of one range of scores, about so many together."""
    values = np.concatenate([run.index for run in runs])
    weights = np.concatenate([np.diff([*range(0, run.entries, STEP), run.entries]) for run in runs])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    cuts = np.unique(values[order][np.searchsorted(reached, np.arange(rows, reached[-1], rows))])
    places = [np.concatenate([[0], run.find(cuts), [run.entries]]) for run in runs]
    for i in range(len(cuts) + 1):
        parts = [
            run.part(int(at[i]), int(at[i + 1])) for run, at in zip(runs, places, strict=True) if at[i] < at[i + 1]
        ]
        if parts:
            yield parts


def merge(parts: list[Slice], directory: str) -> Run:
    """Merge the rows of one range into one run."""
    values, counts = join_entries([part.read() for part in parts])
    return write_run(directory, *((values, None) if counts is None else collapse(values, counts)))


def remove(runs: Iterable[Run]) -> None:
    """Remove runs that were merged."""
    for run in runs:
        filesystem, path = locate(run.path)
        filesystem.delete_file(path)
        if run.before is not None:
            filesystem.delete_file(f"{path}.rows")


def _write(path: str, array: Any) -> None:
    filesystem, inside = locate(path)
    with filesystem.open_output_stream(inside) as stream:
        for start in range(0, len(array), 1 << 22):
            stream.write(np.ascontiguousarray(array[start : start + (1 << 22)]).data.cast("B"))


@lru_cache(maxsize=256)
def _opened(path: str) -> Any:
    filesystem, inside = locate(path)
    return filesystem.open_input_file(inside)


def _read(path: str, start: int, stop: int) -> Any:
    data = _opened(path).read_at(8 * (stop - start), 8 * start) if stop > start else b""
    if len(data) != 8 * (stop - start):
        raise GateError(f"{path}: must stay as it was written, got fewer bytes; keep others out of --scratch")
    return np.frombuffer(data, dtype=np.uint8)
