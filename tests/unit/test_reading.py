"""Rows are the same from every format, and a file that holds anything else is refused in one clear line."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import column_of

from gate.errors import GateError
from gate.policy import Columns
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample
from gate.rows.wording import is_number
from gate.sources import Source

UNIT = (0.0, 1.0)
SUFFIXES = [".npy", ".npz", ".csv", ".parquet"]
LABELLED = [".npz", ".csv", ".parquet"]
BINARY = [".npy", ".npz", ".parquet"]
EDGES = [0.0, 1.0, 5e-324, 1 - 2**-53, 0.1 + 0.2, 1 / 3, 1e-10, 0.25, 0.25]

FORMATS = ".parquet, .pq, .csv, .tsv, .feather, .arrow, .jsonl, .ndjson, .npy, .npz"


def labelled(benign: str = "0") -> Columns:
    return Columns(label="label", benign_label=benign)


def write(path: Path, scores: Any, labels: Any = None) -> str:
    """Scores, and labels if any, as the suffix says; CSV in the shortest digits that read back the same."""
    columns = {"score": scores} if labels is None else {"score": scores, "label": labels}
    if path.suffix == ".npy":
        with path.open("wb") as file:
            np.save(file, np.asarray(scores))
    elif path.suffix == ".npz":
        with path.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
            np.savez(file, **arrays)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(columns), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def refusal(path: Path | str, columns: Columns | None = None, domain: tuple[float, float] = UNIT) -> str:
    """The one line of a refusal without the file's name; it says what must be, what was found and what to do."""
    with pytest.raises(GateError) as caught:
        read([str(path)], columns or Columns(), domain)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) - len(str(path)) < 400
    assert line.startswith(f"{path}: ")
    message = line.removeprefix(f"{path}: ")
    assert "must" in message
    assert ", got" in message
    assert "; " in message
    return message


def refused_text(directory: Path, text: str | bytes, columns: Columns | None = None) -> str:
    path = directory / "scores.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return refusal(path, columns)


def values(path: Path | str, columns: Columns | None = None) -> list[float]:
    return column_of(read([str(path)], columns or Columns(), UNIT))


# --- one sample, whatever the format ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the hypothesis tests, which overwrite their files at every example."""
    return tmp_path_factory.mktemp("scores")


@settings(max_examples=examples(60), deadline=None)
@given(scores=st.lists(st.one_of(st.floats(0, 1), st.sampled_from([-0.0, *EDGES])), min_size=2, max_size=40))
def test_every_format_gives_the_same_scores(directory: Path, scores: list[float]) -> None:
    """Bit for bit, with the same digest and the same counts."""
    digests = set()
    for suffix in SUFFIXES:
        path = write(directory / f"same{suffix}", scores)
        found = read([path], Columns(), UNIT)
        assert np.array(column_of(found)).tobytes() == np.array(scores).tobytes()
        digests.add(found.rows_sha256)
        assert found.sources == (Source(path=path, rows=len(scores), benign=len(scores)),)
    assert len(digests) == 1


@pytest.mark.parametrize("suffix", LABELLED)
def test_every_format_selects_the_same_benign_rows(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"scores{suffix}", EDGES, [0, 1, 0, 0, 2, 0, 1, 1, 0])
    found = read([path], labelled(), UNIT)
    assert column_of(found) == [EDGES[i] for i in (0, 2, 3, 5, 8)]
    assert found.sources == (Source(path=path, rows=9, benign=5),)
    assert found.summary == (
        f"9 rows from {path}: 5 benign, 4 of other labels, none refused; "
        "3 labels ('0' 5 benign, '1' 3 malicious, '2' 1 malicious)"
    )


@pytest.mark.parametrize("kind", [pa.decimal128(12, 4), pa.decimal128(38, 20), pa.decimal128(6, 4)])
def test_exact_decimals_are_rounded_like_the_same_digits_in_a_csv(tmp_path: Path, kind: pa.DataType) -> None:
    """To the nearest float: otherwise the same scores would have two digests."""
    digits = [f"0.{i:04}" for i in range(10_000)]
    path = write(tmp_path / "scores.parquet", pa.array([Decimal(text) for text in digits], kind))
    assert values(path) == values(write(tmp_path / "scores.csv", digits)) == [float(text) for text in digits]


def test_several_files_are_one_sample(tmp_path: Path) -> None:
    """In any mix of formats, a file with a single score included; in which order they are named changes nothing."""
    paths = [write(tmp_path / f"part{i}{suffix}", [i / 10]) for i, suffix in enumerate(SUFFIXES)]
    found = read(paths, Columns(), UNIT)
    assert column_of(found) == [0.0, 0.1, 0.2, 0.3]
    assert found.sources == tuple(Source(path=path, rows=1, benign=1) for path in paths)
    turned = read(paths[::-1], Columns(), UNIT)
    assert (column_of(turned), turned.rows_sha256) == (column_of(found), found.rows_sha256)


