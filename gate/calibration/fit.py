"""The fit makes a calibrator from benign raw scores.

The construction is that of Berlin, "Full-range Binary Classifier Calibration for Stable Model Updates in
Production" (sections on edge-of-sample bias, method and artifact). It never looks at held-out rows and never judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

from gate.calibration.calibrator import TOP, Calibrator, FitFacts
from gate.calibration.positions import Position, fractional_rank, named
from gate.contract import Contract, Floats, Ints
from gate.errors import GateError
from gate.policy import Calibration
from gate.rows.ordered import LAST, Ordered, Sorted, sort
from gate.statistics.floats import from_ordinal, ordinal

DECADES = 10  # the grid runs from 1e-10 to 1
CELLS = 2.0**LAST  # of the grid on which rescaled scores are ties; 1 / CELLS is more than RESOLUTION
RESOLUTION = 1e-15  # IsotonicRegression merges float64 inputs closer than this, and averages them
SLACK = 1e-12  # what rounding may add to a calibrated score
NEIGHBOURS = 64  # rounding leaves the inverse of a rescaled score within so many float64 values on either side
AROUND = np.arange(-1, 4)  # ranks
STEP = 2 * RESOLUTION  # the spline of a bound rises from one score's value to the next within it


def fit(scores: ArrayLike, settings: Calibration | None = None, contract: Contract | None = None) -> Calibrator:
    """Fit the release's calibrator on benign raw scores, in any order."""
    return fit_ordered(Sorted(sort(np.asarray(scores, dtype=np.float64).ravel())), settings, contract)


def fit_ordered(ordered: Ordered, settings: Calibration | None = None, contract: Contract | None = None) -> Calibrator:
    """Fit on scores whose order is known, wherever they stand; they are asked, never changed."""
    settings, contract = settings or Calibration(), contract or Contract()
    low, high = settings.domain
    if ordered.n < 2:
        raise GateError(f"fit: must have at least 2 benign scores, got {ordered.n}; give more benign rows")
    lowest, highest = ordered.at_rank([ordered.n, 1])
    if not (low <= lowest and highest <= high):  # NaN sorts last and fails here too
        raise GateError(
            f"fit: every score must lie in the domain [{low:g}, {high:g}], got {lowest:g} to {highest:g}; "
            "set calibration.domain in the policy"
        )
    scaler = MinMaxScaler(feature_range=(0, TOP), clip=True).fit([[low], [high]])
    position = named(settings.plotting_position)
    merging = settings.ties == "conservative" or position.is_bound  # ties that are averaged keep no bound
    sample = _FitScores(ordered, scaler, position, merging)
    if merging:
        spline = _fit_conservative(sample, contract, settings.knots)
        rarest = sample.label(sample.rank_at_or_above(sample.at_rank(np.array([1]))))
    else:
        spline = _fit_spline(*_storage_knots(sample, contract, settings.knots, sample.average_atoms))
        rarest = sample.label(np.array([1]))
    facts = FitFacts(sample.n, float(rarest[0]))
    return Calibrator(Pipeline([("scale", scaler), ("calibrate", spline)]), contract, settings, facts)


