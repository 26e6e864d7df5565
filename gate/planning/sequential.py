"""How many rows it takes to decide if one may look as often as one likes. It simulates with one seed and sees no data.

One looks whenever the rows have grown by a fiftieth. With more looks it decides a little sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gate.contract import Floats, Ints, Mask
from gate.planning.law import LARGEST, POWER, Budget, Law, band_of
from gate.policy import Policy, Target
from gate.statistics.binomial import Band
from gate.statistics.sequential import SequentialTails
from gate.statistics.tails import last_counts

PATHS = 2000
SEED = 0
STEPS = 2000  # that the search for the fixed plan may take
GROWTH = 1.02  # rows from look to look
MOST_GROWTH = 2000.0  # times the rows at which the likeliest counts first decide; a path open then is at an edge
OFF_CENTRE = Fraction(3, 5)  # as a share of the way from the target to an edge


@dataclass(frozen=True)
class LookRows:
    """The rows after which releases at one true rate are decided; infinite where so many never are within the horizon.

    multiple    the true rate over the target
    decided     the share that is decided in the end, and `proven` the share that is proven
    mean        the mean of these rows over the releases that are decided
    """

    multiple: Fraction
    mean: float
    median: float
    most: float  # the 95th percentile
    proven: float
    decided: float
    error: float  # the error of the shares


@dataclass(frozen=True)
class SequentialPlan:
    """The rows that a target takes with looks at any time, and the rows that it takes with one planned look."""

    target: Target
    fixed: int | None
    rows: tuple[LookRows, ...]


@dataclass(frozen=True)
class Deciding:
    """More rows after an open look: with `rows` in all, the finding is decided with this chance."""

    rows: int
    chance: float
    proven: float
    error: float


def plan_sequential(policy: Policy, target: Target, power: float = POWER) -> SequentialPlan:
    """The rows at the target and off centre, and the rows of one look with this power and an equal fit size."""
    error = target.max_relative_error
    multiples = [Fraction(1), 1 + OFF_CENTRE * Fraction(error.above)]
    if error.below < 1:
        multiples.append(1 - OFF_CENTRE * Fraction(error.below))
    band = band_of(target, policy.alpha(), "sequential")
    p = Fraction(target.fpr)
    found = [_rows(band, p, multiple, target.min_n) for multiple in multiples if p * multiple < 1]
    once = Law(policy.model_copy(update={"interval": "clopper-pearson"}), target, Budget(STEPS))
    return SequentialPlan(target, once.search(lambda: once.holdout_needed(None, power)), tuple(found))


def decide_band(band: Band, p: Fraction, k: int, n: int, law: tuple[float, float] | None) -> tuple[Deciding, ...]:
    """The rows in all that decide a band around a rate p half, 80 and 95 % of the time, if k of n rows left it open.

    `law` has the parameters of the beta law that the fit gives the true rate (x and n_fit - x + 1), if it is known;
    else the count alone is believed. Chances that are not reached within the horizon are left out.
    """
    rng = np.random.default_rng(SEED)
    a, b = law or (0.5, 0.5)
    rates = rng.beta(a + k, b + n - k, PATHS)
    at, bounds = _schedule(band, p, start=n)
    stopped, proven = _walk(rng, rates, at, bounds, k, n)
    found = []
    for chance in (0.5, 0.8, POWER):
        rows = float(np.quantile(stopped, chance, method="higher"))
        if math.isfinite(rows):
            by_then = stopped <= rows
            share = float(by_then.mean())
            error = math.sqrt(max(share * (1 - share), 1 / PATHS) / PATHS)
            found.append(Deciding(int(rows), share, float((by_then & proven).mean()), error))
    return tuple(found)


def _rows(band: Band, p: Fraction, multiple: Fraction, min_n: int) -> LookRows:
    at, bounds = _schedule(band, p, start=0)
    rng = np.random.default_rng(SEED)
    stopped, proven = _walk(rng, np.full(PATHS, float(p * multiple)), at, bounds, 0, 0)
    stopped = np.maximum(stopped, np.where(proven, min_n, 0))
    decided = np.isfinite(stopped)
    shares = float(proven.mean()), float(decided.mean())
    return LookRows(
        multiple=multiple,
        mean=float(stopped[decided].mean()) if decided.any() else math.inf,
        median=float(np.quantile(stopped, 0.5, method="higher")),
        most=float(np.quantile(stopped, POWER, method="higher")),
        proven=shares[0],
        decided=shares[1],
        error=math.sqrt(max(shares[0] * (1 - shares[0]), 1 / PATHS) / PATHS),
    )


@dataclass(frozen=True)
class _AtLooks:
    """The counts that prove the band at each look, and the counts at or beyond which the look refutes it."""

    low: Ints
    high: Ints
    few: Ints
    many: Ints


def _schedule(band: Band, p: Fraction, start: int) -> tuple[Ints, _AtLooks]:
    """The looks, from the first that may decide on, and what decides at each."""
    narrowest = min(float(band.high / p) - 1, 1 - float(max(band.low, Fraction(0)) / p), 1.0)
    first = max(start + 1, math.ceil(0.5 / (narrowest**2 * float(p))))
    last = min(MOST_GROWTH * max(first, start), LARGEST)
    looks = np.unique(np.ceil(first * GROWTH ** np.arange(math.log(last / first) / math.log(GROWTH) + 1)))
    at = looks.astype(np.int64)
    half, tails = float(band.alpha / 2), SequentialTails(band.high / p - 1, 1 - band.low / p)
    low, high, rate = float(band.low), float(band.high), float(p)
    most = int(at[-1])

    def counts(edge: float, few: bool, holds_below: bool) -> Ints:
        """The last count at each look whose lower tail at an edge is small, or whose upper tail is not yet small."""
        tail = tails.few if few else tails.many
        limits = np.full(len(at), edge)

        def holds(k: Ints) -> Mask:
            small = tail(np.minimum(k, at), at, limits, rate) <= half
            return np.where(k > at, False, small if holds_below else ~small)

        return last_counts(holds, most, at / most * edge)

    return at, _AtLooks(
        low=np.zeros(len(at), dtype=np.int64) if band.low <= 0 else counts(low, False, False) + 1,
        high=at if band.high >= 1 else counts(high, True, True),
        few=np.full(len(at), -1) if band.low <= 0 else counts(low, True, True),
        many=at + 1 if band.high >= 1 else counts(high, False, False) + 1,
    )


def _walk(rng: np.random.Generator, rates: Floats, at: Ints, bounds: _AtLooks, k: int, n: int) -> tuple[Floats, Mask]:
    """The rows at which each path stops (infinite if it does not), and whether it was proven then."""
    stopped, proven = np.full(len(rates), math.inf), np.zeros(len(rates), dtype=bool)
    going, count = np.arange(len(rates)), np.full(len(rates), k, dtype=np.int64)
    for i, rows in enumerate(at.tolist()):
        count = count + rng.binomial(rows - n, rates[going])
        n = rows
        good = (bounds.low[i] <= count) & (count <= bounds.high[i])
        over = good | (count <= bounds.few[i]) | (count >= bounds.many[i])
        stopped[going[over]], proven[going[over]] = rows, good[over]
        going, count = going[~over], count[~over]
        if len(going) == 0:
            break
    return stopped, proven
