"""Releases with checks of single days, made by the gate's own stages, with known true rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from gate.calibration.calibrator import Calibrator
from gate.checks import parse_policy
from gate.gating import Job, Release, check_release, gate_release
from gate.policy import Document
from gate.record import StoredRelease, read_calibrator, read_release
from gate.rows.reading import columns_for, from_object
from gate.rows.sample import Sample

START = datetime(2026, 1, 1, 6, tzinfo=UTC)


def sample(values: np.ndarray, document: Document, calibrated: bool = False) -> Sample:
    policy = document.policy
    return from_object(values, "scores", columns_for("holdout", policy, calibrated), policy.calibration.domain)


def make_release(document: Document, place: Path, name: str, day: datetime, seed: int = 0) -> StoredRelease:
    """A release whose fit scores are evenly spread, so that its thresholds have the rates that they promise."""
    even, held_out = (np.arange(100_000) + 0.5) / 100_000, np.random.default_rng(seed).random(100_000)
    job = Job(document, name, day, day.date())
    gate_release(job, sample(even, document), sample(held_out, document)).write(place)
    return read_release(place)


def day_of(rng: np.random.Generator, rate: float, threshold: float, rows: int) -> np.ndarray:
    """The benign scores of one day; each reaches the threshold with this chance."""
    flagged = rng.random(rows) < rate
    return np.where(flagged, threshold + (1 - threshold) * rng.random(rows), threshold * rng.random(rows) * (1 - 1e-9))


def check_day(
    document: Document, stored: StoredRelease, values: np.ndarray, day: datetime, calibrated: bool = False
) -> Release:
    """One check of one day, of raw scores or of those that the release gives for them."""
    calibrator: Calibrator = read_calibrator(stored)
    scores = sample(calibrator.predict(values) if calibrated else values, document, calibrated)
    job = Job(document, stored.record.release, day, day.date())
    return check_release(job, stored, scores, calibrated=calibrated)


def days(count: int, start: datetime = START) -> list[datetime]:
    return [start + timedelta(days=1 + i) for i in range(count)]


def policy_text(rate: str, error: str, min_n: int) -> str:
    return (
        "version: 1\nname: watched\n"
        f"contract: [{{fpr: {rate}, score: 0.5}}]\n"
        f"targets: [{{fpr: {rate}, min_n: {min_n}, max_relative_error: {error}}}]\n"
        "checks: {overlap: {required: false}}\n"  # evenly spread scores are like no drawn ones
    )


def document_of(rate: str = "10%", error: str = "0.25", min_n: int = 500) -> Document:
    return parse_policy(policy_text(rate, error, min_n), "watched.yaml")
