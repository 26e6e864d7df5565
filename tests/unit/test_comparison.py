"""Two releases at the same anchors: counts by brute force, joined rows, policies, and baselines not to be used."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from samples import sample_of

from gate.checks import CHECKS, Parts, parse_policy
from gate.checks.baseline import Comparison, ReferenceFacts
from gate.checks.change import Change, compare
from gate.checks.check import CalibratorFacts, Evidence, Finding, count
from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.checks.fpr import AtAnchor
from gate.contract import Anchor
from gate.errors import GateError
from gate.policy import Policy
from gate.policy.changes import policy_changes
from gate.rows.joined import paired
from gate.rows.sample import Sample
from gate.sources import SampleFacts
from gate.statistics.binomial import clopper_pearson
from gate.statistics.proportions import Pairs, difference_interval, fisher, mcnemar, paired_interval
from gate.statistics.tally import Tally
from gate.verdict import judge

TODAY = date(2026, 6, 30)
POLICY = """\
version: 1
name: small
data: {id: id}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 5000, max_relative_error: 0.5}
"""
DETECTION = "checks: {detection: {targets: [{fpr: 1%, min_tpr: 0.5}], max_drop: 0.02}}\n"
ONE = (Anchor(Decimal("0.1"), Decimal("0.1")),)
ALPHA = Fraction(1, 20)
TENTH = Decimal("0.1")


def policy_of(text: str = POLICY) -> Policy:
    return parse_policy(text, "p.yaml").policy


def sample(values: Any, ids: Any = None, groups: Any = None, name: str = "rows") -> Sample:
    named = None if ids is None else np.array(list(ids))
    return sample_of(values, ids=named, groups=groups, name=name)


def tallied(threshold: float | None, k: int, n: int) -> dict[Decimal, Tally]:
    """So many of n rows at the one anchor."""
    return {TENTH: Tally(threshold=threshold, flagged=k, rows=n)}


def counted(threshold: float | None, scores: Sample) -> dict[Decimal, Tally]:
    return {TENTH: count(scores, [threshold], ALPHA)[0]}


# --- joining by id ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", ["old", "new"])
def test_an_id_that_comes_twice_is_refused(twice: str) -> None:
    ids = {"old": [1, 2, 3], "new": [1, 2, 3]} | {twice: [1, 7, 7]}
    samples = [sample([0.1, 0.2, 0.2], ids[side], name=f"{side}.parquet") for side in ("old", "new")]
    with pytest.raises(GateError, match=rf"^{twice}.parquet: must have another id for every row .*, got 1 rows with"):
        paired(samples[0], samples[1], [])


def test_rows_without_ids_cannot_be_joined() -> None:
    with pytest.raises(GateError, match=r"must have ids to be compared row by row; set data\.id"):
        paired(sample([0.1, 0.2]), sample([0.1, 0.2], [1, 2]), [])


def test_ten_thousand_shuffled_rows_join_exactly() -> None:
    rng = np.random.default_rng(0)
    order, values = rng.permutation(10_000), rng.random(10_000)
    found = paired(sample(values, range(10_000)), sample(values[order], order), [(0.3, 0.3), (0.2, 0.7)])
    assert found.old.tolist() == [[(values >= 0.3).sum(), (values >= 0.2).sum()]]
    assert found.new.tolist() == [[(values >= 0.3).sum(), (values >= 0.7).sum()]]
    assert (found.new_only.tolist(), found.lacking) == ([[0, 0]], 0)
    assert found.old_only.tolist() == [[0, ((values >= 0.2) & (values < 0.7)).sum()]]


# --- counting -----------------------------------------------------------------------------------------------

scores = st.lists(st.integers(0, 20).map(lambda i: i / 20), min_size=2, max_size=60)
thresholds = st.none() | st.integers(0, 21).map(lambda i: i / 20)


@given(st.data(), thresholds, thresholds)
@settings(deadline=None)
def test_the_same_rows_are_compared_one_by_one(data: st.DataObject, old: float | None, new: float | None) -> None:
    then = data.draw(scores)
    now = data.draw(st.lists(st.sampled_from(then), min_size=len(then), max_size=len(then)))
    before, after = (sample(values, range(len(then))) for values in (then, now))
    (change,) = compare(ONE, tallied(old, 0, 10), counted(new, after), ALPHA, before, after)
    flags = [(old is not None and a >= old, new is not None and b >= new) for a, b in zip(then, now, strict=True)]
    pairs = Pairs(*(flags.count(kind) for kind in [(True, True), (False, True), (True, False), (False, False)]))
    stale = sum(old is not None and b >= old for b in now)
    assert change.pairs == pairs
    assert (change.old.flagged, change.new.flagged) == (pairs.both + pairs.old_only, pairs.both + pairs.new_only)
    assert change.p_value == mcnemar(int(pairs.new_only), int(pairs.old_only))
    assert change.interval(0.05) == paired_interval(pairs, 0.05)
    assert change.stale is not None
    assert (change.stale.flagged, change.stale.interval(0.05)) == (stale, clopper_pearson(stale, len(now), 0.05))
    assert float(change.difference) == pytest.approx((pairs.new_only - pairs.old_only) / len(then))


@given(scores, st.integers(0, 500), thresholds, thresholds)
def test_different_rows_are_compared_by_their_counts(
    now: list[float], k: int, old: float | None, new: float | None
) -> None:
    k = 0 if old is None else k
    rows = sample(now)
    (change,) = compare(ONE, tallied(old, k, 500), counted(new, rows), ALPHA, None, rows)
    flagged = sum(new is not None and score >= new for score in now)
    assert (change.new.flagged, change.new.rows, change.pairs) == (flagged, len(now), None)
    assert change.p_value == fisher(flagged, len(now), k, 500)
    assert change.interval(0.05) == difference_interval(flagged, len(now), k, 500, 0.05)
    assert change.stale is not None
    assert change.stale.flagged == sum(old is not None and score >= old for score in now)


def test_recorded_counts_alone_give_no_stale_count() -> None:
    (change,) = compare(ONE, tallied(0.4, 90, 1000), tallied(0.4, 130, 1000), ALPHA)
    assert change.stale is None
    assert change.p_value == fisher(130, 1000, 90, 1000)


def test_anchors_that_only_one_release_has_are_left_out() -> None:
    two = (*ONE, Anchor(Decimal("0.01"), Decimal("0.3")))
    new = tallied(0.4, 1, 10) | {Decimal("0.01"): Tally(threshold=0.5, flagged=1, rows=10)}
    assert [change.fpr for change in compare(two, tallied(0.4, 1, 10), new, ALPHA)] == [TENTH]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_only_rows_that_are_flagged_can_have_flipped(old: int, new: int, new_only: int, old_only: int) -> None:
    """A record that says otherwise is refused on reading."""
    both = new - new_only
    possible = 0 <= both == old - old_only and both + new_only + old_only <= 10 and max(old, new) <= 10
    content = {
        "fpr": 0.1,
        "score": 0.1,
        "old": {"threshold": 0.5, "flagged": old, "rows": 10},
        "new": {"threshold": 0.5, "flagged": new, "rows": 10},
        "flipped": {"new_only": new_only, "old_only": old_only},
    }
    if possible:
        assert Change.model_validate(content).pairs == Pairs(both, new_only, old_only, 10 - both - new_only - old_only)
    else:
        with pytest.raises(ValidationError):
            Change.model_validate(content)


def test_grouped_rows_get_intervals_that_allow_for_it_and_no_exact_test() -> None:
    """Fifty groups that flip as one: the interval is about as wide as that of fifty rows."""
    rng = np.random.default_rng(1)
    groups, ids = np.repeat(np.arange(50), 40), range(2_000)
    then, now = (np.repeat(rng.choice([0.2, 0.8], 50), 40) for _ in range(2))
    before, after = sample(then, ids), sample(now, ids, groups)
    (change,) = compare(ONE, tallied(0.5, 0, 10), counted(0.5, after), ALPHA, before, after)
    assert change.p_value is None
    assert change.pairs is not None
    few, found = paired_interval(change.pairs.worth(50 / 2_000), 0.05), change.interval(0.05)
    assert found[1] - found[0] == pytest.approx(few[1] - few[0], rel=0.15)
    (unpaired,) = compare(ONE, tallied(0.5, 900, 2_000), counted(0.5, after), ALPHA, None, after)
    assert unpaired.p_value is None
    few, found = difference_interval(20, 50, 900, 2_000, 0.05), unpaired.interval(0.05)
    assert found[1] - found[0] > 0.7 * (few[1] - few[0])
    verdict = judge(policy_of(), evidence_of(policy_of(), baseline=Comparison(reference=FACTS, anchors=(unpaired,))))
    assert [warning for warning in verdict.warnings if "rows come in groups" in warning]


# --- what changed in the policy -----------------------------------------------------------------------------

FULL = """\
version: 1
name: full
rule: proven
confidence: 0.95
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.25}
  - {fpr: 1%, min_n: 5000, max_relative_error: {above: 0.5, below: 1}}
