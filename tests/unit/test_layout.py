"""The layout of Arrow files: what honest writers leave is read, and no length, count or bitmap can lie alone."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.ipc
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.scores import layout

# --- honest files ---------------------------------------------------------------------------------------------


def columns_of(rows: int, seed: int, nulls: bool) -> dict[str, pa.Array]:
    """One column of each form, some with nulls."""
    rng = np.random.default_rng(seed)
    mask = rng.random(rows) < 0.3 if nulls else None
    lengths = rng.integers(0, 4, rows)
    texts = ["word" * k for k in lengths]
    numbers = pa.array(rng.integers(0, 100, rows), mask=mask)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    items = pa.array(rng.random(int(lengths.sum())))
    kinds = pa.array(rng.integers(0, 2, rows), pa.int8())
    within = pa.array([int(i) for i in _counted(kinds.to_pylist())], pa.int32())
    return {
        "score": pa.array(rng.random(rows)),
        "masked": pa.array(rng.random(rows), mask=mask),
        "flag": pa.array(rng.random(rows) < 0.5, mask=mask),
        "small": numbers.cast(pa.int8()),
        "text": pa.array(texts, mask=mask),
        "large": pa.array(texts, pa.large_string(), mask=mask),
        "view": pa.array([f"{text} longer than twelve bytes" for text in texts]).cast(pa.string_view()),
        "binary": pa.array([b"abc"] * rows, pa.binary(3)),
        "decimal": numbers.cast(pa.decimal128(25, 2)),
        "date": numbers.cast(pa.int32()).cast(pa.date32()),
        "time": numbers.cast(pa.int32()).cast(pa.time32("s")),
        "stamp": numbers.cast(pa.timestamp("us")),
        "coded": pa.array(texts, mask=mask).dictionary_encode(),
        "short coded": pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, 2, rows), pa.int8(), mask=mask), pa.array([0.5, None])
        ),
        "list": pa.ListArray.from_arrays(offsets, items),
        "large list": pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), items),
        "list view": pa.ListViewArray.from_arrays(offsets[:rows], pa.array(lengths, pa.int32()), items),
        "pairs": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(2 * rows)), 2),
        "struct": pa.StructArray.from_arrays([numbers, pa.array(texts)], ["a", "b"]),
        "map": pa.MapArray.from_arrays(offsets, pa.array([f"{i}" for i in range(len(items))]), items),
        "nothing": pa.nulls(rows),
        "sparse": pa.UnionArray.from_sparse(kinds, [numbers, pa.array(texts)]),
        "dense": pa.UnionArray.from_dense(kinds, within, [pa.array(rng.random(rows + 1)), pa.array([*texts, ""])]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1.5]))
        if rows
        else pa.RunEndEncodedArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.float64())),
    }


def _counted(kinds: list[int]) -> list[int]:
    seen = [0, 0]
    places = []
    for kind in kinds:
        places.append(seen[kind])
        seen[kind] += 1
    return places


def written(table: pa.Table, form: str, compression: str | None, rows: int | None, version: str = "V5") -> bytes:
    place = io.BytesIO()
    writer = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=compression, metadata_version=pa.ipc.MetadataVersion[version])
    with writer(place, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=rows)
    return place.getvalue()


def check(content: bytes) -> None:
    source = pa.BufferReader(content)
    (layout.check_file if content[:6] == b"ARROW1" else layout.check_stream)(source)


@settings(deadline=None, max_examples=examples(150))
@given(
    rows=st.integers(0, 400),
    seed=st.integers(0, 99),
    nulls=st.booleans(),
    names=st.sets(st.sampled_from(sorted(columns_of(2, 0, False))), min_size=1),
    form=st.sampled_from(["file", "stream"]),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    batch=st.none() | st.integers(1, 200),
)
def test_what_arrow_writes_is_taken(
    rows: int, seed: int, nulls: bool, names: set[str], form: str, compression: str | None, cut: Any, batch: int | None
) -> None:
    """Slices too, behind whose values the next rows stand, whatever the types, nulls and compression."""
    columns = columns_of(rows, seed, nulls)
    first, last = sorted(int(part * rows) for part in cut)
    if first:
        names -= {"runs"}  # of a slice from another place, older and newer Arrow write different ends
    table = pa.table({name: columns[name] for name in sorted(names) or ["score"]}).slice(first, last - first)
    content = written(table, form, compression, batch)
    check(content)


def test_rows_of_a_slice_are_padded_with_the_next() -> None:
    """Why the bytes behind the values say nothing of a writer: 1,001 of 1,003 rows, and the two others too."""
    scores = np.random.default_rng(0).random(1003)
    content = written(pa.table({"score": scores}).slice(0, 1001), "file", None, None)
    assert scores.tobytes() in content
    check(content)


@settings(deadline=None, max_examples=examples(30))
@given(
    rows=st.integers(0, 300),
    seed=st.integers(0, 99),
    compression=st.sampled_from(["uncompressed", "lz4", "zstd"]),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    stream=st.booleans(),
)
def test_what_polars_writes_is_taken(rows: int, seed: int, compression: Any, cut: Any, stream: bool) -> None:
    first, last = sorted(int(part * rows) for part in cut)
    columns = columns_of(rows, seed, True)
    names = ("score", "masked", "flag", "small", "text", "coded", "list", "pairs", "struct", "stamp", "nothing")
    frame: Any = polars.from_arrow(pa.table({name: columns[name] for name in names})).slice(first, last - first)
    place = io.BytesIO()
    (frame.write_ipc_stream if stream else frame.write_ipc)(place, compression=compression)
    check(place.getvalue())


# --- lies -----------------------------------------------------------------------------------------------------


def batch_numbers(content: bytes) -> dict[str, Any]:
    """Where in a file with one batch its length, its nodes and its buffers are written, and where its body begins."""
    (length,) = struct.unpack("<i", content[-10:-6])
    start = len(content) - 10 - length
    footer = layout._Metadata(content[start:-10])
    place = footer.number("q", next(footer.items(footer.root, 3, 24)))
    source = pa.BufferReader(content)
    source.seek(place)
    message = layout._read_message(source, start)
    assert message is not None
    metadata, batch = message.metadata, message.header
    begins = message.start - len(metadata.data)
    return {
        "length": begins + (metadata.field(batch, 0) or 0),
        "nodes": [begins + at for at in metadata.items(batch, 1, 16)],
        "buffers": [begins + at for at in metadata.items(batch, 2, 16)],
        "body": message.start,
    }


MISFIT = "bytes of values where|values in a column where|a buffer at bytes|bytes behind|are marked|must begin at 0"


def put(content: bytes, *numbers: tuple[int, int]) -> bytes:
    changed = bytearray(content)
    for place, number in numbers:
        changed[place : place + 8] = struct.pack("<q", number)
    return bytes(changed)


def number(content: bytes, place: int) -> int:
    return int(struct.unpack_from("<q", content, place)[0])


@settings(deadline=None, max_examples=examples(60))
@given(
    rows=st.integers(1, 300),
    seed=st.integers(0, 99),
    form=st.sampled_from(["file", "stream"]),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    column=st.sampled_from(["masked", "flag", "small", "text", "coded", "short coded", "stamp"]),
    claim=st.sampled_from([0, 1, -1, 1 << 40]),
)
def test_nulls_are_those_that_the_bitmap_marks(
    rows: int, seed: int, form: str, compression: str | None, column: str, claim: int
) -> None:
    """A count of 0 makes Arrow drop the bitmap, and the zeros in place of nulls would be scores and labels."""
    array = columns_of(rows, seed, True)[column]
    content = written(pa.table({column: array}), form, compression, None)
    marked = array.null_count
    node = struct.pack("<2q", rows, marked)
    assert content.count(node) >= 1
    if claim == marked:
        return
    with pytest.raises(ValueError, match=f"claimed where {marked:,} are marked"):
        check(content.replace(node, struct.pack("<2q", rows, claim)))


def test_a_null_in_a_dictionary_is_one_too() -> None:
    array = columns_of(100, 0, False)["short coded"]
    content = written(pa.table({"score": array}), "file", None, None)
    node = struct.pack("<2q", 2, 1)  # the dictionary's, of two values
    assert content.count(node) == 1
    with pytest.raises(ValueError, match="0 nulls claimed where 1 are marked"):
        check(content.replace(node, struct.pack("<2q", 2, 0)))


@settings(deadline=None, max_examples=examples(40))
@given(
    rows=st.integers(60, 300),
    hidden=st.integers(17, 59),
    unread=st.sampled_from(["small", "text", "large", "flag", "binary", "list", "pairs", "struct", "map", "sparse"]),
)
def test_a_lie_told_by_all_fields_is_seen_through_the_unread_column(rows: int, hidden: int, unread: str) -> None:
    """Fewer rows by every length, and the bytes of the rest given to the next column, which nobody reads."""
    table = pa.table({"score": columns_of(rows, 0, False)["score"], "unread": columns_of(rows, 0, False)[unread]})
    content = written(table, "file", None, None)
    at = batch_numbers(content)
    less = rows - hidden
    score = at["buffers"][1]
    following = next(place for place in at["buffers"][2:] if number(content, place + 8))
    honest = number(content, following)
    begins = -(-less * 8 // 64) * 64
    lies = [(at["length"], less), (at["nodes"][0], less), (score + 8, less * 8), (following, begins)]
    lies += [(following + 8, number(content, following + 8) + honest - begins)]
    lies += [(node, less) for node in at["nodes"][1:] if number(content, node) == rows]
    with pytest.raises(ValueError, match=MISFIT):
        check(put(content, *lies))


@settings(deadline=None, max_examples=examples(80))
@given(
    rows=st.integers(30, 300),
    seed=st.integers(0, 9),
    columns=st.sets(st.sampled_from(["masked", "flag", "small", "text", "coded", "list", "struct"]), min_size=1),
    which=st.floats(0, 1, exclude_max=True),
    change=st.sampled_from([-9, -1, 1, 8, 64, 1 << 33]),
)
def test_no_length_lies_alone(rows: int, seed: int, columns: set[str], which: float, change: int) -> None:
    """Of the batch, a node or a buffer: each follows from the others, up to the padding of a buffer."""
    made = columns_of(rows, seed, True)
    content = written(pa.table({name: made[name] for name in sorted(columns)}), "file", None, None)
    at = batch_numbers(content)
    lengths = [at["length"], *at["nodes"], *(place + 8 for place in at["buffers"])]
    place = lengths[int(which * len(lengths))]
    old = number(content, place)
    changed = put(content, (place, old + change))
    if place in at["nodes"] or place == at["length"] or not 0 < change < 64 or old == 0:
        with pytest.raises(ValueError, match=MISFIT):
            check(changed)


def test_buffers_and_nodes_that_no_column_needs_are_refused() -> None:
    """One fewer in the schema than in the batch: the bytes would be nobody's."""
    table = pa.table({name: columns_of(50, 0, False)[name] for name in ("score", "small")})
    both = pa.BufferReader(written(table, "stream", None, None))
    alone = pa.BufferReader(written(table.select(["score"]), "stream", None, None))
    first = layout._read_message(alone, alone.size())
    assert first is not None
    schema = layout._Schema(first.metadata, first.header)
    layout._read_message(both, both.size())
    batch = layout._read_message(both, both.size())
    assert batch is not None
    with pytest.raises(ValueError, match="more buffers than the columns need"):
        layout._check_message(batch, schema)


