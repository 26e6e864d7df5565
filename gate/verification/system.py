"""Verifies several detectors: each as if it were alone, then whether the verdict on all follows from them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gate.checks.baseline import Comparison
from gate.checks.freshness import expired as no_longer_fresh
from gate.checks.reuse import Uses
from gate.checks.system import asked_scores
from gate.errors import GateError
from gate.gating import Job
from gate.inspection import beside
from gate.inspection.answers import (
    Answer,
    RefusedError,
    answer,
    named,
    refuse_differences,
    require,
)
from gate.inspection.files import Directory, check_manifest, load
from gate.inspection.judgement import calibrator_of
from gate.inspection.release import Inspection, begin, check_reports, inspect_files
from gate.policy import Document
from gate.policy.detectors import FILES, MOST_DETECTORS
from gate.record import Record
from gate.record.schema import read_time
from gate.record.system import DETECTORS, SystemRecord, parse_system, require_detector
from gate.report.formats import rendered, written_files
from gate.rows.together import Several, read_together
from gate.storage import NO_BASELINE
from gate.systems import (
    Past,
    SystemRelease,
    SystemRows,
    gate_system,
    read_past,
    read_stored_system,
    thresholds_at,
)
from gate.systems.verdict import judge_again
from gate.verification.compared import UNBOUND_OF_SEVERAL, not_bound, refuse_another, refuse_other_words
from gate.verification.needed import needed_for, not_checked, refuse_unneeded, with_data
from gate.verification.release import check_samples, expired_waivers
from gate.verification.result import NOTHING_GIVEN, Data, Verification
from gate.words import plural


def verify_system(
    directory: str | Path, data: Data = NOTHING_GIVEN, *, pinned: Document | None = None, complete: bool = False
) -> Verification:
    """Whether a release of several detectors is what its own counts, the policy and the data give."""
    found, records = _inspect(Path(directory), pinned)
    record, document, whole = found.record, found.document, complete or bool(data.given)
    unbound, names = (
        ((), ()) if record is None else (UNBOUND_OF_SEVERAL, tuple(facts.name for facts in record.detectors))
    )
    if record is None or document is None or len(records) < len(record.detectors):
        return Verification(found.answers, record, unbound, whole=whole, detectors=names)
    needed = {name: what for own in records.values() for name, what in needed_for(own).items()}
    everything = _is_everything(record, document, needed, data)

    def ask() -> Iterator[Answer]:
        refuse_unneeded(needed, data)
        rows = _read(record, document, records, data, everything)
        yield from _check_samples(records, rows)
        if everything:
            yield answer("data", lambda: _check_data(record, document, records, rows, data))

    return Verification(
        with_data(found.answers, ask()),
        record,
        unbound,
        tuple(not_checked({} if everything else needed, data, pinned)),
        tuple(_expired(record, document, records, datetime.now(UTC).date())),
        whole,
        names,
    )


def _expired(record: SystemRecord, document: Document, records: Mapping[str, Record], today: date) -> Iterator[str]:
    """List what was good on the day of the judgement and no longer is: waivers of any detector, ages of each."""
    yield from expired_waivers(document.policy, record.day, today)
    for name, own in records.items():
        stale = no_longer_fresh(document.policy.detector(name), own.evidence, today)
        if stale is not None:
            yield f"{name}: {stale}"


# --- what takes no data -------------------------------------------------------------------------------------


def _inspect(directory: Path, pinned: Document | None) -> tuple[Inspection[SystemRecord], dict[str, Record]]:
    whole, inside = _load(directory)
    files = whole.files
    sealed = {path: content for path, content in files.items() if not _is_export(path)}
    begun = begin(
        answer("manifest", lambda: check_manifest(replace(whole, files=sealed))),
        lambda: parse_system(files.get("verdict.json", b""), directory / "verdict.json"),
        lambda record: _check_kind(files, inside, record),
        pinned,
    )
    record, document = begun.record, begun.document
    if record is None or document is None:
        return begun, {}
    answers = [*begun.answers]
    records: dict[str, Record] = {}
    for name, own in document.detectors.items():
        found = _inspect_one(inside.get(name, Directory({})), directory / DETECTORS / name, own)
        answers += _said(name, found)
        if found.record is not None and found.record.kind == record.kind:
            records[name] = found.record
        elif found.record is not None:
            said = f"kind is {found.record.kind!r} in its record, and {record.kind!r} in that of all"
            answers.append(Answer(f"{name}: kind", "does not hold", said))
    if len(records) == len(document.policy.detectors):
        answers.append(answer("system", lambda: _check_system(inside, record, document, records)))
        answers.append(answer("verdict", lambda: _check_verdict(inside, record, document, records)))
    answers.append(answer("reports", lambda: check_reports(files, record, rendered(record))))
    return replace(begun, answers=tuple(answers)), records


def _load(directory: Path) -> tuple[Directory, dict[str, Directory]]:
    """Read once every plain file of the directory and of the detectors' directories; return these also one by one."""
    found, inside = load(directory), {}
    place = directory / DETECTORS
    if DETECTORS not in found.unusual or place.is_symlink():
        return found, {}
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        raise GateError(f"{place}: must hold a directory for each detector, got {error.strerror}") from None
    files, unusual = {**found.files}, [name for name in found.unusual if name != DETECTORS]
    for name in names[:MOST_DETECTORS]:
        try:
            if (place / name).is_symlink() or not (place / name).is_dir():
                raise OSError(errno.ENOTDIR, "no directory")
            inside[name] = load(place / name)
        except (OSError, GateError):
            unusual.append(f"{DETECTORS}/{name}")
            continue
        files |= {f"{DETECTORS}/{name}/{file}": content for file, content in inside[name].files.items()}
        unusual += [f"{DETECTORS}/{name}/{file}" for file in inside[name].unusual]
    unusual += [f"{DETECTORS}/{name}" for name in names[MOST_DETECTORS:]]
    return Directory(files, tuple(unusual), found.holds_checks), inside


