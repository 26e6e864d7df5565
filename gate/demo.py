"""Simulated benign scores of a detector, the same on every machine; for `gate demo` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gate.contract import Floats

ROWS = 600_000
DRIFT = 0.3  # in logits: enough to double the false positives at the 0.1 % anchor


def simulate() -> Iterator[tuple[str, Floats]]:
    """Scores to fit on, scores held out, and held-out scores after benign traffic has drifted."""
    rng = np.random.default_rng(20_260_101)
    for name, shift in [("benign-fit", 0.0), ("benign-holdout", 0.0), ("benign-drifted", DRIFT)]:
        logits = rng.normal(-5.0 + shift, 1.4, ROWS)
        yield name, 1.0 / (1.0 + np.exp(-logits))
