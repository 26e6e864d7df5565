"""What a range, or a look, takes: pass rates and rows against published numbers, each within its stated error."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.ranges import PASS_RATES, law
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.planning.law import Law
from gate.planning.range_advice import range_warning
from gate.planning.ranges import (
    Estimate,
    RangeLaw,
    RangePlan,
    corridor_of,
    describe_weakness,
    draw_counts,
    draw_rates,
    off_in_one_decade,
    plan_range,
    round_up,
    segment_corridor_of,
)
from gate.planning.sequential import decide_band, plan_sequential
from gate.policy import Policy, Target, Tolerance, parse
from gate.statistics.binomial import beta_binomial
from gate.statistics.sequential import SequentialBand

pytestmark = pytest.mark.usefixtures("few_points")


def make(r: str = "0.5", stop: str = "0.1%", min_n: int = 1, rule: str = "proven", more: str = "") -> Policy:
    return parse(
        f"version: 1\nname: x\nrule: {rule}\n{more}"
        f"targets: [{{fpr: 0.1%, min_n: 1, max_relative_error: {r}}}]\n"
        f"ranges: [{{from: 10%, to: {stop}, min_n: {min_n}, max_relative_error: {r}}}]\n",
        "p.yaml",
    ).policy


def planned(policy: Policy, fit_n: int | None = None, holdout_n: int | None = None) -> RangePlan:
    return plan_range(policy, policy.ranges[0], fit_n, holdout_n)


# --- ranges -------------------------------------------------------------------------------------------------


@pytest.mark.each_run(2)
@pytest.mark.parametrize(("r", "n", "share"), PASS_RATES)
def test_sound_releases_pass_as_often_as_published(r: str, n: int, share: float) -> None:
    """The published shares are rounded to half a percent, or were simulated themselves."""
    passes, fails = law(r).sound(n, n)
    assert abs(passes.value - share) <= 3 * passes.error + 0.005
    assert fails.value <= 0.001


def test_a_range_costs_an_eighth_more_than_its_lowest_rate() -> None:
    """A chance of 95 % takes 109,000 rows; the anchor alone takes 97,826."""
    found = planned(make(min_n=109_000))
    assert found.equal_needed is not None
    assert found.equal_needed.value == pytest.approx(109_000, abs=3 * found.equal_needed.error + 500)
    assert found.equal_needed.error < 2500
    assert found.anchor_needed == 97_826
    assert found.cost is not None
    assert 0.08 <= found.cost <= 0.16
    assert found.holdout_needed == found.equal_needed
    assert found.exact
    assert describe_weakness(found, 0.95) is None


def test_plans_are_the_same_every_time() -> None:
    found = [law("0.5", "1%").holdout_needed(None, 0.9, draws=400) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None


def test_a_range_too_narrow_for_its_rows_is_dead_and_says_what_would_do() -> None:
    found = planned(make(), holdout_n=10_000)
    assert found.passes.value == 0
    sentence = describe_weakness(found, 0.95)
    assert sentence is not None
    assert sentence.startswith("fpr@10%..0.1%: no release can pass with 10,000 rows to fit and 10,000 held out; about ")
    assert sentence.endswith("0 rows to fit and as many held out would let a sound one pass 95 % of the time")


def test_a_range_that_has_passed_is_never_said_to_be_impossible() -> None:
    """The same holds for a range of which no draw passes, though some count would."""
    found = replace(planned(make(), holdout_n=10_000), passes=Estimate(0.0, 0.001))
    assert "a sound release passes only 0 % of the time" in (describe_weakness(found, 0.95) or "")
    said = range_warning(make(), make().ranges[0], 10_000, 10_000)
    assert "a sound release hardly ever passes with 10,000 rows" in (said or "")


def test_no_number_of_held_out_rows_mends_a_small_fit() -> None:
    """The calibrator itself is too far off too often: a search that ends, and says so."""
    assert law("0.25").holdout_needed(20_000, 0.95, draws=800) is None


@pytest.mark.each_run(1)
@pytest.mark.parametrize("rule", ["observed", "not-refuted"])
def test_laxer_rules_pass_sound_releases_more_often(rule: str) -> None:
    n = 60_000
    lax, strict = (RangeLaw(p, p.ranges[0]).sound(n, n)[0].value for p in (make(rule=rule), make()))
    assert lax > strict + 0.1


@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
def test_beyond_the_fit_sample_only_a_proof_passes(rule: str) -> None:
    policy = make(rule=rule, stop="0.001%")
    assert RangeLaw(policy, policy.ranges[0]).rule_at(20_000) == "proven"
    assert RangeLaw(policy, policy.ranges[0]).rule_at(200_000) == rule


def test_too_few_rows_never_pass() -> None:
    policy = make(min_n=200_000)
    assert RangeLaw(policy, policy.ranges[0]).sound(199_999, 500_000, 200)[0].value == 0


def test_a_release_off_in_one_decade_hardly_ships() -> None:
    """It is off by 1 + 2r in any decade; with few rows it may ship if the decade is the lowest one."""
    lax = make(rule="not-refuted")
    found = RangeLaw(lax, lax.ranges[0]).bad(4000, 4000)
    assert [(round(t.start, 9), round(t.stop, 9)) for t in found] == [(0.01, 0.001), (0.1, 0.01)]
    assert found[0].passes > 0.5 > found[1].passes
    assert found[0].multiple == 2
    assert max(t.passes for t in law("0.5").bad(97_826, 97_826)) < 1e-3


@settings(max_examples=examples(30), deadline=None)
@given(st.floats(1.1, 5.0), st.integers(0, 90))
def test_rates_off_in_one_decade_still_fall(multiple: float, place: int) -> None:
    fprs = np.geomspace(0.1, 0.001, 101)
    start, stop = float(fprs[place]), float(fprs[min(place + 50, 100)])
    rates = off_in_one_decade(fprs, start, stop, multiple)
    assert np.all(np.diff(rates) <= 0)
    inside = (fprs <= start) & (fprs >= stop)
    assert np.allclose(rates[inside], np.minimum(fprs[inside] * multiple, 1))
    assert np.all(rates[fprs < stop] == fprs[fprs < stop])
    assert np.all(rates >= fprs)


@settings(max_examples=often(2, 5), deadline=None)
@given(st.integers(0, 1000))
def test_simulated_counts_follow_the_law_of_one_target(seed: int) -> None:
    """At every point by itself the count is beta-binomial, and along the range it falls."""
    ranks, n_fit, n, draws = np.array([400.7, 150.2, 31.0, 6.4]), 2000, 3000, 4000
    rng = np.random.default_rng(seed)
    rates = draw_rates(rng, ranks, n_fit, draws)
    counts = draw_counts(rng, rates, n)
    assert np.all(np.diff(counts, axis=1) <= 0)
    assert np.all(np.diff(rates, axis=1) <= 0)
    for i, x in enumerate(ranks):
        exact = beta_binomial(n, x, n_fit - x + 1)
        for k in np.quantile(counts[:, i], [0.1, 0.5, 0.9]).astype(int):
            chance = float(exact.at_most(np.array([k]))[0])
            assert abs(np.mean(counts[:, i] <= k) - chance) <= 4.5 * math.sqrt(chance * (1 - chance) / draws)


def test_rows_are_rounded_up_to_three_digits() -> None:
    assert [round_up(rows) for rows in (7.2, 999.0, 1001.0, 109_099.4)] == [8, 999, 1010, 110_000]


def test_segments_are_judged_on_a_coarser_grid() -> None:
    policy = make()
    alpha, error = policy.alpha(), Tolerance.model_validate(0.5)
    whole, part = (
        corridor_of(policy, policy.ranges[0], alpha),
        segment_corridor_of(policy, policy.ranges[0], error, alpha),
    )
    assert len(part.grid.points) == 41 < len(whole.grid.points)
    assert whole.sequential is part.sequential is False
    assert corridor_of(make(more="interval: sequential\n"), policy.ranges[0], alpha).sequential


# --- looks --------------------------------------------------------------------------------------------------


def test_rows_until_a_look_decides() -> None:
    """Half of the sound releases with 48,000 rows, where one look takes 97,826; off centre it may take more."""
    found = plan_sequential(make(), make().targets[0])
    assert found.fixed == 97_826
    centre, above, below = found.rows
    assert (centre.multiple, above.multiple, below.multiple) == (Fraction(1), Fraction(13, 10), Fraction(7, 10))
    assert centre.median == pytest.approx(48_000, rel=0.04)
    assert centre.median < centre.mean < centre.most
    assert above.proven >= 0.985
    assert above.median > found.fixed
    assert below.proven >= 0.99


def test_where_only_excess_counts_nothing_is_planned_below() -> None:
    policy = make(r="{above: 0.5, below: 1}")
    assert [rows.multiple for rows in plan_sequential(policy, policy.targets[0]).rows] == [1, Fraction(13, 10)]


def test_an_open_look_says_how_many_rows_decide() -> None:
    """The chances rise with the rows, and a simulation of the same growing sample agrees."""
    fpr, k, n = Fraction(1, 1000), 52, 40_000
    band = SequentialBand.around(fpr, Fraction(1, 2), Fraction(1, 2), make(more="interval: sequential\n").alpha())
    assert not (band.proves_low(k, n) and band.proves_high(k, n))
    found = decide_band(band, fpr, k, n, (100.0, 99_900.0))
    assert [round(entry.chance, 1) for entry in found] == [0.5, 0.8, 1.0]
    assert n < found[0].rows < found[1].rows < found[2].rows
    assert all(entry.proven <= entry.chance for entry in found)


def test_a_band_of_looks_plans_as_one_of_rows_does() -> None:
    """`Law` takes the policy's interval: at one fixed size bounds for every look prove less."""
    policies = make(), make(more="interval: sequential\n")
    once, ever = (Law(policy, policy.targets[0]).holdout_needed(None, 0.95) for policy in policies)
    assert once == 97_826
    assert ever is not None
    assert once < ever < 2 * once


def test_the_lowest_rate_of_a_range_is_planned_like_a_target() -> None:
    """This also holds if no anchor lies there."""
    found = planned(make(stop="0.3%"))
    lowest = Target.model_validate({"fpr": "0.3%", "min_n": 1, "max_relative_error": 0.5})
    assert found.anchor_needed == Law(make(), lowest).holdout_needed(None, 0.95)
