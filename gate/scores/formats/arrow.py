"""Arrow's own files and streams (Feather), every length checked before it is used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats.table import Batches, File, Table, decoded_bytes, pick, require
from gate.scores.layout import check_file, check_stream


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    with _opened(file, names) as (present, schema, batches):
        held = []
        for batch in batches:
            held.append(batch)
            budget.take(decoded_bytes(batch), file)
    return Table(pick(pa.Table.from_batches(held, schema), names), present)


def stream(file: File, names: list[str], columns: Columns) -> Batches:
    with _opened(file, names) as (present, _, batches):
        for batch in batches:
            yield batch, present


@contextlib.contextmanager
def _opened(file: File, names: list[str]) -> Iterator[tuple[tuple[str, ...], Any, Iterator[Any]]]:
    """Read the names of all columns, the schema of the wanted ones, and their batches, each validated."""
    with pa.OSFile(os.fspath(file)) as source:  # not mapped: the scores must not change with the file
        is_file = source.read(6) == b"ARROW1"
        check_layout, open_ = (check_file, pa.ipc.open_file) if is_file else (check_stream, pa.ipc.open_stream)
        check_layout(source)
        source.seek(0)
        schema = open_(source).schema
        require(names, schema.names, file)
        wanted = pa.ipc.IpcReadOptions(included_fields=sorted(schema.names.index(name) for name in names))
        source.seek(0)
        reader = open_(source, options=wanted)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        yield tuple(schema.names), reader.schema, map(_validated, batches)


def _validated(batch: Any) -> Any:
    """Validate a batch before any of its lengths is used."""
    batch.validate(full=True)
    return batch
