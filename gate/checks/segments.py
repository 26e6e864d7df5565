"""Segments: every part of the held-out rows is judged at the targets, with a correction for the number of parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gate.checks import segment_ranges
from gate.checks.check import (
    MISCOUNTED,
    PASSED,
    UNDECIDED,
    UNSCORED,
    UNSUPPORTED,
    Asked,
    Case,
    Check,
    Evidence,
    Finding,
    as_scores,
    describe_unscored,
)
from gate.checks.rates import NOT_COMPUTED, PROMISE, UNREACHABLE_TARGET, describe_count, judged_rate
from gate.checks.reuse import alpha_of
from gate.checks.segment_ranges import NO_ROWS_HELP, JudgedSegment, Question, RangeInSegments
from gate.contract import Floats
from gate.names import CheckName
from gate.planning import Budget, advise_at_rate, band_of
from gate.policy import Flag, Frozen, Label, MinRows, Policy, PolicyRate, Span, Target, Tolerance
from gate.statistics.binomial import TIE, Band
from gate.statistics.ranges import MOST_SEGMENTS
from gate.statistics.tally import Tally
from gate.stored import Count, ExactRate, Grade, Outcome, Section, Size
from gate.words import plural

NAME = CheckName("segments")
MOST_SHOWN = 50  # findings; the record counts the others
# If the policy names a column of segments and asks nothing of it: the largest segments, at the highest rates.
MOST_UNASKED, MOST_RATES = 100, 10
STEPS = 100  # that the search for the rows of one segment may take


class SegmentsSettings(Frozen):
    """The targets judged again in every segment (`data.segment`), corrected for how many there are."""

    column: ClassVar[str] = "segment"

    targets: tuple[PolicyRate, ...] = Field(description="which anchors", json_schema_extra={"minItems": 1})
    min_n: MinRows = Field(description="the fewest held-out rows of a segment on which a pass is believed")
    max_relative_error: Tolerance = Field(description="how far a segment's rate may be off")
    ranges: tuple[Span, ...] = Field(default=(), description="which stretches of the contract, at every threshold")
    required: Flag = Field(default=False, description="true: a segment that does not pass blocks the release")
    expect: tuple[Label, ...] = Field(default=(), description="segments that must be among the held-out rows")


class InSegments(Section):
    """One target's false positives in every segment, and the independent rows that each is worth to both bounds."""

    fpr: ExactRate
    threshold: float | None
    flagged: tuple[Count, ...]
    effective: tuple[tuple[Size, Size], ...] | None = None


