"""Verification: whether a release directory is what its own evidence and policy give. It trusts no file in it.

Each check says that something holds, does not hold, or cannot be checked here; the last is no pass. The pickle is
never loaded. What the data give is for `repetition` to tell.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from gate import beside
from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import CHECKS, curve, parse_policy, ranges
from gate.checks.duplicates import Duplicates
from gate.checks.reuse import confidences
from gate.contract import Contract
from gate.differences import differences
from gate.errors import GateError, plural
from gate.policy import Document, Policy
from gate.record import Record, StoredRelease, libraries, parse_record, read_release
from gate.record.system import SystemRecord
from gate.report.formats import rendered
from gate.storage import CHECKS_DIRECTORY, manifest_of, read_regular
from gate.verdict import Verdict, judge, judged_by_day

MAX_FILES = 100
MAX_BYTES = 100_000_000  # of one file
MAX_ROWS = 10**10

State = Literal["holds", "does not hold", "cannot be checked"]
# Sentences may change from version to version of gate; what they say of the verdict may not.
SENTENCES = ("message", "remedy")


@dataclass(frozen=True)
class Answer:
    """One line of the answer."""

    name: str
    state: State
    message: str

    @property
    def line(self) -> str:
        return f"{self.state}: {self.name}: {self.message}"


class RefusedError(Exception):
    """Why something does not hold, or cannot be checked."""

    def __init__(self, message: str, state: State = "does not hold") -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True)
class Inspection:
    """What a directory shows by itself; the record and its policy where these could be read."""

    answers: tuple[Answer, ...]
    record: Record | None = None
    document: Document | None = None


def inspect(directory: str | Path, pinned: Document | None = None) -> Inspection:
    """All that takes no data, in order; `pinned` is the policy, with its columns, that it must be judged by."""
    place = Path(directory)
    return inspect_files(*load(place), directory, pinned, beside.holds_checks(place))


def inspect_files(
    files: Mapping[str, bytes],
    unusual: list[str],
    directory: str | Path,
    pinned: Document | None = None,
    holds_checks: bool = False,
) -> Inspection:
    """The same of files that were read already; `directory` names them, and may hold checks made later."""
    place = Path(directory)
    answers = [answer("manifest", lambda: check_manifest(files, unusual, holds_checks))]
    try:
        record = parse_record(files.get("verdict.json", b""), place / "verdict.json")
    except GateError as error:
        if answers[0].state != "does not hold":
            raise
        return Inspection((*answers, Answer("record", "does not hold", str(error))))
    reports = rendered(record)
    answers.append(answer("kind", lambda: _check_kind(files, record, {*reports}, holds_checks)))
    try:
        document = document_of(record, pinned)
    except RefusedError as objection:
        return Inspection((*answers, Answer("policy", objection.state, str(objection))), record)
    policy = document.policy
    which = f"is that of {pinned.path}" if pinned else "is the text"
    said = f"{policy.name!r} {which} with the recorded digest {document.sha256[:12]}"
    answers.append(Answer("policy", "holds", said))
    answers.append(answer("calibrator", lambda: _check_calibrator(files, record, policy)))
    answers.append(answer("verdict", lambda: _check_verdict(record, policy)))
    answers.append(answer("reports", lambda: check_reports(files, record, reports)))
    if record.kind == "run" and files.keys() & beside.EXPORTS:
        answers.append(answer("exports", lambda: _check_exports(files, record)))
    if record.kind == "run" and holds_checks:
        answers.append(answer("checks", lambda: _check_checks(place)))
    return Inspection(tuple(answers), record, document)


def read_judged(directory: str | Path) -> StoredRelease:
    """Read a release to rely on, and judge its evidence again first: a manifest can be sealed by anyone."""
    stored = read_release(directory)
    record = stored.record
    try:
        policy = document_of(record).policy
        if record.kind == "run":
            _check_thresholds(calibrator_of(stored.calibrator_json or b""), record, policy)
        _judge_again(record, policy)
    except RefusedError as objection:
        raise GateError(
            f"{directory}: must be a release whose verdict follows from its own counts and policy, got one where "
            f"{objection}; see `gate verify`, and restore the release"
        ) from None
    return stored


def state_of(answers: tuple[Answer, ...]) -> State:
    """One thing that does not hold is enough, and one that could not be checked is no pass."""
    states: tuple[State, ...] = ("does not hold", "cannot be checked")
    return next((state for state in states if any(one.state == state for one in answers)), "holds")


def answer(name: str, check: Callable[[], str]) -> Answer:
    try:
        return Answer(name, "holds", check())
    except RefusedError as objection:
        return Answer(name, objection.state, str(objection))


def other_installation(record: Record | SystemRecord) -> str:
    """How what wrote the record differs from this gate, in words: bytes are compared only between the same."""
    theirs = {"gate": record.tool.version, **record.tool.libraries}
    ours = {"gate": version("fpr-gate"), **libraries()}
    other = [name for name in ours if theirs.get(name) != ours[name]]
    return ", ".join(f"written with {name} {theirs.get(name, 'unknown')}, here {ours[name]}" for name in other)


def require(true: bool, message: str) -> None:
    if not true:
        raise RefusedError(message)


# --- the files ----------------------------------------------------------------------------------------------


def load(directory: Path) -> tuple[dict[str, bytes], list[str]]:
    """Every plain file of the directory, read once, and the names of what is none. Links are not followed."""
    files: dict[str, bytes] = {}
    unusual = []
    try:
        names = sorted(os.listdir(directory))
        for name in names[:MAX_FILES]:
            try:
                content = read_regular(directory / name, MAX_BYTES, follow=False)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO):
                    raise
                unusual.append(name)
                continue
            if len(content) > MAX_BYTES:
                unusual.append(name)
            else:
                files[name] = content
    except OSError as error:
        raise GateError(f"{directory}: must be a release directory, got {error.strerror or error}") from None
    if not {"manifest.json", "verdict.json"} & files.keys():
        raise GateError(
            f"{directory}: must be a release directory, got one without manifest.json and verdict.json; name one that "
            "`gate run` wrote"
        )
    return files, unusual + names[MAX_FILES:]


def check_manifest(files: Mapping[str, bytes], unusual: list[str], holds_checks: bool = False) -> str:
    exports = sorted(files.keys() & beside.EXPORTS)
    others = {name: content for name, content in files.items() if name not in ("manifest.json", *exports)}
    unusual = [name for name in unusual if not (name == CHECKS_DIRECTORY and holds_checks)]
    try:
        content = json.loads(files.get("manifest.json", b""))
        listed = {str(name): str(digest) for name, digest in content["sha256"].items()}
        version = content["schema_version"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RefusedError("manifest.json is missing or no manifest of a release") from None
    if isinstance(version, int) and version > 1:
        raise RefusedError(f"manifest.json has schema_version {version}; upgrade gate", "cannot be checked")
    listed_exports = sorted(listed.keys() & beside.EXPORTS)
    require(not listed_exports, f"{named(listed_exports)} listed, where an export never is")
    wrong = [name for name in listed if name in others and hashlib.sha256(others[name]).hexdigest() != listed[name]]
    require(not wrong, f"{named(wrong)} changed after the release was written")
    missing = sorted(listed.keys() - others.keys() - {*unusual})
    require(not missing, f"{named(missing)} listed but missing")
    added = sorted(others.keys() - listed.keys())
    require(not added, f"{named(added)} added after the release was written")
    require(not unusual, f"{named(unusual)} not a plain file of a release's size")
    require(files["manifest.json"] == manifest_of(others), "manifest.json is not written as gate writes it")
    later = [*exports, *([f"{CHECKS_DIRECTORY}/"] if holds_checks else [])]
    since = f"{listed_files(later)} unlisted, as what comes later is" if later else "none added"
    return f"{plural(len(others), 'file')} with the digests listed, none missing, {since}"


def _check_kind(files: Mapping[str, bytes], record: Record, reports: set[str], holds_checks: bool) -> str:
    """What a directory may hold follows from its kind: a check fits nothing, so it has no calibrator to deploy."""
    fitted = {"calibrator.joblib", "calibrator.json"} | beside.EXPORTS
    if record.kind == "check":
        stray = sorted(files.keys() & fitted)
        require(not holds_checks, f"{CHECKS_DIRECTORY}/ is foreign in a check, which is not checked again")
        require(not stray, f"{named(stray)} foreign in a check, which has no calibrator; do not use it")
    else:
        lacking = sorted(fitted - beside.EXPORTS - files.keys())
        require(not lacking, f"{named(lacking)} missing from a release")
    unknown = sorted(files.keys() - reports - fitted - {"manifest.json"})
    other = other_installation(record)
    if unknown and other:
        raise RefusedError(f"{named(unknown)} unknown here: {other}", "cannot be checked")
    require(not unknown, f"{named(unknown)} foreign in a {'check' if record.kind == 'check' else 'release'}")
    if record.kind == "check":
        return f"a check of {record.release!r}, not a release: nothing in it may be deployed"
    return f"the release {record.release!r}, with a calibrator of its own"


def named(names: list[str]) -> str:
    return f"{listed_files(names)} {'is' if len(names) == 1 else 'are'}"


def listed_files(names: list[str]) -> str:
    """File names, which may be long and many."""
    return ", ".join(name[:100] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def document_of(record: Record | SystemRecord, pinned: Document | None = None) -> Document:
    """The recorded policy, read again from its text; where one is pinned it must be that, with the same columns."""
    section = record.policy
    digest = hashlib.sha256(section.content.encode()).hexdigest()
    require(digest == section.sha256, f"its text has the digest {digest[:12]}, the record says {section.sha256[:12]}")
    try:
        document = parse_policy(section.content, section.path).with_columns(record.data.model_dump())
    except GateError as error:
        raise RefusedError(f"its text cannot be read: {str(error).splitlines()[0]}") from None
    policy = document.policy
    refuse_differences(
        "policy",
        section.model_dump(include={"name", "rule", "confidence", "interval"}),
        {
            "name": policy.name,
            "rule": policy.rule,
            "confidence": float(policy.confidence),
            "interval": policy.interval,
        },
    )
    if pinned is not None:
        same = pinned.sha256 == digest
        require(same, f"it was judged by a text with the digest {digest[:12]}, {pinned.path} has {pinned.sha256[:12]}")
    for wanted in (policy, *(() if pinned is None else (pinned.policy,))):
        refuse_differences("data", record.data.model_dump(), wanted.data.model_dump())
    return document


# --- the calibrator -----------------------------------------------------------------------------------------


def calibrator_of(content: bytes) -> Calibrator:
    try:
        return from_json(content.decode(errors="replace"))
    except GateError as error:
        raise RefusedError(str(error)) from None


def _check_calibrator(files: Mapping[str, bytes], record: Record, policy: Policy) -> str:
    facts, promised = record.calibrator, [(anchor.fpr, anchor.score) for anchor in policy.anchors.anchors]
    same = [(anchor.fpr, anchor.score) for anchor in facts.anchors] == promised
    require(same, "the record has another contract than the policy")
    if record.kind == "check":
        return f"a check fits none; it is that of {record.release!r}, which `gate verify` of that release checks"
    content, pickle = files.get("calibrator.json", b""), files.get("calibrator.joblib", b"")
    calibrator = calibrator_of(content)
    require(calibrator.to_json().encode() == content, "calibrator.json is not what its own knots give")
    require(calibrator.settings == policy.calibration, "calibrator.json has other settings than the policy")
    anchors = [(anchor.fpr, anchor.score) for anchor in calibrator.contract.anchors]
    require(anchors == promised, "calibrator.json has another contract than the policy")
    require(calibrator.facts.n == record.fit.n, "calibrator.json was fitted on another number of rows")
    refuse_differences(
        "calibrator",
        facts.model_dump(exclude={"anchors"}),
        {
            "sha256": hashlib.sha256(pickle).hexdigest(),
            "bytes": len(pickle),
            "knots": len(calibrator.knots[0]),
            "plotting_position": policy.calibration.plotting_position,
            "ties": policy.calibration.ties,
            "distinct": calibrator.facts.distinct,
            "lowest_label": calibrator.facts.lowest_label,
        },
    )
    _check_thresholds(calibrator, record, policy)
    if calibrator.artifact != pickle:
        other = other_installation(record)
        require(bool(other), "calibrator.joblib is not the pipeline of calibrator.json; do not load it")
        raise RefusedError(
            "calibrator.json agrees with the record and calibrator.joblib has the recorded digest, but whether it is "
            f"the same pipeline shows only where it was written: {other}",
            "cannot be checked",
        )
    return "calibrator.json agrees with policy and record, and calibrator.joblib is its pipeline, byte for byte"


def _check_thresholds(calibrator: Calibrator, record: Record, policy: Policy) -> None:
    """Every raw threshold of the record is the calibrator's."""
    refuse_differences("thresholds", [*record.calibrator.thresholds.values()], [*calibrator.thresholds.values()])
    if record.curve is not None:
        traced = replace(calibrator, contract=Contract(curve.grid(policy.anchors))).thresholds
        refuse_differences("curve", [point.tally.threshold for point in record.curve.points], [*traced.values()])
        counted = [(point.tally.threshold, point.tally.flagged) for point in record.curve.points]
        for objection in ranges.counted_otherwise(policy, record.evidence, calibrator, counted):
            raise RefusedError(objection)


