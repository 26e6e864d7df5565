"""Verification: whether a release directory is what its own evidence and policy give. It trusts no file in it.

Each check says that something holds, does not hold, or cannot be checked here; the last is no pass. The pickle is
never loaded. What the data give is for `repetition` to tell.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import CHECKS, curve, parse_policy
from gate.checks.duplicates import Duplicates
from gate.checks.reuse import alphas_of
from gate.contract import Contract
from gate.errors import GateError, plural
from gate.policy import Document, Policy
from gate.record import Record, StoredRelease, libraries, parse_record, read_release
from gate.report.formats import rendered
from gate.storage import manifest_of, read_regular
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
    files, unusual = load(Path(directory))
    answers = [answer("manifest", lambda: _check_manifest(files, unusual))]
    try:
        record = parse_record(files.get("verdict.json", b""), Path(directory) / "verdict.json")
    except GateError as error:
        if answers[0].state != "does not hold":
            raise
        return Inspection((*answers, Answer("record", "does not hold", str(error))))
    reports = rendered(record)
    answers.append(answer("kind", lambda: _check_kind(files, record, {*reports})))
    try:
        document = _document(record, pinned)
    except RefusedError as objection:
        return Inspection((*answers, Answer("policy", objection.state, str(objection))), record)
    policy = document.policy
    which = f"is that of {pinned.path}" if pinned else "is the text"
    said = f"{policy.name!r} {which} with the recorded digest {document.sha256[:12]}"
    answers.append(Answer("policy", "holds", said))
    answers.append(answer("calibrator", lambda: _check_calibrator(files, record, policy)))
    answers.append(answer("verdict", lambda: _check_verdict(record, policy)))
    answers.append(answer("reports", lambda: _check_reports(files, record, reports)))
    return Inspection(tuple(answers), record, document)


def read_judged(directory: str | Path) -> StoredRelease:
    """Read a release to rely on, and judge its evidence again first: a manifest can be sealed by anyone."""
    stored = read_release(directory)
    record = stored.record
    try:
        policy = _document(record).policy
        if record.kind == "run":
            _check_thresholds(_calibrator(stored.calibrator_json or b""), record, policy)
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


def other_installation(record: Record) -> str:
    """How what wrote the record differs from this gate, in words: bytes are compared only between the same."""
    theirs = {"gate": record.tool.version, **record.tool.libraries}
    ours = {"gate": version("fpr-gate"), **libraries()}
    other = [name for name in ours if theirs.get(name) != ours[name]]
    return ", ".join(f"written with {name} {theirs.get(name, 'unknown')}, here {ours[name]}" for name in other)


def _require(true: bool, message: str) -> None:
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


def _check_manifest(files: Mapping[str, bytes], unusual: list[str]) -> str:
    others = {name: content for name, content in files.items() if name != "manifest.json"}
    try:
        content = json.loads(files.get("manifest.json", b""))
        listed = {str(name): str(digest) for name, digest in content["sha256"].items()}
        version = content["schema_version"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RefusedError("manifest.json is missing or no manifest of a release") from None
    if isinstance(version, int) and version > 1:
        raise RefusedError(f"manifest.json has schema_version {version}; upgrade gate", "cannot be checked")
    wrong = [name for name in listed if name in others and hashlib.sha256(others[name]).hexdigest() != listed[name]]
    _require(not wrong, f"{_named(wrong)} changed after the release was written")
    missing = sorted(listed.keys() - others.keys() - {*unusual})
    _require(not missing, f"{_named(missing)} listed but missing")
    added = sorted(others.keys() - listed.keys())
    _require(not added, f"{_named(added)} added after the release was written")
    _require(not unusual, f"{_named(unusual)} not a plain file of a release's size")
    _require(files["manifest.json"] == manifest_of(others), "manifest.json is not written as gate writes it")
    return f"{plural(len(others), 'file')} with the digests listed, none missing, none added"


def _check_kind(files: Mapping[str, bytes], record: Record, reports: set[str]) -> str:
    """What a directory may hold follows from its kind: a check fits nothing, so it has no calibrator to deploy."""
    fitted = {"calibrator.joblib", "calibrator.json"}
    if record.kind == "check":
        stray = sorted(files.keys() & fitted)
        _require(not stray, f"{_named(stray)} foreign in a check, which has no calibrator; do not use it")
    else:
        lacking = sorted(fitted - files.keys())
        _require(not lacking, f"{_named(lacking)} missing from a release")
    unknown = sorted(files.keys() - reports - fitted - {"manifest.json"})
    other = other_installation(record)
    if unknown and other:
        raise RefusedError(f"{_named(unknown)} unknown here: {other}", "cannot be checked")
    _require(not unknown, f"{_named(unknown)} foreign in a {'check' if record.kind == 'check' else 'release'}")
    if record.kind == "check":
        return f"a check of {record.release!r}, not a release: nothing in it may be deployed"
    return f"the release {record.release!r}, with a calibrator of its own"


def _named(names: list[str]) -> str:
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'}"


def _listed(names: list[str]) -> str:
    """File names, which may be long and many."""
    return ", ".join(name[:100] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _document(record: Record, pinned: Document | None = None) -> Document:
    """The recorded policy, read again from its text; where one is pinned it must be that, with the same columns."""
    section = record.policy
    digest = hashlib.sha256(section.content.encode()).hexdigest()
    _require(digest == section.sha256, f"its text has the digest {digest[:12]}, the record says {section.sha256[:12]}")
    try:
        document = parse_policy(section.content, section.path).with_columns(record.data.model_dump())
    except GateError as error:
        raise RefusedError(f"its text cannot be read: {str(error).splitlines()[0]}") from None
    policy = document.policy
    _refuse_differences(
        "policy",
        {"name": section.name, "rule": section.rule, "confidence": section.confidence},
        {"name": policy.name, "rule": policy.rule, "confidence": float(policy.confidence)},
    )
    if pinned is not None:
        same = pinned.sha256 == digest
        _require(same, f"it was judged by a text with the digest {digest[:12]}, {pinned.path} has {pinned.sha256[:12]}")
    for wanted in (policy, *(() if pinned is None else (pinned.policy,))):
        _refuse_differences("data", record.data.model_dump(), wanted.data.model_dump())
    return document


# --- the calibrator -----------------------------------------------------------------------------------------


def _calibrator(content: bytes) -> Calibrator:
    try:
        return from_json(content.decode(errors="replace"))
    except GateError as error:
        raise RefusedError(str(error)) from None


def _check_calibrator(files: Mapping[str, bytes], record: Record, policy: Policy) -> str:
    facts, promised = record.calibrator, [(anchor.fpr, anchor.score) for anchor in policy.anchors.anchors]
    same = [(anchor.fpr, anchor.score) for anchor in facts.anchors] == promised
    _require(same, "the record has another contract than the policy")
    if record.kind == "check":
        return f"a check fits none; it is that of {record.release!r}, which `gate verify` of that release checks"
    content, pickle = files.get("calibrator.json", b""), files.get("calibrator.joblib", b"")
    calibrator = _calibrator(content)
    _require(calibrator.to_json().encode() == content, "calibrator.json is not what its own knots give")
    _require(calibrator.settings == policy.calibration, "calibrator.json has other settings than the policy")
    anchors = [(anchor.fpr, anchor.score) for anchor in calibrator.contract.anchors]
    _require(anchors == promised, "calibrator.json has another contract than the policy")
    _require(calibrator.facts.n == record.fit.n, "calibrator.json was fitted on another number of rows")
    _refuse_differences(
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
        _require(bool(other), "calibrator.joblib is not the pipeline of calibrator.json; do not load it")
        raise RefusedError(
            "calibrator.json agrees with the record and calibrator.joblib has the recorded digest, but whether it is "
            f"the same pipeline shows only where it was written: {other}",
            "cannot be checked",
        )
    return "calibrator.json agrees with policy and record, and calibrator.joblib is its pipeline, byte for byte"


def _check_thresholds(calibrator: Calibrator, record: Record, policy: Policy) -> None:
    """Every raw threshold of the record is the calibrator's."""
    _refuse_differences("thresholds", [*record.calibrator.thresholds.values()], [*calibrator.thresholds.values()])
    if record.curve is not None:
        traced = replace(calibrator, contract=Contract(curve.grid(policy.anchors))).thresholds
        _refuse_differences("curve", [point.tally.threshold for point in record.curve.points], [*traced.values()])


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
    levels = ("confidence", "malicious_confidence")
    recorded = record.model_dump(include={*fields, *levels})
    again: dict[str, Any] = {name: _plain(getattr(verdict, name)) for name in fields}
    alphas = alphas_of(policy, evidence)
    again |= {"confidence": 1 - alphas.benign, "malicious_confidence": None}
    if evidence.malicious is not None:
        again["malicious_confidence"] = 1 - alphas.malicious
    if record.tool.version != version("fpr-gate"):
        for content in (recorded, again):
            content["findings"] = [{**found, **dict.fromkeys(SENTENCES)} for found in content["findings"]]
            content |= {"reason": None, "warnings": None}
    _refuse_differences("verdict.json", recorded, again)
    return verdict


