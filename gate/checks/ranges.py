"""The ranges: whether the false-positive rate is what the contract promises at every threshold of a stretch of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from pydantic import Field

from gate.calibration.positions import named, rows_to_support
from gate.checks import range_words as words
from gate.checks.check import (
    MISCOUNTED,
    PASSED,
    SCORE_THEM,
    TIED,
    UNDECIDED,
    UNSCORED,
    UNSUPPORTED,
    Asked,
    Case,
    Check,
    Evidence,
    Finding,
    JudgedRange,
    NearestPoint,
    as_scores,
    describe_unscored,
)
from gate.checks.exchangeability import differ
from gate.checks.readings import DRIFT_REMEDY
from gate.checks.reuse import alpha_of
from gate.contract import Anchor, Contract, Floats, Ints
from gate.planning.range_advice import RangeAdvice, advise_range, range_warning
from gate.planning.ranges import corridor_of
from gate.policy import Policy, Range
from gate.statistics.clusters import Effective, Groups
from gate.statistics.ranges import Corridor, Grid, Sides, worth_of
from gate.stored import Count, ExactRate, Outcome, Section, Size, exact

MOST_POINTS = 20_000  # of one range; its grid has some 5,000 points beside the anchors
MOST_LISTED = 20  # stretches, points and jumps that a finding names
MOST_ADVISED = 3  # ranges for which rows are simulated


class WorthAt(Section):
    """The independent rows that rows in groups are worth to both bounds, at one point of a range."""

    point: Count
    effective: tuple[Size, Size]


class InRange(Section):
    """The held-out rows that reach each point of one range, rates falling; the policy says which points these are.

    reached   the points that some raw score reaches, from the first on; at the others nothing is ever flagged
    worth     at some points what rows in groups are worth; null where every row is independent
    """

    start: ExactRate
    stop: ExactRate
    reached: Count
    flagged: tuple[Count, ...] = Field(min_length=2, max_length=MOST_POINTS)
    worth: tuple[WorthAt, ...] | None = None


class Ranges(Section):
    """The held-out rows along every range of the policy."""

    ranges: tuple[InRange, ...]

    def at(self, judged: Range) -> InRange | None:
        ends = judged.start, judged.stop
        return next((found for found in self.ranges if (found.start, found.stop) == ends), None)


# --- what is measured ---------------------------------------------------------------------------------------


def measure(case: Case) -> Ranges | None:
    """Count the held-out rows at the points of all ranges, with one question to the sample; None without ranges."""
    policy = case.policy
    if not policy.ranges:
        return None
    grids = [corridor_of(policy, judged, case.alpha).grid for judged in policy.ranges]
    scores = scores_on(case, grids)
    flagged = case.holdout.ordered.at_or_above(np.concatenate(scores))
    counts = np.split(flagged, np.cumsum([len(at) for at in scores])[:-1])
    worth: Iterable[tuple[WorthAt, ...] | None] = [None] * len(grids)
    if case.holdout.has_groups:
        worth = _worth(case, grids, scores)
    return Ranges(
        ranges=tuple(
            InRange(
                start=judged.start,
                stop=judged.stop,
                reached=int(np.count_nonzero(np.isfinite(at))),
                flagged=tuple(found.tolist()),
                worth=rows,
            )
            for judged, at, found, rows in zip(policy.ranges, scores, counts, worth, strict=True)
        )
    )


def scores_on(case: Case, grids: Iterable[Grid]) -> list[Floats]:
    """The lowest score that counts at each point of each grid; infinite if no score reaches the point."""
    points: dict[Decimal, Anchor] = {point.fpr: point for grid in grids for point in grid.points}
    known = case.thresholds_of(Contract(tuple(points.values())))
    return [as_scores(known[point.fpr] for point in grid.points) for grid in grids]


def asked_of_groups(grid: Grid, anchors: Iterable[Anchor]) -> list[int]:
    """The points at which the worth of groups is measured: those that may refute, and the anchors."""
    known = {anchor.fpr for anchor in anchors}
    return sorted({*grid.refuting, *(i for i, point in enumerate(grid.points) if point.fpr in known)})


def _worth(case: Case, grids: list[Grid], scores: list[Floats]) -> Iterator[tuple[WorthAt, ...]]:
    places = [asked_of_groups(grid, case.anchors) for grid in grids]
    found = case.holdout.by_group(np.concatenate([at[some] for at, some in zip(scores, places, strict=True)]))
    groups, alpha, column = Groups(found.sizes), float(case.alpha), iter(range(sum(map(len, places))))
    for some in places:
        yield tuple(
            WorthAt(point=i, effective=tuple(groups.worth(found.reached[:, next(column)], alpha))) for i in some
        )


# --- the judgement ------------------------------------------------------------------------------------------


class JudgedSpan:
    """One range with its counts, and what follows from the two."""

    def __init__(self, policy: Policy, evidence: Evidence, asked: Range, found: InRange) -> None:
        self.policy, self.asked, self.found = policy, asked, found
        self.n, self.fit_n = evidence.holdout.n, evidence.fit.n
        self.alpha, self.unscored = alpha_of(policy, evidence), describe_unscored(evidence)
        self.corridor: Corridor = corridor_of(policy, asked, self.alpha)
        self.counts: Ints = np.array(found.flagged, dtype=np.int64)
        self.lowest_label = evidence.calibrator.lowest_label
        self.says = self.corridor.judge(self.counts, self.n, self.worth)

    @cached_property
    def worth(self) -> Sides | None:
        if self.found.worth is None:
            return None
        return worth_of(self.corridor.grid, self.n, {at.point: Effective(*at.effective) for at in self.found.worth})

    @property
    def rows(self) -> float:
        """The independent rows at the point where they are worth least."""
        return float(self.n) if self.worth is None else float(min(self.worth.low.min(), self.worth.high.min()))

    @property
    def extrapolated(self) -> bool:
        return float(self.asked.stop) < self.lowest_label

    @property
    def rule(self) -> str:
        """Extrapolated thresholds are believed only when proven on held-out rows."""
        return "proven" if self.extrapolated else self.policy.rule

    @property
    def unreachable(self) -> bool:
        """Whether no row is ever flagged at the range's end although the tolerance asks for some."""
        return self.found.reached < len(self.counts) and self.corridor.below < 1

    def decide(self) -> tuple[Outcome, str]:
        """Apply the policy's rule, as at a target."""
        says = self.says
        if says.grade == "refuted":
            if says.impossible:
                return "fail", "granularity"
            if min(says.refuted, default=0) >= self.found.reached:
                return "fail", "unreachable"
            excess = any(self.counts[i] > self.corridor.edges.high[i] * self.n for i in says.refuted)
            return "fail", "too-many" if excess else "too-few"
        if self.unscored:
            return "inconclusive", "unscored"
        if self.unreachable and self.rule != "not-refuted":
            return "inconclusive", "unreachable"
        if self.rows < self.asked.min_n:
            return "inconclusive", "min-n"
        if says.grade == "proven":
            return "pass", "proven"
        if self.rule == "not-refuted" or (self.rule == "observed" and says.inside):
            return "pass", self.rule
        if says.impossible:
            return "inconclusive", "granularity"
        if self.extrapolated:
            return "inconclusive", "extrapolated"
        return "inconclusive", "open" if self.policy.rule == "proven" else "outside"

    @property
    def nearest(self) -> NearestPoint | None:
        """The point where a bound comes nearest to what its neighbour's threshold allows; None if no side is judged."""
        corridor, grid = self.corridor, self.corridor.grid
        bounds, reach = corridor.bounds(self.counts, self.n, self.worth), corridor.reach
        above, below = float(corridor.above), float(corridor.below)
        found = []
        if np.any(corridor.edges.high < 1):
            over = np.where(reach.high >= 1, -np.inf, bounds.high / (reach.high / (1 + above)) - 1)
            found.append((int(over.argmax()), float(over.max()), 1 - float(over.max()) / above, bounds.high))
        if below < 1:
            under = 1 - bounds.low / (reach.low / (1 - below))
            found.append((int(under.argmax()), -float(under.max()), 1 - float(under.max()) / below, bounds.low))
        if not found:
            return None
        i, error, left, bound = min(found, key=lambda side: side[2])
        return NearestPoint(
            fpr=grid.points[i].fpr,
            score=grid.points[i].score,
            side="above" if bound is bounds.high else "below",
            flagged=int(self.counts[i]),
            bound=float(bound[i]),
            error=error,
            left=left,
        )

    @property
    def numbers(self) -> JudgedRange:
        points, says = self.corridor.grid.points, self.says
        return JudgedRange(
            start=self.asked.start,
            stop=self.asked.stop,
            points=len(points),
            rows=self.rows,
            min_n=self.asked.min_n,
            tolerance=(exact(float(self.corridor.above)), exact(float(self.corridor.below))),
            nearest=self.nearest,
            proven=tuple((points[run.first].fpr, points[run.last].fpr) for run in says.proven[:MOST_LISTED]),
            refuted=tuple(points[i].fpr for i in says.refuted[:MOST_LISTED]),
            impossible=tuple((points[i].fpr, points[i + 1].fpr) for i in says.impossible[:MOST_LISTED]),
        )

    def advice(self) -> RangeAdvice:
        return advise_range(
            self.policy,
            self.asked,
            self.alpha,
            self.counts,
            self.n,
            self.fit_n,
            worth=self.rows / self.n,
            refuted=self.says.grade == "refuted",
        )


