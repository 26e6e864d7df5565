"""Ranges as a check: counted through the calibrator, judged by three rules, recorded, and judged again from that."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawing import examples, often
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gate
from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import fpr, parse_policy, ranges, segments
from gate.checks.check import Case, Evidence, Finding
from gate.checks.ranges import InRange, JudgedSpan, Ranges
from gate.contract import Floats
from gate.gating import Release
from gate.inspection.answers import RefusedError
from gate.inspection.judgement import _check_thresholds, _judge_again
from gate.inspection.release import inspect
from gate.names import CheckName
from gate.planning import band_of
from gate.planning.ranges import corridor_of
from gate.policy import Document, Policy, Target
from gate.record import Record, parse_record
from gate.rows.reading import from_object
from gate.statistics.tally import Tally
from gate.verdict import judge

pytestmark = pytest.mark.usefixtures("few_points")

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
RANKS = ("pass", "inconclusive", "fail")


def document(
    span: str = "from: 10%, to: 1%",
    error: str = "0.5",
    rule: str = "proven",
    min_n: int = 1000,
    more: str = "",
    required: bool = True,
) -> Document:
    flag = str(required).lower()
    text = f"version: 1\nname: ranges\nrule: {rule}\ntargets: [{{fpr: 1%, min_n: 1000, max_relative_error: 0.5}}]\n"
    text += f"ranges: [{{{span}, min_n: {min_n}, max_relative_error: {error}, required: {flag}}}]\n{more}"
    return parse_policy(text, "policy.yaml")


def run(doc: Document, fit: Any, holdout: Any) -> Release:
    return gate.run(fit, holdout, release="v1", policy=doc, created=NOON)


def of_range(record: Record) -> Finding:
    return next(f for f in record.findings if f.check.to is not None and f.check.segment is None)


@pytest.fixture(scope="module")
def base() -> Evidence:
    """The evidence of some run; tests put other counts into it."""
    rng = np.random.default_rng(1)
    return run(document(), rng.random(20_000), rng.random(20_000)).record.evidence


def evidence_with(base: Evidence, policy: Policy, counts: Any, n: int, lowest_label: float = 1e-6) -> Evidence:
    """Make the evidence of a policy's first range with these counts of n rows; its targets have the same counts."""
    judged = policy.ranges[0]
    points = corridor_of(policy, judged, policy.alpha()).grid.points
    flagged = tuple(int(k) for k in counts)
    at = {point.fpr: k for point, k in zip(points, flagged, strict=True)}
    anchors = tuple(
        fpr.AtAnchor(fpr=target.fpr, tally=Tally(threshold=0.5, flagged=at[target.fpr], rows=n))
        for target in policy.targets
    )
    found = Ranges(
        ranges=(InRange(start=judged.start, stop=judged.stop, reached=len(points), flagged=flagged),),
    )
    parts = base.parts.model_copy(update={"ranges": found, "fpr": fpr.Targets(anchors=anchors)})
    facts = base.calibrator.model_copy(update={"lowest_label": lowest_label})
    return replace(base, parts=parts, holdout=base.holdout.model_copy(update={"n": n}), calibrator=facts)


def judged_of(base: Evidence, policy: Policy, counts: Any, n: int) -> JudgedSpan:
    (found,) = ranges.judge_ranges(policy, evidence_with(base, policy, counts, n))
    return found


