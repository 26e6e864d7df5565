"""The targets in every segment of the held-out rows: counts, and what they prove of so many at once. No judgement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gate.calibration.calibrator import Calibrator
from gate.planning import Advice, Budget, advise_at_rate, band_of
from gate.policy import Policy, Target
from gate.scores import Scores
from gate.statistics.binomial import TIE, Band, clopper_pearson, effective_rows

# Where the policy names a column of segments and asks nothing of it: the largest ones, at the highest rates.
MOST_UNASKED, MOST_RATES = 100, 10
SEGMENT_STEPS = 100  # of the search for the rows that one segment needs


@dataclass(frozen=True)
class SegmentMeasurement:
    """One target in one segment. `refuted` holds among all `tests` at once, by Holm's procedure (Holm 1979)."""

    segment: str
    target: Target
    score: Decimal
    threshold: float | None
    false_positives: int
    benign: int
    effective_n: float
    extrapolated: bool
    refuted: bool
    tests: int
    tail: float  # the chance of so extreme a count at the edge of the tolerance
    band: Band = field(repr=False)

    # What only the measurement of a whole sample has.
    predicted = drift = tied = None
    unattainable = False

    @property
    def check(self) -> str:
        return f"{self.target.check}/{self.segment}"

    @property
    def observed_fpr(self) -> float:
        return self.false_positives / self.benign

    @property
    def relative_error(self) -> float:
        return float(Fraction(self.false_positives, self.benign) / Fraction(self.target.fpr) - 1)

    @property
    def tolerance(self) -> tuple[Decimal, Decimal]:
        return self.target.tolerance

    @property
    def inside(self) -> bool:
        """Whether the observed rate lies in the tolerance."""
        return self.benign * self.band.low <= self.false_positives <= self.benign * self.band.high

    @property
    def proven(self) -> bool:
        k, n = self.false_positives * self._worth, self.effective_n
        return self.band.proves_low(k, n) and self.band.proves_high(k, n)

    @cached_property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(self.false_positives * self._worth, self.effective_n, float(self.band.alpha))

    @cached_property
    def plain_interval(self) -> tuple[float, float]:
        return clopper_pearson(self.false_positives, self.benign, float(self.band.alpha))

    def advice(self, rule: str) -> Advice:
        """The rows in all that pass 95 % of the time at the rate observed."""
        counts, least = (self.false_positives, self.benign), self.target.min_n
        return advise_at_rate(rule, self.band, *counts, Budget(SEGMENT_STEPS), min_n=least, worth=self._worth)

    @property
    def _worth(self) -> float:
        return self.effective_n / self.benign


