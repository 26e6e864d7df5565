"""Hostile input, made from sound input: tables in every format with things wrong in their bytes, values and folders."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

TOKENS = [
    *(b"NaN Infinity -Infinity 1e999 -1 0 1e-400 null true {} [] .nan .inf 0x10 1_0 99% -0.0".split()),
    *(b"*a &a << ? | > - : , % @ ` ' \" # ! !!python/object:os.system --- ... \\ \\ud800 \\u202e".split()),
    *(b"../../etc/passwd /etc/passwd C:\\ . .. calibrator.joblib manifest.json $(touch_x) =1+1 @SUM(1)".split()),
    *(b"<script>alert(1)</script> ::error::x ##[error]x ]]> <!-- -->".split()),
    b"9" * 400,
    b"-" + b"9" * 25,
    b"[" * 3000,
    b'{"a":' * 1500,
    b"a" * 5000,
    b"\x00",
    b"\x1b[31m",
    b"\x9b2J",
    b"\r",
    b"\n\n",
    b"\t",
    "\u202e\u2066\u200b\ufeff".encode(),
    "\U0010ffff".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**63, 10**30, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), "", "x",
    "\u202e", "\x1b[2J", "\ud800", "../x", [], {}, [[]], [None], {"a": 1}, "9" * 300, "2026-02-30T00:00:00Z", "<b>",
    "pass", "fail",
]  # fmt: skip

BINARY = (".arrow", ".feather", ".stream.arrow", ".parquet", ".npy", ".npz")
FORMATS = (*BINARY, ".csv", ".tsv", ".jsonl")
COLUMNS = ("label", "id", "group", "segment", "timestamp")


# --- bytes and values ---------------------------------------------------------------------------------------


def mutate(rng: random.Random, examples: list[bytes]) -> bytes:
    """A sound example with a few things wrong, or garbage."""
    content = bytearray(rng.choice(examples))
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(200))
    if content[:1] == b"{" and rng.random() < 0.6:
        changed = mutate_json(rng, bytes(content))
        if changed is not None:
            return changed
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        place = rng.randrange(len(content) + 1)
        end = min(len(content), place + rng.choice([1, 1, 2, 8, 60]))
        match rng.randrange(8):
            case 0 if content:
                content[min(place, len(content) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                content[place:end] = b""
            case 2:
                content[place:place] = content[place:end] * rng.choice([1, 2, 50])
            case 3:
                content[place:place] = rng.choice(TOKENS)
            case 4:
                content[place:end] = rng.choice(TOKENS)
            case 5:
                del content[place:]
            case 6:
                content[place:end] = rng.randbytes(end - place)
            case _:
                other = rng.choice(examples)
                start = rng.randrange(len(other) + 1)
                content[place:end] = other[start : start + rng.choice([1, 8, 60, 400])]
    return bytes(content)


def mutate_json(rng: random.Random, content: bytes) -> bytes | None:
    """The same document with another value, a missing key or a repeated entry somewhere."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    holder, key = rng.choice(list(_places(document)))
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([holder[key] + 1, -holder[key], holder[key] * 1000, str(holder[key])])
        case _:
            holder[key] = rng.choice(VALUES)
    return json.dumps(document, indent=rng.choice([None, 1, 2])).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items)[:30]:
        yield value, key
        yield from _places(part)


