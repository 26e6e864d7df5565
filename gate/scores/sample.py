"""A sample: the raw scores of benign (or malicious) rows as read-only float64; counted, never judged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError, plural
from gate.ordered import Ordered, sort_counted
from gate.policy import Columns
from gate.scores.budget import Budget
from gate.scores.child import join
from gate.scores.columns import (
    CALIBRATED,
    digest_names,
    join_names,
    number_names,
    read_codes,
    read_names,
    read_served,
    read_times,
    refuse_outside,
    to_float64,
)
from gate.scores.files import find, find_copy, refuse_repeated
from gate.scores.formats import File, Table, read_file
from gate.scores.labels import Kind, count_labels, describe_labels, find_labels, take_rows
from gate.scores.wording import show
from gate.sources import Labels, Source

UNREAD = 10


@dataclass(frozen=True)
class Piece:
    """A file, or an object in memory, that held rows; `taken` of them are benign, or malicious, as asked."""

    file: File
    rows: int
    taken: int


class Reached(NamedTuple):
    """The rows of a sample by part (a group, a segment, or a group within a segment).

    parts     the number of each part that has rows, in rising order: that of its group or segment, or
              segment * groups + group
    sizes     its rows
    reached   how many of them reach each of some scores: a row for each part, a column for each score
    """

    parts: NDArray[np.int64]
    sizes: Floats
    reached: Floats


@dataclass(frozen=True)
class Scores:
    """Raw scores of one sample, in row order: of its benign rows, or of its malicious ones."""

    values: Floats
    sources: tuple[Source, ...] = ()
    groups: NDArray[np.int64] | None = None  # the number of each row's group, where the policy names a column
    ids: Any = None  # what names each row across releases, as Arrow text, where it names a column
    group_names: Any = None  # the name of each numbered group, as Arrow text in rising order
    segments: NDArray[np.int32] | None = None  # likewise for segments
    segment_names: tuple[str, ...] = ()
    timestamps: NDArray[np.int64] | None = None  # microseconds since 1970, in UTC
    kind: Kind = "benign"
    labels: Labels | None = None  # where the policy names a column of them
    unread: tuple[str, ...] = ()  # columns named like labels, where it names none
    pieces: tuple[Piece, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # what lay among the files and was not read, each name with why
    repeats: NDArray[np.int64] | None = None  # for each row left out because its id came before: where that one stands
    stored: Ordered | None = None  # the scores in files, where they are too many for the memory
    raw: Floats | None = None  # the raw score of each row, where `values` are the calibrated ones served beside them

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    @cached_property
    def rows_sha256(self) -> str | None:
        """The digest of the rows by their ids, where there are any: scores change with every release, ids do not."""
        return None if self.ids is None else digest_names(self.ids)

    @cached_property
    def group_sizes(self) -> Floats:
        return np.bincount(self.groups if self.groups is not None else []).astype(np.float64)

    def flagged_by_group(self, threshold: float | None) -> Floats:
        """How many rows of each group reach a threshold; none of them where no score does."""
        groups = self.groups if self.groups is not None else np.empty(0, dtype=np.int64)
        flagged = groups[:0] if threshold is None else groups[self.values >= threshold]
        return np.bincount(flagged, minlength=len(self.group_sizes)).astype(np.float64)

    def by_group(self, scores: Floats) -> Reached:
        """How many rows of each group reach each of some scores; -inf is reached by all, +inf by none."""
        assert self.groups is not None
        return count_by_part(self.values, self.groups, scores)

    def by_segment(self, scores: Floats) -> Reached:
        """The same of each segment."""
        assert self.segments is not None
        return count_by_part(self.values, self.segments.astype(np.int64), scores)

    def by_group_in_segment(self, scores: Floats) -> Reached:
        """The same of each group within each segment."""
        assert self.groups is not None
        assert self.segments is not None
        parts = self.segments.astype(np.int64) * len(self.group_sizes) + self.groups
        return count_by_part(self.values, parts, scores)

    def __len__(self) -> int:
        return len(self.values) if self.stored is None else self.stored.n

    def part(self, rows: NDArray[np.bool_]) -> Scores:
        """The sample of these rows alone."""
        groups, group_names = self.groups, self.group_names
        if groups is not None:
            kept, groups = np.unique(groups[rows], return_inverse=True)
            groups = groups.astype(np.int64)
            group_names = None if group_names is None else group_names.take(pa.array(kept))
        return replace(
            self,
            values=self.values[rows],
            groups=groups,
            ids=None if self.ids is None else self.ids.filter(pa.array(rows)),
            group_names=group_names,
            segments=None if self.segments is None else self.segments[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            raw=None if self.raw is None else self.raw[rows],
            repeats=None if self.repeats is None else (np.cumsum(rows) - 1)[self.repeats[rows[self.repeats]]],
        )

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        rows, again = sum(source.rows for source in self.sources), 0 if self.repeats is None else len(self.repeats)
        others = f", {rows - again - len(self):,} of other labels" if rows - again > len(self) else ""
        others += f", {again:,} with the id of another, which count once" if again else ""
        spread = f" ({plural(len(self.pieces), 'file')} with rows)" if len(self.pieces) > len(self.sources) else ""
        labels = f"; {describe_labels(self.labels)}" if self.labels else ""
        skipped = f"; skipped {_list_skipped(self.skipped)}" if self.skipped else ""
        taken = f"{len(self):,} {self.kind}{others}, none refused"
        return f"{plural(rows, 'row')} from {self.files}{spread}: {taken}{labels}{skipped}"

    @property
    def files(self) -> str:
        return ", ".join(source.path for source in self.sources)

    @cached_property
    def ordered(self) -> Ordered:
        """The same scores in rising order."""
        return sort_counted(self.values, None) if self.stored is None else self.stored

    @property
    def sha256(self) -> str:
        """The digest of the sample as a multiset: neither the order of rows nor files or formats change it."""
        return self.ordered.survey.sha256


def count_by_part(values: Floats, parts: NDArray[np.int64], scores: Floats) -> Reached:
    """How many values of each part reach each of some scores, in one pass; `parts` has a number for each value."""
    order = np.argsort(scores, kind="stable")
    known, places = np.unique(parts, return_inverse=True)
    columns = len(scores) + 1
    cells = places.astype(np.int64) * columns + np.searchsorted(scores[order], values, side="right")
    table = np.bincount(cells, minlength=len(known) * columns).reshape(len(known), columns)
    at_least = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
    reached = np.empty((len(known), len(scores)))
    reached[:, order] = at_least[:, 1:]
    return Reached(known, at_least[:, 0].astype(np.float64), reached)


def _list_skipped(skipped: tuple[tuple[str, str], ...]) -> str:
    """How many, and of each reason the first few names."""
    reasons = dict.fromkeys(why for _, why in skipped)
    names = {why: [show(name) for name, of in skipped if of == why] for why in reasons}
    more = {why: f" and {len(some) - 5:,} more" if len(some) > 5 else "" for why, some in names.items()}
    return f"{len(skipped):,}: " + "; ".join(f"{why}: {', '.join(names[why][:5])}{more[why]}" for why in reasons)


def read_whole(
    paths: tuple[str, ...], columns: Columns, domain: tuple[float, float], kind: Kind, budget: Budget
) -> Scores:
    parts, sources, pieces = [], [], []
    skipped: list[tuple[str, str]] = []
    seen: dict[Hashable, str] = {}
    for path in paths:
        found = find(path)
        for file in found.files:
            refuse_repeated(file, seen)
        alone = len(found.files) == 1
        read_now = [take(file, read_file(file, columns, budget), columns, domain, kind, alone) for file in found.files]
        sources.append(source_of(path, read_now, kind))
        pieces += [piece_of(file, part) for file, part in zip(found.files, read_now, strict=True) if part.rows]
        skipped += found.skipped
        parts += read_now
    copy = find_copy(piece.file for piece in pieces)
    if copy is not None:
        raise GateError(f"{copy[1]}: must be read once, got the same bytes as in {copy[0]}; name one of the two")
    return replace(join_parts(parts, tuple(sources), kind), pieces=tuple(pieces), skipped=tuple(skipped))


@dataclass(frozen=True)
class Taken:
    """What one file or object gave: its rows counted, the columns of the benign, or malicious, ones."""

    rows: int
    chunks: list[Floats]  # the scores
    groups: Any
    ids: Any
    segments: Any
    timestamps: NDArray[np.int64] | None
    labels: pa.Table | None
    unread: frozenset[str]
    raw: list[Floats] | None = None  # the raw scores, where `chunks` are the calibrated ones served beside them

    @property
    def taken(self) -> int:
        return sum(map(len, self.chunks))


def take(file: File, whole: Table, columns: Columns, domain: tuple[float, float], kind: Kind, alone: bool) -> Taken:
    table = whole.columns
    taken = labels = None
    if columns.label is not None:
        taken, labels = take_rows(kind, table[columns.label], columns, file, alone)
    chunks, raw = to_float64(table[columns.score], columns.score, file, taken), None
    if columns.calibrated == columns.score:
        refuse_outside(chunks, columns.score, (0.0, 1.0), file, taken, CALIBRATED)
    else:
        refuse_outside(chunks, columns.score, domain, file, taken)
    if columns.calibrated not in (None, columns.score):
        raw, chunks = chunks, read_served(table[columns.calibrated], columns.calibrated, file, taken)
    ids = columns.id and read_names(table[columns.id], columns.id, file, taken)
    named = (columns.group, columns.segment)
    groups, segments = (name and read_codes(table[name], name, file, taken) for name in named)
    times = None
    if columns.timestamp is not None:
        times = read_times(table[columns.timestamp], columns.timestamp, file, taken)
    unread = find_labels({*whole.names, *file.keys} - {*table}) if columns.label is None else frozenset()
    return Taken(len(table[columns.score]), chunks, groups, ids, segments, times, labels, unread, raw)


def piece_of(file: File, part: Taken) -> Piece:
    return Piece(file, part.rows, part.taken)


def source_of(path: str, parts: Sequence[Taken | Piece], kind: Kind) -> Source:
    rows, taken = sum(part.rows for part in parts), sum(part.taken for part in parts)
    return Source(path=path, rows=rows, benign=taken if kind == "benign" else rows - taken)


def join_parts(parts: list[Taken], sources: tuple[Source, ...], kind: Kind) -> Scores:
    values = join([chunk for part in parts for chunk in part.chunks])
    if len(values) < 2:
        names = ", ".join(source.path for source in sources)
        raise GateError(f"{names}: must hold at least 2 {kind} scores, got {len(values)}; give more {kind} rows")
    groups, group_names = number_names([part.groups for part in parts])
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
        raw=None if parts[0].raw is None else join([chunk for part in parts for chunk in part.raw or []]),
    )
    return whole if whole.ids is None else _count_once(whole)


def _count_once(scores: Scores) -> Scores:
    """Rows with one id are one observation: the oldest of them stands for all."""
    if int(pc.count_distinct(scores.ids).as_py()) == len(scores):
        return replace(scores, repeats=np.empty(0, dtype=np.int64))
    codes = scores.ids.dictionary_encode().indices.to_numpy()
    times = np.zeros(len(codes), dtype=np.int64) if scores.timestamps is None else scores.timestamps
    order = np.lexsort((times, codes))
    kept = order[np.searchsorted(codes[order], np.arange(codes.max() + 1))]  # of each id
    first = kept[codes]  # of each row
    columns = (
        ("score", scores.values),
        ("raw score", scores.raw),
        ("group", scores.groups),
        ("segment", scores.segments),
    )
    for name, column in columns:
        if column is not None and (column != column[first]).any():
            row = int(np.flatnonzero(column != column[first])[0])
            one, other = (_shown(scores, name, place) for place in (int(first[row]), row))
            raise GateError(
                f"{scores.files}: must have one {name} for each id, got {show(scores.ids[row].as_py())} with {one} and "
                f"{other}; give every row an id of its own, or each row once"
            )
    rows = np.zeros(len(codes), dtype=bool)
    rows[kept] = True
    if len(kept) < 2:
        raise GateError(f"{scores.files}: must hold at least 2 {scores.kind} ids, got 1; give every row its own id")
    return replace(scores.part(rows), repeats=(np.cumsum(rows) - 1)[first[~rows]])


def _shown(scores: Scores, name: str, row: int) -> str:
    if name == "group" and scores.groups is not None:
        return show(scores.group_names[int(scores.groups[row])].as_py())
    if name == "segment" and scores.segments is not None:
        return show(scores.segment_names[int(scores.segments[row])])
    return repr(float(scores.raw[row] if name == "raw score" and scores.raw is not None else scores.values[row]))
