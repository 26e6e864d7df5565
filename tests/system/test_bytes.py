"""Bytes from outside: files that lie about their lengths, crash a library, shrink or swell are refused in one line."""

from __future__ import annotations

import gzip
import io
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import numpy as np
import polars
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from drawing import examples
from gate.scores import Scores, formats, from_object, layout, read
from gate.scores.budget import bound
from gate.scores.child import isolate
from gate.scores.formats import delimited, json_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.cli import main
from gate.errors import GateError
from gate.policy import Columns

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


def take(path: Path, content: bytes, columns: Columns = NAMED) -> Scores:
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
        found = f"{path}: {len(scores)} scores and {len(scores.ids)} ids"
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


def test_a_page_that_is_not_as_its_checksum_says_is_refused(tmp_path: Path) -> None:
    scores = np.random.default_rng(5).random(1000)
    content = parquet_bytes(
        pa.table({"score": scores}), compression="none", use_dictionary=False, write_page_checksum=True
    )
    assert take(tmp_path / "scores.parquet", content, Columns()).values.tolist() == scores.tolist()
    changed = content.replace(struct.pack("<d", scores[700]), struct.pack("<d", 0.25))
    assert "checksum" in refusal(tmp_path / "scores.parquet", changed, Columns())


def test_arrow_objects_are_validated() -> None:
    """The C interface carries no lengths, but offsets and text must make sense."""
    wild = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(struct.pack("<4i", 0, 9, 2, 3)), pa.py_buffer(b"abc")]
    )
    table = pa.table({"score": [0.1, 0.2, 0.3], "id": wild})
    with pytest.raises(GateError, match="holdout: must be a valid Arrow table, got: "):
        from_object(table, "holdout", Columns(id="id"), (0.0, 1.0))
    assert len(from_object(table, "holdout", Columns(), (0.0, 1.0))) == 3  # what is not read needs not be valid


# --- rows that a file holds and its metadata does not ---------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_cut_or_extended_stream_is_refused(tmp_path: Path, compression: str | None) -> None:
    first, second = table_of(100), table_of(150, 1)
    whole = arrow_bytes(first, "stream", compression)
    path = tmp_path / "scores.arrow"
    assert len(take(path, whole)) == 100
    assert "bytes behind the end of the stream" in refusal(path, whole + arrow_bytes(second, "stream", compression))
    assert "without its end" in refusal(path, whole[:-8])


def footer_of(content: bytes) -> tuple[int, list[int]]:
    """Find where the footer begins, and where its blocks are: 24 bytes each, an offset and two lengths."""
    (length,) = struct.unpack("<i", content[-10:-6])
    start = len(content) - 10 - length
    footer = layout._Metadata(content[start:-10])
    return start, [start + place for place in footer.items(footer.root, 3, 24)]


def test_a_footer_that_hides_or_repeats_a_batch_is_refused(tmp_path: Path) -> None:
    table = pa.table({"score": np.random.default_rng(0).random(300)})
    content = arrow_bytes(table, rows=100)
    _, blocks = footer_of(content)
    count = blocks[0] - 4
    hidden = content[:count] + struct.pack("<i", 2) + content[count + 4 :]
    assert pa.ipc.open_file(hidden).read_all().num_rows == 200
    first, third = content[blocks[0] : blocks[0] + 24], content[blocks[2] : blocks[2] + 24]
    again = content.replace(third, first)
    assert pa.ipc.open_file(again).read_all().num_rows == 300
    for lying in (hidden, again, content.replace(first, third)):
        assert "a footer that lists other" in refusal(tmp_path / "scores.arrow", lying, Columns())


