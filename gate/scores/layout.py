"""The layout of Arrow files: compares how many rows each part of the metadata claims with the bytes there are.

Arrow's readers believe a footer that lists a batch twice, an offset that points into another column and a count of
nulls that its bitmap denies. Only the fields that say what lies where are read here (Message.fbs, Schema.fbs and
File.fbs of Apache Arrow), by the rules of FlatBuffers, and of every column: bytes that an unread one need not explain
could be rows of another.

What cannot be told is what lies in the up to 63 bytes behind the values of a buffer: an honest writer leaves there
what follows in its memory (Arrow itself, of a slice, the next rows). Views, dense unions and runs may keep values that
no row refers to. Rows hidden in such a place, with every length of every column saying so, are no lie any more: byte
for byte it is the file that an honest writer makes of the other rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gate.words import plural

_MAGIC = 8  # bytes of `ARROW1` and padding
_MARK = b"\xff\xff\xff\xff"  # before the length of a message
_PADDING = 64  # the largest alignment of buffers, in bytes
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_VERSION_5 = 4
_CODECS = ("lz4", "zstd")
_FRAMES = (b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")  # the first bytes of packed buffers, one for each codec
_DEPTH = 64  # the depth of fields in fields, as Arrow allows it
_OUTSIDE = "metadata that points outside itself"


def check_stream(source: Any) -> None:
    """Refuse a stream that was cut off between two messages, that more bytes follow, or whose batches lie."""
    size = source.size()
    source.seek(0)
    try:
        first = _read_message(source, size)
        if first is None or first.kind != _SCHEMA:
            raise ValueError("a stream that does not begin with its schema")
        schema = _Schema(first.metadata, first.header)
        while True:
            if source.tell() == size:
                raise ValueError("a stream without its end")
            message = _read_message(source, size)
            if message is None:
                break
            _check_message(message, schema)
            source.seek(message.start + message.body)
    except struct.error:
        raise ValueError(_OUTSIDE) from None
    if source.tell() < size:
        raise ValueError(f"{size - source.tell():,} bytes behind the end of the stream")


def check_file(source: Any) -> None:
    """Refuse a file whose footer does not list every message in it once, or whose batches lie."""
    size = source.size()
    source.seek(max(size - 10, 0))
    try:
        (length,) = struct.unpack("<i", source.read(4))
        end = size - 10 - length
        if length <= 0 or end < _MAGIC:
            raise ValueError(_OUTSIDE)
        source.seek(end)
        footer = _Metadata(source.read(length))
        schema = _Schema(footer, footer.follow(footer.root, 1))
        source.seek(_MAGIC)
        mark, before_batches = source.read(4), struct.unpack("<i", source.read(4))[0]
        # Some write the schema without its length; the footer repeats it, and is never shorter.
        reached, slack = (_MAGIC + 8 + before_batches, _PADDING) if mark == _MARK else (_MAGIC, length)
        for offset, before, body in sorted(_blocks(footer)):
            _refuse_hole(reached, offset, slack)
            source.seek(offset)
            message = _read_message(source, end)
            if message is None or message.body != body or source.tell() != offset + before + body:
                raise ValueError(f"a message of another length than the footer says, at byte {offset:,}")
            _check_message(message, schema)
            reached, slack = offset + before + body, _PADDING
        _refuse_hole(reached, end, slack + _MAGIC)
    except struct.error:
        raise ValueError(_OUTSIDE) from None


def _refuse_hole(reached: int, place: int, slack: int) -> None:
    if not reached <= place <= reached + slack:
        raise ValueError(f"a footer that lists other messages than the file holds, at byte {reached:,}")


class _Metadata:
    """The tables of one FlatBuffer."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def root(self) -> int:
        return self.number("I", 0)

    def number(self, kind: str, place: int) -> int:
        if place < 0:
            raise struct.error
        (number,) = struct.unpack_from(f"<{kind}", self.data, place)
        return int(number)

    def field(self, table: int, index: int) -> int | None:
        """Return the place of a field of a table; None where the field is left out."""
        fields = table - self.number("i", table)
        length, size = self.number("H", fields), self.number("H", fields + 2)
        if length < 4 or length % 2 or fields + length > len(self.data):
            raise struct.error
        if 4 + 2 * index >= length:
            return None
        offset = self.number("H", fields + 4 + 2 * index)
        if offset >= max(size, 1):
            raise struct.error
        return table + offset if offset else None

    def value(self, table: int, index: int, kind: str, default: int = 0) -> int:
        place = self.field(table, index)
        return default if place is None else self.number(kind, place)

    def follow(self, table: int, index: int) -> int:
        """Return the table that a field refers to."""
        place = self.field(table, index)
        if place is None:
            raise struct.error
        return place + self.number("I", place)

    def items(self, table: int, index: int, size: int) -> Iterator[int]:
        """Return the place of each item of a vector; every item has so many bytes."""
        if self.field(table, index) is not None:
            vector = self.follow(table, index)
            yield from (vector + 4 + size * i for i in range(self.number("I", vector)))

    def tables(self, table: int, index: int) -> Iterator[int]:
        """Return the tables that a vector refers to."""
        yield from (place + self.number("I", place) for place in self.items(table, index, 4))


