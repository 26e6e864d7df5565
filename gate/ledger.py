"""The ledger: which held-out rows have judged which releases, one JSON line each. It counts; it never judges."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate.checks.reuse import FURTHER, Use
from gate.errors import GateError
from gate.policy import Document
from gate.scores import Kind, Scores, text_buffer
from gate.sketch import Hashes, Sketch, hash_scores, hash_texts, share, sketch
from gate.storage import refuse_links, sync_directory

MAX_BYTES = 100_000_000  # some 4,500 judgements of rows with ids
RENAMED = 0.5  # of the scores shared under other ids: the same rows by other names
OWN = 0.9  # of the rows with a score that no other row has: then chance shares few
CUT = "a judgement whose line was cut off"
_TEXTS = ("rows", "question", "release", "created")


@dataclass(frozen=True)
class Rows:
    """Rows as the ledger compares them: a digest, hashes of their scores, and of their ids if there are any.

    distinct   different scores among them
    kind       benign or malicious: they answer different questions, so neither is a use of the other
    """

    digest: str
    ids: Hashes | None
    scores: Hashes
    distinct: int
    kind: Kind = "benign"


@dataclass(frozen=True)
class Entry:
    """One judgement. `rows` names the rows, `question` what they were asked: calibrator, policy and columns.

    Of a judgement whose line was cut off there is no sketch: its rows may have been any.
    """

    rows: str
    question: str
    release: str
    created: str
    ids: Sketch | None = None
    scores: Sketch | None = None
    distinct: int = 0
    kind: Kind = "benign"

    def is_same(self, rows: Rows, question: str) -> bool:
        """Whether it is this judgement: the same question to the same rows."""
        return (self.rows, self.question, self.kind) == (rows.digest, question, rows.kind)


# --- what is compared ---------------------------------------------------------------------------------------


def rows_of(holdout: Scores) -> Rows:
    """What the ledger keeps of a sample, but for the bounded size."""
    ids = None if holdout.ids is None else hash_texts(*text_buffer(holdout.ids))
    scores = hash_scores(np.concatenate([values for values, _ in holdout.ordered.ranges()]))
    digest, distinct = holdout.rows_sha256 or holdout.sha256, holdout.ordered.survey.distinct
    return Rows(digest, ids, scores, distinct, holdout.kind)


def question_of(calibrator_sha256: str, policy_sha256: str, columns: Mapping[str, Any]) -> str:
    """What was asked of the rows; columns named on the command line ask something else than those of the policy."""
    asked = json.dumps([policy_sha256, dict(columns)], sort_keys=True)
    return f"{calibrator_sha256} {hashlib.sha256(asked.encode()).hexdigest()}"


def use_of(entries: list[Entry], rows: Rows, question: str) -> Use:
    """Which use of these rows a judgement is: one more than the different ones before it that share rows with it.

    The same question to the same rows is the same use, whatever has come between.
    """
    earlier: dict[tuple[str, str], tuple[str, float | None]] = {}
    for entry in entries:
        if entry.is_same(rows, question):
            break
        if entry.scores is not None and entry.kind != rows.kind:
            continue
        found = _share(entry, rows)
        if found is None or found >= FURTHER:
            earlier.setdefault((entry.rows, entry.question), (entry.release, found))
    names, shares = zip(*earlier.values(), strict=True) if earlier else ((), ())
    return Use(number=len(earlier) + 1, earlier=names, shared=shares)


def _share(entry: Entry, rows: Rows) -> float | None:
    """The share of the smaller set of rows that is in both; None where that cannot be told, which counts as shared.

    Rows are told apart by ids where both sets have them, else by scores. Scores are no evidence of anything else than
    re-use where nearly every row has its own: then half of them under other ids are the same rows with new names.
    """
    if entry.rows == rows.digest:
        return 1.0
    if entry.scores is None:
        return None
    by_scores = share(entry.scores, rows.scores)
    if entry.ids is None or rows.ids is None:
        return by_scores
    by_ids = share(entry.ids, rows.ids)
    own = min(entry.distinct / entry.scores.n, rows.distinct / len(rows.scores)) >= OWN
    if own and by_ids is not None and by_scores is not None and by_scores >= RENAMED:
        return max(by_ids, by_scores)
    return by_ids


# --- the file -----------------------------------------------------------------------------------------------


def read(path: str) -> list[Entry]:
    """Every entry of the ledger; a file that does not exist yet has none."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise GateError(f"{path}: must be a readable ledger, got {error.strerror}") from None
    try:
        return _entries(path, _content(path, descriptor))[0]
    except OSError as error:
        raise GateError(f"{path}: must be a readable ledger, got {error.strerror}") from None
    finally:
        os.close(descriptor)


