"""What a file or an object holds is what its table gives: the same values in the same order, or one line of why not.

The oracle is plain Python: what was written is known, and csv, json and NumPy read it again.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import math
import os
import struct
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.rows import formats
from gate.rows.engine import Duck, using
from gate.rows.formats import endings, open_object, open_table
from gate.rows.table import File, Table, explain, kind_of

NAN = float("nan")


@pytest.fixture(scope="module")
def engine() -> Iterator[Duck]:
    with using(memory=1 << 30) as one:
        yield one


def opened(engine: Duck, path: Path, *wanted: str, keys: dict[str, str] | None = None) -> Table:
    return open_table(engine, File(path.name, str(path), keys or {}), wanted)


def column(engine: Duck, table: Table, name: str) -> list[Any]:
    """The values of a column in the order of the rows, as the engine's own text says them; None where missing."""
    found = next(each for each in table.columns if each.name == name)
    sql = f"({found.sql} ->> '$')" if found.kind == "json" else f"CAST({found.sql} AS VARCHAR)"
    answer = engine.ask(f"SELECT {sql} AS v, nr FROM {table.rows} ORDER BY nr")
    assert answer["nr"].tolist() == list(range(len(answer["nr"])))
    return list(np.ma.asarray(answer["v"]).tolist())


def floats(engine: Duck, table: Table, name: str) -> list[float | None]:
    return [None if text is None else float(text) for text in column(engine, table, name)]


def refusal(read: Any) -> str:
    with pytest.raises(GateError) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


def same(some: Sequence[float | None], others: Sequence[float | None]) -> bool:
    """Equal to the last bit, -0.0 and NaN too."""
    return list(map(_bits, some)) == list(map(_bits, others))


def _bits(value: float | None) -> Any:
    if value is None or math.isnan(value):
        return str(value)
    return struct.pack("<d", value)


NUMBERS = st.one_of(
    st.floats(0, 1),
    st.floats(allow_nan=False),
    st.sampled_from(
        [0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.inf, -math.inf, 0.1 + 0.2]
    ),
)
MAYBE = st.none() | st.just(NAN) | NUMBERS


# --- every format against the same rows ---------------------------------------------------------------------


