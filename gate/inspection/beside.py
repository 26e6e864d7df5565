"""What may lie in a release directory beside its own files: exports, made again to compare, and the checks of it.

Neither is listed in the manifest: both come after the release was written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gate.calibration.export import FILES, Exported
from gate.errors import GateError
from gate.record import Record
from gate.storage import CHECKS_DIRECTORY, checks_in
from gate.words import plural

EXPORTS = frozenset(name for name, _ in FILES.values())


def differing_exports(files: Mapping[str, bytes], record: Record) -> tuple[list[str], list[str], list[str]]:
    """The exports that lie here: those that calibrator.json gives, others, and those that cannot be made here."""
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
    return same, others, unmade


def holds_checks(directory: Path) -> bool:
    """Whether checks of the release lie below it; a link to some elsewhere is none."""
    return (directory / CHECKS_DIRECTORY).is_dir() and not (directory / CHECKS_DIRECTORY).is_symlink()


def foreign_in_checks(directory: Path) -> list[str]:
    """What lies among the checks and is none: a check is a directory with a record."""
    place = directory / CHECKS_DIRECTORY
    return [
        f"{CHECKS_DIRECTORY}/{name}"
        for name in checks_in(directory)
        if (place / name).is_symlink() or not os.path.lexists(place / name / "verdict.json")
    ]


def describe_checks(directory: Path) -> str:
    count = len(checks_in(directory))
    each = {0: "", 1: ", to verify by itself"}.get(count, ", each to verify by itself")
    return f"{CHECKS_DIRECTORY}/ holds {plural(count, 'check')} of this release{each}"
