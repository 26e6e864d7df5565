"""Intervals, tails and critical counts against golden numbers and against exact rational arithmetic."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gate.statistics import binomial
from gate.statistics.binomial import CriticalCounts, clopper_pearson, lower_tail, upper_tail

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
R = Fraction


# --- the functions under test, and the same by definition ---------------------------------------------------


def critical(n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> CriticalCounts:
    return binomial.critical_counts(n, binomial.Band.around(fpr, above, below, alpha))


def exact_lower_tails(n: int, p: Fraction) -> list[Fraction]:
    """P(Bin(n, p) <= k) for k = 0..n: the probability mass function, summed without rounding."""
    tails, total = [], R(0)
    for k in range(n + 1):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        tails.append(total)
    return tails


def exact_upper_tails(n: int, p: Fraction) -> list[Fraction]:
    """P(Bin(n, p) >= k) for k = 0..n."""
    lower = exact_lower_tails(n, p)
    return [R(1), *(1 - tail for tail in lower[:-1])]


def exact_grades(n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> list[str]:
    """Every count graded by where its interval lies, through the tails that define the interval's ends."""
    low, high, half = fpr * (1 - below), fpr * (1 + above), alpha / 2
    at_low = (exact_lower_tails(n, low), exact_upper_tails(n, low)) if low > 0 else None
    at_high = (exact_lower_tails(n, high), exact_upper_tails(n, high)) if high < 1 else None
    grades = []
    for k in range(n + 1):
        proven_low = at_low is None or at_low[1][k] <= half
        proven_high = at_high is None or at_high[0][k] <= half
        refuted = (at_low is not None and at_low[0][k] < half) or (at_high is not None and at_high[1][k] < half)
        grades.append("refuted" if refuted else "proven" if proven_low and proven_high else "open")
    return grades


def grades(n: int, found: CriticalCounts) -> list[str]:
    """Every count graded by comparing it with the critical counts."""
    below = -1 if found.refuted_at_or_below is None else found.refuted_at_or_below
    above = n + 1 if found.refuted_at_or_above is None else found.refuted_at_or_above
    proven = found.proven or (1, 0)
    return [
        "refuted" if k <= below or k >= above else "proven" if proven[0] <= k <= proven[1] else "open"
        for k in range(n + 1)
    ]


