"""What counts on a grid prove of a stretch of the contract, at every threshold of it. No policy, no data.

"Bad at some threshold" is a union of hypotheses, so a test of each at its own level is a test of all
(intersection-union; Berger 1982). The rate falls as the score rises, so finitely many counts show it between the points
of the grid too: the upper bound must keep to the next point's promise, and the lower bound to the last point's. To
refute, one of many tests is enough, so Bonferroni's correction is due.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gate.contract import Anchor, Contract, Floats, Ints, Mask
from gate.statistics.binomial import TIE
from gate.statistics.clusters import Effective
from gate.statistics.sequential import SequentialTails
from gate.statistics.tails import FixedTails, Tails, last_counts
from gate.stored import Grade, exact

Side = Literal["above", "below"]

FINENESS = 50  # steps of the grid within one tolerance: the gap between two points costs a fiftieth of it
MOST_POINTS = 5000  # beside the anchors; beyond it the steps are wider, which proves less and nothing wrong
REFUTING_POINTS = 5  # a decade
SEGMENT_POINTS = 20  # a decade, where a range is judged in every segment
MOST_SEGMENTS = 1000
DIGITS = 12  # of a point's rate; anchors of the contract differ within them

# The level of single intervals at which all intervals of a range cover 95 % of the time, by its decades. It is computed
# by exact boundary crossing (`tests/benchmarks/ranges.py`) with up to 1,000 rows beyond the lowest rate; fewer rows
# need less. From four decades on it is computed by crossings of the limiting process (Ornstein and Uhlenbeck).
BAND_LEVELS = (
    (0.1, 0.021),
    (0.25, 0.013),
    (0.5, 0.0080),
    (1.0, 0.0045),
    (1.5, 0.0029),
    (2.0, 0.0021),
    (3.0, 0.0014),
    (4.0, 0.0010),
    (5.0, 0.00077),
    (6.0, 0.00062),
    (10.0, 0.00035),
)


@dataclass(frozen=True)
class Grid:
    """The points of a range, with falling rates, and those that may refute it; the policy alone determines them."""

    points: tuple[Anchor, ...]
    refuting: tuple[int, ...]

    @cached_property
    def fprs(self) -> Floats:
        return np.array([float(point.fpr) for point in self.points])

    @property
    def band_level(self) -> float:
        """The level of the intervals to draw: all intervals of the range are right together 95 % of the time."""
        decades = _decades(self.points[0].fpr, self.points[-1].fpr)
        return next(level for span, level in BAND_LEVELS if decades <= span + 1e-9)


def grid(
    contract: Contract, start: Decimal, stop: Decimal, above: Fraction, below: Fraction, a_decade: int | None = None
) -> Grid:
    """The points from one rate down to another, its ends and the contract's anchors between them included.

    Two points differ by the factor 1 + r/50 at most, where r is the smaller tolerance; `a_decade` sets the number.
    """
    refuting = _spaced(start, stop, math.ceil(REFUTING_POINTS * _decades(start, stop) - 1e-9))
    knots = sorted({*refuting, *(a.fpr for a in contract.anchors if stop <= a.fpr <= start)}, reverse=True)
    step = math.log10(1 + float(min(above, below, Fraction(1))) / FINENESS) if a_decade is None else 1 / a_decade
    step = max(step, _decades(start, stop) / (MOST_POINTS - len(refuting)))
    rates = [start]
    for one, other in pairwise(knots):
        rates += _spaced(one, other, math.ceil(_decades(one, other) / step - 1e-9))[1:]
    known = {anchor.fpr: anchor.score for anchor in contract.anchors}
    scores = contract.score(np.array([float(rate) for rate in rates])).tolist()
    points = tuple(Anchor(rate, known.get(rate, exact(score))) for rate, score in zip(rates, scores, strict=True))
    places = {rate: i for i, rate in enumerate(rates)}
    return Grid(points, tuple(places[rate] for rate in refuting))


def _decades(start: Decimal, stop: Decimal) -> float:
    return math.log10(float(start)) - math.log10(float(stop))


def _spaced(start: Decimal, stop: Decimal, steps: int) -> list[Decimal]:
    """Rates with one ratio between them; both ends are included unchanged."""
    steps = max(steps, 1)
    low, high = math.log10(float(stop)), math.log10(float(start))
    between = (10 ** (high + (low - high) * i / steps) for i in range(1, steps))
    return [start, *(Decimal(f"{rate:.{DIGITS - 1}e}").normalize() for rate in between), stop]


class Sides(NamedTuple):
    """A number on the lower side and one on the upper side, for each point of a grid."""

    low: Floats
    high: Floats


class Counts(NamedTuple):
    """A smallest and a largest count for each point of a grid."""

    low: Ints
    high: Ints


def worth_of(grid: Grid, n: int, measured: dict[int, Effective]) -> Sides:
    """What grouped rows are worth at every point, from their worth at some points, which include both ends.

    Between two of these the worth is the smaller one: a group flagged together at a score is flagged so at lower ones.
    """
    places = sorted(measured)
    i = np.arange(len(grid.points))
    before = np.searchsorted(places, i, side="right") - 1
    after = np.searchsorted(places, i, side="left")
    sides = []
    for side in (0, 1):
        rows = np.array([measured[place][side] for place in places])
        sides.append(np.minimum(np.minimum(rows[before], rows[after]), n))
    return Sides(*sides)


class Nearest(NamedTuple):
    """The point where a bound comes nearest to leaving the tolerance, or has left it farthest.

    left   the share of the tolerance that is left there; negative if the bound is outside
    """

    point: int
    side: Side
    bound: float
    left: float


class Stretch(NamedTuple):
    """The points from one to another, with falling rates."""

    first: int
    last: int


@dataclass(frozen=True)
class Judged:
    """What counts say of a range.

    inside        whether every point's observed rate lies in the tolerance
    proven        the stretches proven, each by itself, the longest first; the whole range if it is proven
    refuted       the points that disprove it
    impossible    the points just below which so many rows have one score that no calibrator keeps both sides in
    outside       the points whose observed rate is not in the tolerance
    tail          the tail compared with alpha/2 (or, among segments, by Holm's procedure) to refute the range
    """

    grade: Grade
    inside: bool
    nearest: Nearest
    proven: tuple[Stretch, ...]
    refuted: tuple[int, ...]
    impossible: tuple[int, ...]
    outside: tuple[int, ...]
    tail: float


@dataclass(frozen=True)
class CriticalRange:
    """The smallest and largest count at every point with which a range is proven, observed inside, not refuted.

    The counts are of n rows; if the smallest exceeds the largest, no count has this effect.
    """

    proven: Counts
    observed: Counts
    unrefuted: Counts

    def passing(self, rule: str) -> Counts:
        if rule == "observed":
            one, other = self.observed, self.unrefuted
            return Counts(np.maximum(one.low, other.low), np.minimum(one.high, other.high))
        return self.proven if rule == "proven" else self.unrefuted


@dataclass(frozen=True)
class Corridor:
    """The true rates that a policy accepts along a range, and what counts at the points of its grid say of them.

    `sequential` bounds hold at every look (`gate.statistics.sequential`), other bounds at one look.
    """

    grid: Grid
    above: Fraction
    below: Fraction
    alpha: Fraction
    sequential: bool = False

    @cached_property
    def tails(self) -> Tails:
        return SequentialTails(self.above, self.below) if self.sequential else FixedTails()

    @cached_property
    def _exact_edges(self) -> tuple[list[Fraction], list[Fraction]]:
        rates = [Fraction(point.fpr) for point in self.grid.points]
        return [p * (1 - self.below) for p in rates], [p * (1 + self.above) for p in rates]

    @cached_property
    def edges(self) -> Sides:
        """The lowest and the highest rate that the policy accepts at each point."""
        low, high = (np.array([float(edge) for edge in edges]) for edges in self._exact_edges)
        return Sides(low, high)

    @cached_property
    def reach(self) -> Sides:
        """The rates that each point's bounds must keep to for the thresholds beside it: edges of its two neighbours."""
        low, high = self.edges
        return Sides(np.concatenate([low[:1], low[:-1]]), np.concatenate([high[1:], high[-1:]]))

    # --- counts, one range or many at once: the points are the last axis

    def proves(self, counts: ArrayLike, low_n: ArrayLike, high_n: ArrayLike, n: ArrayLike) -> tuple[Mask, Mask]:
        """Whether the lower and upper bound of each point are inside; n rows are worth so many to these bounds."""
        k, n = np.asarray(counts, dtype=np.float64), np.asarray(n, dtype=np.float64)
        low, high = self.reach
        level, p = float(self.alpha / 2) * (1 + TIE), self.grid.fprs
        above = (low <= 0) | (self.tails.many(k * (low_n / n), low_n, _possible(low), p) <= level)
        below = (high >= 1) | (self.tails.few(k * (high_n / n), high_n, _possible(high), p) <= level)
        return above, below

    def refuting_tails(self, counts: ArrayLike, low_n: ArrayLike, high_n: ArrayLike, n: ArrayLike) -> Floats:
        """The chance of so extreme a count at the nearer edge of each refuting point, times the number of points."""
        at = list(self.grid.refuting)
        k, n = np.asarray(counts, dtype=np.float64)[..., at], np.asarray(n, dtype=np.float64)
        low_n, high_n = (_at(rows, at) for rows in (low_n, high_n))
        low, high = (edge[at] for edge in self.edges)
        p = self.grid.fprs[at]
        few = np.where(low <= 0, 1.0, self.tails.few(k * (high_n / n), high_n, _possible(low), p))
        many = np.where(high >= 1, 1.0, self.tails.many(k * (low_n / n), low_n, _possible(high), p))
        return np.asarray(np.minimum(np.minimum(few, many) * len(at), 1.0))

    def bounds(self, counts: ArrayLike, n: int, worth: Sides | None = None) -> Sides:
        """The lower and upper bound of every point's rate, with alpha/2 on each side."""
        k, p = np.asarray(counts, dtype=np.float64), self.grid.fprs
        rows = worth or Sides(np.full(len(p), float(n)), np.full(len(p), float(n)))
        tail = float(self.alpha / 2)
        low = self.tails.lower(k * (rows.low / n), rows.low, p, tail)
        return Sides(low, self.tails.upper(k * (rows.high / n), rows.high, p, tail))

    def judge(self, counts: ArrayLike, n: int, worth: Sides | None = None, refuted: bool | None = None) -> Judged:
        """What the counts of n rows say; `refuted` is the result of a procedure over many ranges, if there is one."""
        k = np.asarray(counts, dtype=np.int64)
        rows = worth or Sides(np.full(len(k), float(n)), np.full(len(k), float(n)))
        proves_low, proves_high = self.proves(k, rows.low, rows.high, n)
        tails = self.refuting_tails(k, rows.low, rows.high, n)
        limit = float(self.alpha / 2) * (1 - TIE)
        disproved = bool(np.any(tails < limit)) if refuted is None else refuted
        lowest, highest = self._observed(n)
        outside = np.flatnonzero((k < lowest) | (k > highest))
        proven = bool(np.all(proves_low) and np.all(proves_high))
        return Judged(
            grade="proven" if proven else "refuted" if disproved else "open",
            inside=len(outside) == 0,
            nearest=self._nearest(self.bounds(k, n, rows)),
            proven=self._stretches(proves_low, proves_high),
            refuted=tuple(at for at, tail in zip(self.grid.refuting, tails, strict=True) if tail < limit),
            impossible=self._impossible(k, rows, n),
            outside=tuple(outside.tolist()),
            tail=float(tails.min()),
        )

    def critical(self, n: int, points: Ints | None = None) -> CriticalRange:
        """Invert the tails at every point, so that judging n independent rows is comparing integers.

        `points` limits this to some points; all points that may refute must be among them.
        """
        points = np.arange(len(self.grid.points)) if points is None else points
        p, level = self.grid.fprs[points], float(self.alpha / 2)
        low, high = self.reach.low[points], self.reach.high[points]
        few, many = self.tails.few, self.tails.many
        at_most = np.where(
            high >= 1, n, last_counts(lambda k: few(k, n, _possible(high), p) <= level * (1 + TIE), n, _possible(high))
        )
        too_few = last_counts(lambda k: many(k, n, _possible(low), p) > level * (1 + TIE), n, _possible(low))
        at = np.searchsorted(points, self.grid.refuting)
        own_low, own_high = (edges[points][at] for edges in self.edges)
        strict = level / len(at) * (1 - TIE)
        unrefuted = Counts(np.zeros(len(p), dtype=np.int64), np.full(len(p), n))
        below = last_counts(lambda k: few(k, n, _possible(own_low), p[at]) < strict, n, _possible(own_low))
        unrefuted.low[at] = np.where(own_low <= 0, 0, below + 1)
        above = last_counts(lambda k: many(k, n, _possible(own_high), p[at]) >= strict, n, _possible(own_high))
        unrefuted.high[at] = np.where(own_high >= 1, n, above)
        return CriticalRange(Counts(np.where(low <= 0, 0, too_few + 1), at_most), self._observed(n, points), unrefuted)

    def _observed(self, n: int, points: Ints | None = None) -> Counts:
        """The counts whose rate lies in the tolerance, exactly."""
        low, high = self._exact_edges
        at = range(len(low)) if points is None else points.tolist()
        lowest = [max(-(-n * low[i].numerator // low[i].denominator), 0) for i in at]
        highest = [min(n * high[i].numerator // high[i].denominator, n) for i in at]
        return Counts(np.array(lowest, dtype=np.int64), np.array(highest, dtype=np.int64))

    def _nearest(self, bounds: Sides) -> Nearest:
        p = self.grid.fprs
        over = np.where(self.edges.high >= 1, np.inf, 1 - (bounds.high / p - 1) / float(self.above))
        under = np.where(self.edges.low <= 0, np.inf, 1 - (1 - bounds.low / p) / float(self.below))
        side: Side = "above" if over.min() <= under.min() else "below"
        left, bound = (over, bounds.high) if side == "above" else (under, bounds.low)
        at = int(left.argmin())
        return Nearest(at, side, float(bound[at]), float(left[at]))

    def _stretches(self, proves_low: Mask, proves_high: Mask) -> tuple[Stretch, ...]:
        """Runs of proven steps; a step is proven if the upper bound holds at its start, the lower one at its end."""
        steps = proves_high[:-1] & proves_low[1:]
        turns = np.flatnonzero(np.diff(np.concatenate([[False], steps, [False]]).astype(np.int8)))
        found = [Stretch(int(first), int(last)) for first, last in zip(turns[::2], turns[1::2], strict=True)]
        logs = np.log(self.grid.fprs)
        return tuple(sorted(found, key=lambda run: (logs[run.last] - logs[run.first], run.first)))

    def _impossible(self, k: Ints, rows: Sides, n: int) -> tuple[int, ...]:
        """Steps in which the count falls by more than the tolerance allows and chance explains.

        The rows that reach the next point are a binomial share of those that reach this one, for any rates.
        """
        if self.below >= 1:
            return ()
        p, share = self.grid.fprs, np.minimum(rows.low, rows.high) / n
        worth = np.minimum(share[:-1], share[1:])
        room = p[1:] / p[:-1] * float((1 - self.below) / (1 + self.above))
        tails = FixedTails().few(k[1:] * worth, k[:-1] * worth, room)
        level = float(self.alpha / 2) / max(len(tails), 1)
        return tuple(np.flatnonzero((k[:-1] > 0) & (tails < level)).tolist())


def _possible(edge: Floats) -> Floats:
    """Edges as rates of a law; a vacuous edge is replaced, because it is never used."""
    return np.clip(edge, 1e-300, 1 - 1e-16)


def _at(rows: ArrayLike, places: list[int]) -> Floats:
    """The rows at some of the points, where they differ from point to point."""
    rows = np.asarray(rows, dtype=np.float64)
    return rows[..., places] if rows.ndim and rows.shape[-1] > 1 else rows


@lru_cache(maxsize=64)
def corridor(
    contract: Contract,
    start: Decimal,
    stop: Decimal,
    above: Fraction,
    below: Fraction,
    alpha: Fraction,
    a_decade: int | None = None,
    sequential: bool = False,
) -> Corridor:
    """A tolerance along a range, on its grid; measuring, judging, warning and drawing ask for the same one."""
    return Corridor(grid(contract, start, stop, above, below, a_decade), above, below, alpha, sequential)
