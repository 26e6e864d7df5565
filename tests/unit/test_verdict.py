"""The verdict follows the decision table for every count, and every sentence in it is true."""

from __future__ import annotations

import dataclasses
import itertools
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_of

from gate.calibration.fit import fit
from gate.calibration.positions import named
from gate.checks import Parts, load_policy, parse_policy
from gate.checks import fpr as targets
from gate.checks.check import AnchorFacts, CalibratorFacts, Case, Evidence, Finding
from gate.checks.fpr import AtAnchor, JudgedTarget, Targets, judge_targets
from gate.contract import Floats
from gate.gating import calibrator_facts, gather
from gate.planning import Budget
from gate.policy import Policy
from gate.rows.describe import describe
from gate.sources import SampleFacts
from gate.statistics.binomial import lower_tail, upper_tail
from gate.statistics.tally import Tally
from gate.verdict import Verdict, judge

POLICIES = Path(__file__).parents[2] / "policies"
RULES = ("proven", "observed", "not-refuted")
TODAY = date(2026, 6, 30)
N = 139_315  # at 0.1 % plus or minus 25 %: proven 126..148, inside 105..174, refuted at 84 or 201 and beyond
SUPPORTED = 1e-12  # a lowest fit label below every target: nothing is extrapolated

# --- builders -----------------------------------------------------------------------------------------------


def target(fpr: str = "0.001", min_n: int = 98_000, tolerance: str = "0.25", required: bool = True) -> str:
    flag = "" if required else ", required: false"
    return f"{{fpr: {fpr}, min_n: {min_n}, max_relative_error: {tolerance}{flag}}}"


def waiver(check: str, expires: date = TODAY) -> str:
    return f"{{check: '{check}', reason: known, owner: '@detections', expires: {expires}}}"


def make(rule: str = "proven", *targets: str, waivers: tuple[str, ...] = (), confidence: str = "0.95") -> Policy:
    targets = targets or (target(),)
    rates = sorted((Decimal(text.split("fpr: ")[1].split(",")[0]) for text in targets), reverse=True)
    lines = ["version: 1", "name: test", f"rule: {rule}", f"confidence: {confidence}", "contract:"]
    lines += [f"  - {{fpr: {rate}, score: 0.{i + 1}}}" for i, rate in enumerate(rates)]
    lines += ["targets:", *(f"  - {text}" for text in targets)]
    lines += ["waivers:", *(f"  - {text}" for text in waivers)] if waivers else []
    return parse_policy("\n".join(lines), "test.yaml").policy


def evidence_of(
    policy: Policy,
    *counts: int,
    n: int = N,
    threshold: float | None = 0.9,
    lowest_label: float = SUPPORTED,
    today: date = TODAY,
) -> Evidence:
    """So many of n held-out rows at each target, whose threshold is the same."""
    anchors = policy.anchors.anchors[: len(counts)]
    tallies = [Tally(threshold=threshold, flagged=k, rows=n) for k in counts]
    calibrator = CalibratorFacts(
        sha256="c" * 64,
        bytes=1,
        knots=11,
        plotting_position="filliben",
        ties="conservative",
        lowest_label=lowest_label,
        anchors=tuple(AnchorFacts(fpr=at.fpr, score=at.score, threshold=threshold) for at in anchors),
    )
    found = Targets(anchors=tuple(AtAnchor(fpr=at.fpr, tally=k) for at, k in zip(anchors, tallies, strict=True)))
    fit, holdout = (SampleFacts(sources=(), sha256="", n=max(rows, 2)) for rows in (N, n))
    return Evidence("run", today, calibrator, fit, holdout, None, Parts(fpr=found))


def measured(
    policy: Policy, k: int, n: int = N, threshold: float | None = 0.9, lowest_label: float = SUPPORTED
) -> JudgedTarget:
    [judged] = judge_targets(policy, evidence_of(policy, k, n=n, threshold=threshold, lowest_label=lowest_label))
    return judged