def test_an_error_in_one_of_several_files_names_that_file(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.npy", [0.1, 0.2]), write(tmp_path / "bad.npy", [0.1, 2.0])
    with pytest.raises(GateError) as caught:
        read([good, bad], Columns(), UNIT)
    assert str(caught.value).startswith(f"{bad}: ")


def test_the_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "SCORES.CSV"
    path.write_text("score\n0.1\n0.2\n")
    assert values(path) == [0.1, 0.2]


def test_other_columns_are_not_looked_at(tmp_path: Path) -> None:
    """Not their types, nulls, names or number."""
    path = tmp_path / "scores.parquet"
    table = {"a": [None, "x"], "score": [0.1, 0.2], "score.x": [5.0, 6.0], "nested": [{"score": 7}, {"score": 8}]}
    pa.parquet.write_table(pa.table(table), path)
    assert values(path) == [0.1, 0.2]
    path = tmp_path / "scores.csv"
    path.write_bytes(b"a,score,b,b\nx,0.1,,\n,0.2,x,\x1b\n")
    assert values(path) == [0.1, 0.2]


# --- the digest ---------------------------------------------------------------------------------------------


# --- labels -------------------------------------------------------------------------------------------------

LABELS: dict[str, tuple[Any, str]] = {
    "integers": ([0, 1, 0], "0"),
    "integers compared with 0.0": ([0, 1, 0], "0.0"),
    "large integers": ([2**60 + 1, 5, 2**60 + 1], str(2**60 + 1)),
    "negative integers": ([-1, 1, -1], "-1"),
    "floats": ([0.0, 1.0, 0.0], "0"),
    "booleans": ([False, True, False], "false"),
    "booleans compared with 0": ([False, True, False], "0"),
    "booleans compared with True": ([True, False, True], "True"),
    "words": (["benign", "malicious", "benign"], "benign"),
    "words that look like numbers to nobody": (["v1", "v2", "v1"], "v1"),
    "words with spaces": ([" ok", "not ok", " ok"], " ok"),
}


@pytest.mark.parametrize("suffix", LABELLED)
@pytest.mark.parametrize("name", LABELS)
def test_labels_are_compared_in_their_own_type(tmp_path: Path, suffix: str, name: str) -> None:
    labels, benign = LABELS[name]
    assert values(write(tmp_path / f"scores{suffix}", [0.1, 0.2, 0.3], labels), labelled(benign)) == [0.1, 0.3]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["a", "b", "a"], pa.large_string()),
        pa.array([b"a", b"b", b"a"], pa.binary()),
        pa.array([b"a", b"b", b"a"], pa.binary(1)),
        pa.chunked_array([["a"], ["b", "a"]]),
    ],
    ids=lambda labels: str(labels.type),
)
def test_text_labels_may_be_stored_in_any_way(tmp_path: Path, labels: Any) -> None:
    path = write(tmp_path / "scores.parquet", [0.1, 0.2, 0.3], labels)
    assert values(path, labelled("a")) == [0.1, 0.3]


