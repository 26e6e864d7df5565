"""Shards: parts of files that are read by themselves, each with bounded memory, by workers of this machine or another.

A worker is given a small function of a shard and gives back something small, or a run that it has written. Scheduling,
retries and placement are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gate.ordered import cores
from gate.policy import Columns
from gate.progress import advance, enter
from gate.scores.budget import ByteBudget
from gate.scores.child import isolate
from gate.scores.engines import Item, Result
from gate.scores.formats import File, Table, finish, list_wanted, pick, read_file, require
from gate.scores.formats.parquet import open_file
from gate.scores.place import Place
from gate.scores.streaming import stream_file
from gate.scores.wording import explain


@dataclass(frozen=True)
class Shard:
    """A part of a file: some row groups of a Parquet file, some rows of an array, or the whole file.

    `first` rows of the file stand before it, and it holds so many `rows`, where that can be told without reading it.
    """

    file: File
    start: int = 0
    stop: int | None = None
    first: int = 0
    rows: int | None = None


def divide(file: File, rows: int) -> Iterator[Shard]:
    """Divide one file into shards of about so many rows, if the format lets one find them."""
    with explain(file, "write it again"):
        if file.suffix in (".parquet", ".pq") and not file.is_gzip:
            with open_file(file, None, [], memory_map=False) as opened:
                sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)]
            start = first = held = 0
            for i, size in enumerate(sizes):
                held += size
                if held >= rows or i == len(sizes) - 1:
                    yield Shard(file, start, i + 1, first, held)
                    start, first, held = i + 1, first + held, 0
            if sizes:
                return
        elif file.suffix == ".npy" and not file.is_gzip and file.remote is None:
            array = np.load(file.path, mmap_mode="r", allow_pickle=False)
            if array.ndim == 1 and len(array) > rows:
                ends = [*range(0, len(array), rows), len(array)]
                yield from (Shard(file, start, stop, start, stop - start) for start, stop in pairwise(ends))
                return
    yield Shard(file)


def stream(shard: Shard, columns: Columns, rows: int) -> Iterator[Table]:
    """Yield the rows of a shard, so many at a time if its format allows that; each table is checked in full."""
    file = shard.file
    keys, names = _keys(file, columns)
    if shard.stop is None:
        if (rows * 8 > file.bytes and not file.is_gzip) or columns.score in keys:
            yield read_file(file, columns, ByteBudget())
            return
        for table in stream_file(file, names, columns, rows):
            yield finish(file, Table({n: table.columns[n] for n in names}, table.names), columns, keys, ByteBudget())
        return
    with explain(file, "write it again"):
        if file.suffix == ".npy":
            array = np.load(file.path, mmap_mode="r", allow_pickle=False)[shard.start : shard.stop]
            if len(names) > 1:
                require([names[1]], [], file)
            yield finish(file, Table({names[0]: np.array(array)}), columns, keys, ByteBudget())
            return
        with open_file(file, columns.segment, names, memory_map=False) as opened:
            require(names, opened.schema_arrow.names, file)
            groups = range(shard.start, shard.stop)
            present, read = tuple(opened.schema_arrow.names), 0
            held: list[Any] = []
            for batch in opened.iter_batches(min(rows, 1 << 20), row_groups=groups, columns=names):
                held.append(batch)
                read += len(batch)
                if sum(map(len, held)) >= rows:
                    yield _table(file, held, names, present, columns, keys)
                    held = []
            if held:
                yield _table(file, held, names, present, columns, keys)
            promised = sum(opened.metadata.row_group(i).num_rows for i in groups)
            if read != promised:
                raise ValueError(f"{promised:,} rows in the footer, {read:,} in the pages")


def _table(
    file: File, held: list[Any], names: list[str], present: tuple[str, ...], columns: Columns, keys: dict[str, str]
) -> Table:
    return finish(file, Table(pick(pa.Table.from_batches(held), names), present), columns, keys, ByteBudget())


def _keys(file: File, columns: Columns) -> tuple[dict[str, str], list[str]]:
    keys = {key: value for key, value in file.keys.items() if key in list_wanted(columns)}
    return keys, [name for name in list_wanted(columns) if name not in keys]


def each(
    function: Callable[[Item], Result], items: Sequence[Item], place: Place, stage: str = "counting"
) -> Iterator[Result]:
    """Apply a function to every item, in order; on this machine each runs in a child, which may crash alone."""
    enter(stage)
    for result in _each(function, items, place):
        yield result
        advance(getattr(result, "rows", 0), 1 / len(items))


def _each(function: Callable[[Item], Result], items: Sequence[Item], place: Place) -> Iterator[Result]:
    if place.engine == "local":
        with ThreadPoolExecutor(cores()) as pool:
            try:
                yield from pool.map(lambda item: isolate(partial(function, item), place.memory + (1 << 30)), items)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return
    from gate.scores.engines import run

    yield from run(place.engine, function, items)
