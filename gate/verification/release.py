"""The repetition: it makes the whole record again from its data, by the same stages, and compares every value.

It names what the given data do not bind, and what no data could bind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gate.checks.freshness import expired as no_longer_fresh
from gate.errors import GateError
from gate.gating import Job, check_release, gate_release, read_reference
from gate.inspection.answers import Answer, answer
from gate.inspection.differences import differences
from gate.inspection.judgement import read_judged
from gate.inspection.release import inspect
from gate.policy import Document, Policy
from gate.record import Record
from gate.rows.reading import read_sample
from gate.rows.sample import Sample
from gate.rows.split import split
from gate.sources import Split
from gate.storage import NO_BASELINE
from gate.verification.compared import not_bound, refuse_another, refuse_other_words
from gate.verification.needed import needed_for, not_checked, option, refuse_unneeded, with_data
from gate.verification.result import NOTHING_GIVEN, Data, NotChecked, Verification
from gate.words import plural


def verify(
    directory: str | Path,
    data: Data = NOTHING_GIVEN,
    *,
    pinned: Document | None = None,
    complete: bool = False,
    today: date | None = None,
) -> Verification:
    """Whether a release is what its own counts, the policy and the data give; `pinned` is the policy that one wants.

    Once any data is given, or where all must be `complete`, what is left unbound is no pass.
    """
    found = inspect(directory, pinned)
    record, document, whole = found.record, found.document, complete or bool(data.given)
    unbound = () if record is None else not_bound(record)
    if record is None or document is None:
        return Verification(found.answers, record, unbound, whole=whole)
    return Verification(
        with_data(found.answers, _ask(record, document, data)),
        record,
        unbound,
        tuple(_not_checked(record, data, pinned)),
        tuple(expired(record, document.policy, today or datetime.now(UTC).date())),
        whole,
    )


# --- what is given --------------------------------------------------------------------------------------------


def _ask(record: Record, document: Document, data: Data) -> Iterator[Answer]:
    """Ask what the given data show."""
    needed = needed_for(record)
    _refuse_others(record, needed, data)
    samples = _read(record, document.policy, data)
    yield from check_samples(record, samples.scores)
    if needed.keys() <= data.given:
        yield answer("data", lambda: _check_data(record, document, samples, data))


def _refuse_others(record: Record, needed: Mapping[str, str], data: Data) -> None:
    """Refuse data that the record was not made of."""
    unneeded = data.given - needed.keys()
    if record.kind == "check" and {"fit", "benign"} & unneeded:
        raise GateError("--fit, --benign: must be left out for a check, which fits nothing; give --holdout")
    if record.split is not None and {"fit", "holdout"} & unneeded:
        raise GateError("--fit, --holdout: must be one sample, as this release split it; give it with --benign")
    if "benign" in unneeded:
        raise GateError("--benign: must be a sample that the release split, got one that did not; give --fit")
    refuse_unneeded(needed, data)
    declared = data.baseline == NO_BASELINE
    if data.baseline is not None and declared != record.is_first:
        said = "a first release" if record.is_first else "one that is held against another"
        raise GateError(f"--baseline: must fit the record, which is of {said}, got {data.baseline!r}")


def _not_checked(record: Record, data: Data, pinned: Document | None) -> Iterator[NotChecked]:
    needed = needed_for(record)
    lacking = [*not_checked(needed, data, pinned, NO_BASELINE if record.is_first else "DIR")]
    yield from lacking
    options = [one.option for one in lacking if one.option != "--policy FILE"]
    if options and data.given & needed.keys():
        yield NotChecked("every count, which only all of the data together show", ", ".join(options))


def expired_waivers(policy: Policy, judged: date, today: date) -> Iterator[str]:
    for waiver in policy.waivers:
        if judged <= waiver.expires < today:
            yield f"the waiver of {waiver.check} expired on {waiver.expires}, after the judgement of {judged}"


def expired(record: Record, policy: Policy, today: date) -> Iterator[str]:
    """List what was good on the day of the judgement and no longer is."""
    yield from expired_waivers(policy, record.day, today)
    stale = no_longer_fresh(policy, record.evidence, today)
    if stale is not None:
        yield stale


# --- the data -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Samples:
    """The given samples, by the names of the record's sections, and how one sample was divided."""

    scores: dict[str, Sample]
    split: Split | None = None


