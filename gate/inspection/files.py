"""The files of a release directory: it reads them once, and compares them with the manifest and the kind."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gate.errors import GateError
from gate.inspection import beside
from gate.inspection.answers import RefusedError, listed_files, named, other_installation, require
from gate.record import Record
from gate.storage import CHECKS_DIRECTORY, manifest_of, read_regular
from gate.words import plural

MAX_FILES = 100
MAX_BYTES = 100_000_000  # the most bytes of one file


@dataclass(frozen=True)
class Directory:
    """What lies in a release directory: plain files, the names of other things, and whether it has checks."""

    files: Mapping[str, bytes]
    unusual: tuple[str, ...] = ()
    holds_checks: bool = False


def load(directory: Path) -> Directory:
    """Read every file once; links are not followed."""
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
    holds_checks = beside.holds_checks(directory)
    unusual = [name for name in unusual + names[MAX_FILES:] if not (name == CHECKS_DIRECTORY and holds_checks)]
    return Directory(files, tuple(unusual), holds_checks)


def check_manifest(found: Directory) -> str:
    files, unusual = found.files, [*found.unusual]
    exports = sorted(files.keys() & beside.EXPORTS)
    others = {name: content for name, content in files.items() if name not in ("manifest.json", *exports)}
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
    later = [*exports, *([f"{CHECKS_DIRECTORY}/"] if found.holds_checks else [])]
    since = f"{listed_files(later)} unlisted, as what comes later is" if later else "none added"
    return f"{plural(len(others), 'file')} with the digests listed, none missing, {since}"


def check_kind(found: Directory, record: Record, reports: set[str]) -> str:
    """Check that the files fit the kind: a check fits nothing, so it has no calibrator to deploy."""
    files, fitted = found.files, {"calibrator.joblib", "calibrator.json"} | beside.EXPORTS
    if record.kind == "check":
        stray = sorted(files.keys() & fitted)
        require(not found.holds_checks, f"{CHECKS_DIRECTORY}/ is foreign in a check, which is not checked again")
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
