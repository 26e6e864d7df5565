"""A file of scores and the columns that are read of it, with what every format asks of them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NoReturn

import pyarrow as pa
from numpy.typing import NDArray

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.wording import is_number, show


@dataclass(frozen=True)
class File:
    """One file: printed by the name that the user knows, opened by its path on this machine.

    `keys` are the columns that a partitioned directory writes into its path, as `label=0`.
    """

    name: str
    path: str
    keys: Mapping[str, str] = field(default_factory=dict)
    remote: Any = None  # the filesystem of `path`, if it is not that of this machine
    columns: Columns = field(default_factory=Columns)  # the columns to read
    size: int | None = None  # in bytes, if a listing gave it

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return self.path

    @property
    def suffix(self) -> str:
        return PurePath(self.name.lower().removesuffix(".gz")).suffix

    @property
    def is_text(self) -> bool:
        """Whether only the way in which values are written tells what a column holds."""
        return self.suffix in (".csv", ".tsv")

    @property
    def bytes(self) -> int:
        """The length of the file; 0 where it cannot be told."""
        try:
            return self.size or 0 if self.remote is not None else os.stat(self.path).st_size
        except OSError:
            return 0

    @property
    def is_gzip(self) -> bool:
        return self.name.lower().endswith(".gz")


@dataclass(frozen=True)
class Table:
    """The wanted columns of one file or object, and the names of all that it has."""

    columns: Mapping[str, Any]
    names: tuple[str, ...] = ()


Batches = Iterator[tuple[Any, tuple[str, ...]]]  # each with some of the rows and the names of all columns
BLOCK = 1 << 22  # bytes of text read at a time
LONGEST = 1 << 20  # bytes of a line that Arrow's parsers always accept: one block


ROLES = ("score", "calibrated", "label", "segment", "group", "id", "timestamp", "count")


def list_wanted(columns: Columns) -> list[str]:
    """List the columns that the policy names, the scores first."""
    named = [columns.score, columns.calibrated, columns.label or None, columns.group, columns.id, columns.segment]
    named += [columns.timestamp, columns.count]
    named += getattr(columns, "also", ())  # the columns of other detectors
    return list(dict.fromkeys(name for name in named if name is not None))


def pick(table: pa.Table, names: list[str]) -> Mapping[str, Any]:
    """Select the named columns; every offset, index and text in them is checked before it is used."""
    table.select(names).validate(full=True)
    for kind in (getattr(table.schema.field(name).type, "value_type", table.schema.field(name).type) for name in names):
        if pa.types.is_decimal(kind) and abs(kind.scale) > (38 if kind.bit_width <= 128 else 76):
            raise pa.ArrowInvalid(f"decimals with {kind.scale} digits behind the point")  # Arrow cannot print these
    return {name: table.column(name) for name in names}


def refuse_longer(file: File, unit: str, number: int, first: str = "") -> NoReturn:
    """Refuse a line that is too long for every parser: say which line, and what to do."""
    raise GateError(
        f"{file}: must have {unit}s of at most {LONGEST:,} bytes, got a longer one in {unit} {number:,}; {first}leave "
        "long texts out, or give the scores as .parquet"
    )


def require(names: list[str], present: list[str], file: File) -> None:
    for name in names:
        if present.count(name) == 1:
            continue
        if name in present:
            count = present.count(name)
            raise GateError(f"{file}: must have one column {name!r}, got {count} of that name; rename or remove one")
        close = difflib.get_close_matches(name, present, n=1)
        shown = ", ".join(map(show, present[:10])) + (", ..." if len(present) > 10 else "")
        role = next((role for role in ROLES if getattr(file.columns, role) == name), None)
        hint = f"name the one that it has in the policy's `data:` or with --set data.{role}=NAME"
        if role is None:
            hint = "name the one that it has in the policy's `detectors:`"
        if close:
            hint = f"did you mean {show(close[0])}? {hint}"
        if len(present) == 1 and name in re.split(r"[;\t|]", present[0]):
            hint = "separate the columns with commas"
        if present and all(map(is_number, present)):
            hint = "add a header line that names the columns"
        raise GateError(f"{file}: must have a column {name!r}, got {shown or 'no column at all'}; {hint}")


def one_dimensional(array: NDArray[Any], file: File) -> NDArray[Any]:
    column: NDArray[Any] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise GateError(f"{file}: must be a list of scores, got an array of shape {array.shape}; save one column of it")
    return column


def decoded_bytes(batch: Any) -> int:
    """The bytes that its columns hold; for text kept as views, pyarrow before 24 knows only the size of buffers."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())
