"""Bytes from outside: files that lie about their lengths, crash a library, shrink or swell are refused in one line."""

from __future__ import annotations

import gzip
import io
import os
import signal
import struct
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import column_of

from gate.cli import main
from gate.errors import GateError
from gate.policy import Columns
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample

LARGE = 1 << 30


@pytest.fixture(autouse=True)
def keep_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore signals after a test: a command that has ended ignores all, and later processes would inherit that."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


NAMED = Columns(segment="segment", id="id")


def table_of(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    segments = pa.array(rng.integers(0, 4, rows)).cast(pa.string()).dictionary_encode()
    return pa.table({"score": rng.random(rows), "segment": segments, "id": [f"row {i}" for i in range(rows)]})


def arrow_bytes(table: pa.Table, form: str = "file", compression: str | None = None, rows: int | None = None) -> bytes:
    place = io.BytesIO()
    writer = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with writer(place, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_table(table, max_chunksize=rows)
    return place.getvalue()


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    place = io.BytesIO()
    pa.parquet.write_table(table, place, **options)
    return place.getvalue()


def take(path: Path, content: bytes, columns: Columns = NAMED) -> Sample:
    path.write_bytes(content)
    return read([str(path)], columns, (0.0, 1.0))


def refusal(path: Path, content: bytes, columns: Columns = NAMED) -> str:
    with pytest.raises(GateError) as caught:
        take(path, content, columns)
    text = str(caught.value)
    assert text.startswith(f"{path}: must ")
    assert text.isprintable()
    return text


def replaced(content: bytes, old: int, new: int) -> bytes:
    """Replace every aligned whole number of eight bytes that equals the old one."""
    numbers = np.frombuffer(content[: len(content) // 8 * 8], dtype="<i8").copy()
    assert (numbers == old).any()
    numbers[numbers == old] = new
    return numbers.tobytes() + content[len(numbers) * 8 :]


# --- lengths and indices --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(25))
@given(
    rows=st.integers(200, 400),
    factor=st.sampled_from([2, 100, 10_000, 1 << 40]),
    ending=st.sampled_from([".arrow", ".feather"]),
    form=st.sampled_from(["file", "stream"]),
    buffers=st.booleans(),
)
def test_rows_that_the_file_only_claims_are_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: int, factor: int, ending: str, form: str, buffers: bool
) -> None:
    path = tmp_path_factory.mktemp("claims") / f"scores{ending}"
    content = arrow_bytes(pa.table({"score": np.random.default_rng(rows).random(rows)}), form)
    assert len(take(path, content, Columns())) == rows
    content = replaced(content, rows, rows * factor)
    if buffers:
        content = replaced(content, rows * 8, rows * 8 * factor)
    refusal(path, content, Columns())


def test_a_claim_of_more_rows_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    honest, liar = tmp_path / "fit.arrow", tmp_path / "holdout.arrow"
    content = arrow_bytes(pa.table({"score": np.random.default_rng(0).random(245)}))
    honest.write_bytes(content)
    liar.write_bytes(replaced(content, 245, 24_500))
    with pytest.raises(SystemExit) as ended:
        main(["run", "--release", "v1", "--fit", str(honest), "--holdout", str(liar), "--dry-run"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"gate: {liar}: must be a readable .arrow file, got: ")


@settings(deadline=None, max_examples=examples(60))
@given(
    seed=st.integers(0, 9),
    kind=st.sampled_from(["file", "zstd", "lz4", "stream", "batches", "parquet", "groups"]),
    place=st.floats(0, 1, exclude_max=True),
    width=st.sampled_from([4, 8]),
    change=st.sampled_from([lambda x: x * 100, lambda x: x + 1, lambda x: x - 1, lambda x: x + 8, lambda x: 0]),
)
def test_a_changed_number_gives_all_rows_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str, place: float, width: int, change: Any
) -> None:
    """The number may be anywhere: in a length, an offset, a dictionary, a count of nulls or the footer."""
    table = table_of(245, seed)
    content = bytearray(
        {
            "file": lambda: arrow_bytes(table),
            "zstd": lambda: arrow_bytes(table, compression="zstd", rows=100),
            "lz4": lambda: arrow_bytes(table, compression="lz4"),
            "stream": lambda: arrow_bytes(table, "stream", rows=100),
            "batches": lambda: arrow_bytes(table, rows=100),
            "parquet": lambda: parquet_bytes(table),
            "groups": lambda: parquet_bytes(table, row_group_size=100, compression="none"),
        }[kind]()
    )
    at = int(place * (len(content) - 8)) // 4 * 4
    number = change(int.from_bytes(content[at : at + width], "little")) % (1 << 8 * width)
    content[at : at + width] = number.to_bytes(width, "little")
    path = tmp_path_factory.mktemp("changed") / ("scores.parquet" if kind in ("parquet", "groups") else "scores.arrow")
    try:
        scores = take(path, bytes(content))
    except GateError as error:
        found = str(error)
    else:
        found = f"{path}: {len(scores)} scores and {len(column_of(scores, 'id'))} ids"
    assert found == f"{path}: 245 scores and 245 ids" or (" must " in found and found.startswith(f"{path}: "))


@pytest.mark.parametrize("column", ["score", "segment", "group", "id", "label"])
@pytest.mark.parametrize("index", [3, 100, 1 << 30, -1])
def test_an_index_behind_its_dictionary_is_refused(tmp_path: Path, column: str, index: int) -> None:
    codes = pa.array([0, 1, 2, index, *[0] * 20], pa.int32())
    names = pa.array([0.1, 0.2, 0.3] if column == "score" else ["0", "1", "2"])
    coded = pa.DictionaryArray.from_arrays(codes, names, safe=False)
    table = pa.table({"score": np.full(24, 0.5), column: coded}).select([column] if column == "score" else [0, 1])
    columns = Columns() if column == "score" else Columns(**{column: column})
    assert "ndex" in refusal(tmp_path / "scores.arrow", arrow_bytes(table), columns)
    with pytest.raises(GateError, match=r"holdout: must be .* table"):
        from_object(table, "holdout", columns, (0.0, 1.0))


def test_an_index_behind_its_dictionary_in_parquet_is_refused(tmp_path: Path) -> None:
    """The test changes the one byte of bit-packed indices that the writer leaves for the second of two names."""
    table = pa.table({"score": np.full(8, 0.5), "segment": ["a", "b", "b", "b", "b", "b", "b", "b"]})
    content = parquet_bytes(table, compression="none", write_statistics=False)
    assert take(tmp_path / "scores.parquet", content, Columns(segment="segment")).segment_names == ("a", "b")
    packed = b"\x01\x03\xfe"  # one bit each, one group of eight, all but the first
    assert content.count(packed) == 1
    wider = content.replace(packed, b"\x08\x0e\x07")  # eight bits each: seven times the eighth name
    refusal(tmp_path / "scores.parquet", wider, Columns(segment="segment"))


def test_arrow_objects_are_validated() -> None:
    """The C interface carries no lengths, but offsets and text must make sense."""
    wild = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(struct.pack("<4i", 0, 9, 2, 3)), pa.py_buffer(b"abc")]
    )
    table = pa.table({"score": [0.1, 0.2, 0.3], "id": wild})
    with pytest.raises(GateError, match=r"holdout: must be readable, got: .*Offset invariant"):
        from_object(table, "holdout", Columns(id="id"), (0.0, 1.0))


# --- rows that a file holds and its metadata does not ---------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_cut_or_extended_stream_is_refused(tmp_path: Path, compression: str | None) -> None:
    first, second = table_of(100), table_of(150, 1)
    whole = arrow_bytes(first, "stream", compression)
    path = tmp_path / "scores.arrow"
    assert len(take(path, whole)) == 100
    assert "bytes behind the end of the stream" in refusal(path, whole + arrow_bytes(second, "stream", compression))
    assert "without its end" in refusal(path, whole[:-8])


@settings(deadline=None, max_examples=examples(20))
@given(
    rows=st.integers(2, 3000),
    batch=st.integers(500, 5000),
    compression=st.sampled_from(["uncompressed", "lz4", "zstd"]),
    form=st.sampled_from(["write_ipc", "write_ipc_stream"]),
    seed=st.integers(0, 99),
)
def test_files_of_another_writer_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: int, batch: int, compression: Any, form: str, seed: int
) -> None:
    """polars puts dictionaries behind the batches, writes no length before the schema, and text as views."""
    path = tmp_path_factory.mktemp("polars") / "scores.feather"
    rng = np.random.default_rng(seed)
    names = [f"a text too long to be short {i}" for i in rng.integers(0, 5, rows)]
    frame = polars.DataFrame({"score": rng.random(rows), "segment": names, "id": [f"{i}" for i in range(rows)]})
    frame = frame.with_columns(polars.col("segment").cast(polars.Categorical), unread=polars.Series([[1.5]] * rows))
    two_chunks = polars.concat([frame.head(rows // 2), frame.slice(rows // 2)], rechunk=False)
    for part in (frame, frame.slice(rows // 3, max(rows // 2, 2)), two_chunks):
        if len(part) >= 2:
            if form == "write_ipc":
                part.write_ipc(path, compression=compression, record_batch_size=batch)
            else:
                part.write_ipc_stream(path, compression=compression)
            scores = read([str(path)], NAMED, (0.0, 1.0))
            assert column_of(scores) == part["score"].to_list()
            assert column_of(scores, "id") == part["id"].to_list()
            assert column_of(scores, "segment") == part["segment"].to_list()


@pytest.mark.parametrize("more", [-8, -1, 1, 8, 8000])
def test_npy_files_hold_what_their_header_says(tmp_path: Path, more: int) -> None:
    """One case has two arrays saved into one file: NumPy would read the first."""
    np.save(tmp_path / "scores.npy", np.linspace(0, 1, 1000))
    content = (tmp_path / "scores.npy").read_bytes()
    changed = content[:more] if more < 0 else content + content[-more:]
    assert f"{8000 + more:,} bytes where its header says 8,000" in refusal(tmp_path / "scores.npy", changed, Columns())
    with zipfile.ZipFile(tmp_path / "scores.npz", "w") as archive:
        archive.writestr("score.npy", changed)
    text = refusal(tmp_path / "scores.npz", (tmp_path / "scores.npz").read_bytes(), Columns())
    assert f"{8000 + more:,} bytes where its header says 8,000" in text


# --- what libraries stumble over ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [20_000, 200_000])
def test_deep_json_is_refused(tmp_path: Path, depth: int) -> None:
    line = '{"score": 0.5, "deep": ' + "[" * depth + "]" * depth + "}\n"
    refusal(tmp_path / "scores.jsonl", line.encode(), Columns())


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    tables = [table_of(1000 + i, i) for i in range(6)]
    for i, table in enumerate(tables):
        (tmp_path / f"{i}.parquet").write_bytes(parquet_bytes(table))
    found: dict[int, list[float]] = {}

    def work(i: int) -> None:
        for _ in range(3):
            paths = [str(tmp_path / f"{j % 6}.parquet") for j in (i, i + 1)]
            found[i] = column_of(read(paths, Columns(segment="segment"), (0.0, 1.0)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        both = [*tables[i]["score"].to_pylist(), *tables[(i + 1) % 6]["score"].to_pylist()]
        assert sorted(found[i]) == sorted(both)  # files are read in the order of their names


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_what_is_packed_unpacks_to_no_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Columns that nobody reads count too, for they are unpacked."""
    monkeypatch.setattr("gate.rows.formats.UNPACKED", 1 << 20)
    rows = b"score\n" + b"0.5\n0.25\n" * 5_000 if ending == ".csv" else b'{"score": 0.5}\n' * 10_000
    packed = tmp_path / f"packed{ending}.gz"
    assert len(take(packed, gzip.compress(rows), Columns())) == 10_000
    bomb = gzip.compress(rows + b"\0" * (1 << 26), 9)  # 64 MB that gzip packs into 64 KB
    assert refusal(packed, bomb, Columns()).startswith(f"{packed}: must unpack to at most ")


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".arrow", ".npy"])
def test_a_file_that_shrinks_before_it_is_counted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """It is cut short when its columns are known and its rows are not."""
    from gate.rows import reading, roles

    path, real = tmp_path / f"scores{ending}", roles.read_part
    table = pa.table({"score": np.random.default_rng(0).random(200_000)})
    match ending:
        case ".parquet":
            path.write_bytes(parquet_bytes(table, row_group_size=1000))
        case ".arrow":
            path.write_bytes(arrow_bytes(table, rows=1000))
        case ".npy":
            np.save(path, table["score"].to_numpy())
        case ".csv":
            pa.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(f'{{"score": {value}}}\n' for value in table["score"].to_pylist()))

    def shrink(*args: Any, **kwargs: Any) -> Any:
        os.truncate(path, 5000)
        return real(*args, **kwargs)

    monkeypatch.setattr(reading, "read_part", shrink)
    try:
        found = read([str(path)], Columns(), (0.0, 1.0))
    except GateError as error:
        assert str(error).startswith(f"{path}: must ")  # noqa: PT017, what was read before may be counted too
    else:
        assert len(found) == 200_000