checks:
  exchangeability: {alpha: 0.001, required: true}
  detection: {targets: [{fpr: 1%, min_tpr: 0.8}], max_drop: 0.02}
waivers:
  - {check: fpr@1%, reason: r, owner: o, expires: 2026-12-31}
"""
CHANGES = [
    ("rule: proven", "rule: observed", ["weaker: rule is observed instead of proven"]),
    ("confidence: 0.95", "confidence: 0.9", ["weaker: confidence is 0.9 instead of 0.95"]),
    ("confidence: 0.95", "confidence: 0.99", ["stricter: confidence is 0.99 instead of 0.95"]),
    ("min_n: 1000", "min_n: 900", ["weaker: fpr@10% needs 900 rows instead of 1,000"]),
    ("min_n: 5000", "min_n: 6000", ["stricter: fpr@1% needs 6,000 rows instead of 5,000"]),
    ("error: 0.25", "error: 0.3", ["weaker: fpr@10% may err 30 % around its target instead of 25 %"]),
    ("above: 0.5", "above: 0.75", ["weaker: fpr@1% may err 75 % above its target instead of 50 %"]),
    ("below: 1}", "below: 0.5}", ["stricter: fpr@1% may err 50 % below its target instead of 100 %"]),
    ("error: 0.25}", "error: 0.25, required: false}", ["weaker: fpr@10% no longer blocks a release"]),
    ("  - {fpr: 10%, min_n: 1000, max_relative_error: 0.25}\n", "", ["weaker: fpr@10% is no longer judged"]),
    ("alpha: 0.001", "alpha: 0.0005", ["weaker: checks.exchangeability.alpha is 0.0005 instead of 0.001"]),
    ("required: true", "required: false", ["weaker: checks.exchangeability.required is false instead of true"]),
    ("min_tpr: 0.8", "min_tpr: 0.7", ["weaker: checks.detection.targets[1%].min_tpr is 0.7 instead of 0.8"]),
    ("max_drop: 0.02", "max_drop: 0.05", ["weaker: checks.detection.max_drop is 0.05 instead of 0.02"]),
    (", max_drop: 0.02", "", ["weaker: checks.detection.max_drop is nothing instead of 0.02"]),
    ("2026-12-31", "2027-06-30", ["weaker: fpr@1% is waived until 2027-06-30 instead of 2026-12-31"]),
    (
        "check: fpr@1%",
        "check: fpr@10%",
        ["weaker: fpr@10% is waived until 2026-12-31", "stricter: fpr@1% is no longer waived"],
    ),
    ("name: full", "name: other", []),
    (
        "name: full",
        "name: full\ncalibration: {ties: average}",
        ["changed: calibration.ties is average instead of conservative"],
    ),
    ("name: full", "name: full\ndata: {label: y}", ["changed: data.label is y instead of nothing"]),
]


@pytest.mark.parametrize(("old", "new", "sentences"), CHANGES, ids=[f"{case[1][:24]}" for case in CHANGES])
def test_each_change_of_the_policy_is_one_sentence(old: str, new: str, sentences: list[str]) -> None:
    before, after = policy_of(FULL), policy_of(FULL.replace(old, new))
    assert list(policy_changes(before, after)) == sentences


def test_a_change_and_its_opposite_are_weaker_and_stricter() -> None:
    opposite = {"weaker": "stricter", "stricter": "weaker", "changed": "changed"}
    for old, new, _ in CHANGES:
        before, after = policy_of(FULL), policy_of(FULL.replace(old, new))
        kinds, back = ([c.split(":")[0] for c in policy_changes(*pair)] for pair in ((before, after), (after, before)))
        assert sorted(kinds) == sorted(opposite[kind] for kind in back)


def test_every_key_of_a_policy_is_watched() -> None:
    """Whatever key differs, there is a sentence, except for the name."""
    before = policy_of(FULL)
    alone = FULL[: FULL.index("waivers:")]  # a waiver beside detectors names one of them
    for key in type(before).model_fields:
        changed = {"version": 1, "name": "x", "reuse": {"max_uses": 3}}.get(key)
        if key in ("version", "name"):
            continue
        text = FULL if changed is None else FULL + f"{key}: {json.dumps(changed)}\n"
        edits = {
            "rule": FULL.replace("proven", "observed"),
            "confidence": FULL.replace("0.95", "0.9"),
            "calibration": FULL + "calibration: {knots: 5000}\n",
            "contract": FULL + "contract: [{fpr: 10%, score: 0.2}, {fpr: 1%, score: 0.3}]\n",
            "targets": FULL.replace("1000", "1001"),
            "data": FULL + "data: {score: s}\n",
            "checks": FULL.replace("0.001", "0.002"),
            "waivers": FULL.replace("2026-12-31", "2026-11-30"),
            "reuse": text,
            "interval": FULL + "interval: sequential\n",
            "ranges": FULL + "ranges: [{from: 10%, to: 1%, min_n: 1000, max_relative_error: 0.5}]\n",
            "detectors": alone + "detectors: [{name: a, score: s}]\n",
            "system": alone + "detectors: [{name: a, score: s}]\nsystem: [{score: 0.3, max_fpr: 2%, min_n: 1000}]\n",
        }
        assert policy_changes(before, policy_of(edits[key])), key


# --- judging against a baseline -----------------------------------------------------------------------------


FACTS = ReferenceFacts(
    path="releases/v1",
    release="v1",
    created="2026-02-01T00:00:00Z",
    outcome="pass",
    verdict_sha256="a" * 64,
    policy_sha256="b" * 64,
    holdout_sha256="c" * 64,
)
SAMPLE = SampleFacts(sources=(), sha256="", n=1000)
HUNDREDTH = Decimal("0.01")


def evidence_of(policy: Policy, malicious: bool = False, **parts: Any) -> Evidence:
    """These parts of a release of which nothing else was measured."""
    calibrator = CalibratorFacts(
        sha256="c" * 64,
        bytes=1,
        knots=11,
        plotting_position="filliben",
        ties="conservative",
        lowest_label=1e-6,
        anchors=(),
    )
    return Evidence("run", TODAY, calibrator, SAMPLE, SAMPLE, SAMPLE if malicious else None, Parts(**parts))


def drop(rule: str, old: tuple[int, int], new: tuple[int, int], outcome: Any = "pass") -> dict[str, Finding]:
    """The findings of a release whose malicious rows are detected so often, before and now."""
    before = policy_of(POLICY.replace("name: small", f"name: small\nrule: {rule}"))
    policy = policy_of(POLICY.replace("name: small", f"name: small\nrule: {rule}") + DETECTION)
    then, now = (Tally(threshold=0.4, flagged=k, rows=n) for k, n in (old, new))
    evidence = evidence_of(
        policy,
        malicious=True,
        detection=Detection(anchors=(AtAnchor(fpr=HUNDREDTH, tally=now),)),
        baseline=Comparison(
            reference=FACTS.model_copy(update={"outcome": outcome}), policy_changes=policy_changes(before, policy)
        ),
        drop=Drops(anchors=(Change(fpr=HUNDREDTH, score=Decimal("0.3"), old=then, new=now),)),
    )
    return {str(finding.check): finding for finding in judge(policy, evidence, CHECKS).findings}


@pytest.mark.parametrize(
    ("rule", "old", "new", "outcome", "reason"),
    [
        ("proven", (8000, 10_000), (7990, 10_000), "pass", "proven"),
        ("proven", (8000, 10_000), (7850, 10_000), "inconclusive", "open"),
        ("observed", (8000, 10_000), (7850, 10_000), "pass", "observed"),
        ("observed", (8000, 10_000), (7800, 10_000), "pass", "observed"),  # exactly the margin
        ("observed", (8000, 10_000), (7799, 10_000), "inconclusive", "outside"),
        ("not-refuted", (8000, 10_000), (7750, 10_000), "pass", "not-refuted"),
        ("not-refuted", (8000, 10_000), (7000, 10_000), "fail", "dropped"),
        ("proven", (8000, 10_000), (9000, 10_000), "pass", "proven"),
    ],
)
def test_non_inferiority_is_three_valued_too(
    rule: str, old: tuple[int, int], new: tuple[int, int], outcome: str, reason: str
) -> None:
    finding = drop(rule, old, new)["tpr-drop@1%"]
    assert (finding.outcome, finding.reason) == (outcome, reason)
    low, high = difference_interval(*new, *old, 0.05)
    assert finding.grade == ("proven" if low >= -0.02 else "refuted" if high < -0.02 else "open")


def test_the_drop_is_said_in_counts_and_points() -> None:
    finding = drop("proven", (8000, 10_000), (7000, 10_000))["tpr-drop@1%"]
    assert finding.message == (
        "7,000 of 10,000 malicious rows detected, 8,000 of 10,000 by v1, taken as different rows; a change of −10 "
        "points, between −11.2 and −8.8, where 2 may be lost"
    )


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_a_baseline_that_did_not_pass_is_shown_and_is_no_reference(outcome: str) -> None:
    """Non-inferiority to a bad release proves nothing, however well this release compares with it."""
    findings = drop("proven", (8000, 10_000), (9000, 10_000), outcome)
    assert "tpr-drop@1%" not in findings
    finding = findings["baseline"]
    assert (finding.outcome, finding.required, finding.reason) == ("inconclusive", True, "did-not-pass")
    assert finding.message == (
        f"compared with v1 of 2026-02-01, which did not pass its own gate ({outcome}) and so is no reference; "
        "3 changes in the policy since, none of them weaker"
    )
    assert finding.remedy == "name a release that passed"


def test_a_failed_baseline_only_informs_where_nothing_is_judged_against_it() -> None:
    failed = Comparison(reference=FACTS.model_copy(update={"outcome": "fail"}))
    verdict = judge(policy_of(), evidence_of(policy_of(), baseline=failed))
    found = [(f.outcome, f.required) for f in verdict.findings if str(f.check) == "baseline"]
    assert found == [("inconclusive", False)]


def test_a_baseline_without_malicious_rows_leaves_the_drop_unmeasured() -> None:
    policy = policy_of(POLICY + DETECTION)
    evidence = evidence_of(policy, malicious=True, baseline=Comparison(reference=FACTS))
    finding = next(f for f in judge(policy, evidence).findings if str(f.check) == "tpr-drop@1%")
    assert (finding.outcome, finding.reason, finding.message) == (
        "inconclusive",
        "not-measured",
        "v1 recorded no malicious rows",
    )