@pytest.mark.parametrize("back", [0x0E, 0x0C, 0x08])
def test_a_type_that_does_not_list_its_fields_is_refused(back: int) -> None:
    """Arrow reads the empty list of fields as half precision: other scores, all of them in the domain."""
    sound = written(pa.table({"score": [0.3, 0.536, 0.2]}), "stream", None, None)
    precision = b"\x06\x00\x00\x00\x00\x00\x02\x00"  # the list of fields six bytes before, and double
    assert sound.count(precision) == 1
    changed = sound.replace(precision, bytes([back]) + precision[1:])
    with pytest.raises(ValueError, match="points outside itself"):
        layout.check_stream(pa.BufferReader(changed))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_packed_buffer_that_claims_not_to_be_is_refused(compression: str) -> None:
    """Arrow would take the packed bytes for values, and other readers unpack them: found by the fuzzer."""
    content = written(pa.table({"score": np.zeros(8)}), "file", compression, None)
    honest = struct.pack("<q", 64)  # bytes of eight values, as they stand before what is packed
    at = content.index(honest + layout._FRAMES[["lz4", "zstd"].index(compression)])
    check(content)
    with pytest.raises(ValueError, match="packed and claims not to be"):
        check(content[:at] + struct.pack("<q", -1) + content[at + 8 :])
