"""Describes each column of score files: its kind, how many values it has, and whether they read as times."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from gate.errors import GateError
from gate.inputs import endings
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.columns import decode, join_names, read_names, read_times
from gate.scores.files import find
from gate.scores.formats import File, list_columns, read_file
from gate.scores.wording import is_number, show
from gate.words import plural

MOST_COLUMNS = 40  # columns of a file that are looked at
MOST_LABELS = 50  # a column with more distinct values has no labels
_TIME_NAME = re.compile(r"(?:^|_)(time|timestamp|ts|date|datetime|seen|created|at|day)(?:_at)?$")
_YEARS = (np.datetime64("1990-01-01", "us").astype(np.int64), np.datetime64("2100-01-01", "us").astype(np.int64))


@dataclass(frozen=True)
class Seen:
    """One column, described as the files have it.

    kind     `number`, `text`, `time` or `other`
    values   its distinct values with their rows, if they are few enough to be labels
    """

    name: str
    kind: str
    whole: bool
    distinct: int
    rows: int
    missing: int
    values: tuple[tuple[str, int], ...]
    is_time: bool


@dataclass(frozen=True)
class PartColumns:
    """What one argument names: its rows, its columns, and what it is taken for.

    header   the line that must be put in front of a text file that has none
    """

    path: str
    rows: int
    columns: tuple[Seen, ...]
    header: str | None = None
    role: str = "benign"

    @property
    def names(self) -> list[str]:
        return [seen.name for seen in self.columns]


def look_at(path: str, scratch: str) -> PartColumns:
    """Describe the columns of one argument, over all its files together."""
    files = find(path).files
    for file in files:
        if file.suffix not in endings():
            known, got = ", ".join(endings()), file.suffix or "no suffix"
            raise GateError(f"{file}: must end in one of {known} (or these with .gz), got {got}")
        if file.remote is None and os.path.isfile(file) and not file.bytes:
            raise GateError(f"{file}: must hold scores, got an empty file; write it again")
    names = [list_columns(file, ByteBudget()) for file in files]
    header = None
    if files[0].is_text and names[0] and all(is_number(name) or not name for name in names[0]):
        if len(files) > 1 or files[0].is_gzip or files[0].remote is not None:
            raise GateError(f"{files[0]}: must have a header line that names the columns, got numbers; add one")
        found = [f"column{i}" for i in range(1, len(names[0]) + 1)]
        header = ("\t" if files[0].suffix == ".tsv" else ",").join(found if len(found) > 1 else ["score"])
        files, names = (_with_header(files[0], header, scratch),), [tuple(re.split("[,\t]", header))]
    common = [name for name in names[0] if all(name in others for others in names[1:])]
    common = list(dict.fromkeys([*common, *(key for key in files[0].keys if all(key in f.keys for f in files))]))
    if not names[0]:
        common = [Columns().score]
    columns = [_see(name, files) for name in common[:MOST_COLUMNS]]
    return PartColumns(path, max((seen.rows for seen in columns), default=0), tuple(columns), header)


def _with_header(file: File, header: str, scratch: str) -> File:
    """Make a copy with the header, in a place where the second look finds it too."""
    copy = named_copy(file.path, scratch)
    with open(file.path, "rb") as source, open(copy, "wb") as target:
        target.write(header.encode() + b"\n")
        while piece := source.read(1 << 20):
            target.write(piece)
    return replace(file, path=copy)


def named_copy(path: str, scratch: str) -> str:
    return f"{scratch}/{abs(hash(path))}{PurePath(path).suffix}"


def _see(name: str, files: Sequence[File]) -> Seen:
    if any(name in file.keys for file in files):  # the paths carry these
        texts = sorted({file.keys[name] for file in files})
        return Seen(name, "text", False, len(texts), 0, 0, tuple((text, 0) for text in texts), False)
    columns = [decode(read_file(file, Columns(score=name), ByteBudget()).columns[name]) for file in files]
    kinds = {_kind(str(column.type)) for column in columns}
    kind = kinds.pop() if len(kinds) == 1 else "other"
    rows, missing = sum(map(len, columns)), sum(column.null_count for column in columns)
    counts: dict[str, int] = {}
    distinct = 0
    if kind in ("number", "text", "flag"):
        distinct = max(len(column.unique()) for column in columns)
        if distinct <= MOST_LABELS:
            for column in columns:
                for entry in column.value_counts().to_pylist():
                    value = entry["values"]
                    counts[_written(value)] = counts.get(_written(value), 0) + entry["counts"]
            distinct = len(counts)
    whole = all(str(column.type).startswith(("int", "uint")) for column in columns)
    is_time = kind == "time" or (bool(_TIME_NAME.search(plain(name))) and _reads_as_time(columns, name, files))
    return Seen(name, kind, whole, distinct, rows, missing, tuple(sorted(counts.items())), is_time)


def _written(value: Any) -> str:
    """Write a label as a policy does."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _kind(name: str) -> str:
    if name == "bool":
        return "flag"
    if name.startswith(("int", "uint", "double", "float", "half", "decimal")):
        return "number"
    if name.startswith(("timestamp", "date")):
        return "time"
    return "text" if "string" in name else "other"


def _reads_as_time(columns: Sequence[Any], name: str, files: Sequence[File]) -> bool:
    try:
        times = [read_times(column, name, file, None) for column, file in zip(columns, files, strict=True)]
    except GateError:
        return False
    return all(len(part) and _YEARS[0] < part.min() and part.max() < _YEARS[1] for part in times)


def plain(name: str) -> str:
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip()).casefold().strip("_")


def names_of(part: PartColumns, name: str, scratch: str) -> Any:
    files = [replace(f, path=named_copy(f.path, scratch)) if part.header else f for f in find(part.path).files]
    return join_names(
        [read_names(read_file(f, Columns(score=name), ByteBudget()).columns[name], name, f, None) for f in files]
    )


def describe_rows(part: PartColumns) -> str:
    """Describe a file in a few words."""
    shown = ", ".join(map(show, part.names[:10])) + (", ..." if len(part.names) > 10 else "")
    return f"{part.path}: {plural(part.rows, 'row')}, {plural(len(part.names), 'column')} ({shown})"
