"""What a pass means, and what every statement assumes, in sentences."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from gate.checks import floor, granularity, readings
from gate.planning import ships
from gate.statistics.binomial import Band

HALF = Fraction(1, 2)


def band(fpr: Fraction) -> Band:
    return Band.around(fpr, HALF, HALF, Fraction(1, 20))


@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
def test_a_bad_release_ships_as_often_as_is_said(rule: str) -> None:
    """The share of 20,000 counts at 2 and 5 times the target that pass, within 4 errors; not-refuted: 60 % at twice."""
    fpr, n = Fraction(1, 1000), 20_000
    rng = np.random.default_rng(len(rule))
    edges = band(fpr)
    for chance in ships(rule, edges, fpr, HALF, n):
        counts = rng.binomial(n, float(fpr * chance.multiple), 20_000).tolist()
        low, high = (
            {k for k in set(counts) if test(rule, k, n)} for test in (edges.admits_from_below, edges.admits_from_above)
        )
        share = np.mean([k in low and k in high for k in counts])
        assert share == pytest.approx(chance.passes, abs=4 * 0.5 / 20_000**0.5)
    if rule == "not-refuted":
        assert 0.5 < ships(rule, edges, fpr, HALF, n)[1].passes < 0.7
    assert all(chance.passes == 0 for chance in ships(rule, edges, fpr, HALF, n, min_n=n + 1))


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


def test_a_rate_below_the_highest_tie_is_extrapolated_however_many_rows_there_are() -> None:
    """Rows that share the highest score are named; with too few rows that is the reason, unless the tie is too."""
    few = floor.describe_support(Decimal("0.0001"), 5_000, 50, 0.01, 6_932, None)
    assert few.message == "5,000 fit rows are too few to show 0.01 %: the threshold is extrapolated"
    assert few.remedy == "fit on at least 6,932 benign rows"
    many = floor.describe_support(Decimal("0.0001"), 20_000, 50, 0.0025, 6_932, None)
    assert many.message == (
        "50 of 20,000 fit rows share the highest score, so that they show no rate below 0.25 %: "
        "at 0.01 % the threshold is extrapolated"
    )
    assert many.remedy == granularity.TOP_TIED
    assert floor.describe_support(Decimal("0.0001"), 5_000, 50, 0.01, 6_932, many).remedy == many.remedy
