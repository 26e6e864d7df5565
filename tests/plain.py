"""Score files read plainly, and without gate or pyarrow: what a file holds if nothing in it is trusted.

Python's csv and json read text, DuckDB reads Parquet, polars reads Arrow's files, Python reads gzip, and NumPy's files
are read by their bytes. A fuzzer compares what gate took with what these read; they are slow, and they judge nothing.
"""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

NUMBER = re.compile(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".feather", ".arrow", ".jsonl", ".ndjson", ".npy", ".npz")


MARKERS = ("_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*", "*.crc", "*.md")


class UnreadableError(Exception):
    """The plain reader cannot make rows of it."""


@dataclass(frozen=True)
class Rows:
    """How many rows there are, and the scores of those that were asked for, with what other columns say of these."""

    rows: int
    scores: list[float]
    others: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest in gate's record for scores from 0 to 1: over their number, ends, and two sums of whole numbers.

        The numbers are the first 29 and the next 20 binary digits of each score.
        """
        cells = [math.floor(score * 2.0**49) for score in self.scores]
        sums = sum(cell >> 20 for cell in cells), sum(cell & (2**20 - 1) for cell in cells)
        low, high = min(self.scores) + 0.0, max(self.scores) + 0.0
        return hashlib.sha256(f"{len(self.scores)} {low!r} {high!r} {sums[0]} {sums[1]}\n".encode()).hexdigest()

    def parts(self, name: str) -> str:
        """The scores that belong together by another column, whatever names it uses."""
        return parts_of(self.scores, self.others[name])

    def times(self, name: str) -> list[list[float]]:
        return times_of(self.scores, self.others[name])


def parts_of(scores: Iterable[float], names: Iterable[Any]) -> str:
    held: dict[Any, list[float]] = {}
    for score, name in zip(scores, names, strict=True):
        held.setdefault(name, []).append(score + 0.0)
    together = sorted(tuple(sorted(part)) for part in held.values())
    return hashlib.sha256(repr(together).encode()).hexdigest()


def times_of(scores: Iterable[float], times: Iterable[int]) -> list[list[float]]:
    """Each score with its time, in the order of the scores and then of the times, in microseconds."""
    return sorted([score + 0.0, time] for score, time in zip(scores, times, strict=True))


def read(
    path: Path,
    score: str,
    label: str | None,
    benign: str,
    malicious: bool = False,
    names_of: tuple[str, ...] = (),
    timestamp: str | None = None,
) -> Rows:
    """All rows of a file or directory, with the scores of its benign rows or of the others.

    `names_of` are columns that say which rows belong together, `timestamp` one that says when they were seen.
    """
    total, taken = 0, []
    wanted = [*names_of, *([timestamp] if timestamp else [])]
    others: dict[str, list[Any]] = {name: [] for name in wanted}
    for file, keys in _files(path):
        names = [name for name in (score, label, *wanted) if name is not None and name not in keys]
        columns = {**_columns(file, names, names_of), **keys}
        rows = len(next(iter(columns[name] for name in names)))
        total += rows
        scores = columns[score]
        labels: Any = None if label is None else columns[label]
        here: dict[str, list[Any]] = {name: [] for name in wanted}
        for i in range(rows):
            if label is not None:
                value = labels if isinstance(labels, str) else labels[i]
                if _is_benign(value, benign) == malicious:
                    continue
            taken.append(_number(scores if isinstance(scores, str) else scores[i]))
            for name in wanted:
                value = columns[name] if isinstance(columns[name], str) else columns[name][i]
                here[name].append(_written(value) if name in names_of else _present(value))
        for name in wanted:
            others[name] += _microseconds(here[name]) if name == timestamp else here[name]
    return Rows(total, taken, others)


def _present(value: Any) -> Any:
    if value is None:
        raise UnreadableError("a row without a name")
    return value.decode() if isinstance(value, bytes) else value


def _written(value: Any) -> Any:
    """A name as text: one file may have 7 and another file "7"."""
    value = _present(value)
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value


class _Micros(int):
    """Microseconds since 1970, as a reader of typed times gave them."""


UNITS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (1e20, 1e-3))  # numbers below the first are worth so many microseconds


def _microseconds(times: list[Any]) -> list[int]:
    """Times: the largest number decides the unit of numbers; dates and words follow the calendar, in UTC by default."""
    if all(isinstance(time, int | float | Decimal) and not isinstance(time, _Micros) for time in times):
        largest = max((abs(float(time)) for time in times), default=0.0)
        scale = next(scale for limit, scale in UNITS if largest < limit)
        return [math.floor(float(time) * scale) for time in times]
    return [_moment(time) for time in times]


def _moment(time: Any) -> int:
    if isinstance(time, _Micros):
        return int(time)
    if isinstance(time, str):
        time = datetime.fromisoformat(time.strip())
    if isinstance(time, date) and not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _files(path: Path) -> Iterable[tuple[Path, dict[str, str]]]:
    """Every file that may hold rows, with the keys of its path; what begins with a dot, and markers, hold none."""
    if not path.is_dir():
        yield path, {}
        return
    for folder, _, names in os.walk(path, followlinks=True):
        for name in sorted(names):
            file = Path(folder, name)
            below = file.relative_to(path).parts
            if any(part.startswith(".") for part in below) or any(fnmatchcase(name, marker) for marker in MARKERS):
                continue
            if file.suffix.lower() not in SUFFIXES and file.stat().st_size == 0:
                continue
            keys = dict(part.split("=", 1) for part in below[:-1] if "=" in part)
            yield file, {key: unquote(value) for key, value in keys.items()}


def _is_benign(value: Any, benign: str) -> bool:
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, bool | np.bool_):
        return {"0": False, "false": False, "1": True, "true": True}[benign.lower()] == bool(value)
    if isinstance(value, str):
        return value == benign
    return bool(NUMBER.fullmatch(benign)) and Decimal(str(value)) == Decimal(benign)


def _number(value: Any) -> float:
    if isinstance(value, str):
        if not NUMBER.fullmatch(value):
            raise UnreadableError(f"no number: {value[:40]!r}")
        value = float(value)
    if value is None or isinstance(value, bool | bytes | list | dict):
        raise UnreadableError(f"no score: {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise UnreadableError(f"no score: {number}")
    return number


def _columns(file: Path, names: list[str], names_of: tuple[str, ...]) -> dict[str, Any]:
    name, content = file.name.lower(), file.read_bytes()
    if name.endswith(".gz"):
        name, content = name.removesuffix(".gz"), gzip.decompress(content)
    suffix = Path(name).suffix
    if suffix not in SUFFIXES:
        raise UnreadableError(f"{file.name}: no score file by its name")
    readers = {".parquet": _parquet, ".pq": _parquet, ".arrow": _arrow, ".feather": _arrow, ".npy": _npy, ".npz": _npz}
    if suffix in (".csv", ".tsv"):
        return _csv(content, names, "\t" if suffix == ".tsv" else ",", names_of)
    return readers.get(suffix, _jsonl)(content, names)


def _csv(content: bytes, names: list[str], separator: str, names_of: tuple[str, ...]) -> dict[str, Any]:
    lines = csv.reader(
        io.StringIO(content.decode("utf-8-sig", errors="surrogateescape"), newline=""), delimiter=separator, strict=True
    )
    header = next(lines)
    rows = [row for row in lines if row or len(header) == 1]
    if any(len(row) != len(header) for row in rows):
        raise UnreadableError("rows of several lengths")
    columns = {name: [row[header.index(name)] for row in rows] for name in names}
    if any("" in texts for name, texts in columns.items() if name in names_of):
        raise UnreadableError("a row without a name")
    return {name: texts if name in names_of else _typed(texts) for name, texts in columns.items()}


def _typed(texts: list[str]) -> list[Any]:
    """Text has no types: a column that is numbers throughout is numbers, and likewise for booleans."""
    if all(NUMBER.fullmatch(text) for text in texts):
        return [_exactly(text.strip()) for text in texts]
    if all(text.lower() in ("true", "false") for text in texts):
        return [text.lower() == "true" for text in texts]
    return texts


def _exactly(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits
        return float(text)


def _jsonl(content: bytes, names: list[str]) -> dict[str, Any]:
    def refuse(text: str) -> Any:
        raise UnreadableError(f"no number: {text}")

    text, rows, place = content.decode("utf-8-sig", errors="surrogateescape"), [], 0
    decoder = json.JSONDecoder(parse_constant=refuse)
    while place < len(text := text.rstrip()):
        row, place = decoder.raw_decode(text, place + len(text[place:]) - len(text[place:].lstrip()))
        rows.append(row)
    return {name: [row.get(name) for row in rows] for name in names}


def _npy(content: bytes, names: list[str]) -> dict[str, Any]:
    return {names[0]: _array(content)}


def _npz(content: bytes, names: list[str]) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        held = {name.removesuffix(".npy"): name for name in archive.namelist()}
        if len(names) == 1 and len(held) == 1:
            held = {names[0]: next(iter(held.values()))}
        return {name: _array(archive.read(held[name])) for name in names}


def _array(content: bytes) -> list[Any]:
    """A plain array of numbers or texts, from the header that it has and the bytes that are there."""
    if content[:6] != b"\x93NUMPY":
        raise UnreadableError("no array")
    width, start = (2, 10) if content[6] == 1 else (4, 12)
    length = struct.unpack("<H" if width == 2 else "<I", content[8 : 8 + width])[0]
    header = ast.literal_eval(content[start : start + length].decode("latin1").strip())
    kind, shape = np.dtype(header["descr"]), header["shape"]
    if kind.hasobject or kind.names or len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise UnreadableError(f"no plain list: {header}")
    body = content[start + length :]
    if len(body) < shape[0] * kind.itemsize:
        raise UnreadableError("fewer bytes than the header says")
    return np.frombuffer(body, dtype=kind, count=shape[0]).tolist()


def _parquet(content: bytes, names: list[str]) -> dict[str, Any]:
    import duckdb

    with tempfile.NamedTemporaryFile(prefix="plain-", suffix=".parquet") as copy, duckdb.connect() as connection:
        copy.write(content)
        copy.flush()
        connection.execute("SET threads = 1")
        quoted = {name: '"' + name.replace('"', '""') + '"' for name in names}
        held = "FROM read_parquet(?, hive_partitioning = false)"
        try:
            kinds = connection.execute(f"DESCRIBE SELECT {', '.join(quoted.values())} {held}", [copy.name]).fetchall()
            timed = [str(kind[1]).startswith("TIMESTAMP") for kind in kinds]
            parts = (
                f"epoch_us({name})" if is_time else name for name, is_time in zip(quoted.values(), timed, strict=True)
            )
            rows = connection.execute(f"SELECT {', '.join(parts)} {held}", [copy.name]).fetchall()
        except duckdb.Error as error:
            raise UnreadableError(str(error)) from None
    return {
        name: [_Micros(row[i]) if timed[i] and row[i] is not None else row[i] for row in rows]
        for i, name in enumerate(names)
    }


def _arrow(content: bytes, names: list[str]) -> dict[str, Any]:
    import polars

    readers = (polars.read_ipc, polars.read_ipc_stream) if content[:6] == b"ARROW1" else (polars.read_ipc_stream,)
    for reader in readers:
        try:
            frame = reader(io.BytesIO(content), columns=names, use_pyarrow=False)
        except Exception as error:
            problem = error
        except BaseException as error:  # polars raises it if its own code panics
            if type(error).__name__ != "PanicException":
                raise
            problem = UnreadableError(str(error))
        else:
            return {name: frame[name].to_list() for name in names}
    raise UnreadableError(f"{type(problem).__name__}: {problem}")
