"""The calibrator: benign raw scores in, a plain sklearn Pipeline and its exact raw thresholds out.

The construction is that of Berlin, "Full-range Binary Classifier Calibration for Stable Model Updates in
Production" (sections on edge-of-sample bias, method and artifact). It fits and it finds thresholds; it never looks
at held-out data and never judges.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

from gate.binomial import beta_cdf, beta_quantiles, first
from gate.contract import FLAG_ALL, LOWEST, Anchor, Contract, Floats
from gate.errors import GateError, visible
from gate.policy import Calibration

TOP = 0.99  # the highest rescaled and calibrated score: a threshold of 1.0 flags nothing
DECADES = 10  # the grid runs from 1e-10 to 1
RESOLUTION = 1e-15  # IsotonicRegression merges float64 inputs closer than this, and averages them

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class FitFacts:
    """What the fit sample was, as far as reports and verdicts need it."""

    n: int
    distinct: int
    lowest_label: float


@dataclass(frozen=True)
class Calibrator:
    """The shipped pipeline with the contract it keeps and the settings it was fitted with."""

    pipeline: Pipeline
    contract: Contract
    settings: Calibration
    facts: FitFacts

    def predict(self, scores: ArrayLike) -> Floats:
        """Calibrated scores; float32 input is promoted first, because sklearn would rescale it in float32."""
        column = np.asarray(scores, dtype=np.float64).reshape(-1, 1)
        return np.asarray(self.pipeline.predict(column), dtype=np.float64)

    @property
    def knots(self) -> tuple[Floats, Floats]:
        spline = self.pipeline[-1]
        return spline.X_thresholds_, spline.y_thresholds_

    @cached_property
    def thresholds(self) -> dict[Decimal, float | None]:
        """For each anchor's FPR the smallest raw score that the pipeline maps to the anchor or above.

        Found by bisection over the float64 values themselves, so that `score >= threshold` and
        `predict(score) >= anchor` agree on every score; None where no score of the domain reaches the anchor.
        """
        anchors = self.contract.anchors
        scores = np.array([float(anchor.score) for anchor in anchors])
        ends = ordinal(np.array(self.settings.domain))
        low, high = np.full(len(anchors), ends[0]), np.full(len(anchors), ends[1])
        while np.any(low < high):
            middle = (low & high) + ((low ^ high) >> 1)  # the mean without overflow
            reached = self.predict(from_ordinal(middle)) >= scores
            high = np.where(reached, middle, high)
            low = np.where(reached, low, np.minimum(middle + 1, high))
        found = from_ordinal(high)
        reached = self.predict(found) >= scores
        return {
            anchor.fpr: float(threshold) if ok else None
            for anchor, threshold, ok in zip(anchors, found, reached, strict=True)
        }

    @cached_property
    def artifact(self) -> bytes:
        """The file of the paper: `joblib.load` and `predict`, none of our code."""
        buffer = io.BytesIO()
        joblib.dump(self.pipeline, buffer)
        return buffer.getvalue()

    def to_json(self) -> str:
        """The same knots without a pickle; floats are written so that they read back bit-equal."""
        x, y = self.knots
        document = {
            "schema_version": 1,
            "domain": list(self.settings.domain),
            "feature_range": [0.0, TOP],
            "plotting_position": self.settings.plotting_position,
            "ties": self.settings.ties,
            "knots": self.settings.knots,
            "fit": {"n": self.facts.n, "distinct": self.facts.distinct, "lowest_label": self.facts.lowest_label},
            "contract": [{"fpr": float(anchor.fpr), "score": float(anchor.score)} for anchor in self.contract.anchors],
            "thresholds": [{"fpr": float(fpr), "raw_score": threshold} for fpr, threshold in self.thresholds.items()],
            "rescaled": x.tolist(),
            "calibrated": y.tolist(),
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @cached_property
    def sha256(self) -> str:
        """The digest of the artifact."""
        return hashlib.sha256(self.artifact).hexdigest()


def count_flagged(ordered: Floats, threshold: float | None) -> int:
    """How many scores, given in rising order, reach a threshold, inclusively; none where there is no threshold."""
    return 0 if threshold is None else len(ordered) - int(np.searchsorted(ordered, threshold, side="left"))


# --- fitting ------------------------------------------------------------------------------------------------


def fit(scores: ArrayLike, settings: Calibration | None = None, contract: Contract | None = None) -> Calibrator:
    """Fit the release's calibrator on benign raw scores, in any order."""
    return fit_sorted(np.sort(np.asarray(scores, dtype=np.float64).ravel()), settings, contract)


