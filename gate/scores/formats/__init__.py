"""The formats: each reads the named columns of one file into Arrow or NumPy arrays, or says what is wrong with it."""

from __future__ import annotations

import contextlib
import gzip
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gate.errors import GateError
from gate.inputs import INPUTS, Input, by_ending, endings
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.child import name_copies, tell
from gate.scores.formats.parquet import width, write_parquet
from gate.scores.formats.table import File, Table, list_wanted, one_dimensional, pick, require
from gate.scores.wording import explain

__all__ = [
    "File",
    "Table",
    "fetched",
    "finish",
    "list_columns",
    "list_wanted",
    "one_dimensional",
    "pick",
    "read_file",
    "require",
    "write_parquet",
]


def read_file(file: File, columns: Columns, budget: ByteBudget) -> Table:
    """Read the columns that the policy names, and check every length and every index into names in them."""
    input_ = _input_of(file)
    tell(str(file))
    keys = {key: value for key, value in file.keys.items() if key in list_wanted(columns)}
    if columns.score in keys:
        raise GateError(
            f"{file}: must hold a score of its own in every row, got {columns.score!r} as a key of its path; "
            "name another column with data.score, or rename the folder"
        )
    names = [name for name in list_wanted(columns) if name not in keys]
    local: File
    with (
        explain(file, input_.remedy),
        fetched(replace(file, columns=columns), columns, budget) as local,
    ):
        if local.remote is None and os.stat(local).st_size == 0:
            raise GateError(f"{file}: must hold scores, got an empty file; write it again")
        table = input_.read(local, names, budget)
    return finish(file, table, columns, keys, budget)


def _input_of(file: File) -> Input:
    found = by_ending(file.suffix)
    if found is None:
        known, got = ", ".join(endings()), file.suffix or "no suffix"
        raise GateError(
            f"{file}: must end in one of {known} (or these with .gz), got {got}; convert it to one of these"
        )
    return found


def list_columns(file: File, budget: ByteBudget) -> tuple[str, ...]:
    """List the names of all columns in the order of the file; the list is empty where its format has no names."""
    input_ = _input_of(file)
    with explain(file, input_.remedy), fetched(file, Columns(), budget) as local:
        found: Table = input_.read(local, [], budget)
        return found.names


def finish(file: File, table: Table, columns: Columns, keys: Mapping[str, str], budget: ByteBudget) -> Table:
    """Add to the columns of a file those that its path carries."""
    for name in table.columns.keys() - {columns.group, columns.segment}:  # these stay as they are
        budget.refuse(_written_out(table.columns[name]), file)
    both = next((key for key in keys if key in table.names), None)
    if both is not None:
        raise GateError(
            f"{file}: must have {both!r} in its path or as a column, got both; remove the column or rename the folder"
        )
    rows = len(table.columns[columns.score])
    repeated = {key: pa.chunked_array([pa.repeat(_key_value(value), rows)]) for key, value in keys.items()}
    return Table({**table.columns, **repeated}, table.names)


def _written_out(column: Any) -> int:
    """Count the bytes that a column takes when the values of its dictionary are written out in every row."""
    if isinstance(column, np.ndarray) or not pa.types.is_dictionary(column.type):
        return 0
    if pa.types.is_primitive(column.type.value_type):
        return len(column) * width(column.type.value_type)
    lengths = (
        pc.binary_length(chunk.dictionary.cast(pa.large_binary())).take(chunk.indices) for chunk in column.chunks
    )
    return sum(int(pc.sum(part).as_py() or 0) for part in lengths)


def _key_value(text: str) -> Any:
    """Return the value that a key gives to each row; Hive's word for a missing value becomes None."""
    return pa.scalar(None if text == "__HIVE_DEFAULT_PARTITION__" else text, pa.string())


@contextlib.contextmanager
def fetched(file: File, columns: Columns, budget: ByteBudget) -> Iterator[File]:
    """Give the file on this machine, not packed: the file itself, or a temporary copy of it."""
    if file.path != "-" and not file.is_gzip and (file.remote is None or _input_of(file).remote):
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix=name_copies(), suffix=file.suffix) as copy:
        if file.path == "-":
            copy.write(columns.score.encode() + b"\n")
        with _opened(file) as source:
            _copy(source, copy, file, budget)
        copy.flush()
        yield replace(file, path=copy.name, remote=None)


def _copy(source: Any, copy: Any, file: File, budget: ByteBudget) -> None:
    """Copy all bytes; from a packed file or a pipe at most what may be decoded: few bytes can unpack to very many."""
    most = budget.limit if file.is_gzip or file.path == "-" else None
    while piece := source.read(1 << 20):
        copy.write(piece)
        if most is not None and copy.tell() > most:
            must = f"must {'unpack to' if file.is_gzip else 'be'} at most {most:,} bytes, got more"
            raise GateError(f"{file}: {must}; give fewer rows or columns")


def _opened(file: File) -> Any:
    if file.path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if file.remote is not None:
        return file.remote.open_input_stream(file.path, compression="gzip" if file.is_gzip else None)
    return gzip.open(file.path, "rb")


for known in INPUTS:
    known.read  # noqa: B018, it imports the format: a child shares what is imported before it is made
