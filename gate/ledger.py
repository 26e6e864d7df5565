"""The ledger: which held-out rows have judged which releases, one JSON line each. It counts; it never judges."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from gate.errors import GateError
from gate.evidence import Use
from gate.policy import Document, Policy

MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class Entry:
    """One judgement. `rows` names the held-out rows, `question` what they were asked: calibrator and policy."""

    rows: str
    question: str
    release: str
    created: str
    outcome: str


def read(path: str) -> list[Entry]:
    """Every entry of the ledger; a file that does not exist yet has none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise GateError(f"{path}: must be a readable ledger, got {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise GateError(f"{path}: must be a ledger of at most {MAX_BYTES:,} bytes; start a new one")
    entries = []
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            content = json.loads(line)
            entry = Entry(**{key: content[key] for key in Entry.__dataclass_fields__})
            if not all(isinstance(value, str) for value in asdict(entry).values()):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise GateError(
                f"{path}:{number}: must be one judgement as JSON, got something else; restore the ledger"
            ) from None
        entries.append(entry)
    return entries


def require(document: Document, ledger: str | None) -> None:
    """A policy that pays for re-use must have its uses counted."""
    if document.policy.reuse and ledger is None:
        raise GateError(f"{document.path}: reuse: must have a ledger to count uses in, got none; give --ledger FILE")


def use_of(entries: list[Entry], rows: str, question: str) -> Use:
    """Which use of these rows a judgement is; asking them the same question again is not another one."""
    earlier: dict[str, str] = {}
    for entry in entries:
        if entry.rows == rows and entry.question != question:
            earlier.setdefault(entry.question, entry.release)
    return Use(len(earlier) + 1, tuple(earlier.values()))


def warnings(use: Use | None, rows_sha256: str | None, policy: Policy) -> tuple[str, ...]:
    """What the ledger cannot see, and what the policy does not pay for; nothing where no ledger is kept."""
    if use is None:
        return ()
    sentences = []
    if rows_sha256 is None:
        sentences.append(
            "the held-out rows have no ids (data.id), so they are recognised only while their scores stay the same"
        )
    if use.earlier and policy.reuse is None:
        sentences.append(
            f"the held-out rows judge for the {_ordinal(use.number)} time, and the policy has no `reuse:` to pay for it"
        )
    return tuple(sentences)


def append(path: str, entry: Entry) -> None:
    """Add one judgement in one write, which other processes' writes cannot split."""
    line = json.dumps(asdict(entry), ensure_ascii=True, sort_keys=True) + "\n"
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise GateError(f"{path}: must be a ledger that can be written, got {error.strerror}") from None


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