def _is_export(path: str) -> bool:
    """Whether `gate export` put the file beside a detector's calibrator; the detector's inspection checks it."""
    return path.startswith(f"{DETECTORS}/") and path.rpartition("/")[2] in beside.EXPORTS


def _inspect_one(found: Directory, place: Path, own: Document) -> Inspection[Record]:
    """Inspect one detector's directory as if it were alone, by the policy that the policy of all gives it."""
    try:
        return inspect_files(replace(found, unusual=()), place, own)  # the manifest of all names what is unusual
    except GateError as error:
        return Inspection((Answer("record", "does not hold", str(error)),))


def _said(name: str, found: Inspection[Record]) -> list[Answer]:
    """List what does not hold for a detector, line by line; one line if everything holds."""
    failing = [one for one in found.answers if one.state != "holds"]
    if failing or found.record is None:
        return [replace(one, name=f"{name}: {one.name}") for one in failing]
    return [
        Answer(name, "holds", f"{found.record.outcome}; {plural(len(found.answers), 'check')} of its own directory")
    ]


def _check_kind(files: Mapping[str, bytes], inside: Mapping[str, Directory], record: SystemRecord) -> str:
    """Check which files and directories lie at the top."""
    for facts in record.detectors:
        try:
            require_detector(facts.name, "detectors")
        except GateError as error:
            raise RefusedError(str(error)) from None
    names = {facts.name for facts in record.detectors}
    stray = sorted(inside.keys() - names)
    require(not stray, f"{named([f'{DETECTORS}/{name}' for name in stray])} of no detector that the record names")
    lacking = sorted(names - inside.keys())
    require(not lacking, f"{named([f'{DETECTORS}/{name}' for name in lacking])} missing")
    known = {"manifest.json", *written_files().values()}
    unknown = sorted(path for path in files if "/" not in path and path not in known)
    require(not unknown, f"{named(unknown)} foreign in a release of several detectors")
    what = "a check of" if record.kind == "check" else "the release"
    return f"{what} {record.release!r}, with {plural(len(names), 'detector')}"


def _check_system(
    inside: Mapping[str, Directory], record: SystemRecord, document: Document, records: Mapping[str, Record]
) -> str:
    """Check that the joint counts are at the calibrators' thresholds, and of the use that the detectors' counts are."""
    found = record.system
    if found is None:
        return "nothing was counted of all detectors together"
    scores = asked_scores(document.policy)
    for name, own in records.items():
        cuts = _thresholds(inside[name].files, own, scores)
        for counted in (found.benign, found.malicious) if found.malicious else (found.benign,):
            at = [member.threshold for one in counted for member in one.detectors if member.name == name]
            if cuts is not None:
                refuse_differences(f"system: {name}: thresholds", at, [*cuts])
    uses: list[Uses] = [use for own in records.values() if (use := own.of(Uses))]
    refuse_differences("system.use", found.use, max((use.holdout.number for use in uses), default=None))
    spent = max((use.malicious.number for use in uses if use.malicious), default=None)
    refuse_differences("system.malicious_use", found.malicious_use, spent)
    return f"counted at {plural(len(scores), 'score')}, at the thresholds of every detector"


