"""The scores: files in, raw scores of benign (or malicious) rows out as read-only float64; counted, never judged."""

from __future__ import annotations

import contextlib
import csv
import difflib
import errno
import glob
import gzip
import hashlib
import mmap
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.interchange
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError, plural
from gate.policy import Columns

Kind = Literal["benign", "malicious"]


@dataclass(frozen=True)
class Source:
    """One file as it was named, with what it held."""

    path: str
    rows: int
    benign: int


@dataclass(frozen=True)
class Scores:
    """Raw scores of one sample, in row order: of its benign rows, or of its malicious ones."""

    values: Floats
    sources: tuple[Source, ...] = ()
    groups: NDArray[np.int64] | None = None  # the number of each row's group, where the policy names a column
    ids: Any = None  # what names each row across releases, as Arrow text, where it names a column
    group_names: Any = None  # the name of each numbered group, as Arrow text in rising order
    segments: NDArray[np.int32] | None = None  # likewise for segments
    segment_names: tuple[str, ...] = ()
    timestamps: NDArray[np.int64] | None = None  # microseconds since 1970, in UTC
    kind: Kind = "benign"

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    @cached_property
    def rows_sha256(self) -> str | None:
        """The digest of the rows by their ids, where there are any: scores change with every release, ids do not."""
        return None if self.ids is None else _digest(self.ids)

    @cached_property
    def duplicates(self) -> int | None:
        """How many rows repeat the id of an earlier one; equal scores without ids say nothing."""
        return None if self.ids is None else len(self.ids) - int(pc.count_distinct(self.ids).as_py())

    @cached_property
    def group_sizes(self) -> Floats:
        return np.bincount(self.groups if self.groups is not None else []).astype(np.float64)

    def flagged_by_group(self, threshold: float | None) -> Floats:
        """How many rows of each group reach a threshold; none of them where no score does."""
        groups = self.groups if self.groups is not None else np.empty(0, dtype=np.int64)
        flagged = groups[:0] if threshold is None else groups[self.values >= threshold]
        return np.bincount(flagged, minlength=len(self.group_sizes)).astype(np.float64)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        rows = sum(source.rows for source in self.sources)
        others = f", {rows - len(self):,} of other labels" if rows > len(self) else ""
        return f"{plural(rows, 'row')} from {self.files}: {len(self):,} {self.kind}{others}, none refused"

    @property
    def files(self) -> str:
        return ", ".join(source.path for source in self.sources)

    @cached_property
    def ordered(self) -> Floats:
        """The same scores in rising order."""
        ordered = np.sort(self.values)
        ordered += 0.0  # -0.0 and 0.0 are one score: give them one byte pattern
        ordered.setflags(write=False)
        return ordered

    @cached_property
    def sha256(self) -> str:
        """The digest of the sample as a multiset: the order of rows and the file format do not change it."""
        return hashlib.sha256(self.ordered.astype("<f8", copy=False).data).hexdigest()


def read(paths: Iterable[str], columns: Columns, domain: tuple[float, float], kind: Kind = "benign") -> Scores:
    """Read the benign scores of one or more files, or raise at the first row that is not a score.

    The malicious ones are those of the other rows: of all of them where the policy names no label column.
    """
    parts, sources = [], []
    seen: dict[str, str] = {}
    for path in paths:
        files = _find(path)
        for file in files:
            _refuse_repeated(file, seen)
        alone = len(files) == 1
        found = [_sample(file, _read_file(file, columns), columns, domain, kind, alone) for file in files]
        sources.append(_source(path, found, kind))
        parts += found
    return _join(parts, tuple(sources), kind)


def from_object(data: Any, name: str, columns: Columns, domain: tuple[float, float], kind: Kind = "benign") -> Scores:
    """The benign (or malicious) scores in a NumPy or Arrow array, a table, a data frame, or the files that are named.

    A data frame is anything that speaks the Arrow PyCapsule or the DataFrame interchange protocol. `name` stands for
    the data in messages and in the record.
    """
    if isinstance(data, Scores):
        return data
    if isinstance(data, str | os.PathLike):
        return read([os.fspath(data)], columns, domain, kind)
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data):
        return read([os.fspath(path) for path in data], columns, domain, kind)
    place = _File(name, name)
    table = _columns_of(data, _wanted(columns), place)
    part = _sample(place, table, columns, domain, kind, alone=True)
    return _join([part], (_source(name, [part], kind),), kind)


def _refuse_repeated(file: _File, seen: dict[str, str]) -> None:
    """Rows read twice would count twice, and make every interval too narrow."""
    place = file.path if file.remote is not None or file.path == "-" else os.path.realpath(file.path)
    if place in seen:
        raise GateError(f"{file}: must be read once, got the same file again as {seen[place]}; name it once")
    seen[place] = str(file)


