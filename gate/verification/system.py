"""Verification of several detectors: each as if it were alone, then whether the verdict on all follows from them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate.calibration.calibrator import from_json
from gate.checks import system as systems_check
from gate.checks.baseline import Comparison
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.checks.freshness import expired as no_longer_fresh
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.gating import NO_BASELINE, Job
from gate.inspection import beside
from gate.inspection.answers import (
    Answer,
    RefusedError,
    answer,
    named,
    other_installation,
    refuse_differences,
    require,
    state_of,
)
from gate.inspection.files import check_manifest, load
from gate.inspection.judgement import document_of
from gate.inspection.release import Inspection, check_reports, inspect_files
from gate.policy import Document
from gate.policy.detectors import FILES
from gate.record import Record
from gate.record.schema import read_time
from gate.record.system import DETECTORS, SystemRecord, parse_system, require_name
from gate.report.system import files_of_system, rendered_system
from gate.scores.several import Panel, reading_panels
from gate.storage import CHECKS_DIRECTORY
from gate.systems import Past, SystemRows, gate_system, read_past, read_stored_system, split_panels, thresholds_at
from gate.systems.verdict import judge_again
from gate.verification.release import (
    OF_LIBRARIES,
    SENTENCES,
    check_samples,
    expired_waivers,
    needed_for,
    not_bound,
    refuse_other_words,
    without,
)
from gate.verification.result import NOTHING_GIVEN, Data, NotChecked, Verification
from gate.words import plural

MOST_DETECTORS = 1000
# Of the record of all: times, names that people chose, where things lay.
UNBOUND = ("created", "judged_on", "release", "policy.path", "tool.libraries.*")


def verify_system(
    directory: str | Path, data: Data = NOTHING_GIVEN, *, pinned: Document | None = None, complete: bool = False
) -> Verification:
    """Whether a release of several detectors is what its own counts, the policy and the data give."""
    answers, record, document, records = _inspect(Path(directory), pinned)
    whole = complete or bool(data.given)
    unbound, names = ((), ()) if record is None else (UNBOUND, tuple(facts.name for facts in record.detectors))
    if record is None or document is None or len(records) < len(record.detectors):
        return Verification(tuple(answers), record, unbound, whole=whole, detectors=names)
    needed = {name: what for own in records.values() for name, what in needed_for(own).items()}
    try:
        _refuse_unneeded(needed, data)
        everything = _is_everything(record, document, needed, data)
        rows = _read(record, document, records, data, everything)
        answers += _check_samples(records, rows)
        if everything:
            answers.append(answer("data", lambda: _check_data(record, document, records, rows, data)))
    except GateError:
        if state_of(tuple(answers)) != "does not hold":
            raise
    not_checked = tuple(_not_checked(record, needed, data, pinned, document))
    gone = tuple(_expired(record, document, records, datetime.now(UTC).date()))
    return Verification(tuple(answers), record, unbound, not_checked, gone, whole, names)


def _expired(record: SystemRecord, document: Document, records: Mapping[str, Record], today: date) -> Iterator[str]:
    """What was good on the day of the judgement and no longer is: waivers of any of them, ages of each."""
    yield from expired_waivers(document.policy, record.day, today)
    for name, own in records.items():
        stale = no_longer_fresh(document.policy.detector(name), own.evidence, today)
        if stale is not None:
            yield f"{name}: {stale}"


# --- what takes no data -------------------------------------------------------------------------------------


def _inspect(
    directory: Path, pinned: Document | None
) -> tuple[list[Answer], SystemRecord | None, Document | None, dict[str, Record]]:
    files, unusual = _load(directory)
    sealed = {path: content for path, content in files.items() if not _is_export(path)}
    answers = [answer("manifest", lambda: check_manifest(sealed, unusual, beside.holds_checks(directory)))]
    try:
        record = parse_system(files.get("verdict.json", b""), directory / "verdict.json")
    except GateError as error:
        if answers[0].state != "does not hold":
            raise
        return [*answers, Answer("record", "does not hold", str(error))], None, None, {}
    answers.append(answer("kind", lambda: _check_kind(files, record)))
    try:
        document = document_of(record, pinned)
    except RefusedError as objection:
        return [*answers, Answer("policy", objection.state, str(objection))], record, None, {}
    which = f"is that of {pinned.path}" if pinned else "is the text"
    said = f"{document.policy.name!r} {which} with the recorded digest {document.sha256[:12]}"
    answers.append(Answer("policy", "holds", said))
    records: dict[str, Record] = {}
    for name, own in document.detectors.items():
        found = _inspect_one(files, directory, name, own)
        answers += _said(name, found)
        if found.record is not None and found.record.kind == record.kind:
            records[name] = found.record
        elif found.record is not None:
            said = f"kind is {found.record.kind!r} in its record, and {record.kind!r} in that of all"
            answers.append(Answer(f"{name}: kind", "does not hold", said))
    if len(records) == len(document.policy.detectors):
        answers.append(answer("system", lambda: _check_system(files, record, document, records)))
        answers.append(answer("verdict", lambda: _check_verdict(files, record, document, records)))
    answers.append(answer("reports", lambda: _check_reports(files, record)))
    return answers, record, document, records


def _load(directory: Path) -> tuple[dict[str, bytes], list[str]]:
    """Every plain file of the directory and of each detector's, read once; links are not followed."""
    files, unusual = load(directory)
    place = directory / DETECTORS
    if DETECTORS not in unusual or place.is_symlink():
        return files, unusual
    unusual.remove(DETECTORS)
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        raise GateError(f"{place}: must hold a directory for each detector, got {error.strerror}") from None
    for name in names[:MOST_DETECTORS]:
        inside = place / name
        try:
            if inside.is_symlink() or not inside.is_dir():
                raise OSError(errno.ENOTDIR, "no directory")
            some, odd = load(inside)
        except (OSError, GateError):
            unusual.append(f"{DETECTORS}/{name}")
            continue
        odd = [file for file in odd if not (file == CHECKS_DIRECTORY and beside.holds_checks(inside))]
        files |= {f"{DETECTORS}/{name}/{file}": content for file, content in some.items()}
        unusual += [f"{DETECTORS}/{name}/{file}" for file in odd]
    return files, unusual + [f"{DETECTORS}/{name}" for name in names[MOST_DETECTORS:]]


