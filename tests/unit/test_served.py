"""Served scores are compared with the release row by row, and what became of the others is told in four words."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.calibrator import Calibrator
from gate.calibration.fit import fit
from gate.calibration.served import Served, compare
from gate.checks.served import REMEDIES, counted, message, remedy
from gate.policy import Calibration

seeds = st.integers(0, 10_000)


def sample(seed: int, rows: int = 4_000) -> tuple[Calibrator, np.ndarray]:
    """A calibrator, and raw scores of a day that it has not seen, of the same kind."""
    rng = np.random.default_rng(seed)
    low, high = [(0.0, 1.0), (-12.0, 12.0), (0.0, 100.0)][seed % 3]
    benign = low + (high - low) * rng.beta(0.6, 8, 20_000)
    return fit(benign, Calibration(domain=(low, high))), low + (high - low) * rng.beta(0.6, 8, rows)


def narrowed(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64)


def held(raw: np.ndarray, served: np.ndarray, calibrator: Calibrator) -> Served:
    """The comparison of rows that stand for themselves."""
    return compare(raw, served, np.ones(len(raw), np.int64), calibrator)


def crossed(calibrator: Calibrator, raw: np.ndarray, served: np.ndarray) -> dict[float, tuple[int, int]]:
    """The rows that are flagged at each anchor as served or as expected only, one by one."""
    expected = calibrator.predict(raw)
    counts = {}
    for anchor in calibrator.contract.anchors:
        score = float(anchor.score)
        more = sum(s >= score > e for s, e in zip(served, expected, strict=True))
        fewer = sum(e >= score and not s >= score for s, e in zip(served, expected, strict=True))
        if more or fewer:
            counts[score] = (more, fewer)
    return counts


def check(calibrator: Calibrator, raw: np.ndarray, served: np.ndarray, found: Served) -> None:
    """What holds whatever the cause: every row is counted once, and the numbers are those of a plain count."""
    expected = calibrator.predict(raw)
    differ = ~(served == expected)
    assert (found.rows, found.equal) == (len(raw), int(np.count_nonzero(~differ)))
    assert found.missing == sum(not math.isfinite(score) for score in served)
    assert sum(counted(found).values()) == found.differ
    assert (found.cause is None) == (found.missing == found.differ)
    assert found.lowest == (expected[differ].min() if differ.any() else None)
    gaps = [abs(s - e) for s, e in zip(served[differ], expected[differ], strict=True) if math.isfinite(s)]
    assert found.largest == max(gaps, default=0.0)
    assert {float(c.score): (c.more, c.fewer) for c in found.crossings} == crossed(calibrator, raw, served)
    assert remedy(found) in (*REMEDIES.values(), None)
    assert len(message(found).splitlines()) == 1


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds)
def test_what_is_served_as_the_release_gives_it_is_equal(seed: int) -> None:
    calibrator, raw = sample(seed)
    found = held(raw, calibrator.predict(raw), calibrator)
    check(calibrator, raw, calibrator.predict(raw), found)
    assert (found.differ, found.only_rounded, remedy(found)) == (0, True, None)
    assert message(found) == "all 4,000 rows were served the calibrated score that the release gives"


Way = Callable[[Calibrator, np.ndarray], np.ndarray]
ROUNDED: dict[str, Way] = {
    "calibrated": lambda c, x: narrowed(c.predict(x)),
    "raw": lambda c, x: c.predict(narrowed(x)),
    "both": lambda c, x: narrowed(c.predict(narrowed(x))),
    "computed": lambda c, x: c.pipeline.predict(x.astype(np.float32).reshape(-1, 1)).astype(np.float64),
}
OTHERWISE: dict[str, Way] = {
    "decimals": lambda c, x: np.round(c.predict(x), 3),
    "clipped": lambda c, x: np.clip(c.predict(x), 0.02, 0.3),
    "raw scaled": lambda c, x: c.predict(0.25 * x),
    "not calibrated": lambda c, x: x,
    "turned round": lambda c, x: 1 - c.predict(x),
    "another order": lambda c, x: c.predict(x[::-1]),
    "nothing but zero": lambda c, x: np.zeros(len(x)),
    "one row more": lambda c, x: c.predict(x) * 100 + (np.arange(len(x)) == 7),
}


@pytest.mark.each_run(2)
@pytest.mark.parametrize("way", ROUNDED)
@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds)
def test_every_way_to_round_to_float32_is_called_so(way: str, seed: int) -> None:
    calibrator, raw = sample(seed)
    served = ROUNDED[way](calibrator, raw)
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert (found.cause, found.only_rounded, remedy(found)) == ("float32", True, REMEDIES["float32"])
    assert f"rounding to float32 explains what was served ({found.differ:,} rows)" in message(found)


@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds)
def test_raw_scores_logged_in_float32_are_called_so(seed: int) -> None:
    calibrator, raw = sample(seed)
    found = held(narrowed(raw), calibrator.predict(raw), calibrator)
    assert found.cause == "float32"


@pytest.mark.each_run(2)
@pytest.mark.parametrize("way", OTHERWISE)
@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds)
def test_what_neither_float32_nor_a_factor_gives_is_another_score(way: str, seed: int) -> None:
    calibrator, raw = sample(seed)
    served = OTHERWISE[way](calibrator, raw)
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert (found.cause, found.factor, found.only_rounded) == ("other", None, False)
    assert remedy(found) == REMEDIES["other"]


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds, factor=st.floats(-1e6, 1e6).filter(lambda f: abs(f) > 1e-3 and abs(f - 1) > 1e-5), low=st.booleans())
def test_one_factor_is_found_and_named(seed: int, factor: float, low: bool) -> None:
    """Rows at zero stay equal; float32 on the way hides no factor."""
    calibrator, raw = sample(seed)
    served = factor * calibrator.predict(raw)
    served = narrowed(served) if low else served
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert found.cause == "scaled"
    assert found.factor == pytest.approx(factor, rel=1e-6)
    assert f"the calibrated score was multiplied by {found.factor:.6g} (" in message(found)
    assert remedy(found) == REMEDIES["scaled"]


@pytest.mark.parametrize(("scores", "cause"), [(1, "other"), (2, "other"), (3, "scaled")])
def test_a_factor_is_told_from_three_different_scores(scores: int, cause: str) -> None:
    calibrator, raw = sample(9, 100)
    at = np.unique(calibrator.predict(raw), return_index=True)[1][-scores:]
    raw = np.repeat(raw[at], 5)
    found = held(raw, 2 * calibrator.predict(raw), calibrator)
    assert found.cause == cause


def test_rounding_at_a_threshold_is_called_rounding_and_its_rows_are_counted() -> None:
    """float32 of 0.7 lies below 0.7 and that of 0.3 above: rows that sit on the thresholds cross one of them."""
    calibrator, _ = sample(3, 10)
    on = {anchor: threshold for anchor, threshold in calibrator.thresholds.items() if threshold is not None}
    raw = np.repeat(list(on.values()), 7)
    served = narrowed(calibrator.predict(raw))
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert found.cause == "float32"
    assert found.only_rounded
    assert found.crossed >= 7
    assert found.largest < 1e-7
    fewer = next(crossing for crossing in found.crossings if crossing.fewer)
    assert f"7 fewer at {fewer.score} (FPR " in message(found)


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds, most=st.booleans(), nothing=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_rows_without_a_score_are_counted_beside_the_cause_of_the_others(seed: int, most: bool, nothing: float) -> None:
    calibrator, raw = sample(seed)
    served = narrowed(calibrator.predict(raw))
    rows = 3_000 if most else 5
    served[:rows] = nothing
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert (found.missing, found.cause, found.only_rounded) == (rows, "float32", False)
    assert f"no calibrated score was served ({rows:,} rows); rounding to float32 explains" in message(found)
    assert remedy(found) == REMEDIES["missing" if most else "float32"]


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds, way=st.sampled_from([*ROUNDED, *OTHERWISE]))
def test_a_row_that_stands_for_many_counts_as_often(seed: int, way: str) -> None:
    calibrator, raw = sample(seed, 300)
    served = (ROUNDED | OTHERWISE)[way](calibrator, raw)
    served[:3] = np.nan
    weights = np.random.default_rng(seed).integers(1, 9, len(raw))
    many = held(np.repeat(raw, weights), np.repeat(served, weights), calibrator)
    assert compare(raw, served, weights, calibrator) == many


@settings(deadline=None, max_examples=examples(40))
@given(
    pairs=st.lists(
        st.tuples(st.floats(0, 1), st.floats(allow_nan=True, allow_infinity=True, width=64)), min_size=1, max_size=30
    )
)
def test_whatever_is_served_every_row_is_counted_once(pairs: list[tuple[float, float]]) -> None:
    calibrator, _ = sample(0, 10)
    raw, served = (np.array(column) for column in zip(*pairs, strict=True))
    found = held(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert Served.model_validate_json(found.model_dump_json()) == found