def mutate_binary(rng: random.Random, content: bytes, rows: int) -> bytes:
    """The same file with lengths, offsets, counts or bitmaps changed where they stand, and nothing moved."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        match rng.randrange(6):
            case 0 | 1:
                _change_integer(rng, changed, rows)
            case 2:
                _change_everywhere(rng, changed, rows)
            case 3:
                _change_variable_integer(rng, changed)
            case 4:
                _change_bits(rng, changed)
            case _:
                _swap_words(rng, changed)
    return bytes(changed)


def _integers(content: bytearray, width: int, most: int) -> list[int]:
    """The places of aligned integers that look like lengths, offsets, indices or counts."""
    kind = np.dtype(f"<i{width}")
    values = np.frombuffer(bytes(content[: len(content) // width * width]), dtype=kind)
    return [int(i) * width for i in np.flatnonzero((values > 0) & (values <= most))]


def _others(rng: random.Random, value: int, rows: int) -> int:
    choices = [0, 1, -1, value - 1, value + 1, value + 8, 2 * value, value // 2, 100 * value, rows, rows + 1, 8 * rows]
    return rng.choice([*choices, 2**31 - 1, -(2**31), 1 << 20, rng.randrange(1 << 16)])


def _change_integer(rng: random.Random, content: bytearray, rows: int) -> None:
    width = rng.choice([2, 4, 8])
    places = _integers(content, width, max(4096, 16 * rows) if width > 2 else 4096)
    if places:
        place = rng.choice(places)
        value = int.from_bytes(content[place : place + width], "little")
        other = _others(rng, value, rows) & ((1 << 8 * width) - 1)
        content[place : place + width] = other.to_bytes(width, "little")


def _change_everywhere(rng: random.Random, content: bytearray, rows: int) -> None:
    """Change one count in every place, so that a lie is consistent; its bytes may be longer too."""
    factor = rng.choice([0, 0.5, 2, 3, 100])
    width = rng.choice([4, 8, 8, 8])
    counts = {rows, 8 * rows, -(-rows // 8), 4 * rows, 8 * -(-rows // 8), 64 * -(-8 * rows // 64), 64 * -(-rows // 512)}
    counts = counts if rng.random() < 0.5 else {rows, rng.choice(sorted(counts))}
    for place in range(0, len(content) - width + 1, width):
        value = int.from_bytes(content[place : place + width], "little")
        if value in counts and value:
            content[place : place + width] = int(value * factor).to_bytes(width, "little")


def _change_variable_integer(rng: random.Random, content: bytearray) -> None:
    """A small number as Thrift writes it, near the end, where Parquet keeps what it says of its columns."""
    start = max(0, len(content) - 1500) if rng.random() < 0.7 else 0
    if content:
        place = rng.randrange(start, len(content))
        content[place] = (content[place] + rng.choice([-2, 2, -1, 1, 16, 64])) & 0xFF


def _change_bits(rng: random.Random, content: bytearray) -> None:
    """A bitmap, or bytes that look like one."""
    places = [i for i in range(0, len(content) - 7, 8) if content[i] == 0xFF] or [*range(0, len(content) - 7, 8)]
    if places:
        place = rng.choice(places)
        content[place] ^= rng.choice([0xFF, 1, 0x80, rng.randrange(256)])


def _swap_words(rng: random.Random, content: bytearray) -> None:
    if len(content) >= 32:
        one, two = (8 * rng.randrange(len(content) // 8) for _ in range(2))
        content[one : one + 8], content[two : two + 8] = content[two : two + 8], content[one : one + 8]


# --- tables -------------------------------------------------------------------------------------------------


@dataclass
class Files:
    """What one argument of gate names: files by their path below it, links, and which columns they have."""

    name: str
    files: dict[str, bytes]
    columns: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    sound: dict[str, bytes] = field(default_factory=dict)  # the files before any change


def table(rng: random.Random, rows: int, columns: tuple[str, ...]) -> pa.Table:
    """Sound rows, each column in one of the types that gate takes, and now and then in one that it does not."""
    scores = [round(rng.random(), rng.choice([1, 3, 17])) for _ in range(rows)]
    held: dict[str, Any] = {"score": _scores(rng, scores)}
    if "label" in columns:
        values = [rng.randrange(2) for _ in range(rows)]
        held["label"] = _labels(rng, values)
    if "id" in columns:
        held["id"] = _texts(rng, [f"r{i}" for i in range(rows)])
    for name, kinds in (("group", 5), ("segment", 3)):
        if name in columns:
            held[name] = _texts(rng, [f"{name}{rng.randrange(kinds)}" for _ in range(rows)])
    if "timestamp" in columns:
        held["timestamp"] = _times(rng, rows)
    names = [*held]
    rng.shuffle(names)
    return pa.table({name: held[name] for name in names})


def _scores(rng: random.Random, scores: list[float]) -> pa.Array:
    plain = pa.array(scores)
    match rng.randrange(24):
        case 0:
            return plain.cast(pa.float32())
        case 1:
            return pa.array([int(score > 0.5) for score in scores], pa.int8())
        case 2:
            return pa.array([Decimal(f"{score:.4f}") for score in scores], pa.decimal128(10, 4))
        case 3 | 4 | 5:
            return plain.dictionary_encode()
        case 6:
            return pa.array([None if rng.random() < 0.1 else score for score in scores])
        case 7:
            return pa.array(list(map(str, scores)))
        case 8:
            return pa.array([[score] for score in scores])
        case 9:
            return pa.array(scores, pa.float64()).cast(pa.float16())
        case _:
            return plain


def _labels(rng: random.Random, values: list[int]) -> pa.Array:
    match rng.randrange(12):
        case 0:
            return pa.array([bool(value) for value in values])
        case 1 | 2:
            return pa.array([str(value) for value in values])
        case 3 | 4:
            return pa.array([str(value) for value in values]).dictionary_encode()
        case 5:
            return pa.array(values, pa.float32())
        case 6:
            return pa.array(values, pa.uint8())
        case 7:
            return pa.array([rng.choice(["0", "0.0", "00", "0 ", "false", "NA", "1"]) for _ in values])
        case 8:
            return pa.array([None if rng.random() < 0.05 else value for value in values])
        case _:
            return pa.array(values)


def _texts(rng: random.Random, texts: list[str]) -> pa.Array:
    plain = pa.array(texts)
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int16(), pa.string())]
    match rng.randrange(8):
        case 0 | 1 | 2 | 3:
            return plain
        case 4:
            return pa.array([None if rng.random() < 0.05 else text for text in texts])
        case 5:
            return pa.array([hash(text) % 7 for text in range(len(texts))])
        case 6:  # every name twice in the dictionary, and one that no row has
            names = sorted({*texts})
            places = [names.index(text) + rng.choice((0, len(names))) for text in texts]
            return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array([*names, *names, "none"]))
        case _:
            return plain.cast(rng.choice(kinds))


def _times(rng: random.Random, rows: int) -> pa.Array:
    seconds = [1_780_000_000 + rng.randrange(10**6) for _ in range(rows)]
    match rng.randrange(6):
        case 0:
            return pa.array(seconds, pa.int64())
        case 1:
            return pa.array([float(second) for second in seconds])
        case 2:
            return pa.array([f"2026-0{1 + second % 9}-1{second % 9}T12:00:00Z" for second in seconds])
        case 3:
            return pa.array(seconds, pa.timestamp("s", "Europe/Berlin"))
        case 4:
            return pa.array([second * 10**9 for second in seconds], pa.timestamp("ns"))
        case _:
            return pa.array(seconds, pa.timestamp("s"))


# --- formats ------------------------------------------------------------------------------------------------


def encode(rng: random.Random, rows: pa.Table, suffix: str) -> bytes:
    out = io.BytesIO()
    match suffix:
        case ".parquet":
            pa.parquet.write_table(
                rows,
                out,
                row_group_size=rng.choice([None, 1 + rows.num_rows // 3]),
                compression=rng.choice(["none", "none", "none", "snappy", "gzip", "zstd"]),
                use_dictionary=rng.random() < 0.6,
                write_statistics=rng.random() < 0.5,
                data_page_version=rng.choice(["1.0", "2.0"]),
                store_schema=rng.random() < 0.8,
            )
        case ".arrow" | ".feather" | ".stream.arrow":
            compression = rng.choice([None, None, None, None, "lz4", "zstd"])
            options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
            start = pa.ipc.new_stream if suffix == ".stream.arrow" else pa.ipc.new_file
            with start(out, rows.schema, options=options) as writer:
                writer.write_table(rows, max_chunksize=rng.choice([None, 1 + rows.num_rows // 3]))
        case ".csv" | ".tsv":
            return _encode_text(rng, rows, "\t" if suffix == ".tsv" else ",")
        case ".jsonl":
            lines = [json.dumps(row, default=str) for row in _plain(rows).to_pylist()]
            return "\n".join(lines).encode() + rng.choice([b"", b"\n"])
        case ".npy":
            np.save(out, _array(rng, rows["score"]))
        case _:
            arrays = {name: _array(rng, rows[name]) for name in rows.column_names}
            rng.choice([np.savez, np.savez_compressed])(out, **arrays)
    return out.getvalue()


def _plain(rows: pa.Table) -> pa.Table:
    """The rows without values that JSON, text and NumPy cannot express."""
    columns = {}
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_decimal(column.type) or pa.types.is_float16(column.type):
            column = column.cast(pa.float64())
        if pa.types.is_binary(column.type):
            column = column.cast(pa.string())
        columns[name] = column
    return pa.table(columns)


def _encode_text(rng: random.Random, rows: pa.Table, separator: str) -> bytes:
    plain, quote = _plain(rows), rng.choice(["", "", '"'])
    ends = rng.choice(["\n", "\n", "\r\n"])
    rows_of_text = [[quote + ("" if v is None else str(v)) + quote for v in row.values()] for row in plain.to_pylist()]
    lines = [separator.join(row) for row in (plain.column_names, *rows_of_text)]
    return (rng.choice(["", "", "\ufeff"]) + ends.join(lines) + rng.choice(["", ends])).encode()


def _array(rng: random.Random, column: pa.ChunkedArray) -> Any:
    values = np.array(_plain(pa.table({"a": column}))["a"].to_pylist())
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = values.astype(rng.choice(["<f8", "<f8", "<f8", ">f8", "<f4", "<f2"]))
    if values.dtype.kind == "M":
        values = values.astype("int64")
    return values.astype("U") if values.dtype.kind == "O" else values


def files(rng: random.Random, name: str) -> Files:
    """One argument: a file or a directory of drawn rows, sound or with something wrong in it."""
    suffix = rng.choice(FORMATS)
    columns = () if suffix == ".npy" else tuple(c for c in COLUMNS if rng.random() < 0.35)
    if rng.random() < 0.12:
        return _directory(rng, name, columns)
    rows = rng.choice([2, 3, rng.randrange(4, 70), rng.randrange(100, 400)])
    content = encode(rng, table(rng, rows, columns), suffix)
    made = Files(name + suffix, {}, columns, sound={"": content})
    content = spoil(rng, content, suffix, rows)
    if suffix in (".csv", ".jsonl", ".tsv") and rng.random() < 0.15:
        made.name += ".gz"
        made.sound[""] = gzip.compress(made.sound[""])
        content = gzip.compress(content)
        content = mutate(rng, [content]) if rng.random() < 0.3 else content
    made.files[""] = content
    return made


def spoil(rng: random.Random, content: bytes, suffix: str, rows: int) -> bytes:
    if rng.random() < 0.05:
        return content
    if suffix == ".npz" and rng.random() < 0.5:
        return _spoil_inside(rng, content, rows)
    if suffix in BINARY and rng.random() < 0.8:
        return mutate_binary(rng, content, rows)
    return mutate(rng, [content])


def _spoil_inside(rng: random.Random, content: bytes, rows: int) -> bytes:
    """An archive whose checksums are right and whose arrays are not."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as other:
        names = archive.namelist()
        spoilt = rng.choice(names)
        for name in names:
            inside = archive.read(name)
            other.writestr(name, mutate(rng, [inside]) if name == spoilt else inside)
    return out.getvalue()


