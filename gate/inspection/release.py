"""Inspection: whether a release directory is what its own evidence and policy give. It trusts no file in it.

What cannot be checked here is no pass. What the data give is for `verification` to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gate.errors import GateError
from gate.inspection import beside
from gate.inspection.answers import Answer, RefusedError, answer, listed_files, named, other_installation, require
from gate.inspection.files import check_kind, check_manifest, load
from gate.inspection.judgement import check_calibrator, check_verdict, document_of
from gate.policy import Document
from gate.record import Record, parse_record
from gate.record.system import SystemRecord
from gate.report.formats import rendered


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
    answers.append(answer("kind", lambda: check_kind(files, record, {*reports}, holds_checks)))
    try:
        document = document_of(record, pinned)
    except RefusedError as objection:
        return Inspection((*answers, Answer("policy", objection.state, str(objection))), record)
    policy = document.policy
    which = f"is that of {pinned.path}" if pinned else "is the text"
    said = f"{policy.name!r} {which} with the recorded digest {document.sha256[:12]}"
    answers.append(Answer("policy", "holds", said))
    answers.append(answer("calibrator", lambda: check_calibrator(files, record, policy)))
    answers.append(answer("verdict", lambda: check_verdict(record, policy)))
    answers.append(answer("reports", lambda: check_reports(files, record, reports)))
    if record.kind == "run" and files.keys() & beside.EXPORTS:
        answers.append(answer("exports", lambda: _check_exports(files, record)))
    if record.kind == "run" and holds_checks:
        answers.append(answer("checks", lambda: _check_checks(place)))
    return Inspection(tuple(answers), record, document)


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