def write(path: Path, scores: Sequence[float | None], names: Sequence[str | None]) -> None:
    """Scores and names, both perhaps missing, in the format that the path ends in."""
    table = pa.table({"name": pa.array(names, pa.string()), "score": pa.array(scores, pa.float64())})
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(table, path, row_group_size=3)
        case ".feather":
            pa.feather.write_feather(table, str(path))
        case ".arrow":
            with pa.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        case ".jsonl":
            rows = zip(scores, names, strict=True)
            lines = (json.dumps({"name": name, "score": score}, ensure_ascii=False) for score, name in rows)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        case _:
            with path.open("w", newline="", encoding="utf-8") as opened_:
                writer = csv.writer(opened_, delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writerow(["name", "score"])
                rows = zip(scores, names, strict=True)
                writer.writerows([name, None if score is None else repr(score)] for score, name in rows)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=6)


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".jsonl", ".csv", ".tsv"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(st.tuples(MAYBE, TEXTS | st.none()), max_size=12))
@example(rows=[(0.5, 'a"b\n,;\tc'), (None, None), (NAN, "null"), (-0.0, "007"), (5e-324, "ß\u2028")])
def test_what_was_written_is_what_is_read(
    suffix: str, rows: list[tuple[float | None, str | None]], engine: Duck, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("drawn") / f"a{suffix}"
    rows = rows or [(0.5, None)] * (suffix == ".jsonl")  # without rows such a file is empty, which is refused
    scores, names = [score for score, _ in rows], [name for _, name in rows]
    write(path, scores, names)
    table = opened(engine, path, "score", "name")
    assert column(engine, table, "name") == names
    assert same(floats(engine, table, "score"), scores)
    assert table.count == len(rows)
    assert {each.name for each in table.columns} >= {"name", "score"}
    packed = path.with_suffix(f"{suffix}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    table = opened(engine, packed, "score")
    assert same(floats(engine, table, "score"), scores)


DTYPES = ["?", "i1", "u1", ">i2", "<u4", ">i8", "u8", "f2", ">f2", "f4", ">f4", "f8", ">f8"]


@settings(max_examples=examples(120), deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    values=st.lists(st.integers(0, 1) | st.just(NAN), max_size=8),
    step=st.sampled_from([1, -1, 2]),
    mask=st.integers(0, 255),
)
def test_arrays_are_read_in_any_layout(
    dtype: str, values: list[float], step: int, mask: int, engine: Duck, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = [each for each in values if not math.isnan(each) or "f" in dtype]
    array = np.array(kept, dtype=dtype)[::step]
    expected = [float(each) for each in array.astype("f8")]
    hidden = [bool(mask >> i & 1) for i in range(len(array))]
    folder = tmp_path_factory.mktemp("arrays")
    np.save(folder / "a.npy", array)
    np.save(folder / "b.npy", array.reshape(-1, 1))
    np.savez(folder / "c.npz", score=array, other=np.zeros((2, 2)), label=np.array(["a"] * len(array)))
    masked = np.ma.array(array, mask=hidden)
    tables = [opened(engine, folder / name, "score") for name in ("a.npy", "b.npy", "c.npz")]
    tables += [open_object(engine, array, "it", ["score"]), open_object(engine, {"score": array}, "it", ["score"])]
    for table in tables:
        if dtype == "?":
            assert column(engine, table, "score") == [str(bool(each)).lower() for each in expected]
        else:
            assert same(floats(engine, table, "score"), expected)
        assert table.count == len(expected)
    for data in (masked, {"score": masked}):
        found = column(engine, open_object(engine, data, "it", ["score"]), "score")
        assert [each is None for each in found] == hidden


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("TINYINT", "integer"),
        ("UINTEGER", "integer"),
        ("UBIGINT", "integer"),
        ("HUGEINT", "integer"),
        ("FLOAT", "float"),
        ("DECIMAL(9,4)", "decimal"),
        ("ENUM('a', 'b')", "text"),
        ("TIMESTAMP WITH TIME ZONE", "time"),
        ("TIMESTAMP_NS", "time"),
        ("TIME", "other"),
        ("INTEGER[]", "other"),
        ("STRUCT(a INTEGER)", "other"),
        ("MAP(VARCHAR, DOUBLE)", "other"),
        ('"NULL"', "null"),
        ("BLOB", "other"),
    ],
)
def test_types_are_kinds(type_: str, kind: str) -> None:
    assert kind_of(type_) == kind


def test_types_of_parquet(engine: Duck, tmp_path: Path) -> None:
    table = pa.table(
        {
            "score": pa.array([Decimal("0.1000"), Decimal("0.2500")], pa.decimal128(9, 4)),
            "wide": pa.array([Decimal(1), None], pa.decimal256(50, 3)),
            "half": pa.array([0.5, None], pa.float16()),
            "coded": pa.array(["a", "b"]).dictionary_encode(),
            "bytes": [b"x", b"y"],
            "list": [[1], []],
            "time": pa.array([0, 1], pa.timestamp("ns", "UTC")),
            "none": pa.nulls(2),
        }
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    found = opened(engine, tmp_path / "a.parquet", "score")
    kinds = {each.name: each.kind for each in found.columns}
    assert kinds == {
        "score": "decimal",
        "wide": "float",
        "half": "float",
        "coded": "text",
        "bytes": "other",
        "list": "other",
        "time": "time",
        "none": "null",
    }
    assert column(engine, found, "score") == ["0.1000", "0.2500"]
    said = refusal(lambda: opened(engine, tmp_path / "a.parquet", "wide"))
    assert said == "a.parquet: column 'wide' must hold decimals of at most 38 digits, got 50; write them as float64"


# --- what DuckDB does in silence ----------------------------------------------------------------------------


class TestSilentFailures:
    """One test for each line of what DuckDB was seen to do without a word."""

    def test_nan_in_parquet_is_found(self, engine: Duck, tmp_path: Path) -> None:
        """Statistics leave NaN out, and the optimizer believes them."""
        pa.parquet.write_table(pa.table({"score": [0.1, NAN, 0.2] * 1000}), tmp_path / "a.parquet")
        table = opened(engine, tmp_path / "a.parquet", "score")
        answer = engine.ask(f"SELECT count(*) FILTER (WHERE isnan(c0)) AS n, count_if(c0 > 0.9) AS m FROM {table.rows}")
        assert (answer["n"][0], answer["m"][0]) == (1000, 1000)

    @pytest.mark.parametrize("suffix", ["csv", "jsonl"])
    def test_types_do_not_follow_from_the_first_rows(self, suffix: str, engine: Duck, tmp_path: Path) -> None:
        written = ["1"] * 50_000 + ["0.5"]
        line = "{}\n" if suffix == "csv" else '{{"score": {}}}\n'
        text = "score\n" * (suffix == "csv") + "".join(map(line.format, written))
        (tmp_path / f"a.{suffix}").write_text(text)
        assert column(engine, opened(engine, tmp_path / f"a.{suffix}", "score"), "score") == written

    def test_columns_go_by_their_names_in_every_file(self, engine: Duck, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("score,label\n0.25,1\n")
        (tmp_path / "b.csv").write_text("label,score\n1,0.25\n")
        pa.parquet.write_table(pa.table({"score": [1], "label": [0]}), tmp_path / "a.parquet")
        pa.parquet.write_table(pa.table({"label": [0], "score": [0.6]}), tmp_path / "b.parquet")
        found = [column(engine, opened(engine, tmp_path / f"{n}.csv", "score", "label"), "score") for n in "ab"]
        assert found == [["0.25"], ["0.25"]]
        found = [column(engine, opened(engine, tmp_path / f"{n}.parquet", "score"), "score") for n in "ab"]
        assert found == [["1"], ["0.6"]]

    def test_names_that_differ_in_case_alone(self, engine: Duck, tmp_path: Path) -> None:
        table = pa.table({"Score": [0.25], "score": [0.5], "SCORE": [0.75], "a.b": ["x"], 'q"q': ["y"]})
        pa.parquet.write_table(table, tmp_path / "a.parquet")
        pa.feather.write_feather(table, str(tmp_path / "a.feather"))
        pa.csv.write_csv(table, tmp_path / "a.csv")
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        for name in ("a.parquet", "a.feather", "a.csv", "a.jsonl"):
            found = opened(engine, tmp_path / name, "score", "Score", "a.b", 'q"q')
            values = [column(engine, found, each)[0] for each in ("Score", "score", "SCORE", "a.b", 'q"q')]
            assert values == ["0.25", "0.5", "0.75", "x", "y"]
        for data in (pl.DataFrame({"Score": [0.25], "score": [0.5]}), {"Score": [0.25], "score": [0.5]}):
            assert column(engine, open_object(engine, data, "it", ["score"]), "score") == ["0.5"]

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    @pytest.mark.parametrize("last", [True, False])
    def test_line_ends_and_marks(self, end: str, mark: str, last: bool, engine: Duck, tmp_path: Path) -> None:
        text = mark + end.join(["score,label", "0.1,a", "0.2,b"]) + end * last
        (tmp_path / "a.csv").write_bytes(text.encode())
        table = opened(engine, tmp_path / "a.csv", "score", "label")
        assert (column(engine, table, "score"), column(engine, table, "label")) == (["0.1", "0.2"], ["a", "b"])

    @pytest.mark.parametrize(
        "row", ['1, "2"', '"1" ,2', '"1", "2"', '1,  "2"', '1,"2" ', ' "1",2', '"1","a, ""b"" ,"', '1,"a\n ""b"" \n"']
    )
    @pytest.mark.parametrize("long", [False, True])
    def test_blanks_around_quotes_are_not_dropped(self, row: str, long: bool, engine: Duck, tmp_path: Path) -> None:
        """Python's csv keeps them, DuckDB does not: where the two differ, the file is refused."""
        text = "score,note\n" + "0.1,abcdef\n" * (250_000 * long) + f"{row}\n"
        (tmp_path / "a.csv").write_text(text)
        expected = list(csv.reader(io.StringIO(text)))[-1]
        if "a" in row or '  "' in row:
            table = opened(engine, tmp_path / "a.csv", "score", "note")
            assert [column(engine, table, each)[-1] for each in ("score", "note")] == expected
        else:
            said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))
            assert "must close every quoted field" in said or "must divide into rows and fields in one way" in said

    @pytest.mark.parametrize("place", [0, 1, 70_000, 139_999])
    def test_an_open_quote_hides_no_rows(self, place: int, engine: Duck, tmp_path: Path) -> None:
        lines = ['"0.1",abcdefgh'] * 140_000
        lines[place] = '0.1,"abcdefgh'
        (tmp_path / "a.csv").write_text("score,note\n" + "\n".join(lines) + "\n")
        said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))
        assert "must close every quoted field" in said
        assert f"row {place + 1:,};" in said or place < 139_999  # a later quote may close it where no field ends

    def test_line_ends_in_quotes_make_no_rows(self, engine: Duck, tmp_path: Path) -> None:
        """Over the 32 MB that DuckDB takes at a time."""
        n = 500_000
        (tmp_path / "a.csv").write_text("score,note\n" + ('0.1,"' + "x" * 60 + '\n0.9,def"\n') * n)
        table = opened(engine, tmp_path / "a.csv", "score")
        answer = engine.ask(f"SELECT count(*) AS n, count(DISTINCT c0) AS m, max(c0) AS top FROM {table.rows}")
        assert (answer["n"][0], answer["m"][0], answer["top"][0]) == (n, 1, "0.1")

    def test_quoted_text_beyond_memory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("score,note\n" + '0.1,"abcdef"\n' * 100_000)
        with using(memory=2_000_000) as small:
            said = refusal(lambda: opened(small, tmp_path / "a.csv", "score"))
        assert said.startswith(
            "a.csv: must fit twice into 2,000,000 bytes of memory, since it has quotes, got 1,300,011 "
        )

    def test_rows_are_numbered_as_in_the_file(self, engine: Duck, tmp_path: Path) -> None:
        """In text that threads read side by side, too."""
        n = 3_000_000
        (tmp_path / "a.csv").write_text("score,note\n" + "".join(f"{i},abcdefgh\n" for i in range(n)))
        table = opened(engine, tmp_path / "a.csv", "score")
        answer = engine.ask(f"SELECT count(*) AS n, count_if(nr <> CAST(c0 AS BIGINT)) AS m FROM {table.rows}")
        assert (answer["n"][0], answer["m"][0], table.count) == (n, 0, n)

    @pytest.mark.parametrize("cut", range(-8, 0))
    def test_gzip_with_a_wrong_end(self, cut: int, engine: Duck, tmp_path: Path) -> None:
        whole = bytearray(gzip.compress(b"score\n0.1\n0.2\n"))
        whole[cut] ^= 1
        (tmp_path / "a.csv.gz").write_bytes(whole)
        assert "must be a readable .csv file, got: " in refusal(lambda: opened(engine, tmp_path / "a.csv.gz", "score"))

    @pytest.mark.parametrize("name", ["[x].csv", "*.csv", "a?.csv", "{a,b}.csv"])
    def test_names_like_patterns(self, name: str, engine: Duck, tmp_path: Path) -> None:
        for other in ("x.csv", "ab.csv", "a.csv"):
            (tmp_path / other).write_text("score\n0.9\n")
        (tmp_path / name).write_text("score\n0.1\n")
        assert column(engine, opened(engine, tmp_path / name, "score"), "score") == ["0.1"]
        pa.parquet.write_table(pa.table({"score": [0.3]}), tmp_path / "x.parquet")
        path = (tmp_path / name).with_suffix(".parquet")
        pa.parquet.write_table(pa.table({"score": [0.2]}), path)
        assert column(engine, opened(engine, path, "score"), "score") == ["0.2"]

    @pytest.mark.parametrize("suffix", ["parquet", "npy", "csv", "jsonl"])
    def test_names_that_are_no_text(self, suffix: str, engine: Duck, tmp_path: Path) -> None:
        pa.parquet.write_table(pa.table({"score": [0.5]}), tmp_path / "a.parquet")
        np.save(tmp_path / "a.npy", [0.5])
        (tmp_path / "a.csv").write_text("score\n0.5\n")
        (tmp_path / "a.jsonl").write_text('{"score": 0.5}\n')
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff." + suffix.encode()))
        (tmp_path / f"a.{suffix}").rename(path)
        assert column(engine, open_table(engine, File("odd." + suffix, str(path)), ["score"]), "score") == ["0.5"]

    def test_a_folder_named_like_a_key_adds_no_column(self, engine: Duck, tmp_path: Path) -> None:
        (tmp_path / "score=7").mkdir()
        pa.parquet.write_table(pa.table({"score": [0.5]}), tmp_path / "score=7" / "a.parquet")
        table = opened(engine, tmp_path / "score=7" / "a.parquet", "score")
        assert (column(engine, table, "score"), len(table.columns)) == (["0.5"], 1)

    @pytest.mark.parametrize(
        "text", ["score,x\n0.1,1,\n", "score,x\n0.1,1\n0.2,2,\n", 'score,x\n"0.1",1,\n0.2,"2"\n', "score\n0.1,\n"]
    )
    def test_a_field_too_many_at_the_end(self, text: str, engine: Duck, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(text)
        said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))
        assert " in every row, got " in said

    def test_a_stream_that_can_be_read_once(self, engine: Duck) -> None:
        reader = pa.table({"score": [0.1, NAN, None]}).to_reader()
        table = open_object(engine, SimpleNamespace(__arrow_c_stream__=reader.__arrow_c_stream__), "it", ["score"])
        for _ in range(3):
            assert same(floats(engine, table, "score"), [0.1, NAN, None])

    @pytest.mark.parametrize("odd", ["z", 0.5, [1], True, None, Decimal("0.1")])
    def test_an_object_of_another_kind_far_down(self, odd: Any, engine: Duck) -> None:
        """DuckDB looks at some objects of a column and takes the others for the same."""
        data = np.array([1] * 5000 + [odd], dtype=object)
        table = open_object(engine, {"score": np.zeros(5001), "x": data}, "it", ["score"])
        kinds = {each.name: each.kind for each in table.columns}
        assert kinds["x"] == {float: "float", type(None): "integer"}.get(type(odd), "other")

    def test_a_column_with_the_engines_own_name_for_row_numbers(self, engine: Duck, tmp_path: Path) -> None:
        table = pa.table({"file_row_number": [7, 8], "nr": [5, 6], "score": [0.5, 0.25], "c0": ["x", "y"]})
        pa.parquet.write_table(table, tmp_path / "a.parquet")
        pa.csv.write_csv(table, tmp_path / "a.csv")
        for name in ("a.parquet", "a.csv"):
            found = opened(engine, tmp_path / name, "score", "nr")
            values = [column(engine, found, each) for each in ("score", "nr", "file_row_number", "c0")]
            assert values == [["0.5", "0.25"], ["5", "6"], ["7", "8"], ["x", "y"]]