class _FitScores:
    """Rescaled benign scores, with the FPR label of each rank counted from the largest.

    Searches use the raw scores, because rescaling keeps their order. With `merging`, the scores in one cell of a grid
    count as one score, the highest of them: float noise is not a difference, and sklearn would average it.
    """

    def __init__(self, ordered: Ordered, scaler: Any, position: Position, merging: bool) -> None:
        self.ordered = ordered
        self.n = ordered.n
        self.scaler = scaler
        self.position = position
        self.merging = merging

    def label(self, rank: Ints) -> Floats:
        return self.position.label(rank, self.n)

    def rank(self, fpr: Floats) -> Ints:
        """The deepest rank whose label does not exceed `fpr`, within 1 .. n - 1 so that it has a successor."""
        low, high = np.ones(len(fpr), dtype=np.int64), np.full(len(fpr), self.n - 1, dtype=np.int64)
        while np.any(low < high):
            middle = (low + high + 1) // 2
            allowed = self.position.is_at_most(fpr, middle, self.n)
            low, high = np.where(allowed, middle, low), np.where(allowed, high, middle - 1)
        return low

    def allowance(self, fpr: Decimal) -> int:
        """How many of the fit scores an anchor may flag."""
        return math.floor(fractional_rank(self.position, Fraction(fpr), self.n))

    def at_rank(self, rank: Ints) -> Floats:
        scores = _rescale(self.ordered.at_rank(rank), self.scaler)
        if not self.merging:
            return scores
        return _rescale(self.ordered.at_rank(self._reaching(_cell(scores) + 1 / CELLS) + 1), self.scaler)

    def rank_at_or_above(self, score: Floats) -> Ints:
        """The inclusive rank: how many scores reach `score`."""
        return self._reaching(_cell(score) if self.merging else score)

    def rank_above(self, score: Floats) -> Ints:
        """How many scores exceed `score`."""
        return self._reaching(_cell(score) + 1 / CELLS if self.merging else np.nextafter(score, np.inf))

    def _reaching(self, score: Floats) -> Ints:
        first = self._first(lambda rescaled: rescaled >= score, score)
        return np.where(_rescale(first, self.scaler) >= score, self.ordered.at_or_above(first), 0)

    def _first(self, holds: Callable[[Floats], NDArray[np.bool_]], near: Floats) -> Floats:
        """The lowest raw score from which on each condition holds; the highest raw score if it holds at none.

        It bisects the float64 values: those around the raw scores of `near`, or all if the score lies elsewhere.
        """
        lowest, highest = ordinal(self.ordered.at_rank([self.n, 1]))
        with np.errstate(over="ignore"):
            raw = ordinal((near - self.scaler.min_[0]) / self.scaler.scale_[0])
        low, high = (np.clip(raw + step, lowest, highest) for step in (-NEIGHBOURS, NEIGHBOURS))
        low = np.where(holds(_rescale(from_ordinal(low), self.scaler)), lowest, low)
        high = np.where(holds(_rescale(from_ordinal(high), self.scaler)), high, highest)
        while np.any(low < high):
            middle = (low & high) + ((low ^ high) >> 1)  # the mean without overflow
            held = holds(_rescale(from_ordinal(middle), self.scaler))
            low, high = np.where(held, low, np.minimum(middle + 1, high)), np.where(held, middle, high)
        return from_ordinal(high)

    def average_atoms(self, fpr: Floats) -> tuple[Ints, Ints]:
        """The paper's rule: every rank is a knot of its own, tied or not."""
        upper = self.rank(fpr)
        return upper, upper + 1

    def conservative_atoms(self, fpr: Floats) -> tuple[Ints, Ints]:
        """The inclusive ranks of the two neighbouring distinct scores between whose labels `fpr` lies."""
        rank = self.rank(fpr)
        self.ordered.at_rank(np.clip(rank[:, None] + AROUND, 1, self.n))  # what follows asks for these one by one
        score = self.at_rank(rank)
        inclusive = self.rank_at_or_above(score)
        above = self.rank_above(score)
        whole = inclusive <= rank  # the tie block ends at or before the rank that `fpr` allows
        upper = np.where(whole, inclusive, above)
        below = np.minimum(inclusive + 1, self.n)
        lower = np.where(whole, self.rank_at_or_above(self.at_rank(below)), inclusive)
        # Above the largest atom there is no knot: the two largest define the extrapolation.
        top = upper == 0
        next_below = self.rank_at_or_above(self.at_rank(np.minimum(lower + 1, self.n)))
        return np.where(top, lower, upper), np.where(top, next_below, lower)


class Attainable(NamedTuple):
    """What an anchor can flag of the fit rows: at most `below` of them are allowed, and the next score has `through`.

    apart       what could be flagged if it told all raw scores apart
    saturated   whether that score is an end of the domain: what lies beyond was cut off, or rounded to it
    """

    below: int
    through: int
    apart: int
    saturated: bool