def _columns_of(data: Any, names: list[str], place: _File) -> Mapping[str, Any]:
    """The named columns of an object in memory; an array alone is the scores."""
    try:
        if hasattr(data, "__arrow_c_stream__"):
            array = pa.chunked_array(data)
        elif hasattr(data, "__arrow_c_array__"):
            array = pa.chunked_array([pa.array(data)])
        elif hasattr(data, "__dataframe__"):
            array = pa.chunked_array(pyarrow.interchange.from_dataframe(data))
        else:
            array = np.asarray(data)
    except Exception as error:  # whatever another library raises in its half of a protocol
        raise GateError(
            f"{place}: must be an array, an Arrow table or a data frame, got {type(data).__name__}: {_reason(error)}"
        ) from None
    if isinstance(array, np.ndarray) or not pa.types.is_struct(array.type):
        if len(names) > 1:
            raise GateError(f"{place}: must have a column {names[1]!r}, got an array, which has none; give a table")
        return {names[0]: _one_dimensional(array, place) if isinstance(array, np.ndarray) else array}
    table = pa.Table.from_struct_array(array)
    _require(names, table.column_names, place)
    return _columns(table, names)


@dataclass(frozen=True)
class _Sample:
    """What one file or object gave: its rows counted, the columns of the benign, or malicious, ones."""

    rows: int
    values: Floats
    groups: Any
    ids: Any
    segments: Any
    timestamps: NDArray[np.int64] | None


def _sample(
    file: _File, table: Mapping[str, Any], columns: Columns, domain: tuple[float, float], kind: Kind, alone: bool
) -> _Sample:
    taken = None if columns.label is None else _rows_of(kind, table[columns.label], columns, file, alone)
    values = _to_float64(table[columns.score], columns.score, file, taken)
    _refuse_outside(values, columns.score, domain, file, taken)
    ids = columns.id and _names(table[columns.id], columns.id, file, taken)
    named = (columns.group, columns.segment)
    groups, segments = (name and _coded(table[name], name, file, taken) for name in named)
    times = None
    if columns.timestamp is not None:
        times = _times(table[columns.timestamp], columns.timestamp, file, taken)
    return _Sample(len(table[columns.score]), values, groups, ids, segments, times)


def _source(path: str, parts: list[_Sample], kind: Kind) -> Source:
    rows, taken = sum(part.rows for part in parts), sum(len(part.values) for part in parts)
    return Source(path, rows, taken if kind == "benign" else rows - taken)


def _join(parts: list[_Sample], sources: tuple[Source, ...], kind: Kind) -> Scores:
    values = parts[0].values if len(parts) == 1 else np.concatenate([part.values for part in parts])
    if len(values) < 2:
        names = ", ".join(source.path for source in sources)
        raise GateError(f"{names}: must hold at least 2 {kind} scores, got {len(values)}; give more {kind} rows")
    groups, group_names = _numbered([part.groups for part in parts])
    segments, segment_names = _numbered([part.segments for part in parts])
    return Scores(
        values,
        sources,
        groups,
        None if parts[0].ids is None else _joined([part.ids for part in parts]),
        group_names,
        None if segments is None else segments.astype(np.int32),
        () if segment_names is None else tuple(segment_names.to_pylist()),
        None if parts[0].timestamps is None else np.concatenate([part.timestamps for part in parts]),
        kind,
    )


@dataclass(frozen=True)
class Split:
    """How one sample was divided, exactly enough to do it again on the same rows in the same order.

    `by` says what was kept: whole groups, each segment's share, the order of time; `cut` is the first time held out.
    """

    fraction: float
    seed: int
    by: str
    cut: str | None = None


def split(scores: Scores, fraction: float, seed: int) -> tuple[Scores, Scores, Split]:
    """Divide one sample into rows to fit on and rows to hold out; the rows of one group stay together.

    With timestamps the older rows are fitted on. Otherwise chance decides, in each segment by itself.
    """
    if not 0 < fraction < 1:
        raise GateError(f"--split: must be a fraction between 0 and 1, got {fraction:g}; write 0.3 to fit on 30 %")
    whole = "rows" if scores.groups is None else "groups"
    cut = None
    if scores.timestamps is not None:
        fitted, cut = _older(scores, scores.timestamps, fraction)
        by = f"{whole} by time"
    else:
        fitted = _drawn(scores, fraction, seed)
        by = whole if scores.segments is None else f"{whole} within segments"
    fit, holdout = (_part(scores, rows) for rows in (fitted, ~fitted))
    if min(len(fit), len(holdout)) < 2:
        raise GateError(
            f"--split: must leave at least 2 benign rows on each side, got {len(fit):,} and {len(holdout):,}; "
            "choose another fraction or give more rows or groups"
        )
    return fit, holdout, Split(fraction, seed, by, cut)


def _older(scores: Scores, times: NDArray[np.int64], fraction: float) -> tuple[NDArray[np.bool_], str]:
    """The rows before a moment that leaves at most the fraction before it; a group is as old as its newest row."""
    if scores.groups is not None:
        newest = np.full(len(scores.group_sizes), np.iinfo(np.int64).min)
        np.maximum.at(newest, scores.groups, times)
        times = newest[scores.groups]
    cut = np.partition(times, int(fraction * len(times)))[int(fraction * len(times))]
    return times < cut, _moment(int(cut))


