"""Checks what may lie in a release directory beside its own files: exports, which it makes again, and checks.

Neither is listed in the manifest: both come after the release was written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gate.calibration.export import FILES, Exported
from gate.errors import GateError
from gate.inspection.answers import RefusedError, named, refuse_other_bytes, require
from gate.record import Record
from gate.storage import CHECKS_DIRECTORY, checks_in
from gate.words import plural

EXPORTS = frozenset(name for name, _ in FILES.values())


def holds_checks(directory: Path) -> bool:
    """Whether checks of the release lie below it; a link to checks elsewhere does not count."""
    return (directory / CHECKS_DIRECTORY).is_dir() and not (directory / CHECKS_DIRECTORY).is_symlink()


def check_exports(files: Mapping[str, bytes], record: Record) -> str:
    """Check that the exports are those that calibrator.json gives."""
    text = files.get("calibrator.json", b"").decode(errors="replace")
    exported = Exported(record.release, record.outcome, record.calibrator.sha256, text)
    same: list[str] = []
    others: list[str] = []
    unmade: list[str] = []
    for name, render in FILES.values():
        if name in files:
            try:
                (same if render(exported) == files[name] else others).append(name)
            except GateError:
                unmade.append(name)
    refuse_other_bytes(others, record, "not what calibrator.json gives; do not serve it, and export it again")
    if unmade:
        raise RefusedError(
            f"{named(unmade)} to be compared where the package onnx is installed: pip install 'fpr-gate[onnx]'",
            "cannot be checked",
        )
    return f"{named(same)} what calibrator.json gives, byte for byte"


def check_checks(directory: Path) -> str:
    """Check that everything among the checks is a check: a directory with a record."""
    place, names = directory / CHECKS_DIRECTORY, checks_in(directory)
    foreign = [
        f"{CHECKS_DIRECTORY}/{name}"
        for name in names
        if (place / name).is_symlink() or not os.path.lexists(place / name / "verdict.json")
    ]
    require(not foreign, f"{named(foreign)} foreign among the checks of a release")
    each = {0: "", 1: ", to verify by itself"}.get(len(names), ", each to verify by itself")
    return f"{CHECKS_DIRECTORY}/ holds {plural(len(names), 'check')} of this release{each}"
