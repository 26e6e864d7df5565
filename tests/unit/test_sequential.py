"""Bounds that hold at every look: equal to exact arithmetic, nested, and kept however often one looks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.sequential import decided, looks, promised
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.statistics.binomial import Band, critical_counts
from gate.statistics.sequential import LEAST_RATE, STEPS, SequentialBand, SequentialTails

ALPHA = Fraction(1, 20)
rates = st.fractions(Fraction(1, 10**6), Fraction(9, 10), max_denominator=10**6)
tolerances = st.sampled_from([Fraction(1, 20), Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(3)])


@st.composite
def counted(draw: st.DrawFn, most: int = 10**10) -> tuple[int, int]:
    n = draw(st.integers(1, most))
    return draw(st.one_of(st.integers(0, n), st.sampled_from([0, n]))), n


def mean_ratio(k: int, n: int, c: Fraction, alternatives: list[Fraction]) -> Fraction:
    ratios = ((a / c) ** k * ((1 - a) / (1 - c)) ** (n - k) for a in alternatives)
    return sum(ratios, Fraction(0)) / len(alternatives)


@settings(max_examples=examples(60), deadline=None)
@given(rates, tolerances, tolerances, rates, counted(most=60))
def test_the_chances_equal_exact_arithmetic(
    p: Fraction, above: Fraction, below: Fraction, c: Fraction, counts: tuple[int, int]
) -> None:
    """The alternatives as they are defined, with fractions, at an edge anywhere."""
    k, n = counts
    high = p * (1 + above)
    low = p * (1 - below) if below < 1 else p / (1 + above)
    upper = [min(Fraction(1), c / high) * (p + step * (high - p)) for step in STEPS]
    lower = [min((1 + c) / 2, max(Fraction(1), c / low) * (p + step * (low - p))) for step in STEPS]
    tails = SequentialTails(above, below)
    for found, alternatives in ((tails.few, upper), (tails.many, lower)):
        exact = min(Fraction(1), 1 / ratio) if (ratio := mean_ratio(k, n, c, alternatives)) else Fraction(1)
        assert float(found(k, n, float(c), float(p))) == pytest.approx(float(exact), rel=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(rates, tolerances, tolerances, counted())
def test_bounds_are_where_rejection_begins(
    p: Fraction, above: Fraction, below: Fraction, counts: tuple[int, int]
) -> None:
    """Rates a little beyond a bound are rejected, and rates a little inside are not; the ends 0 and 1 are exact."""
    k, n = counts
    band = SequentialBand.around(p, above, below, ALPHA)
    low, high = band.interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert (low == 0) == (k == 0 or band.many(k, n, LEAST_RATE) > 0.025)  # or no rate that a float has is rejected
    assert high == 1 or k < n
    if high < 1 - 2e-6:
        assert band.few(k, n, high * (1 + 1e-6)) <= 0.025
        assert band.few(k, n, high * (1 - 1e-6)) > 0.025 or high == pytest.approx(k / n)
    if low > 0:
        assert band.many(k, n, low * (1 - 1e-6)) <= 0.025
        assert low >= 1 - 1e-9 or band.many(k, n, min(low * (1 + 1e-6), (1 + low) / 2)) > 0.025


@settings(max_examples=examples(60), deadline=None)
@given(rates, tolerances, tolerances, counted())
def test_grades_compare_the_bounds_with_the_band(
    p: Fraction, above: Fraction, below: Fraction, counts: tuple[int, int]
) -> None:
    """Proven inside, refuted outside, by the same four questions that a fixed number of rows answers."""
    k, n = counts
    band = SequentialBand.around(p, above, below, ALPHA)
    low, high = band.interval(k, n)
    edges = float(band.low), float(band.high)
    near = any(abs(bound - edge) <= 1e-8 * edge for bound in (low, high) for edge in edges)
    if near:
        return
    assert band.proves_high(k, n) == (band.high >= 1 or high <= edges[1])
    assert band.proves_low(k, n) == (band.low <= 0 or low >= edges[0])
    assert band.refutes_high(k, n) == (band.high < 1 and low > edges[1])
    assert band.refutes_low(k, n) == (band.low > 0 and high < edges[0])
    assert (band.tail_above(k, n) < 0.025) == band.refutes_high(k, n)
    assert (band.tail_below(k, n) < 0.025) == band.refutes_low(k, n)


@settings(max_examples=examples(30), deadline=None)
@given(rates, tolerances, tolerances, st.integers(1, 3000))
def test_critical_counts_are_those_of_every_count_tried(p: Fraction, above: Fraction, below: Fraction, n: int) -> None:
    band = SequentialBand.around(p, above, below, ALPHA)
    found = critical_counts(n, band)
    counts = range(n + 1)
    proven = [k for k in counts if band.proves_low(k, n) and band.proves_high(k, n)]
    assert found.proven == ((proven[0], proven[-1]) if proven else None)
    assert proven == list(range(proven[0], proven[-1] + 1)) if proven else True
    assert found.refuted_at_or_below == max((k for k in counts if band.refutes_low(k, n)), default=None)
    assert found.refuted_at_or_above == min((k for k in counts if band.refutes_high(k, n)), default=None)


@settings(max_examples=examples(40), deadline=None)
@given(rates, tolerances, tolerances, st.integers(1, 10**10))
def test_a_look_is_never_proven_by_fewer_counts_than_needed(
    p: Fraction, above: Fraction, below: Fraction, n: int
) -> None:
    """What holds at every look asks for more than what holds at one: its accepted counts lie inside the others."""
    once = critical_counts(n, Band.around(p, above, below, ALPHA))
    ever = critical_counts(n, SequentialBand.around(p, above, below, ALPHA))
    if ever.proven is not None:
        assert once.proven is not None
        assert once.proven[0] <= ever.proven[0] <= ever.proven[1] <= once.proven[1]


def test_a_thousand_points_are_bounded_at_once() -> None:
    """Each bound of an array is the bound of its element."""
    p = np.geomspace(0.1, 0.001, 1000)
    tails = SequentialTails(Fraction(1, 2), Fraction(1, 2))
    k = np.round(p * 10**6)
    high, low = tails.upper(k, 10**6, p, 0.025), tails.lower(k, 10**6, p, 0.025)
    for i in (0, 499, 999):
        assert high[i] == float(tails.upper(k[i], 10**6, p[i], 0.025))
        assert low[i] == float(tails.lower(k[i], 10**6, p[i], 0.025))
    assert np.all(low < k / 10**6)
    assert np.all(k / 10**6 < high)


# --- what the simulations say, with few paths; tests/benchmarks/sequential.py has many ------------------------

PATHS = 3000


@pytest.mark.parametrize("multiple", [1.5, 0.5])
def test_fifty_looks_prove_a_bad_release_as_rarely_as_one(multiple: float) -> None:
    """At an edge of the tolerance at most alpha/2 is ever proven, and looks with fixed bounds are far beyond it."""
    at = looks(50)
    error = 3 * math.sqrt(0.025 * 0.975 / PATHS)
    ever = decided(SequentialBand, multiple, at, PATHS)
    assert ever.proven <= 0.025 + error
    assert ever.refuted <= 0.025 + error
    assert decided(Band, multiple, at, PATHS).proven > 0.05


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("multiple", "grade", "share"), promised())
def test_off_centre_releases_are_decided(multiple: float, grade: str, share: float) -> None:
    """In a million rows: 1.3 times the target, inside the tolerance, is proven, and 0.3 times it is refuted."""
    found = decided(SequentialBand, multiple, looks(150, 10**6), 1000)
    assert getattr(found, grade) >= share - 3 * math.sqrt(share * (1 - share) / 1000) - 1e-9


def test_the_rows_at_the_target() -> None:
    """Half of the sound releases are proven with about 48,000 rows, where the fixed plan needs 97,826."""
    found = decided(SequentialBand, 1.0, looks(150, 10**6), 1000)
    assert found.proven >= 0.99
    assert 44_000 <= found.median <= 52_000