def judge_ranges(policy: Policy, evidence: Evidence) -> list[JudgedSpan]:
    """The ranges that were measured, in the policy's order."""
    found = evidence.of(Ranges)
    measured = [(asked, None if found is None else found.at(asked)) for asked in policy.ranges]
    return [JudgedSpan(policy, evidence, asked, counted) for asked, counted in measured if counted is not None]


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Judge every range by the policy's rule."""
    advised = 0
    for judged in judge_ranges(policy, evidence):
        outcome, reason = judged.decide()
        numbers = judged.numbers
        advice, drifted = None, judged.says.grade == "refuted" and differ(policy, evidence)
        if outcome != "pass" and not drifted and reason not in words.BEYOND_ROWS and advised < MOST_ADVISED:
            advice, advised = judged.advice(), advised + 1
        yield Finding(
            check=judged.asked.check,
            outcome=outcome,
            grade=judged.says.grade,
            required=judged.asked.required,
            reason=reason,
            message=_message(judged, reason, numbers),
            remedy=None if outcome == "pass" else _remedy(judged, reason, advice, drifted),
            range=numbers,
        )


def _message(judged: JudgedSpan, reason: str, numbers: JudgedRange) -> str:
    says, counts, points = judged.says, judged.counts, judged.corridor.grid.points
    parts = [words.describe_rows(judged.n, None if judged.worth is None else judged.rows, numbers)]
    parts += words.describe_refuted([(points[i].fpr, int(counts[i])) for i in says.refuted], judged.n, numbers)
    jumps = [(points[i].fpr, points[i + 1].fpr, int(counts[i]), int(counts[i + 1])) for i in says.impossible]
    parts += words.describe_jumps(jumps)
    parts += [judged.unscored] if judged.unscored else []
    if judged.unreachable:
        parts.append(words.describe_unreached(points[judged.found.reached].fpr))
    if judged.extrapolated:
        parts.append(words.describe_extrapolation(judged.lowest_label))
    if reason == "min-n":
        parts.append(words.describe_minimum(judged.asked.min_n, judged.worth is not None))
    if says.grade == "proven":
        parts.append("every threshold is proven")
    elif says.proven:
        parts.append(words.describe_proven(numbers.proven))
    else:
        parts.append("no part of it is proven")
    return "; ".join([*parts, *words.describe_nearest(numbers)])