PLACES = [
    "part-0", "part-1", "label=0/part-0", "label=1/part-0", "day=1/part-0", "day=2/label=0/x", "score=0.5/part-0",
    "segment=a%20b/part-0", "_hidden/part-0", ".hidden/part-0", "deep/er/part-0", "id=7/part-0",
]  # fmt: skip
STRANGERS = {
    "_SUCCESS": b"", "part.crc": b"crc", "notes.txt": b"score\n0.5\n", "README.md": b"# rows", "_metadata": b"PAR1",
    ".part-0.parquet.crc": b"x", "empty.csv": b"", "rows.xlsx": b"PK", "_delta_log/0.json": b"{}",
    "metadata/v1.metadata.json": b"{}", "part.parquet.tmp": b"PAR1", "nohup": b"",
}  # fmt: skip


def _directory(rng: random.Random, name: str, columns: tuple[str, ...]) -> Files:
    made = Files(name, {}, columns)
    for place in rng.sample(PLACES, rng.choice([1, 2, 3])):
        suffix = rng.choice([".parquet", ".csv", ".jsonl", ".arrow", ".pq", ".PARQUET", ".npz"])
        own = columns if rng.random() < 0.7 else tuple(c for c in columns if f"{c}=" not in place)
        rows = rng.randrange(2, 40)
        content = encode(rng, table(rng, rows, own), ".parquet" if suffix in (".pq", ".PARQUET") else suffix)
        made.sound[place + suffix] = content
        made.files[place + suffix] = spoil(rng, content, suffix, rows) if rng.random() < 0.2 else content
    if rng.random() < 0.4:
        stranger = rng.choice([*STRANGERS])
        made.files[stranger] = STRANGERS[stranger]
    if rng.random() < 0.15:
        target = rng.choice([*made.files])
        made.links["linked" + target.rpartition("/")[2]] = target
    if rng.random() < 0.1:
        made.links["linked-folder"] = rng.choice([*made.files]).partition("/")[0]
    return made