def claim(path: str, rows: Rows, question: str, release: str, created: str) -> Use:
    """Count a judgement before it is made, and tell which use of its rows it is.

    The ledger is locked from the reading to the appending: two runs at once are two uses. The line stands before the
    verdict is known, so that no verdict is seen uncounted; a run that is repeated asks the same and adds no line.
    """
    ids = None if rows.ids is None else sketch(rows.ids)
    entry = Entry(rows.digest, question, release, created, ids, sketch(rows.scores), rows.distinct, rows.kind)
    descriptor = -1
    try:
        refuse_links(path).parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        content = _content(path, descriptor)
        entries, end = _entries(path, content)
        if not any(known.is_same(rows, question) for known in entries):
            cut = entries[-1:] if end < len(content) else []
            for line in map(_line, [*cut, entry]):
                _put(descriptor, end, line)
                end += len(line)
            sync_directory(Path(os.path.abspath(path)).parent)
    except OSError as error:
        raise GateError(
            f"{path}: must be a ledger that can be written, got {error.strerror}; nothing was judged"
        ) from None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return use_of(entries, rows, question)


def recall(path: str, rows: Rows, question: str) -> Use:
    """Which use of its rows a judgement was that the ledger has counted; what came after it changes nothing."""
    entries = read(path)
    if not any(entry.is_same(rows, question) for entry in entries):
        raise GateError(f"{path}: must have a line for this judgement of these rows, got none; name the ledger it used")
    return use_of(entries, rows, question)


def _open(path: str, flags: int) -> int:
    """The ledger's own file, locked: the system takes the lock back from a process that dies."""
    target = refuse_links(path)
    descriptor = os.open(target, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise GateError(f"{path}: must be a plain file, got something else; name a file to keep the ledger in")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
        except OSError as error:
            raise GateError(
                f"{path}: must be on a file system that locks files, got {error.strerror}; keep the ledger elsewhere"
            ) from None
        if os.path.samestat(os.fstat(descriptor), os.stat(target)):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return _open(path, flags)  # another file has taken its place while the lock was waited for


def _content(path: str, descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise GateError(f"{path}: must be a ledger of at most {MAX_BYTES:,} bytes; start a new one")
    return content


def _entries(path: str, content: bytes) -> tuple[list[Entry], int]:
    """Every entry, and where the last whole line ends.

    What follows the last line break is the beginning of a line that was never finished: a power cut, a full disk. It
    counts as one use of any rows, and becomes a line that says so when the next one is written.
    """
    end = content.rfind(b"\n") + 1
    entries = []
    for number, line in enumerate(content[:end].splitlines(), start=1):
        try:
            entries.append(_parsed(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise GateError(
                f"{path}:{number}: must be one judgement as JSON, got something else; restore the ledger"
            ) from None
    if end < len(content):
        entries.append(Entry(hashlib.sha256(content[end:]).hexdigest(), "", CUT, ""))
    return entries, end


def _parsed(line: bytes) -> Entry:
    content = json.loads(line)
    texts = {key: content[key] for key in _TEXTS}
    ids, scores = (_unpacked(content[key]) for key in ("ids", "scores"))
    distinct, kind = content["distinct"], content["kind"]
    known = all(isinstance(text, str) for text in texts.values()) and type(distinct) is int
    known = known and kind in ("benign", "malicious")
    if not known or (scores is None) != (texts["release"] == CUT) or (ids is not None and scores is None):
        raise ValueError
    if scores is not None and not 0 < distinct <= scores.n:
        raise ValueError
    return Entry(**texts, ids=ids, scores=scores, distinct=distinct, kind=kind)


def _unpacked(content: dict[str, Any] | None) -> Sketch | None:
    if content is None:
        return None
    found = Sketch(content["n"], base64.b64decode(content["hashes"], validate=True))
    if type(found.n) is not int or not found.possible:
        raise ValueError
    return found


def _packed(known: Sketch | None) -> dict[str, Any] | None:
    return None if known is None else {"n": known.n, "hashes": base64.b64encode(known.packed).decode()}


def _line(entry: Entry) -> bytes:
    content = {key: getattr(entry, key) for key in (*_TEXTS, "distinct", "kind")}
    content |= {"ids": _packed(entry.ids), "scores": _packed(entry.scores)}
    return json.dumps(content, ensure_ascii=True, sort_keys=True).encode() + b"\n"


def _put(descriptor: int, end: int, line: bytes) -> None:
    """Write one line behind the last whole one; where the disk takes less than all of it, take back what it took.

    The beginning of a line that was cut off before is written over, and never shortened to nothing: it counts.
    """
    size, written = os.fstat(descriptor).st_size, 0
    try:
        while written < len(line):
            written += os.pwrite(descriptor, line[written:], end + written)
        os.ftruncate(descriptor, end + written)
        os.fsync(descriptor)
    except BaseException:
        if written < len(line):
            os.ftruncate(descriptor, size)
        raise


# --- words --------------------------------------------------------------------------------------------------


def require(document: Document, ledger: str | None) -> None:
    """A policy that pays for re-use must have its uses counted."""
    if document.policy.reuse and ledger is None:
        raise GateError(
            f"{document.path}: reuse: must have a ledger to count uses in, got none; give --ledger FILE, and to the "
            "GitHub action ledger-branch"
        )