class Segments(Section):
    """Every segment with its rows and counts, in one order; the findings name only the worst.

    ranges   along which the policy asks for them; none where there are more segments than are judged so
    """

    column: str
    names: tuple[str, ...]
    rows: tuple[Count, ...]
    targets: tuple[InSegments, ...]
    ranges: tuple[RangeInSegments, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        sizes = {len({*self.names}), len(self.names), len(self.rows), *(len(at.flagged) for at in self.targets)}
        sizes |= {len(at.effective) for at in self.targets if at.effective is not None}
        if len(sizes) != 1 or min(self.rows, default=0) < 1:
            raise ValueError("must have a name, a size and a count for each segment")
        for at in self.targets:
            most = 0 if at.threshold is None else 1
            worth = at.effective or ((1.0, 1.0),) * len(self.rows)
            parts = zip(at.flagged, self.rows, worth, strict=True)
            if not all(k <= most * n and 0 < min(rows) <= max(rows) <= n for k, n, rows in parts):
                raise ValueError("must flag no more rows of a segment than there are, and be worth no more")
        return self


def at_segment(found: Segments, at: InSegments, place: int) -> Tally:
    """One target in one segment."""
    return Tally(
        threshold=at.threshold,
        flagged=at.flagged[place],
        rows=found.rows[place],
        effective=None if at.effective is None else at.effective[place],
    )


def targets_of(policy: Policy) -> list[Target]:
    """The targets of every segment, from the highest rate down; if there are none, the policy's targets advise."""
    settings = policy.settings(SegmentsSettings)
    if settings is None:
        rates = sorted((target.fpr for target in policy.targets), reverse=True)[:MOST_RATES]
        targets = [t.model_copy(update={"required": False}) for t in policy.targets if t.fpr in rates]
    else:
        error, required = settings.max_relative_error, settings.required
        targets = [
            Target(fpr=fpr, min_n=settings.min_n, max_relative_error=error, required=required)
            for fpr in settings.targets
        ]
    return sorted(targets, key=lambda target: -target.fpr)


def question_of(policy: Policy) -> Question:
    """The ranges that are judged in every segment."""
    settings = policy.settings(SegmentsSettings)
    if settings is None:
        return Question((), Tolerance(above=Decimal(1), below=Decimal(1)), 1, required=False)
    return Question(settings.ranges, settings.max_relative_error, settings.min_n, settings.required)


def measure(case: Case) -> Segments | None:
    """Count every target's false positives in every segment; None if the rows have no segments."""
    holdout, policy = case.holdout, case.policy
    if not holdout.has_segments or policy.data.segment is None:
        return None
    rates = [target.fpr for target in targets_of(policy)]
    thresholds = [case.thresholds[fpr] for fpr in rates]
    scores = as_scores(thresholds)
    found = holdout.by_segment(scores)
    reached = np.where(np.array([threshold is None for threshold in thresholds]), 0, found.reached)
    worth = segment_ranges.worth_of_segments(holdout, scores, float(case.alpha)) if holdout.has_groups else None
    shown = np.arange(len(found.parts))
    if policy.settings(SegmentsSettings) is None and len(shown) > MOST_UNASKED:
        shown = np.sort(np.argsort(-found.sizes, kind="stable")[:MOST_UNASKED])
    return Segments(
        column=policy.data.segment,
        names=tuple(holdout.segment_names[part] for part in found.parts[shown]),
        rows=tuple(int(n) for n in found.sizes[shown]),
        targets=tuple(
            InSegments(
                fpr=fpr,
                threshold=thresholds[i],
                flagged=tuple(int(k) for k in reached[shown, i]),
                effective=None if worth is None else tuple(worth[place][i] for place in shown),
            )
            for i, fpr in enumerate(rates)
        ),
        ranges=segment_ranges.measure(case, question_of(policy), len(found.parts)),
    )


# --- the judgement ------------------------------------------------------------------------------------------


class JudgedAtTarget(NamedTuple):
    """One target in one segment; `tail` is the chance of so extreme a count at the edge of the tolerance."""

    name: CheckName
    target: Target
    band: Band
    tally: Tally
    tail: float
    grade: Grade
    outcome: Outcome
    reason: str


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """The number of segments, the expected ones that are absent, and findings of the worst of the others.

    Waived findings come last, so that a finding that is not shown blocks only if a shown one does.
    """
    found, settings = evidence.of(Segments), policy.settings(SegmentsSettings)
    if found is None:
        return
    judged = _judge_all(policy, evidence, found)
    tests = len(judged)
    if settings is None:  # nobody asked, so show only what these rows can judge
        judged = [one for one in judged if one.reason != "min-n"]
    covered = {waiver.check for waiver in policy.waivers if evidence.day <= waiver.expires}

    def badness(one: JudgedAtTarget | JudgedSegment) -> tuple[bool, int, float, str]:
        rank = ("fail", "inconclusive", "pass").index(one.outcome)
        return one.outcome != "pass" and one.name in covered, rank, one.tail, str(one.name)

    judged.sort(key=badness)
    missing = _missing(settings, found)
    yield _summary(found, judged, tests, missing, asked=settings is not None)
    for name in missing:
        yield Finding(
            check=name,
            outcome="fail",
            required=settings is not None and settings.required,
            reason="missing",
            message="no held-out row belongs to this segment, which the policy expects",
            remedy="hold out benign rows of this segment, or take it out of checks.segments.expect",
        )
    scores = {point.fpr: point.score for point in policy.contract}
    for one in judged[:MOST_SHOWN]:
        if isinstance(one, JudgedSegment):
            finding = segment_ranges.finding(one, tests)
        else:
            finding = _of_segment(policy, evidence, one, scores[one.target.fpr], tests)
        if one.reason == "unscored":
            finding = finding.model_copy(update={"message": f"{finding.message}; {describe_unscored(evidence)}"})
        yield finding


def _missing(settings: SegmentsSettings | None, found: Segments) -> list[CheckName]:
    """The expected segments that no held-out row belongs to."""
    absent = [name for name in settings.expect if name not in {*found.names}] if settings is not None else []
    return [CheckName("segment", segment=f"{found.column}={name}") for name in absent]


def _judge_all(policy: Policy, evidence: Evidence, found: Segments) -> list[JudgedAtTarget | JudgedSegment]:
    """Judge every target and range in every segment; a refutation holds among all at once, by Holm's procedure."""
    alpha, targets = alpha_of(policy, evidence), {target.fpr: target for target in targets_of(policy)}
    known = [(targets[at.fpr], at) for at in found.targets if at.fpr in targets]
    bands = {t.fpr: band_of(t, alpha, policy.interval) for t, _ in known}
    counted = [(t, bands[t.fpr], at_segment(found, at, i), i) for t, at in known for i in range(len(found.names))]
    named = [(f"{found.column}={name}", n) for name, n in zip(found.names, found.rows, strict=True)]
    along = segment_ranges.judge(policy, evidence, question_of(policy), alpha, named, found.ranges)
    tails = [tally.refuting_tail(band) for _, band, tally, _ in counted]
    refuted = holm(np.array([*tails, *(one.tail for one in along)]), float(alpha / 2)).tolist()
    lacks = describe_unscored(evidence) is not None
    judged: list[JudgedAtTarget | JudgedSegment] = []
    for one, is_refuted in zip(along, refuted[len(tails) :], strict=True):
        grade, outcome, reason = one.decide(is_refuted)
        if lacks and outcome == "pass":
            outcome, reason = "inconclusive", "unscored"
        judged.append(replace(one, grade=grade, outcome=outcome, reason=reason))
    for (target, band, tally, place), tail, is_refuted in zip(counted, tails, refuted[: len(tails)], strict=True):
        grade = "refuted" if is_refuted else "proven" if _is_proven(band, tally) else "open"
        extrapolated = float(target.fpr) < evidence.calibrator.lowest_label
        outcome, reason = _decide(policy.rule, target, band, tally, grade, extrapolated)
        if lacks and outcome == "pass":
            outcome, reason = "inconclusive", "unscored"
        name = CheckName("fpr", target.fpr, segment=f"{found.column}={found.names[place]}")
        judged.append(JudgedAtTarget(name, target, band, tally, tail, grade, outcome, reason))
    return judged


def holm(tails: Floats, limit: float) -> NDArray[np.bool_]:
    """Which of many tests to reject so that a true one is rejected at most `limit` of the time (Holm 1979).

    The i-th smallest of m tail probabilities must stay below limit / (m - i + 1), and so must all smaller ones.
    """
    m = len(tails)
    order = np.argsort(tails, kind="stable")
    below = tails[order] < limit * (1 - TIE) / (m - np.arange(m))
    rejected = np.zeros(m, dtype=bool)
    rejected[order[: m if below.all() else int(np.argmin(below))]] = True
    return rejected


def _is_proven(band: Band, tally: Tally) -> bool:
    low, high = tally.worth
    return band.proves_low(tally.rate * low, low) and band.proves_high(tally.rate * high, high)


def _decide(
    rule: str, target: Target, band: Band, tally: Tally, grade: Grade, extrapolated: bool
) -> tuple[Outcome, str]:
    if grade == "refuted":
        if tally.threshold is None:
            return "fail", "unreachable"
        return "fail", "too-many" if tally.exact_rate > Fraction(target.fpr) else "too-few"
    believed = "proven" if extrapolated else rule
    if tally.threshold is None and band.low > 0 and believed != "not-refuted":
        return "inconclusive", "unreachable"
    if tally.independent_rows < target.min_n:
        return "inconclusive", "min-n"
    if grade == "proven":
        return "pass", "proven"
    if believed == "not-refuted" or (believed == "observed" and band.low <= tally.exact_rate <= band.high):
        return "pass", rule
    if extrapolated:
        return "inconclusive", "extrapolated"
    return "inconclusive", "open" if rule == "proven" else "outside"


def _summary(
    found: Segments, judged: list[JudgedAtTarget | JudgedSegment], tests: int, missing: list[CheckName], asked: bool
) -> Finding:
    outcomes = [one.outcome for one in judged]
    counted = [f"{outcomes.count(outcome):,} {outcome}" for outcome in ("fail", "inconclusive", "pass")]
    counted += [f"{tests - len(judged):,} with too few rows"] if tests > len(judged) else []
    counted += [f"{plural(len(missing), 'expected segment')} absent"] if missing else []
    message = f"{plural(len(found.names), 'segment')}, {plural(tests, 'test')}: {', '.join(counted)}"
    if len(judged) > MOST_SHOWN:
        message += f"; the worst {MOST_SHOWN} are shown"
    message += "" if asked else "; for information, as the policy has no checks.segments"
    worst: Outcome = "fail" if "fail" in outcomes or missing else "pass"
    if worst == "pass" and "inconclusive" in outcomes:
        worst = "inconclusive"
    # Findings that block are shown one by one.
    return Finding(check=NAME, outcome=worst, required=False, reason="counted", message=message)


def _of_segment(policy: Policy, evidence: Evidence, one: JudgedAtTarget, score: Decimal, tests: int) -> Finding:
    message = describe_count(one.tally)
    if one.reason == "min-n":
        message += f", {one.target.min_n:,} wanted"
    if one.reason in ("too-many", "too-few"):
        message += f"; disproved even as one of {plural(tests, 'test')}"
    extrapolated = float(one.target.fpr) < evidence.calibrator.lowest_label
    return Finding(
        check=one.name,
        outcome=one.outcome,
        grade=one.grade,
        required=one.target.required,
        reason=one.reason,
        message=message,
        remedy=_remedy("proven" if extrapolated else policy.rule, one),
        rate=judged_rate(one.target.fpr, score, one.tally, one.band, min_n=one.target.min_n),
    )


_NO_ROWS_HELP = NO_ROWS_HELP | {"unreachable": UNREACHABLE_TARGET}


def _remedy(rule: str, one: JudgedAtTarget) -> str | None:
    if one.outcome == "pass" or one.reason in _NO_ROWS_HELP:
        return _NO_ROWS_HELP.get(one.reason)
    k, n, worth = one.tally.flagged, one.tally.rows, one.tally.independent_rows / one.tally.rows
    advice = advise_at_rate(rule, one.band, k, n, Budget(STEPS), min_n=one.target.min_n, worth=worth)
    if not advice.computed:
        return f"hold out more benign rows of this segment: {NOT_COMPUTED}"
    if advice.more is None:
        return "find out how benign rows of this segment differ: at the rate observed no number of rows would pass"
    more = f"hold out {advice.more - n:,} more benign rows of this segment ({advice.more:,} in all)"
    return f"{more}: at the rate observed, it {PROMISE}"


# --- the check ----------------------------------------------------------------------------------------------


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(SegmentsSettings)
    if settings is not None:
        needs = f"held-out rows with a column {policy.data.segment!r}"
        yield Asked(NAME, settings.required, needs, ("checks", "segments"))
        found = evidence.of(Segments)
        for name in _missing(settings, found) if found is not None else ():
            yield Asked(name, settings.required, needs, ("checks", "segments", "expect"))

    found = evidence.of(Segments)
    if settings is not None and found is not None and len(found.names) > MOST_SEGMENTS:
        needs = f"at most {MOST_SEGMENTS:,} segments, and there are {len(found.names):,}"
        remedy = "judge ranges in fewer segments: name a coarser column in data.segment, or leave out its ranges"
        for span in settings.ranges:
            name = CheckName("segments", span.start, span.stop)
            yield Asked(name, settings.required, needs, ("checks", "segments", "ranges"), remedy=remedy)


CHECK = Check(
    key="segments",
    asks="whether the false-positive rate holds in every part of the rows: each language, product or tenant",
    decides="Each segment is judged like a target. A refutation must hold as one of so many tests (Holm's procedure); "
    "a proof needs no such correction.",
    causes="benign rows of one segment that the detector treats differently, or too few rows of it to tell",
    helps=(
        "Look at the false positives of that segment (--flagged FILE), hold out more of its rows where it is open, or "
        "give it a release of its own."
    ),
    evidence=Segments,
    measure=measure,
    judge=judge,
    asked=asked,
    families=("segments", "segment"),
    home=(("checks", "segments"), ("data", "segment")),
    reasons={"counted": "counted", "missing": "absent"} | PASSED | MISCOUNTED | UNDECIDED | UNSUPPORTED | UNSCORED,
    sentences={"missing": "expected segments have no held-out row"},
    settings=SegmentsSettings,
    unasked="null: segments are not judged by themselves",
)