def _remedy(judged: JudgedSpan, reason: str, advice: RangeAdvice | None, drifted: bool) -> str:
    if reason == "unscored":
        return SCORE_THEM
    if reason == "granularity":
        return words.finer(Fraction(judged.asked.max_relative_error.above), judged.corridor.below < 1)
    if reason == "unreachable":
        return words.UNREACHABLE_RANGE
    if drifted:
        return DRIFT_REMEDY  # more rows like these would show the same
    support = rows_to_support(named(judged.policy.calibration.plotting_position), float(judged.asked.stop))
    if judged.extrapolated and judged.fit_n >= support:
        return words.TIED_TOP
    return words.describe_advice(advice, judged.n, support if judged.extrapolated else None, judged.worth is not None)


# --- the check ----------------------------------------------------------------------------------------------


def warnings(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """Ranges that passed and yet are weak at these sizes; other ranges have findings with a remedy."""
    if policy.interval == "sequential":  # with sequential looks more rows may come
        return
    passed = [judged for judged in judge_ranges(policy, evidence) if judged.decide()[0] == "pass"]
    for judged in passed[:MOST_ADVISED]:
        weakness = range_warning(policy, judged.asked, evidence.fit.n, int(judged.rows))
        if weakness is not None:
            yield weakness


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    for i, judged in enumerate(policy.ranges):
        yield Asked(judged.check, judged.required, "held-out rows", ("ranges", i))


CHECK = Check(
    key="ranges",
    asks="whether the false-positive rate is the one that the contract promises at every threshold of a range",
    decides=(
        "It counts the held-out benign rows on a grid so fine that what lies between two points costs a fiftieth of "
        "the tolerance. Every bound inside proves the whole range, with no wider interval than at one target, for a "
        "release that is bad anywhere is bad at some point. One point beyond the tolerance, corrected for how many may "
        "do so, refutes it."
    ),
    causes=(
        "too few held-out rows (a range takes about an eighth more than its lowest rate), tied scores that make the "
        "rate jump, a threshold put off by too few fit rows, or drift between the samples"
    ),
    helps=(
        "Refuted: look at the false positives (--flagged FILE) from the rate on that the finding names, and at what "
        "differs between fit and held-out rows. Open: hold out as many more rows as it names. Tied scores: export "
        "them unrounded, or end the range before the jump."
    ),
    evidence=Ranges,
    measure=measure,
    judge=judge,
    asked=asked,
    warnings=warnings,
    home=(("ranges",),),
    reasons=PASSED | MISCOUNTED | UNDECIDED | UNSUPPORTED | TIED | UNSCORED,
)
