"""Counts one judgement of several detectors as one use of their rows, by the question that all of them ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gate import ledger as ledgers
from gate.calibration.fit import fit_sorted
from gate.checks.reuse import Uses
from gate.gating import Job, count_use
from gate.policy import Document
from gate.record import read_calibrator
from gate.systems.detector import side_by_side
from gate.systems.past import Past
from gate.systems.rows import SystemRows


def state_question(
    job: Job, documents: Mapping[str, Document], batches: Sequence[Callable[[], SystemRows]], past: Past
) -> str | None:
    """State what all detectors ask of the rows, with every calibrator and every sample; None without a ledger.

    One judgement of a release is one use of its rows, however many detectors it has.
    """
    ledgers.require(job.document, job.ledger)
    if job.ledger is None:
        return None
    asked: dict[str, list[Any]] = {}
    for batch in batches:
        rows = batch()
        here_now = {name: own for name, own in documents.items() if name in rows.names}
        asked |= side_by_side({name: partial(_ask, own, name, rows, past) for name, own in here_now.items()}, rows)
    whole = json.dumps([job.document.sha256, job.document.policy.data.model_dump(), asked], sort_keys=True)
    return f"{ledgers.TOGETHER}{hashlib.sha256(whole.encode()).hexdigest()}"


def count_uses(job: Job, question: str | None, rows: SystemRows) -> dict[str, Uses]:
    """Count the judgement in the ledger, or say which use it was."""
    if question is None or job.ledger is None:
        return {}
    return {name: count_use(job, question, *rows.of(name)[1:]) for name in sorted(rows.names)}


def _ask(document: Document, name: str, rows: SystemRows, past: Past) -> list[Any]:
    """State what one detector asks of its rows: its calibrator, and the rows by their digests."""
    fit, holdout, malicious = rows.of(name)
    policy = document.policy
    if name in past.stored:
        calibrator = read_calibrator(past.stored[name])
    else:
        assert fit is not None
        calibrator = fit_sorted(fit.ordered, policy.calibration, policy.anchors)
    digests = [sample and [sample.rows_sha256, sample.sha256] for sample in (holdout, malicious)]
    return [document.sha256, calibrator.sha256, *digests]
