"""Rows that stand for many: read exactly as the same rows written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from samples import sample_of

from gate.errors import GateError
from gate.policy import Columns, parse
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample
from gate.rows.split import split

COUNTED = Columns(count="n")


@st.composite
def counted(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    values = draw(hnp.arrays(np.float64, st.integers(2, 60), elements=st.sampled_from([0.0, -0.0, 0.1, 0.25, 0.5, 1])))
    counts = draw(hnp.arrays(np.int64, len(values), elements=st.integers(0, 40)))
    counts[:2] = np.maximum(counts[:2], 1)
    return values, counts


def same(one: Sample, other: Sample, probes: np.ndarray) -> None:
    assert (len(one), one.fingerprint) == (len(other), other.fingerprint)
    ranks = np.arange(1, len(one) + 1)
    assert np.array_equal(one.ordered.at_rank(ranks), other.ordered.at_rank(ranks))
    assert np.array_equal(one.ordered.at_or_above(probes), other.ordered.at_or_above(probes))


@settings(max_examples=examples(100), deadline=None)
@given(counted(), st.booleans())
def test_counts_are_the_rows_written_out(drawn: tuple[np.ndarray, np.ndarray], labelled: bool) -> None:
    values, counts = drawn
    labels = np.arange(len(values)) % 3
    labels[:2] = 0
    names = {"label": "kind"} if labelled else {}
    short = {"score": values, "n": counts, "kind": labels}
    long = {name: np.repeat(column, counts) for name, column in short.items() if name != "n"}
    one = from_object(pa.table(short), "x", Columns(count="n", **names), (0.0, 1.0))
    other = from_object(pa.table(long), "x", Columns(**names), (0.0, 1.0))
    same(one, other, np.array([-np.inf, 0.0, 0.1, 0.3, 1.0, np.inf]))
    assert (one.sources, one.labels, one.summary) == (other.sources, other.labels, other.summary)


@settings(max_examples=examples(50), deadline=None)
@given(counted(), st.booleans(), st.booleans())
def test_so_are_those_with_segments_and_times(
    drawn: tuple[np.ndarray, np.ndarray], segmented: bool, timed: bool
) -> None:
    values, counts = drawn
    short = {"score": values, "n": counts, "s": np.arange(len(values)) % 4, "t": 1_700_000_000 + np.arange(len(values))}
    long = {name: np.repeat(column, counts) for name, column in short.items()}
    names = ({"segment": "s"} if segmented else {}) | ({"timestamp": "t"} if timed else {})
    one = from_object(pa.table(short), "x", Columns(count="n", **names), (0.0, 1.0))
    other = from_object(pa.table(long), "x", Columns(**names), (0.0, 1.0))
    probes = np.array([0.0, 0.1, 0.3, 1.0])
    same(one, other, probes)
    if segmented:
        assert all(np.array_equal(*pair) for pair in zip(one.by_segment(probes), other.by_segment(probes), strict=True))
    assert one.has_times == timed


@pytest.mark.parametrize(
    ("column", "got"),
    [
        ([1, -1, 2], "got -1 in row 2"),
        ([1.5, 1, 2], r"got 1\.5 in row 1"),
        ([1, None, None], "got none in row 2 and 1 more"),
        (["a", "b", "c"], "got 'a' in row 1 and 2 more"),
        ([2**53, 1, 1], "got 9007199254740992 in row 1"),
        ([2**34, 1, 1], "got 17179869184 in row 1"),
    ],
)
def test_what_is_no_number_of_rows_is_refused(column: list[object], got: str) -> None:
    table = pa.table({"score": [0.1, 0.2, 0.3], "n": column})
    with pytest.raises(GateError, match=rf"^x: column 'n' must hold whole numbers of rows.*{got}"):
        from_object(table, "x", COUNTED, (0.0, 1.0))


@pytest.mark.parametrize("folder", [True, False])
def test_files_together_hold_no_more_rows_than_a_sample_may(folder: bool, tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pa.table({"score": [0.1, ord(name) / 1000], "n": [6 * 10**9, ord(name)]})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path)] if folder else [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    with pytest.raises(
        GateError, match=r"must hold at most 10,000,000,000 rows, got 12,000,000,195; look whether data"
    ):
        read(paths, COUNTED, (0.0, 1.0))
    assert len(read([str(tmp_path / "b.parquet")], COUNTED, (0.0, 1.0))) == 6 * 10**9 + 98


def test_files_of_any_format_hold_them(tmp_path: Path) -> None:
    values, counts = np.random.default_rng(1).random(500), np.random.default_rng(2).integers(0, 9, 500)
    table = pa.table({"score": values, "n": counts})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    np.savez(tmp_path / "a.npz", score=values, n=counts)
    digests = {
        read([str(tmp_path / f"a.{form}")], COUNTED, (0.0, 1.0)).fingerprint for form in ("parquet", "csv", "npz")
    }
    assert digests == {sample_of(np.repeat(values, counts)).fingerprint}


def test_a_sample_of_too_many_rows_is_refused() -> None:
    table = pa.table({"score": [0.1, 0.2, 0.3], "n": [10**10, 1, 1]})
    with pytest.raises(GateError, match=r"^x: must hold at most 10,000,000,000 rows, got 10,000,000,002; look whether"):
        from_object(table, "x", COUNTED, (0.0, 1.0))


def test_they_cannot_be_split_and_have_no_names() -> None:
    scores = from_object(pa.table({"score": [0.1, 0.2], "n": [5, 6]}), "x", COUNTED, (0.0, 1.0))
    with pytest.raises(GateError, match=r"^--split: must divide single rows, got some that stand for many"):
        split(scores, 0.5, 0)
    head = "version: 1\nname: n\ntargets: [{fpr: 1%, min_n: 9, max_relative_error: 1}]\n"
    for key in ("id", "group"):
        with pytest.raises(GateError, match=rf"data\.count: must be null where data\.{key} names a column"):
            parse(f"{head}data: {{count: n, {key}: name}}\n", "p.yaml")
