"""The ledger: which held-out and malicious rows have judged which releases, one JSON line each. It counts only."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gate.checks.reuse import FURTHER, Use
from gate.errors import GateError
from gate.policy import Document
from gate.rows.sample import Sample
from gate.rows.sketch import Named, Sketch, share
from gate.storage import refuse_links, sync_directory

MAX_BYTES = 100_000_000  # some 4,500 judgements of rows with ids
RENAMED = 0.5  # of the scores; if so many are shared under other ids, the rows are the same by other names
OWN = 0.9  # of the rows; if so many have a score that no other row has, chance shares few scores
TOGETHER = "together "  # the question of several detectors of one release begins so; each asks it of its own scores
CUT = "a judgement whose line was cut off"
Scored = tuple[str, Sketch | None]  # rows and their scores; with other scores the same rows give a new answer
_TEXTS = ("question", "release", "created")


@dataclass(frozen=True)
class Rows:
    """Rows as the ledger compares them: a digest, what names them by their scores, and by their ids if there are any.

    n       how many rows
    files      digests of the files that held them, if a later look may add rows to these; else none
    """

    digest: str
    ids: Named | None
    scores: Named
    n: int
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """Rows that have judged, as the ledger stores them: the digest, and sketches of their ids and scores.

    A judgement whose line was cut off has no sketch, because its rows are unknown.
    """

    rows: str
    ids: Sketch | None = None
    scores: Sketch | None = None
    n: int = 0
    files: tuple[str, ...] = ()

    @property
    def scored(self) -> Scored:
        return self.rows, self.scores


@dataclass(frozen=True)
class Entry:
    """One judgement: the held-out rows, and what they were asked: calibrator, policy and columns.

    `malicious` are the malicious rows of the same question; None if there were none.
    """

    question: str
    release: str
    created: str
    held_out: Known
    malicious: Known | None = None

    @property
    def same(self) -> tuple[str, Scored, Scored | None]:
        """The values that another line for the same judgement would share."""
        return self.question, self.held_out.scored, None if self.malicious is None else self.malicious.scored


# --- what is compared ---------------------------------------------------------------------------------------


def rows_of(sample: Sample, looks: bool = False) -> Rows:
    """What the ledger stores of a held-out or malicious sample, before the size is bounded.

    With `looks` this includes the digests of its files: a later look may read them again and add others.
    """
    digests = [piece.sha256 for piece in sample.pieces] if looks else []
    files = () if None in digests else tuple(sorted(map(str, digests)))
    return Rows(sample.rows_sha256 or sample.fingerprint, sample.ids, sample.distinct_scores, sample.n, files)


def question_of(calibrator_sha256: str, policy_sha256: str, columns: Mapping[str, Any]) -> str:
    """The digest of the question to the rows; columns named on the command line make another question."""
    asked = json.dumps([policy_sha256, dict(columns)], sort_keys=True)
    return f"{calibrator_sha256} {hashlib.sha256(asked.encode()).hexdigest()}"


def use_of(entries: list[Entry], rows: Rows, question: str) -> Use:
    """Which use of these rows a judgement is: one more than the different ones before it that share rows with it.

    The same question to the same rows with the same scores is the same use, whatever has come between. So is the same
    question to these rows with others added, if all their files are read again.
    """
    earlier: dict[tuple[Scored | None, str], tuple[str, float | None]] = {}
    looks = [(question, {*rows.files})]  # from the last look back; a look read again later is the same use
    asked = _known(rows).scored, question
    own = next((i for i, e in enumerate(entries) if (e.held_out.scored, e.question) == asked), len(entries))
    for entry in reversed(entries[:own]):
        files = {*entry.held_out.files}
        continued = bool(files) and any(entry.question == then and files <= later for then, later in looks)
        looks += [(entry.question, files)] if files else []
        if continued or (entry.question == question and question.startswith(TOGETHER)):  # or another detector's
            continue
        found = _share(entry.held_out, rows)
        if found is None or found >= FURTHER:
            once = None if entry.question.startswith(TOGETHER) else entry.held_out.scored  # any detector's scores
            earlier[once, entry.question] = entry.release, found
    names, shares = zip(*reversed(earlier.values()), strict=True) if earlier else ((), ())
    return Use(number=len(earlier) + 1, earlier=names, shared=shares)


def _share(known: Known, rows: Rows) -> float | None:
    """The share of the smaller set of rows that is in both; None if it is unknown, which counts as shared.

    Ids tell rows apart if both sets have them, else scores do. Only if nearly every row has a score of its own are
    shared scores evidence of re-use: then half of them under other ids are the same rows with new names.
    """
    if known.rows == rows.digest:
        return 1.0
    if known.scores is None:
        return None
    by_scores = share(known.scores, rows.scores.sketch, rows.scores.holds)
    if known.ids is None or rows.ids is None:
        return by_scores
    by_ids = share(known.ids, rows.ids.sketch, rows.ids.holds)
    own = min(known.scores.n / known.n, rows.scores.sketch.n / rows.n) >= OWN
    if own and by_ids is not None and by_scores is not None and by_scores >= RENAMED:
        return max(by_ids, by_scores)
    return by_ids


def malicious_use_of(entries: list[Entry], malicious: Rows, question: str) -> Use:
    """The share of malicious rows in both; a line that was cut off may have been of any rows."""
    cut = [entry.held_out if entry.release == CUT else entry.malicious for entry in entries]
    known = [replace(entry, held_out=of) for entry, of in zip(entries, cut, strict=True) if of is not None]
    return use_of(known, malicious, question)


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


def claim(path: str, rows: Rows, question: str, release: str, created: str, malicious: Rows | None = None) -> Use:
    """Count a judgement before it is made, and say which use of its held-out rows it is.

    The ledger is locked from the reading to the appending, so two runs at once are two uses. The line is written before
    the verdict is known, so that nobody sees an uncounted verdict. A repeated run asks the same and adds no line.
    """
    entry = Entry(question, release, created, _known(rows), None if malicious is None else _known(malicious))
    descriptor = -1
    try:
        refuse_links(path).parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        content = _content(path, descriptor)
        entries, end = _entries(path, content)
        if not any(known.same == entry.same for known in entries):
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
    """Which use of its rows a counted judgement was; later lines of the ledger change nothing."""
    entries, asked = read(path), (_known(rows).scored, question)
    if not any((entry.held_out.scored, entry.question) == asked for entry in entries):
        raise GateError(f"{path}: must have a line for this judgement of these rows, got none; name the ledger it used")
    return use_of(entries, rows, question)


def recall_malicious(path: str, malicious: Rows, question: str) -> Use:
    """Which use of its malicious rows a counted judgement with these rows was."""
    entries, asked = read(path), (_known(malicious).scored, question)
    if not any(e.malicious is not None and (e.malicious.scored, e.question) == asked for e in entries):
        raise GateError(
            f"{path}: must have a line for this judgement of these malicious rows, got none; name the ledger it used"
        )
    return malicious_use_of(entries, malicious, question)


def _known(rows: Rows) -> Known:
    ids = None if rows.ids is None else rows.ids.sketch
    return Known(rows.digest, ids, rows.scores.sketch, rows.n, rows.files)


def _open(path: str, flags: int) -> int:
    """The ledger's own file, locked; the system releases the lock of a process that dies."""
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
    return _open(path, flags)  # another file took its place during the wait for the lock