# --- properties ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31), st.integers(2_000, 80_000), st.floats(0.6, 1.5), st.sampled_from(["0.5", "0.3", "1"]))
def test_a_proven_range_proves_every_target_inside_it(
    base: Evidence, seed: int, n: int, tilt: float, error: str
) -> None:
    """Without groups this holds for all counts: at an anchor the range allows no more than the target does."""
    policy, rng = document(error=error).policy, np.random.default_rng(seed)
    corridor = corridor_of(policy, policy.ranges[0], policy.alpha())
    rates = np.minimum(corridor.grid.fprs * np.linspace(tilt, 1, len(corridor.grid.fprs)), 1)
    counts = np.sort(rng.binomial(n, np.sort(rates)))[::-1]
    found = judged_of(base, policy, counts, n)
    if found.says.grade != "proven":
        return
    at = {point.fpr: int(k) for point, k in zip(corridor.grid.points, counts, strict=True)}
    for anchor in policy.contract:
        if anchor.fpr in at:
            target = Target(fpr=anchor.fpr, min_n=1, max_relative_error=policy.ranges[0].max_relative_error)
            band = band_of(target, policy.alpha())
            assert band.proves_low(at[anchor.fpr], n)
            assert band.proves_high(at[anchor.fpr], n)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**31),
    st.integers(500, 60_000),
    st.floats(0.5, 2.0),
    st.sampled_from(["proven", "observed", "not-refuted"]),
    st.sampled_from(["clopper-pearson", "sequential"]),
)
def test_more_false_positives_never_help_where_only_excess_counts(
    base: Evidence, seed: int, n: int, tilt: float, rule: str, interval: str
) -> None:
    """Adding false positives at whatever points never turns a worse outcome into a better one."""
    policy = document(error="{above: 0.5, below: 1}", rule=rule, more=f"interval: {interval}\n").policy
    fprs = corridor_of(policy, policy.ranges[0], policy.alpha()).grid.fprs
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.binomial(n, np.minimum(fprs * tilt, 1)))[::-1]
    more = np.minimum(np.maximum.accumulate((counts + rng.poisson(rng.uniform(0, 20), len(counts)))[::-1])[::-1], n)
    fewer, others = (RANKS.index(judged_of(base, policy, k, n).decide()[0]) for k in (counts, more))
    assert others >= fewer


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31), st.integers(500, 60_000), st.floats(0.4, 2.5))
def test_the_rules_are_one_nested_family(base: Evidence, seed: int, n: int, tilt: float) -> None:
    """What passes as proven passes as observed, what passes as observed passes as not refuted; a fail is one by all."""
    found = []
    for rule in ("proven", "observed", "not-refuted"):
        policy = document(rule=rule, min_n=1).policy
        fprs = corridor_of(policy, policy.ranges[0], policy.alpha()).grid.fprs
        counts = np.sort(np.random.default_rng(seed).binomial(n, np.minimum(fprs * tilt, 1)))[::-1]
        found.append(judged_of(base, policy, counts, n).decide()[0])
    passes = [outcome == "pass" for outcome in found]
    assert passes == sorted(passes)
    assert len({outcome == "fail" for outcome in found}) == 1


