"""What the judgement of a whole range promises, exactly where it can be computed and by simulation elsewhere.

    cd tests && python -m benchmarks.ranges [--runs 20000] [NAME ...]

The tables of tests/README.md; tests run the same with few runs.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom, poisson

from gate.statistics.tails import FixedTails

# --- the band to draw: exact boundary crossing ---------------------------------------------------------------


def band_covers(n: int, start: float, stop: float, level: float) -> float:
    """The chance that intervals of this level cover the true rate at every threshold of a range at once.

    The count rises with the rate; it leaves the band only where a bound is reached. A binomial process is a Poisson
    process given its number of points, whose increments are independent: one convolution from bound to bound.
    """
    k = np.arange(0, math.ceil(n * start + 12 * math.sqrt(n * start) + 40))
    tails = FixedTails()
    low, high = tails.lower(k, n, 0.0, level / 2), tails.upper(k, n, 0.0, level / 2)
    at_most = [(float(at), -1, int(count) - 1) for at, count in zip(low, k, strict=True) if stop < at <= start]
    at_least = [(float(at), int(count) + 1, len(k)) for at, count in zip(high, k, strict=True) if stop <= at < start]
    first, last = int(np.argmax(high >= stop)), int(np.flatnonzero(low <= stop)[-1])
    offset, chances = first, poisson.pmf(np.arange(first, last + 1), n * stop)
    here = stop
    for at, least, most in sorted([*at_most, *at_least, (start, -1, len(k))]):
        mean = n * (at - here)
        steps = poisson.pmf(np.arange(0, int(mean + 9 * math.sqrt(mean) + 12)), mean) if mean > 0 else np.ones(1)
        chances = np.convolve(chances, steps)
        if least > offset:
            chances, offset = chances[least - offset :], least
        chances = chances[: max(most - offset + 1, 0)]
        felt = np.flatnonzero(chances > 1e-18)
        if len(felt) == 0:
            return 0.0
        chances, offset, here = chances[felt[0] : felt[-1] + 1], offset + int(felt[0]), at
    ends = np.arange(offset, offset + len(chances))
    return float(np.sum(chances * np.exp(binom.logpmf(ends, n, start) - poisson.logpmf(ends, n * start))))


def band_level(n: int, start: float, stop: float, confidence: float = 0.95) -> float:
    """The level of single intervals at which all of them together cover with this confidence."""
    low, high = (1 - confidence) / 400, 1 - confidence
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if band_covers(n, start, stop, middle) >= confidence else (low, middle)
    return low