def _moment(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us")) + "Z"


def _drawn(scores: Scores, fraction: float, seed: int) -> NDArray[np.bool_]:
    """In each segment, units drawn in random order as long as they stay within its fraction of the rows."""
    rng = np.random.default_rng(seed)
    n = len(scores)
    units = np.arange(n) if scores.groups is None else scores.groups
    sizes = np.ones(n) if scores.groups is None else scores.group_sizes
    strata = np.zeros(len(sizes), dtype=np.int64)
    if scores.segments is not None:  # a group that spans segments is drawn in its first
        strata = np.full(len(sizes), len(scores.segment_names), dtype=np.int64)
        np.minimum.at(strata, units, scores.segments)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(strata[order], kind="stable")]
    before = np.concatenate([[0.0], np.cumsum(sizes[order])])
    starts = np.searchsorted(strata[order], np.arange(strata.max() + 2))
    rows = np.diff(before[starts])
    allowed = np.round(fraction * rows) if scores.groups is None else fraction * rows
    taken = order[before[1:] - before[starts[strata[order]]] <= allowed[strata[order]]]
    fitted = np.zeros(len(sizes), dtype=bool)
    fitted[taken] = True
    return fitted[units]


def match(old: Scores, new: Scores) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """The scores that two releases gave the same rows, by id, and where in `new` these rows stand.

    Rows that only one of the two has scored are left out.
    """
    for scores in (old, new):
        if scores.ids is None:
            raise GateError(f"{scores.files}: must have ids to be compared row by row; set data.id or --id-column")
    # Numbers in the order of first sight, so those of the old rows are 0, 1, 2... as long as no id comes twice.
    numbers = pa.concat_arrays([old.ids, new.ids]).dictionary_encode().indices.to_numpy()
    here, there = numbers[: len(old)], numbers[len(old) :]
    for scores, codes in ((old, here), (new, there)):
        counts = np.bincount(codes)
        if counts.max() > 1:
            copies = np.flatnonzero(codes == np.argmax(counts > 1))
            raise GateError(
                f"{scores.files}: must have another id for every row to be compared row by row, "
                f"got {_shown(scores.ids[copies[0]].as_py())} in {len(copies):,} rows; remove the copies"
            )
    rows = np.flatnonzero(there < len(old))
    if len(rows) == 0:
        raise GateError(f"{old.files}: must have scored rows of the new release too, got no id in common with them")
    return old.values[there[rows]], new.values[rows], rows


def _part(scores: Scores, rows: NDArray[np.bool_]) -> Scores:
    groups, group_names = scores.groups, scores.group_names
    if groups is not None:
        kept, groups = np.unique(groups[rows], return_inverse=True)
        groups = groups.astype(np.int64)
        group_names = None if group_names is None else group_names.take(pa.array(kept))
    return Scores(
        scores.values[rows],
        scores.sources,
        groups,
        None if scores.ids is None else scores.ids.filter(pa.array(rows)),
        group_names,
        None if scores.segments is None else scores.segments[rows],
        scores.segment_names,
        None if scores.timestamps is None else scores.timestamps[rows],
        scores.kind,
    )


def write_parquet(path: Path, values: Floats) -> None:
    """Write scores as one column, the way `read` expects them by default."""
    pyarrow.parquet.write_table(pa.table({Columns().score: values}), path)


