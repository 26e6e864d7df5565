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
>>> verdict.outcome, [str(finding.check) for finding in verdict.findings if finding.required]
('pass', ['fpr@10%', 'fpr@1%', 'fpr@0.1%', 'unread', 'overlap', 'duplicates'])
>>> release = gate.run(fit, holdout, release="v2.4.0")
>>> release.outcome
'pass'
>>> sorted(release.files)
['calibrator.joblib', 'calibrator.json', 'junit.xml', 'predicate.json', 'report.html', 'report.md', 'verdict.json']

`release.write("releases/v2.4.0")` writes them with their manifest, as `gate run` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate import ledger as ledgers
from gate.calibration.calibrator import Calibrator
from gate.calibration.fit import fit_ordered
from gate.checks import default_policy, load_policy, measure
from gate.checks.baseline import Reference, compare_releases
from gate.checks.change import compare
from gate.checks.check import AnchorFacts, CalibratorFacts, Case, Evidence, count
from gate.checks.curve import trace
from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.checks.fpr import Targets
from gate.checks.overlap import refuse_copies_of
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.inspection.judgement import read_judged
from gate.policy import Document, Policy
from gate.record import Record, StoredRelease, as_reference, compose, read_calibrator, recorded_policy, stamp
from gate.report.compared import ComparedReleases
from gate.report.formats import render, rendered
from gate.rows.describe import describe
from gate.rows.engine import engine_of_call
from gate.rows.reading import columns_for, from_object, kind_of, read_sample, require_unchanged
from gate.rows.sample import Sample
from gate.sources import SampleFacts, Split
from gate.statistics.tally import Tally
from gate.storage import NO_BASELINE, write
from gate.stored import Outcome
from gate.verdict import Verdict, judge


@engine_of_call()
def fit(benign: Any, *, policy: str | Path | Document | None = None) -> Calibrator:
    """The calibrator of one benign sample.

    benign   scores of benign rows, in any of the forms above; where the policy names a label, its benign rows count
    policy   a path or a loaded policy, for contract, settings and columns; the built-in one by default

    Returns a `Calibrator`; its `predict` calibrates scores, `thresholds` has the raw score of each anchor. Raises
    `gate.errors.GateError`, in one line, for scores or a policy that cannot be read or lie outside the domain.

    >>> import gate, numpy as np
    >>> gate.fit(np.linspace(0, 1, 1_001))
    Calibrator(fitted on 1,001 benign scores, 6 anchors, domain [0, 1])
    """
    document = _document(policy)
    sample = _sample(benign, "fit", document.policy)
    return fit_ordered(sample.ordered, document.policy.calibration, document.policy.anchors)


@engine_of_call()
def evaluate(
    calibrator: Calibrator, holdout: Any, *, fit: Any = None, policy: str | Path | Document | None = None
) -> Verdict:
    """Judge a calibrator on held-out benign scores, without writing anything.

    calibrator   what `gate.fit` gave, by a policy with the same contract and domain
    holdout      scores of other benign rows, in any of the forms above
    fit          the scores that it was fitted on; by default none, and what compares the two samples is left out
    policy       a path or a loaded policy, whose targets and checks judge; the built-in one by default

    Returns a `Verdict`: `outcome` ("pass", "fail" or "inconclusive"), `reason` and `findings`. Raises
    `gate.errors.GateError` for scores or a policy that cannot be read, or rows on which `gate.run` would not judge.

    >>> import gate, numpy as np
    >>> scores = np.linspace(0, 1, 4_000)
    >>> gate.evaluate(gate.fit(scores[::2]), scores[1::2]).outcome
    'inconclusive'
    """
    document = _document(policy)
    document.require_columns()
    _refuse_another_contract(calibrator, document, "the calibrator", "give the policy that it was fitted by")
    case = Case(
        document.policy,
        calibrator,
        _sample(holdout, "holdout", document.policy),
        None if fit is None else _sample(fit, "fit", document.policy),
    )
    refuse_copies_of(case)
    unseen = SampleFacts(sources=(), sha256="", n=calibrator.facts.n)
    fitted = unseen if case.fit is None else describe(case.fit)
    return judge(case.policy, gather(case, fitted, calibrator_facts(calibrator), datetime.now(UTC).date()))


