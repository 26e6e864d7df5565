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
[('fpr@0.1', 'pass'), ('fpr@0.01', 'pass'), ('fpr@0.001', 'pass'), ('overlap', 'pass'), ('duplicates', 'pass')]
>>> release = gate.run(fit, holdout, release="v2.4.0")
>>> release.outcome
'pass'
>>> sorted(release.files)
['calibrator.joblib', 'calibrator.json', 'junit.xml', 'predicate.json', 'report.html', 'report.md', 'verdict.json']

`release.write("releases/v2.4.0")` writes them with their manifest, as `gate run` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate import ledger as ledgers
from gate import policy as policies
from gate.advice import warnings_of
from gate.calibration.calibrator import Calibrator
from gate.calibration.fit import fit_sorted
from gate.comparison import Baseline, compare, scored
from gate.curve import trace
from gate.detection import detect
from gate.errors import GateError
from gate.evidence import measure, measure_direction
from gate.policy import Document, Policy
from gate.release import Record, StoredRelease, as_baseline, compose, libraries, read_calibrator, stamp, write
from gate.report.formats import rendered
from gate.samples import refuse_both_kinds
from gate.scores import Scores, Split, from_object, reading_sample
from gate.verdict import Outcome, Verdict, judge
from gate.verification import read_judged

NO_BASELINE = "none"  # in the place of a baseline's directory: this is the first release


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
    document.require_columns()
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
    malicious: Any = None,
    baseline: str | Path | None = None,
) -> Release:
    """Fit, evaluate and judge: all that `gate run` does before it writes.

    `baseline` is the directory of the release that went before, or "none" where this is the first one.
    """
    document, created = _document(policy), created or datetime.now(UTC)
    columns, domain = document.policy.data, document.policy.calibration.domain
    samples = (from_object(sample, name, columns, domain) for sample, name in ((fit, "fit"), (holdout, "holdout")))
    return gate_release(
        document,
        release,
        created,
        *samples,
        judged_on=judging_day(created),
        ledger=ledger,
        malicious=None if malicious is None else from_object(malicious, "malicious", columns, domain, "malicious"),
        baseline=None if baseline in (None, NO_BASELINE) else as_baseline(read_judged(str(baseline))),
        first_release=baseline == NO_BASELINE,
    )


Reader = Callable[[str, tuple[str, ...], Policy], Scores]


def read_sample(name: str, paths: tuple[str, ...], policy: Policy) -> Scores:
    """One sample of a release; segments and times are asked of the benign rows to fit and to judge on, of no others."""
    with reading_sample(name, paths, policy) as scores:
        return scores()


def read_baseline(
    directory: str,
    document: Document,
    holdout: tuple[str, ...],
    malicious: tuple[str, ...],
    reader: Reader = read_sample,
) -> Baseline:
    """An earlier release, with its scores of the same rows where there are any: in its own domain, joined by id."""
    baseline = as_baseline(read_judged(directory))
    columns = document.policy.data
    if (holdout or malicious) and columns.id is None:
        raise GateError("--baseline-holdout, --baseline-malicious: must be joined by id; set data.id or --id-column")
    policy = baseline.policy.model_copy(update={"data": columns.model_copy(update={"group": None})})
    return baseline.with_scores(
        reader("baseline-holdout", holdout, policy) if holdout else None,
        reader("baseline-malicious", malicious, policy) if malicious else None,
    )


def judging_day(created: datetime) -> date:
    """The day by which waivers and ages are judged: `created` may lie in the past, which must not revive any."""
    return max(created.date(), datetime.now(UTC).date())