@pytest.mark.parametrize("role", ["group", "segment"])
def test_a_name_that_a_dictionary_holds_twice_is_one_name(tmp_path: Path, role: str) -> None:
    """Else one group would count as two, and its rows as more independent than they are."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 2], pa.int32()), pa.array(["a", "b", "a"]))
    path = tmp_path / "scores.arrow"
    pyarrow.feather.write_feather(pa.table({"score": [0.1, 0.2, 0.3, 0.4, 0.5], role: names}), path)
    scores = read([str(path)], Columns.model_validate({role: role}), (0.0, 1.0))
    parts = scores.by_group(np.array([0.3])) if role == "group" else scores.by_segment(np.array([0.3]))
    assert sorted(zip(parts.sizes.tolist(), parts.reached[:, 0].tolist(), strict=True)) == [(2, 1), (3, 2)]


@pytest.mark.parametrize("role", ["group", "segment", "id"])
@pytest.mark.parametrize(
    "names",
    [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", None])),
        pa.array([1.0, float("nan"), 2.0**60]),
        pa.array(["a", None, "b"]),
    ],
    ids=["in a dictionary", "NaN", "plain"],
)
def test_a_row_without_a_name_is_refused(tmp_path: Path, role: str, names: Any) -> None:
    path = tmp_path / "scores.arrow"
    pyarrow.feather.write_feather(pa.table({"score": [0.1, 0.2, 0.3], role: names}), path)
    with pytest.raises(GateError, match=f"column '{role}' must name every row, got none in row 2; name or remove"):
        read([str(path)], Columns.model_validate({role: role}), (0.0, 1.0))


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(5, 2), pa.dictionary(pa.int8(), pa.int64())]
)
def test_number_labels_may_be_stored_in_any_way(tmp_path: Path, kind: pa.DataType) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    labels = pa.array([Decimal(7), Decimal(1), Decimal(7)] if pa.types.is_decimal(plain) else [7, 1, 7], plain)
    labels = labels.dictionary_encode() if pa.types.is_dictionary(kind) else labels
    assert values(write(tmp_path / "scores.parquet", [0.1, 0.2, 0.3], labels), labelled("7")) == [0.1, 0.3]


@pytest.mark.parametrize("dtype", ["<U1", ">U1", "S1", ">i4", "<f2", ">f8", "u1"])
def test_array_labels_may_be_stored_in_any_way(tmp_path: Path, dtype: str) -> None:
    labels = np.array([0, 1, 0]).astype(dtype)
    assert values(write(tmp_path / "scores.npz", [0.1, 0.2, 0.3], labels), labelled("0")) == [0.1, 0.3]


@pytest.mark.parametrize("suffix", LABELLED)
@pytest.mark.parametrize(
    ("labels", "benign", "found"),
    [
        ([1, 2, 1], "0", "'1', '2'"),
        ([1, 2, 1], "benign", "'1', '2'"),
        ([0.5, 1.5, 0.5], "0", "'0.5', '1.5'"),
        (["bad", "ok?", "bad"], "ok", "'bad', 'ok?'"),
        (["a\nb", "c", "c"], "0", r"'a\nb', 'c'"),
        ([True, True, True], "false", "'true'"),
        ([True, True, True], "benign", "'true'"),
    ],
)
def test_a_label_that_never_matches_is_answered_with_those_found(
    tmp_path: Path, suffix: str, labels: list[Any], benign: str, found: str
) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 0.2, 0.3], labels), labelled(benign))
    must = f"column 'label' must mark benign rows with {benign!r}"
    if suffix == ".csv":
        found = found.replace("true", "True")  # text, as Python writes it
    assert message == f"{must}, got {found} in 3 rows; set data.benign_label"


def test_of_many_labels_a_few_are_shown(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "scores.csv", [0.1] * 9, [*"abcdefgh", "x" * 300_000][::-1]), labelled())
    assert "got 'xxx" in message
    assert "..., 'h', 'g', 'f', 'e', ... in 9 rows" in message


@pytest.mark.parametrize("suffix", LABELLED)
def test_a_row_without_a_label_is_refused(tmp_path: Path, suffix: str) -> None:
    labels: Any = np.array([0, np.nan, 0, np.nan]) if suffix == ".npz" else ["0", "", "0", ""]
    if suffix == ".parquet":
        labels = pa.array([0, None, 0, None])
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 0.2, 0.3, 0.4], labels), labelled())
    assert message == "column 'label' must label every row, got none in row 2 and 1 more; label or remove these rows"


@pytest.mark.parametrize("labels", [["a", "", "a"], pa.array(["a", None, "a"]), [0.0, float("nan"), 1.0]])
def test_an_empty_or_missing_label_is_not_another_class(tmp_path: Path, labels: Any) -> None:
    message = refusal(write(tmp_path / "scores.parquet", [0.1, 0.2, 0.3], labels), labelled("a"))
    assert message.startswith("column 'label' must label every row, got none in row 2;")


@pytest.mark.parametrize(
    ("suffix", "labels", "kind"),
    [
        (".parquet", pa.array([[1], [2]]), "BIGINT[]"),
        (".parquet", pa.array([{"a\nb": 1}, {"a\nb": 2}]), r'STRUCT("a\nb" BIGINT)'),
        (".npz", np.zeros(2, dtype=complex), "complex128"),
        (".npz", np.zeros(2, dtype="i4,f8"), "[('f0', '<i4'), ('f1', '<f8')]"),
        (".npz", np.zeros(2, dtype="M8[D]"), "TIMESTAMP"),
    ],
)
def test_labels_that_are_no_labels_are_refused(tmp_path: Path, suffix: str, labels: Any, kind: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 0.2], labels), labelled())
    assert message == f"column 'label' must hold words, numbers or booleans, got {kind}; write them as text or numbers"


# --- rows that are not scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (2.0, "2.0"),
        (-1e-300, "-1e-300"),
        (1.0000000000000002, "1.0000000000000002"),
    ],
)
def test_a_score_outside_the_domain_is_refused_with_its_row(
    tmp_path: Path, suffix: str, bad: float, found: str
) -> None:
    """The number is shown with all the digits that put it outside."""
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 1.0, bad, 0.0, bad]))
    if suffix == ".csv" and np.isinf(bad):
        assert message.startswith(f"column 'score' must hold numbers, got '{found}' in row 3 and 1 more; ")
        return
    assert message == (
        f"column 'score' must lie in the domain [0, 1], got {found} in row 3 and 1 more; "
        "set calibration.domain to the detector's range (--set calibration.domain=[LOW,HIGH]), or remove these rows"
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_domain_includes_its_ends_and_may_be_any(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"scores{suffix}", [-8.5, 8.0, 0.0])
    assert column_of(read([path], Columns(), (-8.5, 8.0))) == [-8.5, 8.0, 0.0]
    assert "must lie in the domain [-8.25, 8], got -8.5 in row 1;" in refusal(path, domain=(-8.25, 8.0))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nan_is_refused_with_its_row(tmp_path: Path, suffix: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, float("nan"), 0.3]))
    if suffix == ".csv":
        assert message.startswith("column 'score' must hold numbers, got 'nan' in row 2; remove these rows")
    else:
        assert message == "column 'score' must hold numbers, got NaN in row 2; remove or score these rows"


def test_nan_is_found_beside_scores_outside_the_domain(tmp_path: Path) -> None:
    assert "got NaN in row 3;" in refusal(write(tmp_path / "scores.npy", [5.0, -5.0, np.nan]))


@pytest.mark.parametrize("suffix", LABELLED)
@pytest.mark.parametrize("bad", [float("nan"), 7.5, float("-inf")])
def test_rows_are_counted_in_the_file_also_when_only_benign_ones_are_examined(
    tmp_path: Path, suffix: str, bad: float
) -> None:
    """The malicious rows are worse, and nobody's concern."""
    scores = [9.0, 0.1, float("inf"), 0.2, -9.0, bad, 0.3, bad]
    message = refusal(write(tmp_path / f"scores{suffix}", scores, [1, 0, 1, 0, 1, 0, 0, 0]), labelled())
    assert " in row 6 and 1 more; " in message
    clean = [0.5 if score == bad or score != score else score for score in scores]
    path = write(tmp_path / f"scores{suffix}", clean, [1, 0, 1, 0, 1, 0, 0, 0])
    assert values(path, labelled()) == [0.1, 0.2, 0.5, 0.3, 0.5]


