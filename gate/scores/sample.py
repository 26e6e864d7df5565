"""A sample: the raw scores of benign (or malicious) rows as read-only float64; counted, never judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gate.contract import Floats, Mask
from gate.ordered import Ordered, collapse, sort, sort_counted
from gate.scores.budget import ByteBudget
from gate.scores.columns import digest_names, order_names, shared_names, text_buffer
from gate.scores.formats import File
from gate.scores.labels import Kind, describe_labels
from gate.scores.wording import show
from gate.sketch import Hashes, hash_each, hash_scores
from gate.sources import Labels, Source
from gate.words import plural

OfPart = TypeVar("OfPart")


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
    groups: NDArray[np.int64] | None = None  # the number of each row's group, if the policy names a column
    ids: Any = None  # the name of each row across releases, as Arrow text, if the policy names a column
    group_names: Any = None  # the name of each numbered group, as Arrow text in the order of their hashes
    segments: NDArray[np.int32] | None = None  # the number of each row's segment
    segment_names: tuple[str, ...] = ()
    timestamps: NDArray[np.int64] | None = None  # microseconds since 1970, in UTC
    kind: Kind = "benign"
    labels: Labels | None = None  # set if the policy names a column of labels
    unread: tuple[str, ...] = ()  # columns named like labels, if the policy names none
    pieces: tuple[Piece, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # what lay among the files and was not read, each name with why
    repeats: NDArray[np.int64] | None = None  # for each row left out because its id came before: where that one stands
    stored: Ordered | None = None  # the scores in files, if they are too many for the memory
    counts: NDArray[np.int64] | None = None  # the rows that each value stands for, if the policy names a column
    raw: Floats | None = None  # the raw score of each row, if `values` are the calibrated scores served beside them
    units: NDArray[np.int64] | None = None  # the number of each row among the rows of several detectors
    unscored: int = 0  # rows of this kind without a score; only several detectors may have such

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    # --- what is asked of a sample, in memory or in files -----------------------------------------------------

    def each(self, function: Callable[[Scores], OfPart]) -> list[OfPart]:
        """Apply a function to every part of the sample; no group is spread over two parts."""
        return [function(self)]

    def in_order(self, function: Callable[[Scores], Any]) -> Ordered:
        """Apply a function to each part and return all its numbers in rising order."""
        return Ordered(in_rising_order(function(self)))

    def divide(self, fitted: Callable[[Scores], Mask]) -> tuple[Scores, Scores]:
        """Divide into the sample of the rows that a function marks, and the sample of the others."""
        rows = fitted(self)
        return self.part(rows), self.part(~rows)

    @property
    def is_stored(self) -> bool:
        """Whether the sample lies in files."""
        return self.stored is not None

    @property
    def has_ids(self) -> bool:
        return self.ids is not None

    @property
    def has_groups(self) -> bool:
        return self.groups is not None

    @property
    def has_segments(self) -> bool:
        return self.segments is not None

    @property
    def has_times(self) -> bool:
        return self.timestamps is not None

    @property
    def first_group(self) -> int:
        """The number of groups that come before those of this part of a sample."""
        return 0

    @property
    def group_count(self) -> int:
        return len(self.group_sizes)

    @cached_property
    def group_sizes(self) -> Floats:
        return np.bincount(self.groups if self.groups is not None else []).astype(np.float64)

    def by_group(self, scores: Floats, units: NDArray[np.int64] | None = None) -> Reached:
        """Count the rows of each group that reach each of some scores; all rows reach -inf, none reaches +inf.

        With `units`, which says for each group the unit that it belongs to, the rows of each unit are counted instead:
        groups may be too many for a table.
        """
        if units is not None:
            return _add_up(self.each(partial(_count_groups, scores=scores, units=units)))
        found = self.each(partial(_count_groups, scores=scores))
        return Reached(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def by_segment(self, scores: Floats) -> Reached:
        """Count the rows of each segment that reach each of some scores."""
        return _add_up(self.each(partial(_count_segments, scores=scores)))

    def by_group_in_segment(self, scores: Floats) -> Reached:
        """Count the rows of each group within each segment that reach each of some scores."""
        return _add_up(self.each(partial(_count_both, scores=scores, groups=self.group_count)))

    def highest_of_groups(self) -> Ordered:
        """The highest score of each group."""
        return self.in_order(_highest)

    @property
    def seen(self) -> tuple[int, int] | None:
        """When the oldest and the newest row were seen, in microseconds since 1970; None without times."""
        found = [times for times in self.each(_seen) if times is not None]
        return (min(oldest for oldest, _ in found), max(newest for _, newest in found)) if found else None

    @property
    def repeated(self) -> int | None:
        """How many rows were left out because their id came before; None without ids."""
        return None if self.repeats is None else len(self.repeats)

    def shared_ids(self, other: Scores) -> int:
        """Count the rows whose id is also that of a row of another sample; ids within one sample differ."""
        return _shared(self.named_parts("ids"), other.named_parts("ids"))[0]

    def shared_groups(self, other: Scores) -> tuple[int, int]:
        """Count the groups that also have rows of another sample, and the rows that they have in this one."""
        return _shared(self.named_parts("groups"), other.named_parts("groups"))

    def named_parts(self, what: str) -> list[Callable[[], Named]]:
        """Give all ids, or all groups with sizes, in 1, 2, 4... parts of rising hashes; a part is read when called."""
        if what == "ids":
            return [lambda: (self.ids, None)]
        return [lambda: (self.group_names, self.group_sizes)]

    def id_hashes(self) -> Ordered:
        """The hashes of all ids."""
        return self.in_order(hash_ids)

    def score_hashes(self) -> Ordered:
        """The hashes of all rows by their scores: each of the rows with one score has its own hash."""
        if self.counts is not None:
            ByteBudget().refuse(16 * len(self), self.files)  # the sample itself may be much smaller
        return Ordered(np.sort(np.concatenate([*hash_pieces(self.ordered)])))

    @cached_property
    def rows_sha256(self) -> str | None:
        """The digest of the rows by their ids, if they have ids: scores change with every release, ids do not."""
        return None if self.ids is None else digest_names([self.ids.take(pa.array(order_names(self.ids)))], len(self))

    def __len__(self) -> int:
        if self.stored is not None:
            return self.stored.n
        return len(self.values) if self.counts is None else int(self.counts.sum())

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each row among all rows, with the files in the order of their names."""
        sizes = np.array([piece.taken for piece in self.pieces], dtype=np.int64)
        if sizes.sum() != len(self.values):
            return np.arange(len(self.values))
        order = sorted(range(len(sizes)), key=lambda i: str(self.pieces[i].file))
        firsts = np.empty(len(sizes), dtype=np.int64)
        firsts[order] = np.cumsum(sizes[order]) - sizes[order]
        return np.asarray(np.arange(len(self.values)) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes))

    def part(self, rows: NDArray[np.bool_]) -> Scores:
        """Return the sample of only these rows."""
        groups, group_names = self.groups, self.group_names
        if groups is not None:
            chosen, groups = np.unique(groups[rows], return_inverse=True)
            groups = groups.astype(np.int64)
            group_names = None if group_names is None else group_names.take(pa.array(chosen))
        return replace(
            self,
            values=self.values[rows],
            groups=groups,
            ids=None if self.ids is None else self.ids.filter(pa.array(rows)),
            group_names=group_names,
            segments=None if self.segments is None else self.segments[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            raw=None if self.raw is None else self.raw[rows],
            units=None if self.units is None else self.units[rows],
            repeats=None if self.repeats is None else (np.cumsum(rows) - 1)[self.repeats[rows[self.repeats]]],
        )

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        rows, again = sum(source.rows for source in self.sources), 0 if self.repeats is None else len(self.repeats)
        apart = rows - again - self.unscored - len(self)
        others = f", {apart:,} of other labels" if apart else ""
        others += f", {self.unscored:,} without a score" if self.unscored else ""
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
        """The scores in rising order."""
        return sort_counted(self.values, self.counts) if self.stored is None else self.stored

    @property
    def sha256(self) -> str:
        """The digest of the sample as a multiset: the order of rows, files and formats do not change it."""
        return self.ordered.survey.sha256


Named = tuple[Any, Floats | None]


def _shared(ours: list[Callable[[], Named]], theirs: list[Callable[[], Named]]) -> tuple[int, int]:
    """Count the names in both samples, and our rows of these; no name is in two parts of one sample."""
    names = rows = 0
    fewer, more = sorted((ours, theirs), key=len)
    step = len(more) // len(fewer)
    for i, coarse in enumerate(fewer):
        held = coarse()
        for fine in more[i * step : (i + 1) * step]:
            (own, sizes), (others, _) = (held, fine()) if fewer is ours else (fine(), held)
            both = shared_names(own, others)
            names += int(both.sum())
            rows += int(both.sum() if sizes is None else sizes[both].sum())
    return names, rows


def in_rising_order(numbers: Any) -> Any:
    """Sort scores or other numbers; -0.0 and 0.0 are one score."""
    if numbers.dtype == np.float64:
        return sort(numbers)
    return np.sort(numbers)


def _pieces(ordered: Ordered, most: int = 1 << 20) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """Yield all rows in rising order, so many at a time: the scores, and how many rows before have the same score."""
    for values, counts in ordered.ranges():
        distinct, rows = collapse(values, counts)
        ends = np.cumsum(rows)
        for start in range(0, int(ends[-1]), most):
            places = np.arange(start, min(start + most, int(ends[-1])))
            owner = np.searchsorted(ends, places, side="right")
            yield distinct[owner], places - (ends - rows)[owner]


def hash_pieces(ordered: Ordered) -> Iterator[Hashes]:
    return (hash_scores(*piece) for piece in _pieces(ordered))


def hash_ids(part: Scores) -> Hashes:
    return hash_each(*text_buffer(part.ids))


def _highest(part: Scores) -> Floats:
    assert part.groups is not None
    highest = np.full(len(part.group_sizes), -np.inf)
    np.maximum.at(highest, part.groups, part.values)
    return highest


def _seen(part: Scores) -> tuple[int, int] | None:
    return None if part.timestamps is None else (int(part.timestamps.min()), int(part.timestamps.max()))


def _count_groups(part: Scores, scores: Floats, units: NDArray[np.int64] | None = None) -> Reached:
    assert part.groups is not None
    groups = part.groups + part.first_group
    return count_by_part(part.values, groups if units is None else units[groups], scores)


def _count_segments(part: Scores, scores: Floats) -> Reached:
    assert part.segments is not None
    return count_by_part(part.values, part.segments.astype(np.int64), scores)


def _count_both(part: Scores, scores: Floats, groups: int) -> Reached:
    assert part.groups is not None
    assert part.segments is not None
    parts = part.segments.astype(np.int64) * groups + part.groups + part.first_group
    return count_by_part(part.values, parts, scores)


def _add_up(found: list[Reached]) -> Reached:
    """Add up the counts of several tables; one part may be in more than one of them."""
    if len(found) == 1:
        return found[0]
    parts, places = np.unique(np.concatenate([each.parts for each in found]), return_inverse=True)
    sizes, reached = np.zeros(len(parts)), np.zeros((len(parts), found[0].reached.shape[1]))
    np.add.at(sizes, places, np.concatenate([each.sizes for each in found]))
    np.add.at(reached, places, np.concatenate([each.reached for each in found]))
    return Reached(parts, sizes, reached)


def count_by_part(values: Floats, parts: NDArray[np.int64], scores: Floats) -> Reached:
    """Count the values of each part that reach each of some scores, in one pass; `parts` numbers each value."""
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
    """Say how many files were skipped, and name the first few for each reason."""
    reasons = dict.fromkeys(why for _, why in skipped)
    names = {why: [show(name) for name, of in skipped if of == why] for why in reasons}
    more = {why: f" and {len(some) - 5:,} more" if len(some) > 5 else "" for why, some in names.items()}
    return f"{len(skipped):,}: " + "; ".join(f"{why}: {', '.join(names[why][:5])}{more[why]}" for why in reasons)
