"""Scores are the same from every format, and a file that holds anything else is refused in one clear line."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from drawing import examples
from gate.scores import Scores, read, write_parquet
from gate.scores.formats.table import File
from gate.scores.wording import explain
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.policy import Columns
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
    return read([str(path)], columns or Columns(), UNIT).values.tolist()


# --- one sample, whatever the format ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the hypothesis tests, which overwrite their files at every example."""
    return tmp_path_factory.mktemp("scores")


@settings(max_examples=examples(60), deadline=None)
@given(scores=st.lists(st.one_of(st.floats(0, 1), st.sampled_from([-0.0, *EDGES])), min_size=2, max_size=40))
def test_every_format_gives_the_same_scores(directory: Path, scores: list[float]) -> None:
    """Bit for bit, with the same digest and the same counts."""
    for suffix in SUFFIXES:
        path = write(directory / f"same{suffix}", scores)
        found = read([path], Columns(), UNIT)
        assert found.values.tobytes() == np.array(scores).tobytes()
        assert found.sha256 == Scores(np.array(scores)).sha256
        assert found.sources == (Source(path=path, rows=len(scores), benign=len(scores)),)


@pytest.mark.parametrize("suffix", LABELLED)
def test_every_format_selects_the_same_benign_rows(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"scores{suffix}", EDGES, [0, 1, 0, 0, 2, 0, 1, 1, 0])
    found = read([path], labelled(), UNIT)
    assert found.values.tolist() == [EDGES[i] for i in (0, 2, 3, 5, 8)]
    assert found.sources == (Source(path=path, rows=9, benign=5),)
    assert found.summary == (
        f"9 rows from {path}: 5 benign, 4 of other labels, none refused; "
        "3 labels ('0' 5 benign, '1' 3 malicious, '2' 1 malicious)"
    )


@pytest.mark.parametrize("suffix", BINARY)
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", ">f8", ">f4", "int8", "uint8", "int64", "uint64", ">i4"]
)
def test_every_kind_of_number_is_promoted_to_float64(tmp_path: Path, suffix: str, dtype: str) -> None:
    scores = np.array([0, 1, 1, 0] if np.dtype(dtype).kind in "iu" else [0.1, 0.7, 1.0, 0.0]).astype(dtype)
    native = scores.astype(scores.dtype.newbyteorder("="))
    found = read([write(tmp_path / f"scores{suffix}", scores if suffix != ".parquet" else native)], Columns(), UNIT)
    assert found.values.dtype == np.float64
    assert found.values.tolist() == native.astype(np.float64).tolist()


@pytest.mark.parametrize("kind", [pa.decimal128(12, 4), pa.decimal256(50, 20), pa.decimal128(6, 4)])
def test_exact_decimals_are_rounded_like_the_same_digits_in_a_csv(tmp_path: Path, kind: pa.DataType) -> None:
    """To the nearest float: otherwise the same scores would have two digests."""
    digits = [f"0.{i:04}" for i in range(10_000)]
    path = write(tmp_path / "scores.parquet", pa.array([Decimal(text) for text in digits], kind))
    assert values(path) == values(write(tmp_path / "scores.csv", digits)) == [float(text) for text in digits]


def test_whole_numbers_far_down_a_csv_do_not_decide_its_type(tmp_path: Path) -> None:
    """Arrow reads in blocks of a megabyte; the first block of this file looks like integers."""
    path = tmp_path / "scores.csv"
    path.write_text("score\n" + "1\n" * 600_000 + "0.5\n")
    found = read([str(path)], Columns(), UNIT)
    assert (len(found), found.values[-1]) == (600_001, 0.5)