def _blocks(footer: _Metadata) -> Iterator[tuple[int, int, int]]:
    """Read where dictionaries and batches begin by the footer, and the lengths of their metadata and body."""
    for index in (2, 3):
        for place in footer.items(footer.root, index, 24):
            yield footer.number("q", place), footer.number("i", place + 8), footer.number("q", place + 16)


@dataclass(frozen=True)
class _Message:
    """The metadata of one message, and where its body lies."""

    source: Any
    metadata: _Metadata
    kind: int
    header: int
    start: int
    body: int


def _read_message(source: Any, end: int) -> _Message | None:
    """Step over one message; None for the mark at the end of a stream."""
    (length,) = struct.unpack("<i", source.read(4))
    if length == -1:  # the mark; files older than version 0.15 have none
        (length,) = struct.unpack("<i", source.read(4))
    if length == 0:
        return None
    if not 0 < length <= end - source.tell():
        raise ValueError(_OUTSIDE)
    metadata = _Metadata(source.read(length))
    kind, header = metadata.value(metadata.root, 1, "B"), metadata.follow(metadata.root, 2)
    start, body = source.tell(), metadata.value(metadata.root, 3, "q")
    if not 0 <= body <= end - start:
        raise ValueError(f"a message of {body:,} bytes where {end - start:,} are left")
    source.seek(start + body)
    return _Message(source, metadata, kind, header, start, body)


def _check_message(message: _Message, schema: _Schema) -> None:
    """Check that a batch holds what the columns need for its rows, and nothing else."""
    metadata, header = message.metadata, message.header
    if message.kind == _RECORD_BATCH:
        batch = _Batch(message, schema.order, header)
        for field in schema.fields:
            batch.check(field, batch.rows)
        batch.end()
    elif message.kind == _DICTIONARY_BATCH:
        number = metadata.value(header, 0, "q")
        if number not in schema.dictionaries:
            raise ValueError("a dictionary that no column refers to")
        batch = _Batch(message, schema.order, metadata.follow(header, 1))
        batch.check_values(schema.dictionaries[number], batch.rows)
        batch.end()


Form = Literal["none", "null", "fixed", "bytes", "list", "struct", "union", "items", "runs", "views", "list views"]


@dataclass(frozen=True)
class _Field:
    """How the rows of a column lie: a form, the bits of each value or offset or the items of a list, what is below."""

    form: Form
    number: int
    below: tuple[_Field, ...]
    index_bits: int | None  # set where the rows are indices into a dictionary


class _Schema:
    """The fields of a file, and those that have a dictionary by its number."""

    def __init__(self, metadata: _Metadata, table: int) -> None:
        self.metadata = metadata
        self.order = ">" if metadata.value(table, 0, "h") else "<"
        self.dictionaries: dict[int, _Field] = {}
        self.parsed = 0
        self.fields = tuple(self.parse(field, _DEPTH) for field in metadata.tables(table, 1))

    def parse(self, table: int, depth: int) -> _Field:
        metadata = self.metadata
        self.parsed += 1
        if depth == 0 or self.parsed > len(metadata.data):  # tables that share others could be more than their bytes
            raise ValueError("fields in fields without end")
        code, kind = metadata.value(table, 2, "B"), metadata.follow(table, 3)
        if not 0 < code < len(_FORMS):
            raise ValueError(f"a column of the unknown type {code}")
        form, number = _FORMS[code]
        below = tuple(self.parse(child, depth - 1) for child in metadata.tables(table, 5))
        is_coded = metadata.field(table, 4) is not None
        encoding = metadata.follow(table, 4) if is_coded else 0
        index_bits = None
        if is_coded:
            given = metadata.field(encoding, 1) is not None
            index_bits = metadata.value(metadata.follow(encoding, 1), 0, "i") if given else 32
        field = _Field(form, number(metadata, kind) if callable(number) else number, below, index_bits)
        if is_coded:
            self.dictionaries[metadata.value(encoding, 0, "q")] = field
        return field


