"""What came before a release of several detectors: the one that it is held against, or the one that is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gate.checks.baseline import Reference
from gate.errors import GateError
from gate.gating import (
    NO_BASELINE,
    ComparedReleases,
    Reader,
    compare_stored,
    read_reference,
    read_sample,
)
from gate.inspection.judgement import read_judged
from gate.policy import Document
from gate.record import Record, StoredRelease
from gate.record.system import DETECTORS, SystemRecord, read_any, require_name


@dataclass(frozen=True)
class Past:
    """What came before: of each detector the release that it is held against, or which is checked again."""

    references: Mapping[str, Reference] = field(default_factory=dict)
    stored: Mapping[str, StoredRelease] = field(default_factory=dict)
    first: frozenset[str] = frozenset()


NOTHING_BEFORE = Past()


def read_past(
    baseline: str | Path | None,
    documents: Mapping[str, Document],
    scored: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    reader: Reader = read_sample,
) -> Past:
    """The release that went before, detector by detector; one that it did not have is released for the first time."""
    if baseline is None:
        return Past()
    if baseline == NO_BASELINE:
        return Past(first=frozenset(documents))
    place = Path(baseline) / DETECTORS
    known = {name for name in documents if (place / name).is_dir()}
    if not known:
        raise GateError(f"{baseline}: must be a release of these detectors, got none of them; name another --baseline")
    old = {name: str(place / name) for name in documents if name in known}
    references = {name: read_reference(path, documents[name], *scored, reader) for name, path in old.items()}
    return Past(references=references, first=frozenset(documents.keys() - known))


def read_stored_system(directory: str | Path) -> tuple[SystemRecord, dict[str, StoredRelease]]:
    """A release of several detectors to rely on: each judged again, and its record the one that the top names."""
    place = Path(directory)
    record = read_any(place)
    if isinstance(record, Record):
        raise GateError(f"{directory}: must be a release of several detectors, got one of a single one")
    stored = {}
    for facts in record.detectors:
        require_name(facts.name, place)
        found = read_judged(place / DETECTORS / facts.name)
        if found.verdict_sha256 != facts.verdict_sha256:
            raise GateError(f"{directory}: must have the record of {facts.name} that it names; restore the release")
        stored[facts.name] = found
    return record, stored


@dataclass(frozen=True)
class ComparedSystems:
    """Two releases of several detectors side by side: the detectors of both, and those of one only."""

    both: Mapping[str, ComparedReleases]
    came: tuple[str, ...]
    went: tuple[str, ...]


def compare_systems(
    old: str,
    new: str,
    columns: Mapping[str, str | tuple[str, ...] | None],
    files: Mapping[str, tuple[str, ...]],
    reader: Reader = read_sample,
) -> ComparedSystems:
    """What two releases say of each other, detector by detector."""
    (_, before), (_, after) = (read_stored_system(directory) for directory in (old, new))
    found = {}
    for name in [name for name in after if name in before]:
        found[name] = compare_stored(before[name].path, after[name].path, columns, files, reader)
    came = tuple(name for name in after if name not in before)
    return ComparedSystems(found, came, tuple(name for name in before if name not in after))
