"""JSON, one object to a line."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from typing import Any

import pyarrow as pa
import pyarrow.json

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats.table import BLOCK, LONGEST, Batches, File, Table, pick, refuse_longer, require


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    """Read only the named columns if their kinds stay those of the first lines, else all that the file holds."""
    refuse_null_lines(file)
    table, present = None, []
    with contextlib.suppress(pa.ArrowException):
        kinds = first_kinds(file, names[0] if names else "")
        if {*names} <= {*kinds}:
            wanted = pa.schema([(name, kinds[name]) for name in names])
            alone = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
            table, present = pyarrow.json.read_json(os.fspath(file), parse_options=alone), list(kinds)
    if table is None:
        try:
            table = pyarrow.json.read_json(os.fspath(file))
        except pa.ArrowInvalid:
            _refuse_long_lines(file)
            raise
        present = table.column_names
    require(names, present, file)
    budget.take(table.select(names).nbytes, file)
    return Table(pick(table, names), tuple(present))


def stream(file: File, names: list[str], columns: Columns) -> Batches:
    if not {*names} <= {columns.score, columns.count}:
        raise pa.ArrowInvalid("columns whose kind only all rows tell")
    if not hasattr(pyarrow.json, "open_json"):
        raise pa.ArrowInvalid("an older Arrow")
    refuse_null_lines(file)
    present = tuple(first_kinds(file, columns.score))
    schema = pa.schema([(name, pa.float64()) for name in names])
    alone = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    with pyarrow.json.open_json(os.fspath(file), pyarrow.json.ReadOptions(block_size=BLOCK), alone) as reader:
        for batch in reader:
            if any(column.null_count for column in batch.columns):  # perhaps the column is missing altogether
                raise pa.ArrowInvalid("rows without a value")
            yield batch, present


_NULL_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\n)[ \t\r\n]*null")


def refuse_null_lines(file: File) -> None:
    """Refuse lines of `null`: Arrow crashes on a block that begins with one (apache/arrow#47409); none has a score."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = _NULL_LINE.search(text) if text.find(b"null") >= 0 else None
        if found:
            row = text[: found.end()].count(b"\n") + 1
            raise GateError(f"{file}: must have one JSON object to a line, got null in line {row:,}; remove it")


def _refuse_long_lines(file: File) -> None:
    """Name the line that is longer than what Arrow parses at once; only used on a file that is refused anyway."""
    with open(file, "rb") as opened:
        number = 0
        while line := opened.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                refuse_longer(file, "line", number, "write one JSON object to a line, and ")


def first_kinds(file: File, score: str) -> dict[str, Any]:
    """Find the kind of each column in the first lines; whole scores may turn out to be floats further down."""
    with open(file, "rb") as opened:
        lines = opened.read(1 << 20).rpartition(b"\n")[0]
    schema = pyarrow.json.read_json(pa.BufferReader(lines)).schema if lines else pa.schema([])
    kinds = {field.name: field.type for field in schema if not pa.types.is_null(field.type)}
    return kinds | {score: pa.float64()} if pa.types.is_integer(kinds.get(score, pa.null())) else kinds
