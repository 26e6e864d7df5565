"""Simulates benign scores of a detector, the same on every machine; only `gate demo` may use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from gate.contract import Floats

ROWS = 600_000
DRIFT = 0.3  # in logits: enough to double the false positives at the 0.1 % anchor
SEED = 20_260_101  # the date of the first demo; no other was tried
RETRAINED_ROWS = 200_000  # twice what the built-in policy asks for at 0.1 %


def simulate() -> Iterator[tuple[str, Floats]]:
    """Simulate scores to fit on, scores held out, and held-out scores after benign traffic has drifted."""
    rng = np.random.default_rng(SEED)
    for name, shift in [("benign-fit", 0.0), ("benign-holdout", 0.0), ("benign-drifted", DRIFT)]:
        logits = rng.normal(-5.0 + shift, 1.4, ROWS)
        yield name, 1.0 / (1.0 + np.exp(-logits))


@dataclass(frozen=True)
class Retraining:
    """One release of a simulated detector: when it was made, scores to fit on and scores held out."""

    name: str
    created: datetime
    fit: Floats
    holdout: Floats


def retrain(releases: int, rows: int = RETRAINED_ROWS, seed: int = SEED) -> Iterator[Retraining]:
    """Simulate a detector that is retrained every month. Benign traffic stays the same; each sample of it is fresh.

    Every retraining moves the raw scores: their level (in logits), their sharpness and the highest score that the
    model can give, each drawn anew.
    """
    rng = np.random.default_rng(seed)
    for month in range(releases):
        moved = month > 0
        level, sharpness = moved * rng.normal(0.0, 0.7), np.exp(moved * rng.normal(0.0, 0.2))
        highest = 1.0 - moved * rng.uniform(0.0, 0.2)
        fit, holdout = (highest / (1.0 + np.exp(-(level + sharpness * rng.normal(-5.0, 1.4, rows)))) for _ in range(2))
        name = f"v{month + 1:0{len(str(releases))}}"  # names in the order of time
        yield Retraining(name, datetime(2026 + month // 12, month % 12 + 1, 1, tzinfo=UTC), fit, holdout)