def _is_export(path: str) -> bool:
    """What `gate export` has put beside a detector's calibrator since: its own directory is asked about it."""
    return path.startswith(f"{DETECTORS}/") and path.rpartition("/")[2] in beside.EXPORTS


def _inspect_one(files: Mapping[str, bytes], directory: Path, name: str, own: Document) -> Inspection:
    """One detector's directory, as if it were alone, by the policy that the policy of all gives it."""
    start = f"{DETECTORS}/{name}/"
    some = {path.removeprefix(start): content for path, content in files.items() if path.startswith(start)}
    try:
        place = directory / DETECTORS / name
        return inspect_files(some, [], place, own, beside.holds_checks(place))
    except GateError as error:
        return Inspection((Answer("record", "does not hold", str(error)),))


def _said(name: str, found: Inspection) -> list[Answer]:
    """What does not hold of a detector, line by line; one line where all does."""
    odd = [one for one in found.answers if one.state != "holds"]
    if odd or found.record is None:
        return [replace(one, name=f"{name}: {one.name}") for one in odd]
    return [
        Answer(name, "holds", f"{found.record.outcome}; {plural(len(found.answers), 'check')} of its own directory")
    ]


def _check_kind(files: Mapping[str, bytes], record: SystemRecord) -> str:
    """Which files there may be at the top, and which directories."""
    for facts in record.detectors:
        try:
            require_name(facts.name, "detectors")
        except GateError as error:
            raise RefusedError(str(error)) from None
    names = {facts.name for facts in record.detectors}
    own = {path.split("/")[1] for path in files if path.startswith(f"{DETECTORS}/")}
    stray = sorted(own - names)
    require(not stray, f"{named([f'{DETECTORS}/{name}' for name in stray])} of no detector that the record names")
    lacking = sorted(names - own)
    require(not lacking, f"{named([f'{DETECTORS}/{name}' for name in lacking])} missing")
    known = {"manifest.json", *files_of_system()}
    unknown = sorted(path for path in files if "/" not in path and path not in known)
    require(not unknown, f"{named(unknown)} foreign in a release of several detectors")
    what = "a check of" if record.kind == "check" else "the release"
    return f"{what} {record.release!r}, with {plural(len(names), 'detector')}"