def fit_sorted(scores: Floats, settings: Calibration | None = None, contract: Contract | None = None) -> Calibrator:
    """Fit on scores that are already in rising order; they are read, never changed."""
    settings, contract = settings or Calibration(), contract or Contract()
    low, high = settings.domain
    if len(scores) < 2:
        raise GateError(f"fit: must have at least 2 benign scores, got {len(scores)}; give more benign rows")
    if not (low <= scores[0] and scores[-1] <= high):  # NaN sorts last and fails here too
        raise GateError(
            f"fit: every score must lie in the domain [{low:g}, {high:g}], got {scores[0]:g} to {scores[-1]:g}; "
            "set calibration.domain in the policy"
        )
    scaler = MinMaxScaler(feature_range=(0, TOP), clip=True).fit([[low], [high]])
    sample = _Sample(_rescale(scores, scaler), settings.plotting_position)
    if settings.ties == "conservative":
        sample.merge_near_ties()
        spline = _fit_conservative(sample, contract, settings.knots)
        lowest = sample.label(sample.rank_at_or_above(sample.scores[-1:]))
    else:
        spline = _fit_spline(*_storage_knots(sample, contract, settings.knots, sample.average_atoms))
        lowest = sample.label(np.array([1]))
    facts = FitFacts(sample.n, _count_distinct(scores), float(lowest[0]))
    return Calibrator(Pipeline([("scale", scaler), ("calibrate", spline)]), contract, settings, facts)


def label(rank: ArrayLike, n: int, plotting_position: str) -> Floats:
    """The FPR that the rank-th largest of n benign scores stands for; it is Beta(k, n - k + 1) in truth.

    The policy's `plotting_position` says which promise that makes:

    filliben     the median of that law, approximately (Filliben 1975), exact at both ends
    median       the median, exactly
    mean         its mean
    conformal    (k + 1) / (n + 1): a fresh benign row reaches the score at most at this rate, on average
    np C         its C quantile: the true FPR is at most the label with probability C (Tong, Feng and Li 2018)
    """
    k = np.asarray(rank, dtype=np.float64)
    match plotting_position.split():
        case ["mean"]:
            return k / (n + 1)
        case ["conformal"]:
            return (k + 1) / (n + 1)
        case ["median"] | ["np", _]:
            return beta_quantiles(k, n - k + 1, _quantile(plotting_position))
    interior = (k - 0.3175) / (n + 0.365)
    ends = np.where(k <= 1, -np.expm1(np.log(0.5) / n), 0.5 ** (1 / n))
    return np.where((k <= 1) | (k >= n), ends, interior)


def _quantile(plotting_position: str) -> float:
    """Which quantile of the beta law `median` and `np C` take as label."""
    return 0.5 if plotting_position == "median" else float(plotting_position.split()[1])


def _is_labelled_at_most(fpr: ArrayLike, rank: ArrayLike, n: int, plotting_position: str) -> NDArray[np.bool_]:
    """Whether `label(rank) <= fpr`; for quantiles by their distribution function, ten times faster than inverting."""
    if plotting_position.split()[0] in ("median", "np"):
        k = np.asarray(rank, dtype=np.float64)
        return beta_cdf(k, n - k + 1, fpr) >= _quantile(plotting_position) * (1 - 1e-12)  # equal but for rounding
    return label(rank, n, plotting_position) <= np.asarray(fpr)


def fractional_rank(fpr: Fraction, n: int, plotting_position: str) -> Fraction:
    """The real-valued rank, from 0 to n, whose label is `fpr`: what the anchor's threshold interpolates at."""
    match plotting_position.split():
        case ["mean"]:
            rank = fpr * (n + 1)
        case ["conformal"]:
            rank = fpr * (n + 1) - 1
        case ["filliben"]:
            rank = fpr * (n + Fraction("0.365")) + Fraction("0.3175")
        case _:
            low, high = 0.0, float(n)
            while np.nextafter(low, high) < high and high - low > 1e-12 * high:
                middle = (low + high) / 2
                reached = _is_labelled_at_most(float(fpr), middle, n, plotting_position)
                low, high = (middle, high) if reached else (low, middle)
            whole = round(low)  # a rank whose label is the rate itself: halving only comes near it
            near = abs(whole - low) < 1e-6 and bool(_is_labelled_at_most(float(fpr), whole, n, plotting_position))
            rank = Fraction(whole if near else low)
    return min(max(rank, Fraction(0)), Fraction(n))


def rows_to_support(fpr: float, plotting_position: str) -> int:
    """The fewest benign rows whose largest score, if not tied, is labelled `fpr` or less."""
    return first(lambda n: bool(_is_labelled_at_most(fpr, 1, n, plotting_position)), 1, 10**12)


