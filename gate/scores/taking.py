"""Taking: turns the columns of files into a sample in memory, and checks every value. It judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.child import join, tell_done
from gate.scores.columns import (
    CALIBRATED,
    join_names,
    number_names,
    order_names,
    read_codes,
    read_counts,
    read_names,
    read_served,
    read_times,
    refuse_outside,
    to_float64,
)
from gate.scores.files import find_each, refuse_copies
from gate.scores.formats import File, Table, list_wanted, read_file
from gate.scores.labels import Kind, count_labels, find_labels, take_rows
from gate.scores.sample import Piece, Scores
from gate.scores.wording import show
from gate.sources import Source
from gate.stored import MOST_ROWS

UNREAD = 10


def read_whole(
    paths: tuple[str, ...], columns: Columns, domain: tuple[float, float], kind: Kind, budget: ByteBudget
) -> Scores:
    parts, sources, pieces = [], [], []
    skipped: list[tuple[str, str]] = []
    everything = find_each(paths)
    total = sum(file.bytes for _, found in everything for file in found.files)
    for path, found in everything:
        alone = len(found.files) == 1
        read_now = []
        for file in found.files:
            read_now.append(take(file, read_file(file, columns, budget), columns, domain, kind, alone))
            tell_done(read_now[-1].rows, file.bytes / max(total, 1))
        sources.append(source_of(path, read_now, kind))
        pieces += [piece_of(file, part) for file, part in zip(found.files, read_now, strict=True) if part.rows]
        skipped += found.skipped
        parts += read_now
    refuse_copies(piece.file for piece in pieces)
    return replace(join_parts(parts, tuple(sources), kind), pieces=tuple(pieces), skipped=tuple(skipped))


@dataclass(frozen=True)
class Taken:
    """What one file or object gave: the count of its rows, and the columns of the benign (or malicious) ones."""

    rows: int
    chunks: list[Floats]  # the scores
    groups: Any
    ids: Any
    segments: Any
    timestamps: NDArray[np.int64] | None
    labels: pa.Table | None
    unread: frozenset[str]
    counts: NDArray[np.int64] | None = None  # the rows that each score stands for
    raw: list[Floats] | None = None  # the raw scores, if `chunks` are the calibrated scores served beside them
    mask: NDArray[np.bool_] | None = None  # the rows that are taken; None for all
    unscored: Any = ()  # the rows of the kind without a score, if such rows may be left out

    @property
    def taken(self) -> int:
        return sum(map(len, self.chunks)) if self.counts is None else int(self.counts.sum())


def take(
    file: File,
    whole: Table,
    columns: Columns,
    domain: tuple[float, float],
    kind: Kind,
    alone: bool,
    gaps: bool = False,
) -> Taken:
    """Take the rows of one kind; with `gaps`, rows without a score are left out and counted instead of refused."""
    table = whole.columns
    taken = labels = counts = None
    rows = len(table[columns.score])
    if columns.count is not None:
        counts = read_counts(table[columns.count], columns.count, file)
        rows = int(counts.sum())
    if columns.label:
        taken, labels = take_rows(kind, table[columns.label], columns, file, alone, counts)
    taken, unscored = leave_out_gaps(table[columns.score], taken) if gaps else (taken, ())
    chunks, raw = take_scores(file, whole, columns, domain, taken), None
    if columns.calibrated not in (None, columns.score):
        raw, chunks = chunks, read_served(table[columns.calibrated], columns.calibrated, file, taken)
    ids = columns.id and read_names(table[columns.id], columns.id, file, taken)
    coded = (columns.group, columns.segment)
    groups, segments = (name and read_codes(table[name], name, file, taken) for name in coded)
    times = None
    if columns.timestamp is not None:
        times = read_times(table[columns.timestamp], columns.timestamp, file, taken)
    named = {*whole.names, *file.keys} - {*list_wanted(columns)}
    unread = find_labels(named) if not columns.label else frozenset()
    part = Taken(rows, chunks, groups, ids, segments, times, labels, unread, raw=raw, mask=taken, unscored=unscored)
    return part if counts is None else _counted(part, counts if taken is None else counts[taken], file)


def take_scores(
    file: File, whole: Table, columns: Columns, domain: tuple[float, float], taken: NDArray[np.bool_] | None
) -> list[Floats]:
    """Take the scores of the chosen rows; each must be a number in the domain."""
    chunks = to_float64(whole.columns[columns.score], columns.score, file, taken)
    if columns.calibrated == columns.score:
        refuse_outside(chunks, columns.score, (0.0, 1.0), file, taken, CALIBRATED)
    else:
        refuse_outside(chunks, columns.score, domain, file, taken)
    return chunks


def leave_out_gaps(column: Any, taken: NDArray[np.bool_] | None) -> tuple[NDArray[np.bool_] | None, Any]:
    """Divide the rows into those that have a score and those that have none."""
    if isinstance(column, np.ndarray) or not column.null_count:
        return taken, ()
    missing = np.asarray(column.is_null().to_numpy(), dtype=bool)
    missing = missing if taken is None else missing & taken
    return (~missing if taken is None else taken & ~missing), np.flatnonzero(missing)


def _counted(part: Taken, counts: NDArray[np.int64], file: File) -> Taken:
    """Keep rows that stand for many as they are if they have only a score; otherwise write them out."""
    values = np.concatenate([np.empty(0), *part.chunks])
    if part.segments is None and part.timestamps is None:
        return replace(part, chunks=[values[counts > 0]], counts=counts[counts > 0])
    ByteBudget().refuse(24 * int(counts.sum()), file)
    places = np.repeat(np.arange(len(counts)), counts)
    return replace(
        part,
        chunks=[values[places]],
        segments=part.segments and part.segments.take(pa.array(places)),
        timestamps=None if part.timestamps is None else part.timestamps[places],
    )


def piece_of(file: File, part: Taken) -> Piece:
    return Piece(file, part.rows, part.taken)


def source_of(path: str, parts: Sequence[Taken | Piece], kind: Kind) -> Source:
    rows = sum(part.rows for part in parts)
    taken = sum(part.taken + len(getattr(part, "unscored", ())) for part in parts)
    refuse_too_many(path, rows)
    return Source(path=path, rows=rows, benign=taken if kind == "benign" else rows - taken)


def refuse_too_many(names: str, rows: int) -> None:
    """Refuse more rows than gate takes: rows given as counts may be any number."""
    if rows > MOST_ROWS:
        raise GateError(
            f"{names}: must hold at most {MOST_ROWS:,} rows, got {rows:,}; look whether data.count holds counts"
        )


def join_parts(parts: list[Taken], sources: tuple[Source, ...], kind: Kind, units: Any = None) -> Scores:
    values = join([chunk for part in parts for chunk in part.chunks])
    n = sum(part.taken for part in parts)
    names = ", ".join(source.path for source in sources)
    refuse_too_many(names, n)
    if n < 2:
        raise GateError(f"{names}: must hold at least 2 {kind} scores, got {n}; give more {kind} rows")
    groups, group_names = number_names([part.groups for part in parts], order_names)
    segments, segment_names = number_names([part.segments for part in parts])
    whole = Scores(
        values,
        sources,
        groups,
        None if parts[0].ids is None else join_names([part.ids for part in parts]),
        group_names,
        None if segments is None else segments.astype(np.int32),
        () if segment_names is None else tuple(segment_names.to_pylist()),
        None if parts[0].timestamps is None else np.concatenate([part.timestamps for part in parts]),
        kind,
        labels=None if parts[0].labels is None else count_labels(part.labels for part in parts),
        unread=tuple(sorted(frozenset().union(*(part.unread for part in parts)))[:UNREAD]),
        counts=None if parts[0].counts is None else np.concatenate([part.counts for part in parts]),
        raw=None if parts[0].raw is None else join([chunk for part in parts for chunk in part.raw or []]),
        units=units,
        unscored=sum(len(part.unscored) for part in parts),
    )
    if whole.ids is None:
        return whole
    once = count_once(whole)
    if len(once) < 2:
        raise GateError(f"{once.files}: must hold at least 2 {kind} ids, got 1; give every row its own id")
    return once


def count_once(scores: Scores) -> Scores:
    """Keep one row for each id, the oldest: rows with one id are one observation."""
    if int(pc.count_distinct(scores.ids).as_py()) == len(scores):
        return replace(scores, repeats=np.empty(0, dtype=np.int64))
    codes = scores.ids.dictionary_encode().indices.to_numpy()
    times = np.zeros(len(codes), dtype=np.int64) if scores.timestamps is None else scores.timestamps
    order = np.lexsort((times, codes))
    oldest = order[np.searchsorted(codes[order], np.arange(codes.max() + 1))]  # the row of each id
    first = oldest[codes]  # the row that stands for each row
    columns = (
        ("score", scores.values),
        ("raw score", scores.raw),
        ("group", scores.groups),
        ("segment", scores.segments),
    )
    for name, column in columns:
        if column is not None and (column != column[first]).any():
            row = int(np.flatnonzero(column != column[first])[0])
            one, other = (_cell(scores, name, place) for place in (int(first[row]), row))
            raise GateError(
                f"{scores.files}: must have one {name} for each id, got {show(scores.ids[row].as_py())} with {one} and "
                f"{other}; give every row an id of its own, or each row once"
            )
    rows = np.zeros(len(codes), dtype=bool)
    rows[oldest] = True
    return replace(scores.part(rows), repeats=(np.cumsum(rows) - 1)[first[~rows]])


def _cell(scores: Scores, name: str, row: int) -> str:
    if name == "group" and scores.groups is not None:
        return show(scores.group_names[int(scores.groups[row])].as_py())
    if name == "segment" and scores.segments is not None:
        return show(scores.segment_names[int(scores.segments[row])])
    return repr(float(scores.raw[row] if name == "raw score" and scores.raw is not None else scores.values[row]))
