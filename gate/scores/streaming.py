"""Streaming: files that cannot be divided, read some rows at a time, with what their readers check of the whole file.

Text with a column of times is read as a whole: it takes all rows to tell how times are written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from gate.errors import GateError
from gate.inputs import by_ending
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats import File, Table, fetched, pick, read_file


def stream_file(file: File, names: list[str], columns: Columns, rows: int) -> Iterator[Table]:
    """Yield the named columns of a file, so many rows at a time; all at once if its format does not allow that."""
    input_ = by_ending(file.suffix)
    reader = None if input_ is None else input_.stream
    if reader is None:
        yield read_file(file, columns, ByteBudget())
        return
    done = 0
    try:
        with fetched(replace(file, columns=columns), columns, ByteBudget()) as local:
            if os.stat(local).st_size == 0:
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
    except GateError:
        raise
    except Exception:  # zlib, zipfile and Arrow raise a dozen types on a broken file; the whole reader explains it
        whole = read_file(file, columns, ByteBudget())
        yield Table({name: column[done:] for name, column in whole.columns.items() if name in names}, whole.names)