def _check_system(
    files: Mapping[str, bytes], record: SystemRecord, document: Document, records: Mapping[str, Record]
) -> str:
    """The counts of all together: possible, at the calibrators' thresholds, and those of each where rows are alike."""
    found = record.system
    if found is None:
        return "nothing was counted of all detectors together"
    for objection in systems_check.contradictions(document.policy, found, [*records]):
        raise RefusedError(objection)
    scores = systems_check.asked_scores(document.policy)
    for name, own in records.items():
        cuts = _thresholds(files, name, own, scores)
        for listed, counted in ((found.benign, own.of(Targets)), (found.malicious, own.of(Detection))):
            for i, one in enumerate(listed):
                member = next(each for each in one.detectors if each.name == name)
                if cuts is not None:
                    refuse_differences(f"system at {one.score}: {name}: threshold", member.threshold, cuts[i])
                _compare_alone(one, member, own, counted)
    uses: list[Uses] = [use for own in records.values() if (use := own.of(Uses))]
    refuse_differences("system.use", found.use, max((use.holdout.number for use in uses), default=None))
    spent = max((use.malicious.number for use in uses if use.malicious), default=None)
    refuse_differences("system.malicious_use", found.malicious_use, spent)
    rows = plural(found.benign[0].tally.rows, "benign row")
    return f"{rows} counted at {plural(len(scores), 'score')}, at the thresholds of every detector"


def _thresholds(files: Mapping[str, bytes], name: str, own: Record, scores: Any) -> tuple[float | None, ...] | None:
    if own.kind == "check":  # whose calibrator lies in the release that it checks
        known = {anchor.score: anchor.threshold for anchor in own.calibrator.anchors}
        return tuple(known[score] for score in scores) if all(score in known for score in scores) else None
    return thresholds_at(from_json(files[f"{DETECTORS}/{name}/calibrator.json"].decode()), scores)


def _compare_alone(
    one: systems_check.Together, member: systems_check.Member, own: Record, counted: Targets | Detection | None
) -> None:
    """Where the system is counted on just the rows that the detector was, it flags as many of them."""
    anchors = {anchor.score: anchor.fpr for anchor in own.calibrator.anchors}
    tally = None if counted is None or one.score not in anchors else counted.at(anchors[one.score])
    if tally is not None and one.tally.rows - member.unscored == tally.rows:
        refuse_differences(f"system at {one.score}: {member.name}: flagged", member.flagged, tally.flagged)


def _check_verdict(
    files: Mapping[str, bytes], record: SystemRecord, document: Document, records: Mapping[str, Record]
) -> str:
    """The verdict on all, from the detectors' own records and the counts together."""
    digests = {name: hashlib.sha256(files[f"{DETECTORS}/{name}/verdict.json"]).hexdigest() for name in records}
    judge_again(record, document.policy, records, digests)
    return f"{record.outcome} follows from the detectors' own verdicts and the counts of all together"


def _check_reports(files: Mapping[str, bytes], record: SystemRecord) -> str:
    return check_reports(files, record, rendered_system(record))


# --- the data -----------------------------------------------------------------------------------------------


def _own_files(record: SystemRecord, document: Document, sample: str) -> dict[str, tuple[str, ...] | None]:
    """A sample's files as the policy names them for each detector; a check judges none but those that it is given."""
    named = record.kind == "run" and sample in FILES
    return {entry.name: getattr(entry, sample) if named else None for entry in document.policy.detectors}


def _is_everything(record: SystemRecord, document: Document, needed: Mapping[str, str], data: Data) -> bool:
    """Whether some data is given, and all else that is needed lies where the policy says."""
    own = {sample for sample in FILES if all(_own_files(record, document, sample).values())}
    return bool(data.given) and needed.keys() <= data.given | own