# --- the verdict --------------------------------------------------------------------------------------------


def _check_verdict(record: Record, policy: Policy) -> str:
    _judge_again(record, policy)
    findings = plural(len(record.findings), "finding")
    judged = f"{record.outcome} follows from the recorded counts and policy; {findings} judged again"
    if record.tool.version != version("fpr-gate"):
        other = other_installation(record)
        raise RefusedError(f"{judged}, but the sentences may be other ones: {other}", "cannot be checked")
    return judged


def _judge_again(record: Record, policy: Policy) -> Verdict:
    """Refuse a record that says otherwise than the policy says of its evidence; another gate's sentences may differ."""
    evidence = record.evidence
    for objection in _contradictions(record, policy):
        raise RefusedError(objection)
    verdict = judge(policy, evidence)
    fields = ("outcome", "reason", "findings", "waivers", "not_asked", "warnings")
    recorded = record.model_dump(include={*fields, "confidence", "malicious_confidence"})
    again: dict[str, Any] = {name: plain(getattr(verdict, name)) for name in fields}
    again |= confidences(policy, evidence)
    if record.tool.version != version("fpr-gate"):
        for content in (recorded, again):
            content["findings"] = [{**found, **dict.fromkeys(SENTENCES)} for found in content["findings"]]
            content |= {"reason": None, "warnings": None}
    refuse_differences("verdict.json", recorded, again)
    return verdict


