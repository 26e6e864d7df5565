"""Why a check decides as it does: rarer reasons, each with the counts that give it, its sentence and its remedy."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cases import TODAY, at_anchors, case, evidence, tally, targets
from forging import case_of
from samples import sample_of

from gate.calibration.served import Crossing, Served
from gate.checks import (
    baseline,
    detection,
    direction,
    drop,
    exchangeability,
    fpr,
    freshness,
    granularity,
    overlap,
    parse_policy,
)
from gate.checks import reuse as uses
from gate.checks import served as serving
from gate.checks.baseline import Comparison, ReferenceFacts
from gate.checks.change import Change, Flipped
from gate.checks.check import Evidence, Finding
from gate.checks.detection import Detection
from gate.checks.direction import Direction
from gate.checks.drop import Drops
from gate.checks.exchangeability import AtScore, AtTarget, Exchangeability
from gate.checks.fpr import Targets
from gate.checks.freshness import Ages
from gate.checks.granularity import Atom, Resolution
from gate.checks.overlap import Overlap
from gate.checks.reuse import Use, Uses
from gate.checks.served import ServedRows
from gate.checks.shared import Shared
from gate.planning import Budget
from gate.policy import Policy
from gate.statistics.tally import Tally
from gate.verdict import judge

HUNDREDTH = Decimal("0.01")
TARGET = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def policy_of(more: str = "", target: str = TARGET) -> Policy:
    return parse_policy(f"version: 1\nname: reasons\n{target}{more}", "reasons.yaml").policy


def at_target(policy: Policy, counted: Tally, **parts: Any) -> Finding:
    """The finding on the first target, whose rows are counted so."""
    finding, *_ = fpr.judge(policy, evidence(policy, fpr=targets(policy, counted), **parts))
    return finding


def said(finding: Finding) -> tuple[str, str]:
    return finding.outcome, finding.reason


# --- the targets --------------------------------------------------------------------------------------------


def test_a_proven_target_with_too_few_rows_is_looked_at_again_with_enough() -> None:
    policy = policy_of("interval: sequential\n", TARGET.replace("1000", "40000"))
    finding = at_target(policy, tally(300, 30_000))
    assert (*said(finding), finding.grade) == ("inconclusive", "min-n", "proven")
    assert finding.remedy == (
        "add about 10,000 benign rows to these (40,000 in all) and look again: it is decided by then 100 % of the "
        "time, 100 % of the time as proven"
    )


def test_an_open_target_that_is_looked_at_again_says_with_how_many_rows() -> None:
    """The law of the fit applies if enough fit rows lie beyond the target, else that of the count alone."""
    policy = policy_of("interval: sequential\n")
    for fit_n in (50_000, 200):
        finding = at_target(policy, tally(40, 4000), fit_n=fit_n)
        assert said(finding) == ("inconclusive", "open")
        assert str(finding.remedy).startswith("add about ")


@pytest.mark.parametrize("apart", [500, 0])
def test_an_open_target_of_scores_too_coarse_says_so(apart: int) -> None:
    """The fit rows can be flagged only 5 % at once, so more held-out rows would not help."""
    policy = policy_of()
    coarse = Resolution(
        top_tie=2500,
        targets=(Atom(fpr=HUNDREDTH, below=0, through=2500, apart=apart),),
    )
    finding = at_target(policy, tally(14, 1000), granularity=coarse)
    assert said(finding) == ("inconclusive", "granularity")
    what = "become one score" if apart else "the detector cannot resolve 1 %: attainable are 0 %"
    assert what in finding.message
    assert ("give logits" if apart else "more rows cannot help: give the detector finer scores") in str(finding.remedy)


def skewed(largest: int) -> Finding:
    policy = policy_of()
    found = evidence(policy, fpr=targets(policy, tally(300, 30_000, worth=900)))
    grouped = found.holdout.model_copy(update={"groups": 100, "largest_group": largest})
    (finding,) = fpr.judge(policy_of(target=TARGET.replace("1000", "100")), replace(found, holdout=grouped))
    return finding


def test_a_group_that_could_hide_what_the_tolerance_leaves_is_named() -> None:
    """Independent rows would prove this count; groups do not, and one has more rows than may still be flagged."""
    finding = skewed(largest=10_000)
    assert said(finding) == ("inconclusive", "skewed-groups")
    assert (
        "the largest group has 10,000 of 30,000 rows, and 150 more flagged ones would leave the tolerance"
        in finding.message
    )
    assert finding.remedy == "hold out more groups: more rows of the same ones add little"
    assert said(skewed(largest=150)) == ("inconclusive", "open")


@pytest.mark.parametrize(
    ("more", "words"), [(600, "300 would be flagged, which passes"), (0, "900 would be flagged, ")]
)
def test_scores_that_were_served_otherwise_are_counted_as_the_release_scores_them(more: int, words: str) -> None:
    policy = policy_of()
    crossing = Crossing(fpr=HUNDREDTH, score=Decimal("0.3"), more=more, fewer=0)
    found = Served(
        rows=30_000, equal=29_300, cause="scaled", factor=100, largest=1.0, lowest=0.1, crossings=(crossing,)
    )
    finding = at_target(policy, tally(900, 30_000), served=ServedRows(benign=found))
    assert said(finding) == ("fail", "too-many")
    assert f"as the release scores these rows, {words}" in finding.message
    assert finding.remedy == "serve the calibrated score as it is, without a factor"


# --- what was served ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "crossed", "required"),
    [
        ({"cause": "float32"}, 0, False),
        ({"cause": "float32"}, 1, False),
        ({"cause": "scaled", "factor": 2.0}, 0, True),
        ({"cause": "other"}, 0, True),
        ({"missing": 1}, 0, True),
    ],
)
def test_rounding_that_every_count_shows_does_not_block(facts: dict[str, Any], crossed: int, required: bool) -> None:
    policy = policy_of()
    crossings = (Crossing(fpr=HUNDREDTH, score=Decimal("0.3"), more=crossed, fewer=0),) if crossed else ()
    part = Served(rows=100, equal=99, largest=0.1, lowest=0.1, crossings=crossings, **facts)
    alike = Served(rows=50, equal=50)
    (finding,) = serving.judge(policy, evidence(policy, served=ServedRows(benign=alike, malicious=part)))
    assert said(finding) == ("fail", "served-otherwise")
    assert finding.required == required
    assert finding.message.startswith("benign: all 50 rows were served")
    assert "; malicious: 1 of 100 rows" in finding.message


# --- detection, and what is left of it ----------------------------------------------------------------------

DETECTION = "checks: {detection: {targets: [{fpr: 1%, min_tpr: 80%}], max_drop: 0.02}}\n"


def detected(counted: Tally, more: str = "") -> Finding:
    policy = policy_of(DETECTION + more)
    parts = evidence(policy, malicious_n=counted.rows, detection=Detection(anchors=at_anchors({"0.01": counted})))
    (finding,) = detection.judge(policy, parts)
    return finding


def test_detection_is_judged_at_every_look() -> None:
    once, always = detected(tally(825, 1000)), detected(tally(825, 1000), "interval: sequential\n")
    assert (said(once), said(always)) == (("pass", "proven"), ("inconclusive", "open"))


def test_detection_among_families_counts_what_they_are_worth() -> None:
    finding = detected(tally(825, 1000, worth=400))
    assert said(finding) == ("inconclusive", "open")
    assert finding.message.startswith("825 of 1,000 malicious rows detected, in groups worth 400 independent ones; ")


def test_an_anchor_that_no_score_reaches_detects_nothing() -> None:
    finding = detected(tally(0, 1000, threshold=None))
    assert said(finding) == ("fail", "missed")
    assert "; no raw score reaches this anchor, so nothing is ever detected there; " in finding.message


@pytest.mark.parametrize(
    ("k", "n", "words"),
    [
        (2, 2, "no count proves the minimum of 80 %, no count refutes it"),
        (3, 3, "no count proves the minimum of 80 %, none at all refutes it"),
        (9, 9, "no count proves the minimum of 80 %, 4 or fewer refute it"),
        (90, 100, "89 or more prove the minimum of 80 %, 71 or fewer refute it"),
    ],
)
def test_the_counts_that_decide_are_named_however_few_there_are(k: int, n: int, words: str) -> None:
    assert words in detected(tally(k, n)).message


def test_detection_below_the_minimum_though_not_provably_wants_training() -> None:
    finding = detected(tally(790, 1000), "rule: observed\n")
    assert said(finding) == ("inconclusive", "outside")
    assert str(finding.remedy).endswith("the rate observed lies below the minimum, though not provably")


def test_rows_that_there_was_no_time_to_compute_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "Budget", lambda: Budget(0))
    assert detected(tally(810, 1000)).remedy == "score more malicious rows: how many would do was not computed"


FACTS = ReferenceFacts(
    path="releases/v1",
    release="v1",
    created="2026-05-01T12:00:00Z",
    outcome="pass",
    verdict_sha256="a" * 64,
    policy_sha256="b" * 64,
    holdout_sha256="c" * 64,
)


@pytest.mark.parametrize(
    ("flipped", "remedy"),
    [
        (Flipped(new_only=0, old_only=15), "score more malicious rows by both releases"),
        (None, "compare row by row with --baseline-malicious, or score more malicious rows"),
    ],
)
def test_a_drop_that_is_open_wants_more_rows(flipped: Flipped | None, remedy: str) -> None:
    policy = policy_of(DETECTION)
    change = Change(fpr=HUNDREDTH, score=Decimal("0.3"), old=tally(815, 1000), new=tally(800, 1000), flipped=flipped)
    found = evidence(policy, malicious_n=1000, baseline=Comparison(reference=FACTS), drop=Drops(anchors=(change,)))
    (finding,) = drop.judge(policy, found)
    assert said(finding) == ("inconclusive", "open")
    assert finding.remedy == remedy


@pytest.mark.parametrize("rounded", [round, math.floor, math.ceil])
@pytest.mark.parametrize("side", [-1, 1])
def test_points_stay_on_their_side_of_the_edge(rounded: Any, side: int) -> None:
    """However near a difference is to the margin, what is printed is on the same side of it or the margin itself."""
    edge = -0.02
    assert drop._points_beside(edge, edge, rounded) == "−2"
    for share in (edge + side * 1e-9, math.nextafter(edge, side)):
        shown = float(drop._points_beside(share, edge, rounded).replace("−", "-"))
        assert (shown - 100 * edge) * side >= 0


def test_malicious_rows_that_are_flagged_less_often_than_benign_ones_are_reversed() -> None:
    policy = policy_of()
    counts = {"0.1": tally(500, 1000), "0.01": tally(100, 1000)}
    fewer = {"0.1": tally(10, 1000), "0.01": tally(100, 1000)}
    parts: dict[str, Any] = {"fpr": Targets(anchors=at_anchors(counts)), "direction": Direction(anchors=2)}
    for caught, decided in ((fewer, ("fail", "reversed")), (counts, ("pass", "rising"))):
        found = evidence(policy, malicious_n=1000, detection=Detection(anchors=at_anchors(caught)), **parts)
        (finding,) = direction.judge(policy, found)
        assert said(finding) == decided
    (finding,) = direction.judge(policy, evidence(policy, detection=Detection(anchors=at_anchors(fewer)), **parts))
    assert finding.message == (
        "10 of 1,000 malicious rows are flagged where 500 of 1,000 benign ones are, at 10 %: provably a lower rate, at "
        "1 of 2 anchors"
    )


def test_the_very_scores_of_the_last_release_teach_nothing() -> None:
    policy = policy_of()
    found = evidence(policy, baseline=Comparison(reference=FACTS))
    same = replace(found, holdout=found.holdout.model_copy(update={"sha256": FACTS.holdout_sha256}))
    assert [*baseline.warnings(policy, found)] == []
    assert [*baseline.warnings(policy, same)] == [
        "these are the very scores that v1 was judged on, so nothing new is learnt of them"
    ]


@pytest.mark.parametrize("kind", ["grouped", "alone"])
def test_rows_that_both_releases_scored_are_compared_one_by_one(kind: str) -> None:
    """A release that scored the same rows a little higher flags a few that the other does not."""
    run = case_of("grouped")
    holdout = replace(run.holdout, repeated=0)
    if kind == "alone":
        holdout = replace(holdout, roles=holdout.roles - {"grp"})
    raised = f"SELECT score * 1.2 AS score, * EXCLUDE (score) FROM {holdout.rows}"
    before = replace(holdout, relation=raised, repeated=0)
    old = run.reference.with_scores(before, None)
    found = baseline.measure(replace(run, holdout=holdout, reference=old))
    assert found is not None
    at = found.anchors[0]
    assert at.flipped is not None
    assert (at.flipped.new_only, at.flipped.old_only) == (0, at.old.flagged - at.new.flagged)
    assert at.old.flagged > at.new.flagged
    assert (at.flipped.effective is None) == (at.p_value is not None) == (kind == "alone")
    low, high = at.interval(0.05)
    assert low < float(at.difference) < high
    caught = run.reference.with_scores(None, run.malicious)
    assert (caught.benign, caught.malicious) == (run.reference.benign, run.reference.malicious)


def test_rows_of_the_last_release_that_were_not_compared_are_pointed_out() -> None:
    policy = policy_of()
    found = evidence(policy, baseline=Comparison(reference=FACTS.model_copy(update={"rows_sha256": "d" * 64})))
    same = replace(found, holdout=found.holdout.model_copy(update={"rows_sha256": "d" * 64}))
    (warning,) = baseline.warnings(policy, same)
    assert warning.startswith("v1 was judged on the same benign rows (by their ids)")


# --- the samples --------------------------------------------------------------------------------------------


def exchanged(**parts: Any) -> tuple[Policy, Evidence]:
    policy = policy_of()
    at = AtTarget(fpr=HUNDREDTH, fit=tally(500, 50_000), pooled=600, held_out=100, p_value=parts.get("p_value"))
    return policy, evidence(policy, exchangeability=Exchangeability(targets=(at,), **parts))


def test_so_few_groups_as_show_nothing_are_inconclusive() -> None:
    (finding,) = exchangeability.judge(*exchanged(unit="groups", ranks=(), p_value=0.5, least=0.1))
    assert said(finding) == ("inconclusive", "too-few-groups")
    assert finding.message.endswith("come from one population (the smallest p possible is 0.1)")
    assert finding.remedy == "hold out and fit on rows of more groups"


@pytest.mark.parametrize("p_value", [None, 0.5])
def test_samples_too_small_for_a_rank_can_come_from_one_population(p_value: float | None) -> None:
    (finding,) = exchangeability.judge(*exchanged(ranks=(), p_value=p_value))
    assert said(finding) == ("pass", "exchangeable")
    assert "most at the top" not in finding.message


def test_the_rank_where_groups_differ_most_is_named() -> None:
    ranks = (AtScore(pooled=60, held_out=10, p_value=0.5), AtScore(pooled=600, held_out=300, p_value=0.0001))
    (finding,) = exchangeability.judge(*exchanged(unit="groups", ranks=ranks, p_value=0.0001, least=0.0001))
    assert said(finding) == ("fail", "differ")
    assert (
        "(p = 0.0001, by exchanging groups); most at the top 600 rows of both, 300 of them held out" in finding.message
    )


@pytest.mark.parametrize(("shared", "outcome", "required"), [(300, "inconclusive", False), (900, "fail", True)])
def test_scores_shared_under_ids_of_their_own_advise_until_they_are_most(
    shared: int, outcome: str, required: bool
) -> None:
    policy = policy_of()
    scores = Shared(
        unit="rows",
        n=1000,
        fit_n=1000,
        one_of=1,
        rows=2000,
        single=2000 - 2 * shared,
        across=shared,
        fit=0,
        held_out=0,
        expected=(1.0, 0.5, 0.5),
        tied=0,
        even=0.0,
    )
    counted = Overlap(benign=1000, ids=0, rows=None, scores=scores, shared_groups=None, rows_in_shared_groups=None)
    (finding,) = overlap.judge(policy, evidence(policy, overlap=counted))
    assert (*said(finding), finding.required) == (outcome, "shared-scores", required)
    assert str(finding.remedy).startswith("find out whether these are the same items under new ids")


def test_of_one_group_nothing_is_predicted() -> None:
    """Groups are divided anew between the samples, which takes two in each."""
    rng = np.random.default_rng(3)
    policy = policy_of("data: {group: group}\n")
    fit, holdout = (sample_of(rng.beta(0.5, 8, 300), groups=np.arange(300) % groups) for groups in (1, 100))
    found = exchangeability.measure(case(policy, fit, holdout))
    assert found is not None
    assert found.unit == "groups"
    assert [at.predicted for at in found.targets] == [None]


def test_a_target_whose_granularity_nobody_measured_is_inconclusive() -> None:
    policy = policy_of("checks: {granularity: {required: true}}\n")
    found = evidence(policy, granularity=Resolution(top_tie=1, targets=()))
    assert [*granularity.judge(policy, found)] == []
    (finding,) = (one for one in judge(policy, found).findings if one.check.kind == "granularity")
    assert said(finding) == ("inconclusive", "not-measured")


@pytest.mark.parametrize(
    ("reach", "settle", "remedy"),
    [
        (7000, None, "fit on 7,000 benign rows: 2 % is then reached 95 % of the time"),
        (
            None,
            9000,
            "fit on 9,000 benign rows, which show whether any threshold has this rate; it seems that none has",
        ),
        (None, None, "more rows cannot help: give the detector finer scores (logits with their range as "),
    ],
)
def test_what_tied_scores_may_allow_is_told_by_fit_rows(reach: int | None, settle: int | None, remedy: str) -> None:
    sentences = granularity.describe_ties(
        "borderline",
        HUNDREDTH,
        (2, 20, 2),
        1000,
        above=Fraction(1, 2),
        domain=(0.0, 1.0),
        saturated=True,
        reach=reach,
        settle=settle,
    )
    assert sentences.message == (
        "the detector may not resolve 1 %: attainable seem 0.2 % (2 of 1,000 fit rows) and 2 % (20); 18 of them have "
        "the score at the end of the domain"
    )
    assert str(sentences.remedy).startswith(remedy)


@pytest.mark.parametrize(("age", "later", "gone"), [(10, 0, False), (10, 20, False), (10, 21, True), (40, 90, False)])
def test_what_is_no_longer_fresh_is_said_once_it_was(age: int, later: int, gone: bool) -> None:
    """Fresh at the judgement and too old today; what was too old then is the verdict's to say."""
    policy = policy_of("data: {timestamp: time}\nchecks: {freshness: {max_age_days: 30}}\n")
    day = TODAY - timedelta(days=age)
    found = evidence(policy, freshness=Ages(oldest=day, newest=day))
    sentences = freshness.expired(policy, found, TODAY + timedelta(days=later))
    assert (sentences is not None) == gone
    assert freshness.expired(policy_of(), found, date(2099, 1, 1)) is None
    assert freshness.expired(policy, evidence(policy), date(2099, 1, 1)) is None