def _content(path: str, descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise GateError(f"{path}: must be a ledger of at most {MAX_BYTES:,} bytes; start a new one")
    return content


def _entries(path: str, content: bytes) -> tuple[list[Entry], int]:
    """Every entry, and where the last whole line ends.

    After the last line break may stand the beginning of a line that was never finished (a power cut, a full disk). It
    counts as one use of any rows, and becomes a line that says so when the next line is written.
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
        entries.append(Entry("", CUT, "", Known(hashlib.sha256(content[end:]).hexdigest())))
    return entries, end


def _parsed(line: bytes) -> Entry:
    content = json.loads(line)
    texts = {key: content[key] for key in _TEXTS}
    held_out, malicious = (
        _read_known(content),
        content.get("malicious"),
    )  # earlier versions wrote no malicious rows
    known = None if malicious is None else _read_known(malicious)
    if (held_out.scores is None) != (texts["release"] == CUT) or (known is not None and known.scores is None):
        raise ValueError
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError
    return Entry(**texts, held_out=held_out, malicious=known)


def _read_known(content: dict[str, Any]) -> Known:
    ids, scores = (_unpacked(content[key]) for key in ("ids", "scores"))
    rows, n = content["rows"], content["n"]
    if not isinstance(rows, str) or type(n) is not int or (ids is not None and scores is None):
        raise ValueError
    if scores is not None and not 0 < scores.n <= n:
        raise ValueError
    files = content.get("files", [])
    if not isinstance(files, list) or not all(isinstance(digest, str) for digest in files):
        raise ValueError
    return Known(rows, ids, scores, n, tuple(files))


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
    content = {key: getattr(entry, key) for key in _TEXTS} | _content_of(entry.held_out)
    if entry.malicious is not None:
        content["malicious"] = _content_of(entry.malicious)
    return json.dumps(content, ensure_ascii=True, sort_keys=True).encode() + b"\n"


def _content_of(known: Known) -> dict[str, Any]:
    content = {
        "rows": known.rows,
        "n": known.n,
        "ids": _packed(known.ids),
        "scores": _packed(known.scores),
    }
    return content | ({"files": known.files} if known.files else {})


def _put(descriptor: int, end: int, line: bytes) -> None:
    """Write one line behind the last whole one; if the disk takes only a part of it, remove that part.

    The beginning of a line that was cut off before is written over, and never shortened to nothing, because it counts.
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
    """Refuse a policy that pays for re-use if no ledger counts the uses."""
    if document.policy.reuse and ledger is None:
        raise GateError(
            f"{document.path}: reuse: must have a ledger to count uses in, got none; give --ledger FILE, and to the "
            "GitHub action ledger-branch"
        )
