"""Rows without a score: beyond one in a thousand nothing passes, whatever the others show."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cases import at_anchors, evidence, tally, targets

from gate.checks import detection, drop, fpr, parse_policy, ranges, segments
from gate.checks.baseline import Comparison, ReferenceFacts
from gate.checks.change import Change, Flipped
from gate.checks.check import Evidence, Finding
from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.checks.segments import InSegments, Segments
from gate.policy import Policy

N = 100_000
POLICY = parse_policy(
    """\
version: 1
name: unscored
targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]
data: {segment: language}
checks:
  detection: {targets: [{fpr: 1%, min_tpr: 50%}], max_drop: 0.05}
  segments: {targets: [1%], min_n: 100, max_relative_error: 1, required: true}
""",
    "policy.yaml",
).policy
FEW, MANY = N // 1000, N // 100


def lacking(policy: Policy, n: int, **parts: object) -> Evidence:
    found = evidence(policy, holdout_n=N, malicious_n=1_000, **parts)  # type: ignore[arg-type]
    return replace(found, holdout=found.holdout.model_copy(update={"unscored": n}))


def outcome(finding: Finding) -> tuple[str, str]:
    return finding.outcome, finding.reason


@pytest.mark.parametrize(("gaps", "wanted"), [(0, "proven"), (FEW, "proven"), (MANY, "unscored")])
def test_a_target_passes_only_where_nearly_all_rows_have_a_score(gaps: int, wanted: str) -> None:
    [finding] = fpr.judge(POLICY, lacking(POLICY, gaps, fpr=targets(POLICY, tally(1_000, N))))
    assert outcome(finding) == ("pass" if wanted == "proven" else "inconclusive", wanted)
    assert (f"{gaps:,} held-out benign rows without a score" in finding.message) == (wanted == "unscored")


def test_a_violation_is_one_all_the_same() -> None:
    [finding] = fpr.judge(POLICY, lacking(POLICY, MANY, fpr=targets(POLICY, tally(5_000, N))))
    assert outcome(finding) == ("fail", "too-many")


@pytest.mark.parametrize(("gaps", "wanted"), [(0, "proven"), (MANY, "unscored")])
def test_a_segment_passes_only_so(gaps: int, wanted: str) -> None:
    counted = InSegments(fpr=Decimal("0.01"), threshold=0.5, flagged=(500, 500))
    found = Segments(column="language", names=("de", "en"), rows=(N // 2, N // 2), targets=(counted,))
    parts = {"fpr": targets(POLICY, tally(1_000, N)), "segments": found}
    findings = [each for each in segments.judge(POLICY, lacking(POLICY, gaps, **parts)) if each.check.segment]
    shown = {outcome(each) for each in findings}
    assert shown <= ({("inconclusive", "unscored")} if gaps else {("pass", "proven")})
    if gaps:
        assert findings
        assert all(f"{gaps:,}" in each.message for each in findings)


def drops(lost: int) -> Drops:
    change = Change(
        fpr=Decimal("0.01"),
        score=Decimal("0.3"),
        old=tally(900, 1_000),
        new=tally(900, 1_000),
        flipped=Flipped(new_only=0, old_only=0, lacking=lost),
    )
    return Drops(anchors=(change,))


REFERENCE = ReferenceFacts(
    path="v1",
    release="v1",
    created="2026-06-01T00:00:00Z",
    outcome="pass",
    verdict_sha256="",
    policy_sha256="",
    holdout_sha256="",
)


@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
@pytest.mark.parametrize(("lost", "wanted"), [(0, "proven"), (1, "proven"), (40, "unscored")])
def test_detection_is_no_less_only_where_both_releases_scored_the_rows(rule: str, lost: int, wanted: str) -> None:
    policy = POLICY.model_copy(update={"rule": rule})
    found = lacking(policy, 0, drop=drops(lost), baseline=Comparison(reference=REFERENCE))
    [finding] = drop.judge(policy, found)
    assert outcome(finding) == ("pass" if wanted == "proven" else "inconclusive", wanted)
    assert ("that only one of them has scored" in finding.message) == bool(lost)
    assert (finding.remedy is None) == (wanted == "proven")


@pytest.mark.parametrize("gaps", [0, 1, 30])
def test_malicious_rows_without_a_score_are_missed(gaps: int) -> None:
    found = lacking(POLICY, 0, detection=Detection(anchors=at_anchors({"0.01": tally(800, 1_000)})))
    assert found.malicious is not None
    found = replace(found, malicious=found.malicious.model_copy(update={"unscored": gaps}))
    [finding] = detection.judge(POLICY, found)
    said = {0: "", 1: "1 row without a score counts as missed", 30: "30 rows without a score count as missed"}[gaps]
    assert said in finding.message
    assert ("as missed" in finding.message) == bool(gaps)


def test_a_range_passes_only_so() -> None:
    """The counts of a range are simulated: as many rows reach each score as the contract says."""
    from gate.planning.ranges import corridor_of

    policy = parse_policy(
        "version: 1\nname: range\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.5}]\n"
        "ranges: [{from: 10%, to: 1%, min_n: 100, max_relative_error: 0.5}]\n",
        "policy.yaml",
    ).policy
    asked = policy.ranges[0]
    grid = corridor_of(policy, asked, Fraction(1, 20)).grid
    flagged = tuple(int(count) for count in np.round(np.asarray([float(p) for p in grid.fprs]) * N))
    part = ranges.InRange(start=asked.start, stop=asked.stop, reached=len(flagged), flagged=flagged)
    for gaps, wanted in ((0, "proven"), (MANY, "unscored")):
        parts = {"fpr": targets(policy, tally(N // 10, N)), "ranges": ranges.Ranges(ranges=(part,))}
        [finding] = ranges.judge(policy, lacking(policy, gaps, **parts))
        assert outcome(finding) == ("inconclusive" if gaps else "pass", wanted)
        assert (finding.remedy is None) == (gaps == 0)


def test_a_range_in_a_segment_passes_only_so() -> None:
    from gate.checks.segment_ranges import RangeInSegments
    from gate.planning.ranges import segment_corridor_of

    policy = parse_policy(
        "version: 1\nname: range\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.5}]\n"
        "data: {segment: language}\nchecks: {segments: {targets: [10%], min_n: 100, max_relative_error: 1,"
        " ranges: [{from: 10%, to: 1%}], required: true}}\n",
        "policy.yaml",
    ).policy
    asked = segments.question_of(policy)
    grid = segment_corridor_of(policy, asked.spans[0], asked.error, Fraction(1, 20)).grid
    flagged = tuple(int(count) for count in np.round(np.asarray([float(p) for p in grid.fprs]) * N))
    along = RangeInSegments(
        start=asked.spans[0].start, stop=asked.spans[0].stop, reached=len(flagged), flagged=(flagged, flagged)
    )
    counted = InSegments(fpr=Decimal("0.1"), threshold=0.5, flagged=(N // 10, N // 10))
    found = Segments(column="language", names=("de", "en"), rows=(N, N), targets=(counted,), ranges=(along,))
    for gaps, wanted in ((0, {("pass", "proven")}), (MANY, {("inconclusive", "unscored")})):
        parts = {"fpr": targets(policy, tally(N // 10, N)), "segments": found}
        findings = [each for each in segments.judge(policy, lacking(policy, gaps, **parts)) if each.check.segment]
        assert {outcome(each) for each in findings} <= wanted
        assert bool(findings) >= bool(gaps)