# --- crafted: what was found once, made again -------------------------------------------------------------------


def _arrow_file(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


def _lie(content: bytes, replacements: dict[int, int]) -> bytes:
    """The same bytes with one 64-bit number replaced by another wherever it stands aligned."""
    changed = bytearray(content)
    for place in range(0, len(changed) - 7, 8):
        value = struct.unpack_from("<q", changed, place)[0]
        if value in replacements:
            struct.pack_into("<q", changed, place, replacements[value])
    return bytes(changed)


def long_arrow() -> Files:
    """245 rows whose lengths claim a hundred times as many: the rest would be read from behind the buffer."""
    sound = _arrow_file(pa.table({"score": np.zeros(245)}))
    return Files("holdout.arrow", {"": _lie(sound, {245: 24_500})})


def longer_arrow() -> Files:
    """245 rows whose length and buffer agree on a size far beyond the file."""
    sound = _arrow_file(pa.table({"score": np.zeros(245)}))
    return Files("holdout.arrow", {"": _lie(sound, {245: 245 << 20, 245 * 8: (245 << 20) * 8})})


def _indexed(name: str) -> pa.Table:
    """A dictionary column of forty rows, one of which has the tenth entry of three."""
    indices = pa.array([0, 1, 2, 9] * 10, pa.int32())
    words = pa.array([0.1, 0.2, 0.3] if name == "score" else ["a", "b", "c"])
    column = pa.DictionaryArray.from_arrays(indices, words, safe=False)
    return pa.table({"score": np.linspace(0, 1, 40), name: column})


def bad_index(name: str) -> Files:
    rows = _indexed(name)
    return Files("holdout.arrow", {"": _arrow_file(rows)}, () if name == "score" else (name,))


def deep_json() -> Files:
    """Nested so deep that a reader that calls itself runs out of stack."""
    return Files("holdout.jsonl", {"": b'{"score": 0.5, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"})


def cut(suffix: str) -> Files:
    rng = random.Random(suffix)
    content = encode(rng, table(rng, 300, ()), suffix)
    return Files("holdout" + suffix, {"": content[: len(content) * 2 // 3]})


def bad_text() -> Files:
    """A NumPy text column with a number that no character has."""
    groups = np.array(["a", "b"] * 20)
    groups.view(np.uint32)[7] = 0x110000
    out = io.BytesIO()
    np.savez(out, score=np.linspace(0, 1, 40), group=groups)
    return Files("holdout.npz", {"": out.getvalue()}, ("group",))


def bad_scale() -> Files:
    """Decimals of a type that Arrow can hold and not print."""
    kind = pa.decimal128(10, 1000)
    scores = pa.Array.from_buffers(kind, 40, [None, pa.py_buffer(bytes(16 * 40))])
    return Files("holdout.arrow", {"": _arrow_file(pa.table({"score": scores}))})


CRAFTED: dict[str, Callable[[], Files]] = {
    "an Arrow length a hundred times too long": long_arrow,
    "an Arrow length and its buffer far beyond the file": longer_arrow,
    "an Arrow score index out of range": lambda: bad_index("score"),
    "an Arrow group index out of range": lambda: bad_index("group"),
    "an Arrow segment index out of range": lambda: bad_index("segment"),
    "JSON nested 20,000 deep": deep_json,
    "NumPy text that is no Unicode": bad_text,
    "decimals with a thousand digits behind the point": bad_scale,
    **{f"a {suffix} file cut short": partial(cut, suffix) for suffix in BINARY},
}