def _number(index: int, kind: str, default: int = 0, unit: int = 1) -> Any:
    return lambda metadata, table: unit * metadata.value(table, index, kind, default)


def _one_of(bits: tuple[int, ...], default: int = 0) -> Any:
    return lambda metadata, table: dict(enumerate(bits)).get(metadata.value(table, 0, "h", default), 0)


_FORMS: tuple[tuple[Form, Any], ...] = (  # in the order of the types' numbers in Schema.fbs
    ("none", 0),
    ("null", 0),
    ("fixed", _number(0, "i")),  # integers
    ("fixed", _one_of((16, 32, 64))),  # floats
    ("bytes", 32),
    ("bytes", 32),  # text
    ("fixed", 1),  # booleans
    ("fixed", _number(2, "i", default=128)),  # decimals
    ("fixed", _one_of((32, 64), default=1)),  # dates
    ("fixed", _number(1, "i", default=32)),  # times
    ("fixed", 64),  # timestamps
    ("fixed", _one_of((32, 64, 128))),  # intervals
    ("list", 32),
    ("struct", 0),
    ("union", _number(0, "h")),  # 1: dense
    ("fixed", _number(0, "i", unit=8)),  # bytes of one length
    ("items", _number(0, "i")),  # lists of one length
    ("list", 32),  # maps
    ("fixed", 64),  # durations
    ("bytes", 64),
    ("bytes", 64),
    ("list", 64),
    ("runs", 0),
    ("views", 128),
    ("views", 128),
    ("list views", 32),
    ("list views", 64),
)


