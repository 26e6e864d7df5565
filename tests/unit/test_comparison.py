"""Two releases at the same anchors: counts by brute force, joined rows, policies, and baselines not to be used."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.comparison import Baseline, Counted, Sample, compare, policy_changes, scored, warnings
from gate.contract import Anchor, Contract
from gate.errors import GateError
from gate.evidence import Evidence
from gate.policy import Policy, parse
from gate.scores import Scores, Source, match
from gate.statistics.binomial import clopper_pearson
from gate.statistics.proportions import Pairs, difference_interval, fisher, mcnemar, paired_interval
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
ONE = Contract((Anchor(Decimal("0.1"), Decimal("0.1")),))
TENTH = Decimal("0.1")


def policy_of(text: str = POLICY) -> Policy:
    return parse(text, "p.yaml").policy


def sample(values: Any, ids: Any = None, groups: Any = None, name: str = "rows") -> Scores:
    values = np.asarray(values, dtype=np.float64)
    text = None if ids is None else pa.array([str(i) for i in ids], type=pa.large_string())
    numbered = None if groups is None else np.asarray(groups)
    return Scores(values, (Source(name, len(values), len(values)),), numbered, text)


def baseline_of(benign: Sample, malicious: Sample | None = None, outcome: Any = "pass") -> Baseline:
    return Baseline(
        path="releases/v1",
        release="v1",
        created="2026-02-01T00:00:00Z",
        outcome=outcome,
        verdict_sha256="a" * 64,
        policy_sha256="b" * 64,
        policy=policy_of(),
        benign=benign,
        malicious=malicious,
        scores_sha256="c" * 64,
        rows_sha256=None,
    )


# --- joining by id ------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=40),
    st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=40),
)
def test_rows_are_joined_by_id_whatever_their_order(old: list[int], new: list[int]) -> None:
    common = [i for i in new if i in old]
    left, right = sample([i / 100 for i in old], old), sample([i / 50 for i in new], new)
    if not common:
        with pytest.raises(GateError, match="got no id in common"):
            match(left, right)
        return
    then, now, rows = match(left, right)
    assert then.tolist() == [i / 100 for i in common]
    assert now.tolist() == [i / 50 for i in common]
    assert [new[row] for row in rows] == common


@pytest.mark.parametrize("twice", ["old", "new"])
def test_an_id_that_comes_twice_is_refused_by_name(twice: str) -> None:
    ids = {"old": [1, 2, 3], "new": [1, 2, 3]} | {twice: [1, 7, 7]}
    samples = [sample([0.1, 0.2, 0.3], ids[side], name=f"{side}.parquet") for side in ("old", "new")]
    with pytest.raises(GateError, match=rf"^{twice}.parquet: must have another id for every row .*, got '7' in 2 rows"):
        match(*samples)


def test_rows_without_ids_cannot_be_joined() -> None:
    with pytest.raises(GateError, match=r"must have ids to be compared row by row; set data\.id or --id-column"):
        match(sample([0.1, 0.2]), sample([0.1, 0.2], [1, 2]))


def test_ten_thousand_shuffled_rows_join_exactly() -> None:
    rng = np.random.default_rng(0)
    order, values = rng.permutation(10_000), rng.random(10_000)
    then, now, _ = match(sample(values, range(10_000)), sample(values[order] + 1, order))
    assert np.array_equal(then + 1, now)


# --- counting -----------------------------------------------------------------------------------------------

scores = st.lists(st.integers(0, 20).map(lambda i: i / 20), min_size=2, max_size=60)
thresholds = st.none() | st.integers(0, 21).map(lambda i: i / 20)


@given(st.data(), thresholds, thresholds)
@settings(deadline=None)
def test_the_same_rows_are_compared_one_by_one(data: st.DataObject, old: float | None, new: float | None) -> None:
    then = data.draw(scores)
    now = data.draw(st.lists(st.sampled_from(then), min_size=len(then), max_size=len(then)))
    policy, rows = policy_of(), range(len(then))
    before = Sample({TENTH: Counted(old, 0, 10, 10.0)}, sample(then, rows))
    after = scored({TENTH: new}, sample(now, rows), policy)
    (change,) = compare(baseline_of(before), policy, ONE, after, None).benign
    flags = [(old is not None and a >= old, new is not None and b >= new) for a, b in zip(then, now, strict=True)]
    pairs = Pairs(*(flags.count(kind) for kind in [(True, True), (False, True), (True, False), (False, False)]))
    stale = sum(old is not None and b >= old for b in now)
    assert change.pairs == pairs
    assert (change.old.flagged, change.new.flagged) == (pairs.both + pairs.old_only, pairs.both + pairs.new_only)
    assert change.p_value == mcnemar(int(pairs.new_only), int(pairs.old_only))
    assert change.interval == paired_interval(pairs, 0.05)
    assert (change.stale, change.stale_interval) == (stale, clopper_pearson(stale, len(now), 0.05))
    assert change.difference == pytest.approx((pairs.new_only - pairs.old_only) / len(then))


@given(scores, st.integers(0, 500), thresholds, thresholds)
def test_different_rows_are_compared_by_their_counts(
    now: list[float], k: int, old: float | None, new: float | None
) -> None:
    policy = policy_of()
    before = Sample({TENTH: Counted(old, k, 500, 500.0)})
    (change,) = compare(baseline_of(before), policy, ONE, scored({TENTH: new}, sample(now), policy), None).benign
    flagged = sum(new is not None and score >= new for score in now)
    assert (change.new.flagged, change.new.rows, change.pairs) == (flagged, len(now), None)
    assert change.p_value == fisher(flagged, len(now), k, 500)
    assert change.interval == difference_interval(flagged, len(now), k, 500, 0.05)
    assert change.stale == sum(old is not None and score >= old for score in now)


def test_recorded_counts_alone_give_no_stale_count() -> None:
    samples = [Sample({TENTH: Counted(0.4, k, 1000, 1000.0)}) for k in (90, 130)]
    (change,) = compare(baseline_of(samples[0]), policy_of(), ONE, samples[1], None).benign
    assert (change.stale, change.stale_interval) == (None, None)
    assert change.p_value == fisher(130, 1000, 90, 1000)


def test_anchors_that_only_one_release_has_are_left_out() -> None:
    two = Contract((*ONE.anchors, Anchor(Decimal("0.01"), Decimal("0.3"))))
    new = Sample({TENTH: Counted(0.4, 1, 10, 10.0), Decimal("0.01"): Counted(0.5, 1, 10, 10.0)})
    changes = compare(baseline_of(Sample({TENTH: Counted(0.4, 1, 10, 10.0)})), policy_of(), two, new, None).benign
    assert [change.anchor.fpr for change in changes] == [TENTH]


def test_grouped_rows_get_intervals_that_allow_for_it_and_no_exact_test() -> None:
    """Fifty groups that flip as one: the interval is about as wide as that of fifty rows."""
    rng, policy = np.random.default_rng(1), policy_of()
    groups, ids = np.repeat(np.arange(50), 40), range(2_000)
    then, now = (np.repeat(rng.choice([0.2, 0.8], 50), 40) for _ in range(2))
    before = Sample({TENTH: Counted(0.5, 0, 10, 10.0)}, sample(then, ids))
    after = scored({TENTH: 0.5}, sample(now, ids, groups), policy)
    (change,) = compare(baseline_of(before), policy, ONE, after, None).benign
    assert change.p_value is None
    assert change.pairs is not None
    assert change.interval is not None
    few = paired_interval(change.pairs.worth(50 / 2_000), 0.05)
    assert change.interval[1] - change.interval[0] == pytest.approx(few[1] - few[0], rel=0.15)
    unpaired = compare(baseline_of(Sample({TENTH: Counted(0.5, 900, 2_000, None)})), policy, ONE, after, None)
    assert (unpaired.benign[0].p_value, unpaired.benign[0].interval) == (None, None)
    assert "rows come in groups" in warnings(unpaired, "", None)[0]


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
  - {check: fpr@0.01, reason: r, owner: o, expires: 2026-12-31}
"""
CHANGES = [
    ("rule: proven", "rule: observed", ["weaker: rule is observed instead of proven"]),
    ("confidence: 0.95", "confidence: 0.9", ["weaker: confidence is 0.9 instead of 0.95"]),
    ("confidence: 0.95", "confidence: 0.99", ["stricter: confidence is 0.99 instead of 0.95"]),
    ("min_n: 1000", "min_n: 900", ["weaker: fpr@0.1 needs 900 rows instead of 1,000"]),
    ("min_n: 5000", "min_n: 6000", ["stricter: fpr@0.01 needs 6,000 rows instead of 5,000"]),
    ("error: 0.25", "error: 0.3", ["weaker: fpr@0.1 may err 30 % around its target instead of 25 %"]),
    ("above: 0.5", "above: 0.75", ["weaker: fpr@0.01 may err 75 % above its target instead of 50 %"]),
    ("below: 1}", "below: 0.5}", ["stricter: fpr@0.01 may err 50 % below its target instead of 100 %"]),
    ("error: 0.25}", "error: 0.25, required: false}", ["weaker: fpr@0.1 no longer blocks a release"]),
    ("  - {fpr: 10%, min_n: 1000, max_relative_error: 0.25}\n", "", ["weaker: fpr@0.1 is no longer judged"]),
    ("alpha: 0.001", "alpha: 0.0005", ["weaker: checks.exchangeability.alpha is 0.0005 instead of 0.001"]),
    ("required: true", "required: false", ["weaker: checks.exchangeability.required is false instead of true"]),
    ("min_tpr: 0.8", "min_tpr: 0.7", ["weaker: checks.detection.targets[0.01].min_tpr is 0.7 instead of 0.8"]),
    ("max_drop: 0.02", "max_drop: 0.05", ["weaker: checks.detection.max_drop is 0.05 instead of 0.02"]),
    (", max_drop: 0.02", "", ["weaker: checks.detection.max_drop is nothing instead of 0.02"]),
    ("2026-12-31", "2027-06-30", ["weaker: fpr@0.01 is waived until 2027-06-30 instead of 2026-12-31"]),
    (
        "check: fpr@0.01",
        "check: fpr@0.1",
        ["weaker: fpr@0.1 is waived until 2026-12-31", "stricter: fpr@0.01 is no longer waived"],
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
        }
        assert policy_changes(before, policy_of(edits[key])), key


# --- judging against a baseline -----------------------------------------------------------------------------


def drop(rule: str, old: tuple[int, int], new: tuple[int, int], outcome: str = "pass") -> dict[str, Any]:
    """The findings of a release whose malicious rows are detected so often, before and now."""
    policy = policy_of(POLICY.replace("name: small", f"name: small\nrule: {rule}") + DETECTION)
    hundredth = Decimal("0.01")
    contract = Contract((Anchor(hundredth, Decimal("0.3")),))
    benign = Sample({hundredth: Counted(0.4, 10, 1000, 1000.0)})
    before, after = (Sample({hundredth: Counted(0.4, k, n, float(n))}) for k, n in (old, new))
    comparison = compare(baseline_of(benign, before, outcome), policy, contract, benign, after)
    verdict = judge(policy, Evidence((), detection=(), comparison=comparison), TODAY)
    return {finding.check: finding for finding in verdict.findings if finding.check != "tpr@0.01"} | {"": verdict}


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
    finding = drop(rule, old, new)["tpr-drop@0.01"]
    assert (finding.outcome, finding.reason) == (outcome, reason)
    low, high = difference_interval(*new, *old, 0.05)
    assert finding.grade == ("proven" if low >= -0.02 else "refuted" if high < -0.02 else "open")


def test_the_drop_is_said_in_counts_and_points() -> None:
    finding = drop("proven", (8000, 10_000), (7000, 10_000))["tpr-drop@0.01"]
    assert finding.message == (
        "7,000 of 10,000 malicious rows detected, 8,000 of 10,000 by v1, taken as different rows; a change of -10 "
        "points, between -11.2 and -8.8, where 2 may be lost"
    )


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_a_baseline_that_did_not_pass_is_shown_and_is_no_reference(outcome: str) -> None:
    """However well this release compares with it: what non-inferiority to a bad release proves is nothing."""
    findings = drop("proven", (8000, 10_000), (9000, 10_000), outcome)
    assert "tpr-drop@0.01" not in findings
    finding = findings["baseline"]
    assert (finding.outcome, finding.required, finding.reason) == ("inconclusive", True, "did-not-pass")
    assert finding.message == (
        f"compared with v1 of 2026-02-01, which did not pass its own gate ({outcome}) and so is no reference; "
        "3 changes in the policy since, none of them weaker"
    )
    assert finding.remedy == "name a release that passed"


def test_a_failed_baseline_only_informs_where_nothing_is_judged_against_it() -> None:
    policy = policy_of()
    benign = Sample({TENTH: Counted(0.4, 10, 100, 100.0)})
    comparison = compare(baseline_of(benign, outcome="fail"), policy, ONE, benign, None)
    verdict = judge(policy, Evidence((), comparison=comparison), TODAY)
    found = [(f.outcome, f.required) for f in verdict.findings if f.check == "baseline"]
    assert found == [("inconclusive", False)]


def test_a_baseline_without_malicious_rows_leaves_the_drop_unmeasured() -> None:
    policy = policy_of(POLICY + DETECTION)
    benign = Sample({TENTH: Counted(0.4, 10, 100, 100.0)})
    comparison = compare(baseline_of(benign), policy, ONE, benign, benign)
    verdict = judge(policy, Evidence((), detection=(), comparison=comparison), TODAY)
    finding = next(f for f in verdict.findings if f.check == "tpr-drop@0.01")
    assert (finding.outcome, finding.reason, finding.message) == (
        "inconclusive",
        "not-measured",
        "v1 recorded no malicious rows",
    )
