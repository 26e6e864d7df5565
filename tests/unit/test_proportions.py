"""Tests and intervals for two proportions against golden numbers, exact enumeration and what defines them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.statistics.clusters import korn_graubard
from gate.statistics.proportions import (
    Pairs,
    difference_interval,
    fisher,
    mcnemar,
    paired_interval,
    ratio_interval,
    wilson,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
DIGITS = 5e-12  # the golden intervals have twelve decimals

counts = st.integers(0, 40)
tables = st.builds(Pairs, counts, counts, counts, counts).filter(lambda pairs: pairs.rows > 0)
alphas = st.sampled_from([1e-20, 0.001, 0.05, 0.1, 0.5])


@pytest.mark.parametrize("case", GOLDEN["mcnemar_exact"], ids=lambda c: f"{c['new_only']}-{c['old_only']}")
def test_mcnemar_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    assert mcnemar(case["new_only"], case["old_only"]) == pytest.approx(case["p_value"], rel=1e-8)


@pytest.mark.parametrize("case", GOLDEN["newcombe_unpaired"], ids=lambda c: str(c["n1"]))
def test_the_unpaired_interval_and_fishers_test_equal_the_golden_numbers(case: dict[str, Any]) -> None:
    numbers = case["k1"], case["n1"], case["k2"], case["n2"]
    assert difference_interval(*numbers, 0.05) == pytest.approx(case["interval"], abs=DIGITS)
    if "fisher_p" in case:
        assert fisher(*numbers) == pytest.approx(case["fisher_p"], rel=1e-9)


@pytest.mark.parametrize("case", GOLDEN["newcombe_paired"], ids=lambda c: str(c["both"]))
def test_the_paired_interval_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    pairs = Pairs(case["both"], case["first_only"], case["second_only"], case["neither"])
    assert paired_interval(pairs, 0.05) == pytest.approx(case["interval"], abs=DIGITS)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_twice_the_smaller_exact_tail(new_only: int, old_only: int) -> None:
    flipped = new_only + old_only
    tail = sum(math.comb(flipped, i) for i in range(min(new_only, old_only) + 1))
    assert mcnemar(new_only, old_only) == pytest.approx(min(float(Fraction(2 * tail, 2**flipped)), 1.0), rel=1e-12)


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_fishers_test_sums_every_table_that_is_no_likelier(new_rows: int, old_rows: int, data: st.DataObject) -> None:
    new, old = data.draw(st.integers(0, new_rows)), data.draw(st.integers(0, old_rows))
    terms = {k: math.comb(new_rows, k) * math.comb(old_rows, new + old - k) for k in range(new + old + 1)}
    exact = Fraction(sum(t for t in terms.values() if t <= terms[new]), math.comb(new_rows + old_rows, new + old))
    assert fisher(new, new_rows, old, old_rows) == pytest.approx(float(exact), rel=1e-11)
    assert fisher(old, old_rows, new, new_rows) == pytest.approx(float(exact), rel=1e-11)


def test_fishers_test_keeps_its_digits_at_ten_million_rows() -> None:
    """Against the same sum in 40-digit decimals; logarithms of factorials would lose three digits here."""
    assert fisher(1_000_000, 10**7, 1_001_000, 10**7) == pytest.approx(0.45660716933, rel=1e-10)
    assert fisher(1_000, 10**7, 1_200, 10**7) == pytest.approx(2.17943424861e-5, rel=1e-10)


@given(st.integers(1, 10_000), st.data(), alphas)
def test_each_end_of_the_score_interval_is_z_deviations_from_the_observed_rate(
    n: int, data: st.DataObject, alpha: float
) -> None:
    k, z = data.draw(st.integers(0, n)), -NormalDist().inv_cdf(alpha / 2)
    for end in wilson(k, n, alpha):
        assert 0 <= end <= 1
        assert (k / n - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / n, rel=1e-6, abs=1e-9)


@given(tables, alphas)
def test_exchanging_the_releases_mirrors_both_intervals(pairs: Pairs, alpha: float) -> None:
    swapped = Pairs(pairs.both, pairs.old_only, pairs.new_only, pairs.neither)
    low, high = paired_interval(pairs, alpha)
    assert paired_interval(swapped, alpha) == pytest.approx((-high, -low), abs=1e-12)
    new, old, n = pairs.both + pairs.new_only, pairs.both + pairs.old_only, pairs.rows
    low, high = difference_interval(new, n, old, n, alpha)
    assert difference_interval(old, n, new, n, alpha) == pytest.approx((-high, -low), abs=1e-12)


@given(tables, alphas)
def test_an_interval_holds_the_observed_difference_and_lies_in_its_range(pairs: Pairs, alpha: float) -> None:
    observed = (pairs.new_only - pairs.old_only) / pairs.rows
    new, old, n = pairs.both + pairs.new_only, pairs.both + pairs.old_only, pairs.rows
    for low, high in (paired_interval(pairs, alpha), difference_interval(new, n, old, n, alpha)):
        assert -1 <= low <= observed + 1e-12
        assert observed - 1e-12 <= high <= 1


@pytest.mark.parametrize(("both", "new_only", "old_only"), [(0.7, 0.05, 0.05), (0.85, 0.02, 0.04), (0.3, 0.1, 0.0)])
def test_the_paired_interval_covers_as_often_as_it_says(both: float, new_only: float, old_only: float) -> None:
    """Simulated: a nominal 95 % on 300 rows is not off by more than it is known to be."""
    shares = [both, new_only, old_only, 1 - both - new_only - old_only]
    draws = np.random.default_rng(7).multinomial(300, shares, size=4_000)
    true = new_only - old_only
    ends = [paired_interval(Pairs(*map(float, draw)), 0.05) for draw in draws]
    covered = np.mean([low <= true <= high for low, high in ends])
    assert 0.935 <= covered <= 0.985


def test_flips_that_come_in_groups_are_worth_fewer_rows() -> None:
    """Fifty groups of twenty rows that flip as one are worth about fifty rows; rows that flip alone, about all."""
    rng = np.random.default_rng(3)
    sizes = np.full(50, 20.0)
    for values, expected in (
        (np.repeat(rng.choice([-1.0, 0.0, 1.0], 50, p=[0.2, 0.6, 0.2]), 20), 50),
        (rng.choice([-1.0, 0.0, 1.0], 1000, p=[0.2, 0.6, 0.2]), 1000),
    ):
        flips = values.reshape(50, 20).sum(axis=1)
        spread = float(np.mean(values**2) - np.mean(values) ** 2)
        worth = korn_graubard(sizes, flips, 0.05, spread)
        assert worth == pytest.approx(expected, rel=0.35)


@settings(max_examples=examples(20))
@given(tables, st.floats(0.05, 1.0))
def test_fewer_rows_at_the_same_shares_widen_the_interval(pairs: Pairs, share: float) -> None:
    (low, high), (wide_low, wide_high) = paired_interval(pairs, 0.05), paired_interval(pairs.worth(share), 0.05)
    assert wide_low <= low + 1e-9
    assert high - 1e-9 <= wide_high


# --- ratios -------------------------------------------------------------------------------------------------


@pytest.mark.each_run(2)
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("rate", [0.001, 0.05])
def test_the_ratio_of_two_rates_is_covered(rate: float, ratio: float) -> None:
    """4,000 pairs of counts: 95 % and more of their intervals hold the true ratio, less 4 errors of 0.34 %."""
    rng, rows, runs = np.random.default_rng(round(1000 * ratio)), (60_000, 140_000), 4000
    old, new = rng.binomial(rows[0], rate, runs), rng.binomial(rows[1], rate * ratio, runs)
    ends = np.array([ratio_interval(n, rows[1], o, rows[0], 0.05) for o, n in zip(old, new, strict=True)])
    assert np.mean((ends[:, 0] <= ratio) & (ratio <= ends[:, 1])) >= 0.95 - 4 * (0.95 * 0.05 / runs) ** 0.5


def test_a_ratio_to_nothing_has_no_upper_end() -> None:
    assert ratio_interval(5, 100, 0, 100, 0.05)[1] == math.inf
    assert ratio_interval(0, 100, 5, 100, 0.05)[0] == 0.0
    assert ratio_interval(0, 100, 0, 100, 0.05) == (0.0, math.inf)