def is_proven(k: int, n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> bool:
    low, high, half = fpr * (1 - below), fpr * (1 + above), float(alpha / 2) * (1 + 1e-12)
    return (high >= 1 or lower_tail(k, n, float(high)) <= half) and (low <= 0 or upper_tail(k, n, float(low)) <= half)


rates = st.integers(1, 999).map(lambda part: R(part, 1000)) | st.sampled_from([R(1, 2), R(1, 10), R(1, 100)])
small_rates = st.sampled_from([R(1, 10), R(1, 100), R(1, 1000), R(1, 10_000), R(3, 10), R(1, 2), R(9, 10)])
tolerances = st.sampled_from([R("0.05"), R("0.1"), R("0.25"), R("0.5"), R("0.95"), R(1), R(2)])
alphas = st.sampled_from([R("0.05"), R("0.01"), R("0.1"), R("0.5"), R("0.0001")])
sizes = st.integers(0, 33).flatmap(lambda bits: st.integers(max(1, 2**bits // 2), 2**bits))  # spread up to 8e9


# --- intervals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["clopper_pearson"], ids=lambda case: f"{case['k']}/{case['n']}")
def test_intervals_equal_the_golden_numbers(case: dict[str, Any]) -> None:
    """Within 1e-9 of every bound, and exactly at the bounds 0 and 1."""
    found = clopper_pearson(case["k"], case["n"], float(1 - R(str(case["confidence"]))))
    assert found == pytest.approx(case["interval"], rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("k", "n", "alpha", "interval"),
    [
        (10**9, 10**10, 0.05, (0.09999412017381995, 0.1000058800577271)),
        (1000, 10**10, 1e-15, (7.66890747743115e-8, 1.276491113145278e-7)),
        (140, 139_315, 1e-17, (0.0004396214472912698, 0.001924089330642403)),
    ],
)
def test_intervals_hold_where_the_inverse_functions_do_not(
    k: int, n: int, alpha: float, interval: tuple[float, float]
) -> None:
    """Bounds found by bisection with 60 digits; scipy's own inverse misses some by a factor of three."""
    assert clopper_pearson(k, n, alpha) == pytest.approx(interval, rel=1e-9, abs=0)


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-6])
@pytest.mark.parametrize("n", [1, 2, 29, 139_315, 10**10])
def test_no_and_only_false_positives_have_closed_forms(n: int, alpha: float) -> None:
    """k = 0 gives [0, 1 - (alpha/2)^(1/n)], and k = n its mirror image."""
    root = math.log(alpha / 2) / n
    assert clopper_pearson(0, n, alpha) == pytest.approx((0.0, -math.expm1(root)), rel=1e-11, abs=0)
    assert clopper_pearson(n, n, alpha) == pytest.approx((math.exp(root), 1.0), rel=1e-11, abs=0)


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.integers(1, 40), alphas)
def test_interval_ends_solve_their_defining_equations_exactly(data: st.DataObject, n: int, alpha: Fraction) -> None:
    """The exact tail crosses alpha/2 within a relative 1e-11 of each end."""
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n, float(alpha))
    below, above = 1 - R(1, 10**11), 1 + R(1, 10**11)
    if k == 0:
        assert low == 0.0
    else:
        assert exact_upper_tails(n, R(low) * below)[k] < alpha / 2 < exact_upper_tails(n, R(low) * above)[k]
    if k == n:
        assert high == 1.0
    else:
        assert exact_lower_tails(n, min(R(high) * above, R(1)))[k] < alpha / 2
        assert alpha / 2 < exact_lower_tails(n, R(high) * below)[k]


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), sizes, st.floats(1e-12, 0.5), st.floats(0.01, 0.9))
def test_intervals_hold_the_point_and_nest_with_confidence(
    data: st.DataObject, n: int, alpha: float, factor: float
) -> None:
    """More confidence never excludes what less confidence includes."""
    k = data.draw(st.integers(0, n) | st.integers(0, min(n, 50)))
    low, high = clopper_pearson(k, n, alpha)
    wider_low, wider_high = clopper_pearson(k, n, alpha * factor)
    assert 0.0 <= wider_low <= low <= k / n <= high <= wider_high <= 1.0
    assert wider_low < low or k == 0
    assert high < wider_high or high > 1 - 1e-12


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), sizes, alphas)
def test_intervals_rise_with_the_count_and_shrink_with_the_rows(data: st.DataObject, n: int, alpha: Fraction) -> None:
    k = data.draw(st.integers(0, n - 1))
    low, high = clopper_pearson(k, n, float(alpha))
    next_low, next_high = clopper_pearson(k + 1, n, float(alpha))
    assert low < next_low
    assert high < next_high
    more_low, more_high = clopper_pearson(2 * k, 2 * n, float(alpha))
    assert more_high - more_low < high - low


@pytest.mark.parametrize(
    ("case", "share"),
    list(zip(GOLDEN["clusters"], [R(6, 60), R(13, 139_315), R(0)], strict=True)),
    ids=["six", "many", "none"],
)
def test_counts_need_not_be_whole(case: dict[str, Any], share: Fraction) -> None:
    """Clustered rows give an effective sample size, and a real-valued count with it."""
    n = case["n_star"]
    assert clopper_pearson(n * float(share), n, 0.05) == pytest.approx(case["interval"], rel=1e-9, abs=0)


# --- tails --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 80), rates)
def test_tails_equal_exact_sums(n: int, p: Fraction) -> None:
    """Every tail of every count within a relative 1e-11, however small it is."""
    for k, (lower, upper) in enumerate(zip(exact_lower_tails(n, p), exact_upper_tails(n, p), strict=True)):
        assert lower_tail(k, n, float(p)) == pytest.approx(float(lower), rel=1e-11, abs=1e-300)
        assert upper_tail(k, n, float(p)) == pytest.approx(float(upper), rel=1e-11, abs=1e-300)


