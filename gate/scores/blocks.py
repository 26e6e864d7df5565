"""Blocks: parts of a sample in files of their own, each small enough for the memory, its groups whole.

Rows are spread by a hash of what names them, so that all rows of one id, or of one group, come together in one block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gate.contract import Mask
from gate.ordered import sort
from gate.scores.columns import number_names, order_names, text_buffer
from gate.scores.place import locate
from gate.scores.runs import Run, having_room, new_path, write_run
from gate.scores.sample import Scores
from gate.scores.taking import Taken, count_once
from gate.sketch import hash_each
from gate.sources import Source

MOST_PARTS = 1 << 12


# --- tables of rows -----------------------------------------------------------------------------------------


def table_of(part: Taken) -> pa.Table:
    """The rows taken of a shard, with the columns that there are."""
    columns = {"score": pa.array(np.concatenate([np.empty(0), *part.chunks]))}
    for name, column in (("id", part.ids), ("group", part.groups), ("segment", part.segments)):
        if column is not None:
            columns[name] = column.cast(pa.string()).cast(pa.large_string()).combine_chunks()
    if part.timestamps is not None:
        columns["time"] = pa.array(part.timestamps)
    return pa.table(columns)


def sample_of(table: pa.Table, sources: tuple[Source, ...]) -> Scores:
    """Turn a table into a sample in memory; `again` says for how many other rows with its id a row stands."""
    names = table.column_names
    groups, group_names = _numbers(table, "group", order_names) if "group" in names else (None, None)
    segments, segment_names = _numbers(table, "segment") if "segment" in names else (None, None)
    again = _column(table, "again").to_numpy() if "again" in names else None
    return Scores(
        _column(table, "score").to_numpy(),
        sources,
        groups,
        _column(table, "id") if "id" in names else None,
        group_names,
        None if segments is None else segments.astype(np.int32),
        () if segment_names is None else tuple(segment_names.to_pylist()),
        _column(table, "time").to_numpy() if "time" in names else None,
        repeats=None if again is None else np.repeat(np.arange(len(again)), again),
    )


def back(scores: Scores) -> pa.Table:
    """Turn a sample in memory into a table."""
    columns = {"score": pa.array(scores.values)}
    if scores.ids is not None:
        columns["id"] = scores.ids
    if scores.repeats is not None:
        columns["again"] = pa.array(np.bincount(scores.repeats, minlength=len(scores.values)).astype(np.int32))
    if scores.groups is not None:
        columns["group"] = scores.group_names.take(pa.array(scores.groups))
    if scores.segments is not None:
        columns["segment"] = pa.array(scores.segment_names, pa.large_string()).take(pa.array(scores.segments))
    if scores.timestamps is not None:
        columns["time"] = pa.array(scores.timestamps)
    return pa.table(columns)


def _numbers(table: pa.Table, name: str, *in_order: Any) -> tuple[Any, Any]:
    return number_names([table.column(name).cast(pa.string()).dictionary_encode()], *in_order)


def _column(table: pa.Table, name: str) -> Any:
    column = table.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


# --- files of them ------------------------------------------------------------------------------------------


def spread(table: pa.Table, by: str, parts: int, directory: str) -> str:
    """Write rows by the hash of a name, one part after another, and return the file's path."""
    path = new_path(directory)
    bits = parts.bit_length() - 1
    owner = np.zeros(len(table), dtype=np.int64)
    if bits:
        owner = (hash_each(*text_buffer(_column(table, by))) >> np.uint64(64 - bits)).astype(np.int64)
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(parts + 1))
    sorted_ = table.take(pa.array(order)).combine_chunks()
    _write(path, table.schema, [sorted_.slice(ends[i], ends[i + 1] - ends[i]) for i in range(parts)], directory)
    return path


def gather(paths: Iterable[str], part: int) -> pa.Table:
    """Read the rows of one part from all files."""
    return pa.concat_tables([_read(path, part) for path in paths])


def _write(path: str, schema: Any, tables: Sequence[pa.Table], directory: str) -> None:
    """Write one batch for each table, also for an empty one."""
    filesystem, inside = locate(path)
    with (
        having_room(directory),
        filesystem.open_output_stream(inside) as stream,
        pa.ipc.new_file(stream, schema) as writer,
    ):
        for table in tables:
            batches = table.combine_chunks().to_batches()
            writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema))


def _read(path: str, batch: int = 0, names: Sequence[str] | None = None) -> pa.Table:
    filesystem, inside = locate(path)
    with filesystem.open_input_file(inside) as source:
        reader = pa.ipc.open_file(source)
        if names is not None:
            fields = sorted(reader.schema.names.index(name) for name in names)
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
        return pa.Table.from_batches([reader.get_batch(batch)])


# --- blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockFacts:
    """What the driver knows of a block: where it lies, its rows and groups, its segments by name."""

    path: str
    columns: tuple[str, ...]
    rows: int
    groups: int
    again: int
    segments: tuple[str, ...]
    run: Run | None  # its scores in rising order


