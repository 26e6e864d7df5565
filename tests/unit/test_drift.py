"""Noise or drift: the ratio of two tails, and that nothing is called noise which would matter."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from benchmarks import simulations as statistics
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.checks import readings
from gate.statistics.clusters import Effective
from gate.statistics.drift import Ratio, Tail, ratio_of, read_ratio

HALF = Fraction(1, 2)


@pytest.mark.parametrize("rows", [(20_000, 50_000), (60_000, 140_000), (400_000, 400_000)])
def test_a_tail_half_as_heavy_again_is_never_called_noise(rows: tuple[int, int]) -> None:
    """Noise is said in at most 2.5 % of 400 runs, within three errors; "the two samples agree" was said in 80 %."""
    rng = np.random.default_rng(rows[0])
    said = statistics.read_tails(rng, 400, 1.5, rows)
    assert said["noise"] <= 0.025 + 3 * statistics.share_error(0.025, 400)
    sound = statistics.read_tails(rng, 400, 1.0, rows)
    assert sound["drift"] <= 0.01
    assert rows[0] < 400_000 or sound["noise"] > 0.9, "many rows tell that nothing matters"


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.floats(0.01, 1.0), st.sampled_from([Fraction(1), HALF]))
def test_what_is_called_noise_excludes_the_tolerance(k: int, fit_k: int, worth: float, below: Fraction) -> None:
    """This holds for any counts and groups; fewer effective rows only widen the interval."""
    n, fit_n = 100_000, 100_000
    plain = ratio_of(Tail.independent(k, n), Tail.independent(fit_k, fit_n), 0.05)
    grouped = ratio_of(
        Tail(k, n, Effective(n * worth, n * worth)), Tail(fit_k, fit_n, Effective(fit_n * worth, fit_n * worth)), 0.05
    )
    assert grouped.low <= plain.low * (1 + 1e-9)
    assert grouped.high >= plain.high * (1 - 1e-9)
    assert (plain.value is None) == (fit_k == 0)
    if read_ratio(grouped, HALF, below, 0.5, 0.001) == "noise":
        assert grouped.high < 1.5
        assert below == 1 or grouped.low > 0.5
    assert read_ratio(grouped, HALF, below, 0.0005, 0.001) == "drift"


@pytest.mark.parametrize(
    ("reading", "passed", "words"),
    [
        ("noise", False, "1.05 times as often as fit rows (0.9 to 1.2 times), which leaves out 0.5 or 1.5 times"),
        ("cannot tell", False, "these rows cannot tell noise from drift, for 0.5 or 1.5 times would look like this"),
        ("drift", False, "the two samples differ; drift, leakage, duplicates or other preprocessing"),
        ("drift", True, "the two samples differ; look before relying on it"),
    ],
)
def test_what_is_said_of_a_ratio(reading: str, passed: bool, words: str) -> None:
    said = readings.noise_or_drift(Ratio(1.05, 0.9, 1.2), reading, HALF, HALF, passed)  # type: ignore[arg-type]
    assert words in said.message
    assert (said.remedy is None) == (reading == "noise")