def test_a_null_is_refused_with_its_row_among_all_and_among_benign_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.parquet", [None, 0.1, 0.2, None], [1, 0, 0, 0])
    assert "must hold a score in every row, got none in row 1 and 1 more;" in refusal(path)
    assert "must hold a score in every row, got none in row 4;" in refusal(path, labelled())
    path = write(tmp_path / "nothing.parquet", pa.nulls(3))
    assert "must hold a score in every row, got none in row 1 and 2 more;" in refusal(path)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("score,x\n0.1,1\n,2\n0.3,3\n", "row 2"),
        ("score,x\n,1\n,2\n", "row 1 and 1 more"),
        ("score,x\n\n\n0.1,1\n\n,2\n", "row 2"),
        ('score\n0.1\n""\n0.2\n', "row 2"),
        ("score\n0.1\n\n0.2\n", "row 2"),
        ("score\r\n0.1\r\n0.2\r\n\r\n", "row 3"),
    ],
)
def test_an_empty_cell_is_a_missing_score(tmp_path: Path, text: str, row: str) -> None:
    """A blank line is such a score too, if no other column could make it no row at all."""
    message = refused_text(tmp_path, text)
    assert message == f"column 'score' must hold a score in every row, got none in {row}; remove or score these rows"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("score\n0.1\n0.2\nhigh\n0.4\nlow\n", "'high' in row 3 and 1 more"),
        ("score\n" + "0.5\n" * 300_000 + "x\n", "'x' in row 300,001"),
        ("score,x\n0.1,1\n\n0.2,2\n0.3%,3\n", "'0.3%' in row 3"),
        ("score\n0.1\n1_000\n", "'1_000' in row 2"),
        ("score\n0.1\n\x1b[31m\n", r"'\x1b[31m' in row 2"),
        ("score\n0.1\n" + "x" * 200_000 + "\n", "'" + "x" * 36 + "... in row 2"),
        ("score\n0.1\n0x1p-3\n", "'0x1p-3' in row 2"),
        (b"score\n0.1\n0.2\x00\n", r"'0.2\x00' in row 2"),
        ('score,note\n0.1,"a\nb"\nx,"c\nd"\n', "'x' in row 2"),
    ],
)
def test_text_among_numbers_is_refused_with_its_row(tmp_path: Path, text: str | bytes, found: str) -> None:
    message = refused_text(tmp_path, text)
    assert message == f"column 'score' must hold numbers, got {found}; remove these rows or write them as numbers"


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        (["0.1", "high", "0.3"], "'0.1' in row 1 and 2 more"),
        (["0.1", "0.2"], "'0.1' in row 1 and 1 more"),
        (pa.array(["x", "0.2"]).dictionary_encode(), "'x' in row 1 and 1 more"),
        (pa.array([b"0.1", b"0.2"]), "'0.1' in row 1 and 1 more"),
    ],
)
def test_a_column_of_text_is_refused_even_if_it_reads_like_numbers(tmp_path: Path, scores: Any, found: str) -> None:
    assert f"column 'score' must hold numbers, got {found};" in refusal(write(tmp_path / "scores.parquet", scores))


