"""Groups of two samples exchanged: whether rows that come in groups can come from one population. No judgement.

Rows of one group are alike, so a random division of rows says nothing about samples that were divided by groups. Only
whole groups can be exchanged. The permutation test has a fixed seed; its statistic is the difference of the two rates
over its standard error between groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from gate.contract import Floats

DRAWS = 9_999
ENOUGH = 20  # differences as large as the one observed, after which no more are drawn (Besag and Clifford 1991)
MOST_UNITS = 4000  # beyond it, groups of one sample are merged at random; more units would show no more
PIECE = 128  # draws at a time
SEED = 0


@dataclass(frozen=True)
class Exchanged:
    """What exchanging groups says of several scores together, and of each by itself.

    p_value     how often the largest difference over all scores is as large as the one observed
    each        how often the difference at each score by itself is as large as the one observed
    worst       the score with the largest difference
    least       the smallest p-value that so few groups can have
    """

    p_value: float
    each: tuple[float, ...]
    worst: int
    least: float


def exchange(fit_sizes: Floats, fit_counts: Floats, sizes: Floats, counts: Floats, draws: int = DRAWS) -> Exchanged:
    """Exchange the groups of two samples. `counts` has a row for each group, a column for each score."""
    scores = fit_counts.shape[1]
    most = math.log(draws + 1)
    ways = float(gammaln(len(fit_sizes) + len(sizes) + 1) - gammaln(len(fit_sizes) + 1) - gammaln(len(sizes) + 1))
    if min(len(fit_sizes), len(sizes)) < 2 or scores == 0:
        return Exchanged(1.0, (1.0,) * scores, 0, 1.0)
    rng = np.random.default_rng(SEED)
    share = math.ceil((len(fit_sizes) + len(sizes)) / MOST_UNITS)
    fit, held = (_units(*sample, share, rng) for sample in ((fit_sizes, fit_counts), (sizes, counts)))
    units = np.concatenate([held, fit])
    total = units.sum(axis=0)
    found = _differences(units[: len(held)].sum(axis=0)[None], total, len(held), len(units))
    observed = np.append(found, found.max())
    as_large, at = np.zeros(scores + 1), np.zeros(scores + 1)
    done = 0
    while done < draws and np.any(as_large < ENOUGH):
        size = min(PIECE, draws - done)
        chosen = _drawn(rng, size, len(held), len(units))
        differences = _differences(chosen @ units, total, len(held), len(units))
        differences = np.column_stack([differences, differences.max(axis=1)])
        seen = as_large + np.cumsum(differences >= observed * (1 - 1e-9), axis=0)
        now = np.argmax(seen >= ENOUGH, axis=0) + done + 1
        at = np.where((as_large < ENOUGH) & (seen[-1] >= ENOUGH), now, at)
        as_large = np.minimum(seen[-1], ENOUGH)
        done += size
    values = np.where(as_large >= ENOUGH, ENOUGH / np.maximum(at, 1), (1 + as_large) / (done + 1))
    least = math.exp(-min(ways, most))
    return Exchanged(float(values[-1]), tuple(values[:-1].tolist()), int(found.argmax()), least)


def divide(held: int, fit: int, draws: int) -> Iterator[Floats]:
    """Random divisions of units, a piece at a time: a row for each division, with 1 for each unit held out."""
    rng = np.random.default_rng(SEED)
    for done in range(0, draws, PIECE):
        yield _drawn(rng, min(PIECE, draws - done), held, held + fit)


def _drawn(rng: np.random.Generator, size: int, held: int, units: int) -> Floats:
    chosen = np.zeros((size, units))
    order = np.argpartition(rng.random((size, units)), held - 1, axis=1)[:, :held]
    np.put_along_axis(chosen, order, 1.0, axis=1)
    return chosen


def _units(sizes: Floats, counts: Floats, share: int, rng: np.random.Generator) -> Floats:
    """The sums of each unit: its rows m, m^2, and for each score k, k^2 and k m; `share` groups make one unit."""
    if share > 1:
        order = rng.permutation(len(sizes))
        starts = np.arange(0, len(sizes), share)
        sizes, counts = np.add.reduceat(sizes[order], starts), np.add.reduceat(counts[order], starts, axis=0)
    return np.column_stack([sizes, sizes**2, counts, counts**2, counts * sizes[:, None]])


def _differences(chosen: Floats, total: Floats, held: int, units: int) -> Floats:
    """The difference of the samples' rates over its standard error: a row for each draw, a column for each score."""
    scores = (len(total) - 2) // 3

    def rate_and_variance(sums: Floats, groups: int) -> tuple[Floats, Floats]:
        m, squares = sums[:, :1], sums[:, 1:2]
        k, k2, km = (sums[:, 2 + i * scores : 2 + (i + 1) * scores] for i in range(3))
        rate = k / m
        return rate, groups / (groups - 1) * np.maximum(k2 - 2 * rate * km + rate**2 * squares, 0.0) / m**2

    here, there = rate_and_variance(chosen, held), rate_and_variance(total - chosen, units - held)
    apart, error = np.abs(here[0] - there[0]), np.sqrt(here[1] + there[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(apart <= 1e-15, 0.0, apart / error)