def test_tails_beyond_the_possible_counts_are_certain_or_impossible() -> None:
    assert [lower_tail(k, 10, 0.3) for k in (-1, 10, 11)] == [0.0, 1.0, 1.0]
    assert [upper_tail(k, 10, 0.3) for k in (-1, 0, 11)] == [1.0, 1.0, 0.0]


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), sizes, small_rates)
def test_tails_of_neighbouring_counts_sum_to_one(data: st.DataObject, n: int, p: Fraction) -> None:
    k = data.draw(st.integers(0, n))
    assert lower_tail(k, n, float(p)) + upper_tail(k + 1, n, float(p)) == pytest.approx(1.0, rel=1e-9)


# --- critical counts ----------------------------------------------------------------------------------------


def golden_id(case: dict[str, Any]) -> str:
    return f"{case['n']}@{case['fpr']}"


@pytest.mark.parametrize("case", GOLDEN["critical_counts"], ids=golden_id)
def test_critical_counts_equal_the_golden_numbers(case: dict[str, Any]) -> None:
    fpr, above, below = (R(str(case[key])) for key in ("fpr", "above", "below"))
    found = critical(case["n"], fpr, above, below, R("0.05"))
    assert found.proven == (None if case["proven"] is None else tuple(case["proven"]))
    assert found.refuted_at_or_below == case["refuted_at_or_below"]
    assert found.refuted_at_or_above == case["refuted_at_or_above"]
    if case["observed"] is not None:  # not given for the one-sided tolerance
        assert found.observed == tuple(case["observed"])


@pytest.mark.parametrize("case", GOLDEN["observed_edges"], ids=golden_id)
def test_a_rate_exactly_on_the_edge_is_inside(case: dict[str, Any]) -> None:
    """33 of 30,000 is +10 % of 0.1 %, although both usual float forms say that it is more."""
    r = R(case["r"])
    found = critical(case["n"], R(case["fpr"]), r, r, R("0.05"))
    assert found.observed == tuple(case["accepts"])
    assert min((33 / 30_000 - 0.001) / 0.001, 33 / 30_000 / 0.001 - 1) > 0.1, "floats no longer show why"


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(1, 40), rates, tolerances, tolerances, alphas)
@example(1, R(1, 2), R("0.95"), R(1), R("0.05"))
@example(2, R(2, 5), R(1, 4), R(1), R(1, 2))
def test_critical_counts_grade_every_count_as_exact_intervals_do(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction
) -> None:
    """No count of any small sample is graded otherwise than by rational arithmetic, ties included."""
    found = critical(n, fpr, above, below, alpha)
    assert grades(n, found) == exact_grades(n, fpr, above, below, alpha)
    inside = [k for k in range(n + 1) if fpr * (1 - below) <= R(k, n) <= fpr * (1 + above)]
    assert found.observed == ((inside[0], inside[-1]) if inside else None)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 400), small_rates, tolerances, tolerances, alphas)
def test_critical_counts_grade_every_count_as_the_printed_intervals_do(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction
) -> None:
    """A report shows interval and tolerance side by side: the grade is what a reader would conclude."""
    low, high = float(max(fpr * (1 - below), R(0))), float(min(fpr * (1 + above), R(1)))
    intervals = [clopper_pearson(k, n, float(alpha)) for k in range(n + 1)]
    ends = [end for interval in intervals for end in interval if 0.0 < end < 1.0]
    assume(all(abs(end - edge) > 1e-12 for end in ends for edge in (low, high)))
    expected = [
        "proven" if low <= lower and upper <= high else "refuted" if lower > high or upper < low else "open"
        for lower, upper in intervals
    ]
    assert grades(n, critical(n, fpr, above, below, alpha)) == expected