# --- text ---------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200), deadline=None)
@given(
    separator=st.sampled_from(",;\t"),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    names=st.permutations(["score", "label", "a b", "note"]),
    rows=st.lists(st.lists(st.text('a" ,;\t\n0é', max_size=5), min_size=4, max_size=4), max_size=6),
)
def test_text_is_what_pythons_csv_reads(
    separator: str,
    quoting: Any,
    end: str,
    mark: bool,
    names: list[str],
    rows: list[list[str]],
    engine: Duck,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([names, *rows])
    path = tmp_path_factory.mktemp("text") / "a.csv"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + sink.getvalue().encode())
    table = opened(engine, path, "score", "label", "note")
    for i, name in enumerate(names):
        assert column(engine, table, name) == [row[i] or None for row in rows]
    assert table.is_text


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("score\n 0.1\n0.2 \n", [" 0.1", "0.2 "]),
        ('"score"\n"0.1"\n"0.2"\n', ["0.1", "0.2"]),
        ('score,note\n0.1,"a, b"\n0.2,"c ""d"""\n', ["0.1", "0.2"]),
        ('score,"no\nte"\n0.1,x\n0.2,y\n', ["0.1", "0.2"]),
        ('score,note\n0.1,5" disk\n0.2,6" disk\n', ["0.1", "0.2"]),
        ("score,note\n\n0.1,x\n\n\n0.2,y\n\n", ["0.1", "0.2"]),
        ("score,note\n0.1," + "x" * 200_000 + "\n0.2,y\n", ["0.1", "0.2"]),
        ("score\n0.1\n\n0.2\n", ["0.1", None, "0.2"]),
        ('score\n0.1\n""\n0.2\n', ["0.1", None, "0.2"]),
        ("score\r\n0.1\r\n\r\n", ["0.1", None]),
        ("score;a,b\n0.1;x,y\n", ["0.1"]),
        ("score,x\nNA,1\nNULL,2\n#,3\n", ["NA", "NULL", "#"]),
        ("score,x\n", []),
    ],
)
def test_usual_forms_of_text(text: str, scores: list[str | None], engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert column(engine, opened(engine, tmp_path / "a.csv", "score"), "score") == scores


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("score,x\n0.1,1\n0.2\n", "must have 2 columns in every row, got 1 in row 2; "),
        ("score,x\n0.1,1\n\n0.2,2,3\n", "must have 2 columns in every row, got 3 in row 2; "),
        ("score\n0.1\n0,2\n", "must have 1 column in every row, got 2 in row 2; "),
        ("score,x\n" + "0.1,1\n" * 300_000 + "0,5,1\n", "must have 2 columns in every row, got 3 in row 300,001; "),
        (
            "score,x\n0.1,1\n" + "y" * 3_000_000 + ",\n",
            "must have rows of at most 2,000,000 bytes, got a longer one in row 2",
        ),
        ('score,note\n0.1,"abc\n0.2,x\n0.3,y\n', "must close every quoted field before a separator"),
        ('score,note\n0.1,"a"b\n0.2,x\n', "got an open one in row 1; "),
        ('score\n0.1\n\n"0.2\n', "got an open one in row 3; "),
        ("0.1\n0.2\n", "must have a column 'score', got '0.1'; add a header line that names the columns"),
        ("0.1,1\n0.2,0\n", "must have a column 'score', got '0.1', '1'; add a header line that names the columns"),
        ("Score,x\n0.1,1\n", "got 'Score', 'x'; did you mean 'Score'? name those that it has in the policy's `data:`"),
        ("\n\nscore\n0.1\n", "got no column at all; name those"),
        ("score,score\n0.1,0.2\n", "must have one column 'score', got 2 of that name; rename or remove one"),
        ("score,x\n0.1,1\r0.2,1\n", "must be a readable .csv file, got: "),
    ],
)
def test_text_that_is_refused(text: str, found: str, engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert found in refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_text_in_another_encoding(encoding: str, engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("score,größe\n0.1,1\n".encode(encoding))
    said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))
    assert said == "a.csv: must be UTF-8 text, got other bytes in the header; save it as UTF-8"
    (tmp_path / "a.csv").write_bytes("score,label\n0.1,gut\n0.2,böse\n".encode("latin-1"))
    said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score"))
    assert said.startswith("a.csv: must be UTF-8 text, got other bytes in row 2") or "row" in said