@dataclass(frozen=True)
class Release:
    """A release that was judged: its calibrator, its record and every file that belongs to it."""

    record: Record
    calibrator: Calibrator

    @property
    def outcome(self) -> Outcome:
        return self.record.outcome

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What the directory holds, by file name; its manifest is made in writing. A check has no calibrator."""
        fitted = {}
        if self.record.kind == "run":
            fitted = {
                "calibrator.joblib": self.calibrator.artifact,
                "calibrator.json": self.calibrator.to_json().encode(),
            }
        return fitted | rendered(self.record)

    def write(self, directory: str | Path, force: bool = False, replaces: str | None = None) -> None:
        """Write the release directory, whole or not at all.

        `replaces` is what `release.refuse_existing` found there before the work began.
        """
        write(directory, self.files, force, replaces)


def gate_release(
    document: Document,
    release: str,
    created: datetime,
    fit: Scores,
    holdout: Scores,
    *,
    judged_on: date | None = None,
    ledger: str | None = None,
    counted: bool = False,
    split: Split | None = None,
    malicious: Scores | None = None,
    baseline: Baseline | None = None,
    first_release: bool = False,
) -> Release:
    """The stages in order, from two samples to a judged release; only the ledger is written, where there is one.

    Waivers and ages are judged by the day `judged_on`; without it, by that of `created`. Of a judgement that the
    ledger has `counted` already it only tells which use it was.
    """
    document.require_columns()
    ledgers.require(document, ledger)
    calibrator = fit_sorted(fit.ordered, document.policy.calibration, document.policy.anchors)
    return _judged(
        document,
        release,
        created,
        judged_on,
        calibrator,
        fit,
        holdout,
        ledger,
        counted,
        split,
        malicious,
        baseline,
        first_release,
    )


def check_release(
    stored: StoredRelease,
    document: Document,
    created: datetime,
    holdout: Scores,
    *,
    judged_on: date | None = None,
    ledger: str | None = None,
    counted: bool = False,
    malicious: Scores | None = None,
) -> Release:
    """A calibrator fitted earlier, judged on new benign rows and held against its own release; nothing is fitted."""
    document.require_columns()
    ledgers.require(document, ledger)
    calibrator, baseline = read_calibrator(stored), as_baseline(stored)
    for key, shipped, wanted in (
        ("contract", calibrator.contract, document.policy.anchors),
        ("calibration.domain", calibrator.settings.domain, document.policy.calibration.domain),
    ):
        if shipped != wanted:
            raise GateError(
                f"{document.path}: {key}: must be the one that {stored.path} was fitted to, got another; "
                "check it with the policy it was released under"
            )
    name, fitted = stored.record.release, stored.record
    return _judged(
        document,
        name,
        created,
        judged_on,
        calibrator,
        fitted,
        holdout,
        ledger,
        counted,
        None,
        malicious,
        baseline,
    )


def _judged(
    document: Document,
    release: str,
    created: datetime,
    judged_on: date | None,
    calibrator: Calibrator,
    fit: Scores | Record,
    holdout: Scores,
    ledger: str | None,
    counted: bool,
    split: Split | None,
    malicious: Scores | None,
    baseline: Baseline | None,
    first_release: bool = False,
) -> Release:
    policy, judged_on = document.policy, judged_on or created.date()
    for sample in (fit, holdout):
        if malicious is not None and isinstance(sample, Scores):
            refuse_both_kinds(sample, malicious)
    detection = None if malicious is None else detect(policy, calibrator, malicious)
    comparison = None
    if baseline is not None:
        thresholds = calibrator.thresholds
        scores = None if malicious is None else scored(thresholds, malicious, policy)
        benign, itself = scored(thresholds, holdout, policy), isinstance(fit, Record)
        comparison = compare(baseline, policy, calibrator.contract, benign, scores, itself)
    use = None
    if ledger is not None:  # as late as can be: what is refused before has shown nobody anything
        artifact = fit.calibrator.sha256 if isinstance(fit, Record) else calibrator.sha256
        question = ledgers.question_of(artifact, document.sha256, policy.data.model_dump())
        rows = ledgers.rows_of(holdout)
        if counted:
            use = ledgers.recall(ledger, rows, question)
        else:
            use = ledgers.claim(ledger, rows, question, release, stamp(created))
    evidence = measure(policy, calibrator, None if isinstance(fit, Record) else fit, holdout, use, malicious)
    direction = None
    if detection is not None:
        direction = measure_direction(calibrator, holdout, detection, policy.alpha(use.number if use else 1))
    evidence = replace(
        evidence, detection=detection, direction=direction, comparison=comparison, first_release=first_release
    )
    verdict = judge(policy, evidence, judged_on)
    record = compose(
        release=release,
        created=created,
        judged_on=judged_on,
        version=version("fpr-gate"),
        libraries=libraries(),
        document=document,
        fit=fit,
        holdout=holdout,
        calibrator=calibrator,
        verdict=verdict,
        evidence=evidence,
        warnings=warnings_of(
            policy,
            calibrator.facts.n,
            evidence,
            verdict,
            holdout.sha256,
            holdout.rows_sha256,
            {
                "fit": () if isinstance(fit, Record) else fit.unread,
                "holdout": holdout.unread,
                "malicious": () if malicious is None else malicious.unread,
            },
        ),
        ledger=ledger,
        split=split,
        curve=trace(
            calibrator,
            holdout.ordered,
            policy.alpha(use.number if use else 1),
            None if malicious is None else malicious.ordered,
        ),
        malicious=malicious,
    )
    return Release(record, calibrator)


def _document(policy: str | Path | Document | None) -> Document:
    if isinstance(policy, Document):
        return policy
    return policies.load_default() if policy is None else policies.load(policy)
