"""Reads the release that came before one of several detectors: its baseline, or the release that is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gate.checks.baseline import Reference
from gate.errors import GateError
from gate.gating import (
    Reader,
    compare_stored,
    read_reference,
)
from gate.inspection.answers import RefusedError
from gate.inspection.judgement import document_of, read_judged
from gate.policy import Document
from gate.record import Record, StoredRelease
from gate.record.system import DETECTORS, SystemRecord, read_any, require_detector
from gate.report.compared import ComparedSystems
from gate.rows.reading import read_sample
from gate.storage import NO_BASELINE
from gate.systems.verdict import judge_again


@dataclass(frozen=True)
class Past:
    """What came before: for each detector the release that it is compared with, or that is checked again."""

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
    """Read the earlier release, detector by detector; a detector that it lacks is released for the first time."""
    if baseline is None:
        return Past()
    if baseline == NO_BASELINE:
        return Past(first=frozenset(documents))
    place = Path(baseline) / DETECTORS
    known = {name for name in documents if (place / name).is_dir()}
    if not known:
        raise GateError(f"{baseline}: must be a release of these detectors, got none of them; name another --baseline")
    old = {name: str(place / name) for name in documents if name in known}
    whole = read_stored_system(baseline)[0].outcome
    references = {name: read_reference(path, documents[name], *scored, reader) for name, path in old.items()}
    if whole != "pass":  # a release that did not ship as a whole is no reference, even if this detector passed
        references = {
            name: replace(one, outcome=whole if one.outcome == "pass" else one.outcome)
            for name, one in references.items()
        }
    return Past(references=references, first=frozenset(documents.keys() - known))


def read_stored_system(directory: str | Path) -> tuple[SystemRecord, dict[str, StoredRelease]]:
    """Read a release of several detectors to rely on: judge each again, then the verdict on all of them."""
    place = Path(directory)
    record = read_any(place)
    if isinstance(record, Record):
        raise GateError(f"{directory}: must be a release of several detectors, got one of a single one")
    stored = {}
    for facts in record.detectors:
        require_detector(facts.name, place)
        found = read_judged(place / DETECTORS / facts.name)
        if found.verdict_sha256 != facts.verdict_sha256:
            raise GateError(f"{directory}: must have the record of {facts.name} that it names; restore the release")
        stored[facts.name] = found
    try:
        policy = document_of(record).policy
        records = {name: found.record for name, found in stored.items()}
        judge_again(record, policy, records, {name: found.verdict_sha256 for name, found in stored.items()})
    except RefusedError as objection:
        raise GateError(
            f"{directory}: must be a release whose verdict follows from its detectors and policy, got one where "
            f"{objection}; see `gate verify`, and restore the release"
        ) from None
    return record, stored


def compare_systems(
    old: str,
    new: str,
    overrides: Sequence[str],
    files: Mapping[str, tuple[str, ...]],
    reader: Reader = read_sample,
) -> ComparedSystems:
    """Compare two releases, detector by detector."""
    (_, before), (_, after) = (read_stored_system(directory) for directory in (old, new))
    found = {}
    for name in [name for name in after if name in before]:
        found[name] = compare_stored(before[name].path, after[name].path, overrides, files, reader)
    came = tuple(name for name in after if name not in before)
    return ComparedSystems(found, came, tuple(name for name in before if name not in after))
