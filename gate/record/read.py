"""Reads a record back, and a release directory whose manifest vouches for it; it judges nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from gate.checks import parse_policy
from gate.checks.baseline import Reference
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.errors import GateError
from gate.record.schema import SCHEMA_VERSION, PolicyText, Record, read_time
from gate.storage import MAX_BYTES, read_regular
from gate.stored import Section

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.policy import Document


Model = TypeVar("Model", bound=Section)


@dataclass(frozen=True)
class StoredRelease:
    """A release directory whose record, and calibrator where it has one, are those that its manifest names."""

    path: str
    record: Record
    verdict_sha256: str
    calibrator_json: bytes | None


def read_record(directory: str | Path) -> Record:
    """Read `verdict.json` back, or say what is wrong with it."""
    return read_with_digest(directory)[0]


def read_with_digest(directory: str | Path) -> tuple[Record, str]:
    """Read `verdict.json` with the digest of its bytes, by which a check names its release."""
    path = Path(directory) / "verdict.json"
    raw = read_bytes(path, "the record of a release")
    return parse_record(raw, path), hashlib.sha256(raw).hexdigest()


def read_release(directory: str | Path) -> StoredRelease:
    """Read a release to rely on: what its manifest does not vouch for is refused."""
    place = Path(directory)
    manifest = place / "manifest.json"
    try:
        digests = dict(json.loads(read_bytes(manifest, "the manifest of a release"))["sha256"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise GateError(f"{manifest}: must be a manifest that `gate run` wrote; restore the release") from None
    found = {}
    for name in ("verdict.json", "calibrator.json"):
        if name not in digests and name == "calibrator.json":  # a check has no calibrator
            continue
        found[name] = read_bytes(place / name, "a file of a release")
        if hashlib.sha256(found[name]).hexdigest() != digests.get(name):
            raise GateError(f"{place / name}: must be as manifest.json says, got other bytes; restore the release")
    record = parse_record(found["verdict.json"], place / "verdict.json")
    return StoredRelease(str(directory), record, str(digests["verdict.json"]), found.get("calibrator.json"))


def parse_record(raw: bytes, path: str | Path) -> Record:
    """Read the record from the bytes of a `verdict.json`; `path` only names it in messages."""
    content = parse_json(raw, path)
    if isinstance(content, dict) and "detectors" in content:
        raise GateError(f"{path}: must be of one detector, got several; name one of those below {Path(path).parent}")
    return follow(Record, content, path)


def parse_json(raw: bytes, path: str | Path) -> Any:
    """Parse what a `verdict.json` holds, of one detector or of several."""
    try:
        content = json.loads(raw)
        json.dumps(content, ensure_ascii=False).encode()  # JSON can name half a character, which no report could show
    except (ValueError, RecursionError) as error:
        raise GateError(f"{path}: must be JSON, got an error: {error}; write it again with `gate run`") from None
    return content


def follow(kind: type[Model], content: Any, path: str | Path) -> Model:
    """Make the record of that kind from plain values, or refuse it with a line on the first wrong key."""
    known = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(known, int) and known > SCHEMA_VERSION:
        raise GateError(f"{path}: schema_version must be at most {SCHEMA_VERSION}, got {known}; upgrade gate")
    try:
        record = kind.model_validate(content)
        read_time(content["created"])
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(str(step) for step in detail["loc"]) or "record"
        message = f"{path}: {key}: must follow `gate schema record`, got an error: {detail['msg']}"
        raise GateError(f"{message}; write it again with `gate run`") from None
    except ValueError:
        must = "must be a time such as 2026-03-01T12:00:00Z"
        raise GateError(f"{path}: created: {must}, got {str(content['created'])[:40]!r}; restore the release") from None
    return record


def as_reference(stored: StoredRelease) -> Reference:
    """Turn a stored release into a reference with which another is compared."""
    record = stored.record
    if record.kind != "run":
        raise GateError(f"{stored.path}: must be a release, got a check of {record.release}; name the release itself")
    benign, malicious = record.of(Targets), record.of(Detection)
    return Reference(
        path=stored.path,
        release=record.release,
        created=record.created,
        outcome=record.outcome,
        verdict_sha256=stored.verdict_sha256,
        policy_sha256=record.policy.sha256,
        policy=recorded_policy(record.policy).policy,
        benign={} if benign is None else benign.tallies,
        malicious=None if malicious is None else malicious.tallies,
        holdout_sha256=record.holdout.sha256,
        rows_sha256=record.holdout.rows_sha256,
    )


def read_calibrator(stored: StoredRelease) -> Calibrator:
    """Read the calibrator of a stored release from its JSON, never from its pickle."""
    from gate.calibration.calibrator import from_json

    if stored.calibrator_json is None:
        raise GateError(f"{stored.path}: must be a release with a calibrator.json, got none; name the release itself")
    try:
        text = stored.calibrator_json.decode()
    except UnicodeDecodeError:
        raise GateError(f"{stored.path}/calibrator.json: must be UTF-8 text; restore the release") from None
    return from_json(text, f"{stored.path}/calibrator.json")


def recorded_policy(recorded: PolicyText) -> Document:
    """Read the policy that judged a release."""
    return parse_policy(recorded.content, recorded.path, overrides=recorded.set)


def read_bytes(path: Path, what: str) -> bytes:
    try:
        raw = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise GateError(
            f"{path}: must be {what}, got {error.strerror}; name a directory that `gate run` wrote"
        ) from None
    if len(raw) > MAX_BYTES:
        raise GateError(f"{path}: must be {what} of at most {MAX_BYTES:,} bytes; is this another file?")
    return raw
