"""Counts one judgement of several detectors as one use of their rows, by the question that all of them ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gate import ledger as ledgers
from gate.calibration.fit import fit_ordered
from gate.checks.reuse import Uses
from gate.gating import Job, count_use
from gate.policy import Document
from gate.record import read_calibrator
from gate.rows.reading import naming
from gate.systems.past import Past
from gate.systems.rows import SystemRows


def state_question(job: Job, documents: Mapping[str, Document], rows: SystemRows, past: Past) -> str | None:
    """What all detectors ask of the rows, with every calibrator and every sample; None without a ledger.

    One judgement of a release is one use of its rows, however many detectors it has.
    """
    ledgers.require(job.document, job.ledger)
    if job.ledger is None:
        return None
    asked = {}
    for name, own in documents.items():
        asked[name] = _ask(own, name, rows, past)
        rows.forget_order(name)
    whole = json.dumps([job.document.sha256, job.document.policy.data.model_dump(), asked], sort_keys=True)
    return f"{ledgers.TOGETHER}{hashlib.sha256(whole.encode()).hexdigest()}"


def count_uses(job: Job, question: str | None, rows: SystemRows) -> dict[str, Uses]:
    """Count the judgement in the ledger, or say which use it was."""
    if question is None or job.ledger is None:
        return {}
    found = {}
    for name in sorted(rows.holdout.samples):
        found[name] = count_use(job, question, *rows.of(name)[1:])
        rows.forget_order(name)
    return found


def _ask(document: Document, name: str, rows: SystemRows, past: Past) -> list[Any]:
    """What one detector asks of its rows: its calibrator, and the rows by their digests."""
    fit, holdout, malicious = rows.of(name)
    policy = document.policy
    if name in past.stored:
        calibrator = read_calibrator(past.stored[name])
    else:
        assert fit is not None
        with naming(name):
            calibrator = fit_ordered(fit.ordered, policy.calibration, policy.anchors)
    digests = [None if sample is None else [sample.rows_sha256, sample.fingerprint] for sample in (holdout, malicious)]
    return [document.sha256, calibrator.sha256, *digests]
