"""Streaming: files that cannot be divided, read some rows at a time, with what their readers check of the whole file.

Only of scores and counts, whose kind is known beforehand; in text, what another column holds is told by all of its
rows, and such a file is read as a whole.
"""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from gate.policy import Columns
from gate.scores.budget import Budget
from gate.scores.formats import (
    File,
    Table,
    fetched,
    first_kinds,
    has_quotes,
    pick,
    read_file,
    refuse_null_lines,
    require,
)
from gate.scores.layout import check_file, check_stream

BLOCK = 1 << 22  # bytes of text read at a time


def stream_file(file: File, names: list[str], columns: Columns, rows: int) -> Iterator[Table]:
    """The named columns of a file, so many rows at a time; as a whole where its format does not allow that."""
    readers = {".csv": _csv, ".tsv": _csv, ".jsonl": _json, ".ndjson": _json, ".feather": _arrow, ".arrow": _arrow}
    reader = _npz if file.suffix == ".npz" else readers.get(file.suffix)
    if reader is None:
        yield read_file(file, columns, Budget())
        return
    done = 0
    try:
        with fetched(replace(file, segment=columns.segment, label=columns.label), columns, Budget()) as local:
            if os.stat(local).st_size == 0 or not _is_typed(file, names, columns):
                raise pa.ArrowInvalid("")
            held: list[Any] = []
            for batch, present in reader(local, names, columns):
                held.append(batch)
                if sum(map(len, held)) >= rows:
                    table = pa.Table.from_batches(held)
                    done, held = done + len(table), []
                    yield Table(pick(table, names), present)
            if held:
                table = pa.Table.from_batches(held)
                done += len(table)
                yield Table(pick(table, names), present)
    except (pa.ArrowException, ValueError, OSError, zipfile.BadZipFile):  # which the whole reader says better
        whole = read_file(file, columns, Budget())
        yield Table({name: column[done:] for name, column in whole.columns.items() if name in names}, whole.names)


def _is_typed(file: File, names: list[str], columns: Columns) -> bool:
    """Whether what the columns hold is known before all rows are."""
    text = file.suffix in (".csv", ".tsv", ".jsonl", ".ndjson")
    known = {columns.score, columns.count, *([columns.label] if file.is_text else [])}
    return not text or {*names} <= known


Batches = Iterator[tuple[Any, tuple[str, ...]]]


def _csv(path: File, names: list[str], columns: Columns) -> Batches:
    separator = "\t" if path.suffix == ".tsv" else ","
    with open(path, encoding="utf-8-sig", errors="strict", newline="") as file:
        header = next(csv.reader(file, delimiter=separator), [])
    if any("\0" in name for name in header):
        raise ValueError("a header that is no text")
    quoted = has_quotes(path, len(header), separator)
    require(names, header, path)
    parsing = pyarrow.csv.ParseOptions(
        delimiter=separator, newlines_in_values=quoted, ignore_empty_lines=len(header) > 1
    )
    kinds = {name: pa.string() if name == columns.label else pa.float64() for name in names}
    converting = pyarrow.csv.ConvertOptions(include_columns=names, column_types=kinds)
    blocks = pyarrow.csv.ReadOptions(block_size=BLOCK)
    with pyarrow.csv.open_csv(os.fspath(path), blocks, parsing, converting) as reader:
        for batch in reader:
            yield batch, tuple(header)


def _json(path: File, names: list[str], columns: Columns) -> Batches:
    if not hasattr(pyarrow.json, "open_json"):
        raise pa.ArrowInvalid("an older Arrow")
    refuse_null_lines(path)
    present = tuple(first_kinds(path, columns.score))
    schema = pa.schema([(name, pa.float64()) for name in names])
    alone = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    with pyarrow.json.open_json(os.fspath(path), pyarrow.json.ReadOptions(block_size=BLOCK), alone) as reader:
        for batch in reader:
            if any(column.null_count for column in batch.columns):  # perhaps no such column at all
                raise pa.ArrowInvalid("rows without a value")
            yield batch, present


def _arrow(path: File, names: list[str], columns: Columns) -> Batches:
    with pa.OSFile(os.fspath(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        (check_file if is_file else check_stream)(source)
        opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
        source.seek(0)
        schema = opened(source).schema
        require(names, schema.names, path)
        wanted = pa.ipc.IpcReadOptions(included_fields=sorted(schema.names.index(name) for name in names))
        source.seek(0)
        reader = opened(source, options=wanted)
        for batch in (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader:
            batch.validate(full=True)
            yield batch, tuple(schema.names)


def _npz(path: File, names: list[str], columns: Columns) -> Batches:
    with zipfile.ZipFile(path) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        members = dict(zip(present, archive.infolist(), strict=True))
        wanted = present if len(names) == len(present) == 1 else names
        require(wanted, present, path)
        files = [archive.open(members[name]) for name in wanted]
        try:
            heads = [_head(file, members[name].file_size) for file, name in zip(files, wanted, strict=True)]
            if len({rows for rows, _ in heads}) != 1:
                raise ValueError("arrays of several lengths")
            rows, step = heads[0][0], 1 << 20
            for start in range(0, rows, step):
                n = min(step, rows - start)
                arrays = [
                    np.frombuffer(file.read(n * kind.itemsize), kind, n)
                    for file, (_, kind) in zip(files, heads, strict=True)
                ]
                yield pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], names), tuple(present)
        finally:
            for file in files:
                file.close()


def _head(file: Any, size: int) -> tuple[int, Any]:
    """The length and the kind of an array of plain numbers."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read_header(file)
    if len(shape) != 1 or kind.kind not in "fiu" or kind.byteorder == ">" or kind.itemsize not in (1, 2, 4, 8):
        raise ValueError("an array that must be read as a whole")
    if shape[0] * kind.itemsize != size - file.tell():
        raise ValueError("another length than its header says")
    return int(shape[0]), kind
