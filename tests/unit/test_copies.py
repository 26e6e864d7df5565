"""Copies by pairs, against a plain count of every value: across, within, expected by chance, evenly divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, sample_of

from gate.rows import copies
from gate.rows.copies import SharedPairs, count_pairs, pairs_of, pairs_of_halves
from gate.rows.ordered import Sorted, sort, sort_counted

VALUES = st.lists(st.sampled_from([0.0, -0.0, 5e-324, 0.1, 0.2, np.nextafter(0.2, 1), 0.3, 0.5, 1.0]), max_size=30)
ENDS = [0.0, 1 / 3]  # so that every sample has two rows, and none is of float32


def pairs_in(parts: Iterable[Sorted]) -> SharedPairs:
    first, second = parts
    return count_pairs(first, second)


def check(found: SharedPairs, fit: list[float], held: list[float]) -> None:
    """Every number that needs no chance is that of a plain count."""
    of_fit, of_held = Counter(value + 0.0 for value in fit), Counter(value + 0.0 for value in held)
    values = {*of_fit} | {*of_held}
    pairs = [(of_fit[value], of_held[value]) for value in values]
    assert found.rows == len(fit) + len(held)
    assert found.single == sum(a + b == 1 for a, b in pairs)
    assert found.within == (pairs.count((2, 0)), pairs.count((0, 2)))
    assert found.across == pairs.count((1, 1))
    assert found.total == sum(a + b == 2 for a, b in pairs)
    assert found.tied == sum(a + b for a, b in pairs if a + b > 2)
    assert found.one_of == 1
    assert sum(found.expected) == pytest.approx(found.total)
    n, m = len(fit), len(held)
    ways = (n + m) * (n + m - 1)  # so few rows are one stratum
    chances = 2 * n * m / ways, n * (n - 1) / ways, m * (m - 1) / ways
    assert found.expected == pytest.approx([found.total * chance for chance in chances])


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, VALUES)
def test_pairs_are_those_found_one_by_one(fit: list[float], held: list[float]) -> None:
    fit, held = fit + ENDS, held + ENDS
    check(pairs_in(Sorted(sort(np.array(part))) for part in (fit, held)), fit, held)
    counted = [sort_counted(np.array(part), np.ones(len(part), dtype=np.int64)) for part in (fit, held)]
    check(pairs_in(counted), fit, held)


@settings(max_examples=examples(36), deadline=None)
@given(VALUES, VALUES, st.booleans(), st.booleans())
def test_pairs_of_samples_are_the_same_wherever_their_rows_are(
    fit: list[float], held: list[float], divided: bool, weighted: bool
) -> None:
    fit, held = fit + ENDS, held + ENDS
    with asked_in_parts(2) if divided else nullcontext():
        samples = []
        for part in (fit, held):
            if weighted:
                values, counts = np.unique(np.array(part) + 0.0, return_counts=True)
                samples.append(sample_of(values, weights=counts))
            else:
                samples.append(sample_of(part))
        check(pairs_of(*samples), fit, held)


@settings(max_examples=examples(24), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([4, 6, 17]), st.booleans())
def test_of_many_rows_some_values_are_looked_at_with_all_their_rows(seed: int, digits: int, single: bool) -> None:
    """The same values in memory and divided, in either order of the samples."""
    rng = np.random.default_rng(seed)
    fit, held = (np.round(rng.beta(0.5, 8, n), digits) for n in (700, 500))
    held = held.astype(np.float32).astype(np.float64) if single else held
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "ENOUGH", 300)
        found = pairs_of(sample_of(fit), sample_of(held))
        assert found.one_of == 5
        with asked_in_parts(16):
            assert pairs_of(sample_of(fit), sample_of(held)) == found
        back = pairs_of(sample_of(held), sample_of(fit))
    assert (back.across, back.within, back.single) == (found.across, found.within[::-1], found.single)
    if single:
        fit = fit.astype(np.float32).astype(np.float64)
    whole = count_pairs(Sorted(sort(fit)), Sorted(sort(held)))
    assert found.across <= whole.across
    assert all(part <= of for part, of in zip(found.within, whole.within, strict=True))


def test_a_float32_sample_is_compared_as_float32() -> None:
    """Otherwise not one copy would show."""
    values = np.random.default_rng(1).random(2_000)
    again = values[:600].astype(np.float32).astype(np.float64)
    found = pairs_of(sample_of(values), sample_of(np.concatenate([again, np.float32(1 - values[600:700])])))
    assert found.across >= 590


# --- what chance does -------------------------------------------------------------------------------------------


@pytest.mark.each_run(2)
@pytest.mark.parametrize("share", [0.5, 0.2, 0.9])
def test_what_chance_puts_across_is_the_mean_of_random_divisions(share: float) -> None:
    """In strata, so also where the samples differ in where their scores lie."""
    rng = np.random.default_rng(round(10 * share))
    values = np.concatenate([np.repeat(rng.random(2_000), 2), rng.random(4_000)])
    across, expected, evens = [], [], []
    for _ in range(often(40, 200)):
        held = rng.random(len(values)) < share
        found = pairs_in(Sorted(sort(values[side])) for side in (~held, held))
        across.append(found.across)
        expected.append(found.expected[0])
    assert np.mean(across) == pytest.approx(np.mean(expected), abs=5 * np.std(across) / len(across) ** 0.5 + 1)
    for _ in range(often(20, 100)):
        tied = np.repeat(rng.random(1_000), 4)
        held = rng.random(len(tied)) < share
        evens.append(pairs_in(Sorted(sort(tied[side])) for side in (~held, held)).even)
    assert np.mean(np.array(evens) <= 0.05) <= 0.15
    assert min(evens) > 1e-5


def test_values_that_every_sample_has_alike_are_divided_too_evenly() -> None:
    values = np.repeat(np.random.default_rng(3).random(1_000), 2)
    found = pairs_in(Sorted(sort(values)) for _ in range(2))
    assert (found.tied, found.total) == (4_000, 0)
    assert found.even < 1e-20


# --- halves -------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]), min_size=4, max_size=60), st.booleans())
def test_the_halves_are_the_first_rows_and_the_last(scores: list[float], divided: bool) -> None:
    with asked_in_parts(2) if divided else nullcontext():
        found = pairs_of_halves(sample_of(scores), 1)
    assert found is not None
    half = len(scores) // 2
    parts = [Sorted(sort(np.array(part))) for part in (scores[:half], scores[half:])]
    whole = pairs_in(parts)
    assert (found.across, found.within, found.single, found.tied) == (
        whole.across,
        whole.within,
        whole.single,
        whole.tied,
    )