def _read(record: Record, policy: Policy, data: Data) -> _Samples:
    """Read the given samples as the run read them, from as many arguments."""
    named: dict[str, Any] = {"fit": record.fit, "holdout": record.holdout, "benign": record.fit}
    named["malicious"] = record.malicious
    samples = {}
    for name, section in named.items():
        paths = getattr(data, name)
        if paths:
            _refuse_other_arguments(name, paths, section.sources)
            samples[name] = read_sample(name, paths, policy, record.calibrated)
    if (reference := record.reference) is not None:
        for name, sources in (
            ("baseline_holdout", reference.sources),
            ("baseline_malicious", reference.malicious_sources),
        ):
            if getattr(data, name):
                _refuse_other_arguments(name, getattr(data, name), sources)
    if "benign" in samples and record.split is not None:
        if not 0 <= record.split.seed < 2**64:
            raise GateError(f"split.seed: must be a seed that gate takes, got {record.split.seed}")
        fit, holdout, divided = split(samples.pop("benign"), record.split.fraction, record.split.seed)
        return _Samples({**samples, "fit": fit, "holdout": holdout}, divided)
    return _Samples(samples)


def _refuse_other_arguments(name: str, paths: tuple[str, ...], sources: tuple[Any, ...]) -> None:
    if len(paths) != len(sources):
        raise GateError(
            f"{option(name)}: must be given as the run had it, by {plural(len(sources), 'argument')} in "
            f"the same order, got {len(paths)}"
        )


def check_samples(record: Record, samples: Mapping[str, Sample]) -> Iterator[Answer]:
    """Whether each sample is the recorded one, by its digest, whatever else is given."""
    for name, scores in samples.items():
        section: Any = getattr(record, name)
        recorded = {key: getattr(section, key) for key in ("n", "sha256")}
        found = {"n": len(scores), "sha256": scores.fingerprint}
        first = next(differences(name, recorded, found), None)
        rows = plural(len(scores), f"{scores.kind} row")
        if first is None:
            known = {file.sha256 for file in section.files.first} if section.files is not None else set()
            same = {piece.sha256 for piece in scores.pieces} <= known and None not in known
            files = "in the recorded files, by their SHA-256" if same else "in other files"
            yield Answer(name, "holds", f"{rows} with the recorded digest, {files}")
        else:
            yield Answer(name, "does not hold", first)


def _check_data(record: Record, document: Document, samples: _Samples, data: Data) -> str:
    """Make the whole record again, and compare every value that anything binds."""
    again = _repeat(record, document, samples, data)
    refuse_another("verdict.json", record, again, not_bound(record), record)
    refuse_other_words(record)
    return "the whole record, made again from the data, is the same in every value that anything binds"


def _repeat(record: Record, document: Document, samples: _Samples, data: Data) -> Record:
    """Run today the stages that made the record on the same data."""
    job = Job(document, record.release, record.time, record.day, data.ledger, counted=True)
    malicious = samples.scores.get("malicious")
    if record.kind == "check":
        stored = read_judged(str(data.baseline))
        job = replace(job, release=stored.record.release)
        scores, calibrated = samples.scores["holdout"], record.calibrated
        return check_release(job, stored, scores, malicious=malicious, calibrated=calibrated).record
    reference = None
    if record.reference is not None:
        reference = read_reference(str(data.baseline), document, data.baseline_holdout, data.baseline_malicious)
    return gate_release(
        job,
        samples.scores["fit"],
        samples.scores["holdout"],
        split=samples.split,
        malicious=malicious,
        reference=reference,
        first_release=record.is_first,
    ).record
