"""Noise or drift: the tests of the two samples are exact with any ties, find what they should, and say which it is."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from cases import TODAY, case, evidence, tally, targets
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_of

from gate.checks import exchangeability as check
from gate.checks import fpr, parse_policy
from gate.checks.check import Case, Evidence, Finding
from gate.checks.exchangeability import AtScore, AtTarget, Exchangeability
from gate.gating import calibrator_facts, gather
from gate.policy import Policy
from gate.rows.describe import describe
from gate.statistics import exchangeability
from gate.statistics.binomial import beta_binomial
from gate.statistics.exchangeability import PooledTest, TailScan, compare_counts, scan_counts
from gate.statistics.tally import Tally
from gate.verdict import judge

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())


def make(checks: str = "{}", rule: str = "proven", tolerance: str = "0.25", min_n: int = 1) -> Policy:
    return parse_policy(
        f"""\
version: 1
name: test
rule: {rule}
checks: {checks}
contract: [{{fpr: 0.1, score: 0.3}}, {{fpr: 0.001, score: 0.5}}]
targets: [{{fpr: 0.001, min_n: {min_n}, max_relative_error: {tolerance}}}]
""",
        "test.yaml",
    ).policy


@cache
def at_one(fpr: str) -> Policy:
    text = f"""\
version: 1
name: test
checks: {{exchangeability: {{}}}}
contract: [{{fpr: {fpr}, score: 0.5}}]
targets: [{{fpr: {fpr}, min_n: 1, max_relative_error: 0.25}}]
"""
    return parse_policy(text, "test.yaml").policy


def counted_at(fitted: Any, held_out: Any, fpr: str = "0.05") -> Exchangeability:
    """What a run counts of two samples, by any calibrator."""
    fit, holdout = (sample_of(each) for each in (fitted, held_out))
    found = check.measure(Case(at_one(fpr), cast("Any", SimpleNamespace(thresholds={Decimal(fpr): 0.5})), holdout, fit))
    assert found is not None
    return found


def pooled_test(fitted: Any, held_out: Any, fpr: str) -> PooledTest:
    at = counted_at(fitted, held_out, fpr).targets[0]
    return compare_counts(at.pooled, at.held_out, len(held_out), len(fitted) + len(held_out))


def tail_scan(fitted: Any, held_out: Any) -> TailScan:
    ranks = tuple((at.pooled, at.held_out) for at in counted_at(fitted, held_out).ranks)
    return scan_counts(ranks, len(held_out), len(fitted) + len(held_out))


# --- one rate -----------------------------------------------------------------------------------------------


def test_the_golden_p_value() -> None:
    (case,) = GOLDEN["exchangeability"]
    k, m = case["holdout_at_or_above"], case["fit_at_or_above"]
    fitted, held_out = np.zeros(case["n_fit"]), np.zeros(case["n"])
    fitted[-m:], held_out[-k:] = 1.0, 1.0
    found = pooled_test(fitted, held_out, "0.001")
    assert (found.pooled, found.held_out) == (k + m, k)
    assert found.p_value == pytest.approx(case["p_value"], rel=1e-9)


scores = st.lists(
    st.sampled_from([-2.0, -1.5, -0.0, 0.0, 5e-324, 0.1, 0.25, 1.0, 7.0]) | st.floats(-1, 1), min_size=2, max_size=60
)


@settings(max_examples=examples(300), deadline=None)
@given(scores, scores, st.sampled_from(["0.001", "0.02", "0.05", "0.1", "0.3", "0.5", "0.75", "0.99"]))
def test_pooled_counts_are_those_of_the_samples_put_together(one: list[float], other: list[float], fpr: str) -> None:
    """Rows at or above the score of that rank, whole tie blocks; negative scores and both zeros included."""
    found = pooled_test(one, other, fpr)
    together = np.sort(np.array(one + other))[::-1]
    threshold = together[min(max(round(Fraction(fpr) * len(together)), 1), len(together)) - 1]
    assert found.pooled == sum(score >= threshold for score in one + other)
    assert found.held_out == sum(score >= threshold for score in other)
    assert found.expected == pytest.approx(found.pooled * len(other) / len(together))
    assert 0 < found.p_value <= 1


# --- exact size ---------------------------------------------------------------------------------------------

TRIALS = often(150, 400)


@pytest.mark.each_run(1)
@pytest.mark.parametrize("decimals", [None, 2])
def test_exchangeable_samples_are_called_different_at_most_at_the_level(decimals: int | None) -> None:
    """Shuffles of one tied sample, at levels 5 % and 20 %: never more than 3 standard errors above them.

    The standard error at 5 % is sqrt(0.05 * 0.95 / 400) = 1.1 % of 400 shuffles.
    """
    rng = np.random.default_rng(7)
    pool = rng.beta(0.5, 8, 900)
    pool = pool if decimals is None else np.round(pool, decimals)
    at_rate, over_curve = [], []
    exchangeability_draws = exchangeability.DRAWS
    exchangeability.DRAWS = 199
    try:
        for _ in range(TRIALS):
            rng.shuffle(pool)
            fitted, held_out = np.sort(pool[:300]), np.sort(pool[300:])
            at_rate.append(pooled_test(fitted, held_out, "0.05").p_value)
            over_curve.append(tail_scan(fitted, held_out).p_value)
    finally:
        exchangeability.DRAWS = exchangeability_draws
    for level in (0.05, 0.2):
        slack = 3 * (level * (1 - level) / TRIALS) ** 0.5
        assert np.mean(np.array(at_rate) <= level) <= level + slack
        assert np.mean(np.array(over_curve) <= level) <= level + slack
    if decimals is None:
        assert np.mean(np.array(over_curve) <= 0.2) >= 0.1  # and it is no test that never rejects


def test_the_scan_is_repeatable_and_blind_to_the_order_of_rows() -> None:
    rng = np.random.default_rng(8)
    one, other = np.round(rng.beta(0.5, 8, 3000), 3), np.round(rng.beta(0.5, 8, 5000), 3)
    found = tail_scan(one, other)
    np.random.default_rng(0).random(10)
    exchangeability._as_small.cache_clear()
    assert tail_scan(one[::-1].copy(), rng.permutation(other)) == found


def test_a_scan_of_few_rows_says_nothing() -> None:
    assert tail_scan(np.array([0.1, 0.2]), np.array([0.3, 0.4])) == TailScan(1.0, None)


def test_all_scores_equal_are_no_difference() -> None:
    assert tail_scan(np.full(100, 0.5), np.full(300, 0.5)).p_value == 1.0


# --- power --------------------------------------------------------------------------------------------------

N_FIT, N = 59_706, 139_315


def shifted_tail(rng: np.random.Generator, n: int, factor: float) -> np.ndarray:
    """Uniform scores whose top 0.1 % comes `factor` times as often."""
    top = rng.binomial(n, 0.001 * factor)
    return np.sort(np.concatenate([rng.uniform(0, 0.999, n - top), rng.uniform(0.999, 1, top)]))


def test_the_scan_finds_a_tail_that_is_half_as_heavy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 0.1 % FPR that is really 0.15 % is found at the level 5 % about 56 % of the time.

    The standard error of that share of 60 trials is 6.4 %. The test allows 2.5 of them below and 4.5 above (the share
    differs a little with the way the tail is shifted), and the same for half as many trials in each run.
    """
    monkeypatch.setattr(exchangeability, "DRAWS", 499)
    rng, trials = np.random.default_rng(9), often(30, 60)
    found = [tail_scan(np.sort(rng.random(N_FIT)), shifted_tail(rng, N, 1.5)) for _ in range(trials)]
    error = 0.5 / trials**0.5
    assert 0.56 - 2.5 * error <= np.mean([scan.p_value <= 0.05 for scan in found]) <= 0.56 + 4.5 * error
    worst = [scan.worst.pooled for scan in found if scan.worst is not None and scan.p_value <= 0.05]
    assert 50 <= np.median(worst) <= 1000  # the top 0.14 % of 199,021 rows is 270


