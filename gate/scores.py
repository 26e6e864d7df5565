"""The scores: files in, benign raw scores out as read-only float64 with counts of what was read; never judged."""

from __future__ import annotations

import csv
import difflib
import hashlib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError, plural
from gate.policy import Columns


@dataclass(frozen=True)
class Source:
    """One file as it was named, with what it held."""

    path: str
    rows: int
    benign: int


@dataclass(frozen=True)
class Scores:
    """Benign raw scores of one sample, in row order."""

    values: Floats
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        rows = sum(source.rows for source in self.sources)
        return f"{len(self):,} benign of {plural(rows, 'row')} from {', '.join(s.path for s in self.sources)}"

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


def read(paths: Iterable[str], columns: Columns, domain: tuple[float, float]) -> Scores:
    """Read the benign scores of one or more files, or raise at the first row that is not a score."""
    parts, sources = [], []
    for path in paths:
        benign, rows = _read_file(path, columns, domain)
        parts.append(benign)
        sources.append(Source(path, rows, len(benign)))
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(values) < 2:
        names = ", ".join(source.path for source in sources)
        raise GateError(f"{names}: must hold at least 2 benign scores, got {len(values)}; give more benign rows")
    return Scores(values, tuple(sources))


def write_parquet(path: Path, values: Floats) -> None:
    """Write scores as one column, the way `read` expects them by default."""
    pyarrow.parquet.write_table(pa.table({Columns().score: values}), path)


def _read_file(path: str, columns: Columns, domain: tuple[float, float]) -> tuple[Floats, int]:
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise GateError(f"{path}: must end in one of {', '.join(_READERS)}; convert it to one of these formats")
    names = [columns.score] if columns.label is None else [columns.score, columns.label]
    try:
        table = reader(path, names)
    except FileNotFoundError:
        raise GateError(f"{path}: must exist, got no such file") from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, pa.ArrowException) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise GateError(f"{path}: must be a readable {Path(path).suffix} file, got: {reason}") from None
    column = table[columns.score]
    rows = len(column)
    benign = None
    if columns.label is not None:
        benign = _benign_rows(table[columns.label], columns, path)
    values = _to_float64(column, columns.score, path, benign)
    _refuse_outside(values, columns.score, domain, path, benign)
    return values, rows


# --- formats: each reads the named columns of one file into Arrow or NumPy arrays --------------------------


def _read_parquet(path: str, names: list[str]) -> Mapping[str, Any]:
    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        _require(names, file.schema_arrow.names, path)
        return _columns(file.read(columns=names), names)


def _read_csv(path: str, names: list[str]) -> Mapping[str, Any]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    _require(names, header, path)
    options = pyarrow.csv.ConvertOptions(include_columns=names)
    return _columns(pyarrow.csv.read_csv(path, convert_options=options), names)


def _read_npy(path: str, names: list[str]) -> Mapping[str, Any]:
    if len(names) > 1:
        raise GateError(f"{path}: a .npy file has no column {names[1]!r}; set data.label to null or use .npz")
    return {names[0]: _one_dimensional(np.load(path, mmap_mode="r", allow_pickle=False), path)}


def _read_npz(path: str, names: list[str]) -> Mapping[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an archive of arrays")
        if len(names) == 1 and len(archive.files) == 1:
            return {names[0]: _one_dimensional(archive[archive.files[0]], path)}
        _require(names, archive.files, path)
        table = {name: _one_dimensional(archive[name], path) for name in names}
    if len({len(column) for column in table.values()}) > 1:
        lengths = ", ".join(f"{name}: {len(column):,}" for name, column in table.items())
        raise GateError(f"{path}: its arrays must be of one length, got {lengths}")
    return table


_READERS: dict[str, Callable[[str, list[str]], Mapping[str, Any]]] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".npy": _read_npy,
    ".npz": _read_npz,
}


def _columns(table: pa.Table, names: list[str]) -> Mapping[str, Any]:
    return {name: table.column(name) for name in names}


def _require(names: list[str], present: list[str], path: str) -> None:
    for name in names:
        if present.count(name) == 1:
            continue
        if name in present:
            raise GateError(f"{path}: must have one column {name!r}, got {present.count(name)} of that name")
        close = difflib.get_close_matches(name, present, n=1)
        shown = ", ".join(map(repr, present[:10])) + (", ..." if len(present) > 10 else "")
        hint = f"did you mean {close[0]!r}?" if close else "name the column with --score-column or in `data:`"
        raise GateError(f"{path}: must have a column {name!r}, got {shown or 'no column at all'}; {hint}")