def test_all_missing_columns_are_named_at_once(engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("scor,labl\n0.1,1\n")
    said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score", "label"))
    assert said.startswith(
        "a.csv: must have columns 'score' and 'label', got 'scor', 'labl'; did you mean 'scor' or 'labl'? "
    )


def test_numbers_on_stdin(engine: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, found in ((b"0.1\n0.2", ["0.1", "0.2"]), (b"", []), (b"0.1\n\nx\n", ["0.1", None, "x"])):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        table = open_table(engine, File("stdin.csv", "-"), ["p"])
        assert column(engine, table, "p") == found
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"0.1,1\n")))
    assert "must have 1 column in every row, got 2" in refusal(lambda: open_table(engine, File("s.csv", "-"), ["p"]))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"0.1\n")))
    assert "must have a column 'label', got numbers without names" in refusal(
        lambda: open_table(engine, File("s.csv", "-"), ["p", "label"])
    )


# --- JSON lines ---------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["score", "a.b", "a", "b", "id", 'x"y', "ü", "", "0", "a/b", "~"])
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2), max_leaves=6
)


def at(row: Any, path: Sequence[str]) -> Any:
    for part in path:
        row = row.get(part) if isinstance(row, dict) else None
    return row


@settings(max_examples=examples(200), deadline=None)
@given(rows=st.lists(st.dictionaries(KEYS, VALUES, max_size=5), min_size=1, max_size=5), name=KEYS, other=KEYS)
def test_fields_of_json(
    rows: list[dict[str, Any]], name: str, other: str, engine: Duck, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dotted = f"{name}.{other}"
    exact = any(dotted in row for row in rows)
    ways = {name: [name], dotted: [dotted] if exact else dotted.split(".")}
    for wanted, way in ways.items():
        if wanted == "a.b" and not any("a.b" in row for row in rows):
            way = ["a", "b"]
        holders = [at(row, way[:-1]) for row in rows]
        if any(isinstance(each, list) for each in holders):
            continue
        if not any(isinstance(each, dict) and way[-1] in each for each in holders):
            assert "must have a column" in refusal(lambda wanted=wanted: opened(engine, path, wanted))
            continue
        table = opened(engine, path, wanted)
        found = column(engine, table, wanted)
        for got, expected in zip(found, [at(row, way) for row in rows], strict=True):
            if isinstance(expected, str | None):
                assert got == expected
            else:
                assert json.loads(got) == expected


def test_a_key_with_a_dot_wins(engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"r": {"s": 1}}\n{"r.s": 2}\n')
    assert column(engine, opened(engine, tmp_path / "a.jsonl", "r.s"), "r.s") == [None, "2"]
    (tmp_path / "a.jsonl").write_text('{"r": {"s": 1}}\n{"q": {"t": {"u": 3}}}\n{}\n')
    table = opened(engine, tmp_path / "a.jsonl", "r.s", "q.t.u")
    assert [column(engine, table, each) for each in ("r.s", "q.t.u")] == [["1", None, None], [None, "3", None]]


def test_lists_of_labels_and_scores(engine: Duck, tmp_path: Path) -> None:
    pair = [{"label": "OK", "score": 0.75}, {"label": "INJECTION", "score": 0.25}]
    rows = [{"result": pair, "id": 1}, {"result": pair[::-1], "id": 2}, {"result": pair[:1], "id": 3}, {"id": 4}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = opened(engine, tmp_path / "a.jsonl", "result.INJECTION", "id")
    assert column(engine, table, "result.INJECTION") == ["0.25", "0.25", None, None]
    assert column(engine, table, "result.OK") == ["0.75", "0.75", "0.75", None]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (pair, pair[::-1], [])))
    table = opened(engine, tmp_path / "b.jsonl", "INJECTION")
    assert column(engine, table, "INJECTION") == ["0.25", "0.25", None]
    assert {each.name for each in table.columns} == {"INJECTION", "OK"}
    (tmp_path / "c.jsonl").write_text(json.dumps({"result": pair[1]}) + "\n")
    assert column(engine, opened(engine, tmp_path / "c.jsonl", "result.score"), "result.score") == ["0.25"]
    assert "must have a column 'MAYBE', got 'OK', 'INJECTION'" in refusal(
        lambda: opened(engine, tmp_path / "b.jsonl", "MAYBE")
    )
    (tmp_path / "d.jsonl").write_text(json.dumps([*pair, pair[0]]) + "\n")
    assert "must have one value for each name" in refusal(lambda: opened(engine, tmp_path / "d.jsonl", "OK"))


