"""NumPy's archive of arrays, each a column."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import pyarrow as pa

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats.npy import read_array, read_header
from gate.scores.formats.table import Batches, File, Table, require


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    with zipfile.ZipFile(file) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        members = dict(zip(present, archive.infolist(), strict=True))
        wanted = present if len(names) == len(present) == 1 else names
        require(wanted, present, file)
        if not all(members[name].filename.endswith(".npy") for name in wanted):
            raise GateError(f"{file}: must hold arrays, got another kind of file inside; save them with numpy.savez")
        table = {}
        for name, member in zip(names, (members[name] for name in wanted), strict=True):
            with archive.open(member) as opened:
                table[name] = read_array(opened, member.file_size, file, budget)
    if len({len(array) for array in table.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {len(array):,}" for name, array in table.items())
        raise GateError(f"{file}: its arrays must be of one length, got {lengths}; save one label for every score")
    return Table(table, tuple(present))


def stream(file: File, names: list[str], columns: Columns) -> Batches:
    with zipfile.ZipFile(file) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        members = dict(zip(present, archive.infolist(), strict=True))
        wanted = present if len(names) == len(present) == 1 else names
        require(wanted, present, file)
        files = [archive.open(members[name]) for name in wanted]
        try:
            heads = [_head(opened, members[name].file_size) for opened, name in zip(files, wanted, strict=True)]
            if len({rows for rows, _ in heads}) != 1:
                raise ValueError("arrays of several lengths")
            rows, step = heads[0][0], 1 << 20
            for start in range(0, rows, step):
                n = min(step, rows - start)
                arrays = [
                    np.frombuffer(opened.read(n * kind.itemsize), kind, n)
                    for opened, (_, kind) in zip(files, heads, strict=True)
                ]
                yield pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], names), tuple(present)
        finally:
            for opened in files:
                opened.close()


def _head(opened: Any, size: int) -> tuple[int, Any]:
    """Read the length and the kind of an array of plain numbers."""
    shape, kind = read_header(opened)
    if len(shape) != 1 or kind.kind not in "fiu" or kind.byteorder == ">" or kind.itemsize not in (1, 2, 4, 8):
        raise ValueError("an array that must be read as a whole")
    if shape[0] * kind.itemsize != size - opened.tell():
        raise ValueError("another length than its header says")
    return int(shape[0]), kind
