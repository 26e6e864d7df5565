"""The curve: the whole contract measured on held-out rows at a bounded number of points, for figures. No judgement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from gate.calibration.calibrator import Calibrator, count_flagged
from gate.contract import Anchor, Contract, Floats
from gate.ordered import Ordered, in_order
from gate.statistics.binomial import clopper_pearson

STEPS = 100  # calibrated scores 0.00, 0.01 ... 0.99
MAX_POINTS = 200


@dataclass(frozen=True)
class Point:
    """One calibrated score: the FPR it promises, the raw score that first reaches it, and the held-out count there."""

    score: float
    expected_fpr: float
    threshold: float | None
    false_positives: int
    interval: tuple[float, float]
    true_positives: int | None = None


@dataclass(frozen=True)
class Curve:
    """The floor is the rarest FPR that the fit sample has seen, with its score: beyond it, all is extrapolated."""

    benign: int
    floor: Anchor
    points: tuple[Point, ...]
    malicious: int | None = None


def trace(
    calibrator: Calibrator, holdout: Ordered | Floats, alpha: Fraction, malicious: Ordered | Floats | None = None
) -> Curve:
    """Count the held-out benign scores, and the malicious ones, both in rising order, that reach a grid's scores."""
    anchors = grid(calibrator.contract)
    thresholds = replace(calibrator, contract=Contract(anchors)).thresholds
    ordered = in_order(holdout)
    counts = {fpr: count_flagged(ordered, threshold) for fpr, threshold in thresholds.items()}
    curve = curve_of(calibrator.contract, thresholds, counts, ordered.n, calibrator.facts.lowest_label, alpha)
    if malicious is None:
        return curve
    points = (replace(point, true_positives=count_flagged(malicious, point.threshold)) for point in curve.points)
    return replace(curve, points=tuple(points), malicious=in_order(malicious).n)


def grid(contract: Contract) -> tuple[Anchor, ...]:
    """Hundredths of the score and the contract's own anchors, scores rising; at an anchor, exactly its FPR."""
    step = Decimal(1) / STEPS
    fprs = {i * step: Decimal(repr(float(contract.fpr(float(i * step))))) for i in range(STEPS)}
    own = contract.anchors[:: -(-len(contract.anchors) // (MAX_POINTS - STEPS))]
    fprs |= {anchor.score: anchor.fpr for anchor in own}
    return tuple(Anchor(fprs[score], score) for score in sorted(fprs))


def curve_of(
    contract: Contract,
    thresholds: dict[Decimal, float | None],
    counts: dict[Decimal, int],
    n: int,
    lowest_label: float,
    alpha: Fraction,
) -> Curve:
    """The curve as a function of counts alone."""
    points = tuple(
        Point(
            score=float(anchor.score),
            expected_fpr=float(anchor.fpr),
            threshold=thresholds[anchor.fpr],
            false_positives=counts[anchor.fpr],
            interval=clopper_pearson(counts[anchor.fpr], n, float(alpha)),
        )
        for anchor in grid(contract)
    )
    floor = Anchor(Decimal(repr(lowest_label)), Decimal(repr(float(contract.score(lowest_label)))))
    return Curve(n, floor, points)