@pytest.mark.parametrize(
    ("n", "edge", "alpha"), [(1, R("0.975"), R("0.05")), (2, R("0.5"), R("0.5")), (1, R("0.75"), R("0.5"))]
)
def test_a_tail_equal_to_half_alpha_proves_and_does_not_refute(n: int, edge: Fraction, alpha: Fraction) -> None:
    """The interval then ends exactly on the edge, which belongs to the band."""
    assert exact_lower_tails(n, edge)[0] == exact_upper_tails(n, 1 - edge)[n] == alpha / 2
    upper = critical(n, edge / 2, R(1), R(1), alpha)
    assert upper.proven is not None
    assert upper.proven[0] == 0
    lower = critical(n, edge + (1 - edge) / 2, R(1), 1 - edge / (edge + (1 - edge) / 2), alpha)
    assert lower.refuted_at_or_below is None
    mirrored = critical(n, (1 - edge) / 2, R(1), R(1), alpha)
    assert mirrored.refuted_at_or_above is None


@settings(max_examples=examples(300), deadline=None)
@given(sizes, small_rates, tolerances, tolerances, alphas)
def test_the_rules_are_nested(n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> None:
    """Proven implies observed, and observed implies not refuted."""
    found = critical(n, fpr, above, below, alpha)
    if found.proven is not None:
        assert found.observed is not None
        assert found.observed[0] <= found.proven[0] <= found.proven[1] <= found.observed[1]
    if found.observed is not None:
        assert found.refuted_at_or_below is None or found.refuted_at_or_below < found.observed[0]
        assert found.refuted_at_or_above is None or found.refuted_at_or_above > found.observed[1]
    if found.refuted_at_or_below is not None and found.refuted_at_or_above is not None:
        assert found.refuted_at_or_below < found.refuted_at_or_above - 1


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 300), small_rates, tolerances, tolerances, alphas)
def test_moving_further_from_the_band_never_helps(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction
) -> None:
    """Above the upper edge with more false positives, below the lower edge with fewer."""
    worth = {"refuted": 0, "open": 1, "proven": 2}
    value = [worth[grade] for grade in grades(n, critical(n, fpr, above, below, alpha))]
    for k in range(n):
        if R(k, n) >= fpr * (1 + above):
            assert value[k + 1] <= value[k]
        if R(k + 1, n) <= fpr * (1 - below):
            assert value[k] <= value[k + 1]


@settings(max_examples=examples(200), deadline=None)
@given(sizes, small_rates, tolerances, tolerances, alphas, st.sampled_from([R("0.9"), R("0.5"), R("0.001")]))
def test_more_confidence_decides_no_count_that_less_leaves_open(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction, factor: Fraction
) -> None:
    less, more = critical(n, fpr, above, below, alpha), critical(n, fpr, above, below, alpha * factor)
    assert less.observed == more.observed
    if more.proven is not None:
        assert less.proven is not None
        assert less.proven[0] <= more.proven[0] <= more.proven[1] <= less.proven[1]
    if more.refuted_at_or_below is not None:
        assert less.refuted_at_or_below is not None
        assert more.refuted_at_or_below <= less.refuted_at_or_below
    if more.refuted_at_or_above is not None:
        assert less.refuted_at_or_above is not None
        assert more.refuted_at_or_above >= less.refuted_at_or_above


@settings(max_examples=examples(200), deadline=None)
@given(sizes, small_rates, tolerances, st.sampled_from([R(1), R("1.5"), R(1000)]), alphas)
def test_only_excess_counts_where_the_tolerance_below_is_one_or_more(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction
) -> None:
    """No count is too low, and none at all is proven as soon as (1 - upper edge)^n is at most alpha/2."""
    found = critical(n, fpr, above, below, alpha)
    assert found == critical(n, fpr, above, R(1), alpha)
    assert found.refuted_at_or_below is None
    assert found.observed is not None
    assert found.observed[0] == 0
    high = fpr * (1 + above)
    enough = high >= 1 or n * math.log1p(-float(high)) <= math.log(alpha / 2) + 1e-12
    assert (found.proven is not None) == enough
    assert found.proven is None or found.proven[0] == 0


