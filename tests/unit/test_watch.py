"""What `gate plan --rows-per-check` says of checks is what exact sums and simulated days show."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

import gate
from gate.checks import default_policy
from gate.planning import CHECKS_A_YEAR, plan, watch
from gate.policy import Document, parse
from gate.report import plan as plans

RULES = ["proven", "observed", "not-refuted"]


def policy_of(rule: str, *targets: tuple[object, object, object, int], required: str = "true") -> Document:
    """Targets are (rate, tolerance above, tolerance below, min_n), rates falling."""
    lines = ["version: 1", "name: test", f"rule: {rule}", "contract:"]
    lines += [f"  - {{fpr: {fpr}, score: 0.{i + 1}}}" for i, (fpr, *_) in enumerate(targets)]
    lines += ["targets:"]
    lines += [
        f"  - {{fpr: {fpr}, min_n: {n}, max_relative_error: {{above: {above}, below: {below}}}, required: {required}}}"
        for fpr, above, below, n in targets
    ]
    return parse("\n".join(lines) + "\n", "test.yaml")


def outcomes(rule: str, n: int, p: Fraction, above: Fraction, below: Fraction, min_n: int) -> np.ndarray:
    """A grade for every count of n rows, by the intervals themselves: -1 refutes, 1 passes, else 0."""
    k, low, high = np.arange(n + 1), p * (1 - below), p * (1 + above)
    with np.errstate(invalid="ignore"):
        bottom = np.where(k == 0, 0.0, beta.ppf(0.025, k, n - k + 1))
        top = np.where(k == n, 1.0, beta.ppf(0.975, k + 1, n - k))
    refuted = (bottom > float(high)) | (top < float(low))
    proven = (bottom >= float(low) if low > 0 else True) & (top <= float(high) if high < 1 else True)
    inside = np.array([low * n <= int(count) <= high * n for count in k])
    passes = {"proven": proven, "observed": inside & ~refuted, "not-refuted": ~refuted}[rule] & (n >= min_n)
    return np.where(refuted, -1, np.where(passes, 1, 0))


@settings(deadline=None, max_examples=examples(60))
@given(
    rule=st.sampled_from(RULES),
    n=st.integers(20, 600),
    rate=st.integers(20, 400),
    above=st.integers(10, 150),
    below=st.integers(10, 120),
    min_n=st.sampled_from([1, 300]),
)
def test_the_chances_are_those_of_every_count_summed(
    rule: str, n: int, rate: int, above: int, below: int, min_n: int
) -> None:
    p, up, down = Fraction(rate, 1000), Fraction(above, 100), Fraction(below, 100)
    assume(p * (1 + up) < 1)
    document = policy_of(rule, (rate / 1000, above / 100, below / 100, min_n))
    (found,) = watch(document.policy, n, fit_n=100_000).targets
    judged = outcomes(rule, n, p, up, down, min_n)
    assert [alarm.multiple for alarm in found.drifted] == [1 + 2 * up, 2, 5]
    assert [alarm.multiple for alarm in found.edges] == [1 + up, *([1 - down] if down < 1 else [])]
    for alarm in (*found.drifted, found.sound, *found.edges):
        chances = binom.pmf(np.arange(n + 1), n, min(float(p * alarm.multiple), 1.0))
        assert alarm.fails == pytest.approx(chances[judged == -1].sum(), rel=1e-6, abs=1e-13)
        assert alarm.not_passes == pytest.approx(chances[judged != 1].sum(), rel=1e-6, abs=1e-13)
    assert found.at_an_edge == max(alarm.fails for alarm in found.edges) <= 0.05


@settings(deadline=None, max_examples=examples(30))
@given(rows=st.integers(1, 10**12))
def test_any_number_of_rows_has_chances_between_none_and_certainty(rows: int) -> None:
    for watched in watch(default_policy().policy, rows).targets:
        for alarm in (*watched.drifted, watched.sound, *watched.edges):
            assert 0.0 <= alarm.fails <= alarm.not_passes + 1e-12
            assert alarm.not_passes <= 1.0


def days(rng: np.random.Generator, rate: float, threshold: float, rows: int) -> np.ndarray:
    """The benign scores of one day; each reaches the threshold with this chance."""
    flagged = rng.random(rows) < rate
    return np.where(flagged, threshold + (1 - threshold) * rng.random(rows), threshold * rng.random(rows) * (1 - 1e-9))


@pytest.mark.each_run(1)
@pytest.mark.parametrize("multiple", [1, 1.5, 2])
def test_simulated_days_alarm_as_often_as_planned(multiple: float) -> None:
    """Each day judged by the gate itself, with a calibrator whose true rate is known; within four deviations."""
    document, rows, checks = policy_of("proven", ("0.1", "0.25", "0.25", 500)), 700, 150
    calibrator = gate.fit((np.arange(100_000) + 0.5) / 100_000, policy=document)
    (threshold,) = (calibrator.thresholds[target.fpr] for target in document.policy.targets)
    assert threshold is not None
    assert threshold == pytest.approx(0.9, abs=1e-4)
    (planned,) = watch(document.policy, rows).targets
    alarm = {1: planned.sound, 1.5: planned.drifted[0], 2: planned.drifted[1]}[multiple]
    assert float(alarm.multiple) == multiple
    rng = np.random.default_rng(int(10 * multiple))
    found = [
        gate.evaluate(calibrator, days(rng, 0.1 * multiple, threshold, rows), policy=document).outcome
        for _ in range(checks)
    ]
    for chance, count in (
        (alarm.fails, found.count("fail")),
        (alarm.not_passes, checks - found.count("pass")),
    ):
        low, high = binom.ppf([3e-5, 1 - 3e-5], checks, chance)
        assert low <= count <= high


@pytest.mark.each_run(0)
@settings(deadline=None, max_examples=examples(25))
@given(seed=st.integers(0, 10_000), rule=st.sampled_from(RULES))
def test_all_targets_together_alarm_no_oftener_than_the_sum_says(seed: int, rule: str) -> None:
    """Simulated years of counts that lie within each other, as those of one sample do."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2_000, 40_000))
    document = policy_of(rule, ("0.1", "0.1", "0.1", 1), ("0.01", "0.3", "0.3", 1))
    planned = watch(document.policy, rows, 10**6)
    shallow = rng.binomial(rows, 0.1, 20_000)
    deep = rng.binomial(shallow, 0.1)
    first, second = (
        outcomes(rule, rows, Fraction(p), Fraction(r), Fraction(r), 1) for p, r in (("0.1", "0.1"), ("0.01", "0.3"))
    )
    worst = np.minimum(first[shallow], second[deep])
    for chance, alarms in ((planned.together.fails, worst == -1), (planned.together.not_passes, worst != 1)):
        assert alarms.mean() <= chance + 4 * np.sqrt(max(chance, 1e-4) / len(alarms))