@pytest.mark.parametrize(
    ("suffix", "scores", "kind"),
    [
        (".parquet", [True, False], "BOOLEAN"),
        (".parquet", [[0.1], [0.2]], "DOUBLE[]"),
        (".parquet", [{"x": 1}, {"x": 2}], "STRUCT(x BIGINT)"),
        (".parquet", pa.array([1, 2], pa.timestamp("s")), "TIMESTAMP"),
        (".npy", np.array([True, False]), "BOOLEAN"),
        (".npy", np.array([0.1 + 0j, 0.2]), "complex128"),
        (".npy", np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]), "[('a', '<f8'), ('b', '<i4')]"),
        (".npy", np.zeros(2, dtype="m8[s]"), "timedelta64[s]"),
        (".npz", np.array([0.1 + 0j, 0.2]), "complex128"),
        (".npz", np.zeros(2, dtype=[("a\n", "f8")]), r"[('a\n', '<f8')]"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, suffix: str, scores: Any, kind: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", scores))
    assert message == f"column 'score' must hold numbers, got {kind}; write the scores as floats"


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="no wider float on this machine")
def test_numbers_wider_than_float64_are_refused_rather_than_rounded(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "scores.npy", np.ones(2, dtype=np.longdouble)))
    assert message.endswith("; write the scores as floats")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("scores", [[], [0.5]])
def test_fewer_than_2_scores_are_no_sample(tmp_path: Path, suffix: str, scores: list[float]) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", np.array(scores)))
    assert message == f"must hold at least 2 benign scores, got {len(scores)}; give more benign rows"


@pytest.mark.parametrize("suffix", LABELLED)
@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_2_benign_scores_are_no_sample(tmp_path: Path, suffix: str, count: int) -> None:
    labels = np.array(["ok", "bad", "bad"][: 3 * count])
    path = write(tmp_path / f"scores{suffix}", np.array([0.1, 0.2, 0.3][: 3 * count]), labels)
    assert refusal(path, labelled("ok")) == f"must hold at least 2 benign scores, got {count}; give more benign rows"


# --- columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", LABELLED)
def test_a_missing_column_is_answered_with_the_nearest_or_with_how_to_name_it(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"scores{suffix}", [0.1, 0.2], [0, 0])
    assert refusal(path, Columns(score="scores")) == (
        "must have a column 'scores', got 'score', 'label'; did you mean 'score'? "
        "name those that it has in the policy's `data:` or with --set, such as --set data.score=NAME"
    )
    assert "got 'score', 'label'; name those that it has" in refusal(path, Columns(score="p_malicious"))
    assert "must have a column 'y', got" in refusal(path, Columns(id="y"))


def test_of_many_columns_a_few_are_shown(tmp_path: Path) -> None:
    message = refused_text(tmp_path, ",".join(["x" * 500, *(f"feature{i}" for i in range(2000))]) + "\n")
    assert message.startswith("must have a column 'score', got 'xxx")
    assert "xx..., 'feature0', 'feature1'" in message
    assert "'feature8', ...; name those that it has in the policy's" in message


@pytest.mark.parametrize("suffix", LABELLED)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scores{suffix}"
    if suffix == ".csv":
        path.write_text("score,score\n0.1,0.2\n0.3,0.4\n")
    elif suffix == ".parquet":
        pa.parquet.write_table(pa.table([[0.1, 0.2], [0.3, 0.4]], names=["score", "score"]), path)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("score", "score.npy"):
                archive.writestr(name, array_bytes([0.1, 0.2]))
    assert refusal(path) == "must have one column 'score', got 2 of that name; rename or remove one"


def array_bytes(scores: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(scores, **options), allow_pickle=True)
    return file.getvalue()