def test_numbers_of_json_keep_their_digits(engine: Duck, tmp_path: Path) -> None:
    written = ["9007199254740993", "0.30000000000000004", "123456789012345678901234567890", "-0.0", "1e-320", "5"]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"score": {each}}}\n' for each in written))
    found = column(engine, opened(engine, tmp_path / "a.jsonl", "score"), "score")
    assert [json.loads(each) for each in found] == [json.loads(each) for each in written]
    assert found[2] == written[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("null", "got null in line 1; "),
        ('{"score": 0.1}\r\n null\n', "got null in line 2; "),
        ('{"score": 0.1}\n\n5\n', "got 5 in line 3; "),
        ('{"score": 0.1}\n[1, 2]\n', "got [1, 2] in line 2; "),
        ('[{"score": 1}]\n', "in line 1; "),
        ('{"score": 0.1}{"score": 0.2}\n', "got Extra data in line 1; "),
        ('{"score":\n0.1}\n', "in line 1; "),
        ('{"score": 0.1}\n{"score"', "in line 2; "),
        ('\ufeff{"score": 0.1}\n', "got a byte-order mark in line 1; "),
        ('{"score": 0.1, "score": 0.2}\n', "got 'score' twice in line 1; "),
        (b'{"score": 0.1, "x": "\xff"}\n', "got bytes that are no UTF-8 in line 1; "),
        ("{" * 100_000, "in line 1; "),
    ],
)
def test_lines_that_are_refused(text: str | bytes, found: str, engine: Duck, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    said = refusal(lambda: opened(engine, tmp_path / "a.jsonl", "score"))
    assert said.startswith("a.jsonl: must have one JSON object to a line, got ")
    assert found in said


def test_many_keys_cost_little(engine: Duck, tmp_path: Path) -> None:
    row = json.dumps({f"key{i}": i / 8000 for i in range(8000)})
    (tmp_path / "a.jsonl").write_text(f"{row}\n" * 300)
    start = time.process_time()
    table = opened(engine, tmp_path / "a.jsonl", "key7")
    assert time.process_time() - start < 5  # 1.1 on two cores that do nothing else; 44 where keys become columns
    assert len(table.columns) == 8000


# --- packed, broken and odd files ---------------------------------------------------------------------------


def test_few_bytes_that_unpack_to_many(engine: Duck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "UNPACKED", 1 << 22)
    packed = gzip.compress(bytes(1 << 26), 9)
    (tmp_path / "a.csv.gz").write_bytes(packed)
    said = refusal(lambda: opened(engine, tmp_path / "a.csv.gz", "score"))
    assert said.startswith(
        f"a.csv.gz: must unpack to at most {max(1 << 22, 30 * len(packed)):,} bytes (30 times its size,"
    )
    assert "unpack it first if it is sound" in said


def test_copies_are_removed_where_their_rows_are_kept(engine: Duck, tmp_path: Path) -> None:
    for suffix in (".csv", ".npy", ".parquet"):
        path = tmp_path / f"a{suffix}.gz"
        path.write_bytes(gzip.compress(content(tmp_path / f"a{suffix}")))
        before = {*os.listdir(engine.folder)}
        table = opened(engine, path, "score")
        assert len({*os.listdir(engine.folder)} - before) == (suffix == ".parquet")
        assert floats(engine, table, "score") == WHOLE


def test_a_folder_without_room(engine: Duck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"score\n0.1\n"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    said = refusal(lambda: opened(engine, tmp_path / "a.csv.gz", "score"))
    assert "must fit into the directory for temporary files" in said
    assert said.endswith("name one with more room with --scratch")


WHOLE = [0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".npy", ".npz", ".csv.gz"])
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_truncated_files_are_refused(
    suffix: str, data: st.DataObject, engine: Duck, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / f"a{suffix}"
    whole = content(path)
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert refusal(lambda: opened(engine, path, "score")).startswith(f"a{suffix}: ")


def content(path: Path) -> bytes:
    if path.suffix == ".npy":
        np.save(path, WHOLE)
    elif path.name.endswith(".npz"):
        np.savez_compressed(path, score=WHOLE)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"score\n0.5\n0.25\n0.125\n0.0625\n"))
    else:
        write(path, WHOLE, ["a", "b", "c", "d"])
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".npy", ".npz", ".csv", ".jsonl", ".csv.gz"])
@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_damaged_files_are_read_or_refused_in_one_line(
    suffix: str, data: st.DataObject, engine: Duck, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / f"a{suffix}"
    whole = bytearray(content(path))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    file = File(path.name, str(path))
    said = ""
    try:
        table = open_table(engine, file, ["score"])
        with explain(file):
            column(engine, table, "score")
    except GateError as error:
        said = str(error)
    assert not said or said.startswith(f"a{suffix}: ")
    assert said.isprintable()


@pytest.mark.parametrize("suffix", [ending for ending in endings() if ending != ".tsv"])
@pytest.mark.parametrize("text", [b"", b"not what it is called\n", b"PAR1", b"\x93NUMPY\x01\x00", bytes(100)])
def test_files_of_another_kind(suffix: str, text: bytes, engine: Duck, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text)
    said = refusal(lambda: opened(engine, path, "score"))
    if not text:
        assert said == f"a{suffix}: must hold scores, got an empty file; write it again"
    assert "tmp" not in said


def test_files_that_are_not_there(engine: Duck, tmp_path: Path) -> None:
    for suffix in endings():
        assert refusal(lambda suffix=suffix: opened(engine, tmp_path / f"a{suffix}", "score")) == (
            f"a{suffix}: must exist, got no such file; check the name"
        )
    assert "must end in one of .parquet, .pq, .csv" in refusal(lambda: opened(engine, tmp_path / "a.xlsx", "score"))


def test_arrays_that_are_refused(engine: Duck, tmp_path: Path) -> None:
    for shape in ("(99999999999999,)", "(9999999999999999999999999,)", "(-1,)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        text = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(16)
        (tmp_path / "a.npy").write_bytes(text)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("score.npy", text)
        for name in ("a.npy", "a.npz"):
            said = refusal(lambda name=name: opened(engine, tmp_path / name, "score"))
            assert f"must be a readable {name[1:]} file" in said
    np.save(tmp_path / "a.npy", np.array([1, "x"], dtype=object), allow_pickle=True)
    assert "allow_pickle=False" in refusal(lambda: opened(engine, tmp_path / "a.npy", "score"))
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    assert "must be a list of scores, got an array of shape (2, 3)" in refusal(
        lambda: opened(engine, tmp_path / "a.npy", "score")
    )
    np.save(tmp_path / "a.npy", np.zeros(3))
    assert refusal(lambda: opened(engine, tmp_path / "a.npy", "score", "label")) == (
        "a.npy: must have a column 'label', got a .npy file, which has none; "
        "name no such column in the policy or use .npz"
    )
    np.savez(tmp_path / "a.npz", score=np.zeros(1234), label=np.zeros(3))
    assert refusal(lambda: opened(engine, tmp_path / "a.npz", "score", "label")) == (
        "a.npz: its arrays must be of one length, got 'score': 1,234, 'label': 3; save one label for every score"
    )
    odd: dict[str, Any] = {"pickled": np.array([None, {}]), "square": np.zeros((2, 2)), "short": np.zeros(1)}
    np.savez(tmp_path / "a.npz", score=np.array([0.5, 0.25]), **odd)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("notes", "no array")
    table = opened(engine, tmp_path / "a.npz", "score")
    kinds = {each.name: each.kind for each in table.columns}
    assert kinds == {"score": "float", "pickled": "other", "square": "other", "short": "other", "notes": "other"}
    assert "allow_pickle=False" in refusal(lambda: opened(engine, tmp_path / "a.npz", "pickled"))
    assert "another kind of file inside" in refusal(lambda: opened(engine, tmp_path / "a.npz", "notes"))
    np.savez(tmp_path / "b.npz", only=np.array([0.5]))
    assert column(engine, opened(engine, tmp_path / "b.npz", "score"), "score") == ["0.5"]


def test_keys_of_a_path_are_columns_of_text(engine: Duck, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", [0.5, 0.25])
    keys = {"label": "007", "day": "__HIVE_DEFAULT_PARTITION__"}
    table = opened(engine, tmp_path / "a.npy", "score", "label", "day", keys=keys)
    assert column(engine, table, "label") == ["007", "007"]
    assert column(engine, table, "day") == [None, None]
    (tmp_path / "a.csv").write_text("score,label\n0.1,1\n")
    said = refusal(lambda: opened(engine, tmp_path / "a.csv", "score", "label", keys=keys))
    assert said.startswith("a.csv: must have 'label' in its path or as a column, got both; ")
    assert column(engine, opened(engine, tmp_path / "a.csv", "score", keys=keys), "score") == ["0.1"]


# --- objects ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(values=st.lists(MAYBE, max_size=8), names=st.lists(TEXTS | st.none(), min_size=8, max_size=8))
def test_data_frames(values: list[float | None], names: list[str | None], engine: Duck) -> None:
    texts = names[: len(values)]
    table = pa.table({"score": pa.array(values, pa.float64()), "name": pa.array(texts, pa.string())})
    missing = [None if each is None or math.isnan(each) else each for each in values]
    frames: list[tuple[Any, list[float | None]]] = [
        (table, values),
        (
            pl.DataFrame({"score": pl.Series(values, dtype=pl.Float64), "name": pl.Series(texts, dtype=pl.String)}),
            values,
        ),
        (
            {
                "score": np.ma.array([each or 0.0 for each in missing], mask=[each is None for each in missing]),
                "name": texts,
            },
            missing,
        ),
    ]
    for data, expected in frames:
        found = open_object(engine, data, "it", ["score", "name"])
        assert same(
            [None if each is None else each + 0.0 for each in floats(engine, found, "score")],
            [None if each is None else each + 0.0 for each in expected],
        )
        assert column(engine, found, "name") == texts
        assert found.count == len(values)


@pytest.mark.parametrize(
    "data",
    [
        [0.5, 0.25],
        np.array([[0.5], [0.25]]),
        pl.Series("x", [0.5, 0.25]),
        pa.array([0.5, 0.25]),
        pa.chunked_array([[0.5], [0.25]]),
        {"score": (0.5, 0.25)},
        pl.DataFrame({"score": [0.5, 0.25], "odd": pl.Series([object(), object()], dtype=pl.Object)}),
        pa.table({"score": pa.array([0.5, 0.25], pa.float16()), "wide": pa.array([1, 2], pa.decimal256(60, 2))}),
        pa.record_batch({"score": [0.5, 0.25]}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_objects_of_many_kinds(data: Any, engine: Duck) -> None:
    table = open_object(engine, data, "it", ["score"])
    assert floats(engine, table, "score") == [0.5, 0.25]


def test_types_of_objects(engine: Duck) -> None:
    """What DuckDB has no type for is left without values, and the other columns are read."""
    day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    arrays = {
        "zoned": np.array([day, None], dtype=object),
        "string": np.array(["a", "b"], dtype=np.dtypes.StringDType()),
        "days": np.array(["2026-01-02", "NaT"], dtype="M8[D]"),
        "wide": np.arange(2, dtype="g"),
        "large": np.array([2**70, None], dtype=object),
        "bytes": np.array([b"a", b"bb"]),
    }
    table = open_object(engine, arrays, "it", [])
    found = {each.name: (each.kind, column(engine, table, each.name)) for each in table.columns}
    assert found == {
        "zoned": ("time", ["2026-01-02 00:00:00", None]),
        "string": ("text", ["a", "b"]),
        "days": ("time", ["2026-01-02 00:00:00", None]),
        "wide": ("other", [None, None]),
        "large": ("decimal", [str(2**70), None]),
        "bytes": ("text", ["a", "bb"]),
    }


def test_relations_of_other_connections(engine: Duck) -> None:
    import duckdb

    other = duckdb.connect()
    table = open_object(engine, other.sql("SELECT i / 4 AS score, 'x' AS label FROM range(3) t(i)"), "it", ["score"])
    assert floats(engine, table, "score") == [0.0, 0.25, 0.5]
    other.close()


@pytest.mark.parametrize(
    ("data", "wanted", "found"),
    [
        (np.zeros((2, 3)), ["score"], "it: must be a list of scores, got an array of shape (2, 3)"),
        (np.zeros(3), ["score", "label"], "it: must have a column 'label', got an array, which has none"),
        (pa.table([[1], [2]], names=["score", "score"]), ["score"], "it: must have one column 'score', got 2"),
        (pl.DataFrame({"s": [1]}), ["score"], "it: must have a column 'score', got 's'"),
        ({"score": [1, 2], "label": [1]}, ["score", "label"], "it: its arrays must be of one length"),
        (object(), ["score"], "it: must be an array, an Arrow table or a data frame, got object; give one of these"),
        (
            pa.table({"score": pa.array([1], pa.decimal256(60, 2))}),
            ["score"],
            "must hold decimals of at most 38 digits",
        ),
    ],
)
def test_objects_that_are_refused(data: Any, wanted: list[str], found: str, engine: Duck) -> None:
    assert found in refusal(lambda: open_object(engine, data, "it", wanted))


def test_without_pyarrow(engine: Duck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Arrow's own files and objects need it."""
    write(tmp_path / "a.feather", [0.5], ["x"])
    write(tmp_path / "a.parquet", [0.5], ["x"])
    frame, table = pl.DataFrame({"score": [0.5]}), pa.table({"score": [0.5]})
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert column(engine, opened(engine, tmp_path / "a.parquet", "score"), "score") == ["0.5"]
    for data in (frame, np.array([0.5])):
        assert column(engine, open_object(engine, data, "it", ["score"]), "score") == ["0.5"]
    for read in (
        lambda: opened(engine, tmp_path / "a.feather", "score"),
        lambda: open_object(engine, table, "it", ["score"]),
    ):
        assert "must be read with pyarrow, got no such package; install fpr-gate[arrow]" in refusal(read)