def test_earlier_uses_say_what_they_share() -> None:
    policy = policy_of()
    use = Use(number=4, earlier=("v1", "v2", "v3"), shared=(None, 0.5, 1.0))
    (finding,) = uses.judge(policy, evidence(policy, reuse=Uses(ledger="ledger", holdout=use)))
    assert finding.message == (
        "use 4 of these held-out rows, after v3, v2 (which shares about 50 % of the smaller set) and v1 (which shares "
        "an unknown part of them); each further use makes a false pass likelier"
    )


@pytest.mark.parametrize(("kind", "interval", "warned"), [
    ("check", "sequential", True), ("run", "sequential", False), ("check", "clopper-pearson", False),
])  # fmt: skip
def test_looks_without_a_ledger_are_pointed_out(kind: Any, interval: str, warned: bool) -> None:
    policy = policy_of(f"interval: {interval}\n")
    assert bool([*uses.warnings(policy, evidence(policy, kind=kind))]) == warned


def test_what_the_ledger_cannot_see_is_pointed_out() -> None:
    policy, use = policy_of(), Use(number=3, earlier=("v1", "v2"), shared=(1.0, 1.0))
    found = evidence(policy, reuse=Uses(ledger="ledger", holdout=use))
    named = replace(found, holdout=found.holdout.model_copy(update={"rows_sha256": "d" * 64}))
    paid = "the held-out rows judge for the 3rd time, and the policy has no `reuse:` to pay for it"
    assert [*uses.warnings(policy, named)] == [paid]
    assert [*uses.warnings(policy, found)][1:] == [paid]
    assert [*uses.warnings(policy_of("reuse: {max_uses: 9}\n"), named)] == []