# --- what is printed ----------------------------------------------------------------------------------------


def test_the_plan_prints_a_row_for_each_target_and_what_they_do_together() -> None:
    document = policy_of("proven", ("0.1", "0.5", "0.5", 1000), ("0.001", "0.5", "0.5", 98_000))
    watched = watch(document.policy, 3_000)
    text = plans.render(plan(document.policy), document.policy, width=200, watch=watched)
    _, part = text.split("What one check of 3,000 rows does")
    rows = [line.split() for line in part.splitlines() if " % " in line]
    assert [row[0] for row in rows] == ["10", "0.1"]
    assert part.count("no check of 3,000 rows passes: min_n is 98,000") == 1
    fails = CHECKS_A_YEAR * sum(each.sound.fails for each in watched.targets)
    assert f"in {CHECKS_A_YEAR} daily checks a sound release fails at most {fails:.3g} times and does" in part
    assert "does not pass at most 365 times" in part
    assert plans.render(plan(document.policy), document.policy, width=200) == text[: text.index("\nWhat one check")]


def test_json_has_the_chances_in_full() -> None:
    document = policy_of("observed", ("0.1", "0.5", "2", 10))
    watched = watch(document.policy, 321)
    written = json.loads(plans.to_json(plan(document.policy), document.policy, watched))["watch"]
    assert (written["rows_per_check"], written["checks_a_year"]) == (321, CHECKS_A_YEAR)
    (target,) = written["targets"]
    assert [alarm["multiple"] for alarm in target["drifted"]] == [2, 2, 5]
    assert target["sound"]["fails"] == watched.targets[0].sound.fails == written["sound_at_most"]["fails"]
    assert len(target["edges"]) == 1
    assert "watch" not in json.loads(plans.to_json(plan(document.policy), document.policy))


def test_where_no_target_is_required_nothing_is_said_of_all() -> None:
    document = policy_of("proven", ("0.1", "0.5", "0.5", 1000), required="false")
    watched = watch(document.policy, 3_000)
    assert (watched.together.fails, watched.together.not_passes) == (0.0, 0.0)
    assert "together" not in plans.render(plan(document.policy), document.policy, watch=watched)