def find(policy: Policy, k: int, n: int = N, threshold: float | None = 0.9, lowest_label: float = SUPPORTED) -> Finding:
    evidence = evidence_of(policy, k, n=n, threshold=threshold, lowest_label=lowest_label)
    [finding] = targets.judge(policy, evidence)
    return finding


def accepts(finding: Finding) -> tuple[int, int] | None:
    assert finding.rate is not None
    return finding.rate.accepts


def verdict(policy: Policy, *counts: int, n: int = N, today: date = TODAY) -> Verdict:
    return judge(policy, evidence_of(policy, *counts, n=n, today=today), (targets.CHECK,))


@pytest.fixture
def _without_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out advice if thousands of counts are judged; the tests of planning cover it."""
    monkeypatch.setattr(targets, "Budget", lambda: Budget(0))


# --- the decision table -------------------------------------------------------------------------------------

SITUATIONS = {
    "proven": (126, 140, 148),
    "open, inside": (105, 125, 149, 174),
    "open, outside": (85, 104, 175, 200),
    "refuted": (0, 84, 201, N),
}
DECISIONS = {
    "proven": ("pass", "inconclusive", "inconclusive", "fail"),
    "observed": ("pass", "pass", "inconclusive", "fail"),
    "not-refuted": ("pass", "pass", "pass", "fail"),
}
TOO_FEW_ROWS = ("inconclusive", "inconclusive", "inconclusive", "fail")
EXTRAPOLATED = ("pass", "inconclusive", "inconclusive", "fail")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_decision_table(rule: str, situation: str) -> None:
    """Three rules by four situations, at the first and the last count of each."""
    expected = dict(zip(SITUATIONS, DECISIONS[rule], strict=True))[situation]
    found = [find(make(rule), k) for k in SITUATIONS[situation]]
    assert {(finding.outcome, finding.grade) for finding in found} == {(expected, situation.split(",", maxsplit=1)[0])}


@pytest.mark.each_run(5)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("situation", "expected"), list(zip(SITUATIONS, TOO_FEW_ROWS, strict=True)))
def test_with_fewer_rows_than_wanted_only_a_refutation_decides(rule: str, situation: str, expected: str) -> None:
    """More data cannot save what is refuted, and nothing passes before min_n; the grade stays what the count says."""
    found = [find(make(rule, target(min_n=N + 1)), k) for k in SITUATIONS[situation]]
    assert {(finding.outcome, finding.grade) for finding in found} == {(expected, situation.split(",", maxsplit=1)[0])}
    assert {accepts(finding) for finding in found} == {None}
    assert find(make(rule, target(min_n=N)), SITUATIONS["proven"][0]).outcome == "pass"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("situation", "expected"), list(zip(SITUATIONS, EXTRAPOLATED, strict=True)))
def test_extrapolated_targets_pass_only_when_proven(rule: str, situation: str, expected: str) -> None:
    """Whatever the rule: a threshold that no fit row supports is believed on held-out evidence alone."""
    found = [find(make(rule), k, lowest_label=0.0011) for k in SITUATIONS[situation]]
    assert {finding.outcome for finding in found} == {expected}
    assert {accepts(finding) for finding in found} == {(126, 148)}


def test_a_target_at_the_lowest_fit_label_is_not_extrapolated() -> None:
    assert not measured(make(), 140, lowest_label=0.001).extrapolated
    assert measured(make(), 140, lowest_label=np.nextafter(0.001, 1)).extrapolated


@pytest.mark.parametrize(
    ("rule", "k", "reason"),
    [
        ("proven", 140, "proven"),
        ("observed", 140, "proven"),
        ("observed", 170, "observed"),
        ("not-refuted", 190, "not-refuted"),
        ("proven", 170, "open"),
        ("observed", 190, "outside"),
        ("observed", 201, "too-many"),
        ("observed", 84, "too-few"),
    ],
)
def test_reason_codes(rule: str, k: int, reason: str) -> None:
    assert find(make(rule), k).reason == reason


tolerance_values = st.sampled_from(["0.1", "0.25", "0.5", "1", "2"])
tolerance_texts = tolerance_values | st.builds("{{above: {}, below: {}}}".format, tolerance_values, tolerance_values)
small_targets = st.builds(
    target, st.sampled_from(["0.01", "0.1", "0.3", "0.5", "0.9"]), st.integers(1, 150), tolerance_texts
)


@pytest.mark.usefixtures("_without_advice")
@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from(RULES), small_targets, st.integers(1, 120), st.booleans(), st.sampled_from(["0.95", "0.5"]))
def test_accepts_are_the_counts_that_pass(rule: str, text: str, n: int, extrapolated: bool, confidence: str) -> None:
    """Judging every count one by one: `accepts` names those that pass, and a fail is always a refutation."""
    policy = make(rule, text, confidence=confidence)
    findings = [find(policy, k, n, lowest_label=1.0 if extrapolated else SUPPORTED) for k in range(n + 1)]
    passing = [k for k, finding in enumerate(findings) if finding.outcome == "pass"]
    assert {accepts(finding) for finding in findings} == {(passing[0], passing[-1]) if passing else None}
    assert passing == list(range(passing[0], passing[-1] + 1) if passing else [])
    assert all((finding.outcome == "fail") == (finding.grade == "refuted") for finding in findings)
    assert all((finding.remedy is None) == (finding.outcome == "pass") for finding in findings)


@pytest.mark.usefixtures("_without_advice")
@settings(max_examples=examples(40), deadline=None)
@given(small_targets, st.integers(1, 80), st.booleans())
def test_a_stricter_rule_passes_no_more(text: str, n: int, extrapolated: bool) -> None:
    policies, lowest = [make(rule, text) for rule in RULES], 1.0 if extrapolated else SUPPORTED
    for k in range(n + 1):
        proven, observed, not_refuted = (find(policy, k, n, lowest_label=lowest).outcome for policy in policies)
        assert proven != "pass" or observed == "pass"
        assert observed != "pass" or not_refuted == "pass"
        assert (proven == "fail") == (observed == "fail") == (not_refuted == "fail")


# --- thresholds that no score reaches -----------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["proven", "observed"])
@pytest.mark.parametrize("min_n", [1, 98_000])
def test_an_unreachable_threshold_cannot_keep_a_two_sided_promise(rule: str, min_n: int) -> None:
    """No false positive can ever come: inconclusive on few rows, a fail on many, and more rows are no remedy."""
    policy = make(rule, target(min_n=min_n))
    few, many = find(policy, 0, 1000, threshold=None), find(policy, 0, N, threshold=None)
    assert (few.outcome, many.outcome) == ("inconclusive", "fail")
    for finding in (few, many):
        assert finding.reason == "unreachable"
        assert "no raw score reaches this anchor" in finding.message
        assert finding.remedy is not None
        assert "more held-out rows cannot help" in finding.remedy


def test_an_unreachable_threshold_keeps_a_promise_about_excess() -> None:
    """If only excess counts, enough rows prove a release that never flags, and the remedy says how many."""
    policy = make("proven", target(min_n=1, tolerance="{above: 0.25, below: 1}"))
    assert find(policy, 0, N, threshold=None).outcome == "pass"
    few = find(policy, 0, 1000, threshold=None)
    assert (few.outcome, few.reason) == ("inconclusive", "open")
    advised = measured(policy, 0, 1000, threshold=None).advice
    assert advised is not None
    assert advised.more is not None
    assert find(policy, 0, advised.more, threshold=None).outcome == "pass"


def test_an_unreachable_threshold_is_not_refuted_by_few_rows() -> None:
    policy = make("not-refuted", target(min_n=500))
    assert find(policy, 0, 1000, threshold=None).outcome == "pass"
    assert find(policy, 0, 400, threshold=None).reason == "min-n"
    assert find(policy, 0, 1000, threshold=None, lowest_label=0.01).reason == "unreachable"


# --- the overall outcome ------------------------------------------------------------------------------------

THREE = (target("0.01"), target("0.001"), target("0.0001", min_n=1))
COUNTS = {  # per target a count of 139,315 that passes, fails or does neither by the rule `observed`
    "pass": (1393, 140, 14),
    "inconclusive": (1780, 190, 20),
    "fail": (2000, 300, 60),
}


@pytest.mark.each_run(9)
@pytest.mark.parametrize("outcomes", list(itertools.product(COUNTS, repeat=3)), ids="-".join)
def test_fail_outweighs_inconclusive_outweighs_pass(outcomes: tuple[str, ...]) -> None:
    found = verdict(make("observed", *THREE), *(COUNTS[outcome][i] for i, outcome in enumerate(outcomes)))
    assert tuple(finding.outcome for finding in found.findings) == outcomes
    worst = max(outcomes, key=("pass", "inconclusive", "fail").index)
    assert found.outcome == worst
    blocking = [finding.check for finding in found.findings if finding.blocks]
    assert blocking == [
        finding.check for finding, outcome in zip(found.findings, outcomes, strict=True) if outcome != "pass"
    ]


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_a_target_that_is_not_required_never_blocks(outcome: str) -> None:
    """It is judged and shown all the same."""
    policy = make("observed", target("0.01"), target("0.001", required=False))
    found = verdict(policy, COUNTS["pass"][0], COUNTS[outcome][1])
    assert (found.outcome, found.findings[1].outcome, found.findings[1].blocks) == ("pass", outcome, False)


def test_nothing_measured_is_never_a_pass() -> None:
    empty = dataclasses.replace(evidence_of(make(), 140), parts=Parts())
    found = judge(make(), empty, (targets.CHECK,))
    assert (found.outcome, found.reason) == ("inconclusive", "fpr@0.1% could not be measured")
    assert judge(make(), empty).outcome == judge(make(), empty, ()).outcome == "inconclusive"


@pytest.mark.parametrize(
    ("targets", "counts", "waived", "sentence"),
    [
        (THREE, (1393, 140, 14), (), "3 required targets passed on held-out benign rows, 2 of them proven"),
        (THREE[:2], (1393, 140), (), "2 required targets proven on held-out benign rows"),
        (THREE[:2], (1393, 300), ("0.1%",), "1 required target proven on held-out benign rows; 1 finding waived"),
        (THREE[1:2], (300,), ("0.1%",), "every required target is waived; 1 finding waived"),
        ((target(required=False),), (300,), (), "no target is required"),
        (THREE, (2000, 140, 60), (), "the held-out benign rows disprove fpr@1% and fpr@0.01%"),
        (THREE, (2000, 190, 14), (), "the held-out benign rows disprove fpr@1%"),
        (THREE, (1393, 190, 20), (), "the held-out benign rows neither prove nor disprove fpr@0.1% and fpr@0.01%"),
        (
            (target("0.01", min_n=10**6), target("0.001")),
            (1393, 190),
            (),
            "the held-out benign rows neither prove nor disprove fpr@0.1%; too few held-out benign rows for fpr@1%",
        ),
    ],
)
def test_the_verdict_says_why(
    targets: tuple[str, ...], counts: tuple[int, ...], waived: tuple[str, ...], sentence: str
) -> None:
    policy = make("observed", *targets, waivers=tuple(waiver(f"fpr@{rate}") for rate in waived))
    found = verdict(policy, *counts)
    unseen = "; without malicious rows, detection was not judged" if found.outcome == "pass" else ""
    assert found.reason == sentence + unseen


def test_a_long_list_of_checks_is_cut_short() -> None:
    targets = tuple(target(f"0.00{i}", min_n=10**6) for i in range(1, 7))
    found = verdict(make("proven", *targets), *[0] * 6, n=10)
    assert found.reason == "too few held-out benign rows for fpr@0.1%, fpr@0.2%, fpr@0.3% and 3 more"


# --- waivers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_an_active_waiver_lets_its_finding_through(outcome: str) -> None:
    """The finding keeps its outcome and shows that it is waived; the last day still waives."""
    found = verdict(make("observed", waivers=(waiver("fpr@0.1%", TODAY),)), COUNTS[outcome][1])
    assert (found.outcome, found.findings[0].outcome, found.findings[0].waived) == ("pass", outcome, True)
    assert [use.status for use in found.waivers] == ["active"]


def test_an_expired_waiver_waives_nothing_and_is_reported() -> None:
    policy = make("observed", waivers=(waiver("fpr@0.1%", date(2026, 6, 29)),))
    found = verdict(policy, COUNTS["fail"][1])
    assert (found.outcome, found.findings[0].waived) == ("fail", False)
    assert [use.status for use in found.waivers] == ["expired"]


@pytest.mark.parametrize("check", ["fpr@0.1%", "fpr@0.01%", "overlap"])
def test_a_waiver_with_nothing_to_cover_is_reported_as_unused(check: str) -> None:
    """Because its check passes, or because there is no such check."""
    found = verdict(make("observed", waivers=(waiver(check),)), COUNTS["pass"][1])
    assert (found.outcome, found.findings[0].waived) == ("pass", False)
    assert [use.status for use in found.waivers] == ["unused"]


def test_a_waiver_covers_only_the_check_that_it_names() -> None:
    policy = make("observed", *THREE, waivers=(waiver("fpr@1%"),))
    found = verdict(policy, *COUNTS["fail"])
    assert [finding.waived for finding in found.findings] == [True, False, False]
    assert found.outcome == "fail"
    assert found.reason == "the held-out benign rows disprove fpr@0.1% and fpr@0.01%"


@pytest.mark.parametrize("written", ["fpr@1e-4", "fpr@0.0001", "fpr@0.01%", "fpr@0.00010"])
def test_a_waiver_names_its_target_however_the_rate_is_written(written: str) -> None:
    policy = make("observed", *THREE, waivers=(waiver(written),))
    found = verdict(policy, COUNTS["pass"][0], COUNTS["pass"][1], COUNTS["fail"][2])
    assert [str(finding.check) for finding in found.findings if finding.waived] == ["fpr@0.01%"]
    assert found.outcome == "pass"


def test_each_waiver_is_reported_by_what_it_covers_itself() -> None:
    """One that covers a finding does not make its neighbour look used."""
    policy = make("observed", *THREE, waivers=(waiver("fpr@1%"), waiver("fpr@0.1%")))
    found = verdict(policy, COUNTS["pass"][0], COUNTS["fail"][1], COUNTS["pass"][2])
    assert [use.status for use in found.waivers] == ["unused", "active"]


def test_of_two_waivers_for_one_check_the_valid_one_counts() -> None:
    policy = make("observed", waivers=(waiver("fpr@0.1%", date(2026, 1, 1)), waiver("fpr@0.1%", date(2027, 1, 1))))
    found = verdict(policy, COUNTS["fail"][1])
    assert found.outcome == "pass"
    assert [use.status for use in found.waivers] == ["expired", "active"]


# --- sentences ----------------------------------------------------------------------------------------------


REFUTED = "1 or fewer or 31 or more refute it"


@pytest.mark.parametrize(
    ("text", "k", "n", "sentence"),
    [
        (
            target(),
            140,
            N,
            "140 false positives in 139,315 benign rows; 126 to 148 prove it, 84 or fewer or 201 or more refute it",
        ),
        (
            target("0.0001", 160_000, "0.5"),
            13,
            N,
            "13 false positives in 139,315 benign rows; no count passes on fewer than 160,000 rows, " + REFUTED,
        ),
        (
            target("0.1", 160, "0.5"),
            1,
            160,
            "1 false positive in 160 benign rows; only 15 proves it, 2 or fewer or 34 or more refute it",
        ),
        (
            target("0.0001", 1, "{above: 0.25, below: 1}"),
            0,
            N,
            "0 false positives in 139,315 benign rows; 0 to 9 prove it, 27 or more refute it",
        ),
        (
            target(min_n=1),
            5,
            5000,
            "5 false positives in 5,000 benign rows; no count proves it, none at all or 13 or more refute it",
        ),
        (target("0.5", 1, "1"), 1, 1, "1 false positive in 1 benign row; 0 to 1 prove it, no count refutes it"),
        (
            target("0.5", 1, "0.5"),
            3,
            6,
            "3 false positives in 6 benign rows; no count proves it, no count refutes it",
        ),
    ],
)
def test_messages_name_the_count_and_the_counts_that_decide(text: str, k: int, n: int, sentence: str) -> None:
    assert find(make("proven", text), k, n).message == sentence


def test_messages_say_when_a_threshold_is_extrapolated() -> None:
    assert (
        "; the threshold is extrapolated beyond the fit sample; 126 to" in find(make(), 140, lowest_label=0.5).message
    )


any_targets = st.builds(
    target,
    st.sampled_from(["0.0001", "0.001", "0.01", "0.1", "0.5", "0.9"]),
    st.sampled_from([1, 7, 100, 1000, 16_000, 10**6, 10**12]),
    tolerance_texts,
)


@pytest.mark.usefixtures("_without_advice")
@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(RULES), any_targets, st.integers(1, 20_000) | st.integers(1, 60), st.booleans())
def test_one_sentence_says_what_would_help_and_none_contradicts_the_outcome(
    data: st.DataObject, rule: str, text: str, n: int, extrapolated: bool
) -> None:
    """A remedy where there is no pass, and no message that names a count as proof which did not pass."""
    policy = make(rule, text)
    k = data.draw(st.integers(0, min(n, int(3 * n * float(policy.targets[0].fpr)) + 2)))
    finding = find(policy, k, n, lowest_label=0.99 if extrapolated else SUPPORTED)
    assert (finding.remedy is None) == (finding.outcome == "pass")
    for low, high in re.findall(r"([\d,]+) to ([\d,]+) prove it", finding.message):
        low, high = (int(count.replace(",", "")) for count in (low, high))
        assert not low <= k <= high or finding.outcome == "pass"


def test_too_few_rows_are_not_said_to_prove_anything() -> None:
    """13 of 139,315 where 160,000 rows are wanted: not `0 to 13 prove it`."""
    finding = find(make("proven", target("0.0001", 160_000, "{above: 0.5, below: 1}")), 13)
    assert finding.reason == "min-n"
    assert finding.message == (
        "13 false positives in 139,315 benign rows; no count passes on fewer than 160,000 rows, 31 or more refute it"
    )


# --- from scores to counts ----------------------------------------------------------------------------------


def test_evidence_counts_scores_at_or_above_each_threshold() -> None:
    """Inclusively, and with the facts of the fit that decide whether a target is extrapolated."""
    policy = make("proven", target("0.1"), target("0.01"), target("0.0001"))
    rng = np.random.default_rng(11)
    fitted = np.round(rng.beta(0.5, 8, 3000), 3)
    calibrator = fit(fitted, policy.calibration, policy.anchors)
    thresholds: list[Any] = [calibrator.thresholds[Decimal(fpr)] for fpr in ("0.1", "0.01", "0.0001")]
    assert None not in thresholds
    held_out = np.sort(np.concatenate([rng.beta(0.5, 8, 6994), thresholds, np.nextafter(thresholds, 0)]))
    evidence = gathered(policy, fitted, held_out)
    found = evidence.of(Targets)
    assert found is not None
    assert [anchor.tally.threshold for anchor in found.anchors] == thresholds
    assert [anchor.tally.flagged for anchor in found.anchors] == [int(np.sum(held_out >= t)) for t in thresholds]
    assert [anchor.tally.rows for anchor in found.anchors] == [7000] * 3
    judged = judge_targets(policy, evidence)
    assert [one.extrapolated for one in judged] == [False, False, True]
    assert [str(one.target.check) for one in judged] == ["fpr@10%", "fpr@1%", "fpr@0.01%"]


def gathered(policy: Policy, fitted: Floats, held_out: Floats) -> Evidence:
    """What every check measures of two samples."""
    calibrator = fit(fitted, policy.calibration, policy.anchors)
    case = Case(policy, calibrator, sample_of(held_out), sample_of(fitted))
    return gather(case, describe(sample_of(fitted)), calibrator_facts(calibrator), TODAY)


def test_evidence_counts_nothing_where_no_score_reaches_the_anchor() -> None:
    policy = make("proven", target("0.1"), target("0.001"))
    scores = np.concatenate([np.random.default_rng(12).uniform(0, 0.99, 950), np.ones(50)])
    found = gathered(policy, scores, scores[1:]).of(Targets)
    assert found is not None
    assert found.anchors[1].tally == Tally(threshold=None, flagged=0, rows=999)
    assert found.anchors[0].tally.flagged > 50


def test_derived_numbers_of_a_finding() -> None:
    found = find(make("proven", target(tolerance="{above: 0.5, below: 2}")), 170, 100_000).rate
    assert found is not None
    assert found.observed == 0.0017
    assert found.relative_error == pytest.approx(0.7, rel=1e-15)
    assert found.tolerance == (Decimal(0), Decimal("0.0015"))
    wide = find(make("proven", target("0.5", 1, "3")), 1, 2).rate
    assert wide is not None
    assert wide.tolerance == (Decimal(0), Decimal(1))


# --- the paper ----------------------------------------------------------------------------------------------


def interval(finding: Finding) -> tuple[float, float]:
    assert finding.rate is not None
    return finding.rate.interval


def test_the_papers_interval() -> None:
    """13 false positives among 139,315 benign rows: 0.0050 % to 0.0160 %."""
    low, high = interval(find(make("observed", target("0.0001")), 13))
    assert (f"{low:.4%}", f"{high:.4%}") == ("0.0050%", "0.0160%")


def test_the_papers_counts_by_the_papers_policy() -> None:
    """The first three targets are proven; for the fourth 139,315 rows are fewer than the 160,000 it asks for."""
    policy = load_policy(POLICIES / "paper.yaml").policy
    lowest = float(named(policy.calibration.plotting_position).label(1, 59_706))
    counts = (14_005, 1_425, 140, 13, 2, 0)
    found = judge(policy, evidence_of(policy, *counts, lowest_label=lowest), (targets.CHECK,))
    assert [(finding.outcome, finding.grade, finding.reason) for finding in found.findings[:4]] == [
        ("pass", "proven", "proven"),
        ("pass", "proven", "proven"),
        ("pass", "proven", "proven"),
        ("inconclusive", "open", "min-n"),
    ]
    assert [finding.required for finding in found.findings] == [True] * 4 + [False] * 2
    assert (found.outcome, found.reason) == ("inconclusive", "too few held-out benign rows for fpr@0.01%")
    assert "139,315 benign rows; no count passes on fewer than 160,000 rows" in found.findings[3].message


@pytest.mark.parametrize(
    ("fpr", "k", "relative", "grades"),
    [
        ("0.1", 14_005, ("-1.0", "+2.1"), ("proven", "proven")),
        ("0.01", 1_425, ("-2.9", "+7.7"), ("proven", "proven")),
        ("0.001", 140, ("-15.5", "+18.6"), ("proven", "proven")),
        ("0.0001", 13, ("-50.3", "+59.6"), ("open", "open")),
    ],
)
def test_the_papers_counts_relative_to_their_targets(
    fpr: str, k: int, relative: tuple[str, str], grades: tuple[str, str]
) -> None:
    """Intervals in percent of the target, and the grades at 25 % and 50 %."""
    found = [find(make("proven", target(fpr, 1, tolerance)), k) for tolerance in ("0.25", "0.5")]
    assert tuple(finding.grade for finding in found) == grades
    assert tuple(f"{100 * (end / float(fpr) - 1):+.1f}" for end in interval(found[0])) == relative


# --- how often the gate errs --------------------------------------------------------------------------------

DRAWS = 200_000
# Monte Carlo: the standard error of a chance of 2.5 % is 0.035 % with this many draws; 4 of them are allowed.
ERROR = 4 * (0.025 * 0.975 / DRAWS) ** 0.5


@pytest.mark.each_run(2)
@pytest.mark.usefixtures("_without_advice")
@pytest.mark.parametrize("n", [139_315, 368_864])
@pytest.mark.parametrize("edge", ["0.00125", "0.00075"])
def test_a_release_at_an_edge_is_misjudged_at_most_at_the_promised_rate(n: int, edge: str) -> None:
    """200,000 simulated releases, and the same chances computed exactly from the counts that decide.

    The true rate sits on the edge of the tolerance: a pass by the rule `proven` is a false pass just beyond it,
    a fail a false alarm just inside it. Either may happen with probability alpha/2 = 2.5 % at most.
    """
    policy, q = make("proven", target(min_n=1)), float(Fraction(edge))
    counts, times = np.unique(np.random.default_rng(20_260_630).binomial(n, q, DRAWS), return_counts=True)
    share = {"pass": 0.0, "inconclusive": 0.0, "fail": 0.0}
    for k, seen in zip(counts.tolist(), times.tolist(), strict=True):
        share[find(policy, k, n).outcome] += seen / DRAWS
    critical = measured(policy, 0, n).critical
    assert critical.proven is not None
    assert critical.refuted_at_or_below is not None
    assert critical.refuted_at_or_above is not None
    passes = upper_tail(critical.proven[0], n, q) - upper_tail(critical.proven[1] + 1, n, q)
    fails = lower_tail(critical.refuted_at_or_below, n, q) + upper_tail(critical.refuted_at_or_above, n, q)
    assert 0.02 < passes <= 0.025
    assert 0.02 < fails <= 0.025
    assert share["pass"] == pytest.approx(passes, abs=ERROR)
    assert share["fail"] == pytest.approx(fails, abs=ERROR)


# --- tied scores --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tied_rows", "reason"), [(3000, "granularity"), (5, "too-few")])
def test_a_block_of_tied_scores_is_named_as_what_stands_in_the_way(tied_rows: int, reason: str) -> None:
    """With 30 % of the rows at one score no threshold flags 10 %, and no number of rows changes that."""
    policy = make("proven", target("0.1", 100, "0.25"))
    rng = np.random.default_rng(13)
    scores = np.concatenate([rng.uniform(0, 0.5, 10_000 - tied_rows - 200), np.full(tied_rows, 0.6)])
    scores = np.concatenate([scores, rng.uniform(0.7, 1, 200)])
    held_out = scores[1:] if reason == "granularity" else rng.uniform(0, 0.3, 5000)
    finding = judge(policy, gathered(policy, scores, held_out)).findings[0]
    assert (finding.outcome, finding.grade, finding.reason) == ("fail", "refuted", reason)
    if reason == "granularity":
        attainable = "attainable are 2 % (200 of 10,000 fit rows) and 32 % (3,200)"
        assert f"the detector cannot resolve 10 %: {attainable}" in finding.message
        assert finding.remedy is not None
        assert finding.remedy.startswith("more rows cannot help: give the detector finer scores")