def plain(value: Any) -> Any:
    return (
        [part if isinstance(part, str) else part.model_dump() for part in value] if isinstance(value, tuple) else value
    )


def _contradictions(record: Record, policy: Policy) -> Iterator[str]:
    """What no samples could show, before any arithmetic is done with it."""
    evidence = record.evidence
    for name, facts in (("fit", record.fit), ("holdout", record.holdout), ("malicious", record.malicious)):
        if facts is None:
            continue
        if facts.n > MAX_ROWS:
            yield f"{name}.n must be at most {MAX_ROWS:,}, got {facts.n:,}"
        foreign = name == "fit" and record.kind == "check"  # the release's, which may have had other columns
        labelled = facts.labels is not None if foreign else record.data.label is not None
        yield from (f"{name}.{what}" for what in facts.contradictions(labelled))
        if not foreign and (facts.groups is not None) != (record.data.group is not None):
            yield f"{name}.groups must be counted where there is a column of them, only there"
    yield from _contradicting_sizes(record)
    if judged_by_day(policy) != (record.judged_on is not None):
        yield "judged_on must be recorded where the policy has waivers or a freshness, only there"
    if record.judged_on is not None and record.judged_on.isoformat() < record.created[:10]:
        yield f"judged_on must not be before the record was created, got {record.judged_on} and {record.created[:10]}"
    if record.kind == "run" and record.calibrated:
        yield "calibrated must be false in a release, which is fitted on raw scores"
    if record.kind == "check" and record.split is not None:
        yield "split must be null in a check, which has one sample"
    if record.curve is None:
        yield "curve must be recorded"
    else:
        yield from curve.contradictions(policy, evidence, record.curve)
    for check in CHECKS:
        yield from check.contradictions(policy, evidence)