@settings(deadline=None, max_examples=examples(20))
@given(
    rows=st.integers(100, 400),
    form=st.sampled_from(["file", "stream"]),
    shift=st.sampled_from([8, -8, 64, 512]),
    fewer=st.integers(1, 90),
)
def test_values_from_elsewhere_in_the_file_are_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: int, form: str, shift: int, fewer: int
) -> None:
    """One file has an offset into another column, another holds rows that its lengths leave out."""
    path = tmp_path_factory.mktemp("elsewhere") / "scores.arrow"
    rng = np.random.default_rng(rows)
    content = arrow_bytes(pa.table({"other": rng.random(rows), "score": rng.random(rows)}), form)
    place = content.index(struct.pack("<6q", 0, rows * 8, rows * 8, 0, rows * 8, rows * 8)) + 32
    for elsewhere in (rows * 8 + shift, 0):
        refusal(path, content[:place] + struct.pack("<q", elsewhere) + content[place + 8 :], Columns())
    if rows * 8 > -(-(rows - fewer) * 8 // 64) * 64:  # what Arrow itself would write of a slice with that many rows
        assert "bytes of values where" in refusal(path, replaced(content, rows, rows - fewer), Columns())


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
            assert scores.values.tolist() == part["score"].to_list()
            assert scores.ids.to_pylist() == part["id"].to_list()
            assert [scores.segment_names[i] for i in np.asarray(scores.segments)] == part["segment"].to_list()


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


# --- the child ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [20_000, 200_000])
def test_deep_json_is_refused(tmp_path: Path, depth: int) -> None:
    line = '{"score": 0.5, "deep": ' + "[" * depth + "]" * depth + "}\n"
    refusal(tmp_path / "scores.jsonl", line.encode(), Columns())


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".arrow", ".npy"])
def test_a_file_that_shrinks_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path, rows = tmp_path / f"scores{ending}", 200_000
    table = pa.table({"score": np.random.default_rng(0).random(rows)})
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

    def shrink(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            os.truncate(path, 5000)
            return function(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", shrink(pa.parquet.ParquetFile.iter_batches))
    monkeypatch.setattr(pa.ipc, "IpcReadOptions", shrink(pa.ipc.IpcReadOptions))
    monkeypatch.setattr(np.lib.format, "read_array", shrink(np.lib.format.read_array))
    monkeypatch.setattr(delimited, "_FIELDS", {})

    class Shrinking:
        def search(self, text: Any) -> None:
            os.truncate(path, 5000)
            bytes(text)

    monkeypatch.setattr(json_lines, "_NULL_LINE", Shrinking())
    if ending == ".jsonl":
        path.write_text(path.read_text() + '{"score": 0.5, "x": null}\n')
    if ending == ".csv":
        monkeypatch.setattr(delimited, "_FIELDS", {",": type("Match", (), {"match": Shrinking().search})})
        path.write_text(path.read_text() + '"0.5"\n')
    with pytest.raises(GateError, match=f"^{path}: must ") as caught:
        read([str(path)], Columns(), (0.0, 1.0))
    if ending in (".csv", ".jsonl"):
        assert str(caught.value) == (
            f"{path}: must stay as it is while it is read, got shorter; read a copy that nobody writes to"
        )


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT"), (signal.SIGKILL, "memory")]
)
def test_the_death_of_the_child_names_the_file_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said: str
) -> None:
    import gzip

    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))

    def die(path: formats.File, names: list[str], budget: object) -> None:
        assert os.path.dirname(path) == str(copies)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(delimited, "read", die)
    good = tmp_path / "first.parquet"
    good.write_bytes(parquet_bytes(table_of(50)))
    bad = tmp_path / "second.csv.gz"
    bad.write_bytes(gzip.compress(b"score\n0.5\n"))
    with pytest.raises(GateError, match=f"^{bad}: must .*{said}"):
        read([str(good), str(bad)], Columns(), (0.0, 1.0))
    assert [*copies.iterdir()] == []


def test_a_child_ends_with_the_run_that_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("score\n0.5\n")
    code = """
import os, time
from pathlib import Path
from gate.scores.formats import delimited
def wait(path, names, budget):
    Path("child").write_text(str(os.getpid()))
    Path("child").rename("ready")
    time.sleep(100)
delimited.read = wait
"""
    words = ("run", "--release", "v1", "--fit", "scores.csv", "--holdout", "scores.csv", "--dry-run")
    for number, expected in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
        (tmp_path / "ready").unlink(missing_ok=True)
        with (tmp_path / "log").open("w+b") as log:
            process: Any = commands.start(*words, cwd=tmp_path, stderr=log, before=code)
        while not (tmp_path / "ready").exists():
            assert not process.has_ended(), (tmp_path / "log").read_text()
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait() == expected
        said = (tmp_path / "log").read_text()
        taken = "gate: policy built-in default; fit scores.csv; holdout scores.csv"
        assert said.splitlines() == [taken, *([f"gate: stopped by {number.name}"] if expected > 0 else [])]
        child, until = int((tmp_path / "ready").read_text()), time.monotonic() + 60
        while os.path.exists(f"/proc/{child}") and "zombie" not in Path(f"/proc/{child}/status").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)


def test_what_a_child_raises_or_returns_comes_back() -> None:
    def fail(error: Exception) -> Any:
        raise error

    with pytest.raises(GateError, match=r"^a: must\nb: must$"):
        isolate(lambda: fail(GateError("a: must", "b: must")), LARGE)
    with pytest.raises(MemoryError):
        isolate(lambda: fail(MemoryError()), LARGE)
    with pytest.raises(ZeroDivisionError) as caught:
        isolate(lambda: 1 / 0, LARGE)
    assert "test_bytes.py" in caught.value.__notes__[0]

    class LocalError(Exception):
        pass

    with pytest.raises(RuntimeError, match="LocalError: no pickle"):
        isolate(lambda: fail(LocalError("no pickle")), LARGE)
    assert isolate(lambda: (os.getpid(), isolate(os.getpid, LARGE)), LARGE) != (os.getpid(), os.getpid())
    mixed = {"empty": np.empty(0), "text": pa.array(["a", None, "c"]).slice(1), "numbers": np.arange(5, dtype=np.int32)}
    found = isolate(lambda: mixed, LARGE)
    assert found["text"].equals(mixed["text"])
    assert found["numbers"].tolist() == [0, 1, 2, 3, 4]