class _Batch:
    """The nodes and buffers of one batch, taken one after another as the fields need them."""

    def __init__(self, message: _Message, order: str, table: int) -> None:
        metadata = message.metadata
        self.message, self.order = message, order
        self.nodes, self.buffers = metadata.items(table, 1, 16), metadata.items(table, 2, 16)
        self.views = metadata.items(table, 4, 8)
        self.rows = metadata.value(table, 0, "q")
        self.codec = None
        if metadata.field(table, 3) is not None:
            codec = metadata.value(metadata.follow(table, 3), 0, "b")
            if not 0 <= codec < len(_CODECS):
                raise ValueError(f"the unknown compression {codec}")
            self.codec = pa.Codec(_CODECS[codec])
        self.reached = 0

    def check(self, field: _Field, rows: int | None) -> int:
        """Check that a field has so many rows, if that is known, in its node, its buffers and all fields below it."""
        if field.index_bits is None:
            return self.check_values(field, rows)
        length, nulls = self.take_node(rows)
        self.check_nulls(length, nulls)
        self.take(length * field.index_bits)
        return length

    def check_values(self, field: _Field, rows: int | None) -> int:
        """Check the values in the same way; if the field has a dictionary, these are the dictionary's values."""
        length, nulls = self.take_node(rows)
        is_old = self.message.metadata.value(self.message.metadata.root, 0, "h") < _VERSION_5
        if field.form not in ("null", "runs", "union") or (field.form == "union" and is_old):
            self.check_nulls(length, nulls)
        within: int | None = None  # the rows of the fields below, if they follow from these rows
        match field.form:
            case "fixed":
                self.take(length * field.number)
            case "bytes":
                self.take(8 * self.take_offsets(length, field.number))
            case "list":
                within = self.take_offsets(length, field.number)
            case "struct":
                within = length
            case "items":
                within = length * field.number
            case "union":
                self.take(length * 8)
                within = length
                if field.number:
                    self.take(length * 32)
                    within = None
            case "list views":
                self.take(length * field.number)
                self.take(length * field.number)
            case "views":
                self.take(length * field.number)
                for _ in range(self.message.metadata.number("q", _next(self.views))):
                    self.take(None)
            case "none" | "null" | "runs":
                pass  # no buffers of their own
        for below in field.below:
            found = self.check(below, within)
            within = found if field.form == "runs" else within  # there are as many values as runs
        return length

    def end(self) -> None:
        """Check that nothing is left that no field needs."""
        if next(self.nodes, None) is not None or next(self.buffers, None) is not None:
            raise ValueError("more buffers than the columns need")
        if self.message.body - self.reached >= _PADDING:
            raise ValueError(f"{self.message.body - self.reached:,} bytes behind the last buffer of a message")

    def take_node(self, rows: int | None) -> tuple[int, int]:
        """Take the next node: how many values and how many nulls it claims."""
        place = _next(self.nodes)
        length, nulls = (self.message.metadata.number("q", place + i) for i in (0, 8))
        if length < 0 or rows not in (None, length):
            raise ValueError(f"{length:,} values in a column where {plural(rows or 0, 'row')} must have one each")
        return length, nulls

    def check_nulls(self, rows: int, nulls: int) -> None:
        """Check that the bitmap marks as many nulls: Arrow would read a null that is not claimed as a value."""
        marked, bitmap = 0, self.take(rows, optional=True)
        if bitmap is not None:
            bits = np.frombuffer(bitmap.read(0, -(-rows // 8)), np.uint8)
            marked = rows - int(np.unpackbits(bits, count=rows, bitorder="little").sum(dtype=np.int64))
        if marked != nulls:
            raise ValueError(f"{plural(nulls, 'null')} claimed where {marked:,} are marked")

    def take_offsets(self, rows: int, bits: int) -> int:
        """Take the offsets, one more than there are rows, and return the last; the first must be 0."""
        offsets = self.take(
            (rows + 1) * bits if rows else None, optional=rows == 0
        )  # Arrow may leave out all offsets where there are no rows
        if offsets is None:
            return 0
        width = bits // 8
        ends = (np.frombuffer(offsets.read(place, width), f"{self.order}i{width}") for place in (0, rows * width))
        first, last = (int(end[0]) for end in ends)
        if first != 0 or last < 0:
            raise ValueError(f"offsets from {first:,} to {last:,} where they must begin at 0")
        return last

    def take(self, bits: int | None, optional: bool = False) -> _Buffer | None:
        """Take the next buffer: it has so many bits, if that is known, and at most padding to whole 64 bytes.

        Each lies after the one before, as every writer puts them: they do not overlap and leave no bytes between them.
        """
        metadata, body = self.message.metadata, self.message.body
        place = _next(self.buffers)
        offset, length = metadata.number("q", place), metadata.number("q", place + 8)
        if length != 0:
            reached = self.reached
            if not (length > 0 and reached <= offset < reached + _PADDING and offset + length <= body):
                raise ValueError(f"a buffer at bytes {offset:,} to {offset + length:,}, after {reached:,} of {body:,}")
            self.reached = offset + length
        elif optional:
            return None
        buffer = _Buffer(self.message.source, self.message.start + offset, length, self.codec)
        used = buffer.size if bits is None else -(-bits // 8)
        if not used <= buffer.size <= -(-used // _PADDING) * _PADDING:
            raise ValueError(f"{buffer.size:,} bytes of values where {used:,} are needed")
        return buffer


def _next(places: Iterator[int]) -> int:
    place = next(places, None)
    if place is None:
        raise ValueError("fewer buffers than the columns need")
    return place


class _Buffer:
    """The bytes of one buffer, unpacked if they are packed."""

    def __init__(self, source: Any, start: int, length: int, codec: Any) -> None:
        self.source, self.start, self.length, self.size = source, start, length, length
        self.codec: Any = None
        if codec is not None and length:
            (size,) = struct.unpack("<q", source.read_at(8, start))
            self.start, self.length = start + 8, length - 8
            self.size, self.codec = (self.length, None) if size == -1 else (size, codec)
            if size == -1 and source.read_at(4, self.start) in _FRAMES:  # some readers unpack it, others do not
                raise ValueError("a buffer that is packed and claims not to be")

    def read(self, place: int, size: int) -> bytes:
        if self.codec is not None:
            return self.unpacked[place : place + size]
        content: bytes = self.source.read_at(size, self.start + place)
        return content

    @cached_property
    def unpacked(self) -> bytes:
        packed = self.source.read_at(self.length, self.start)
        content: bytes = self.codec.decompress(packed, decompressed_size=self.size, asbytes=True)
        return content
