"""The same numbers are the same scores, whatever the format and wherever the file is."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet
import pytest
from drawing import examples
from gate.scores import Scores, read
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.policy import Columns

DOMAIN = (0.0, 1.0)
LONG = b"x" * 2_500_000  # more than a parser takes at once
ROWS = 400
VALUES = np.round(np.random.default_rng(3).beta(0.5, 8, ROWS), 6)
LABELS = (np.arange(ROWS) % 4 == 0).astype(np.int64)  # 1 is malicious
TENANTS = np.array([f"tenant {i % 7}" for i in range(ROWS)])
TABLE = pa.table({"id": np.arange(ROWS), "label": LABELS, "score": VALUES, "tenant": TENANTS})
COLUMNS = Columns(label="label", group="tenant", id="id")
BENIGN = VALUES[LABELS == 0]


def delimited(separator: str) -> bytes:
    sink = io.BytesIO()
    pa.csv.write_csv(TABLE, sink, pa.csv.WriteOptions(delimiter=separator))
    return sink.getvalue()


def arrow(stream: bool) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)
    return sink.getvalue()


def parquet() -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(TABLE, sink, row_group_size=100)
    return sink.getvalue()


def feather() -> bytes:
    sink = io.BytesIO()
    pa.feather.write_feather(TABLE, sink)
    return sink.getvalue()


def npz() -> bytes:
    sink = io.BytesIO()
    np.savez(sink, id=np.arange(ROWS), label=LABELS, score=VALUES, tenant=TENANTS)
    return sink.getvalue()


def jsonl() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()).encode()


FORMATS: dict[str, Callable[[], bytes]] = {
    "s.parquet": parquet,
    "s.csv": lambda: delimited(","),
    "s.tsv": lambda: delimited("\t"),
    "s.feather": feather,
    "file.arrow": lambda: arrow(stream=False),
    "stream.arrow": lambda: arrow(stream=True),
    "s.jsonl": jsonl,
    "s.ndjson": jsonl,
    "s.npz": npz,
}
PACKED = {f"{name}.gz": (lambda make=make: gzip.compress(make())) for name, make in FORMATS.items()}


def same(scores: Scores) -> None:
    """The same rows in any order: same digest of scores and of ids, and the same groups."""
    expected = Scores(BENIGN.copy())
    assert scores.sha256 == expected.sha256
    assert scores.rows_sha256 == REFERENCE.rows_sha256
    assert sorted(scores.group_sizes) == sorted(REFERENCE.group_sizes)


@pytest.fixture(scope="module", autouse=True)
def reference(tmp_path_factory: pytest.TempPathFactory) -> None:
    global REFERENCE
    path = tmp_path_factory.mktemp("reference") / "s.parquet"
    path.write_bytes(parquet())
    REFERENCE = read([str(path)], COLUMNS, DOMAIN)


REFERENCE: Scores


@pytest.mark.parametrize("name", [*FORMATS, *PACKED])
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes((FORMATS | PACKED)[name]())
    scores = read([str(path)], COLUMNS, DOMAIN)
    same(scores)
    assert np.array_equal(scores.values, BENIGN)
    assert [(s.path, s.rows, s.benign) for s in scores.sources] == [(str(path), ROWS, len(BENIGN))]


def test_a_directory_is_read_whole_without_markers(tmp_path: Path) -> None:
    half = ROWS // 2
    (tmp_path / "deep").mkdir()
    pa.parquet.write_table(TABLE.slice(0, half), tmp_path / "a.parquet")
    pa.feather.write_feather(TABLE.slice(half), str(tmp_path / "deep" / "b.feather"))
    for hidden in ("_SUCCESS", ".c.csv", "deep/.c.crc", "notes.md"):
        (tmp_path / hidden).write_text("not scores")
    scores = read([str(tmp_path)], COLUMNS, DOMAIN)
    same(scores)
    assert [(s.path, s.rows) for s in scores.sources] == [(str(tmp_path), ROWS)]


def test_the_keys_of_a_partitioned_directory_are_columns(tmp_path: Path) -> None:
    """As Hive, Spark and pyarrow write them: `label=0/tenant=tenant%201/...`, and the columns not in the files."""
    pa.parquet.write_to_dataset(TABLE, str(tmp_path / "data"), partition_cols=["label", "tenant"])
    same(read([str(tmp_path / "data")], COLUMNS, DOMAIN))


def test_patterns_and_several_arguments(tmp_path: Path) -> None:
    third = ROWS // 3
    for i, start in enumerate(range(0, ROWS, third)):
        pa.csv.write_csv(TABLE.slice(start, third), tmp_path / f"part-{i}.csv")
    same(read([str(tmp_path / "part-*.csv")], COLUMNS, DOMAIN))
    same(read([str(tmp_path / f"part-{i}.csv") for i in (2, 0, 1, 3)], COLUMNS, DOMAIN))
    same(read([str(tmp_path / "**" / "part-[0-9].csv")], COLUMNS, DOMAIN))


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "part[1].csv"
    path.write_bytes(delimited(","))
    same(read([str(path)], COLUMNS, DOMAIN))


@pytest.mark.parametrize("name", ["s.parquet", "s.csv.gz", ""])
def test_a_file_uri_is_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / (name or "s.jsonl")
    path.write_bytes((FORMATS | PACKED)[path.name]())
    same(read([(tmp_path / name).as_uri()], COLUMNS, DOMAIN))


class TestOtherFilesystems:
    """Stores that are no disk of this machine, stood in for by a filesystem below a directory."""

    @pytest.fixture(autouse=True)
    def filesystem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        filesystem = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
        filesystem.create_dir("bucket/day=1")
        for name, make in (FORMATS | PACKED).items():
            with filesystem.open_output_stream(f"bucket/day=1/{name}", compression=None) as sink:
                sink.write(make())

        class Uris:
            @staticmethod
            def from_uri(uri: str) -> tuple[object, str]:
                return filesystem, uri.removeprefix("s3://")

        monkeypatch.setattr(pa.fs, "FileSystem", Uris)
        return filesystem

    @pytest.mark.each_run(9)
    @pytest.mark.parametrize("name", [*FORMATS, *PACKED])
    def test_every_format(self, name: str) -> None:
        same(read([f"s3://bucket/day=1/{name}"], COLUMNS, DOMAIN))

    def test_a_directory(self, filesystem: Any) -> None:
        alike = [name for name in FORMATS | PACKED if "ndjson" in name]  # the same bytes as .jsonl
        for name in alike:
            filesystem.delete_file(f"bucket/day=1/{name}")
        scores = read(["s3://bucket"], Columns(group="day"), DOMAIN)
        assert len(scores) == ROWS * (len(FORMATS | PACKED) - len(alike))
        assert len(scores.group_sizes) == 1

    def test_what_is_not_there(self) -> None:
        with pytest.raises(GateError, match=r"^s3://bucket/none\.csv: must exist, got no such file; check the name$"):
            read(["s3://bucket/none.csv"], Columns(), DOMAIN)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("s.csv.gz", b"not gzip", "must be a readable .csv file, got: Not a gzipped file"),
        (
            "s.csv.gz",
            gzip.compress(delimited(","), mtime=0)[:-20],
            "must be a readable .csv file, got: Compressed file ended",
        ),
        ("s.csv.gz", gzip.compress(b"", mtime=0), "must hold scores, got an empty file"),
        ("s.tsv", b"score\tlabel\n0.5\t0\n0.5\t0\t1\n", "must have 2 columns in every row, got 3 in row 2"),
        ("s.tsv", b'score\n"0.5\n0.5\n', "must close every quoted field"),
        (
            "s.csv",
            b"score,x\n0.5,x\n0.6," + LONG,
            "must have rows of at most 1,048,576 bytes, got a longer one in row 2; ",
        ),
        (
            "s.csv",
            b'score,x\n0.5,"' + LONG + b'"\n0.6,x\n',
            "row 1; leave long texts out, or give the scores as .parquet",
        ),
        ("s.csv", b"score,x\n0.6," + LONG + b"\n0.5\n", "must have 2 columns in every row, got 1 in row 2"),
        ("s.csv", b"score,x\n0.6," + LONG[:200_000] + b"\n0.5\n", "must have 2 columns in every row, got 1 in row 2"),
        (
            "s.jsonl",
            b'{"score": 0.5}\n{"x": "' + LONG + b'"}\n',
            "must have lines of at most 1,048,576 bytes, got a longer",
        ),
        (
            "s.jsonl",
            b"[" + b'{"score": 0.5},' * 200_000,
            "line 1; write one JSON object to a line, and leave long texts",
        ),
        ("s.jsonl", b'{"score": 0.5}\n{"score": "abc"}\n', "must be a readable .jsonl file, got: JSON parse error"),
        ("s.jsonl", b'{"score": 0.5}\n{"scor": 0.5}\n', "must hold a score in every row, got none in row 2"),
        ("s.jsonl", b"[0.5, 0.25]\n", "must be a readable .jsonl file"),
        ("s.jsonl", b'{"value": 0.5}\n', "must have a column 'score', got 'value'"),
        ("s.feather", b"FEA1" * 9, "must be a readable .feather file"),
        ("s.arrow", arrow(stream=False)[:200], "must be a readable .arrow file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_refused_in_one_line(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(GateError) as caught:
        read([str(path)], Columns(), DOMAIN)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("none/*.csv", "must match at least one file, got none; check the pattern"),
        ("empty", "must hold score files"),
        ("nonsense://x/y.csv", "must be a file or directory that can be read"),
    ],
)
def test_places_without_scores_are_refused(
    argument: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GateError) as caught:
        read([argument], Columns(), DOMAIN)
    assert str(caught.value).startswith(f"{argument}: ")
    assert sentence in str(caught.value)


# --- names in text ------------------------------------------------------------------------------------------

LIKE_NUMBERS = st.sampled_from(
    ["1", "01", "1.0", "+1", "1e0", "true", "True", "false", "0", "-0", "NA", "null", " 1", "x"]
)


@settings(deadline=None, max_examples=examples(60))
@given(names=st.lists(LIKE_NUMBERS, min_size=2, max_size=12), quoted=st.booleans())
@example(names=["true", "1"], quoted=True)  # which Arrow takes for two ways to write one boolean
@example(names=["01", "1"], quoted=False)
def test_names_in_text_are_what_is_written(names: list[str], quoted: bool, tmp_path_factory: Any) -> None:
    """Rows belong together where a group or segment is written alike, and an id is another where it is not."""
    path = tmp_path_factory.mktemp("text") / "a.csv"
    shown = [f'"{name}"' if quoted else name for name in names]
    path.write_text("".join(["score,name\n", *(f"0.{i + 1:02},{name}\n" for i, name in enumerate(shown))]))
    found = read([str(path)], Columns(group="name", segment="name"), DOMAIN)
    assert found.groups is not None
    assert [found.group_names[int(number)].as_py() for number in found.groups] == names
    assert found.segments is not None
    assert [found.segment_names[number] for number in found.segments] == names
    if len({*names}) == len(names):
        assert len(read([str(path)], Columns(id="name"), DOMAIN).ids) == len(names)


@pytest.mark.parametrize("columns", [Columns(id="name"), Columns(group="name"), Columns(segment="name")])
@pytest.mark.parametrize("empty", ["", '""'])
def test_an_empty_name_in_text_is_none(columns: Columns, empty: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"score,name\n0.1,1\n0.2,{empty}\n0.3,2\n")
    with pytest.raises(GateError, match="column 'name' must name every row, got none in row 2"):
        read([str(tmp_path / "a.csv")], columns, DOMAIN)