def test_several_files_are_one_sample(tmp_path: Path) -> None:
    """In the order given, in any mix of formats, a file with a single score included."""
    paths = [write(tmp_path / f"part{suffix}", [i / 10]) for i, suffix in enumerate(SUFFIXES)]
    found = read(paths, Columns(), UNIT)
    assert found.values.tolist() == [0.0, 0.1, 0.2, 0.3]
    assert found.sources == tuple(Source(path=path, rows=1, benign=1) for path in paths)
    assert found.sha256 == Scores(np.array([0.3, 0.1, 0.0, 0.2])).sha256


def test_an_error_in_one_of_several_files_names_that_file(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.npy", [0.1, 0.2]), write(tmp_path / "bad.npy", [0.1, 2.0])
    with pytest.raises(GateError) as caught:
        read([good, bad], Columns(), UNIT)
    assert str(caught.value).startswith(f"{bad}: ")


def test_an_array_of_one_column_and_an_archive_of_one_array_need_no_name(tmp_path: Path) -> None:
    assert values(write(tmp_path / "scores.npy", [[0.1], [0.2]])) == [0.1, 0.2]
    path = tmp_path / "scores.npz"
    with path.open("wb") as file:
        np.savez(file, np.array([0.1, 0.2]))
    assert values(path) == [0.1, 0.2]


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
    path.write_bytes(b"a,score,b,b\n\xe9,0.1,,\n,0.2,x,\x00\n")
    assert values(path) == [0.1, 0.2]


def test_what_write_parquet_writes_is_read_back(tmp_path: Path) -> None:
    write_parquet(tmp_path / "scores.parquet", np.array(EDGES))
    assert values(tmp_path / "scores.parquet") == EDGES


# --- the digest ---------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_sorted_little_endian_doubles_with_their_counts() -> None:
    """Anyone can recompute it: of one range, the number of distinct scores, these, and where and how often some tie."""
    part = hashlib.sha256(struct.pack("<q4dqq", 4, -1.5, 0.0, 0.25, 0.5, 2, 3)).digest()
    expected = hashlib.sha256(struct.pack("<q", 6) + part).hexdigest()
    assert Scores(np.array([0.25, 0.5, 0.25, -1.5, 0.0, 0.25])).sha256 == expected


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=2), st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_rows_or_the_sign_of_zero(scores: list[float], random: Any) -> None:
    shuffled = random.sample(scores, len(scores))
    flipped = [-score if score == 0 else score for score in shuffled]
    assert Scores(np.array(scores)).sha256 == Scores(np.array(flipped)).sha256


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2), st.data())
def test_the_digest_tells_samples_apart(scores: list[float], data: st.DataObject) -> None:
    """One score moved by one float, or one row more, is another sample."""
    i = data.draw(st.integers(0, len(scores) - 1))
    moved = [*scores[:i], float(np.nextafter(scores[i], 2)), *scores[i + 1 :]]
    digests = {Scores(np.array(sample)).sha256 for sample in (scores, moved, [*scores, scores[i]])}
    assert len(digests) == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_scores_cannot_be_changed(tmp_path: Path, suffix: str) -> None:
    found = read([write(tmp_path / f"scores{suffix}", [0.3, 0.1])], Columns(), UNIT)
    for array in (found.values, found.ordered.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.5
    assert (found.values.tolist(), found.ordered.values.tolist()) == ([0.3, 0.1], [0.1, 0.3])


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
        pa.array([1.0, float("nan"), 2.0]),
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
        ([1, 2, 1], "0", "1, 2"),
        ([1, 2, 1], "benign", "1, 2"),
        ([0.5, 1.5, 0.5], "0", "0.5, 1.5"),
        (["bad", "ok?", "bad"], "ok", "'bad', 'ok?'"),
        (["a\nb", "c", "c"], "0", r"'a\nb', 'c'"),
        ([True, True, True], "false", "True"),
        ([True, True, True], "benign", "True"),
    ],
)
def test_a_label_that_never_matches_is_answered_with_those_found(
    tmp_path: Path, suffix: str, labels: list[Any], benign: str, found: str
) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 0.2, 0.3], labels), labelled(benign))
    must = f"column 'label' must mark benign rows with {benign!r}"
    if suffix == ".csv" and "'" not in found:  # text, whatever it stands for
        found = ", ".join(repr(label) for label in found.split(", "))
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
        (".parquet", pa.array([[1], [2]]), "list<"),
        (".parquet", pa.array([{"a\nb": 1}, {"a\nb": 2}]), r"struct<a\nb: int64>"),
        (".parquet", pa.array([b"\xff", b"\xfe"]), "binary"),
        (".npz", np.zeros(2, dtype=complex), "complex128"),
        (".npz", np.zeros(2, dtype="i4,f8"), "[('f0', '<i4'), ('f1', '<f8')]"),
        (".npz", np.zeros(2, dtype="M8[D]"), "datetime64[D]"),
    ],
)
def test_labels_that_are_no_labels_are_refused(tmp_path: Path, suffix: str, labels: Any, kind: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 0.2], labels), labelled())
    assert message.startswith(f"column 'label' must hold words, numbers or booleans, got {kind}")
    assert message.endswith(" in 2 rows; write them as UTF-8 text or numbers")


