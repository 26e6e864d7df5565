"""Tied scores by one model, that of the calibrator: what can be flagged near a target, and when more rows tell."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.fit import attainable, fit
from gate.contract import Anchor, Contract
from gate.policy import Calibration
from gate.statistics.atoms import is_unattainable
from gate.statistics.binomial import Band

RATES = (Decimal("0.1"), Decimal("0.01"), Decimal("0.001"))
CONTRACT = Contract(tuple(Anchor(rate, Decimal(f"0.{2 * i + 3}")) for i, rate in enumerate(RATES)))
BAND = {rate: Band.around(Fraction(rate), Fraction(1, 2), Fraction(1, 2), Fraction(1, 20)) for rate in RATES}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(20, 3000), st.sampled_from([0, 1, 2, 3, 12]))
def test_what_an_anchor_flags_is_what_it_can(seed: int, n: int, decimals: int) -> None:
    """Between the two counts no threshold falls, and the calibrator takes the lower one or, beyond all scores, none."""
    scores = np.round(np.random.default_rng(seed).beta(0.4, 3, n), decimals)
    calibrator = fit(scores, Calibration(knots=500), CONTRACT)
    for anchor, found in zip(CONTRACT.anchors, attainable(np.sort(scores), calibrator), strict=True):
        inclusive = {0, *(int(np.sum(scores >= score)) for score in np.unique(scores))}
        assert found.below in inclusive
        assert found.through in inclusive
        assert not any(found.below < count < found.through for count in inclusive)
        flagged = int(np.sum(calibrator.predict(scores) >= float(anchor.score)))
        assert flagged <= found.below <= Fraction(anchor.fpr) * (n + Fraction("0.365")) + Fraction("0.3175")


def test_scores_that_a_float_cannot_tell_apart_are_one() -> None:
    """Sigmoids of logits around -60 differ, but by less than the calibrator can tell; the logits themselves do not."""
    logits = np.random.default_rng(1).normal(-60, 3, 5000)
    merged = attainable(np.sort(1 / (1 + np.exp(-logits))), fit(1 / (1 + np.exp(-logits)), Calibration(), CONTRACT))
    assert all(found.merged and found.below < 10 and found.through > 4000 for found in merged)
    domain = Calibration(domain=(-100.0, 100.0))
    apart = attainable(np.sort(logits), fit(logits, domain, CONTRACT))
    assert [(found.below, found.through, found.merged) for found in apart] == [
        (500, 501, False),
        (50, 51, False),
        (5, 6, False),
    ]


@pytest.mark.parametrize(("share", "expected"), [(0.98, (0.0, 0.02)), (3.0, (0.99, 1.0))])
def test_noise_is_not_called_impossibility(share: float, expected: tuple[float, float]) -> None:
    """An atom of 0.98 times 1 % above which nothing lies can be flagged: of 400 fits hardly one calls it impossible.

    By the point estimate 36 % would. One of three times 1 % cannot be, and nearly all say so.
    """
    rate, n = Decimal("0.01"), 20_000
    rng = np.random.default_rng(round(100 * share))
    called = []
    for through in rng.binomial(n, share * float(rate), 400):
        allowed = Fraction(rate) * (n + Fraction("0.365")) + Fraction("0.3175")
        below, above = (0, int(through)) if through > allowed else (int(through), int(through) + 300)
        called.append(is_unattainable(below, above, n, Fraction(rate), BAND[rate]))
    assert expected[0] <= np.mean(called) <= expected[1]


def test_only_excess_makes_every_rate_attainable() -> None:
    band = Band.around(Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(1, 20))
    assert not is_unattainable(0, 5000, 10_000, Fraction(1, 100), band)