# --- files: where they are ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """One file: printed by the name that the user knows, opened by its path on this machine.

    `keys` are the columns that a partitioned directory writes into its path, as `label=0`.
    """

    name: str
    path: str
    keys: Mapping[str, str] = field(default_factory=dict)
    remote: Any = None  # the filesystem of `path`, where that is not this machine's
    segment: str | None = None  # the column of segments, which has few distinct values

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return self.path

    @property
    def suffix(self) -> str:
        return PurePath(self.name.lower().removesuffix(".gz")).suffix

    @property
    def is_gzip(self) -> bool:
        return self.name.lower().endswith(".gz")


def _find(argument: str) -> list[_File]:
    """The files that one argument names: a file, a directory, a pattern, a URI, or `-` for numbers on stdin."""
    if argument == "-":
        return [_File("stdin.csv", argument)]
    if "://" in argument:
        return _find_remote(argument)
    if not os.path.exists(argument) and any(char in argument for char in "*?["):
        found = sorted(name for name in glob.glob(argument, recursive=True) if os.path.isfile(name))
        if not found:
            raise GateError(f"{argument}: must match at least one file, got none; check the pattern")
        return [_File(name, name) for name in found]
    if not os.path.isdir(argument):
        return [_File(argument, argument)]
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(argument) for name in names)
    return _of_directory(argument, [_File(path, path) for path in sorted(inside)])


def _find_remote(uri: str) -> list[_File]:
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
        if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
            return [replace(file, name=file.name.replace(path, uri, 1)) for file in _find(path)]
        kind = filesystem.get_file_info(path).type
        if kind == pyarrow.fs.FileType.File:
            return [_File(uri, path, remote=filesystem)]
        if kind == pyarrow.fs.FileType.NotFound:
            raise GateError(f"{uri}: must exist, got no such file; check the name")
        listing = filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise GateError(f"{uri}: must be a file or directory that can be read, got: {_reason(error)}") from None
    paths = sorted(info.path for info in listing if info.type == pyarrow.fs.FileType.File)
    return _of_directory(uri, [_File(uri.rstrip("/") + p.removeprefix(path), p, remote=filesystem) for p in paths])


def _of_directory(name: str, files: list[_File]) -> list[_File]:
    """The score files of a directory, without hidden ones, and with the keys that their paths carry (`label=0`)."""
    found = []
    for file in files:
        below = file.name.removeprefix(name).strip("/").split("/")
        if file.suffix in _READERS and not any(part.startswith((".", "_")) for part in below):
            keys = dict(part.split("=", 1) for part in below[:-1] if "=" in part)
            found.append(replace(file, keys={key: unquote(value) for key, value in keys.items()}))
    if not found:
        raise GateError(f"{name}: must hold score files ({', '.join(_READERS)}), got none; name another directory")
    return found


@contextlib.contextmanager
def _fetched(file: _File, columns: Columns) -> Iterator[_File]:
    """The file on this machine and not packed: itself, or a temporary copy of it."""
    if file.path != "-" and not file.is_gzip and (file.remote is None or file.suffix == ".parquet"):
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="gate-", suffix=file.suffix) as copy:
        if file.path == "-":
            copy.write(columns.score.encode() + b"\n")
        with _opened(file) as source:
            shutil.copyfileobj(source, copy, 1 << 20)
        copy.flush()
        yield replace(file, path=copy.name, remote=None)


def _opened(file: _File) -> Any:
    if file.path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if file.remote is not None:
        return file.remote.open_input_stream(file.path, compression="gzip" if file.is_gzip else None)
    return gzip.open(file.path, "rb")


def _wanted(columns: Columns) -> list[str]:
    """The columns that the policy names, the scores first."""
    named = [columns.score, columns.label, columns.group, columns.id, columns.segment, columns.timestamp]
    return list(dict.fromkeys(name for name in named if name is not None))


def _read_file(file: _File, columns: Columns) -> Mapping[str, Any]:
    """The columns that the policy names."""
    if file.suffix not in _READERS:
        known, got = ", ".join(_READERS), file.suffix or "no suffix"
        raise GateError(
            f"{file}: must end in one of {known} (or these with .gz), got {got}; convert it to one of these"
        )
    reader, remedy = _READERS[file.suffix]
    names = [name for name in _wanted(columns) if name not in file.keys]
    try:
        with _fetched(replace(file, segment=columns.segment), columns) as local:
            if local.remote is None and os.stat(local).st_size == 0:
                raise GateError(f"{file}: must hold scores, got an empty file; write it again")
            table = dict(reader(local, names))
    except GateError:
        raise
    except FileNotFoundError:
        raise GateError(f"{file}: must exist, got no such file; check the name") from None
    except PermissionError:
        raise GateError(f"{file}: must be readable, got permission denied; allow this user to read it") from None
    except MemoryError as error:
        what = f"must be a readable {file.suffix} file that fits into memory, got: {_reason(error)}"
        raise GateError(f"{file}: {what}; give fewer rows or use a larger machine") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # what is packed or piped is copied first
            what = f"must fit into the temporary directory, got: {_reason(error)}"
            raise GateError(f"{file}: {what}; set TMPDIR to a place with more room") from None
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {_reason(error)}; {remedy}") from None
    except Exception as error:  # NumPy, zipfile and Arrow raise a dozen types on a broken file; all say the same
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {_reason(error)}; {remedy}") from None
    rows = len(table[columns.score])
    keys = {key: value for key, value in file.keys.items() if key in _wanted(columns)}
    return table | {key: pa.chunked_array([pa.repeat(value, rows)]) for key, value in keys.items()}


# --- formats: each reads the named columns of one file into Arrow or NumPy arrays --------------------------


def _read_parquet(path: _File, names: list[str]) -> Mapping[str, Any]:
    source = os.fspath(path) if path.remote is None else path.remote.open_input_file(path.path)
    few = [path.segment] if path.segment in names else None  # kept as Parquet has it: each name once
    with pyarrow.parquet.ParquetFile(source, memory_map=path.remote is None, read_dictionary=few) as file:
        _require(names, file.schema_arrow.names, path)
        return _columns(file.read(columns=names), names)


def _read_arrow(path: _File, names: list[str]) -> Mapping[str, Any]:
    with pa.OSFile(os.fspath(path)) as source:  # not mapped: the scores must not change with the file
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
    _require(names, table.column_names, path)
    return _columns(table, names)


def _read_jsonl(path: _File, names: list[str]) -> Mapping[str, Any]:
    """The named columns alone, if they stay as the first lines have them; else all that the file holds."""
    _refuse_null_lines(path)
    table = None
    with contextlib.suppress(pa.ArrowException):
        kinds = _first_kinds(path)
        if {*names} <= {*kinds}:
            wanted = pa.schema([(name, kinds[name]) for name in names])
            alone = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
            table = pyarrow.json.read_json(os.fspath(path), parse_options=alone)
    if table is None:
        table = pyarrow.json.read_json(os.fspath(path))
    _require(names, table.column_names, path)
    return _columns(table, names)


_NULL_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\n)[ \t\r\n]*null")


def _refuse_null_lines(path: _File) -> None:
    """Arrow crashes on a block of lines that begins with `null` (apache/arrow#47409), and no such line has a score."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = _NULL_LINE.search(text) if text.find(b"null") >= 0 else None
        if found:
            row = text[: found.end()].count(b"\n") + 1
            raise GateError(f"{path}: must have one JSON object to a line, got null in line {row:,}; remove it")


def _first_kinds(path: _File) -> dict[str, Any]:
    """The kind of each column in the first lines; whole numbers may turn out to be floats further down."""
    with open(path, "rb") as file:
        lines = file.read(1 << 20).rpartition(b"\n")[0]
    schema = pyarrow.json.read_json(pa.BufferReader(lines)).schema if lines else pa.schema([])
    kinds = {field.name: field.type for field in schema if not pa.types.is_null(field.type)}
    return {name: pa.float64() if pa.types.is_integer(kind) else kind for name, kind in kinds.items()}


def _read_csv(path: _File, names: list[str]) -> Mapping[str, Any]:
    separator = "\t" if path.suffix == ".tsv" else ","
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file, delimiter=separator), [])
    if any("\ufffd" in name or "\0" in name for name in header):
        raise GateError(f"{path}: must be UTF-8 text, got other bytes in the header; save it as UTF-8")
    quoted = _has_quotes(path, len(header), separator)
    _require(names, header, path)
    # Without `newlines_in_values` Arrow reads in parallel, but may cut a quoted line break in two and invent a row.
    # A blank line is no row, except where there is only one column: there it is a missing score.
    parsing = pyarrow.csv.ParseOptions(
        delimiter=separator, newlines_in_values=quoted, ignore_empty_lines=len(header) > 1
    )
    converting = pyarrow.csv.ConvertOptions(include_columns=names)
    try:
        table = pyarrow.csv.read_csv(os.fspath(path), parse_options=parsing, convert_options=converting)
        return _columns(table, names)
    except pa.ArrowInvalid:
        _refuse_uneven_rows(path, len(header), separator)
        raise