def _refuse_unneeded(needed: Mapping[str, str], data: Data) -> None:
    unneeded = sorted(data.given - needed.keys())
    if unneeded:
        name = f"--{unneeded[0].replace('_', '-')}"
        raise GateError(f"{name}: must be left out, for the record says that it was judged without; is it another one?")


def _not_checked(
    record: SystemRecord, needed: Mapping[str, str], data: Data, pinned: Document | None, document: Document
) -> Iterator[NotChecked]:
    if pinned is None:
        yield NotChecked("whether this policy, with these columns, is the one that you want", "--policy FILE")
    if _is_everything(record, document, needed, data):
        return
    lacking = {name: what for name, what in needed.items() if name not in data.given}
    for name, what in lacking.items():
        value = "DIR" if name == "baseline" else "FILE"
        yield NotChecked(what, f"--{name.replace('_', '-')} {value}")


def _read(
    record: SystemRecord, document: Document, records: Mapping[str, Record], data: Data, everything: bool
) -> SystemRows:
    """What is given, or with everything at hand the detectors' own files too, read and split as the run did it."""
    policies = {entry.name: document.policy.detector(entry.name) for entry in document.policy.detectors}
    samples: dict[str, list[Panel]] = {}
    for sample in ("fit", "holdout", "benign", "malicious"):
        given, own = getattr(data, sample), _own_files(record, document, sample)
        files = {name: own[name] or given for name in policies} if given or everything else {}
        with reading_panels(sample, files, policies) as read:
            samples[sample] = read()
    split = next((own.split for own in records.values() if own.split is not None), None)
    if split is None or not samples["benign"]:
        return SystemRows(samples["fit"], samples["holdout"], samples["malicious"])
    fit, holdout, how = split_panels(samples["benign"], split.fraction, split.seed)
    return SystemRows(fit, holdout, samples["malicious"], how)


def _check_samples(records: Mapping[str, Record], rows: SystemRows) -> Iterator[Answer]:
    """Whether each sample is the recorded one for every detector, whatever else is given."""
    for sample, panels in (("fit", rows.fit), ("holdout", rows.holdout), ("malicious", rows.malicious)):
        found = {name: scores for panel in panels for name, scores in panel.samples.items()}
        answers = {name: next(check_samples(records[name], {sample: scores})) for name, scores in found.items()}
        odd = [replace(one, name=f"{name}: {sample}") for name, one in answers.items() if one.state != "holds"]
        if odd:
            yield from odd
        elif found:
            detectors = plural(len(found), "detector")
            yield Answer(sample, "holds", f"the rows of {detectors} with the recorded digests")


def _check_data(
    record: SystemRecord, document: Document, records: Mapping[str, Record], rows: SystemRows, data: Data
) -> str:
    """The whole release again from its data, compared in every value that anything binds."""
    again = _repeat(record, document, records, rows, data)
    other = other_installation(record)
    same_words = record.tool.version == version("fpr-gate")
    for name, own in records.items():
        excepted = [*not_bound(own), *(OF_LIBRARIES if other else ()), *(() if same_words else SENTENCES)]
        pair = (own.model_dump(mode="json"), again.releases[name].record.model_dump(mode="json"))
        refuse_differences(name, *(without(content, excepted) for content in pair))
    excepted = [*UNBOUND, "detectors.*.verdict_sha256", *(() if same_words else SENTENCES)]
    excepted += ["detectors.*.calibrator_sha256"] if other else []
    pair = (record.model_dump(mode="json"), again.record.model_dump(mode="json"))
    refuse_differences("verdict.json", *(without(content, excepted) for content in pair))
    refuse_other_words(record)
    return "all records, made again from the data, are the same in every value that anything binds"


def _repeat(
    record: SystemRecord, document: Document, records: Mapping[str, Record], rows: SystemRows, data: Data
) -> Any:
    job = Job(document, record.release, read_time(record.created), record.day, data.ledger, counted=True)
    past = Past()
    if record.kind == "check":
        _, stored = read_stored_system(str(data.baseline))
        past = Past(stored=stored)
    elif any(own.of(Comparison) is not None for own in records.values()):
        scored = (data.baseline_holdout, data.baseline_malicious)
        past = read_past(data.baseline or NO_BASELINE, document.detectors, scored)
    return gate_system(job, [lambda: rows], past)