# --- rows that are not scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (2.0, "2"),
        (-1e-300, "-1e-300"),
        (1.0000000000000002, "1.0000000000000002"),
    ],
)
def test_a_score_outside_the_domain_is_refused_with_its_row(
    tmp_path: Path, suffix: str, bad: float, found: str
) -> None:
    """The number is shown with all the digits that put it outside."""
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, 1.0, bad, 0.0, bad]))
    assert message == (
        f"column 'score' must lie in the domain [0, 1], got {found} in row 3 and 1 more; "
        "set calibration.domain to the detector's range, or remove these rows"
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_domain_includes_its_ends_and_may_be_any(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"scores{suffix}", [-8.5, 8.0, 0.0])
    assert read([path], Columns(), (-8.5, 8.0)).values.tolist() == [-8.5, 8.0, 0.0]
    assert "must lie in the domain [-8.25, 8], got -8.5 in row 1;" in refusal(path, domain=(-8.25, 8.0))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nan_is_refused_with_its_row(tmp_path: Path, suffix: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", [0.1, float("nan"), 0.3]))
    what = "a score in every row, got none" if suffix == ".csv" else "numbers, got NaN"
    assert message == f"column 'score' must hold {what} in row 2; remove or score these rows"


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
        ("score,x\n\n\n0.1,1\n\nNA,2\n", "row 2"),
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
        (b"score\n0.1\n0.2\xe9\n", "'0.2\ufffd' in row 2"),
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
        (["0.1", "high", "0.3"], "'high' in row 2"),
        (["0.1", "0.2"], "'0.1' in row 1 and 1 more"),
        (pa.array(["0.1", None]), "None in row 2"),
        (pa.array(["x", "0.2"]).dictionary_encode(), "'x' in row 1"),
        (pa.array([b"0.1", b"\xff"]), "'\ufffd' in row 2"),
    ],
)
def test_a_column_of_text_is_refused_even_if_it_reads_like_numbers(tmp_path: Path, scores: Any, found: str) -> None:
    assert f"column 'score' must hold numbers, got {found};" in refusal(write(tmp_path / "scores.parquet", scores))