@settings(max_examples=often(2, 6), deadline=None)
@given(st.integers(0, 2**31), st.integers(300, 6_000), st.booleans(), st.booleans(), st.data())
def test_judging_the_record_is_judging_the_run(
    seed: int, n: int, grouped: bool, tied: bool, data: st.DataObject
) -> None:
    """Whatever was measured, the record read back gives the same findings, and verifies."""
    rng = np.random.default_rng(seed)
    rule = data.draw(st.sampled_from(["proven", "observed", "not-refuted"]))
    interval = "clopper-pearson" if grouped else data.draw(st.sampled_from(["clopper-pearson", "sequential"]))
    error = data.draw(st.sampled_from(["0.5", "0.25", "{above: 0.5, below: 1}", "{above: 2, below: 0.4}"]))
    span = data.draw(st.sampled_from(["from: 10%, to: 1%", "from: 3%, to: 0.2%", "from: 1%, to: 0.001%"]))
    columns = "segment: part" + (", group: user" if grouped else "")
    more = f"interval: {interval}\ndata: {{{columns}}}\nchecks: {{segments: {{targets: [1%], min_n: 100, "
    more += "max_relative_error: 0.5, ranges: [{from: 10%, to: 1%}]}}\n"
    doc = document(span, error, rule, min_n=data.draw(st.sampled_from([1, n])), more=more)

    def sample() -> Any:
        scores = rng.beta(0.5, 8, n)
        table = {"score": np.round(scores, 2) if tied else scores, "part": rng.choice(["a", "b"], n)}
        return pa.table(table | ({"user": rng.integers(0, n // 4, n).astype(str)} if grouped else {}))

    release = run(doc, sample(), sample())
    again = parse_record(release.record.to_json().encode(), "verdict.json")
    assert judge(doc.policy, again.evidence).findings == release.record.findings
    _judge_again(again, doc.policy)
    _check_thresholds(release.calibrator, again, doc.policy)


# --- what is said -------------------------------------------------------------------------------------------


def straight(base: Evidence, policy: Policy, n: int, ratio: Any = 1.0) -> list[Finding]:
    fprs = corridor_of(policy, policy.ranges[0], policy.alpha()).grid.fprs
    counts = np.minimum(np.round(fprs * n * ratio), n).astype(int)
    return list(ranges.judge(policy, evidence_with(base, policy, counts, n)))


def test_a_proven_range_says_where_it_comes_nearest(base: Evidence) -> None:
    (found,) = straight(base, document().policy, 100_000)
    assert (found.outcome, found.grade, found.reason, found.remedy) == ("pass", "proven", "proven", None)
    assert "every threshold is proven; the curve comes nearest at" in found.message
    assert found.range is not None
    assert found.range.nearest is not None
    assert found.range.nearest.left > 0
    assert found.range.proven == ((Decimal("0.1"), Decimal("0.01")),)


def test_an_open_range_names_the_parts_that_are_proven_and_the_rows_that_would_do(base: Evidence) -> None:
    (found,) = straight(base, document(error="0.25").policy, 4_000)
    assert (found.outcome, found.reason) == ("inconclusive", "open")
    assert "proven by themselves: 10 to 2.05 %" in found.message
    assert "the curve leaves the tolerance most at 1" in found.message
    assert found.remedy is not None
    assert "95 % of the time" in found.remedy


def test_too_few_rows_never_pass_and_too_many_false_positives_always_fail(base: Evidence) -> None:
    policy = document(min_n=200_000).policy
    assert [f.reason for f in straight(base, policy, 100_000)] == ["min-n"]
    assert [(f.outcome, f.reason) for f in straight(base, policy, 100_000, 2.0)] == [("fail", "too-many")]
    assert [(f.outcome, f.reason) for f in straight(base, policy, 100_000, 0.2)] == [("fail", "too-few")]


def test_below_the_fit_samples_floor_only_a_proof_passes(base: Evidence) -> None:
    policy = document(error="0.25", rule="not-refuted", min_n=1).policy
    fprs = corridor_of(policy, policy.ranges[0], policy.alpha()).grid.fprs
    shown = evidence_with(base, policy, np.round(fprs * 3000).astype(int), 3000)
    beyond = evidence_with(base, policy, np.round(fprs * 3000).astype(int), 3000, lowest_label=0.02)
    assert [f.outcome for f in ranges.judge(policy, shown)] == ["pass"]
    (found,) = ranges.judge(policy, beyond)
    assert (found.outcome, found.reason) == ("inconclusive", "extrapolated")
    assert "below 2 % the thresholds are extrapolated" in found.message


def test_tied_scores_that_jump_over_the_tolerance_are_named_and_no_rows_are_asked_for() -> None:
    rng = np.random.default_rng(7)

    def scores() -> Floats:
        raw = rng.random(60_000)
        return np.where((raw > 0.94) & (raw < 0.99), 0.97, raw)

    found = of_range(run(document(), scores(), scores()).record)
    assert (found.outcome, found.reason) == ("fail", "granularity")
    assert "rows share one score there" in found.message
    assert found.range is not None
    assert any(0.05 < float(start) < 0.07 for start, _ in found.range.impossible)
    assert found.remedy is not None
    assert found.remedy.startswith("more rows cannot help")


def test_a_range_that_no_raw_score_reaches_is_unreachable() -> None:
    rng = np.random.default_rng(8)

    def scores() -> Floats:
        return np.minimum(rng.random(4_000) * 1.04, 1.0)

    found = of_range(run(document(rule="observed"), scores(), scores()).record)
    assert found.outcome != "pass"
    assert "no raw score reaches the threshold" in found.message


def test_a_range_is_waived_by_its_name_and_counts_in_what_the_verdict_says() -> None:
    rng = np.random.default_rng(9)
    waiver = "waivers: [{check: fpr@0.1..0.01, reason: known, owner: me, expires: 2999-12-31}]\n"
    record = run(document(min_n=10**6, more=waiver), rng.random(30_000), rng.random(30_000)).record
    assert of_range(record).waived
    assert record.outcome == "pass"
    blocked = run(document(min_n=10**6), rng.random(30_000), rng.random(30_000)).record
    assert blocked.outcome == "inconclusive"
    assert "fpr@10%..1%" in blocked.reason


def test_what_passes_and_is_weak_is_warned_of() -> None:
    rng = np.random.default_rng(3)
    passed = run(document(rule="not-refuted", min_n=1), rng.random(500), rng.random(500)).record
    (warning,) = [warning for warning in passed.warnings if warning.startswith("fpr@10%..1%")]
    assert "a release at 2 times its rates from 10 to 1 % may still pass" in warning
    assert "held-out rows would let it pass at most 10 % of the time" in warning


# --- segments -----------------------------------------------------------------------------------------------


def in_segments(parts: int, n: int, bad: bool, grouped: bool = False, seed: int = 0) -> Record:
    more = f"data: {{segment: part{', group: user' if grouped else ''}}}\nchecks: {{segments: {{targets: [1%], "
    more += "min_n: 100, max_relative_error: 0.5, ranges: [{from: 10%, to: 1%}], required: true}}\n"
    rng = np.random.default_rng(seed)

    def sample(spoilt: bool) -> Any:
        scores, part = rng.random(n), np.arange(n) % parts
        if spoilt:
            scores = np.where(part == 0, scores**0.4, scores)
        table = {"score": scores, "part": np.char.add("p", part.astype(str))}
        return pa.table(table | ({"user": (np.arange(n) // 3).astype(str)} if grouped else {}))

    return run(document(more=more, required=False), sample(False), sample(bad)).record


@pytest.mark.each_run(1)
@pytest.mark.parametrize("grouped", [False, True])
def test_a_bad_segment_is_refuted_along_the_range_and_the_others_are_not(grouped: bool) -> None:
    record = in_segments(4, 40_000, bad=True, grouped=grouped)
    found = {f.check.segment: f for f in record.findings if f.check.to is not None and f.check.segment}
    assert len(found) == 4
    assert (found["part=p0"].outcome, found["part=p0"].reason) == ("fail", "too-many")
    assert "disproved even as one of 8 tests" in found["part=p0"].message
    assert {found[f"part=p{i}"].outcome for i in (1, 2, 3)} <= {"pass", "inconclusive"}
    assert record.outcome == "fail"


def test_more_than_a_thousand_segments_are_not_measured_along_ranges() -> None:
    record = in_segments(1_001, 6_006, bad=False)
    found = next(f for f in record.findings if f.check == CheckName("segments", Decimal("0.1"), Decimal("0.01")))
    assert (found.outcome, found.reason, found.required) == ("inconclusive", "not-measured", True)
    assert "at most 1,000 segments" in found.message
    assert record.of(segments.Segments).ranges == ()


# --- forged records -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored() -> tuple[Document, Record, Calibrator]:
    rng = np.random.default_rng(12)
    doc = document()
    release = run(doc, np.round(rng.random(9_000), 3), np.round(rng.random(9_000), 3))
    return doc, release.record, from_json(release.calibrator.to_json())


def forge(record: Record, change: Any) -> Record:
    content = json.loads(record.to_json())
    change(content["checks"]["ranges"]["ranges"][0])
    return parse_record(json.dumps(content).encode(), "verdict.json")


def objection(stored: tuple[Document, Record, Calibrator], change: Any) -> str:
    doc, record, calibrator = stored
    forged = forge(record, change)
    try:
        _check_thresholds(calibrator, forged, doc.policy)
        _judge_again(forged, doc.policy)
    except RefusedError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start", 0.2),
        ("stop", 0.02),
        ("reached", 3),
        ("flagged", [1, 0]),
        ("worth", []),
        ("worth", [{"point": 0, "effective": [5.0, 5.0]}]),
    ],
)
def test_a_range_of_other_rows_or_points_is_refused(
    stored: tuple[Document, Record, Calibrator], key: str, value: Any
) -> None:
    assert objection(stored, lambda content: content.__setitem__(key, value))


def test_a_release_with_a_range_verifies_and_so_does_its_check(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    doc = document(error="0.5")
    run(doc, rng.random(9_000), rng.random(9_000)).write(tmp_path / "v1")
    answers = inspect(tmp_path / "v1").answers
    assert {answer.state for answer in answers} == {"holds"}, answers


# --- how often it errs: short seeded simulations through the calibrator and the check ----------------------------

ROWS = 40_000
RUNS = often(80, 150)


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    """Fitted on evenly spread scores, so that the threshold of every rate p is 1 - p but for a millionth."""
    return gate.fit(np.linspace(0, 1, 400_001), policy=document())


def outcomes(policy: Policy, calibrator: Calibrator, base: Evidence, draw: Any, runs: int = RUNS) -> list[str]:
    """The outcomes of so many held-out samples, counted and judged as a run does it; thresholds are found once."""
    rng = np.random.default_rng(17)
    found: list[str] = []
    rows = from_object(np.zeros(2), "holdout", policy.data, (0.0, 1.0))
    grid = corridor_of(policy, policy.ranges[0], policy.alpha()).grid
    known = ranges.scores_on(Case(policy, calibrator, rows), [grid])
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(ranges, "scores_on", lambda *_: known)
    for _ in range(runs):
        raw = np.clip(1 - draw(rng.random(ROWS)), 0, 1)
        case = Case(policy, calibrator, from_object(raw, "holdout", policy.data, (0.0, 1.0)))
        counted = ranges.measure(case)
        parts = base.parts.model_copy(update={"ranges": counted})
        evidence = replace(base, parts=parts, holdout=base.holdout.model_copy(update={"n": ROWS}))
        found.append(ranges.judge_ranges(policy, evidence)[0].decide()[0])
    monkeypatch.undo()
    return found


def most(share: float, runs: int = RUNS) -> float:
    return share + 3 * (share * (1 - share) / runs) ** 0.5


@pytest.mark.each_run(1)
@pytest.mark.parametrize("at", [0.0103, 0.0312345])
def test_a_range_that_is_bad_at_one_threshold_only_is_rarely_proven(
    base: Evidence, calibrator: Calibrator, at: float
) -> None:
    """Half as many again at one threshold, on the grid or between two points of it, and sound everywhere else."""

    def bad(tail: Floats) -> Floats:
        return np.where((tail > at) & (tail < 1.5 * at), at * (1 - 1e-9), tail)

    found = outcomes(document().policy, calibrator, base, bad)
    assert found.count("pass") / RUNS <= most(0.025)


def test_a_range_that_is_bad_below_is_rarely_proven(base: Evidence, calibrator: Calibrator) -> None:
    at = 0.02

    def bad(tail: Floats) -> Floats:
        return np.where((tail > 0.5 * at) & (tail <= at), at * (1 + 1e-6), tail)

    assert outcomes(document().policy, calibrator, base, bad).count("pass") / RUNS <= most(0.025)


def test_a_range_at_the_edge_everywhere_is_rarely_refuted(base: Evidence, calibrator: Calibrator) -> None:
    found = outcomes(document().policy, calibrator, base, lambda tail: tail / 1.5)
    assert found.count("fail") / RUNS <= most(0.025)


def test_a_sound_range_is_mostly_proven(base: Evidence, calibrator: Calibrator) -> None:
    found = outcomes(document().policy, calibrator, base, lambda tail: tail, 60)
    assert found.count("pass") / 60 > 0.9


def test_spending_makes_the_interval_of_a_later_use_wider(base: Evidence) -> None:
    policy = document(more="reuse: {max_uses: 20}\n").policy
    assert policy.alpha(3) < policy.alpha(1)
    fprs = corridor_of(policy, policy.ranges[0], policy.alpha()).grid.fprs
    counts = np.round(fprs * 9_000).astype(int)
    bounds = [corridor_of(policy, policy.ranges[0], policy.alpha(use)).bounds(counts, 9_000) for use in (1, 3)]
    assert np.all(bounds[0].high < bounds[1].high)
    assert Fraction(policy.alpha(1)) == Fraction(1, 40)