def test_more_than_numpy_can_draw_from_is_bounded_by_bonferroni(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    one, other = np.sort(rng.random(3000)), np.sort(rng.random(4000) ** 0.8)
    exact = tail_scan(one, other)
    monkeypatch.setattr(exchangeability, "LARGEST_DRAW", 1000)
    bounded = tail_scan(one, other)
    assert bounded.worst == exact.worst
    assert exact.worst is not None
    assert exact.worst.p_value <= bounded.p_value <= exact.worst.p_value * 20


# --- the finding --------------------------------------------------------------------------------------------


def counted(policy: Policy, k: int, n: int, pooled: int, held_out: int, fit_n: int, threshold: float = 0.9) -> Evidence:
    """k of n held-out rows at the target; at one pooled rank, and at the target, so many of `pooled` are held out."""
    fit = Tally(threshold=threshold, flagged=pooled - held_out, rows=fit_n)
    target = AtTarget(fpr=policy.targets[0].fpr, pooled=pooled, held_out=held_out, fit=fit)
    found = Exchangeability(ranks=(AtScore(pooled=pooled, held_out=held_out),), targets=(target,))
    counts = targets(policy, tally(k, n, threshold=threshold))
    return evidence(policy, fit_n=fit_n, fpr=counts, exchangeability=found)


@pytest.mark.parametrize("checks", ["{}", "{exchangeability: {alpha: 5%, required: true}}"])
@pytest.mark.parametrize("held_out", [150, 181, 189, 200, 206, 225, 240])
def test_the_finding_follows_the_policys_level(checks: str, held_out: int) -> None:
    """At one rank the scan is that rank's own test: its p-value against the level, by simulation of its law."""
    policy = make(checks)
    level, required = (0.001, False) if checks == "{}" else (0.05, True)
    found = counted(policy, 140, N, 270, held_out, N_FIT)
    (finding,) = check.judge(policy, found)
    p_value = exchangeability.compare_counts(270, held_out, N, N + N_FIT).p_value
    error = 4 * (p_value * (1 - p_value) / exchangeability.DRAWS) ** 0.5
    assert abs(p_value - level) > error, "the level is not at the edge"
    assert (str(finding.check), finding.required) == ("exchangeability", required)
    assert finding.outcome == ("fail" if p_value <= level else "pass")
    said = f"most at the top 270 rows of both, {held_out} of them held out where 189 would be on average"
    assert said in finding.message
    assert (finding.remedy is None) == (finding.outcome == "pass")


@pytest.mark.parametrize(("required", "outcome"), [("false", "pass"), ("true", "fail")])
def test_a_difference_blocks_only_where_the_policy_says_so(required: str, outcome: str) -> None:
    policy = make(f"{{exchangeability: {{alpha: 0.001, required: {required}}}}}")
    verdict = judge(policy, counted(policy, 140, N, 270, 240, N_FIT))
    found = {str(finding.check): finding for finding in verdict.findings}
    assert (found["exchangeability"].outcome, found["exchangeability"].blocks) == ("fail", outcome == "fail")
    assert {finding.reason for finding in found.values()} == {"proven", "differ", "not-measured"}
    if outcome == "fail":
        assert "held-out and fit benign rows differ" in verdict.reason


def with_p_value(policy: Policy, k: int, p_value: float | None) -> Evidence:
    """A count at the target, where the two samples are as unlike as the p-value says."""
    parts: dict[str, Any] = {}
    if p_value is not None:
        fit = Tally(
            threshold=0.9, flagged=round(k / N * 10**7), rows=10**7
        )  # so that only the held-out rows' noise is left
        at = AtTarget(fpr=policy.targets[0].fpr, pooled=200, held_out=140, p_value=p_value, fit=fit)
        parts["exchangeability"] = Exchangeability(ranks=(), targets=(at,))
    return evidence(policy, fpr=targets(policy, tally(k, N, threshold=0.9)), **parts)


READINGS = {
    "noise": "whatever differs is noise",
    "threshold": "so that the fit sample put the threshold off",
    "drift": "the two samples differ; drift, leakage, duplicates or other preprocessing",
    "look": "the two samples differ; look before relying on it",
    None: "refute it",
}


@pytest.mark.parametrize(
    ("k", "p_value", "reading"),
    [
        (160, 0.3, "noise"),
        (210, 0.3, "threshold"),
        (160, 0.001, "drift"),
        (210, 1e-9, "drift"),
        (140, 0.001, "look"),
        (140, 0.3, None),
        (160, None, None),
    ],
)
def test_each_finding_says_which_of_the_four_readings_it_is(k: int, p_value: float | None, reading: str | None) -> None:
    """126 to 148 prove it, 84 or fewer or 201 or more refute it; the samples differ at p <= 0.001."""
    (found,) = fpr.judge(make(), with_p_value(make(), k, p_value))
    assert found.message.endswith(READINGS[reading])
    alike = {"threshold": "noise"}.get(str(reading))  # that finding comes first
    others = [text for name, text in READINGS.items() if name not in (reading, alike, None)]
    assert not any(text in found.message for text in others)
    assert (found.remedy is not None and "find out what differs" in found.remedy) == (reading == "drift")


def from_scores(fitted: np.ndarray, held_out: np.ndarray, policy: Policy) -> tuple[Finding, Finding]:
    """The findings at the target and over the curve, of real samples."""
    judged_on = case(policy, fitted, held_out)
    assert judged_on.fit is not None
    found = gather(judged_on, describe(judged_on.fit), calibrator_facts(judged_on.calibrator), TODAY)
    verdict = judge(policy, found)
    by_name = {str(finding.check): finding for finding in verdict.findings}
    return verdict.findings[0], by_name["exchangeability"]


def test_readings_of_real_samples() -> None:
    """Scores constructed so that each reading must come out."""
    policy = make()
    grid = (np.arange(40_000) + 0.5) / 40_000
    same = (np.arange(100_000) + 0.5) / 100_000
    noise, curve = from_scores(grid, same[::5], policy)
    assert (noise.grade, curve.outcome) == ("open", "pass")
    assert "these rows cannot tell noise from drift" in noise.message

    drifted, curve = from_scores(grid, np.where(same > 0.996, 0.9995, same), policy)
    assert (drifted.grade, curve.outcome) == ("refuted", "fail")
    assert drifted.message.endswith(READINGS["drift"])

    few = grid[::40]  # 1,000 rows to fit: the threshold at 0.1 % is their largest score, moved down by hand
    unlucky = np.append(few[:-1], 0.998)
    off, curve = from_scores(np.sort(unlucky), same, policy)
    assert (off.grade, curve.outcome) == ("refuted", "pass")
    assert "these rows cannot tell noise from drift" in off.message

    wide = make(tolerance="0.9")
    look, _ = from_scores(grid, np.where(same > 0.9984, 0.9995, same), wide)
    assert look.outcome == "pass"
    assert look.message.endswith(READINGS["look"])


def predicted(policy: Policy, fitted: np.ndarray, held_out: np.ndarray) -> tuple[int, int] | None:
    finding, _ = from_scores(fitted, held_out, policy)
    assert finding.rate is not None
    return finding.rate.predicted


def test_the_predicted_range_holds_95_per_cent_of_sound_counts() -> None:
    """The range is the beta-binomial law's at the fractional rank, with tails of at most 2.5 %; the record has it."""
    rng = np.random.default_rng(12)
    found = predicted(make(), rng.random(20_000), rng.random(50_000))
    assert found is not None
    x = 0.001 * 20_000.365 + 0.3175
    law = beta_binomial(50_000, x, 20_000 - x + 1)
    low, high = found
    assert law.between((low, high)) >= 0.95
    assert law.between((low + 1, high)) < 0.975
    assert law.between((low, high - 1)) < 0.975
    thresholds = 1 - rng.beta(x, 20_000 - x + 1, 4000)
    counts = rng.binomial(50_000, 1 - thresholds)
    # Monte Carlo: the standard error of 95 % among 4,000 is 0.34 %
    assert np.mean((counts >= low) & (counts <= high)) >= 0.95 - 4 * 0.0035


def test_no_range_is_predicted_beyond_the_fit_sample() -> None:
    scores = np.random.default_rng(13).random(500)
    asked = case(make(), scores, scores[1:])
    assert asked.calibrator.facts.lowest_label > float(Decimal("0.001"))
    assert predicted(make(), scores, scores[1:]) is None