@settings(max_examples=examples(200), deadline=None)
@given(sizes, st.sampled_from([R(1, 2), R(9, 10), R(1, 10)]), tolerances, alphas)
def test_an_upper_edge_at_or_above_one_is_vacuous(n: int, fpr: Fraction, below: Fraction, alpha: Fraction) -> None:
    """No count is too high, and nothing but false positives is proven once (lower edge)^n is at most alpha/2."""
    found = critical(n, fpr, 1 / fpr - 1, below, alpha)
    assert found == critical(n, fpr, R(1000), below, alpha)
    assert found.refuted_at_or_above is None
    assert found.observed is not None
    assert found.observed[1] == n
    low = fpr * (1 - below)
    enough = low <= 0 or n * math.log(low) <= math.log(alpha / 2) + 1e-12
    assert (found.proven is not None) == enough
    assert found.proven is None or found.proven[1] == n


def test_with_both_edges_vacuous_every_count_is_proven() -> None:
    assert critical(7, R(1, 2), R(1), R(1), R("0.05")) == CriticalCounts((0, 7), (0, 7), None, None)


@pytest.mark.parametrize(
    "case", GOLDEN["operating_characteristic"], ids=lambda case: f"{case['n']}x{case['true_over_target']}"
)
def test_chances_of_the_proven_rule_equal_the_golden_numbers(case: dict[str, Any]) -> None:
    """How often a release with a given true rate is proven and refuted, from the critical counts."""
    n, fpr, r = case["n"], R(str(case["fpr"])), R(str(case["r"]))
    q = float(fpr * R(str(case["true_over_target"])))
    found = critical(n, fpr, r, r, R("0.05"))
    assert found.proven is not None
    assert found.refuted_at_or_below is not None
    assert found.refuted_at_or_above is not None
    kmin, kmax = found.proven
    # From the side of the smaller tail: a difference of two numbers near 1 would lose the digits.
    passes = (
        lower_tail(kmax, n, q) - lower_tail(kmin - 1, n, q)
        if q > fpr
        else upper_tail(kmin, n, q) - upper_tail(kmax + 1, n, q)
    )
    fails = lower_tail(found.refuted_at_or_below, n, q) + upper_tail(found.refuted_at_or_above, n, q)
    assert passes == pytest.approx(case["passes"], rel=1e-6, abs=1e-15)
    assert fails == pytest.approx(case["fails"], rel=1e-6, abs=1e-15)


@settings(max_examples=examples(200), deadline=None)
@given(sizes, small_rates, tolerances, tolerances, alphas)
def test_at_an_edge_either_error_happens_at_most_half_alpha_of_the_time(
    n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction
) -> None:
    """The promise of the gate, exactly: the chance of a false proof and of a false refutation at each edge."""
    found = critical(n, fpr, above, below, alpha)
    limit = float(alpha / 2) * (1 + 1e-9)
    low, high = float(fpr * (1 - below)), float(fpr * (1 + above))
    kmin, kmax = found.proven or (n + 1, -1)
    if high < 1:
        assert lower_tail(kmax, n, high) <= limit
        assert found.refuted_at_or_above is None or upper_tail(found.refuted_at_or_above, n, high) <= limit
    if low > 0:
        assert upper_tail(kmin, n, low) <= limit
        assert found.refuted_at_or_below is None or lower_tail(found.refuted_at_or_below, n, low) <= limit


@pytest.mark.parametrize(
    ("n", "a", "b"), [(10**6, 30.0, 300.0), (5000, 1.2, 40.0), (10**7, 400.0, 3600.0), (400, 9.0, 1.5), (60, 2.0, 90.0)]
)
def test_prediction_intervals_of_any_number_of_rows(
    n: int, a: float, b: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows to fit and ten billion held out: the sum would take more memory than there is."""
    summed = binomial.beta_binomial_quantiles(n, a, b, 0.05)
    assert summed == binomial.beta_binomial(n, a, b).quantiles(0.05)
    monkeypatch.setattr(binomial, "LARGEST_LAW", 0)
    assert binomial.beta_binomial_quantiles(n, a, b, 0.05) == summed
    low, high = (k / 10**10 for k in binomial.beta_binomial_quantiles(10**10, a, b, 0.05))
    assert binomial.beta_cdf(a, b, np.array([low, high])) == pytest.approx([0.025, 0.975], abs=1e-5)
