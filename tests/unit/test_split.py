"""One benign sample divided here: repeatable, complete, and with rows that belong together on one side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, column_of, sample_of

from gate.errors import GateError
from gate.policy import Columns
from gate.rows.engine import using
from gate.rows.reading import read
from gate.rows.sample import Sample
from gate.rows.split import split
from gate.sources import Split


def rows(n: int, **columns: Any) -> Sample:
    return sample_of(np.random.default_rng(1).uniform(size=n), ids=[f"row {i}" for i in range(n)], **columns)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(10, 300), st.floats(0.2, 0.8), st.integers(0, 2**32))
def test_every_row_is_on_exactly_one_side(n: int, fraction: float, seed: int) -> None:
    whole = rows(n)
    fit, holdout, how = split(whole, fraction, seed)
    assert len(fit) == int(np.floor(fraction * n + 0.5))
    assert sorted(column_of(fit) + column_of(holdout)) == sorted(column_of(whole))
    assert sorted(column_of(fit, "id") + column_of(holdout, "id")) == sorted(column_of(whole, "id"))
    assert how == Split(fraction=fraction, seed=seed, by="rows")
    again = split(whole, fraction, seed)
    assert again[0].rows_sha256 == fit.rows_sha256
    assert again[1].rows_sha256 == holdout.rows_sha256 != fit.rows_sha256
    assert fit.pool is holdout.pool is whole


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(5, 60), st.floats(0.3, 0.7), st.integers(0, 2**32))
def test_the_rows_of_a_group_stay_together(groups: int, fraction: float, seed: int) -> None:
    """And the fit side has the fraction of groups that was asked for, to the whole one below or above."""
    numbers = np.random.default_rng(groups).integers(0, groups, 20 * groups)
    whole = rows(len(numbers), groups=numbers)
    fit, holdout, how = split(whole, fraction, seed)
    assert not {*column_of(fit, "grp")} & {*column_of(holdout, "grp")}
    assert how.by == "groups"
    assert abs(fit.group_count - fraction * whole.group_count) < 1
    assert fit.group_count + holdout.group_count == whole.group_count
    assert len(fit) + len(holdout) == len(whole)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(20, 300), st.floats(0.2, 0.8), st.integers(0, 2**32))
def test_every_segment_is_divided_alike(n: int, fraction: float, seed: int) -> None:
    names = np.random.default_rng(n).choice(list("abcd"), n)
    fit, holdout, how = split(rows(n, segments=names), fraction, seed)
    assert how.by == "rows within segments"
    fitted = column_of(fit, "segment")
    for name in "abcd":
        assert fitted.count(name) == int(np.floor(fraction * np.count_nonzero(names == name) + 0.5))
    assert len(fit) + len(holdout) == n


@settings(max_examples=examples(48), deadline=None)
@given(st.integers(20, 300), st.floats(0.2, 0.8), st.integers(1, 60), st.booleans())
def test_the_older_rows_are_fitted_on(n: int, fraction: float, moments: int, grouped: bool) -> None:
    """Rows of one moment, and all rows of a group that is not over by then, are held out together."""
    rng = np.random.default_rng(n)
    times = 10**9 + rng.integers(0, moments + 1, n)
    times[0], times[1:4] = 10**9 + moments + 1, 10**9
    groups = rng.integers(0, n, n) if grouped else None
    scores = rng.random(n)
    try:
        fit, holdout, how = split(sample_of(scores, groups=groups, times=times), fraction, 0)
    except GateError:  # one moment or group alone can hold more than the fraction
        assume(False)
    assert how.by == ("groups by time" if grouped else "rows by time")
    assert how.cut is not None
    cut = np.datetime64(how.cut.removesuffix("Z"), "us").astype(np.int64)
    assert len(fit) <= fraction * n
    assert max(column_of(fit, "time")) < cut
    if grouped:
        assert not {*column_of(fit, "grp")} & {*column_of(holdout, "grp")}
    else:
        assert min(column_of(holdout, "time")) == cut
        assert np.count_nonzero(times * 10**6 <= cut) > fraction * n - 1, "another moment would have been too many"
    order = rng.permutation(n)
    again = sample_of(scores[order], groups=None if groups is None else groups[order], times=times[order])
    assert split(again, fraction, 1)[0].fingerprint == fit.fingerprint, "time decides, not the order of rows"


# --- copies stay together -----------------------------------------------------------------------------------------


@settings(max_examples=examples(48), deadline=None)
@given(st.integers(8, 60), st.integers(0, 60), st.floats(0.2, 0.8), st.integers(0, 2**32), st.booleans())
def test_copies_of_a_row_are_on_its_side(items: int, again: int, fraction: float, seed: int, named: bool) -> None:
    """By their id they count once; equal in every column, they are all there, on one side."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.concatenate([np.arange(items), rng.integers(0, items, again)]))
    prompts = [f"prompt {i}" for i in drawn]
    whole = sample_of(drawn / items, ids=prompts) if named else sample_of(drawn / items, others={"prompt": prompts})
    try:
        fit, holdout, _ = split(whole, fraction, seed)
    except GateError:
        assume(False)
    assert not {*column_of(fit)} & {*column_of(holdout)}
    assert len(fit) + len(holdout) == (items if named else items + again)
    if named:
        assert whole.repeated == again
        assert (fit.repeated or 0) + (holdout.repeated or 0) == again
        for part in (fit, holdout):
            own = {*column_of(part, "id")}
            assert part.repeated == sum(prompt in own for prompt in prompts) - len(own)
    else:
        assert whole.copied == again
        assert fit.shared(holdout, "whole") == (0, 0)


