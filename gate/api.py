"""The job as Python calls, which the commands make too: from scores to a calibrator, a verdict, a release.

Scores are given as a NumPy array, an Arrow array or table, anything that speaks the Arrow PyCapsule or the DataFrame
interchange protocol (pandas, polars, DuckDB), or the name of a file, directory or pattern. A table's columns are found
by the names in the policy's `data:`.

>>> import numpy as np
>>> import gate
>>> rng = np.random.default_rng(0)
>>> fit, holdout = rng.beta(0.5, 8, 200_000), rng.beta(0.5, 8, 200_000)
>>> calibrator = gate.fit(fit)
>>> calibrator.predict([0.5]).round(3).tolist()
[0.495]
>>> verdict = gate.evaluate(calibrator, holdout, fit=fit)
>>> [(finding.check, finding.outcome) for finding in verdict.findings if finding.required]
[('fpr@0.1', 'pass'), ('fpr@0.01', 'pass'), ('fpr@0.001', 'pass'), ('overlap', 'pass')]
>>> release = gate.run(fit, holdout, release="v2.4.0")
>>> release.outcome
'pass'
>>> sorted(release.files)
['calibrator.joblib', 'calibrator.json', 'junit.xml', 'report.html', 'report.md', 'verdict.json']

`release.write("releases/v2.4.0")` writes them with their manifest, as `gate run` does.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate import ledger as ledgers
from gate import policy as policies
from gate.calibrator import Calibrator, fit_sorted
from gate.curve import trace
from gate.errors import plural
from gate.evidence import Evidence, measure
from gate.planning import warnings
from gate.policy import Document, Policy
from gate.release import Record, compose, write
from gate.scores import Scores, Split, from_object
from gate.verdict import Outcome, Verdict, judge


def fit(benign: Any, *, policy: str | Path | Document | None = None) -> Calibrator:
    """The calibrator of one benign sample; `policy` gives the contract, the settings and the columns."""
    document = _document(policy)
    sample = from_object(benign, "fit", document.policy.data, document.policy.calibration.domain)
    return fit_sorted(sample.ordered, document.policy.calibration, document.policy.anchors)


def evaluate(
    calibrator: Calibrator, holdout: Any, *, fit: Any = None, policy: str | Path | Document | None = None
) -> Verdict:
    """Judge a calibrator on held-out benign scores; with the sample it was fitted on, the two are compared too."""
    document = _document(policy)
    columns, domain = document.policy.data, document.policy.calibration.domain
    fitted = None if fit is None else from_object(fit, "fit", columns, domain)
    held_out = from_object(holdout, "holdout", columns, domain)
    return judge(document.policy, measure(document.policy, calibrator, fitted, held_out), datetime.now(UTC).date())


def run(
    fit: Any,
    holdout: Any,
    *,
    release: str,
    policy: str | Path | Document | None = None,
    ledger: str | None = None,
    created: datetime | None = None,
) -> Release:
    """Fit, evaluate and judge: all that `gate run` does before it writes."""
    document = _document(policy)
    columns, domain = document.policy.data, document.policy.calibration.domain
    samples = (from_object(sample, name, columns, domain) for sample, name in ((fit, "fit"), (holdout, "holdout")))
    return gate_release(document, release, created or datetime.now(UTC), *samples, ledger=ledger)


@dataclass(frozen=True)
class Release:
    """A release that was judged: its calibrator, its record and every file that belongs to it."""

    record: Record
    calibrator: Calibrator
    ledger: str | None = None
    ledger_entry: ledgers.Entry | None = None

    @property
    def outcome(self) -> Outcome:
        return self.record.outcome

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What the release directory holds, by file name; its manifest is made in writing."""
        return {
            "calibrator.joblib": self.calibrator.artifact,
            "calibrator.json": self.calibrator.to_json().encode(),
            **rendered(self.record),
        }

    def write(self, directory: str | Path, force: bool = False, replaces: str | None = None) -> None:
        """Write the release directory, whole or not at all, and count the use of its held-out rows first.

        `replaces` is what `release.refuse_existing` found there before the work began.
        """
        files = self.files
        if self.ledger is not None and self.ledger_entry is not None:
            ledgers.append(self.ledger, self.ledger_entry)
        write(directory, files, force, replaces)


def rendered(record: Record) -> dict[str, bytes]:
    """The files of a release that follow from its record alone."""
    from gate.report import html, junit, markdown  # only here: a dry run need not wait for matplotlib

    return {
        "verdict.json": record.to_json().encode(),
        "report.html": html.render(record).encode(),
        "report.md": markdown.render(record).encode(),
        "junit.xml": junit.render(record).encode(),
    }


def warnings_of(
    policy: Policy, fit_n: int, evidence: Evidence, rows_sha256: str | None, duplicates: int | None
) -> tuple[str, ...]:
    """What a reader should know and no finding says."""
    verbs = ("repeats", "counts") if duplicates == 1 else ("repeat", "count")
    repeated = f"{plural(duplicates or 0, 'held-out row')} {verbs[0]} the id of another, and {verbs[1]} again"
    return (
        *warnings(policy, fit_n, evidence.effective_n),
        *ledgers.warnings(evidence.use, rows_sha256, policy),
        *([repeated] if duplicates else []),
    )


def libraries() -> dict[str, str]:
    """The versions on which the bytes of a release depend, besides gate's own."""
    names = ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def gate_release(
    document: Document,
    release: str,
    created: datetime,
    fit: Scores,
    holdout: Scores,
    *,
    ledger: str | None = None,
    split: Split | None = None,
) -> Release:
    """The stages in order, from two samples to a judged release; nothing is written."""
    policy = document.policy
    document.require_columns()
    ledgers.require(document, ledger)
    calibrator = fit_sorted(fit.ordered, policy.calibration, policy.anchors)
    rows, question = holdout.rows_sha256 or holdout.sha256, f"{calibrator.sha256} {document.sha256}"
    use = ledgers.use_of(ledgers.read(ledger), rows, question) if ledger else None
    evidence = measure(policy, calibrator, fit, holdout, use)
    verdict = judge(policy, evidence, created.date())
    record = compose(
        release=release,
        created=created,
        version=version("fpr-gate"),
        libraries=libraries(),
        document=document,
        fit=fit,
        holdout=holdout,
        calibrator=calibrator,
        verdict=verdict,
        evidence=evidence,
        warnings=warnings_of(policy, len(fit), evidence, holdout.rows_sha256, holdout.duplicates),
        ledger=ledger,
        split=split,
        curve=trace(calibrator, holdout.ordered, policy.alpha(use.number if use else 1)),
    )
    entry = ledgers.Entry(rows, question, release, record.created, record.outcome)
    return Release(record, calibrator, ledger, entry)


def _document(policy: str | Path | Document | None) -> Document:
    if isinstance(policy, Document):
        return policy
    return policies.load_default() if policy is None else policies.load(policy)