# --- files that are not what they are called ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_directory_named_like_a_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scores{suffix}"
    path.mkdir()
    assert refusal(path) == f"must hold score files ({FORMATS}), got none; name another directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_permission_is_refused(tmp_path: Path, suffix: str) -> None:
    path = Path(write(tmp_path / f"scores{suffix}", [0.1, 0.2]))
    path.chmod(0)
    assert refusal(path) == "must be readable, got permission denied; allow this user to read it"


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("scores.txt", ".txt"),
        ("scores.xlsx", ".xlsx"),
        ("scores.pkl", ".pkl"),
        ("scores", "no suffix"),
        (".csv", "no suffix"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / name
    path.write_text("score\n0.1\n0.2\n")
    assert refusal(path) == (
        f"must end in one of {FORMATS} (or these with .gz), got {suffix}; convert it to one of these"
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", SUFFIXES)
def test_a_file_with_the_suffix_of_another_is_refused(tmp_path: Path, suffix: str, content: str) -> None:
    path = Path(write(tmp_path / f"scores{content}", [0.1, 0.2])).rename(tmp_path / f"renamed{suffix}")
    if suffix == content:
        assert values(path) == [0.1, 0.2]
    elif suffix == ".csv":
        assert refusal(path).startswith(("must be UTF-8 text", "must have a column 'score'", "must close every quoted"))
    else:
        assert refusal(path).startswith(f"must be a readable {suffix} file, got: ")


class Exploit:
    """Creates a directory when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["raw pickle", "object array", "archive of object arrays", "archive of pickles"])
def test_a_pickle_is_never_loaded(tmp_path: Path, suffix: str, kind: str) -> None:
    marker, path = tmp_path / "marker", tmp_path / f"scores{suffix}"
    exploit = Exploit(marker)
    if kind == "raw pickle":
        path.write_bytes(pickle.dumps(exploit))
    elif kind == "object array":
        path.write_bytes(array_bytes([exploit, exploit], dtype=object))
    else:
        content = (
            pickle.dumps(exploit) if kind == "archive of pickles" else array_bytes([exploit, exploit], dtype=object)
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("score.npy" if "arrays" in kind else "score", content)
    refusal(path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(exploit))
    assert marker.exists()  # the exploit works where a pickle is loaded


# --- CSV ----------------------------------------------------------------------------------------------------


def test_line_breaks_in_quotes_make_no_rows_in_a_long_file(tmp_path: Path) -> None:
    """One row more would be one benign row that nobody scored."""
    path = tmp_path / "scores.csv"
    path.write_text("score,note\n" + '0.1,"abc\n0.9,def"\n' * 200_000)
    found = read([str(path)], Columns(), UNIT)
    assert (len(found), found.highest) == (200_000, 0.1)


# --- whatever the bytes -------------------------------------------------------------------------------------


def read_or_refuse(path: Path, columns: Columns) -> Sample | None:
    """The property: scores inside the domain, or a refusal in one printable line that names the file."""
    try:
        found = read([str(path)], columns, UNIT)
    except GateError as error:
        line = str(error)
    else:
        assert len(found) >= 2
        assert all(0 <= score <= 1 for score in column_of(found))
        return found
    assert line.isprintable()
    assert line.startswith(f"{path}: ")
    return None


SAMPLE = np.random.default_rng(0).random(40).round(6)
SAMPLE_LABELS = np.array(["ok", "bad", "ok", "ok"] * 10)
any_columns = st.sampled_from([Columns(), labelled("ok"), labelled("0")])


def sample_bytes(directory: Path, suffix: str) -> bytes:
    if suffix == ".csv":
        rows = zip(SAMPLE_LABELS, SAMPLE, strict=True)
        return ("label,note,score\n" + "".join(f'{label},"a ""b""\n,c",{score}\n' for label, score in rows)).encode()
    return Path(write(directory / f"sample{suffix}", SAMPLE, SAMPLE_LABELS)).read_bytes()


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_a_truncated_csv_is_refused_or_lacks_only_rows_at_its_end(directory: Path, data: st.DataObject) -> None:
    """A number cut in its digits cannot be told from a shorter one; every row before it is as it was."""
    whole = sample_bytes(directory, ".csv")
    path = directory / "truncated.csv"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    found = read_or_refuse(path, Columns())
    if found is not None:
        complete = len(found) - 1
        scores = column_of(found)
        assert scores[:complete] == SAMPLE[:complete].tolist()
        assert str(SAMPLE[complete]).startswith(str(scores[complete]).removesuffix(".0"))


@pytest.mark.each_run(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), columns=any_columns)
def test_any_damage_gives_scores_or_a_clear_refusal(
    directory: Path, suffix: str, data: st.DataObject, columns: Columns
) -> None:
    content = bytearray(sample_bytes(directory, suffix))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = directory / f"damaged{suffix}"
    path.write_bytes(content)
    read_or_refuse(path, columns)


def test_the_undamaged_samples_are_read(directory: Path) -> None:
    """So that the tests above damage something that works."""
    for suffix in SUFFIXES:
        path = directory / f"whole{suffix}"
        path.write_bytes(sample_bytes(directory, suffix))
        assert values(path) == SAMPLE.tolist()
        if suffix != ".npy":
            assert values(path, labelled("ok")) == SAMPLE[SAMPLE_LABELS == "ok"].tolist()


def test_one_bad_row_refuses_its_file_so_that_n_counts_good_rows_only(tmp_path: Path) -> None:
    for bad in ("", "nan", "x", "1.5", "inf"):
        (tmp_path / "scores.csv").write_text("score,row\n" + "0.1,a\n" * 50 + f"{bad},b\n" + "0.2,c\n")
        with pytest.raises(GateError, match="row 51"):
            read([str(tmp_path / "scores.csv")], Columns(), (0.0, 1.0))


# --- every role, whatever its column ------------------------------------------------------------------------

ALL = Columns(
    label="label", benign_label="ok", group="group", segment="segment", timestamp="when"
)  # an id may be repeated, and a count must stand alone
WRONG: dict[str, list[tuple[str, str]]] = {
    "score": [
        ("", "must hold a score in every row, got none in "),
        ("high", "must hold numbers, got 'high' in "),
        ("1.5", "must lie in the domain [0, 1], got 1.5 in "),
    ],
    "group": [("", "must name every row, got none in ")],
    "segment": [("", "must name every row, got none in ")],
    "when": [
        ("", "must hold times such as 2026-11-01T12:00:00Z or seconds since 1970, got none in "),
        ("soon", "must hold times such as 2026-11-01T12:00:00Z or seconds since 1970, got 'soon' in "),
    ],
    "label": [("", "must label every row, got none in ")],
}


def many_rows(count: int) -> dict[str, list[str]]:
    return {
        "score": [str(i / 1000) for i in range(count)],
        "label": ["ok"] * count,
        "group": [f"g{i % 7}" for i in range(count)],
        "segment": [f"s{i % 3}" for i in range(count)],
        "when": [f"2026-11-{1 + i % 28:02}T00:00:00Z" for i in range(count)],
    }


@settings(max_examples=examples(120), deadline=None)
@given(
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl"]),
    role=st.sampled_from(list(WRONG)),
    count=st.integers(3, 60),
    data=st.data(),
)
def test_the_first_wrong_row_is_named_whatever_the_role(
    directory: Path, suffix: str, role: str, count: int, data: st.DataObject
) -> None:
    """By the file, the column and the number of the row in its file, with how many more there are."""
    bad, said = data.draw(st.sampled_from(WRONG[role]))
    wrong = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3)))
    columns = many_rows(count)
    for row in wrong:
        columns[role][row] = bad
    path = directory / f"wrong{suffix}"
    if suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(f"{json.dumps(json_row(row))}\n" for row in rows))
    else:
        mark = "," if suffix == ".csv" else "\t"
        lines = [mark.join(columns), *(mark.join(row) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    assert refusal(path, ALL).startswith(f"column {role!r} {said}row {wrong[0] + 1}{more}; ")


def json_row(row: dict[str, str]) -> dict[str, Any]:
    """Numbers as numbers, and nothing where nothing is written."""
    values: dict[str, Any] = {name: value or None for name, value in row.items()}
    if is_number(row["score"]):
        values["score"] = float(row["score"])
    return values


def test_an_object_is_named_as_its_caller_names_it() -> None:
    with pytest.raises(
        GateError, match=r"^holdout: column 'score' must lie in the domain \[0, 1\], got 2.0 in row 2; "
    ):
        from_object({"score": np.array([0.5, 2.0])}, "holdout", Columns(), UNIT)
    with pytest.raises(GateError, match=r"^holdout: must hold at least 2 benign scores, got 1; give more benign rows$"):
        from_object({"score": np.array([0.5])}, "holdout", Columns(), UNIT)


ZONES = [UTC, timezone(timedelta(hours=2)), timezone(-timedelta(hours=5, minutes=30))]


@settings(max_examples=examples(100), deadline=None)
@given(
    moments=st.lists(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), min_size=2, max_size=8),
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_a_moment_is_the_same_in_every_form(
    directory: Path, moments: list[datetime], zone: timezone, unit: str
) -> None:
    """As far as its unit goes: times in a column, with a zone and without, text in a file, and numbers since 1970."""
    if unit == "s":
        moments = [each.replace(microsecond=0) for each in moments]
    elif unit == "ms":
        moments = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in moments]
    zoned = [each.replace(tzinfo=UTC).astimezone(zone) for each in moments]
    expected = [(each - datetime(1970, 1, 1)) // timedelta(microseconds=1) for each in moments]
    texts = [each.isoformat() for each in zoned]
    forms: list[Any] = [
        pa.array(moments, pa.timestamp("us")).cast(pa.timestamp(unit)),
        pa.array(zoned, pa.timestamp("us", "Europe/Berlin")).cast(pa.timestamp(unit, "Europe/Berlin")),
        np.array(moments, dtype=f"M8[{unit}]"),
        texts,
        [f"{each.isoformat(sep=' ')}" for each in moments],
        [f"{each.isoformat()}Z" for each in moments],
    ]
    if unit == "us":
        forms.append(zoned)
    scores = np.full(len(moments), 0.5)
    columns = Columns(timestamp="when")
    for form in forms:
        is_array = isinstance(form, np.ndarray)
        data = {"score": scores, "when": form} if is_array else pa.table({"score": scores, "when": form})
        found = from_object(data, "x", columns, UNIT)
        assert column_of(found, "time") == expected
    path = directory / "times.csv"
    path.write_text("score,when\n" + "".join(f"0.5,{each}\n" for each in texts))
    assert column_of(read([str(path)], columns, UNIT), "time") == expected


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("suffix", LABELLED)
def test_numbers_since_1970_tell_their_unit(tmp_path: Path, unit: str, scale: int, suffix: str) -> None:
    """From 1973 on: the largest of a file decides, so that the others may be of any size."""
    seconds = [1_793_534_400, 1_793_534_401, 0]
    path = write(tmp_path / f"{unit}{suffix}", [0.1, 0.2, 0.3], [each * scale for each in seconds])
    found = read([path], Columns(timestamp="label"), UNIT)
    assert column_of(found, "time") == [each * 10**6 for each in seconds]


@pytest.mark.parametrize("role", ["id", "group", "segment"])
def test_names_that_floats_cannot_tell_apart_are_refused(tmp_path: Path, role: str) -> None:
    path = tmp_path / "scores.parquet"
    pa.parquet.write_table(pa.table({"score": [0.1, 0.2], "name": [1.0, 2.0**53]}), path)
    message = refusal(path, Columns.model_validate({role: "name"}))
    assert message.startswith("column 'name' must hold names that can be told apart, got 9007199254740992.0 in row 2; ")
    assert message.endswith("; write whole numbers from 2^53 on as integers or text")


@pytest.mark.parametrize("role", ["id", "group", "segment"])
def test_what_is_no_name_is_refused_by_its_type(tmp_path: Path, role: str) -> None:
    path = tmp_path / "scores.parquet"
    pa.parquet.write_table(pa.table({"score": [0.1, 0.2], "name": [{"a\nb": 1}, {"a\nb": 2}]}), path)
    assert refusal(path, Columns.model_validate({role: "name"})) == (
        r"""column 'name' must hold words or numbers, got STRUCT("a\nb" BIGINT); write them as text"""
    )


# --- several files ------------------------------------------------------------------------------------------


def test_keys_of_a_path_have_roles_like_columns(tmp_path: Path) -> None:
    for i, (label, segment) in enumerate([("0", "a"), ("1", "a"), ("0", "b")]):
        folder = tmp_path / f"label={label}" / f"segment={segment}"
        folder.mkdir(parents=True)
        write(folder / "part.parquet", [i / 10, i / 10 + 0.05])
    found = read([str(tmp_path)], Columns(label="label", benign_label="0", segment="segment"), UNIT)
    assert sorted(zip(column_of(found), column_of(found, "segment"), strict=True)) == [
        (0.0, "a"),
        (0.05, "a"),
        (0.2, "b"),
        (0.25, "b"),
    ]
    assert found.sources == (Source(path=str(tmp_path), rows=6, benign=4),)


def test_a_key_of_a_path_is_no_score(tmp_path: Path) -> None:
    (tmp_path / "score=0.5").mkdir()
    path = tmp_path / "score=0.5" / "part.csv"
    path.write_text("x\n1\n2\n")
    with pytest.raises(GateError, match="must hold a score of its own in every row, got 'score' as a key of its path;"):
        read([str(tmp_path)], Columns(), UNIT)
    path.write_text("score\n0.1\n0.2\n")
    with pytest.raises(GateError, match="must have 'score' in its path or as a column, got both; remove the column"):
        read([str(tmp_path)], Columns(), UNIT)


def test_one_id_in_two_files_is_one_row(tmp_path: Path) -> None:
    paths = []
    for name, ids in (("a", [1, 2]), ("b", [2, 3])):
        paths.append(str(tmp_path / f"{name}.parquet"))
        pa.parquet.write_table(pa.table({"score": [each / 10 for each in ids], "id": ids}), paths[-1])
    found = read(paths, Columns(id="id"), UNIT)
    assert (column_of(found), found.n, found.repeated) == ([0.1, 0.2, 0.3], 3, 1)
    pa.parquet.write_table(pa.table({"score": [0.9, 0.3], "id": [2, 3]}), paths[1])
    with pytest.raises(
        GateError, match=r"must have one score for each id, got '2' with 0.2 and 0.9; give every row an id"
    ):
        read(paths, Columns(id="id"), UNIT)