@pytest.mark.parametrize(
    ("suffix", "scores", "kind"),
    [
        (".parquet", [True, False], "bool"),
        (".parquet", [[0.1], [0.2]], "list<"),
        (".parquet", [{"x": 1}, {"x": 2}], "struct<x: int64>"),
        (".parquet", pa.array([1, 2], pa.timestamp("s")), "timestamp["),
        (".csv", ["true", "false"], "bool"),
        (".csv", ["2026-01-01", "2026-01-02"], "date32[day]"),
        (".npy", np.array([True, False]), "bool"),
        (".npy", np.array([0.1 + 0j, 0.2]), "complex128"),
        (".npy", np.array(["0.1", "0.2"]), "<U3"),
        (".npy", np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]), "[('a', '<f8'), ('b', '<i4')]"),
        (".npy", np.zeros(2, dtype="m8[s]"), "timedelta64[s]"),
        (".npz", np.array([0.1 + 0j, 0.2]), "complex128"),
        (".npz", np.zeros(2, dtype=[("a\n", "f8")]), r"[('a\n', '<f8')]"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, suffix: str, scores: Any, kind: str) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", scores))
    assert message.startswith(f"column 'score' must hold numbers, got {kind}")
    assert " in 2 rows; " in message


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="no wider float on this machine")
def test_numbers_wider_than_float64_are_refused_rather_than_rounded(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "scores.npy", np.ones(2, dtype=np.longdouble)))
    assert message.endswith("in 2 rows; save the scores as float64")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("shape", [(), (2, 3), (1, 2), (2, 1, 1), (0, 2)])
def test_an_array_that_is_no_list_is_refused(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    message = refusal(write(tmp_path / f"scores{suffix}", np.zeros(shape)))
    assert message == f"must be a list of scores, got an array of shape {shape}; save one column of it"


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
        "name the one that it has in the policy's `data:` or with --set data.score=NAME"
    )
    assert refusal(path, Columns(score="p_malicious")).endswith(
        "got 'score', 'label'; name the one that it has in the policy's `data:` or with --set data.score=NAME"
    )
    for role in ("label", "id"):
        assert f"--set data.{role}=NAME" in refusal(path, Columns(**{role: "y"}))


def test_of_many_columns_a_few_are_shown(tmp_path: Path) -> None:
    message = refused_text(tmp_path, ",".join(["x" * 500, *(f"feature{i}" for i in range(2000))]) + "\n")
    assert message.startswith("must have a column 'score', got 'xxx")
    assert "xx..., 'feature0', 'feature1'" in message
    assert "'feature8', ...; name the one that it has in the policy's" in message


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


def test_an_array_file_has_no_labels(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "scores.npy", [0.1, 0.2]), labelled())
    assert (
        message
        == "must have a column 'label', got a .npy file, which has none; name no such column in the policy or use .npz"
    )


def test_arrays_of_unequal_lengths_are_refused(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "scores.npz", np.zeros(1234), np.zeros(3)), labelled())
    assert message == "its arrays must be of one length, got 'score': 1,234, 'label': 3; save one label for every score"


def array_bytes(scores: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(scores, **options), allow_pickle=True)
    return file.getvalue()


# --- files that are not what they are called ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scores{suffix}"
    path.touch()
    assert refusal(path) == "must hold scores, got an empty file; write it again"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_refused(tmp_path: Path, suffix: str) -> None:
    assert refusal(tmp_path / f"missing{suffix}") == "must exist, got no such file; check the name"


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


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("score", b"0.1 0.2")
    assert refusal(path) == "must hold arrays, got another kind of file inside; save them with numpy.savez"


def test_an_array_that_claims_to_be_larger_than_memory_is_refused(tmp_path: Path) -> None:
    for shape in ("(99999999999999,)", "(9999999999999999999999999,)", "(-1,)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(16)
        (tmp_path / "scores.npy").write_bytes(content)
        with zipfile.ZipFile(tmp_path / "scores.npz", "w") as archive:
            archive.writestr("score.npy", content)
        for suffix in (".npy", ".npz"):
            said = refusal(tmp_path / f"scores{suffix}")
            assert re.match(f"must be a readable {suffix} file( that fits into memory)?, got: ", said)


# --- CSV ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "score\n0.1\n0.2\n",
        "score\n0.1\n0.2",
        "score\r\n0.1\r\n0.2\r\n",
        "score\r0.1\r0.2\r",
        "\ufeffscore\n0.1\n0.2\n",
        '"score"\n"0.1"\n"0.2"\n',
        "score\n 0.1\n0.2 \n",
        "score\n1e-1\n.2\n",
        "x,score\na,0.1\nb,0.2\n",
        'score,note\n0.1,"a, b"\n0.2,"c ""d"""\n',
        'score,note\n0.1,"a\n0.9,b"\n0.2,"\r\n"\n',
        'score,"no\nte"\n0.1,x\n0.2,y\n',
        'score,note\n0.1,5" disk\n0.2,6" disk\n',
        "score,note\n\n0.1,x\n\n\n0.2,y\n\n",
        "score,note\n0.1," + "x" * 200_000 + "\n0.2,y\n",
    ],
)
def test_csv_is_read_in_all_its_usual_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(text.encode())
    assert values(path) == [0.1, 0.2]


