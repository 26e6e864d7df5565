"""Calibrators of drawn size, shape, domain, contract and settings, and the raw scores at which exports go wrong."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from gate.calibration.calibrator import Calibrator
from gate.calibration.export import Exported
from gate.calibration.fit import fit
from gate.contract import Anchor, Contract
from gate.policy import Calibration

DOMAINS = [(0.0, 1.0), (-30.0, 30.0), (0.0, 255.0), (-1e39, 1e39), (1.0, 1.0 + 30 * 2**-52), (-2.0, -1.0)]
NARROW = (0.0, 1e-39)  # the scaler does not widen it, because its range counts as none
FINITE = np.finfo(np.float64)


def drawn(
    seed: int, knots: int | None = None, rows: int | None = None, domains: list[tuple[float, float]] | None = None
) -> Calibrator:
    rng = np.random.default_rng(seed)
    possible = domains or [*DOMAINS, NARROW]
    low, high = domain = possible[int(rng.integers(len(possible)))]
    n = rows or int(10 ** rng.uniform(0.4, 4.3))
    scores = np.clip(low + (high - low) * rng.beta(0.5, 8, n).round(int(rng.choice([1, 2, 17]))), low, high)
    options = Calibration(
        knots=knots or int(10 ** rng.uniform(1.1, 4)),
        plotting_position=str(rng.choice(["filliben", "mean", "median", "conformal"])),
        ties=str(rng.choice(["conservative", "average"])),
        domain=domain,
    )
    anchors = (Anchor(Decimal("0.2"), Decimal("0.25")), Anchor(Decimal("1e-7"), Decimal("0.9")))
    return fit(scores, options, Contract(anchors) if rng.random() < 0.3 else Contract())


def exported(calibrator: Calibrator, release: str = "v1") -> Exported:
    return Exported(release, "pass", calibrator.sha256, calibrator.to_json())


def probes(calibrator: Calibrator, rng: np.random.Generator, count: int) -> np.ndarray:
    """Raw scores at every knot and threshold and their neighbours, zeros, denormals, the ends and beyond, and drawn."""
    low, high = calibrator.settings.domain
    scaler = calibrator.pipeline[0]
    tiny = np.array([0.0, FINITE.smallest_subnormal, 1e-310, FINITE.tiny])
    with np.errstate(over="ignore", under="ignore"):
        knots = (calibrator.knots[0] - scaler.min_) / scaler.scale_
        places = np.concatenate([knots, *(thresholds(calibrator), [low, high], tiny, -tiny)])
        near = [places, *(np.nextafter(places, end) for end in (-np.inf, np.inf))]
    beyond = np.array([low - (high - low), high + (high - low), FINITE.min, FINITE.max])
    spread = low + (high - low) * np.concatenate([rng.random(count // 2), rng.beta(0.5, 8, count - count // 2)])
    points = np.concatenate([*near, beyond, spread])
    return points[np.isfinite(points)]


def thresholds(calibrator: Calibrator) -> list[float]:
    return [threshold for threshold in calibrator.thresholds.values() if threshold is not None]


def predicted(calibrator: Calibrator, points: np.ndarray) -> np.ndarray:
    """The pipeline's scores, also for scores so far beyond the domain that rescaling overflows."""
    with np.errstate(over="ignore"):
        return calibrator.predict(points)


def reached(calibrator: Calibrator, points: np.ndarray) -> np.ndarray:
    """The highest anchor that each score reaches, else 0; one outside the domain counts as its nearer end."""
    calibrated = calibrator.predict(np.clip(points, *calibrator.settings.domain))
    anchors = np.array([0.0, *(float(anchor.score) for anchor in calibrator.contract.anchors)])
    return anchors[np.searchsorted(anchors, calibrated, side="right") - 1]


def bits(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).view(np.int64)
