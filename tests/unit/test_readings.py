"""What a pass means, and what every statement assumes, in sentences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gate.checks import readings
from gate.planning import ships
from gate.statistics.binomial import Band

HALF = Fraction(1, 2)


def band(fpr: Fraction) -> Band:
    return Band.around(fpr, HALF, HALF, Fraction(1, 20))


@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
def test_a_bad_release_ships_as_often_as_is_said(rule: str) -> None:
    """Of 20,000 counts at 2 and 5 times the target, by the rule, within four errors; not-refuted: 60 % at twice."""
    fpr, n = Fraction(1, 1000), 20_000
    rng = np.random.default_rng(len(rule))
    edges = band(fpr)
    for tooth in ships(rule, edges, fpr, HALF, n):
        counts = rng.binomial(n, float(fpr * tooth.multiple), 20_000).tolist()
        low, high = (
            {k for k in set(counts) if test(rule, k, n)} for test in (edges.admits_from_below, edges.admits_from_above)
        )
        share = np.mean([k in low and k in high for k in counts])
        assert share == pytest.approx(tooth.passes, abs=4 * 0.5 / 20_000**0.5)
    if rule == "not-refuted":
        assert 0.5 < ships(rule, edges, fpr, HALF, n)[1].passes < 0.7
    assert all(tooth.passes == 0 for tooth in ships(rule, edges, fpr, HALF, n, min_n=n + 1))


def test_what_a_pass_means_is_said_in_one_sentence() -> None:
    fpr = Fraction(1, 1000)
    chances = [(float(one.multiple), one.passes) for one in ships("not-refuted", band(fpr), fpr, HALF, 20_000)]
    said = readings.what_a_pass_means("not-refuted", chances, 20_000, grouped=False)
    assert said == (
        "By the rule not-refuted, on 20,000 rows, a release at 2 times its target passes 60.4 % of the time, "
        "one at 5 times it less than 0.1 %"
    )
    assert readings.assumptions(grouped=False) == (
        "Every statement assumes independent benign rows like those to come, and the threshold as it is shipped."
    )
