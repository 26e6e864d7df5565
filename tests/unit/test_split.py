"""One benign sample divided here: repeatable, complete, and with the rows of a group on one side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.policy import Columns
from gate.scores import Scores, read, split
from gate.scores.split import _by_hash as rule_of
from gate.sources import Split


def sample(n: int, groups: np.ndarray | None = None) -> Scores:
    return Scores(np.random.default_rng(1).uniform(size=n), (), groups, pa.array([f"row {i}" for i in range(n)]))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(10, 500), st.floats(0.2, 0.8), st.integers(0, 2**32))
def test_every_row_is_on_exactly_one_side(n: int, fraction: float, seed: int) -> None:
    scores = sample(n)
    fit, holdout, how = split(scores, fraction, seed)
    assert len(fit) == round(fraction * n)
    assert sorted(np.concatenate([fit.values, holdout.values])) == sorted(scores.values)
    assert sorted(fit.ids.to_pylist() + holdout.ids.to_pylist()) == sorted(scores.ids.to_pylist())
    assert how == Split(fraction=fraction, seed=seed, by="rows")
    again = split(scores, fraction, seed)
    assert np.array_equal(again[0].values, fit.values)
    assert again[1].rows_sha256 == holdout.rows_sha256 != fit.rows_sha256


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(5, 60), st.floats(0.3, 0.7), st.integers(0, 2**32))
def test_the_rows_of_a_group_stay_together(groups: int, fraction: float, seed: int) -> None:
    """And the fit side has the fraction of groups that was asked for, to the whole one below or above."""
    numbers = np.random.default_rng(groups).integers(0, groups, 20 * groups)
    numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    scores = sample(len(numbers), numbers)
    fit, holdout, how = split(scores, fraction, seed)
    sides = {id_: side for side, part in enumerate((fit, holdout)) for id_ in part.ids.to_pylist()}
    for number in np.unique(numbers):
        assert len({sides[f"row {i}"] for i in np.flatnonzero(numbers == number)}) == 1
    assert how.by == "groups"
    assert abs(len(fit.group_sizes) - fraction * len(scores.group_sizes)) < 1
    assert sorted([*fit.group_sizes, *holdout.group_sizes]) == sorted(scores.group_sizes)
    assert fit.group_sizes.min() > 0


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(20, 500), st.floats(0.2, 0.8), st.integers(0, 2**32))
def test_every_segment_is_divided_alike(n: int, fraction: float, seed: int) -> None:
    segments = np.sort(np.random.default_rng(n).integers(0, 4, n)).astype(np.int32)
    scores = replace(sample(n), segments=segments, segment_names=("a", "b", "c", "d"))
    fit, holdout, how = split(scores, fraction, seed)
    assert how.by == "rows within segments"
    for segment in range(4):
        assert fit.segments is not None
        assert np.count_nonzero(fit.segments == segment) == round(fraction * np.count_nonzero(segments == segment))
    assert len(fit) + len(holdout) == n


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(20, 500), st.floats(0.2, 0.8), st.integers(1, 60), st.booleans())
def test_the_older_rows_are_fitted_on(n: int, fraction: float, moments: int, grouped: bool) -> None:
    """Rows of one moment, and all rows of a group that is not over by then, are held out together."""
    rng = np.random.default_rng(n)
    times = rng.integers(0, moments + 1, n) * 10**6
    times[0], times[1:4] = 10**6 * (moments + 1), 0
    groups = np.unique(rng.integers(0, n, n), return_inverse=True)[1].astype(np.int64) if grouped else None
    scores = replace(sample(n, groups), timestamps=times)
    try:
        fit, holdout, how = split(scores, fraction, 0)
    except GateError:  # one moment or group alone can hold more than the fraction
        assume(False)
    assert how.by == ("groups by time" if grouped else "rows by time")
    assert how.cut is not None
    cut = np.datetime64(how.cut.removesuffix("Z"), "us").astype(np.int64)
    assert len(fit) <= fraction * n
    assert fit.timestamps is not None
    assert holdout.timestamps is not None
    assert fit.timestamps.max() < cut
    if not grouped:
        assert holdout.timestamps.min() == cut
        nearly = np.count_nonzero(times <= cut)
        assert nearly > fraction * n - 1, "another moment would have been too many"
    shuffled = rng.permutation(n)
    again = Scores(
        scores.values[shuffled], (), None if groups is None else groups[shuffled], timestamps=times[shuffled]
    )
    assert split(again, fraction, 1)[0].sha256 == fit.sha256, "time decides, not the order of rows"


def test_another_seed_divides_otherwise() -> None:
    assert not np.array_equal(split(sample(100), 0.5, 0)[0].values, split(sample(100), 0.5, 1)[0].values)


@pytest.mark.parametrize(
    ("n", "fraction", "groups"), [(10, 0.05, None), (10, 0.95, None), (50, 0.5, np.zeros(50, int))]
)
def test_a_side_without_rows_is_refused(n: int, fraction: float, groups: np.ndarray | None) -> None:
    with pytest.raises(GateError, match=r"^--split: must leave at least 2 benign rows on each side, got "):
        split(sample(n, groups), fraction, 0)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(20, 300), st.floats(0.2, 0.8), st.integers(0, 2**70), st.booleans(), st.booleans())
def test_the_order_of_named_rows_is_of_no_account(
    n: int, fraction: float, seed: int, grouped: bool, segmented: bool
) -> None:
    rng = np.random.default_rng(n)
    groups = np.unique(rng.integers(0, n // 3, n), return_inverse=True)[1].astype(np.int64) if grouped else None
    scores = sample(n, groups)
    if segmented:
        scores = replace(scores, segments=rng.integers(0, 3, n).astype(np.int32), segment_names=("a", "b", "c"))
    shuffled = rng.permutation(n)
    again = replace(
        scores,
        values=scores.values[shuffled],
        groups=None if groups is None else groups[shuffled],
        ids=scores.ids.take(pa.array(shuffled)),
        segments=None if scores.segments is None else scores.segments[shuffled],
    )
    try:
        fit, holdout, _ = split(scores, fraction, seed)
    except GateError:
        assume(False)
    other = split(again, fraction, seed)
    assert (other[0].rows_sha256, other[1].rows_sha256) == (fit.rows_sha256, holdout.rows_sha256)


def test_rows_without_names_are_drawn_by_their_number_over_the_files_in_the_order_of_names(tmp_path: Path) -> None:
    values = np.random.default_rng(3).uniform(size=1000)
    for name, part in (("a", values[:400]), ("b", values[400:]), ("whole", values)):
        np.save(tmp_path / f"{name}.npy", part)
    digests = set()
    for names in (("a", "b"), ("b", "a"), ("whole",)):
        scores = read([str(tmp_path / f"{name}.npy") for name in names], Columns(), (0.0, 1.0))
        digests.add(tuple(part.sha256 for part in split(scores, 0.3, 5)[:2]))
    assert len(digests) == 1


def test_every_group_has_the_same_chance_whatever_its_size() -> None:
    """Large groups used to be passed over where they would have exceeded the fraction: 24 % of their rows for 30 %."""
    sizes = np.concatenate([np.full(6, 200), np.full(150, 2)])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    segments = np.repeat(np.arange(len(sizes)) % 4, sizes).astype(np.int32)
    draws, large, small = 2_000, 0, 0
    for seed in range(draws):
        scores = Scores(np.zeros(len(groups)), (), groups, segments=segments, segment_names=("a", "b", "c", "d"))
        taken = np.unique(groups[rule_of(scores, 0.3, seed).fitted(scores)])
        large, small = large + int(np.count_nonzero(taken < 6)), small + int(np.count_nonzero(taken >= 6))
    assert abs(large / (6 * draws) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / (6 * draws))
    assert abs(small / (150 * draws) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / (150 * draws))


def test_the_hashes_divide_evenly() -> None:
    """Any two rows are held out together as often as chance has it, so that no pattern of numbers shows."""
    scores = Scores(np.zeros(64))
    drawn = np.array([rule_of(scores, 0.25, seed).fitted(scores) for seed in range(3_000)], dtype=float)
    together = drawn.T @ drawn / len(drawn)
    pairs = together[np.triu_indices(64, 1)]
    expected = (16 / 64) * (15 / 63)
    assert np.abs(pairs - expected).max() < 5 * np.sqrt(expected * (1 - expected) / len(drawn))