def _contradicting_sizes(record: Record) -> Iterator[str]:
    """Samples whose rows are not those of their sources; rows that repeat an id count once."""
    found = record.of(Duplicates) or Duplicates()
    again, held_again, malicious_again = (
        0 if repeats is None else repeats.repeated for repeats in (found.fit, found.holdout, found.malicious)
    )
    fit, holdout = record.fit, record.holdout
    if record.split is not None:
        if not fit.benign == holdout.benign == fit.n + holdout.n + again + held_again + fit.unscored:
            yield "fit.n and holdout.n do not add up to the benign rows of their sources"
    else:
        # A check names the sources of the release that it checks, which may have split them or counted rows once.
        if fit.benign != fit.n + again + fit.unscored and not (record.kind == "check" and fit.benign > fit.n):
            yield "fit.n is not the benign rows of its sources"
        if holdout.benign != holdout.n + held_again + holdout.unscored:
            yield "holdout.n is not the benign rows of its sources"
    malicious = record.malicious
    repeated = malicious_again + (0 if malicious is None else malicious.unscored)
    if malicious is not None and malicious.rows - malicious.benign != malicious.n + repeated:
        yield "malicious.n is not the malicious rows of its sources"


# --- the reports --------------------------------------------------------------------------------------------


def check_reports(files: Mapping[str, bytes], record: Record | SystemRecord, expected: Mapping[str, bytes]) -> str:
    differs = sorted(name for name, content in expected.items() if files.get(name) != content)
    other = other_installation(record)
    if differs and other:
        raise RefusedError(f"{named(differs)} to be compared where it was written: {other}", "cannot be checked")
    require(not differs, f"{named(differs)} not what the record renders to")
    return f"{listed_files(sorted(expected))} are what the record renders to, byte for byte"


def _check_exports(files: Mapping[str, bytes], record: Record) -> str:
    same, others, unmade = beside.differing_exports(files, record)
    other = other_installation(record)
    if others and other:
        raise RefusedError(f"{named(others)} to be compared where it was written: {other}", "cannot be checked")
    require(not others, f"{named(others)} not what calibrator.json gives; do not serve it, and export it again")
    if unmade:
        raise RefusedError(
            f"{named(unmade)} to be compared where the package onnx is installed: pip install 'fpr-gate[onnx]'",
            "cannot be checked",
        )
    return f"{named(same)} what calibrator.json gives, byte for byte"


def _check_checks(place: Path) -> str:
    foreign = beside.foreign_in_checks(place)
    require(not foreign, f"{named(foreign)} foreign among the checks of a release")
    return beside.describe_checks(place)


# --- differences --------------------------------------------------------------------------------------------


def refuse_differences(where: str, recorded: Any, found: Any) -> None:
    first = next(differences(where, recorded, found), None)
    if first is not None:
        raise RefusedError(first)
