"""NumPy's file of one array, which has no names; never a pickle."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.errors import GateError
from gate.scores.budget import ByteBudget
from gate.scores.formats.table import File, Table, one_dimensional
from gate.words import plural


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    if len(names) > 1:
        got = "a .npy file, which has none; name no such column in the policy or use .npz"
        raise GateError(f"{file}: must have a column {names[1]!r}, got {got}")
    if not names:
        return Table({})
    with open(file, "rb") as opened:
        return Table({names[0]: read_array(opened, os.fstat(opened.fileno()).st_size, file, budget)})


def read_array(opened: Any, size: int, file: File, budget: ByteBudget) -> NDArray[Any]:
    """Read the array from bytes of the .npy format; there must be as many as its header says; never a pickle."""
    shape, kind = read_header(opened)
    claimed, held = math.prod(shape) * kind.itemsize, size - opened.tell()
    if claimed != held and not kind.hasobject:
        raise ValueError(f"{plural(held, 'byte')} where its header says {claimed:,}")
    budget.take(claimed, file)
    opened.seek(0)
    return one_dimensional(np.lib.format.read_array(opened, allow_pickle=False), file)


def read_header(opened: Any) -> tuple[tuple[int, ...], Any]:
    """Read the shape and the kind that the header of an array claims."""
    version = np.lib.format.read_magic(opened)
    read_ = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read_(opened)
    return shape, kind