class _Sample:
    """Rescaled benign scores in rising order, with the FPR label of each rank counted from the largest."""

    def __init__(self, scores: Floats, plotting_position: str) -> None:
        self.scores = scores
        self.n = len(scores)
        self.position = plotting_position

    def label(self, rank: Ints) -> Floats:
        return label(rank, self.n, self.position)

    def rank(self, fpr: Floats) -> Ints:
        """The deepest rank whose label does not exceed `fpr`, within 1 .. n - 1 so that it has a successor."""
        low, high = np.ones(len(fpr), dtype=np.int64), np.full(len(fpr), self.n - 1, dtype=np.int64)
        while np.any(low < high):
            middle = (low + high + 1) // 2
            allowed = _is_labelled_at_most(fpr, middle, self.n, self.position)
            low, high = np.where(allowed, middle, low), np.where(allowed, high, middle - 1)
        return low

    def allowance(self, fpr: Decimal) -> int:
        """How many of the fit scores an anchor may flag."""
        return math.floor(fractional_rank(Fraction(fpr), self.n, self.position))

    def at_rank(self, rank: Ints) -> Floats:
        return self.scores[self.n - rank]

    def rank_at_or_above(self, score: Floats) -> Ints:
        """The inclusive rank: how many scores reach `score`."""
        return self.n - np.searchsorted(self.scores, score, side="left")

    def average_atoms(self, fpr: Floats) -> tuple[Ints, Ints]:
        """The paper: every rank is a knot of its own, tied or not."""
        upper = self.rank(fpr)
        return upper, upper + 1

    def conservative_atoms(self, fpr: Floats) -> tuple[Ints, Ints]:
        """The inclusive ranks of the two neighbouring distinct scores between whose labels `fpr` lies."""
        rank = self.rank(fpr)
        score = self.at_rank(rank)
        inclusive = self.rank_at_or_above(score)
        above = self.n - np.searchsorted(self.scores, score, side="right")
        whole = inclusive <= rank  # the tie block ends at or before the rank that `fpr` allows
        upper = np.where(whole, inclusive, above)
        below = np.minimum(inclusive + 1, self.n)
        lower = np.where(whole, self.rank_at_or_above(self.at_rank(below)), inclusive)
        # Above the largest atom there is no knot: the two largest define the extrapolation.
        top = upper == 0
        next_below = self.rank_at_or_above(self.at_rank(np.minimum(lower + 1, self.n)))
        return np.where(top, lower, upper), np.where(top, next_below, lower)

    def merge_near_ties(self) -> None:
        """Give scores that sklearn would merge one value, the highest of them: float noise is not a difference."""
        near = np.empty(self.n - 1, dtype=bool)
        for gaps, part in _gaps(self.scores):
            near[part] = (gaps > 0) & (gaps < RESOLUTION)
        if not near.any():
            return
        # From the top down, so that the values that stay are RESOLUTION apart.
        for start, stop in _near_blocks(-self.scores[::-1], near[::-1]):
            self.scores[self.n - stop : self.n - start] = self.scores[self.n - start - 1]


def _rescale(scores: Floats, scaler: Any) -> Floats:
    """MinMaxScaler.transform, operation by operation, on one column without its checks and copies."""
    rescaled = scores * scaler.scale_[0]
    rescaled += scaler.min_[0]
    return np.asarray(np.clip(rescaled, 0.0, TOP, out=rescaled))


def _grid(contract: Contract, knots: int) -> Floats:
    """Log-spaced FPRs from 1e-10 to 1 with every decade and every anchor among them."""
    per_decade = (knots - 1) // DECADES
    grid = 10.0 ** (np.arange(per_decade * DECADES + 1) / per_decade - DECADES)
    grid[::per_decade] = [float(f"1e-{DECADES - i}") for i in range(DECADES + 1)]
    return np.union1d(grid, [float(anchor.fpr) for anchor in contract.anchors])


def _storage_knots(sample: _Sample, contract: Contract, knots: int, atoms: Any) -> tuple[Floats, Floats]:
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


def _fit_spline(x: Floats, y: Floats) -> IsotonicRegression:
    """Spline 2, the shipped one."""
    return IsotonicRegression(increasing=True, out_of_bounds="clip").fit(x, y)


