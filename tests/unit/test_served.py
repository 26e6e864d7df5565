"""Served scores are compared with the release row by row, and the cause of differences is named."""

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
from gate.checks.served import REMEDIES, message, remedy
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


def kinds(found: Served) -> list[str]:
    return [cause.kind for cause in found.causes]


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
    assert sum(cause.rows for cause in found.causes) == found.differ
    assert found.lowest == (expected[differ].min() if differ.any() else None)
    gaps = [abs(s - e) for s, e in zip(served[differ], expected[differ], strict=True) if math.isfinite(s)]
    assert found.largest == max(gaps, default=0.0)
    assert {float(c.score): (c.more, c.fewer) for c in found.crossings} == crossed(calibrator, raw, served)
    text = message(found)
    assert all(cause.words in text for cause in found.causes)
    assert remedy(found) in (*REMEDIES.values(), None)
    assert len(text.splitlines()) == 1


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds)
def test_what_is_served_as_the_release_gives_it_is_equal(seed: int) -> None:
    calibrator, raw = sample(seed)
    found = compare(raw, calibrator.predict(raw), calibrator)
    check(calibrator, raw, calibrator.predict(raw), found)
    assert (found.differ, found.only_rounded, remedy(found)) == (0, True, None)
    assert message(found) == "all 4,000 rows were served the calibrated score that the release gives"


CHANGES: dict[str, tuple[Callable[[Calibrator, np.ndarray], np.ndarray], str]] = {
    "float32-calibrated": (lambda c, x: narrowed(c.predict(x)), "the calibrated score was rounded to float32"),
    "float32-raw": (
        lambda c, x: c.predict(narrowed(x)),
        "the raw score was rounded to float32 before it was calibrated",
    ),
    "float32-both": (
        lambda c, x: narrowed(c.predict(narrowed(x))),
        "raw and the calibrated score were rounded to float32",
    ),
    "float32": (
        lambda c, x: c.pipeline.predict(x.astype(np.float32).reshape(-1, 1)).astype(np.float64),
        "the calibrated score was computed in float32",
    ),
    "decimals": (lambda c, x: np.round(c.predict(x), 3), "the calibrated score was rounded or cut to 3 decimals"),
    "clipped": (lambda c, x: np.clip(c.predict(x), 0.02, 0.3), "clipped to at most 0.3 and at least 0.02"),
    "scaled": (lambda c, x: 100 * c.predict(x), "the calibrated score was multiplied by 100"),
    "scaled-raw": (lambda c, x: c.predict(0.25 * x), "the raw score was multiplied by 0.25 before it was calibrated"),
    "uncalibrated": (lambda c, x: x, "the raw score was served"),
}


@pytest.mark.each_run(2)
@pytest.mark.parametrize("kind", CHANGES)
@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds)
def test_each_way_to_serve_wrongly_is_found_in_its_own_words(kind: str, seed: int) -> None:
    calibrator, raw = sample(seed)
    change, words = CHANGES[kind]
    served = change(calibrator, raw)
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found)[0] == kind
    assert words in message(found)
    assert remedy(found) == REMEDIES[kind]
    assert found.only_rounded == (not found.crossings and kind.startswith(("float32", "decimals")))


@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds)
def test_scores_turned_round_are_called_so(seed: int) -> None:
    calibrator, raw = sample(seed)
    served = 1 - calibrator.predict(raw)
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["scaled"]
    assert "the calibrated score was subtracted from 1" in message(found)


@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds, rounded=st.booleans())
def test_the_calibrator_of_another_release_is_recognised(seed: int, rounded: bool) -> None:
    calibrator, raw = sample(seed)
    low, high = calibrator.settings.domain
    other = fit(
        low + (high - low) * np.random.default_rng(seed + 1).beta(0.7, 6, 20_000), Calibration(domain=(low, high))
    )
    served = narrowed(other.predict(raw)) if rounded else other.predict(raw)
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["other-release"]
    assert "another calibrator was served: scores keep their order and have other values" in message(found)
    assert remedy(found) == REMEDIES["other-release"]


@settings(deadline=None, max_examples=often(5, 12))
@given(seed=seeds, calibrated=st.booleans())
def test_another_column_is_recognised(seed: int, calibrated: bool) -> None:
    calibrator, raw = sample(seed)
    other = np.random.default_rng(seed + 1).permutation(raw)
    served = calibrator.predict(other) if calibrated else other
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["other-column"]
    assert "the served score does not follow from the raw one: another column, or rows in another order" in message(
        found
    )


def test_rounding_at_a_threshold_is_called_rounding_and_its_rows_are_counted() -> None:
    """float32 of 0.7 lies below 0.7 and that of 0.3 above: rows that sit on the thresholds cross one of them."""
    calibrator, _ = sample(3, 10)
    on = {anchor: threshold for anchor, threshold in calibrator.thresholds.items() if threshold is not None}
    raw = np.repeat(list(on.values()), 7)
    served = narrowed(calibrator.predict(raw))
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["float32-calibrated"]
    assert found.crossed >= 7
    assert not found.only_rounded
    assert found.largest < 1e-7
    fewer = next(crossing for crossing in found.crossings if crossing.fewer)
    assert f"7 fewer at {fewer.score} (FPR " in message(found)


def test_raw_scores_logged_in_float32_are_told_from_scores_served_in_it() -> None:
    calibrator, raw = sample(6)
    found = compare(narrowed(raw), calibrator.predict(raw), calibrator)
    assert kinds(found) == ["float32-log"]
    assert "the raw score beside it was rounded to float32 after it was calibrated" in message(found)


@settings(deadline=None, max_examples=examples(20))
@given(seed=seeds, share=st.floats(0.05, 0.45))
def test_two_causes_in_one_sample_are_counted_apart(seed: int, share: float) -> None:
    """Like a fleet in which a part serves an older export and some rows have no score at all."""
    calibrator, raw = sample(seed)
    low, high = calibrator.settings.domain
    rng = np.random.default_rng(seed + 1)
    other = fit(low + (high - low) * rng.beta(0.7, 6, 20_000), Calibration(domain=(low, high)))
    served = narrowed(calibrator.predict(raw))
    old = rng.random(len(raw)) < share
    served[old] = other.predict(raw)[old]
    served[:5] = np.nan
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["missing", "float32-calibrated", "other-release"]
    assert found.causes[0].rows == 5
    assert abs(found.causes[2].rows - np.count_nonzero(old[5:])) <= 3


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_rows_to_say_why_are_said_to_be(rows: int) -> None:
    calibrator, raw = sample(9, 100)
    served = calibrator.predict(raw)
    served[:rows] += 0.0123456789123
    found = compare(raw, served, calibrator)
    check(calibrator, raw, served, found)
    assert kinds(found) == ["unexplained"]


@settings(deadline=None, max_examples=examples(40))
@given(
    pairs=st.lists(
        st.tuples(st.floats(0, 1), st.floats(allow_nan=True, allow_infinity=True, width=64)), min_size=1, max_size=30
    )
)
def test_whatever_is_served_every_row_is_counted_once(pairs: list[tuple[float, float]]) -> None:
    calibrator, _ = sample(0, 10)
    raw, served = (np.array(column) for column in zip(*pairs, strict=True))
    found = compare(raw, served, calibrator)
    assert found.equal + sum(cause.rows for cause in found.causes) == len(raw)
    assert {cause.kind for cause in found.causes} <= REMEDIES.keys()
    assert message(found)
