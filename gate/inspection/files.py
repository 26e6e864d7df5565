"""The files of a release directory: read once, held against the manifest and against what its kind may hold."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from gate.errors import GateError
from gate.inspection import beside
from gate.inspection.answers import RefusedError, listed_files, named, other_installation, require
from gate.record import Record
from gate.storage import CHECKS_DIRECTORY, manifest_of, read_regular
from gate.words import plural

MAX_FILES = 100
MAX_BYTES = 100_000_000  # of one file


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


def check_kind(files: Mapping[str, bytes], record: Record, reports: set[str], holds_checks: bool) -> str:
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