@engine_of_call()
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

    fit         scores of benign rows to fit on, in any of the forms above
    holdout     scores of other benign rows, to judge on
    release     the name of the release
    policy      a path or a loaded policy; the built-in one by default
    ledger      the file that counts every look at the held-out rows; by default none is counted
    created     the time in the record; now by default
    malicious   scores of malicious rows; by default none, and detection is not judged
    baseline    the directory of the release that went before, "none" where this is the first; by default not compared

    Returns a `Release` with `outcome`, `record`, `calibrator` and `files`; `write` makes its directory. Raises
    `gate.errors.GateError` for scores, a policy or a baseline that cannot be judged: exit code 2 of the command.

    >>> import gate, numpy as np
    >>> scores = np.linspace(0, 1, 4_000)
    >>> gate.run(scores[::2], scores[1::2], release="v1").outcome
    'inconclusive'
    """
    document, created = _document(policy), (created or datetime.now(UTC)).astimezone(UTC)
    return gate_release(
        Job(document, release, created, judging_day(created), ledger),
        _sample(fit, "fit", document.policy),
        _sample(holdout, "holdout", document.policy),
        malicious=None if malicious is None else _sample(malicious, "malicious", document.policy),
        reference=None if baseline in (None, NO_BASELINE) else as_reference(read_judged(str(baseline))),
        first_release=baseline == NO_BASELINE,
    )


def _sample(data: Any, name: str, policy: Policy) -> Sample:
    return from_object(data, name, columns_for(name, policy), policy.calibration.domain, kind_of(name))


Reader = Callable[[str, tuple[str, ...], Policy], Sample]


def read_reference(
    directory: str,
    document: Document,
    holdout: tuple[str, ...],
    malicious: tuple[str, ...],
    reader: Reader = read_sample,
) -> Reference:
    """An earlier release, with its scores of the same rows if there are any, in its own domain and joined by id."""
    baseline = as_reference(read_judged(directory))
    columns = document.policy.data
    if (holdout or malicious) and columns.id is None:
        raise GateError("--baseline-holdout, --baseline-malicious: must be joined by id; set data.id")
    policy = baseline.policy.model_copy(update={"data": columns.model_copy(update={"group": None})})
    return baseline.with_scores(
        reader("baseline-holdout", holdout, policy) if holdout else None,
        reader("baseline-malicious", malicious, policy) if malicious else None,
    )


def judging_day(created: datetime) -> date:
    """The day that decides about waivers and ages; `created` may lie in the past, which must not revive a waiver."""
    return max(created.date(), datetime.now(UTC).date())


@dataclass(frozen=True)
class Release:
    """A release that was judged: its calibrator, its record and every file that belongs to it."""

    record: Record
    calibrator: Calibrator
    page: Callable[[], str] | None = None  # gives the HTML report, where another process draws it

    @property
    def outcome(self) -> Outcome:
        return self.record.outcome

    def __repr__(self) -> str:
        return f"<Release {self.record.release!r}: {self.outcome}, {len(self.record.findings)} findings>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the report's first screen in words."""
        from gate.report.short import render_html

        return render_html(self.record)

    @property
    def used_ledger(self) -> bool:
        return self.record.of(Uses) is not None

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What the directory holds, by file name; its manifest is made in writing. A check has no calibrator."""
        fitted = {}
        if self.record.kind == "run":
            fitted = {
                "calibrator.joblib": self.calibrator.artifact,
                "calibrator.json": self.calibrator.to_json().encode(),
            }
        return fitted | rendered(self.record, self.page)

    def render(self, name: str) -> str:
        """The verdict in one format: "text", "short", "md", "html", "junit", "predicate" or "json"."""
        return render(self.record, name)

    def write(self, directory: str | Path, force: bool = False, replaces: str | None = None) -> None:
        """Write the release directory, whole or not at all.

        directory   where; what is above it is made
        force       replace a release that is there, which is refused by default
        replaces    what was there before the work began, so that nothing else is replaced; by default not asked

        Raises `gate.errors.GateError` where something is there already, or nothing can be written.
        """
        write(directory, self.files, force, replaces)


@dataclass(frozen=True)
class Job:
    """One judgement to be made: by which policy, under what name, when.

    `day` decides about waivers and ages. If the ledger has `counted` the judgement already, it only says which use it
    was.
    """

    document: Document
    release: str
    created: datetime
    day: date
    ledger: str | None = None
    counted: bool = False
    uses: Uses | None = None  # set if the caller has counted them, with those of other detectors


def gate_release(
    job: Job,
    fit: Sample,
    holdout: Sample,
    *,
    split: Split | None = None,
    malicious: Sample | None = None,
    reference: Reference | None = None,
    first_release: bool = False,
) -> Release:
    """The stages in order, from two samples to a judged release; they write only the ledger, if there is one."""
    _require(job)
    policy = job.document.policy
    calibrator = fit_ordered(fit.ordered, policy.calibration, policy.anchors)
    case = Case(policy, calibrator, holdout, fit, malicious, reference, first_release)
    return _judged(job, case, describe(fit), calibrator_facts(calibrator), split)


def check_release(
    job: Job,
    stored: StoredRelease,
    holdout: Sample,
    *,
    malicious: Sample | None = None,
    calibrated: bool = False,
) -> Release:
    """Judge an earlier calibrator on new benign rows and compare it with its own release; nothing is fitted.

    If the rows' scores were `calibrated` already, as production serves them, the contract's own scores flag them.
    """
    _require(job)
    policy, calibrator = job.document.policy, read_calibrator(stored)
    _refuse_another_contract(calibrator, job.document, stored.path, "check it with the policy it was released under")
    case = Case(policy, calibrator, holdout, None, malicious, as_reference(stored), calibrated=calibrated)
    return _judged(job, case, stored.record.fit, stored.record.calibrator, None)


def _refuse_another_contract(calibrator: Calibrator, document: Document, fitted: str, instead: str) -> None:
    policy = document.policy
    for key, shipped, wanted in (
        ("contract", calibrator.contract, policy.anchors),
        ("calibration.domain", calibrator.settings.domain, policy.calibration.domain),
    ):
        if shipped != wanted:
            raise GateError(
                f"{document.path}: {key}: must be the one that {fitted} was fitted to, got another; {instead}"
            )


def _require(job: Job) -> None:
    refuse_several(job.document)
    job.document.require_columns()
    ledgers.require(job.document, job.ledger)


def _judged(job: Job, case: Case, fit: SampleFacts, fitted: CalibratorFacts, split: Split | None) -> Release:
    refuse_copies_of(case)
    looks = case.policy.interval == "sequential" and split is None
    if looks and not case.holdout.is_numbered:
        raise GateError(
            "interval: must be clopper-pearson for tables, got sequential, which needs files; export the rows"
        )
    # The ledger counts late: a refusal before this line has shown nothing.
    case = replace(case, uses=_uses(job, case, fitted.sha256, looks))
    evidence = gather(case, fit, fitted, job.day)
    curve = trace(case)
    for sample in (case.fit, case.holdout, case.malicious):
        require_unchanged(sample)
    record = compose(
        release=job.release,
        created=job.created,
        version=version("fpr-gate"),
        document=job.document,
        evidence=evidence,
        verdict=judge(case.policy, evidence),
        split=split,
        curve=curve,
    )
    return Release(record, case.calibrator)


def _uses(job: Job, case: Case, artifact: str, looks: bool) -> Uses | None:
    """The entry of this judgement for the ledger; with `looks`, rows may be added to its files."""
    if job.ledger is None or job.uses is not None:
        return job.uses
    asked = case.policy.data.model_dump() | ({"judged": "calibrated"} if case.calibrated else {})
    question = ledgers.question_of(artifact, job.document.sha256, asked)
    return count_use(job, question, case.holdout, case.malicious, looks)


def count_use(job: Job, question: str, holdout: Sample, malicious: Sample | None, looks: bool = False) -> Uses:
    """Count a judgement of these rows in the ledger, or find which use it was."""
    assert job.ledger is not None
    for sample in (holdout, malicious):
        if sample is not None and not (sample.is_numbered or sample.has_ids):
            raise GateError(f"{sample.files}: must have ids for --ledger, got none; set data.id")
    rows, others = ledgers.rows_of(holdout, looks), None if malicious is None else ledgers.rows_of(malicious, looks)
    if job.counted:
        use = ledgers.recall(job.ledger, rows, question)
    else:
        use = ledgers.claim(job.ledger, rows, question, job.release, stamp(job.created), others)
    of_malicious = None if others is None else ledgers.recall_malicious(job.ledger, others, question)
    return Uses(ledger=job.ledger, holdout=use, malicious=of_malicious)


def compare_stored(
    old: str,
    new: str,
    overrides: Sequence[str],
    files: Mapping[str, tuple[str, ...]],
    reader: Reader = read_sample,
) -> ComparedReleases:
    """The comparison of two release directories; with scores in `files`, on those rows."""
    stored = read_judged(new)
    record, calibrator = stored.record, read_calibrator(stored)
    document = recorded_policy(record.policy).override(overrides)
    policy = document.policy
    reference = read_reference(old, document, files["baseline-holdout"], files["baseline-malicious"], reader)
    samples = {name: reader(name, files[name], policy) for name in ("holdout", "malicious") if files[name]}
    counts: dict[str, Mapping[Decimal, Tally]] = {}
    for name, part in (("holdout", record.of(Targets)), ("malicious", record.of(Detection))):
        if name in samples:
            tallies = count(samples[name], [*calibrator.thresholds.values()], policy.alpha())
            counts[name] = dict(zip(calibrator.thresholds, tallies, strict=True))
        elif part is not None:
            counts[name] = part.tallies
    drops = None
    if reference.malicious is not None and "malicious" in counts:
        scores = (reference.malicious_scores, samples.get("malicious"))
        changes = compare(policy.anchors.anchors, reference.malicious, counts["malicious"], policy.alpha(), *scores)
        drops = Drops(anchors=tuple(changes))
    comparison = compare_releases(reference, policy, counts.get("holdout", {}), samples.get("holdout"))
    return ComparedReleases(record, comparison, drops)


def gather(case: Case, fit: SampleFacts, calibrator: CalibratorFacts, day: date) -> Evidence:
    """Everything that is measured of a case."""
    malicious = None if case.malicious is None else describe(case.malicious)
    held_out = describe(case.holdout)
    return Evidence(case.kind, day, calibrator, fit, held_out, malicious, measure(case), case.calibrated)


def calibrator_facts(calibrator: Calibrator) -> CalibratorFacts:
    """What the record says of a calibrator."""
    return CalibratorFacts(
        sha256=calibrator.sha256,
        bytes=len(calibrator.artifact),
        knots=len(calibrator.knots[0]),
        plotting_position=calibrator.settings.plotting_position,
        ties=calibrator.settings.ties,
        lowest_label=calibrator.facts.lowest_label,
        anchors=tuple(
            AnchorFacts(fpr=anchor.fpr, score=anchor.score, threshold=calibrator.thresholds[anchor.fpr])
            for anchor in calibrator.contract.anchors
        ),
    )


def _document(policy: str | Path | Document | None) -> Document:
    named = default_policy() if policy is None else policy if isinstance(policy, Document) else load_policy(policy)
    refuse_several(named)
    return named


def refuse_several(document: Document) -> None:
    """Refuse a policy of several detectors here, because one detector is judged by a policy for one."""
    if document.policy.detectors:
        names = [detector.name for detector in document.policy.detectors]
        raise GateError(
            f"{document.path}: must be the policy of one detector, got {len(names)}; name one of them as "
            f"{document.path}#{names[0]}, or call gate.run_system for all"
        )
