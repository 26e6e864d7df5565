"""Samples larger than the memory: shards are sorted into runs, and the runs merged range by range.

Rows with other columns than a score are spread over blocks first, by their ids and by their groups, where they have
any: whatever is asked of a sample is asked of one block after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from gate.contract import Mask
from gate.errors import GateError
from gate.ordered import Ordered, collapse, cores, sort
from gate.policy import Columns
from gate.scores.blocks import (
    MOST_PARTS,
    Block,
    BlockFacts,
    Keep,
    back,
    read_ids,
    sample_of,
    spread,
    table_of,
    write_block,
)
from gate.scores.child import isolate, tell
from gate.scores.columns import digest_names
from gate.scores.files import find, find_each, refuse_copies
from gate.scores.formats import File, list_wanted
from gate.scores.labels import Kind, count_labels
from gate.scores.place import Place
from gate.scores.runs import Run, RunParts, merge, plan_ranges, remove, write_run
from gate.scores.sample import Named, OfPart, Piece, Scores, hash_pieces, in_rising_order
from gate.scores.shards import Shard, divide, each, stream
from gate.scores.taking import UNREAD, Taken, source_of, take
from gate.scores.wording import count_rows_from
from gate.sources import Source

LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 24  # in a run
ROW = 48  # bytes that a row takes while it is read and sorted: decoded, taken and sorted, twice each
MORE = {"id": 160, "group": 96, "segment": 48, "timestamp": 32, "count": 16}  # of other columns, names of some length


def width(columns: Columns) -> int:
    """Estimate the bytes that a row takes in memory."""
    return ROW + sum(size for key, size in MORE.items() if getattr(columns, key) is not None)


@dataclass(frozen=True)
class Spilled:
    """What one shard gave: the count of its rows, and where those taken lie: in runs, in blocks, or spread by name."""

    rows: int
    taken: int
    labels: Any
    unread: frozenset[str]
    runs: tuple[Run, ...]
    blocks: tuple[BlockFacts, ...]
    spread: tuple[str, ...]


@dataclass(frozen=True)
class ShardJob:
    """What to read from every shard, and how to keep it; without `keep`, only scores."""

    columns: Columns
    domain: tuple[float, float]
    kind: Kind
    rows: int
    directory: str
    keep: Keep | None

    def spill(self, shard: Shard) -> Spilled:
        """Read a shard and write the rows that are taken."""
        tell(str(shard.file))
        rows, taken, labels = 0, 0, []
        runs, blocks, spread_ = [], [], []
        unread: frozenset[str] = frozenset()
        for table in stream(shard, self.columns, self.rows):
            with count_rows_from(shard.first + rows):
                part = take(shard.file, table, self.columns, self.domain, self.kind, alone=False)
            rows, taken, unread = rows + part.rows, taken + part.taken, unread | part.unread
            labels += [] if part.labels is None else [part.labels]
            if not part.taken:
                continue
            if self.keep is None:
                runs.append(self._sorted(part))
            elif self.keep.by_id or self.keep.by_group:
                by = "id" if self.keep.by_id else "group"
                spread_.append(spread(table_of(part), by, self.keep.parts, self.directory))
            else:
                blocks.append(write_block(sample_of(table_of(part), ()), self.directory, self.keep.in_order))
        return Spilled(rows, taken, labels, unread, tuple(runs), tuple(blocks), tuple(spread_))

    def _sorted(self, part: Taken) -> Run:
        values = np.concatenate(part.chunks)
        if part.counts is None:
            return write_run(self.directory, sort(values, in_place=True), None)
        order = np.argsort(values, kind="stable")
        return write_run(self.directory, *collapse(values[order] + 0.0, part.counts[order]))


def must_be_stored(paths: tuple[str, ...], columns: Columns, place: Place) -> bool:
    """Whether a sample is too large for its half of the memory."""
    if "-" in paths or columns.calibrated not in (None, columns.score):  # two scores of a row stay together
        return False
    files = [file for path in paths for file in find(path).files]
    if place.engine != "local":
        return True
    if width(columns) * sum(file.bytes for file in files) < 6 * place.memory:  # a row is rarely less than three bytes
        return False
    return _count(files, place) * width(columns) > place.memory


def estimate_rows(paths: Sequence[str], place: Place) -> int:
    """Estimate the rows of a sample, as far as its files tell; rows from a pipe count as few."""
    return 1 if "-" in paths else _count([file for path in paths for file in find(path).files], place)


def _count(files: Sequence[File], place: Place) -> int:
    """Count the rows of files, as far as that is possible without reading them."""
    shards = isolate(lambda: [shard for file in files for shard in divide(file, 1 << 20)], place.memory + (1 << 30))
    return sum(shard.rows if shard.rows is not None else shard.file.bytes // 8 for shard in shards)


def read_stored(
    paths: tuple[str, ...],
    columns: Columns,
    domain: tuple[float, float],
    kind: Kind,
    place: Place,
    keep_rows: bool = False,
) -> Scores:
    """Read a sample into `--scratch`; a sample to be divided keeps its rows, and is not sorted before."""
    rows = min(max(place.memory // (cores() * width(columns)), LEAST_ROWS), MOST_ROWS)
    named, skipped = _find_all(paths, place.engine != "local")
    files = [file for _, some in named for file in some]
    shards = isolate(lambda: [shard for file in files for shard in divide(file, rows)], place.memory + (1 << 30))
    keep, alone = None, {*list_wanted(columns)} <= {columns.score, columns.label, columns.count}
    if not alone or (keep_rows and columns.count is None):  # a row that stands for many is never divided
        parts = 1 << max(0, -(-_count(files, place) // rows) - 1).bit_length()
        sources = tuple(Source(path=path, rows=0, benign=0) for path in paths)
        by_id, by_group = columns.id is not None, columns.group is not None
        keep = Keep(place.directory, min(parts, MOST_PARTS), sources, by_id, by_group, in_order=not keep_rows)
    spilled = list(each(ShardJob(columns, domain, kind, rows, place.directory, keep).spill, shards, place, "reading"))
    pieces = _add_up(files, shards, spilled)
    taken = sum(piece.taken for piece in pieces)
    if taken < 2:
        raise GateError(f"{', '.join(paths)}: must hold at least 2 {kind} scores, got {taken}; give more {kind} rows")
    counted = {piece.file.path: piece for piece in pieces}
    known: dict[str, Any] = {
        "sources": tuple(source_of(path, [counted[file.path] for file in some], kind) for path, some in named),
        "kind": kind,
        "labels": None if not columns.label else count_labels(table for part in spilled for table in part.labels),
        "unread": tuple(sorted(frozenset().union(*(part.unread for part in spilled)))[:UNREAD]),
        "pieces": tuple(piece for piece in pieces if piece.rows),
        "skipped": tuple(skipped),
    }
    if keep is None:
        return Scores(np.empty(0), stored=_order([run for part in spilled for run in part.runs], rows, place), **known)
    by_name = sorted(range(len(shards)), key=lambda i: str(shards[i].file))
    storage = _Storage(keep, place, rows, known)
    return storage.gather(
        [block for i in by_name for block in spilled[i].blocks], [p for s in spilled for p in s.spread]
    )


def _find_all(
    paths: tuple[str, ...], elsewhere: bool
) -> tuple[list[tuple[str, tuple[File, ...]]], list[tuple[str, str]]]:
    """Find the files of every argument, each once, with absolute paths for workers elsewhere, and what is skipped."""
    named: list[tuple[str, tuple[File, ...]]] = []
    skipped: list[tuple[str, str]] = []
    for path, found in find_each(paths):
        files = found.files
        if elsewhere:
            files = tuple(f if f.remote is not None else replace(f, path=os.path.abspath(f.path)) for f in files)
        named.append((path, files))
        skipped += found.skipped
    return named, skipped


def _add_up(files: Sequence[File], shards: Sequence[Shard], spilled: Sequence[Spilled]) -> list[Piece]:
    """Add up what each file held."""
    rows, taken = dict.fromkeys((file.path for file in files), 0), dict.fromkeys((file.path for file in files), 0)
    for shard, part in zip(shards, spilled, strict=True):
        rows[shard.file.path] += part.rows
        taken[shard.file.path] += part.taken
    pieces = [Piece(file, rows[file.path], taken[file.path]) for file in files]
    refuse_copies(piece.file for piece in pieces if piece.rows)
    return pieces


def _order(runs: list[Run], rows: int, place: Place) -> Ordered:
    """Make one sample of all runs, so that one range of scores follows another."""
    if len(runs) < 2:
        return RunParts(runs, place)
    merged = list(each(partial(merge, directory=place.directory), list(plan_ranges(runs, rows)), place, "sorting"))
    remove(runs)
    return RunParts(merged, place)


# --- rows with more than a score ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Storage:
    """What all stored samples that come from the same files have in common."""

    keep: Keep
    place: Place
    rows: int  # in a run
    known: dict[str, Any]

    def gather(self, blocks: list[BlockFacts], paths: list[str]) -> Stored:
        """Make the sample of what the shards gave; rows with one id, or of one group, are brought together."""
        ids: list[str] = []
        parts = range(self.keep.parts)
        if self.keep.by_id:
            found = list(each(partial(self.keep.once, paths=tuple(paths)), parts, self.place, "joining names"))
            ids = [names for names, _ in found]
            blocks, paths = [], [rest for _, rest in found if isinstance(rest, str)]
            blocks = [rest for _, rest in found if isinstance(rest, BlockFacts)]
        if self.keep.by_group:
            blocks = list(each(partial(self.keep.grouped, paths=tuple(paths)), parts, self.place, "joining names"))
        stored = Stored(self, blocks, ids)
        if len(stored) < 2:
            raise GateError(f"{stored.files}: must hold at least 2 {stored.kind} ids, got 1; give every row its own id")
        return stored


class Stored(Scores):
    """A sample in blocks. It answers as one in memory does; a column that is used as an array is read as a whole."""

    def __init__(self, storage: _Storage, blocks: list[BlockFacts], id_files: list[str]) -> None:
        segments = tuple(sorted({name for block in blocks for name in block.segments}))
        self.__dict__.update(
            storage.known, storage=storage, id_files=id_files, segment_names=segments, counts=None, stored=None
        )
        self.__dict__["columns"] = frozenset(name for block in blocks for name in block.columns)
        first = group = 0
        whole: list[Block] = []
        for facts in blocks:
            whole.append(Block(facts, segments, first, group))
            first, group = first + facts.rows, group + facts.groups
        self.__dict__.update(blocks=whole, n=first, group_n=group)

    def __len__(self) -> int:
        return int(self.__dict__["n"])

    def each(self, function: Callable[[Scores], OfPart]) -> list[OfPart]:
        storage: _Storage = self.__dict__["storage"]
        return list(each(function, [block for block in self.__dict__["blocks"] if len(block)], storage.place))

    def in_order(self, function: Callable[[Scores], Any]) -> Ordered:
        storage: _Storage = self.__dict__["storage"]
        runs = self.each(partial(_write_numbers, function=function, directory=storage.place.directory))
        return _order([run for run in runs if run.entries], storage.rows, storage.place)

    def divide(self, fitted: Callable[[Scores], Mask]) -> tuple[Scores, Scores]:
        storage: _Storage = self.__dict__["storage"]
        keep = Keep(**{**storage.keep.__dict__, "in_order": True})
        found = list(each(partial(_divide, fitted=fitted, keep=keep), self.__dict__["blocks"], storage.place))
        sides = []
        for side in range(2):
            blocks, paths = [pair[side][0] for pair in found], tuple(pair[side][1] for pair in found)
            ids = list(each(partial(keep.ids_of, paths=paths), range(keep.parts), storage.place)) if keep.by_id else []
            sides.append(Stored(_Storage(keep, storage.place, storage.rows, storage.known), blocks, ids))
        return sides[0], sides[1]

    @cached_property
    def ordered(self) -> Ordered:
        storage: _Storage = self.__dict__["storage"]
        if not storage.keep.in_order:
            return self.in_order(_values)
        runs = [block.__dict__["facts"].run for block in self.__dict__["blocks"]]
        return _order([run for run in runs if run is not None], storage.rows, storage.place)

    def score_hashes(self) -> Ordered:
        storage: _Storage = self.__dict__["storage"]
        runs = [write_run(storage.place.directory, np.sort(piece)) for piece in hash_pieces(self.ordered)]
        return _order(runs, storage.rows, storage.place)

    def named_parts(self, what: str) -> list[Callable[[], Named]]:
        if what == "ids":
            return [partial(_ids, path) for path in self.__dict__["id_files"]]
        return [partial(_groups, block) for block in self.__dict__["blocks"]]

    @cached_property
    def rows_sha256(self) -> str | None:
        if not self.has_ids:
            return None
        return digest_names((read_ids(path) for path in self.__dict__["id_files"]), len(self))

    @property
    def repeated(self) -> int | None:
        return sum(block.__dict__["facts"].again for block in self.__dict__["blocks"]) if self.has_ids else None

    @property
    def is_stored(self) -> bool:
        return True

    @property
    def has_ids(self) -> bool:
        return "id" in self.__dict__["columns"]

    @property
    def has_groups(self) -> bool:
        return "group" in self.__dict__["columns"]

    @property
    def has_segments(self) -> bool:
        return "segment" in self.__dict__["columns"]

    @property
    def has_times(self) -> bool:
        return "time" in self.__dict__["columns"]

    @property
    def group_count(self) -> int:
        return int(self.__dict__["group_n"])

    @cached_property
    def group_sizes(self) -> Any:
        return self.by_group(np.empty(0)).sizes if self.has_groups else np.empty(0)

    # --- columns as arrays, for callers that need one ------------------------------------------------------------

    def _whole(self, name: str, present: bool) -> Any:
        columns = [getattr(block, name) for block in self.__dict__["blocks"] if len(block)] if present else []
        for block in self.__dict__["blocks"]:
            block.__dict__.pop(name, None)
        if not columns:
            return None
        return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else pa.concat_arrays(columns)

    @cached_property
    def values(self) -> Any:
        return self._whole("values", present=True)

    @cached_property
    def ids(self) -> Any:
        return self._whole("ids", self.has_ids)

    @cached_property
    def groups(self) -> Any:
        if not self.has_groups:
            return None
        return np.concatenate([block.groups + block.first_group for block in self.__dict__["blocks"]])

    @cached_property
    def group_names(self) -> Any:
        return self._whole("group_names", self.has_groups)

    @cached_property
    def segments(self) -> Any:
        return self._whole("segments", self.has_segments)

    @cached_property
    def timestamps(self) -> Any:
        return self._whole("timestamps", self.has_times)

    @cached_property
    def repeats(self) -> Any:
        """Zeros, as many as there are repeated rows; only the block knows which row stands for each."""
        return None if self.repeated is None else np.broadcast_to(np.int64(0), self.repeated)


def _values(part: Scores) -> Any:
    return part.values


def _write_numbers(part: Scores, function: Callable[[Scores], Any], directory: str) -> Run:
    return write_run(directory, in_rising_order(function(part)))


def _divide(part: Scores, fitted: Callable[[Scores], Mask], keep: Keep) -> list[tuple[BlockFacts, str]]:
    """Write both sides as blocks, and spread their ids by hash."""
    rows, sides = fitted(part), []
    for taken in (rows, ~rows):
        side = part.part(taken)
        path = spread(back(side).select(["id"]), "id", keep.parts, keep.directory) if keep.by_id else ""
        sides.append((write_block(side, keep.directory, keep.in_order), path))
    return sides


def _ids(path: str) -> Named:
    return read_ids(path), None


def _groups(block: Block) -> Named:
    return block.group_names, np.bincount(block.groups).astype(np.float64)
