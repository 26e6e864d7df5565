"""The curve: the whole contract measured at a bounded number of points, for figures. Nothing is judged by it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

from pydantic import Field

from gate.checks.check import Case, Evidence, as_scores, count
from gate.contract import Anchor, Contract
from gate.policy import Policy
from gate.statistics.tally import Tally
from gate.stored import Count, ExactEdge, ExactRate, Rate, Section, exact
from gate.words import in_digits, percent

STEPS = 100  # calibrated scores 0.00, 0.01 ... 0.99
MAX_POINTS = 200
WEIGHED = 10  # the worth of grouped rows is found at one of so many points


class CurvePoint(Section):
    """One calibrated score: the rate it promises, the held-out rows that reach it, and the malicious ones."""

    score: ExactEdge
    fpr: ExactRate
    tally: Tally
    detected: Count | None = None


class Curve(Section):
    """The contract at rising calibrated scores; from `floor` on, which is a calibrated score, it is extrapolated."""

    floor: Rate
    points: tuple[CurvePoint, ...] = Field(max_length=MAX_POINTS)


def trace(case: Case) -> Curve:
    """Count the held-out benign rows and the malicious rows that reach a grid's scores."""
    anchors = grid(case.calibrator.contract)
    thresholds = list(case.thresholds_of(Contract(anchors)).values())
    own = {anchor.fpr for anchor in case.anchors}
    weighed = {i for i, anchor in enumerate(anchors) if anchor.fpr in own or i % WEIGHED == 0} | {len(anchors) - 1}
    benign = count(case.holdout, thresholds, case.alpha, weighed)
    detected: list[int] | list[None] = [None] * len(anchors)
    if case.malicious is not None:
        detected = case.malicious.ordered.at_or_above(as_scores(thresholds)).tolist()
    return Curve(
        floor=float(case.calibrator.contract.score(case.calibrator.facts.lowest_label)),
        points=tuple(
            CurvePoint(score=anchor.score, fpr=anchor.fpr, tally=found, detected=caught)
            for anchor, found, caught in zip(anchors, benign, detected, strict=True)
        ),
    )


def grid(contract: Contract) -> tuple[Anchor, ...]:
    """Hundredths of the score and the contract's own anchors, scores rising; at an anchor, exactly its FPR."""
    step = Decimal(1) / STEPS
    fprs = {i * step: exact(float(contract.fpr(float(i * step)))) for i in range(STEPS)}
    own = contract.anchors[:: -(-len(contract.anchors) // (MAX_POINTS - STEPS))]
    fprs |= {anchor.score: anchor.fpr for anchor in own}
    return tuple(Anchor(fprs[score], score) for score in sorted(fprs))


def contradictions(policy: Policy, evidence: Evidence, curve: Curve) -> Iterator[str]:
    """A curve of other rows or other scores than the record's, or with other counts than the targets."""
    from gate.checks.detection import Detection
    from gate.checks.fpr import Targets
    from gate.checks.ranges import beside_curve

    anchors = grid(policy.anchors)
    if [(point.score, point.fpr) for point in curve.points] != [(a.score, a.fpr) for a in anchors]:
        yield f"the curve must have the {len(anchors)} points of the contract"
    if curve.floor != float(policy.anchors.score(evidence.calibrator.lowest_label)):
        yield "the curve has another floor than the fit sample"
    known, detected = evidence.of(Targets), evidence.of(Detection)
    for point in curve.points:
        if evidence.calibrated and point.tally.threshold != float(point.score):
            yield "the curve is not counted at the calibrated scores themselves"
            return
        if point.tally.rows != evidence.holdout.n:
            yield "the curve is not counted on the held-out rows"
            return
        own = None if known is None else known.at(point.fpr)
        if own is not None and own != point.tally:
            yield f"the curve counts otherwise than the targets at {percent(point.fpr)}"
        caught = None if detected is None else detected.at(point.fpr)
        if (point.detected is None) != (detected is None) or (caught and caught.flagged != point.detected):
            yield f"the curve counts malicious rows otherwise than detection at {percent(point.fpr)}"
    for lower, higher in pairwise(curve.points):
        if higher.tally.flagged > lower.tally.flagged or (higher.detected or 0) > (lower.detected or 0):
            low, high = in_digits(lower.score), in_digits(higher.score)
            yield f"the curve flags more rows from a score of {high} on than from {low} on"
    yield from beside_curve(policy, evidence, [(float(point.score), point.tally.flagged) for point in curve.points])
