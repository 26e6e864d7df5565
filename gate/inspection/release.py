"""Inspection: it checks whether a release directory is what its evidence and policy give, and trusts no file in it.

What cannot be checked here is no pass. `verification` checks what the data give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gate.errors import GateError
from gate.inspection import beside
from gate.inspection.answers import Answer, RefusedError, answer, listed_files, refuse_other_bytes
from gate.inspection.files import Directory, check_kind, check_manifest, load
from gate.inspection.judgement import check_calibrator, check_verdict, document_of
from gate.policy import Document
from gate.record import Record, parse_record
from gate.record.system import SystemRecord
from gate.report.formats import rendered, written_files

AnyRecord = TypeVar("AnyRecord", bound=Record | SystemRecord)


@dataclass(frozen=True)
class Inspection(Generic[AnyRecord]):
    """What a directory shows by itself; the record and its policy if these could be read."""

    answers: tuple[Answer, ...]
    record: AnyRecord | None = None
    document: Document | None = None


def begin(
    manifest: Answer, read: Callable[[], AnyRecord], check: Callable[[AnyRecord], str], pinned: Document | None
) -> Inspection[AnyRecord]:
    """Begin an inspection: manifest, the record by `read`, its kind by `check`, and the policy."""
    try:
        record = read()
    except GateError as error:
        if manifest.state != "does not hold":
            raise
        return Inspection((manifest, Answer("record", "does not hold", str(error))))
    answers = (manifest, answer("kind", lambda: check(record)))
    try:
        document = document_of(record, pinned)
    except RefusedError as objection:
        return Inspection((*answers, Answer("policy", objection.state, str(objection))), record)
    which = f"is that of {pinned.path}" if pinned else "is the text"
    said = f"{document.policy.name!r} {which} with the recorded digest {document.sha256[:12]}"
    return Inspection((*answers, Answer("policy", "holds", said)), record, document)


def inspect(directory: str | Path, pinned: Document | None = None) -> Inspection[Record]:
    """Check in order all that takes no data; `pinned` is the policy, with its keys set, that must have judged it."""
    return inspect_files(load(Path(directory)), Path(directory), pinned)


def inspect_files(found: Directory, place: Path, pinned: Document | None = None) -> Inspection[Record]:
    """Inspect files of that directory that were read already."""
    files = found.files
    begun = begin(
        answer("manifest", lambda: check_manifest(found)),
        lambda: parse_record(files.get("verdict.json", b""), place / "verdict.json"),
        lambda record: check_kind(found, record, {*written_files().values()}),
        pinned,
    )
    record, document = begun.record, begun.document
    if record is None or document is None:
        return begun
    answers, policy = [*begun.answers], document.policy
    answers.append(answer("calibrator", lambda: check_calibrator(files, record, policy)))
    answers.append(answer("verdict", lambda: check_verdict(record, policy)))
    answers.append(answer("reports", lambda: check_reports(files, record, rendered(record))))
    if record.kind == "run" and files.keys() & beside.EXPORTS:
        answers.append(answer("exports", lambda: beside.check_exports(files, record)))
    if record.kind == "run" and found.holds_checks:
        answers.append(answer("checks", lambda: beside.check_checks(place)))
    return Inspection(tuple(answers), record, document)


def check_reports(files: Mapping[str, bytes], record: Record | SystemRecord, expected: Mapping[str, bytes]) -> str:
    differs = sorted(name for name, content in expected.items() if files.get(name) != content)
    refuse_other_bytes(differs, record, "not what the record renders to")
    return f"{listed_files(sorted(expected))} are what the record renders to, byte for byte"
