"""Ranges in segments: every part of the held-out rows is judged along stretches of the contract, on a coarser grid."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from gate.checks import range_words as words
from gate.checks.check import SCORE_THEM, Case, Evidence, Finding, JudgedRange
from gate.checks.ranges import asked_of_groups, scores_on
from gate.contract import Floats
from gate.names import CheckName
from gate.planning import Budget, advise_at_rate
from gate.planning.ranges import segment_corridor_of
from gate.policy import Policy, Span, Tolerance
from gate.statistics.binomial import Band
from gate.statistics.clusters import Effective, Groups, korn_graubard
from gate.statistics.ranges import MOST_SEGMENTS, Corridor, Grid, Sides, worth_of
from gate.statistics.sequential import SequentialBand
from gate.stored import Count, ExactRate, Grade, Outcome, Section, Size, exact
from gate.words import percent, plural

if TYPE_CHECKING:
    from gate.rows.sample import Sample

_DIFFERS = "find out how benign rows of this segment differ: the calibrator fits them together with the others"
NO_ROWS_HELP = {
    "too-many": _DIFFERS,
    "too-few": _DIFFERS,
    "unreachable": words.UNREACHABLE_RANGE,
    "unscored": SCORE_THEM,
}
STEPS = 100  # that the search for the rows of one segment may take
Worths = tuple[tuple[Size, Size], ...]  # at the points where the worth of groups is measured


class RangeInSegments(Section):
    """The false positives of every segment at each point of a range, and what rows in groups are worth at some."""

    start: ExactRate
    stop: ExactRate
    reached: Count
    flagged: tuple[tuple[Count, ...], ...] = Field(max_length=MOST_SEGMENTS)
    effective: tuple[Worths, ...] | None = None


@dataclass(frozen=True)
class Question:
    """What a policy asks of every segment along its ranges."""

    spans: tuple[Span, ...]
    error: Tolerance
    min_n: int
    required: bool

    def corridors(self, policy: Policy, alpha: Fraction) -> list[Corridor]:
        return [segment_corridor_of(policy, span, self.error, alpha) for span in self.spans]


def measure(case: Case, question: Question, segments: int) -> tuple[RangeInSegments, ...]:
    """Count every segment at the points of all ranges; nothing if there are too many segments."""
    if not question.spans or segments > MOST_SEGMENTS:
        return ()
    holdout, grids = case.holdout, [one.grid for one in question.corridors(case.policy, case.alpha)]
    scores = scores_on(case, grids)
    counted = holdout.by_segment(np.concatenate(scores)).reached.astype(np.int64)
    parts = np.split(counted, np.cumsum([len(at) for at in scores])[:-1], axis=1)
    found = []
    for span, grid, at, flagged in zip(question.spans, grids, scores, parts, strict=True):
        worth = None
        if holdout.has_groups:
            worth = worth_of_segments(holdout, at[asked_of_groups(grid, case.anchors)], float(case.alpha))
        found.append(
            RangeInSegments(
                start=span.start,
                stop=span.stop,
                reached=int(np.count_nonzero(np.isfinite(at))),
                flagged=tuple(tuple(row) for row in flagged.tolist()),
                effective=worth,
            )
        )
    return tuple(found)


def worth_of_segments(holdout: Sample, scores: Floats, alpha: float) -> tuple[Worths, ...]:
    """The worth of each segment at each score: at most what its own groups and those of all rows allow."""
    whole, parts = holdout.by_group(scores), holdout.by_group_in_segment(scores)
    groups = Groups(whole.sizes)
    shares = [
        Effective(*(rows / len(holdout) for rows in groups.worth(whole.reached[:, i], alpha)))
        for i in range(len(scores))
    ]
    segments = parts.parts // len(whole.sizes)
    starts = [*np.flatnonzero(np.diff(segments, prepend=-1)), len(segments)]
    found = []
    for start, stop in pairwise(starts):
        sizes, n = parts.sizes[start:stop], float(parts.sizes[start:stop].sum())
        own = [korn_graubard(sizes, parts.reached[start:stop, i], alpha) for i in range(len(scores))]
        found.append(tuple((min(o, n * all_.low), min(o, n * all_.high)) for o, all_ in zip(own, shares, strict=True)))
    return tuple(found)


# --- the judgement ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgedSegment:
    """One range in one segment; `tail` is what Holm's procedure compares among all tests."""

    name: CheckName
    corridor: Corridor
    question: Question
    found: RangeInSegments
    counts: Any
    n: int
    worth: Sides | None
    tail: float
    is_proven: bool
    lowest_label: float
    rule: str
    grade: Grade = "open"
    outcome: Outcome = "inconclusive"
    reason: str = "open"

    @property
    def rows(self) -> float:
        return float(self.n) if self.worth is None else float(min(self.worth.low.min(), self.worth.high.min()))

    @property
    def extrapolated(self) -> bool:
        return float(self.found.stop) < self.lowest_label

    @property
    def believed(self) -> str:
        return "proven" if self.extrapolated else self.rule

    def decide(self, refuted: bool) -> tuple[Grade, Outcome, str]:
        """Apply the policy's rule after Holm's procedure has decided whether the range is refuted among all tests."""
        if refuted:
            at = list(self.corridor.grid.refuting)
            errors = (self.counts / self.n / self.corridor.grid.fprs - 1)[at]
            worst = float(errors[np.abs(errors).argmax()])
            return "refuted", "fail", "too-many" if worst > 0 else "too-few"
        grade: Grade = "proven" if self.is_proven else "open"
        if self.found.reached < len(self.counts) and self.corridor.below < 1 and self.believed != "not-refuted":
            return grade, "inconclusive", "unreachable"
        if self.rows < self.question.min_n:
            return grade, "inconclusive", "min-n"
        if self.is_proven:
            return grade, "pass", "proven"
        if self.believed == "not-refuted":
            return grade, "pass", self.rule
        if self.believed == "observed" and self.corridor.judge(self.counts, self.n, self.worth).inside:
            return grade, "pass", self.rule
        if self.extrapolated:
            return grade, "inconclusive", "extrapolated"
        return grade, "inconclusive", "open" if self.rule == "proven" else "outside"


