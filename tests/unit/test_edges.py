"""The limits of the arithmetic: samples of one group or none, counts beyond all rows, searches that do not settle."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc

from gate.checks import default_policy
from gate.planning.ranges import corridor_of
from gate.statistics import binomial, clusters, grouped, permutation
from gate.statistics.atoms import rows_to_reach, rows_to_settle
from gate.statistics.binomial import Band, beta_binomial_between, clopper_pearson, hypergeometric
from gate.statistics.clusters import effective_rows, korn_graubard
from gate.statistics.exchangeability import TailScan, scan_counts
from gate.statistics.grouped import Sizes, tails
from gate.statistics.ranges import grid


def test_rows_of_one_group_are_worth_one() -> None:
    assert korn_graubard(np.array([7.0]), np.array([3.0]), 0.05) == 1.0


def test_groups_that_rule_out_no_rate_are_worth_next_to_nothing_to_an_upper_bound() -> None:
    worth = effective_rows(np.array([100.0, 1.0]), np.array([1.0, 0.0]), 1e-12)
    assert worth.high <= 1e-6
    assert 0 < worth.low <= 101


def test_a_saddlepoint_is_sought_in_so_many_steps_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of Newton's steps already give the tails to a hundredth."""
    asked = Sizes(np.array([1.0, 5.0]), np.array([100.0, 40.0])), np.array([4.0, 30.0]), np.array([0.05, 0.05]), 0.1
    settled = tails(*asked)
    monkeypatch.setattr(grouped, "STEPS", 4)
    assert np.allclose(tails(*asked), settled, rtol=0.01)


def test_a_crossing_is_sought_in_sixty_steps_at_most() -> None:
    """For a function that is nearly a step, false position halves its way from one end; the end still brackets it."""
    asked = []

    def value(x: float) -> float:
        asked.append(x)
        return 1e-4 if x < 0.5 else -1e300

    assert 0 <= clusters._crossing(value, 0.0, 1.0) <= 1
    assert len(asked) == 62


def test_a_bound_is_sought_in_a_hundred_steps_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a start that is far off, steps that crawl towards the bound end there, and do not hang."""
    low, steps = clopper_pearson(30, 1000, 0.05)[0], []

    def crawl(_a: float, _b: float, x: float, miss: float) -> float:
        steps.append(x)
        return math.copysign(1e-6 * x, miss)

    monkeypatch.setattr(binomial, "_beta_step", crawl)
    monkeypatch.setattr(binomial, "betaincinv", lambda *_: low / 2)
    assert low / 2 < binomial._beta_quantile(30, 971, 0.025) < low
    assert len(steps) == 100


def test_a_bound_next_to_zero_is_where_the_search_ends() -> None:
    """The quantile underflows: there is no float between it and zero to go on with."""
    assert binomial._beta_quantile(1e-3, 5.0, 0.01) == 0.0


def test_the_correlation_of_groups_and_their_bound_settle_in_twelve_steps_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = iter([0.2, 0.3] * 6)
    monkeypatch.setattr(clusters, "_rate_with_tail", lambda *_: next(bounds))
    effective_rows(np.array([10.0, 10.0, 10.0]), np.array([1.0, 0.0, 2.0]), 0.05)
    assert next(bounds, None) is None


def test_more_groups_than_a_table_holds_are_exchanged_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutation, "MOST_UNITS", 20)
    rng = np.random.default_rng(5)
    sizes, few, many = np.full(60, 4.0), *(rng.binomial(4, rate, (60, 1)).astype(float) for rate in (0.1, 0.6))
    assert permutation.exchange(sizes, few, sizes, many, draws=499).p_value <= 0.01
    assert permutation.exchange(sizes, few, sizes, few[::-1], draws=499).p_value > 0.01


def test_a_count_that_cannot_be_has_no_chance() -> None:
    law = hypergeometric(10, 3, 5)
    assert [law.no_likelier_than(k) for k in (-1, 4)] == [0.0, 0.0]
    assert law.no_likelier_than(0) == pytest.approx(1 / 6)


def test_a_scan_of_no_rank_finds_nothing() -> None:
    assert scan_counts((), 3, 6) == TailScan(1.0, None)


def test_rows_to_reach_a_tied_score_are_those_that_its_rate_leaves_room_for() -> None:
    """A score of half the rate is reached by some rows, in groups by more; one of the rate or above by none."""

    def rank(fpr: Fraction, rows: int) -> Fraction:
        return fpr * rows

    fpr = Fraction(1, 100)
    alone, grouped = (rows_to_reach(5, 1000, fpr, rank, worth) for worth in (None, 300.0))
    assert alone is not None
    assert grouped is not None
    assert 1000 <= alone < grouped
    assert rows_to_reach(10, 1000, fpr, rank) is None
    assert rows_to_reach(9_999_999, 10**9, fpr, rank) is None  # so near that no number of rows in reach would do


def test_scores_that_lie_in_the_band_already_settle_with_no_rows() -> None:
    """What lies above a tied score is proven too little by more rows, and by more yet where they come in groups."""
    band, fpr = Band(Fraction(1, 200), Fraction(3, 200), Fraction(1, 20)), Fraction(1, 100)
    assert rows_to_settle(5, 30, 1000, fpr, band) is None
    assert rows_to_settle(0, 30, 1000, fpr, band) == 1000
    alone, grouped = (rows_to_settle(4, 11, 1000, fpr, band, worth) for worth in (None, 300.0))
    assert alone is not None
    assert grouped is not None
    assert 1000 < alone < grouped
    assert rows_to_settle(4, 10, 1000, fpr, band) is None


@pytest.mark.parametrize(("a", "b"), [(0.5, 3.0), (3.0, 3.0)])
def test_a_sum_too_long_to_add_up_is_integrated(a: float, b: float) -> None:
    """Over all counts the chances add up to one, whether or not the density of the rates has a bound."""
    n, cut = 10**6, 10**5
    parts = [beta_binomial_between(n, a, b, counts) for counts in ((0, cut), (cut + 1, n))]
    assert sum(parts) == pytest.approx(1, abs=1e-9)
    assert parts[0] == pytest.approx(float(betainc(a, b, (cut + 0.5) / n)), abs=1e-5)
    assert beta_binomial_between(n, a, b, (5, 4)) == 0.0


def test_counts_that_pass_by_observation_are_not_refuted_either() -> None:
    policy = default_policy().policy
    corridor = corridor_of(policy, policy.ranges[0], policy.alpha())
    critical = corridor.critical(20_000)
    passing = critical.passing("observed")
    assert np.all(passing.low >= np.maximum(critical.observed.low, critical.unrefuted.low))
    assert np.all(passing.high <= np.minimum(critical.observed.high, critical.unrefuted.high))
    assert critical.passing("proven") == critical.proven


def test_the_intervals_to_draw_are_surer_than_those_of_one_threshold_and_more_so_the_longer_the_range() -> None:
    contract, half, start = default_policy().policy.anchors, Fraction(1, 2), Decimal("0.1")
    found = [grid(contract, start, Decimal(stop), half, half).band_level for stop in ("0.01", "0.001", "0.0001")]
    assert 0.05 > found[0] > found[1] > found[2]
