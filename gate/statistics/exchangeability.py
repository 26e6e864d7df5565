"""Noise or drift: exact tests of whether held-out and fit scores can come from one population. No judgement.

If they can, the number of held-out rows among the M pooled rows at or above a pooled threshold is hypergeometric, for
any distribution of scores and any ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gate.contract import Ints
from gate.statistics.binomial import CountLaw, hypergeometric

DRAWS = 9_999
SEED = 0
LARGEST_DRAW = 10**9  # numpy draws from no larger population


@dataclass(frozen=True)
class PooledTest:
    """One score: `pooled` rows reach it; `held_out` of these were held out, and `expected` would be on average."""

    pooled: int
    held_out: int
    expected: float
    p_value: float


@dataclass(frozen=True)
class TailScan:
    """The whole upper half of the curve in one p-value, and the rank at which the two samples differ most."""

    p_value: float
    worst: PooledTest | None


def scanned_ranks(total: int) -> Ints:
    """Log-spaced pooled ranks, four to the decade, from 5 to half of the rows."""
    ranks = np.array([round(5 * 10 ** (i / 4)) for i in range(60)])
    return ranks[ranks <= total // 2]


def scan_counts(counts: tuple[tuple[int, int], ...], n: int, total: int) -> TailScan:
    """The scan as a function of counts alone: pooled rows, rising, and the held-out rows among them.

    The law of the smallest p-value is simulated from the multivariate hypergeometric, which is exact with ties; the
    seed is fixed, so the same counts give the same answer.
    """
    if not counts:
        return TailScan(1.0, None)
    tests = [compare_counts(pooled, held_out, n, total) for pooled, held_out in counts]
    worst = min(tests, key=lambda test: test.p_value)
    if total >= LARGEST_DRAW:  # Bonferroni's bound, which is safe
        return TailScan(min(1.0, worst.p_value * len(tests)), worst)
    return TailScan((1 + _as_small(counts, n, total, worst.p_value, DRAWS)) / (DRAWS + 1), worst)


@lru_cache(maxsize=64)  # the same counts are judged more than once
def _as_small(counts: tuple[tuple[int, int], ...], n: int, total: int, p_value: float, size: int) -> int:
    """How many of the draws have a smallest p-value that is at most this one."""
    colors = np.diff([pooled for pooled, _ in counts], prepend=0, append=total)
    draws = np.random.default_rng(SEED).multivariate_hypergeometric(colors, n, size=size, method="marginals")
    drawn = np.cumsum(draws, axis=1)[:, :-1]
    smallest = np.ones(size)
    for column, (pooled, _) in zip(drawn.T, counts, strict=True):
        np.minimum(smallest, hypergeometric(total, pooled, n).two_sided(column), out=smallest)
    return int(np.count_nonzero(smallest <= p_value * (1 + 1e-9)))


def compare_counts(pooled: int, held_out: int, n: int, total: int) -> PooledTest:
    """The test as a function of counts alone: n of `total` rows are held out, and `pooled` rows reach a score."""
    law: CountLaw = hypergeometric(total, pooled, n)
    return PooledTest(
        pooled=pooled,
        held_out=held_out,
        expected=pooled * n / total,
        p_value=float(law.two_sided(np.array([held_out]))[0]),
    )