def _one_dimensional(array: NDArray[Any], path: str) -> NDArray[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise GateError(f"{path}: must be a list of scores, got an array of shape {array.shape}")
    return array


# --- from columns to benign float64 -------------------------------------------------------------------------


def _benign_rows(labels: Any, columns: Columns, path: str) -> NDArray[np.bool_]:
    """Which rows are benign: the policy's text compared in the label column's own type."""
    labels = pa.chunked_array([pa.array(labels)]) if isinstance(labels, np.ndarray) else labels
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    if labels.null_count:
        first = 1 + int(np.flatnonzero(labels.is_null().to_numpy())[0])
        raise GateError(
            f"{path}: column {columns.label!r} must label every row, got none in row {first:,} "
            f"({plural(labels.null_count, 'row')} in all); label or remove them"
        )
    try:
        if pa.types.is_boolean(labels.type):
            wanted = pa.scalar({"0": False, "false": False, "1": True, "true": True}[columns.benign.lower()])
        elif pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
            wanted = pa.scalar(columns.benign, type=labels.type)
        else:
            labels, wanted = labels.cast(pa.float64()), pa.scalar(float(columns.benign))
    except (KeyError, ValueError, pa.ArrowException):
        raise GateError(
            f"{path}: data.benign must be a value of column {columns.label!r} ({labels.type}), "
            f"got {columns.benign!r}; set data.benign or --benign-label"
        ) from None
    benign = np.asarray(pc.equal(labels, wanted).to_numpy(), dtype=bool)
    if len(benign) and not benign.any():
        found = ", ".join(str(value) for value in pc.unique(labels).slice(0, 5).to_pylist())
        raise GateError(
            f"{path}: column {columns.label!r} must mark benign rows with {columns.benign!r}, got {found}; "
            "set data.benign or --benign-label"
        )
    return benign


def _to_float64(column: Any, name: str, path: str, benign: NDArray[np.bool_] | None) -> Floats:
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "fiu" or column.dtype.itemsize > 8:
            raise GateError(f"{path}: {name!r} must hold numbers of at most 64 bits, got {column.dtype}")
        selected = column if benign is None else column[benign]
        return np.array(selected, dtype=np.float64)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        _refuse_text(column, name, path)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        if len(column) == 0:
            return np.empty(0)
        raise GateError(f"{path}: column {name!r} must hold numbers, got {kind}; write the scores as floats")
    if benign is not None:
        column = column.filter(pa.array(benign))
    if column.null_count:
        nulls = column.is_null().to_numpy()
        raise GateError(
            f"{path}: column {name!r} must hold a score in every row, got none in {_rows(nulls, benign)}; "
            "remove or score these rows"
        )
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
    return values if values.flags.owndata else np.array(values)


def _refuse_text(column: Any, name: str, path: str) -> None:
    number = r"^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
    text = ~pc.fill_null(pc.match_substring_regex(column, number), False).to_numpy()
    example = column[int(np.flatnonzero(text)[0])].as_py() if text.any() else column[0].as_py()
    raise GateError(
        f"{path}: column {name!r} must hold numbers, got {str(example)[:40]!r} in {_rows(text, None)}; "
        "remove these rows or write them as numbers"
    )


def _refuse_outside(
    values: Floats, name: str, domain: tuple[float, float], path: str, benign: NDArray[np.bool_] | None
) -> None:
    low, high = domain
    if len(values) == 0 or (low <= values.min() and values.max() <= high):  # NaN makes both comparisons false
        return
    not_a_number = np.isnan(values)
    if not_a_number.any():
        raise GateError(
            f"{path}: {name!r} must hold numbers, got NaN in {_rows(not_a_number, benign)}; remove or score these rows"
        )
    outside = ~((values >= low) & (values <= high))
    first = values[np.flatnonzero(outside)[0]]
    raise GateError(
        f"{path}: {name!r} must lie in the domain [{low:g}, {high:g}], got {first:g} in {_rows(outside, benign)}; "
        "set calibration.domain to the detector's range or remove these rows"
    )


def _rows(bad: NDArray[np.bool_], benign: NDArray[np.bool_] | None) -> str:
    """`row 17`, or `row 17 and 2 more`, counted from 1 in the file even when only benign rows were looked at."""
    places = np.flatnonzero(bad)
    if benign is not None:
        places = np.flatnonzero(benign)[places]
    more = len(places) - 1
    return f"row {places[0] + 1:,}" + (f" and {more:,} more" if more else "")