_FIELDS = {
    separator: re.compile(
        rb'(?:"(?:[^"]++|"")*+"(?=[SEP\r\n]|\Z)|[^"SEP\r\n][^SEP\r\n]*+|[SEP\r\n])*+'.replace(
            b"SEP", separator.encode()
        )
    )
    for separator in (",", "\t")
}
_QUOTED = re.compile(rb'"(?:[^"]++|"")*+"')


def _has_quotes(path: _File, width: int, separator: str) -> bool:
    """Whether a row has quotes. One never closed hides the rows behind it and is refused: Arrow would say nothing."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        header = max(text.find(b"\n"), 0)
        if text.find(b'"', header) < 0 and text[:header].count(b'"') % 2 == 0:  # writers often quote the header alone
            return False
        match = _FIELDS[separator].match(text)
        end = match.end() if match else 0
        if end < len(text):
            lines = _QUOTED.sub(b"_", text[:end] + b"_").splitlines()
            row = len([line for line in lines if line or width == 1]) - 1
            raise GateError(
                f"{path}: must close every quoted field before a comma or the end of its row, got an open one in "
                f"{'the header' if row == 0 else f'row {row:,}'}; double the quotes inside it or restore the file"
            )
        return True


def _refuse_uneven_rows(path: _File, width: int, separator: str) -> None:
    """Name the row that Arrow could not split; slow, and only used on a file that is refused anyway."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(file, delimiter=separator)
        next(lines)
        row = 0
        try:
            for fields in lines:
                row += bool(fields) or width == 1
                if fields and len(fields) != width:
                    raise GateError(
                        f"{path}: must have {plural(width, 'column')} in every row, got {len(fields)} in row {row:,}; "
                        "quote fields that hold commas, or restore the row"
                    )
        except csv.Error as error:
            raise GateError(
                f"{path}: must be a readable .csv file, got: {error} in row {row + 1:,}; remove it"
            ) from None


def _read_npy(path: _File, names: list[str]) -> Mapping[str, Any]:
    if len(names) > 1:
        got = "a .npy file, which has none; name no such column in the policy or use .npz"
        raise GateError(f"{path}: must have a column {names[1]!r}, got {got}")
    return {
        names[0]: _one_dimensional(np.lib.format.open_memmap(os.fspath(path), mode="r"), path)
    }  # never loads a pickle