# --- what is of no account ----------------------------------------------------------------------------------------


@settings(max_examples=examples(36), deadline=None)
@given(st.integers(20, 200), st.floats(0.2, 0.8), st.integers(0, 2**70), st.booleans(), st.booleans(), st.booleans())
def test_the_order_of_named_rows_and_the_memory_are_of_no_account(
    n: int, fraction: float, seed: int, grouped: bool, segmented: bool, whole: bool
) -> None:
    rng = np.random.default_rng(n)
    columns: dict[str, Any] = {"groups": rng.integers(0, n // 3, n)} if grouped else {}
    columns |= {"segments": rng.choice(list("abc"), n)} if segmented else {}
    names = np.array([f"row {i}" for i in range(n)], dtype=object)
    scores, order = rng.random(n), rng.permutation(n)

    def made(at: np.ndarray) -> Sample:
        beside = {"others": {"text": names[at]}} if whole else {"ids": names[at]}
        return sample_of(scores[at], **beside, **{key: column[at] for key, column in columns.items()})

    def divided(at: np.ndarray) -> list[list[Any]]:
        return [sorted(column_of(part)) for part in split(made(at), fraction, seed)[:2]]

    try:
        expected = divided(np.arange(n))
    except GateError:
        assume(False)
    assert divided(order) == expected
    with asked_in_parts():
        assert divided(order) == expected
    with using(memory=1):
        assert divided(np.arange(n)) == expected


def test_the_format_is_of_no_account(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            "score": rng.random(500),
            "id": [f"r{i}" for i in range(500)],
            "g": [str(i % 90) for i in range(500)],
            "s": [("de", "en")[i // 90 % 2] for i in range(500)],
        }
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for columns in (
        Columns(),
        Columns(id="id"),
        Columns(group="g"),
        Columns(id="id", segment="s"),
        Columns(segment="s"),
    ):
        found = set()
        for form in ("parquet", "csv", "jsonl"):
            parts = split(read([str(tmp_path / f"a.{form}")], columns, (0.0, 1.0)), 0.3, 5)[:2]
            found.add(tuple(part.fingerprint for part in parts))
        assert len(found) == 1, columns


def test_rows_without_names_are_drawn_by_their_number_in_their_file(tmp_path: Path) -> None:
    """The order in which the files are named is of no account."""
    values = np.random.default_rng(3).uniform(size=1000)
    for name, part in (("a", values[:400]), ("b", values[400:])):
        np.save(tmp_path / f"{name}.npy", part)
    digests = set()
    for names in (("a", "b"), ("b", "a")):
        scores = read([str(tmp_path / f"{name}.npy") for name in names], Columns(), (0.0, 1.0))
        digests.add(tuple(part.fingerprint for part in split(scores, 0.3, 5)[:2]))
    assert len(digests) == 1


def test_another_seed_divides_otherwise() -> None:
    whole = rows(100)
    assert split(whole, 0.5, 0)[0].fingerprint != split(whole, 0.5, 1)[0].fingerprint


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "fraction", "groups"), [(10, 0.05, None), (10, 0.95, None), (50, 0.5, np.zeros(50, int))]
)
def test_a_side_without_rows_is_refused(n: int, fraction: float, groups: np.ndarray | None) -> None:
    with pytest.raises(GateError, match=r"^--split: must leave at least 2 benign rows on each side, got "):
        split(rows(n, groups=groups), fraction, 0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_what_is_no_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(GateError, match=r"^--split: must be a fraction between 0 and 1, got .*; write 0\.3"):
        split(rows(50), fraction, 0)


# --- chances --------------------------------------------------------------------------------------------------------


def test_every_group_has_the_same_chance_whatever_its_size() -> None:
    """Large groups used to be passed over where they would have exceeded the fraction: 24 % of their rows for 30 %."""
    sizes = np.concatenate([np.full(3, 60), np.full(60, 2)])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    whole = sample_of(groups / 100, groups=groups, segments=np.repeat(np.arange(len(sizes)) % 4, sizes))
    draws, large, small = 250, 0, 0
    for seed in range(draws):
        taken = {int(name) for name in column_of(split(whole, 0.3, seed)[0], "grp")}
        large, small = large + sum(group < 3 for group in taken), small + sum(group >= 3 for group in taken)
    assert abs(large / (3 * draws) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / (3 * draws))
    assert abs(small / (60 * draws) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / (60 * draws))


def test_the_hashes_divide_evenly() -> None:
    """Any two rows are held out together as often as chance has it, so that no pattern of numbers shows."""
    whole = sample_of(np.arange(64) / 64)
    drawn = np.zeros((400, 64))
    for seed in range(len(drawn)):
        drawn[seed, [round(score * 64) for score in column_of(split(whole, 0.25, seed)[0])]] = 1
    together = drawn.T @ drawn / len(drawn)
    pairs = together[np.triu_indices(64, 1)]
    expected = (16 / 64) * (15 / 63)
    assert np.abs(pairs - expected).max() < 5.5 * np.sqrt(expected * (1 - expected) / len(drawn))
