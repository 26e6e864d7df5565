"""Values that several rows have: chance seldom divides them evenly, and copies always do."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from drawing import examples

from gate.statistics.evenness import LARGE, chance_of_evenness


@pytest.mark.parametrize(
    ("c", "values", "q"), [(3, 50, 0.5), (5, 20, 0.3), (50, 40, 0.5), (2 * LARGE, 30, 0.4), (4, 300, 0.1)]
)
def test_chance_gives_a_small_bound_no_more_often_than_it_says(c: int, values: int, q: float) -> None:
    rng = np.random.default_rng(c * values)
    sizes = np.full(values, c)
    draws = examples(1_000)
    found = [chance_of_evenness(sizes, rng.binomial(c, q, values), q) for _ in range(draws)]
    for level in (0.5, 0.1, 0.05):
        often = sum(chance <= level for chance in found) / draws
        assert often <= level + 3 * np.sqrt(level * (1 - level) / draws)


def test_the_bound_is_one_of_the_whole_law() -> None:
    """Of three values with three rows each, every division is written out."""
    sizes, q = np.array([3, 3, 3]), 0.5
    law: dict[float, float] = {0.0: 1.0}
    for _ in sizes:
        more: dict[float, float] = {}
        for total, chance in law.items():
            for h in range(4):
                spread = round(total + (h - 1.5) ** 2 / 0.75, 9)
                more[spread] = more.get(spread, 0.0) + chance * comb(3, h) / 8
        law = more
    for held in ([1, 1, 2], [0, 1, 2], [0, 0, 3]):
        spread = float(np.sum((np.array(held) - 1.5) ** 2 / 0.75))
        exact = sum(chance for total, chance in law.items() if total <= spread + 1e-9)
        assert exact * (1 - 1e-9) <= chance_of_evenness(sizes, np.array(held), q) <= 1.0


@pytest.mark.parametrize("times", [3, 50, 3 * LARGE])
def test_rows_that_are_written_several_times_are_divided_too_evenly(times: int) -> None:
    sizes = np.full(120, 2 * times)
    assert chance_of_evenness(sizes, sizes // 2, 0.5) < 1e-6


def test_drift_and_nothing_to_divide_show_nothing() -> None:
    sizes = np.array([5] * 100)
    one_sided = np.where(np.arange(100) < 50, 5, 0)
    assert chance_of_evenness(sizes, one_sided, 0.5) == 1.0
    assert chance_of_evenness(sizes[:0], one_sided[:0], 0.5) == 1.0
    assert chance_of_evenness(sizes, one_sided, 1.0) == 1.0
