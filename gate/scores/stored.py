"""Samples larger than the memory: shards are sorted into runs, and the runs merged range by range."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gate.errors import GateError
from gate.ordered import Ordered, collapse, sort
from gate.policy import Columns
from gate.scores.child import isolate, tell
from gate.scores.files import find, find_copy, refuse_repeated
from gate.scores.formats import File, list_wanted
from gate.scores.labels import Kind, count_labels
from gate.scores.place import Place
from gate.scores.runs import Parts, Run, merge, plan_ranges, remove, write_run
from gate.scores.sample import Piece, Scores
from gate.scores.shards import Shard, cores, divide, each, stream
from gate.scores.taking import UNREAD, Taken, source_of, take
from gate.scores.wording import count_rows_from

LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 24  # of a run
ROW = 48  # bytes that a row takes while it is read and sorted: as decoded, as taken, and as sorted, twice each


@dataclass(frozen=True)
class Spilled:
    """What one shard gave: its rows counted, the runs that hold those taken."""

    rows: int
    taken: int
    labels: Any
    unread: frozenset[str]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Job:
    """What to read of every shard, and where to write the runs."""

    columns: Columns
    domain: tuple[float, float]
    kind: Kind
    rows: int
    directory: str

    def spill(self, shard: Shard) -> Spilled:
        """Read a shard, sort what is taken of it, and write it as runs."""
        tell(str(shard.file))
        rows, taken, labels, runs = 0, 0, [], []
        unread: frozenset[str] = frozenset()
        for table in stream(shard, self.columns, self.rows):
            with count_rows_from(shard.first + rows):
                part = take(shard.file, table, self.columns, self.domain, self.kind, alone=False)
            rows, taken, unread = rows + part.rows, taken + part.taken, unread | part.unread
            labels += [] if part.labels is None else [part.labels]
            if part.taken:
                runs.append(self._write(part))
        return Spilled(rows, taken, labels, unread, tuple(runs))

    def _write(self, part: Taken) -> Run:
        values = np.concatenate(part.chunks)
        if part.counts is None:
            return write_run(self.directory, sort(values, in_place=True), None)
        order = np.argsort(values, kind="stable")
        return write_run(self.directory, *collapse(values[order] + 0.0, part.counts[order]))


def must_be_stored(paths: tuple[str, ...], columns: Columns, place: Place) -> bool:
    """Whether a sample is too large for its half of the memory; only scores and labels can be stored."""
    if not {*list_wanted(columns)} <= {columns.score, columns.label, columns.count} or "-" in paths:
        return False
    files = [file for path in paths for file in find(path).files]
    sizes = [file.bytes for file in files]
    if place.engine != "local":
        return True
    if 8 * sum(sizes) < place.memory:  # a score is rarely packed into less than three bytes
        return False
    shards = isolate(lambda: [shard for file in files for shard in divide(file, 1 << 20)], place.memory + (1 << 30))
    rows = sum(shard.rows if shard.rows is not None else shard.file.bytes // 8 for shard in shards)
    return rows * ROW > place.memory


def read_stored(
    paths: tuple[str, ...], columns: Columns, domain: tuple[float, float], kind: Kind, place: Place
) -> Scores:
    """A sample in runs below `--scratch`."""
    rows = min(max(place.memory // (cores() * ROW), LEAST_ROWS), MOST_ROWS)
    named: list[tuple[str, list[File]]] = []
    skipped: list[tuple[str, str]] = []
    seen: dict[Hashable, str] = {}
    for path in paths:
        found = find(path)
        for file in found.files:
            refuse_repeated(file, seen)
        named.append((path, list(found.files)))
        skipped += found.skipped
    files = [file for _, some in named for file in some]
    shards = isolate(lambda: [shard for file in files for shard in divide(file, rows)], place.memory + (1 << 30))
    job = Job(columns, domain, kind, rows, place.directory)
    spilled = list(each(job.spill, shards, place))
    ordered = _order([run for part in spilled for run in part.runs], rows, place)
    by_file: dict[str, list[Spilled]] = {file.path: [] for file in files}
    for shard, part in zip(shards, spilled, strict=True):
        by_file[shard.file.path].append(part)
    pieces = [_piece(file, by_file[file.path]) for file in files]
    counted = {piece.file.path: piece for piece in pieces}
    copy = find_copy(piece.file for piece in pieces if piece.rows)
    if copy is not None:
        raise GateError(f"{copy[1]}: must be read once, got the same bytes as in {copy[0]}; name one of the two")
    if ordered.n < 2:
        raise GateError(
            f"{', '.join(paths)}: must hold at least 2 {kind} scores, got {ordered.n}; give more {kind} rows"
        )
    return Scores(
        np.empty(0),
        tuple(source_of(path, [counted[file.path] for file in some], kind) for path, some in named),
        kind=kind,
        labels=None if columns.label is None else count_labels(table for part in spilled for table in part.labels),
        unread=tuple(sorted(frozenset().union(*(part.unread for part in spilled)))[:UNREAD]),
        pieces=tuple(piece for piece in pieces if piece.rows),
        skipped=tuple(skipped),
        stored=ordered,
    )


def _order(runs: list[Run], rows: int, place: Place) -> Ordered:
    """All runs as one sample: those of one range of scores after those of another."""
    if len(runs) < 2:
        return Parts(runs, place)
    merged = list(each(partial(merge, directory=place.directory), list(plan_ranges(runs, rows)), place))
    remove(runs)
    return Parts(merged, place)


def _piece(file: File, parts: list[Spilled]) -> Piece:
    return Piece(file, sum(part.rows for part in parts), sum(part.taken for part in parts))
