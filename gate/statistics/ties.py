"""Values that several rows have: on which side of a division they fall, and what chance says of it. No judgement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gate.contract import Floats

LEVEL = 1e-6  # sound samples share so many, or so few, values with this chance at most
LEAST_VALUES = 64  # to test together: fewer may all be copies, or drift may put them on one side


class Ties(NamedTuple):
    """Values that several rows have: their rows, how many such values there are, the chance that one is on both sides.

    `single` rows have a value that no other row has.
    """

    sizes: Floats
    values: Floats
    on_both: Floats
    single: int


def chance_of(shared: float, ties: Ties) -> float:
    """A bound on the chance that a random division shares so many values (so few, if they are below the mean).

    Chernoff's bound: P(S <= s) <= exp(-t s) E exp(t S) for every t < 0, and P(S >= s) likewise for t > 0, with each
    value divided independently. S varies less than that, because the number of held-out rows is fixed.
    """
    expected = math.fsum(ties.values * ties.on_both)
    if expected <= 0:
        return 1.0
    with np.errstate(divide="ignore"):
        logs = np.log1p(-ties.on_both), np.log(ties.on_both)

    def log_bound(t: float) -> float:
        return -t * shared + float(np.sum(ties.values * np.logaddexp(logs[0], logs[1] + t)))

    least = min(0.0, _least(log_bound, -1.0 if shared < expected else 1.0))
    return math.exp(least) if least > -690 else 0.0


def seen_from(ties: Ties, n: int, fit_n: int) -> float | None:
    """The share of held-out rows that, copied from fit rows by chance, leave more shared than LEVEL allows.

    A copied value is on both sides. A value of one row becomes a pair; a value that is on both sides anyway shows
    nothing. The result is None if copies would not show even if all held-out rows were copies.
    """
    q = n / (n + fit_n)

    def on_both(sizes: Floats) -> Floats:
        return np.asarray(np.clip(1 - q**sizes - (1 - q) ** sizes, 0.0, 1.0))

    def is_seen(share: float) -> bool:
        sizes, values = np.append(ties.sizes, 1.0), np.append(ties.values, ties.single)
        copies = share * n / fit_n * sizes * (1 - q)  # the mean number for each value
        copied = -np.expm1(-copies)
        larger = sizes + copies / copied
        parts = Ties(
            np.append(larger, sizes),
            np.append(values * copied, values * (1 - copied)),
            np.append(on_both(larger), np.append(ties.on_both, 0.0)),
            0,
        )
        spread = math.sqrt(math.fsum(parts.values * parts.on_both * (1 - parts.on_both)))
        shared = math.fsum(values * copied) + math.fsum(values * (1 - copied) * parts.on_both[len(sizes) :])
        shared -= 2 * spread  # so that chance hides few
        return shared > math.fsum(parts.values * parts.on_both) and chance_of(shared, parts) <= LEVEL

    if not is_seen(1.0):
        return None
    low, high = math.log(0.5 / n), 0.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(math.exp(middle)) else (middle, high)
    return math.exp(high)


def undivided(values: Floats, on_both: Floats, shared: Floats) -> tuple[Floats, Floats]:
    """About how many values of each size chance did not divide: those put on both sides, and those put on one side.

    values    values of this size
    on_both   how many of them chance puts on both sides
    shared    how many are on both sides

    The two kinds are estimated size by size, because together they may leave as many shared values as chance does. A
    size is significant if chance shares so many of its values, or so few, less often than LEVEL (Chernoff's bound, by
    the relative entropy).
    """
    p, found = on_both / values, shared / values
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(found > 0, found * np.log(found / p), 0.0)
        entropy += np.where(found < 1, (1 - found) * np.log((1 - found) / (1 - p)), 0.0)
        significant = (values >= LEAST_VALUES) & (values * entropy >= math.log(max(len(values), 1) / LEVEL))
        both, one = (found - p) / (1 - p) * values, (p - found) / p * values
    return np.where(significant & (found > p), both, 0.0), np.where(significant & (found < p), one, 0.0)


def _least(value: Callable[[float], float], sign: float) -> float:
    """The least value at sign * exp(x), which falls and then rises with x, by golden-section search."""
    golden = (math.sqrt(5) - 1) / 2
    low, high = math.log(1e-9), math.log(50.0)
    x, y = high - golden * (high - low), low + golden * (high - low)
    at_x, at_y = value(sign * math.exp(x)), value(sign * math.exp(y))
    for _ in range(50):
        if at_x < at_y:
            high, y, at_y = y, x, at_x
            x = high - golden * (high - low)
            at_x = value(sign * math.exp(x))
        else:
            low, x, at_x = x, y, at_y
            y = low + golden * (high - low)
            at_y = value(sign * math.exp(y))
    return min(at_x, at_y)
