"""Fits and judges one detector of several as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from gate.calibration.calibrator import Calibrator
from gate.contract import Anchor, Contract
from gate.gating import Job, Release, check_release, gate_release
from gate.rows.reading import naming
from gate.stored import exact
from gate.systems.past import Past
from gate.systems.rows import SystemRows


def judge_one(job: Job, name: str, rows: SystemRows, past: Past) -> Release:
    fit, holdout, malicious = rows.of(name)
    with naming(name):
        if name in past.stored:
            return check_release(job, past.stored[name], holdout, malicious=malicious)
        assert fit is not None
        return gate_release(
            job,
            fit,
            holdout,
            split=rows.split,
            malicious=malicious,
            reference=past.references.get(name),
            first_release=name in past.first,
        )


def thresholds_at(calibrator: Calibrator, scores: Sequence[Decimal]) -> tuple[float | None, ...]:
    """The smallest raw scores whose calibrated scores reach the given ones; None where none does."""
    contract = calibrator.contract
    order = sorted({*scores})
    points = tuple(Anchor(exact(float(contract.fpr(float(score)))), score) for score in order)
    found = [*replace(calibrator, contract=Contract(points)).thresholds.values()]
    return tuple(found[order.index(score)] for score in scores)