def test_a_caller_that_ignores_its_children_reads_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert isolate(lambda: 42, LARGE) == 42
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_memory_beyond_the_budget_ends_the_child_alone(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        isolate(lambda: np.ones(1 << 30), LARGE)


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    tables = [table_of(1000 + i, i) for i in range(6)]
    for i, table in enumerate(tables):
        (tmp_path / f"{i}.parquet").write_bytes(parquet_bytes(table))
    found: dict[int, Scores] = {}

    def work(i: int) -> None:
        for _ in range(3):
            paths = [str(tmp_path / f"{j % 6}.parquet") for j in (i, i + 1)]
            found[i] = read(paths, Columns(segment="segment"), (0.0, 1.0))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        both = [*tables[i]["score"].to_pylist(), *tables[(i + 1) % 6]["score"].to_pylist()]
        assert found[i].values.tolist() == both
        assert not found[i].values.flags.writeable


# --- the budget ----------------------------------------------------------------------------------------------


def many_rows(path: Path, rows: int, score: float) -> None:
    """Write few bytes that hold many scores."""
    match path.suffix:
        case ".parquet":
            path.write_bytes(parquet_bytes(pa.table({"score": np.full(rows, score)})))
        case ".arrow":
            path.write_bytes(arrow_bytes(pa.table({"score": np.full(rows, score)}), compression="zstd"))
        case ".npz":
            np.savez_compressed(path, score=np.full(rows, score))
        case ".npy":
            np.save(path, np.full(rows, score))
        case ".csv":
            path.write_text("score\n" + f"{score}\n" * rows)
        case ".jsonl":
            path.write_text(f'{{"score": {score}}}\n' * rows)


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".npz", ".npy", ".csv", ".jsonl"])
@pytest.mark.parametrize("files", [1, 3])
def test_decoded_bytes_are_bounded(tmp_path: Path, ending: str, files: int) -> None:
    rows = int(np.random.default_rng([files, len(ending)]).integers(2_000, 20_000))
    paths = [tmp_path / f"{i}{ending}" for i in range(files)]
    for i, path in enumerate(paths):
        many_rows(path, rows, i / 8)
    names = [str(path) for path in paths]
    with bound(9 * rows * files):  # Parquet's readers add a bit for each row
        assert len(read(names, Columns(), (0.0, 1.0))) == rows * files
    most = 8 * rows * files - 1
    with bound(most), pytest.raises(GateError) as caught:
        read(names, Columns(), (0.0, 1.0))
    assert str(caught.value).startswith(f"{paths[-1]}: must decode to at most {most:,} bytes, got ")
    assert "give fewer rows or columns" in str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".npy", ".arrow"])
def test_what_is_packed_unpacks_to_no_more_than_may_be_decoded(tmp_path: Path, ending: str) -> None:
    """The limit is not the temporary directory's size; columns that nobody reads count too, for they are written."""
    rows, path = 5_000, tmp_path / f"scores{ending}"
    many_rows(path, rows, 0.5)
    content = path.read_bytes()
    filler = b"\0" * (LARGE // 16)  # 64 MB that gzip packs into 64 KB
    packed = tmp_path / f"packed{ending}.gz"
    packed.write_bytes(gzip.compress(content + filler, 1))
    with bound(1 << 20), pytest.raises(GateError) as caught:
        read([str(packed)], Columns(), (0.0, 1.0))
    assert str(caught.value).startswith(f"{packed}: must unpack to at most 1,048,576 bytes, got more; give fewer rows")
    packed.write_bytes(gzip.compress(content, 1))
    with bound(max(len(content), 9 * rows)):
        assert len(read([str(packed)], Columns(), (0.0, 1.0))) == rows


def test_text_is_counted_as_it_is_decoded(tmp_path: Path) -> None:
    """The text comes from a dictionary that names one long text twenty thousand times."""
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, dtype=np.int32)), pa.array(["x" * 100_000]))
    table = pa.table({"score": np.full(20_000, 0.5), "id": ids})
    for path, content in (
        (tmp_path / "scores.parquet", parquet_bytes(table, store_schema=False)),
        (tmp_path / "scores.arrow", arrow_bytes(table)),
    ):
        with bound(1 << 28):
            assert "; give fewer rows or" in refusal(path, content, Columns(id="id"))


def test_a_quarter_of_the_memory_is_the_bound(tmp_path: Path) -> None:
    """It is a quarter of what the machine has or this process may use, whichever is less."""
    code = "import resource\nfrom gate.scores.budget import ByteBudget, memory\nprint(memory(), ByteBudget().limit)\n"
    code += "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\nprint(memory(), ByteBudget().limit)"
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    (all_, quarter), limited = map(int, lines[0].split()), lines[1]
    assert quarter == all_ // 4
    assert all_ <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert limited == f"{min(all_, 3 << 30)} {min(all_, 3 << 30) // 4}"