def write_block(scores: Scores, directory: str, in_order: bool) -> BlockFacts:
    """Write a sample in memory as a block, and its scores as a run where they are asked for in order."""
    path = new_path(directory)
    columns = {"score": pa.array(scores.values)}
    if scores.ids is not None:
        columns["id"] = scores.ids.cast(pa.large_string())
    if scores.repeats is not None:
        columns["again"] = pa.array(np.bincount(scores.repeats, minlength=len(scores.values)).astype(np.int32))
    if scores.groups is not None:
        columns["group"] = pa.array(scores.groups)
        names = pa.table({"name": scores.group_names})
        _write(f"{path}.groups", names.schema, [names], directory)
    if scores.segments is not None:
        columns["segment"] = pa.array(scores.segments)
    if scores.timestamps is not None:
        columns["time"] = pa.array(scores.timestamps)
    table = pa.table(columns)
    _write(path, table.schema, [table], directory)
    run = write_run(directory, sort(scores.values)) if in_order and len(scores.values) else None
    groups = 0 if scores.groups is None else len(scores.group_names)
    again = 0 if scores.repeats is None else len(scores.repeats)
    return BlockFacts(path, tuple(columns), len(scores.values), groups, again, scores.segment_names, run)


class Block(Scores):
    """One block, asked as a sample in memory is; each column is read when it is first used."""

    def __init__(self, facts: BlockFacts, segment_names: tuple[str, ...], first: int, first_group: int) -> None:
        self.__dict__.update(facts=facts, segment_names=segment_names, first=first, before=first_group)
        self.__dict__.update(sources=(), pieces=(), kind="benign", labels=None, unread=(), skipped=(), counts=None)
        self.__dict__.update(stored=None)

    def __reduce__(self) -> Any:
        names = ("facts", "segment_names", "first", "before")
        return Block, tuple(self.__dict__[name] for name in names)

    def _get(self, name: str) -> Any:
        facts = self.__dict__["facts"]
        return _column(_read(facts.path, 0, [name]), name) if name in facts.columns else None

    @cached_property
    def values(self) -> Any:
        return self._get("score").to_numpy()

    @cached_property
    def ids(self) -> Any:
        return self._get("id")

    @cached_property
    def groups(self) -> Any:
        column = self._get("group")
        return None if column is None else column.to_numpy()

    @cached_property
    def group_names(self) -> Any:
        facts = self.__dict__["facts"]
        return _column(_read(f"{facts.path}.groups"), "name") if "group" in facts.columns else None

    @cached_property
    def segments(self) -> Any:
        column, names = self._get("segment"), {name: i for i, name in enumerate(self.segment_names)}
        if column is None:
            return None
        return np.array([names[name] for name in self.__dict__["facts"].segments], dtype=np.int32)[column.to_numpy()]

    @cached_property
    def timestamps(self) -> Any:
        column = self._get("time")
        return None if column is None else column.to_numpy()

    @cached_property
    def repeats(self) -> Any:
        column = self._get("again")
        return None if column is None else np.repeat(np.arange(len(self)), column.to_numpy())

    @property
    def first_group(self) -> int:
        return int(self.__dict__["before"])

    @property
    def numbers(self) -> Any:
        return self.__dict__["first"] + np.arange(len(self))

    def __len__(self) -> int:
        return int(self.__dict__["facts"].rows)

    def part(self, rows: Mask) -> Scores:
        """Take the marked rows into memory; segments keep the numbers that they have in the whole sample."""
        whole = Scores(
            self.values,
            (),
            self.groups,
            self.ids,
            self.group_names,
            self.segments,
            self.segment_names,
            self.timestamps,
            repeats=self.repeats,
        )
        return whole.part(rows)


# --- what is done with the rows of one part -----------------------------------------------------------------


@dataclass(frozen=True)
class Keep:
    """How the parts of a sample are written: in so many parts by id and by group, and whether scores are sorted."""

    directory: str
    parts: int
    sources: tuple[Source, ...]
    by_id: bool
    by_group: bool
    in_order: bool

    def once(self, part: int, paths: tuple[str, ...]) -> tuple[str, str | BlockFacts]:
        """Take each id of one part once, in the order of hashes; the rows are spread by group, or become a block."""
        scores = count_once(sample_of(gather(paths, part), self.sources))
        table = back(scores).take(pa.array(order_names(scores.ids)))
        names = self.list_ids(table)
        if self.by_group:
            return names, spread(table, "group", self.parts, self.directory)
        return names, write_block(sample_of(table, ()), self.directory, self.in_order)

    def list_ids(self, table: pa.Table) -> str:
        path, names = new_path(self.directory), table.select(["id"])
        _write(path, names.schema, [names], self.directory)
        return path

    def grouped(self, part: int, paths: tuple[str, ...]) -> BlockFacts:
        """Make the block that holds the groups of one part."""
        return write_block(sample_of(gather(paths, part), ()), self.directory, self.in_order)

    def ids_of(self, part: int, paths: tuple[str, ...]) -> str:
        """The ids of one part, in the order of their hashes."""
        table = gather(paths, part)
        return self.list_ids(table.take(pa.array(order_names(_column(table, "id")))))


def read_ids(path: str) -> Any:
    return _column(_read(path), "id")