def attainable(ordered: Ordered, calibrator: Calibrator) -> tuple[Attainable, ...]:
    """The two counts of fit rows between which no threshold falls, for each anchor, as the fit sees the scores."""
    position = named(calibrator.settings.plotting_position)
    sample = _FitScores(ordered, calibrator.pipeline[0], position, merging=True)
    allowed = np.array([sample.allowance(anchor.fpr) for anchor in calibrator.contract.anchors])
    inside = allowed < sample.n
    next_rank = np.where(inside, allowed + 1, sample.n)
    score, raw = sample.at_rank(next_rank), ordered.at_rank(next_rank)
    below, through = sample.rank_above(score), sample.rank_at_or_above(score)
    apart = ordered.at_or_above(np.nextafter(raw, np.inf))
    saturated = np.isin(raw, calibrator.settings.domain)
    found = []
    for i, within in enumerate(inside):
        low, high, separate = (int(part[i]) if within else sample.n for part in (below, through, apart))
        found.append(Attainable(low, high, separate, bool(within and saturated[i])))
    return tuple(found)


def _rescale(scores: Floats, scaler: Any) -> Floats:
    """MinMaxScaler.transform, operation by operation, on one column without its checks and copies."""
    rescaled = scores * scaler.scale_[0]
    rescaled += scaler.min_[0]
    return np.asarray(np.clip(rescaled, 0.0, TOP, out=rescaled))


def _cell(rescaled: Floats) -> Floats:
    """The lower edge of the cell that a rescaled score lies in."""
    return np.floor(rescaled * CELLS) / CELLS


def _grid(contract: Contract, knots: int) -> Floats:
    """Log-spaced FPRs from 1e-10 to 1 with every decade and every anchor among them."""
    per_decade = (knots - 1) // DECADES
    grid = np.array([10.0 ** (i / per_decade - DECADES) for i in range(per_decade * DECADES + 1)])  # on all processors
    grid[::per_decade] = [float(f"1e-{DECADES - i}") for i in range(DECADES + 1)]
    return np.union1d(grid, [float(anchor.fpr) for anchor in contract.anchors])