def _read_npz(path: _File, names: list[str]) -> Mapping[str, Any]:
    with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        if len(names) == 1 and len(archive.files) == 1:
            return {names[0]: _one_dimensional(archive[archive.files[0]], path)}
        _require(names, archive.files, path)
        table = {name: _one_dimensional(archive[name], path) for name in names}
    if len({len(column) for column in table.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {len(column):,}" for name, column in table.items())
        raise GateError(f"{path}: its arrays must be of one length, got {lengths}; save one label for every score")
    return table


_READERS: dict[str, tuple[Callable[[_File, list[str]], Mapping[str, Any]], str]] = {
    ".parquet": (_read_parquet, "write it again"),
    ".csv": (_read_csv, "save it as comma-separated UTF-8 text with a header"),
    ".tsv": (_read_csv, "save it as tab-separated UTF-8 text with a header"),
    ".feather": (_read_arrow, "write it again"),
    ".arrow": (_read_arrow, "write it again"),
    ".jsonl": (_read_jsonl, "write one JSON object to a line"),
    ".ndjson": (_read_jsonl, "write one JSON object to a line"),
    ".npy": (_read_npy, "save one plain array of numbers with numpy.save"),
    ".npz": (_read_npz, "save plain arrays of numbers with numpy.savez"),
}


def _columns(table: pa.Table, names: list[str]) -> Mapping[str, Any]:
    return {name: table.column(name) for name in names}


def _require(names: list[str], present: list[str], path: _File) -> None:
    for name in names:
        if present.count(name) == 1:
            continue
        if name in present:
            count = present.count(name)
            raise GateError(f"{path}: must have one column {name!r}, got {count} of that name; rename or remove one")
        close = difflib.get_close_matches(name, present, n=1)
        shown = ", ".join(map(_shown, present[:10])) + (", ..." if len(present) > 10 else "")
        hint = "name the column in the policy's `data:` or on the command line"
        if close:
            hint = f"did you mean {_shown(close[0])}?"
        if len(present) == 1 and name in re.split(r"[;\t|]", present[0]):
            hint = "separate the columns with commas"
        if present and all(map(_is_number, present)):
            hint = "add a header line that names the columns"
        raise GateError(f"{path}: must have a column {name!r}, got {shown or 'no column at all'}; {hint}")


def _one_dimensional(array: Any, path: _File) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise GateError(f"{path}: must hold arrays, got another kind of file inside; save them with numpy.savez")
    column: NDArray[Any] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise GateError(f"{path}: must be a list of scores, got an array of shape {array.shape}; save one column of it")
    return column


# --- from columns to benign float64 -------------------------------------------------------------------------


def _rows_of(kind: Kind, labels: Any, columns: Columns, path: _File, alone: bool) -> NDArray[np.bool_]:
    """Which rows are benign, or not: the policy's text compared in the label column's own type.

    A file that stands `alone` must have some of the kind; among several, one may hold the other rows only.
    """
    if len(labels) == 0:
        return np.zeros(0, dtype=bool)
    wrong = f"{path}: column {columns.label!r} must hold words, numbers or booleans, got {_kind(labels)}"
    try:
        labels = _decoded(labels)
        missing = labels.is_null(nan_is_null=True).to_numpy()
        if pa.types.is_string(labels.type):
            missing = missing | pc.equal(labels, "").fill_null(False).to_numpy()
        benign = _equal(labels, columns.benign)
    except pa.ArrowException:
        raise GateError(f"{wrong} in {plural(len(labels), 'row')}; write them as UTF-8 text or numbers") from None
    if missing.any():
        raise GateError(
            f"{path}: column {columns.label!r} must label every row, got none in {_rows(missing, None)}; "
            "label or remove these rows"
        )
    taken = benign if kind == "benign" else ~benign
    if alone and not taken.any():
        found = pc.unique(labels)
        shown = ", ".join(map(_shown, found.slice(0, 5).to_pylist())) + (", ..." if len(found) > 5 else "")
        must = f"{kind} rows with {'' if kind == 'benign' else 'something else than '}{columns.benign!r}"
        raise GateError(
            f"{path}: column {columns.label!r} must mark {must}, "
            f"got {shown} in {plural(len(labels), 'row')}; set data.benign or --benign-label"
        )
    return taken


def _equal(labels: Any, text: str) -> NDArray[np.bool_]:
    """Which labels the policy's text names, read as what the column holds."""
    wanted: bool | str | float | None
    if pa.types.is_boolean(labels.type):
        wanted = {"0": False, "false": False, "1": True, "true": True}.get(text.lower())
    elif pa.types.is_string(labels.type):
        wanted = text
    else:
        labels = _rounded(labels).cast(pa.float64(), safe=False)
        wanted = float(text) if _is_number(text) else None
    if wanted is None:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(pc.equal(labels, wanted).fill_null(False).to_numpy(), dtype=bool)


def _decoded(column: Any) -> Any:
    """A column as Arrow holds it plainly: no dictionary, every kind of text as one."""
    if isinstance(column, np.ndarray):
        column = pa.chunked_array([pa.array(column.astype(column.dtype.newbyteorder("=")))])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        column = column.cast(pa.string())
        column.validate(full=True)  # Arrow does not check on reading that text is UTF-8
    return column


def _is_text(kind: Any) -> bool:
    """By name: the oldest Arrow supported has no view types to ask for."""
    text = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return str(kind) in text or pa.types.is_fixed_size_binary(kind)


def _names(column: Any, name: str, path: _File, benign: NDArray[np.bool_] | None) -> Any:
    """Ids as text, one for every benign row."""
    return _of_benign(_as_text(column, name, path), name, path, benign)


def _coded(column: Any, name: str, path: _File, benign: NDArray[np.bool_] | None) -> Any:
    """Groups or segments of every benign row, as numbers beside the names that they stand for."""
    if isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type):
        kinds = [_as_text(pa.chunked_array([chunk.dictionary]), name, path).combine_chunks() for chunk in column.chunks]
        parts = zip(column.chunks, kinds, strict=True)
        coded = [pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), kind) for chunk, kind in parts]
    else:
        coded = _as_text(column, name, path).dictionary_encode().chunks
    kind = pa.dictionary(pa.int32(), pa.string())
    return _of_benign(pa.chunked_array(coded, kind), name, path, benign)