def judge(
    policy: Policy, evidence: Evidence, question: Question, alpha: Fraction, named: list[tuple[str, int]],
    counted: tuple[RangeInSegments, ...],
) -> list[JudgedSegment]:  # fmt: skip
    """Judge every range in every segment, except whether it is refuted; `named` are the segments with their rows."""
    judged = []
    for found, corridor in zip(counted, question.corridors(policy, alpha) if counted else (), strict=True):
        counts = np.array(found.flagged, dtype=np.int64)
        rows = np.array([[n] for _, n in named], dtype=np.float64)
        worths = [_sides(corridor.grid, policy, found, i, n) for i, (_, n) in enumerate(named)]
        low, high = rows, rows
        if found.effective is not None:
            low = np.array([worth.low for worth in worths if worth is not None])
            high = np.array([worth.high for worth in worths if worth is not None])
        proves_low, proves_high = corridor.proves(counts, low, high, rows)
        proven = np.all(proves_low & proves_high, axis=1).tolist()
        tails = corridor.refuting_tails(counts, low, high, rows).min(axis=1)
        judged += [
            JudgedSegment(
                name=CheckName("fpr", found.start, found.stop, segment=name),
                corridor=corridor,
                question=question,
                found=found,
                counts=counts[i],
                n=n,
                worth=worths[i],
                tail=float(tails[i]),
                is_proven=proven[i],
                lowest_label=evidence.calibrator.lowest_label,
                rule=policy.rule,
            )
            for i, (name, n) in enumerate(named)
        ]
    return judged


def _sides(grid: Grid, policy: Policy, found: RangeInSegments, i: int, n: int) -> Sides | None:
    if found.effective is None:
        return None
    places = asked_of_groups(grid, policy.anchors.anchors)
    return worth_of(grid, n, {at: Effective(*rows) for at, rows in zip(places, found.effective[i], strict=True)})


def finding(one: JudgedSegment, tests: int) -> Finding:
    """A range of one segment in words."""
    says = one.corridor.judge(one.counts, one.n, one.worth, refuted=one.grade == "refuted")
    points, near = one.corridor.grid.points, says.nearest
    numbers = JudgedRange(
        start=one.found.start,
        stop=one.found.stop,
        points=len(points),
        rows=one.rows,
        min_n=one.question.min_n,
        tolerance=(exact(float(one.corridor.above)), exact(float(one.corridor.below))),
        nearest=None,
        proven=tuple((points[run.first].fpr, points[run.last].fpr) for run in says.proven[:20]),
        refuted=tuple(points[i].fpr for i in says.refuted[:20]),
    )
    parts = [words.describe_rows(one.n, None if one.worth is None else one.rows, numbers)]
    if one.reason in ("too-many", "too-few"):
        parts += words.describe_refuted([(points[i].fpr, int(one.counts[i])) for i in says.refuted], one.n, numbers)
        parts.append(f"disproved even as one of {plural(tests, 'test')}")
    if one.reason == "min-n":
        parts.append(f"{one.question.min_n:,} wanted")
    if one.grade == "proven":
        parts.append("every threshold is proven")
    elif says.proven:
        parts.append(words.describe_proven(numbers.proven))
    if one.grade != "proven" and one.reason != "min-n":
        bound = "upper" if near.side == "above" else "lower"
        parts.append(f"its {bound} bound is worst at {percent(points[near.point].fpr, 3)}: {percent(near.bound, 3)}")
    return Finding(
        check=one.name,
        outcome=one.outcome,
        grade=one.grade,
        required=one.question.required,
        reason=one.reason,
        message="; ".join(parts),
        remedy=_remedy(one, near.point),
        range=numbers,
    )


def _remedy(one: JudgedSegment, at: int) -> str | None:
    if one.outcome == "pass" or one.reason in NO_ROWS_HELP:
        return NO_ROWS_HELP.get(one.reason)
    points = [Fraction(point.fpr) for point in one.corridor.grid.points]
    low = points[max(at - 1, 0)] * (1 - one.corridor.below)
    high = points[min(at + 1, len(points) - 1)] * (1 + one.corridor.above)
    band = Band(low, high, one.corridor.alpha)
    if one.corridor.sequential:
        band = SequentialBand(low, high, one.corridor.alpha, points[at])
    k, worth, least = int(one.counts[at]), one.rows / one.n, one.question.min_n
    advice = advise_at_rate(one.believed, band, k, one.n, Budget(STEPS), min_n=least, worth=worth)
    if advice.more is None:
        return "find out how benign rows of this segment differ, or hold out many more of them"
    return (
        f"hold out at least {max(advice.more - one.n, 1):,} more benign rows of this segment ({advice.more:,} in all): "
        f"at the rate observed, {percent(float(points[at]), 3)} then passes 95 % of the time"
    )
