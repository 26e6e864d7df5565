"""The curve: the whole contract measured at a bounded number of points, for figures. Nothing is judged by it."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from gate.checks.check import Case, as_scores, count
from gate.contract import Anchor, Contract
from gate.statistics.tally import Tally
from gate.stored import Count, ExactEdge, ExactRate, Rate, Section, exact

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
