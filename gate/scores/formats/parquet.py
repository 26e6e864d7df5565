"""Parquet: row groups, each read in batches."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet

from gate.contract import Floats
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats.table import File, Table, decoded_bytes, pick, require

_ROWS = 1 << 20  # in a batch


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    with open_file(file, file.columns.segment, names, memory_map=file.remote is None) as opened:
        require(names, opened.schema_arrow.names, file)
        kinds = [opened.schema_arrow.field(name).type for name in names]
        rows = opened.metadata.num_rows
        budget.refuse(rows * sum(map(width, kinds)), file)  # this is the least; text is counted when it is read
        batches = []
        for batch in opened.iter_batches(_ROWS, columns=names):
            batches.append(batch)
            budget.take(decoded_bytes(batch), file)
        table = pa.Table.from_batches(batches) if batches else opened.read(columns=names)
        counted = sum(opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups))
        if not rows == counted == len(table):
            raise ValueError(f"{rows:,} rows in the footer, {counted:,} in the row groups, {len(table):,} in the pages")
        return Table(pick(table, names), tuple(opened.schema_arrow.names))


def open_file(file: File, segment: str | None, names: list[str], *, memory_map: bool) -> Any:
    """Open the file; segments stay as Parquet has them, each name once; `require` refuses a missing column.

    Pages with a checksum are compared with it: a changed bit would be another score.
    """
    source = os.fspath(file) if file.remote is None else file.remote.open_input_file(file.path)
    few = [segment] if segment in names else None
    open_ = partial(pyarrow.parquet.ParquetFile, source, memory_map=memory_map, page_checksum_verification=True)
    try:
        return open_(read_dictionary=few)
    except KeyError:
        return open_()


def width(kind: Any) -> int:
    """The bytes of one decoded value, where all values have the same number; otherwise at least one."""
    return kind.bit_width // 8 or 1 if pa.types.is_primitive(kind) else 1


def write_parquet(place: Path | IO[bytes], values: Floats) -> None:
    """Write scores as one column, the way `read` expects them by default."""
    pyarrow.parquet.write_table(pa.table({Columns().score: values}), place)
