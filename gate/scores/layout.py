"""The layout of Arrow files: where the metadata says that messages and buffers lie, held against the bytes there are.

Arrow's readers believe a footer that lists a batch twice and an offset that points into another column. Only the few
fields that say where things lie are read here (Message.fbs and File.fbs of Apache Arrow), by the rules of FlatBuffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_MAGIC = 8  # bytes of `ARROW1` and padding
_MARK = b"\xff\xff\xff\xff"  # before the length of a message
PADDING = 64  # what buffers are aligned to at most
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_OUTSIDE = "metadata that points outside itself"


def check_stream(source: Any) -> None:
    """Refuse a stream that was cut off between two messages, that more bytes follow, or whose buffers lie."""
    size = source.size()
    source.seek(0)
    try:
        while _check_message(source, size) is not None:
            if source.tell() == size:
                raise ValueError("a stream without its end")
    except struct.error:
        raise ValueError(_OUTSIDE) from None
    if source.tell() < size:
        raise ValueError(f"{size - source.tell():,} bytes behind the end of the stream")


def check_file(source: Any) -> None:
    """Refuse a file whose footer does not list every message in it once, or whose buffers lie."""
    size = source.size()
    source.seek(max(size - 10, 0))
    try:
        (length,) = struct.unpack("<i", source.read(4))
        end = size - 10 - length
        if length <= 0 or end < _MAGIC:
            raise ValueError(_OUTSIDE)
        source.seek(end)
        footer = _Metadata(source.read(length))
        source.seek(_MAGIC)
        mark, schema = source.read(4), struct.unpack("<i", source.read(4))[0]
        # Some write the schema without its length; the footer repeats it, and is never shorter.
        reached, slack = (_MAGIC + 8 + schema, PADDING) if mark == _MARK else (_MAGIC, length)
        for offset, before, body in sorted(_blocks(footer)):
            _refuse_hole(reached, offset, slack)
            source.seek(offset)
            if _check_message(source, end) != body or source.tell() != offset + before + body:
                raise ValueError(f"a message of another length than the footer says, at byte {offset:,}")
            reached, slack = source.tell(), PADDING
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
        """Where a field of a table lies; None where it is left out."""
        fields = table - self.number("i", table)
        if 4 + 2 * index >= self.number("H", fields):
            return None
        offset = self.number("H", fields + 4 + 2 * index)
        return table + offset if offset else None

    def value(self, table: int, index: int, kind: str) -> int:
        place = self.field(table, index)
        return 0 if place is None else self.number(kind, place)

    def follow(self, table: int, index: int) -> int:
        """The table that a field refers to."""
        place = self.field(table, index)
        if place is None:
            raise struct.error
        return place + self.number("I", place)

    def items(self, table: int, index: int, size: int) -> Iterator[int]:
        """Where each item of so many bytes of a vector lies."""
        if self.field(table, index) is not None:
            vector = self.follow(table, index)
            yield from (vector + 4 + size * i for i in range(self.number("I", vector)))


def _blocks(footer: _Metadata) -> Iterator[tuple[int, int, int]]:
    """Where the footer says that dictionaries and batches begin, with the lengths of metadata and body."""
    for index in (2, 3):
        for place in footer.items(footer.root, index, 24):
            yield footer.number("q", place), footer.number("i", place + 8), footer.number("q", place + 16)


def _check_message(source: Any, end: int) -> int | None:
    """Step over one message and give the length of its body; None for the mark at the end of a stream."""
    (length,) = struct.unpack("<i", source.read(4))
    if length == -1:  # the mark, which files older than version 0.15 do without
        (length,) = struct.unpack("<i", source.read(4))
    if length == 0:
        return None
    if not 0 < length <= end - source.tell():
        raise ValueError(_OUTSIDE)
    metadata = _Metadata(source.read(length))
    kind, header = metadata.value(metadata.root, 1, "B"), metadata.follow(metadata.root, 2)
    body, left = metadata.value(metadata.root, 3, "q"), end - source.tell()
    if not 0 <= body <= left:
        raise ValueError(f"a message of {body:,} bytes where {left:,} are left")
    if kind in (_DICTIONARY_BATCH, _RECORD_BATCH):
        _check_buffers(metadata, metadata.follow(header, 1) if kind == _DICTIONARY_BATCH else header, body)
    source.seek(source.tell() + body)
    return body


def _check_buffers(metadata: _Metadata, batch: int, body: int) -> None:
    """One behind the other, as every writer puts them: none overlaps another or leaves bytes between them unread."""
    reached = 0
    for place in metadata.items(batch, 2, 16):
        offset, length = metadata.number("q", place), metadata.number("q", place + 8)
        if length == 0:
            continue
        if not (length > 0 and reached <= offset < reached + PADDING and offset + length <= body):
            raise ValueError(f"a buffer at bytes {offset:,} to {offset + length:,}, after {reached:,} of {body:,}")
        reached = offset + length
    if body - reached >= PADDING:
        raise ValueError(f"{body - reached:,} bytes behind the last buffer of a message")
