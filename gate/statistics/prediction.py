"""The counts that sound releases show where rows come in groups. No judgement.

The module divides fit and held-out groups anew, by chance, puts a threshold at the same rank of the new fit rows, and
counts the new held-out rows that reach it. The division that was observed is one of these, for any sizes of groups and
any likeness of their rows. So a range that holds 95 % of the counts holds the observed one 95 % of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gate.contract import Floats, Ints
from gate.statistics.binomial import CountRange
from gate.statistics.permutation import divide

DIVISIONS = 999
PER_DECADE = 8


def looked_at(total: int) -> Ints:
    """The pooled ranks at which groups are counted: each of the first ranks, then eight to the decade, up to half."""
    ranks = np.unique([round(10 ** (i / PER_DECADE)) for i in range(1, 15 * PER_DECADE)])
    return ranks[ranks <= max(total // 2, 1)]


def predicted_counts(
    fit: Floats, held_out: Floats, ranks: Sequence[float], divisions: int = DIVISIONS
) -> tuple[CountRange, ...]:
    """The held-out counts that 95 % of the divisions show at each rank of the fit sample, with equal tails.

    `fit` and `held_out` have a row for each group, or for each unit of groups, and a column for each score from the
    highest down: how many rows reach it. Between two scores both counts are assumed to rise alike.
    """
    units = np.concatenate([held_out, fit])
    total = units.sum(axis=0)
    found: list[list[Floats]] = [[] for _ in ranks]
    for held in divide(len(held_out), len(fit), divisions):
        new_held = held @ units
        for counts, rank in zip(found, ranks, strict=True):
            counts.append(_at_rank(total - new_held, new_held, rank))
    outside = max(math.floor(0.025 * (divisions + 1)), 1)
    ordered = (np.sort(np.concatenate(counts)) for counts in found)
    return tuple((math.floor(counts[outside - 1]), math.ceil(counts[-outside])) for counts in ordered)


def _at_rank(fit: Floats, held: Floats, rank: float) -> Floats:
    """The held-out count of each division at the score that as many fit rows as the rank reach."""
    fit, held = (np.column_stack([np.zeros(len(part)), part]) for part in (fit, held))
    place = np.minimum(np.sum(fit < rank, axis=1), fit.shape[1] - 1)  # the first score that as many fit rows reach
    rows = np.arange(len(fit))
    below, above = fit[rows, np.maximum(place - 1, 0)], fit[rows, place]
    share = np.clip(np.where(above > below, (rank - below) / np.maximum(above - below, 1e-300), 1.0), 0.0, 1.0)
    start, stop = held[rows, np.maximum(place - 1, 0)], held[rows, place]
    return np.asarray(start + share * (stop - start))