def _as_text(column: Any, name: str, path: _File) -> Any:
    try:
        return _decoded(column).cast(pa.string())
    except pa.ArrowException:
        raise GateError(f"{path}: column {name!r} must hold words or numbers, got {_kind(column)}") from None


def _of_benign(text: Any, name: str, path: _File, benign: NDArray[np.bool_] | None) -> Any:
    text = text if benign is None else text.filter(pa.array(benign))
    missing = text.is_null().to_numpy() if text.null_count else np.zeros(1, dtype=bool)
    if missing.any():
        raise GateError(
            f"{path}: column {name!r} must name every row, got none in {_rows(missing, benign)}; name or remove them"
        )
    return text


def _numbered(parts: list[Any]) -> tuple[NDArray[np.int64] | None, Any]:
    """A number for each row's name and the names in rising order, over all files and whatever the order of rows."""
    if parts[0] is None:
        return None, None
    together = pa.chunked_array([chunk for part in parts for chunk in part.chunks], type=parts[0].type)
    encoded = together.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # as older Arrow gives it
        encoded = pa.concat_arrays(encoded.chunks)
    used = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary)) > 0
    names = encoded.dictionary.filter(pa.array(used))  # a dictionary may name what no row has
    order = pc.sort_indices(names).to_numpy()
    rank = np.empty(len(used), dtype=np.int64)
    rank[np.flatnonzero(used)[order]] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], names.take(pa.array(order)).cast(pa.large_string())


_UNITS = (("s", 1e11), ("ms", 1e14), ("us", 1e17), ("ns", 1e20))  # of numbers: by size, unambiguous from 1973 to 5138