def test_line_breaks_in_quotes_make_no_rows_in_a_long_file(tmp_path: Path) -> None:
    """Wherever a block of the reader ends: one row more would be one benign row that nobody scored."""
    path = tmp_path / "scores.csv"
    path.write_text("score,note\n" + '0.1,"abc\n0.9,def"\n' * 200_000)
    found = read([str(path)], Columns(), UNIT)
    assert (len(found), found.values.max()) == (200_000, 0.1)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('score,note\n0.1,"abc\n0.2,x\n0.3,y\n', "row 1"),
        ('score,note\n0.1,"a\nb"\n\n0.2,x\n0.3,"y\n0.4,z\n', "row 3"),
        ('score,note\n0.1,"abc\n0.2,x\n0.3,"def\n0.4,y\n', "row 1"),
        ('score,note\n0.1,"a"b\n0.2,x\n', "row 1"),
        ('score\n0.1\n\n"0.2\n', "row 3"),
        ('"score\n0.1\n0.2\n', "the header"),
        ("score,note\n" + "0.1,abcdef\n" * 150_000 + '0.1,"abc\n' + "0.3,abcdef\n" * 150_000, "row 150,001"),
    ],
)
def test_an_open_quote_cannot_hide_rows(tmp_path: Path, text: str, row: str) -> None:
    assert refused_text(tmp_path, text) == (
        f"must close every quoted field before a comma or the end of its row, got an open one in {row}; "
        "double the quotes inside it or restore the file"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("score,x\n0.1,1\n0.2\n", "2 columns in every row, got 1 in row 2"),
        ("score,x\n0.1,1\n\n0.2,2,3\n", "2 columns in every row, got 3 in row 2"),
        ("score\n0.1\n0,2\n", "1 column in every row, got 2 in row 2"),
        ("score,x\n" + "0.1,1\n" * 300_000 + "0,5,1\n", "2 columns in every row, got 3 in row 300,001"),
    ],
)
def test_a_row_of_another_width_is_refused_by_its_number(tmp_path: Path, text: str, found: str) -> None:
    message = refused_text(tmp_path, text)
    assert message == f"must have {found}; quote fields that hold commas, or restore the row"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("0.1\n0.2\n", "got '0.1'; add a header line that names the columns"),
        ("0.1,1\n0.2,0\n", "got '0.1', '1'; add a header line that names the columns"),
        ("score;x\n0.1;1\n", "got 'score;x'; separate the columns with commas"),
        ("id\tscore\n1\t0.1\n", r"got 'id\tscore'; separate the columns with commas"),
        ("Score,x\n0.1,1\n", "got 'Score', 'x'; did you mean 'Score'? {NAMING}"),
        (" score,x\n0.1,1\n", "got ' score', 'x'; did you mean ' score'? {NAMING}"),
        ("\n\nscore\n0.1\n", "got no column at all; {NAMING}"),
        ("::error::x\n", "got '::error::x'; {NAMING}"),
    ],
)
def test_a_header_that_does_not_name_the_column_is_answered_with_what_to_do(
    tmp_path: Path, text: str, hint: str
) -> None:
    naming = "name the one that it has in the policy's `data:` or with --set data.score=NAME"
    assert refused_text(tmp_path, text) == f"must have a column 'score', {hint.replace('{NAMING}', naming)}"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_a_csv_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    message = refused_text(tmp_path, "score,größe\n0.1,1\n0.2,2\n".encode(encoding))
    assert message == "must be UTF-8 text, got other bytes in the header; save it as UTF-8"


