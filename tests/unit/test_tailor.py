"""The scale that scores are taken for holds all of them, and has room where it has no ends of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.starter.survey import Facts
from gate.starter.tailor import scale_of

RANGES = st.tuples(*[st.floats(-1e12, 1e12, allow_nan=False)] * 2).map(sorted).filter(lambda ends: ends[0] < ends[1])


@given(RANGES, st.sampled_from(["score", "logit", "risk_percent", "pct"]))
def test_the_domain_holds_every_score(ends: list[float], name: str) -> None:
    scale = scale_of(facts(*ends), name)
    assert scale.low <= ends[0] < ends[1] <= scale.high
    assert scale.low <= 0 <= scale.high


@pytest.mark.parametrize(
    ("low", "high", "name", "scale"),
    [
        (0.0, 0.97, "score", "scores from 0 to 1"),
        (0.0, 97.0, "score", "a percent scale"),
        (0.0, 0.4, "risk_pct", "a percent scale"),
        (-9.0, 4.0, "score", "logits"),
        (-9.0, -0.5, "score", "logits or log-likelihoods"),
        (-0.9, -0.1, "logit", "logits"),
        (-0.9, 0.1, "score", "scores from -1 to 1"),
        (0.0, 101.0, "score", "scores from 0 on, without a known top"),
        (-700.0, 3.0, "score", "scores without known ends"),
    ],
)
def test_scales_are_named(low: float, high: float, name: str, scale: str) -> None:
    assert scale_of(facts(low, high), name).name == scale


def facts(low: float, high: float) -> Facts:
    return Facts(low, high, 2, 2, 1, None, None)