def _fit_conservative(sample: _Sample, contract: Contract, knots: int) -> IsotonicRegression:
    """Spline 2 such that no score is promised rarer than the fit sample saw it, and no anchor flags too many."""
    x, y = _storage_knots(sample, contract, knots, sample.conservative_atoms)
    if _merging_overpromises(x, y, sample, contract):
        x, y = _merge_downward(x, y)
    spline = _fit_spline(x, y)
    # Scores a few float64 steps apart can still round to one calibrated value: pin those below the anchor.
    for anchor in contract.anchors:
        allowed = sample.allowance(anchor.fpr)
        if allowed >= sample.n:
            continue
        excess = sample.scores[sample.n - allowed - 1]
        if spline.predict([excess])[0] >= float(anchor.score):
            near = np.abs(x - excess) < RESOLUTION
            seen = contract.score(sample.label(sample.rank_at_or_above(np.array([excess]))))[0]
            pinned = min(seen, float(anchor.score) * (1 - 1e-12), *y[near & (x < excess)])
            place = np.searchsorted(x[~near], excess)
            x, y = np.insert(x[~near], place, excess), np.insert(y[~near], place, pinned)
            spline = _fit_spline(x, y)
    return spline


def _merging_overpromises(x: Floats, y: Floats, sample: _Sample, contract: Contract) -> bool:
    """Whether sklearn, which moves near knots to the first of them at their mean, would lift a benign score.

    It does no harm where no benign score lies between the moved knots and the next one, and where the mean stays
    at or below what the inclusive label of the first knot's score allows: then the paper's curve stands.
    """
    for start, stop in _near_blocks(x, np.diff(x) < RESOLUTION):
        here, beyond = sample.rank_at_or_above(np.array([x[start], x[min(stop, len(x) - 1)]]))
        strictly = sample.n - np.searchsorted(sample.scores, x[start], side="right")
        if here and y[start:stop].mean() > contract.score(sample.label(here))[()]:
            return True
        if x[stop - 1] > x[start] and strictly > beyond:
            return True
    return False


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


def _gaps(values: Floats) -> Iterator[tuple[Floats, slice]]:
    """Differences of neighbours in pieces that stay in the processor's cache, each with its place."""
    piece = 1 << 16
    for base in range(0, len(values) - 1, piece):
        gaps = np.diff(values[base : base + piece + 1])
        yield gaps, slice(base, base + len(gaps))


def _count_distinct(values: Floats) -> int:
    return 1 + sum(int(np.count_nonzero(gaps)) for gaps, _ in _gaps(values))


# --- float64 values in order --------------------------------------------------------------------------------


def ordinal(values: Floats) -> Ints:
    """Integers in the order of the floats: neighbours differ by one."""
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def from_ordinal(ordinals: Ints) -> Floats:
    return np.where(ordinals < 0, np.int64(-(2**63)) - ordinals, ordinals).view(np.float64)


# --- reading back -------------------------------------------------------------------------------------------


def from_json(text: str, where: str = "calibrator.json") -> Calibrator:
    """Rebuild a calibrator from its JSON, bit-equal; a pickle is never loaded."""
    try:
        document = json.loads(text)
        if document["schema_version"] != 1 or document["feature_range"] != [0.0, TOP]:
            raise GateError(f"{where}: must be a calibrator of schema_version 1, got another; upgrade gate")
        low, high = (float(end) for end in document["domain"])
        settings = Calibration(
            knots=document["knots"],
            plotting_position=document["plotting_position"],
            ties=document["ties"],
            domain=(low, high),
        )
        anchors = tuple(Anchor(Decimal(repr(p["fpr"])), Decimal(repr(p["score"]))) for p in document["contract"])
        facts = FitFacts(**document["fit"])
        x = np.array(document["rescaled"], dtype=np.float64)
        y = np.array(document["calibrated"], dtype=np.float64)
        scaler = MinMaxScaler(feature_range=(0, TOP), clip=True).fit([[low], [high]])
        spline = IsotonicRegression(increasing=True, out_of_bounds="clip").fit(x, y)
        points = (FLAG_ALL, *anchors, LOWEST)
        ordered = all(one.fpr > other.fpr and one.score < other.score for one, other in pairwise(points))
        plain = type(facts.n) is int and type(facts.distinct) is int and type(facts.lowest_label) is float
        possible = plain and facts.n >= 2 and 1 <= facts.distinct <= facts.n and 0 < facts.lowest_label <= 1
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        said = visible(" ".join(str(error).split())[:200])
        raise GateError(f"{where}: must be a calibrator written by gate, got {type(error).__name__}: {said}") from None
    if not (ordered and possible):
        raise GateError(f"{where}: must be a calibrator written by gate, got an impossible contract or fit sample")
    if not (np.array_equal(spline.X_thresholds_, x) and np.array_equal(spline.y_thresholds_, y)):
        raise GateError(f"{where}: its knots must rise; this file was not written by gate")
    return Calibrator(Pipeline([("scale", scaler), ("calibrate", spline)]), Contract(anchors), settings, facts)