def _thresholds(files: Mapping[str, bytes], own: Record, scores: Any) -> tuple[float | None, ...] | None:
    if own.kind == "check":  # its calibrator lies in the release that it checks
        known = {anchor.score: anchor.threshold for anchor in own.calibrator.anchors}
        return tuple(known[score] for score in scores) if all(score in known for score in scores) else None
    return thresholds_at(calibrator_of(files.get("calibrator.json", b"")), scores)


def _check_verdict(
    inside: Mapping[str, Directory], record: SystemRecord, document: Document, records: Mapping[str, Record]
) -> str:
    """Judge all again, from the detectors' own records and the joint counts."""
    digests = {name: hashlib.sha256(inside[name].files["verdict.json"]).hexdigest() for name in records}
    judge_again(record, document.policy, records, digests)
    return f"{record.outcome} follows from the detectors' own verdicts and the counts of all together"


# --- the data -----------------------------------------------------------------------------------------------


def _own_files(record: SystemRecord, document: Document, sample: str) -> dict[str, tuple[str, ...] | None]:
    """Find a sample's files as the policy names them for each detector; a check judges only files that it is given."""
    named = record.kind == "run" and sample in FILES
    return {entry.name: getattr(entry, sample) if named else None for entry in document.policy.detectors}


def _is_everything(record: SystemRecord, document: Document, needed: Mapping[str, str], data: Data) -> bool:
    """Whether some data is given, and everything else that is needed lies where the policy says."""
    own = {sample for sample in FILES if all(_own_files(record, document, sample).values())}
    return bool(data.given) and needed.keys() <= data.given | own


def _read(
    record: SystemRecord, document: Document, records: Mapping[str, Record], data: Data, everything: bool
) -> SystemRows:
    """Read and split, as the run did, what is given; with everything at hand, also the detectors' own files."""
    policies = {entry.name: document.policy.detector(entry.name) for entry in document.policy.detectors}

    def ask(sample: str) -> Several:
        given, own = getattr(data, sample), _own_files(record, document, sample)
        files = {name: own[name] or given for name in policies} if given or everything else {}
        return read_together(sample, files, policies)

    split = next((own.split for own in records.values() if own.split is not None), None)
    if split is None or not data.benign:
        return SystemRows.read(ask, None)
    return SystemRows.read(ask, (split.fraction, split.seed))


def _check_samples(records: Mapping[str, Record], rows: SystemRows) -> Iterator[Answer]:
    """Check that each sample is the recorded one for every detector, whatever else is given."""
    for sample, together in (("fit", rows.fit), ("holdout", rows.holdout), ("malicious", rows.malicious)):
        found = together.samples
        answers = {name: next(check_samples(records[name], {sample: scores})) for name, scores in found.items()}
        failing = [replace(one, name=f"{name}: {sample}") for name, one in answers.items() if one.state != "holds"]
        if failing:
            yield from failing
        elif found:
            detectors = plural(len(found), "detector")
            yield Answer(sample, "holds", f"the rows of {detectors} with the recorded digests")


def _check_data(
    record: SystemRecord, document: Document, records: Mapping[str, Record], rows: SystemRows, data: Data
) -> str:
    """Make the whole release again from its data, and compare every value that anything binds."""
    again = _repeat(record, document, records, rows, data)
    for name, own in records.items():
        refuse_another(name, own, again.releases[name].record, not_bound(own), record)
    excepted = [*UNBOUND_OF_SEVERAL, "detectors.*.verdict_sha256"]
    refuse_another("verdict.json", record, again.record, excepted, record)
    refuse_other_words(record)
    return "all records, made again from the data, are the same in every value that anything binds"


def _repeat(
    record: SystemRecord, document: Document, records: Mapping[str, Record], rows: SystemRows, data: Data
) -> SystemRelease:
    job = Job(document, record.release, read_time(record.created), record.day, data.ledger, counted=True)
    past = Past()
    if record.kind == "check":
        _, stored = read_stored_system(str(data.baseline))
        past = Past(stored=stored)
    elif any(own.of(Comparison) is not None for own in records.values()):
        scored = (data.baseline_holdout, data.baseline_malicious)
        past = read_past(data.baseline or NO_BASELINE, document.detectors, scored)
    return gate_system(job, rows, past)