def _times(column: Any, name: str, path: _File, benign: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """When each benign row was seen, in microseconds since 1970; a time without a zone is UTC."""
    must = f"{path}: column {name!r} must hold times such as 2026-11-01T12:00:00Z or seconds since 1970"
    try:
        times = _decoded(column)
        times = times if benign is None else times.filter(pa.array(benign))
        missing = times.is_null(nan_is_null=True).to_numpy()
        if not missing.any():
            return np.asarray(_microseconds(times).to_numpy(), dtype=np.int64)
    except (pa.ArrowException, ValueError) as error:
        raise GateError(f"{must}, got {_kind(column)}: {_reason(error)}") from None
    raise GateError(f"{must}, got none in {_rows(missing, benign)}; date or remove these rows")


def _microseconds(times: Any) -> Any:
    if pa.types.is_string(times.type):
        zoned = pc.match_substring_regex(times, r"(Z|[-+]\d\d:?\d\d)$")
        times = times.cast(pa.timestamp("us", "UTC" if pc.all(zoned).as_py() else None))
    elif pa.types.is_integer(times.type) or pa.types.is_floating(times.type):
        largest = float(pc.max(pc.abs(times)).as_py() or 0)
        unit = next((unit for unit, limit in _UNITS if largest < limit), None)
        if unit is None:
            raise ValueError(f"a number as large as {largest:g}")
        scale = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[unit]
        return pc.floor(pc.multiply(times.cast(pa.float64(), safe=False), scale)).cast(pa.int64())
    return times.cast(pa.timestamp("us", getattr(times.type, "tz", None)), safe=False).cast(pa.int64())


def _joined(columns: list[Any]) -> Any:
    """The columns of all files as one array of text."""
    together = pa.chunked_array([chunk for part in columns for chunk in part.chunks], type=pa.string())
    return together.cast(pa.large_string()).combine_chunks()


def shared_names(some: Any, others: Any) -> NDArray[np.bool_]:
    """Which of some names (ids or groups) are among the others."""
    return np.asarray(pc.is_in(some, value_set=others.cast(some.type)), dtype=bool)


def number_alike(names: list[Any]) -> list[NDArray[np.int64]]:
    """For each list of names their numbers, the same for the same name in every list."""
    texts = [pa.array(part, pa.large_string()) if isinstance(part, tuple) else part for part in names]
    codes = pa.chunked_array(texts).combine_chunks().dictionary_encode().indices.to_numpy()
    return np.split(np.asarray(codes, dtype=np.int64), np.cumsum([len(text) for text in texts])[:-1])


def _digest(ids: Any) -> str:
    """The digest of a set of rows by their ids, whatever the order and the file format."""
    ordered = ids.take(pc.sort_indices(ids)).cast(pa.large_string())
    _, offsets, text = ordered.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[ordered.offset : ordered.offset + len(ordered) + 1]
    digest = hashlib.sha256(np.diff(ends).astype("<i8", copy=False).data)
    digest.update(memoryview(text)[ends[0] : ends[-1]])
    return digest.hexdigest()


def _to_float64(column: Any, name: str, path: _File, benign: NDArray[np.bool_] | None) -> Floats:
    if len(column) == 0:
        return np.empty(0)
    wrong = f"{path}: column {name!r} must hold numbers, got {_kind(column)} in {plural(len(column), 'row')}"
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "fiu" or column.dtype.itemsize > 8:
            raise GateError(f"{wrong}; save the scores as float64")
        selected = column if benign is None else column[benign]
        return np.array(selected, dtype=np.float64)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if _is_text(kind):
        _refuse_text(column, name, path)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and (
        column.null_count < len(column)
    ):
        raise GateError(f"{wrong}; write the scores as floats")
    if benign is not None:
        column = column.filter(pa.array(benign))
    if column.null_count:
        nulls = column.is_null().to_numpy()
        raise GateError(
            f"{path}: column {name!r} must hold a score in every row, got none in {_rows(nulls, benign)}; "
            "remove or score these rows"
        )
    return np.asarray(_rounded(column).to_numpy(), dtype=np.float64)


def _rounded(column: Any) -> Any:
    """Exact decimals as their nearest floats, like the same digits in a CSV; Arrow's direct cast may miss by one."""
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_decimal(column.type) else column


_NUMBER = r"^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"


def _is_number(text: str) -> bool:
    return re.match(_NUMBER, text) is not None


def _refuse_text(column: Any, name: str, path: _File) -> None:
    column = column.cast(pa.binary())  # which need not be UTF-8
    bad = ~pc.match_substring_regex(column, _NUMBER).fill_null(False).to_numpy()
    bad = bad if bad.any() else ~bad  # numbers written as text are wrong in every row
    example = _shown(column[int(np.flatnonzero(bad)[0])].as_py())
    raise GateError(
        f"{path}: column {name!r} must hold numbers, got {example} in {_rows(bad, None)}; "
        "remove these rows or write them as numbers"
    )


def _refuse_outside(
    values: Floats, name: str, domain: tuple[float, float], path: _File, benign: NDArray[np.bool_] | None
) -> None:
    low, high = domain
    piece = 1 << 16  # stays in the processor's cache, so that the scores pass through it once
    pieces = (values[start : start + piece] for start in range(0, len(values), piece))
    if all(low <= part.min() and part.max() <= high for part in pieces):  # NaN makes both comparisons false
        return
    not_a_number = np.isnan(values)
    if not_a_number.any():
        raise GateError(
            f"{path}: column {name!r} must hold numbers, got NaN in {_rows(not_a_number, benign)}; "
            "remove or score these rows"
        )
    outside = ~((values >= low) & (values <= high))
    first = values[np.flatnonzero(outside)[0]]
    raise GateError(
        f"{path}: column {name!r} must lie in the domain [{_short(low)}, {_short(high)}], got {_short(first)} "
        f"in {_rows(outside, benign)}; set calibration.domain to the detector's range or remove these rows"
    )


# --- words for messages -------------------------------------------------------------------------------------


def _reason(error: Exception) -> str:
    """What a library said of a file, in one short printable line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return _one_line((text.strip().splitlines() or [type(error).__name__])[0].rstrip("."), 160)


def _one_line(text: str, length: int) -> str:
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: length + 1])
    return visible if len(visible) <= length else visible[: length - 3] + "..."


def _shown(value: object) -> str:
    """A value from a file; text in quotes, so that spaces show."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return _one_line(repr(value) if isinstance(value, str) else str(value), 40)


def _kind(column: Any) -> str:
    return _one_line(str(column.dtype if isinstance(column, np.ndarray) else column.type), 60)


def _short(value: float) -> str:
    """`0.5` for 0.5, and every digit where fewer would name another number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def _rows(bad: NDArray[np.bool_], benign: NDArray[np.bool_] | None) -> str:
    """`row 17`, or `row 17 and 2 more`, counted from 1 in the file even when only benign rows were looked at."""
    places = np.flatnonzero(bad)
    if benign is not None:
        places = np.flatnonzero(benign)[places]
    more = len(places) - 1
    return f"row {places[0] + 1:,}" + (f" and {more:,} more" if more else "")