def _plain(value: Any) -> Any:
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
        if not fit.benign == holdout.benign == fit.n + holdout.n + again + held_again:
            yield "fit.n and holdout.n do not add up to the benign rows of their sources"
    else:
        # A check names the sources of the release that it checks, which may have split them or counted rows once.
        if fit.benign != fit.n + again and not (record.kind == "check" and fit.benign > fit.n):
            yield "fit.n is not the benign rows of its sources"
        if holdout.benign != holdout.n + held_again:
            yield "holdout.n is not the benign rows of its sources"
    malicious = record.malicious
    if malicious is not None and malicious.rows - malicious.benign != malicious.n + malicious_again:
        yield "malicious.n is not the malicious rows of its sources"


# --- the reports --------------------------------------------------------------------------------------------


def _check_reports(files: Mapping[str, bytes], record: Record, expected: Mapping[str, bytes]) -> str:
    differs = sorted(name for name, content in expected.items() if files.get(name) != content)
    other = other_installation(record)
    if differs and other:
        raise RefusedError(f"{_named(differs)} to be compared where it was written: {other}", "cannot be checked")
    _require(not differs, f"{_named(differs)} not what the record renders to")
    return f"{_listed(sorted(expected))} are what the record renders to, byte for byte"


# --- differences --------------------------------------------------------------------------------------------


def _refuse_differences(where: str, recorded: Any, found: Any) -> None:
    first = next(differences(where, recorded, found), None)
    if first is not None:
        raise RefusedError(first)


def differences(where: str, recorded: Any, found: Any) -> Iterator[str]:
    """Where two plain values differ; numbers that were computed may differ in the last digits."""
    if isinstance(recorded, dict) and isinstance(found, dict) and recorded.keys() == found.keys():
        for key in recorded:
            yield from differences(f"{where}.{key}", recorded[key], found[key])
    elif isinstance(recorded, list | tuple) and isinstance(found, list | tuple) and len(recorded) == len(found):
        for i, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(f"{where}[{i}]", one, other)
    elif isinstance(recorded, float) and isinstance(found, float):
        if not math.isclose(recorded, found, rel_tol=1e-9):
            yield f"{where} is {recorded!r} in the record, but {found!r} follows"
    elif recorded != found:
        yield f"{where} is {_shown(recorded)} in the record, but {_shown(found)} follows"


def _shown(value: Any) -> str:
    match value:
        case dict() | list() | tuple():
            return f"a list of {len(value)}"
        case _:
            text = repr(value)
            return text if len(text) <= 80 else text[:77] + "..."