def _storage_knots(sample: _FitScores, contract: Contract, knots: int, atoms: Any) -> tuple[Floats, Floats]:
    """The (rescaled score, calibrated score) pairs that the shipped spline stores, scores rising.

    Spline 1 of the paper is never fitted: sorted scores are monotone already, so its value at any FPR lies
    between two order statistics, and below the lowest label on the line through the two lowest knots.
    """
    first, second = (rank[0] for rank in atoms(np.array([0.0])))
    edges = sample.label(np.array([first, second, sample.n]))
    fpr = np.union1d(_grid(contract, knots), edges)[::-1]
    upper, lower = atoms(fpr)
    q_upper, q_lower = sample.label(upper), sample.label(lower)
    s_upper, s_lower = sample.at_rank(upper), sample.at_rank(lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(q_lower > q_upper, (q_lower - fpr) / (q_lower - q_upper), 1.0)
    share = np.maximum(share, 0.0)  # beyond the highest label: the smallest score
    score = np.where(share == 1.0, s_upper, s_lower + share * (s_upper - s_lower))
    boundary = [TOP, 1.0]
    return np.append(np.clip(score, 0.0, TOP), boundary), np.append(contract.score(fpr), boundary)


def _step_knots(sample: _FitScores, contract: Contract, knots: int, atoms: Any) -> tuple[Floats, Floats]:
    """The pairs that a bound stores: a score has the value of its own label, and scores up to the next one keep it.

    Two knots make a step, so the grid is half as fine. Beyond the largest score nothing is bounded, and the line goes
    on as it does for every position.
    """
    half = max(knots // 2, DECADES + 1)
    x, y = _storage_knots(sample, contract, half, atoms)
    beyond = x > sample.at_rank(np.array([1]))[0]
    rarest = atoms(np.array([0.0]))[0]
    fpr = _grid(contract, half)
    ranks = np.union1d(atoms(fpr[fpr >= sample.label(rarest)])[0], rarest)
    scores, values = sample.at_rank(ranks)[::-1], contract.score(sample.label(ranks))[::-1]
    apart = np.append(np.diff(scores) > 2 * STEP, True)  # no room for a step: the higher score stands for both
    scores, values = scores[apart], values[apart]
    feet = np.append(0.0, values[:-1])
    steps = np.column_stack([scores - STEP, scores]).ravel(), np.column_stack([feet, values]).ravel()
    inside = steps[0] >= 0
    return np.append(steps[0][inside], x[beyond]), np.append(steps[1][inside], np.maximum(y[beyond], values[-1]))


def _fit_spline(x: Floats, y: Floats) -> IsotonicRegression:
    """Spline 2, the shipped one."""
    return IsotonicRegression(increasing=True, out_of_bounds="clip").fit(x, y)


def _fit_conservative(sample: _FitScores, contract: Contract, knots: int) -> IsotonicRegression:
    """Spline 2 such that no score is promised rarer than the fit sample saw it, and no anchor flags too many."""
    knots_of = _step_knots if sample.position.is_bound else _storage_knots
    x, y = knots_of(sample, contract, knots, sample.conservative_atoms)
    if _merging_overpromises(x, y, sample, contract):
        x, y = _merge_downward(x, y)
    spline = _fit_spline(x, y)
    # Scores a few float64 steps apart can still round to one calibrated value: pin those below the anchor.
    for anchor in contract.anchors:
        allowed = sample.allowance(anchor.fpr)
        if allowed >= sample.n:
            continue
        excess = sample.at_rank(np.array([allowed + 1]))[0]
        if spline.predict([excess])[0] >= float(anchor.score):
            near = np.abs(x - excess) < RESOLUTION
            seen = contract.score(sample.label(sample.rank_at_or_above(np.array([excess]))))[0]
            pinned = min(seen, float(anchor.score) * (1 - 1e-12), *y[near & (x < excess)])
            place = np.searchsorted(x[~near], excess)
            x, y = np.insert(x[~near], place, excess), np.insert(y[~near], place, pinned)
            spline = _fit_spline(x, y)
    return spline


def _merging_overpromises(x: Floats, y: Floats, sample: _FitScores, contract: Contract) -> bool:
    """Whether sklearn, which moves near knots to the first of them at their mean, would lift a benign score.

    It does no harm if three things hold: no benign score lies between the moved knots and the next one; the mean stays
    at or below what the inclusive label of the first knot's score allows; and the line that leads up to the first knot
    lifts no benign score on it. Then the paper's curve stands.
    """
    blocks = np.array(list(_near_blocks(x, np.diff(x) < RESOLUTION)), dtype=np.int64).reshape(-1, 2)
    starts, stops = blocks.T
    here, beyond = sample.rank_at_or_above(x[starts]), sample.rank_at_or_above(x[np.minimum(stops, len(x) - 1)])
    means = np.array([y[start:stop].mean() for start, stop in blocks])
    lifted = (here > 0) & (means > contract.score(sample.label(np.maximum(here, 1))))
    moved = (x[stops - 1] > x[starts]) & (sample.rank_above(x[starts]) > beyond)
    remaining = np.ones(len(x), dtype=bool)
    for start, stop in blocks:
        remaining[start + 1 : stop] = False
    merged = y.copy()
    merged[starts] = means
    nearest = sample.at_rank(np.minimum(here + 1, sample.n))  # the benign score before the block, if there is one
    on_the_line = (here < sample.n) & ~np.isin(nearest, x)
    raised = on_the_line & (np.interp(nearest, x[remaining], merged[remaining]) > np.interp(nearest, x, y) + SLACK)
    return bool((lifted | moved | raised).any())


def _merge_downward(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """One knot for all that share a score: the highest score of them with the smallest calibrated value."""
    keep = np.ones(len(x), dtype=bool)
    y = y.copy()
    for start, stop in _near_blocks(-x[::-1], np.diff(x)[::-1] < RESOLUTION):
        first, last = len(x) - stop, len(x) - start - 1
        y[last] = y[first]
        keep[first:last] = False
    return x[keep], y[keep]


def _near_blocks(values: Floats, near: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Slices of a rising array within RESOLUTION of their first element, wherever `near` marks a pair (i, i + 1).

    The grouping is that of sklearn's isotonic regression.
    """
    stop = 0
    for pair in np.flatnonzero(near):
        if pair < stop:
            continue
        start = max(int(np.searchsorted(values, values[pair], side="left")), stop)
        stop = int(np.searchsorted(values, values[start] + RESOLUTION, side="left"))
        while stop < len(values) and values[stop] - values[start] < RESOLUTION:
            stop += 1
        while values[stop - 1] - values[start] >= RESOLUTION:
            stop -= 1
        yield start, stop