def test_labels_in_another_encoding_are_refused(tmp_path: Path) -> None:
    message = refused_text(tmp_path, "score,label\n0.1,böse\n0.2,gut\n".encode("latin-1"), labelled("gut"))
    assert message.endswith("invalid UTF8 data; save it as comma-separated UTF-8 text with a header")


def test_a_field_of_megabytes_is_refused_by_its_row_or_as_the_header(tmp_path: Path) -> None:
    field = "x" * 3_000_000
    assert " in row 2; " in refused_text(tmp_path, f"score,x\n0.1,y\n0.2,{field}\n")
    assert refused_text(tmp_path, f"{field}\n0.1\n").startswith("must be a readable .csv file, got: field larger than")


def test_a_thread_that_arrow_has_no_room_for_is_no_fault_of_the_file() -> None:
    error = pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable")
    said = pytest.raises(GateError, match=r"that fits into memory.*give fewer rows")
    with said, explain(File("s.csv", "s.csv"), "write it again"):
        raise error


# --- whatever the bytes -------------------------------------------------------------------------------------


def read_or_refuse(path: Path, columns: Columns) -> Scores | None:
    """The property: scores inside the domain, or a refusal in one printable line that names the file."""
    try:
        found = read([str(path)], columns, UNIT)
    except GateError as error:
        line = str(error)
    else:
        assert len(found) >= 2
        assert np.all((found.values >= 0) & (found.values <= 1))
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


@pytest.mark.each_run(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=examples(150), deadline=None)
@given(content=st.binary(max_size=300), columns=any_columns)
def test_any_bytes_are_scores_or_a_clear_refusal(
    directory: Path, suffix: str, content: bytes, columns: Columns
) -> None:
    magic = {".npy": b"\x93NUMPY\x01\x00", ".npz": b"PK\x03\x04", ".parquet": b"PAR1", ".csv": b"score,label\n"}[suffix]
    path = directory / f"any{suffix}"
    for start in (b"", magic):
        path.write_bytes(start + content)
        found = read_or_refuse(path, columns)
        assert found is None or suffix == ".csv"


@pytest.mark.parametrize("suffix", BINARY)
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data(), columns=st.sampled_from([Columns(), labelled("ok")]))
def test_a_truncated_file_is_always_refused(
    directory: Path, suffix: str, data: st.DataObject, columns: Columns
) -> None:
    whole = sample_bytes(directory, suffix)
    path = directory / f"truncated{suffix}"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert read_or_refuse(path, columns) is None


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
        assert found.values[:complete].tolist() == SAMPLE[:complete].tolist()
        assert str(SAMPLE[complete]).startswith(str(found.values[complete]).removesuffix(".0"))


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


@pytest.mark.parametrize("text", ["null", "null\n", ' \nnull{"score": 1}', "\ufeffnull", '{"score": 0.1}\r\n null\n'])
def test_a_line_of_json_that_is_null_is_refused(tmp_path: Path, text: str) -> None:
    """Arrow's reader would end the process where such a line begins a block."""
    (tmp_path / "scores.jsonl").write_text(text)
    with pytest.raises(GateError, match="must have one JSON object to a line, got null in line"):
        read([str(tmp_path / "scores.jsonl")], Columns(), (0.0, 1.0))


def test_a_null_within_a_line_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text('{"score": 0.1, "note": null}\n{"score": 0.2, "note": "null"}\n')
    assert read([str(tmp_path / "scores.jsonl")], Columns(), (0.0, 1.0)).values.tolist() == [0.1, 0.2]
