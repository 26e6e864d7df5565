"""Arrays and data frames: NumPy's, pandas', polars' and Arrow's, in files and in memory, as tables of the engine.

Each is copied into a table of the engine: some can be read only once, and others can change while gate reads them.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gate.errors import GateError
from gate.rows.table import Column, Table, columns_of, explain, keep, require
from gate.rows.wording import one_line
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.engine import Duck
    from gate.rows.table import File

Array = NDArray[Any]


class Stream:
    """What speaks Arrow's protocol and nothing else: DuckDB asks other libraries for more than they need to have."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.thing.__arrow_c_stream__(requested_schema)


# --- NumPy --------------------------------------------------------------------------------------------------


def read_npy(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """The bytes of an array stay in its file while they are copied."""
    with open(path, "rb") as opened:
        shape, kind = _header(opened, os.stat(path).st_size)
    array = np.load(path, mmap_mode="r", allow_pickle=False) if math.prod(shape) else np.empty(shape, kind)
    got = "a .npy file, which has none; name no such column in the policy or use .npz"
    return _alone(engine, file, array, wanted, got)


def read_npz(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """Each array is a column; those that nobody reads may be anything."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        names = list(wanted) if len(names) == len(wanted) == 1 else names
        require(wanted, names, file)
        arrays: dict[str, Array] = {}
        for name, member in zip(names, members, strict=True):
            if name in wanted and not member.filename.endswith(".npy"):
                what = "must hold arrays, got another kind of file inside"
                raise GateError(f"{file}: {what}; save them with numpy.savez")
            arrays[name] = np.empty(0)
            with archive.open(member) as opened, contextlib.nullcontext() if name in wanted else _ignored():
                shape, kind = _header(opened, member.file_size)
                if math.prod(shape) * kind.itemsize > engine.memory:
                    raise MemoryError(f"an array of {math.prod(shape) * kind.itemsize:,} bytes")
                opened.seek(0)
                arrays[name] = one_dimensional(np.lib.format.read_array(opened, allow_pickle=False), file)
    return _of_arrays(engine, file, arrays, wanted)


def _ignored() -> contextlib.suppress:
    return contextlib.suppress(ValueError, GateError, MemoryError)


def _header(opened: Any, size: int) -> tuple[tuple[int, ...], Any]:
    """The shape and the type of an array; there must be as many bytes as these claim. Never a pickle."""
    version = np.lib.format.read_magic(opened)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(opened)
    claimed, held = math.prod(shape) * kind.itemsize, size - opened.tell()
    if kind.hasobject:
        raise ValueError("objects, which cannot be loaded when allow_pickle=False")
    if claimed != held:
        raise ValueError(f"{plural(held, 'byte')} where its header says {claimed:,}")
    return shape, kind


def one_dimensional(array: Array, file: File) -> Array:
    column = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise GateError(f"{file}: must be a list of scores, got an array of shape {array.shape}; save one column of it")
    return column


def _alone(engine: Duck, file: File, array: Array, wanted: Sequence[str], got: str) -> Table:
    """A single array has no name: it is the first column that is wanted."""
    if len(wanted) > 1:
        raise GateError(f"{file}: must have a column {wanted[1]!r}, got {got}")
    return _of_arrays(engine, file, {(wanted or ["score"])[0]: one_dimensional(array, file)}, wanted)


def _of_arrays(engine: Duck, file: File, arrays: Mapping[str, Array], wanted: Sequence[str]) -> Table:
    """Arrays of one length are columns; unread ones of another length or an odd type have no values to ask for."""
    require(wanted, list(arrays), file)
    lengths = {name: len(arrays[name]) for name in wanted or arrays}
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{name!r}: {length:,}" for name, length in lengths.items())
        raise GateError(f"{file}: its arrays must be of one length, got {shown}; save one label for every score")
    rows = next(iter(lengths.values()), 0)
    fields = [_Field.of_array(name, array) if len(array) == rows else _Field(name) for name, array in arrays.items()]
    return _of_fields(engine, file, fields)


class _Field:
    """One column in memory: its values as DuckDB takes them, None if it takes none, and which are missing or NaN."""

    def __init__(self, name: str, values: Any = None, kind: str = "", type_: str = "another length") -> None:
        self.name, self.values, self.kind, self.type = name, values, kind, type_
        self.null: Array | None = None
        self.nan: Array | None = None

    @classmethod
    def of_array(cls, name: str, given: Array) -> _Field:
        """DuckDB takes native numbers, booleans, times and text, and has NULL for NaN: that is told apart here."""
        array = np.ma.getdata(given)
        field = cls(name, type_=str(array.dtype))
        if isinstance(given, np.ma.MaskedArray):
            field.null = np.ma.getmaskarray(given)
        match array.dtype.kind:
            case "O":
                field._take_objects(array)
            case "U":
                field.values = array.astype(object)
            case "T":
                field._take_objects(array.astype(object))
            case "S":
                field.values = np.array([each.decode() for each in array.tolist()], dtype=object)
            case "M" if np.datetime_data(array.dtype)[0] != "generic":
                unit = "ns" if array.dtype.name.endswith("[ns]") else "us"
                field.values = array.astype(f"M8[{unit}]")
            case "f" if array.dtype.itemsize <= 8:
                field.values = array.astype(np.float32) if array.dtype.itemsize == 2 else array
                field.nan = np.isnan(field.values)
            case "i" | "u" | "b":
                field.values = array
            case _:
                pass
        if isinstance(field.values, np.ndarray):
            field.values = np.ascontiguousarray(field.values, dtype=field.values.dtype.newbyteorder("="))
        return field

    def _take_objects(self, array: Array) -> None:
        """Python's objects, if all are of one kind; DuckDB would look at some and take the others for the same."""
        missing = np.array([_is_missing(each) for each in array], dtype=bool)
        values = [each for each, none in zip(array, missing, strict=True) if not none]
        kinds = {_kind_of(each) for each in values}
        self.null = missing if self.null is None else self.null | missing
        if kinds <= {"text"}:
            filled = np.full(len(array), None, dtype=object)
            filled[~missing] = [str(each) for each in values]
            self.values = filled
            return
        if kinds == {"decimal"} or (kinds == {"integer"} and not all(-(2**63) <= each < 2**63 for each in values)):
            filled = np.full(len(array), None, dtype=object)
            filled[~missing] = [f"{each:f}" if isinstance(each, Decimal) else str(each) for each in values]
            self.values, self.kind = filled, "decimal"
            return
        dtype = {"boolean": "?", "integer": "i8", "float": "f8", "time": "M8[us]"}
        kind = "float" if kinds == {"integer", "float"} else next(iter(kinds)) if len(kinds) == 1 else ""
        if kind in dtype:
            filled = np.zeros(len(array), dtype=dtype[kind])
            filled[~missing] = [_in_utc(each) for each in values] if kind == "time" else values
            self.values = filled
            return
        self.type = "objects" if kinds == {""} else f"objects of {len(kinds)} kinds"

    def select(self, column: str, held: dict[str, Any]) -> str:
        """Put the values where DuckDB finds them, and return the SQL that gives them."""
        held[column], sql = self.values, column
        for mask, value in ((self.nan, "CAST('nan' AS DOUBLE)"), (self.null, "NULL")):
            if mask is not None and mask.any():
                held[f"{column}_{value[0]}"] = np.ascontiguousarray(mask)
                sql = f"CASE WHEN {column}_{value[0]} THEN {value} ELSE {sql} END"
        return f"{sql} AS {column}"


def _is_missing(value: object) -> bool:
    """None, NaN, and the words of pandas for none."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _kind_of(value: object) -> str:
    kinds: tuple[tuple[Any, str], ...] = (
        (str, "text"),
        ((bool, np.bool_), "boolean"),
        ((int, np.integer), "integer"),
        ((float, np.float64, np.float32), "float"),
        (Decimal, "decimal" if isinstance(value, Decimal) and value.is_finite() else ""),
        (datetime.date, "time"),
    )
    return next((kind for type_, kind in kinds if isinstance(value, type_)), "")


def _in_utc(value: datetime.date) -> datetime.date:
    zoned = isinstance(value, datetime.datetime) and value.tzinfo is not None
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if zoned else value  # type: ignore[attr-defined]


def _of_fields(engine: Duck, file: File, fields: Sequence[_Field], frame: Any = dict) -> Table:
    """A table of the columns that DuckDB takes; the others have a name and no values."""
    taken = [field for field in fields if field.values is not None]
    odd = [Column(field.name, "NULL", "other", field.type) for field in fields if field.values is None]
    if not taken:
        return Table(file, "(SELECT 0 AS nr WHERE FALSE)", tuple(odd), count=0)
    held: dict[str, Any] = {}
    select = [field.select(f"c{i}", held) for i, field in enumerate(taken)]
    rows, count = _copied(engine, frame(held), ", ".join(select))
    columns = columns_of(engine, rows, [field.name for field in taken])
    named = [
        Column(column.name, column.sql, field.kind or column.kind, field.kind.upper() or column.type)
        for column, field in zip(columns, taken, strict=True)
    ]
    return Table(file, rows, (*named, *odd), count=count)


def _copied(engine: Duck, thing: Any, select: str) -> tuple[str, int]:
    view = engine.name("object")
    engine.register(view, thing)
    try:
        return keep(engine, "rows", f"SELECT {select} FROM {view}")
    finally:
        engine.do(f"DROP VIEW {view}")


# --- data frames and Arrow ----------------------------------------------------------------------------------


def table_of_object(engine: Duck, file: File, data: Any, wanted: Sequence[str]) -> Table:
    library = type(data).__module__.partition(".")[0]
    with explain(file, "give an array, an Arrow table or a data frame"):
        if library in ("pandas", "polars") and type(data).__name__ == "Series":
            return _of_frame(engine, file, data.to_frame(), _single(file, wanted), library, single=True)
        if library in ("pandas", "polars") and type(data).__name__ == "DataFrame":
            return _of_frame(engine, file, data, wanted, library)
        if isinstance(data, Mapping):
            arrays = {str(name): one_dimensional(_array(each), file) for name, each in data.items()}
            return _of_arrays(engine, file, arrays, wanted)
        if any(hasattr(data, each) for each in ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")):
            return _of_arrow_object(engine, file, data, wanted)
        array = _array(data)
        if array.dtype.kind == "O" and array.ndim == 0:
            what = f"must be an array, an Arrow table or a data frame, got {type(data).__name__}"
            raise GateError(f"{file}: {what}; give one of these")
        return _alone(engine, file, array, wanted, "an array, which has none; give a table")


def _array(data: Any) -> Array:
    return data if isinstance(data, np.ndarray) else np.asarray(data)


def _single(file: File, wanted: Sequence[str]) -> Sequence[str]:
    if len(wanted) > 1:
        raise GateError(f"{file}: must have a column {wanted[1]!r}, got an array, which has none; give a table")
    return wanted


def _of_frame(engine: Duck, file: File, frame: Any, wanted: Sequence[str], library: str, single: bool = False) -> Table:
    """A data frame of pandas or polars; a single column is the one that is wanted, whatever its name."""
    names = [(wanted or ["score"])[0]] if single else [str(name) for name in frame.columns]
    require(wanted, names, file)
    if library == "polars":
        fields = [(name, Stream(frame.select(column))) for name, column in zip(names, frame.columns, strict=True)]
        odd = {name for name, stream in fields if not _takes(engine, stream)}
        kept = [column for name, column in zip(names, frame.columns, strict=True) if name not in odd]
        return _of_stream(engine, file, Stream(frame.select(kept)), names, odd)
    pandas: Any = sys.modules["pandas"]
    columns = []
    for i, name in enumerate(names):
        series = frame.iloc[:, i].reset_index(drop=True)
        if isinstance(series.dtype, pandas.CategoricalDtype) and len(series.cat.categories):
            codes = series.cat.codes.to_numpy()  # DuckDB has floats for whole numbers beside a missing one
            categories = series.cat.categories.to_numpy()
            field = _Field.of_array(name, np.ma.array(categories[np.maximum(codes, 0)], mask=codes < 0))
        elif isinstance(series.dtype, np.dtype):
            field = _Field.of_array(name, series.to_numpy())
        else:
            field = _Field(name, type_=str(series.dtype))
            field.values = series if _takes(engine, series.head(0).to_frame("c0")) else None
        field.nan = None  # pandas writes a missing value as NaN
        columns.append(field)
    return _of_fields(engine, file, columns, pandas.DataFrame)


def _takes(engine: Duck, thing: Any) -> bool:
    """Whether DuckDB knows the types of an object."""
    view = engine.name("object")
    try:
        engine.register(view, thing)
        engine.ask(f"SELECT * FROM {view} LIMIT 0")
    except Exception:
        return False
    engine.do(f"DROP VIEW {view}")
    return True


def _of_stream(engine: Duck, file: File, stream: Any, names: Sequence[str], odd: set[str]) -> Table:
    """A stream of the columns that are not odd; it may be read only once."""
    kept = [name for name in names if name not in odd]
    rest = tuple(Column(name, "NULL", "other", "no type of DuckDB") for name in names if name in odd)
    if not kept:
        return Table(file, "(SELECT 0 AS nr WHERE FALSE)", rest, count=0)
    view = engine.name("object")
    engine.register(view, stream)
    rows, count = keep(engine, "rows", f"SELECT * FROM {view} AS t({', '.join(f'c{i}' for i in range(len(kept)))})")
    engine.do(f"DROP VIEW {view}")
    return Table(file, rows, (*columns_of(engine, rows, kept), *rest), count=count)


def _pyarrow(file: File) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise GateError(f"{file}: must be read with pyarrow, got no such package; install fpr-gate[arrow]") from None
    return pyarrow


def _of_arrow_object(engine: Duck, file: File, data: Any, wanted: Sequence[str]) -> Table:
    if type(data).__name__ == "DuckDBPyRelation":
        require(wanted, data.columns, file)
        return _of_stream(engine, file, Stream(data), data.columns, set())
    pa = _pyarrow(file)
    if hasattr(data, "__arrow_c_stream__"):
        array = pa.chunked_array(data)
    elif hasattr(data, "__arrow_c_array__"):
        array = pa.chunked_array([pa.array(data)])
    else:
        import pyarrow.interchange

        array = pa.chunked_array(pyarrow.interchange.from_dataframe(data))
    if not pa.types.is_struct(array.type):
        table = pa.table([array], names=list(_single(file, wanted) or ["score"]))
    elif array.null_count:
        raise ValueError(f"{plural(array.null_count, 'row')} that are null as a whole")
    else:
        table = pa.Table.from_struct_array(array)
    return _of_batches(engine, file, table.schema, table.to_batches(), wanted)


def read_arrow(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    pa = _pyarrow(file)
    with pa.OSFile(path) as source:  # not mapped: the scores must not change with the file
        head = source.read(8)
        if head.startswith(b"ARROW1"):
            source.seek(0)
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            return _of_batches(engine, file, reader.schema, batches, wanted)
        source.seek(max(source.size() - 8, 0))
        mark = b"\xff" * 4  # before each length, but for those of old writers
        if not source.read(8).endswith((mark if head.startswith(mark) else b"") + bytes(4)):
            raise ValueError("a stream without its end")
        source.seek(0)
        reader = pa.ipc.open_stream(source)
        table = _of_batches(engine, file, reader.schema, reader, wanted)
        if source.tell() != source.size():
            raise ValueError(f"{source.size() - source.tell():,} bytes behind the end of the stream")
        return table


def _of_batches(engine: Duck, file: File, schema: Any, batches: Any, wanted: Sequence[str]) -> Table:
    """Batches of Arrow, each validated before DuckDB sees it, in types that DuckDB has."""
    import pyarrow as pa

    require(wanted, schema.names, file)
    kept: dict[int, Any] = {}
    for i, field in enumerate(schema):
        type_ = field.type
        if pa.types.is_float16(type_):
            type_ = pa.float32()
        elif pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
            type_ = pa.string() if field.name in wanted else type_  # it is text if it is UTF-8
        elif pa.types.is_decimal(type_) and type_.precision > 38 and field.name in wanted:
            raise GateError(
                f"{file}: column {field.name!r} must hold decimals of at most 38 digits, got {type_.precision}; "
                "write them as float64"
            )
        if _takes(engine, pa.schema([pa.field("c0", type_)]).empty_table()):
            kept[i] = type_
    names = schema.names
    target = pa.schema([pa.field(f"c{i}", type_) for i, type_ in enumerate(kept.values())])

    def converted() -> Any:
        for batch in batches:
            batch.validate(full=True)
            columns = [batch.column(i) for i in kept]
            pairs = zip(columns, kept.values(), strict=True)
            yield pa.record_batch([c if c.type == t else c.cast(t) for c, t in pairs], schema=target)

    reader = pa.RecordBatchReader.from_batches(target, converted())
    odd = [i for i in range(len(names)) if i not in kept]
    table = _of_stream(engine, file, reader, [names[i] for i in kept], set())
    rest = (Column(names[i], "NULL", "other", one_line(str(schema.field(i).type), 60)) for i in odd)
    return Table(file, table.rows, (*table.columns, *rest), count=table.count)