@dataclass(frozen=True)
class SegmentEvidence:
    """Every target in all segments of one column, and the expected segments that are absent."""

    column: str
    names: tuple[str, ...]
    benign: tuple[int, ...]
    counts: tuple[TargetCounts, ...]
    measurements: tuple[SegmentMeasurement, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class TargetCounts:
    """One target's false positives in every segment, and the independent rows that each segment is worth."""

    fpr: Decimal
    false_positives: tuple[int, ...]
    effective_n: tuple[float, ...]


def targets_of(policy: Policy) -> list[Target]:
    """What is asked of every segment, from the highest rate down; where nothing is, the policy's targets advise."""
    check = policy.checks.segments
    if check is None:
        rates = sorted((target.fpr for target in policy.targets), reverse=True)[:MOST_RATES]
        targets = [t.model_copy(update={"required": False}) for t in policy.targets if t.fpr in rates]
    else:
        error, required = check.max_relative_error, check.required
        targets = [
            Target(fpr=fpr, min_n=check.min_n, max_relative_error=error, required=required) for fpr in check.targets
        ]
    return sorted(targets, key=lambda target: -target.fpr)


def measure(policy: Policy, calibrator: Calibrator, holdout: Scores, alpha: Fraction) -> SegmentEvidence | None:
    """Count every target's false positives in every segment; None where the rows have none."""
    codes = holdout.segments
    if codes is None:
        return None
    sizes = np.bincount(codes, minlength=len(holdout.segment_names))
    present = np.flatnonzero(sizes)
    if policy.checks.segments is None and len(present) > MOST_UNASKED:
        present = np.sort(present[np.argsort(-sizes[present], kind="stable")[:MOST_UNASKED]])
    rates = [target.fpr for target in targets_of(policy)]
    counts = []
    for fpr, flagged in zip(rates, _flagged(calibrator, holdout, rates), strict=True):
        found = np.bincount(codes[flagged], minlength=len(sizes))
        worth = sizes.astype(np.float64)
        if holdout.groups is not None:
            worth = _worth(holdout, holdout.groups, codes, flagged, float(alpha))
        counts.append(TargetCounts(fpr, tuple(found[present].tolist()), tuple(worth[present].tolist())))
    names = tuple(holdout.segment_names[i] for i in present)
    return evidence_of(
        policy, calibrator.thresholds, calibrator.facts.lowest_label, names, sizes[present], counts, alpha
    )


def evidence_of(
    policy: Policy,
    thresholds: Mapping[Decimal, float | None],
    lowest_label: float,
    names: tuple[str, ...],
    benign: Sequence[int] | NDArray[np.int64],
    counts: list[TargetCounts],
    alpha: Fraction,
) -> SegmentEvidence:
    """What the counts in all segments say together: a function of counts alone."""
    check, column = policy.checks.segments, policy.data.segment
    assert column is not None
    targets = {target.fpr: target for target in targets_of(policy)}
    bands, tails = {}, []
    for counted in counts:
        band = bands[counted.fpr] = band_of(targets[counted.fpr], alpha)
        parts = zip(counted.false_positives, benign, counted.effective_n, strict=True)
        tails += [band.refuting_tail(k * (worth / n), worth) for k, n, worth in parts]
    refuted = holm(np.array(tails), float(alpha / 2))
    scores = {point.fpr: point.score for point in policy.contract}
    measurements: list[SegmentMeasurement] = []
    for counted in counts:
        target = targets[counted.fpr]
        for name, k, n, worth in zip(names, counted.false_positives, benign, counted.effective_n, strict=True):
            i = len(measurements)
            measurements.append(
                SegmentMeasurement(
                    segment=f"{column}={name}",
                    target=target,
                    score=scores[counted.fpr],
                    threshold=thresholds[counted.fpr],
                    false_positives=k,
                    benign=int(n),
                    effective_n=worth,
                    extrapolated=float(counted.fpr) < lowest_label,
                    refuted=bool(refuted[i]),
                    tests=len(tails),
                    tail=tails[i],
                    band=bands[counted.fpr],
                )
            )
    missing = tuple(name for name in check.expect if name not in set(names)) if check else ()
    rows = tuple(int(n) for n in benign)
    return SegmentEvidence(column, names, rows, tuple(counts), tuple(measurements), missing)


def holm(tails: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    """Which of many tests to reject so that a true one is rejected at most `limit` of the time (Holm 1979).

    The i-th smallest of m tail probabilities must stay below limit / (m - i + 1), and so must all smaller ones.
    """
    m = len(tails)
    order = np.argsort(tails, kind="stable")
    below = tails[order] < limit * (1 - TIE) / (m - np.arange(m))
    rejected = np.zeros(m, dtype=bool)
    rejected[order[: m if below.all() else int(np.argmin(below))]] = True
    return rejected


def _flagged(calibrator: Calibrator, holdout: Scores, rates: list[Decimal]) -> Iterator[NDArray[np.int64]]:
    """For each rate, from the highest down, the places of the rows that its threshold flags."""
    places = None
    for fpr in rates:
        threshold = calibrator.thresholds[fpr]
        if threshold is None:
            yield np.empty(0, dtype=np.int64)
        elif places is None:  # only the first looks at all rows: a row flagged at a rare rate is flagged at this one
            places = np.flatnonzero(holdout.values >= threshold)
            yield places
        else:
            places = places[holdout.values[places] >= threshold]
            yield places


def _worth(
    holdout: Scores, groups: NDArray[np.int64], codes: NDArray[np.int32], flagged: NDArray[np.int64], alpha: float
) -> NDArray[np.float64]:
    """How many independent rows each segment is worth, with at least the design effect of the whole sample."""
    groups_n = len(holdout.group_sizes)
    whole, _ = effective_rows(
        holdout.group_sizes, np.bincount(groups[flagged], minlength=groups_n).astype(np.float64), alpha
    )
    pairs = codes.astype(np.int64) * groups_n + groups
    known, sizes = np.unique(pairs, return_counts=True)
    counts = np.zeros(len(known))
    hit, hits = np.unique(pairs[flagged], return_counts=True)
    counts[np.searchsorted(known, hit)] = hits
    worth = np.zeros(len(holdout.segment_names))
    starts = np.searchsorted(known, np.arange(len(worth) + 1) * groups_n)
    for i, (start, stop) in enumerate(pairwise(starts)):
        if start < stop:
            _, worth[i] = effective_rows(sizes[start:stop].astype(np.float64), counts[start:stop], alpha, whole)
    return worth
