"""Writes what GitHub Actions reads about a verdict on several detectors: one annotation for each that blocks."""

from __future__ import annotations

import hashlib
from pathlib import PurePath

from gate.errors import GateError
from gate.policy import Location
from gate.record import recorded_policy
from gate.record.system import SystemRecord
from gate.report.github import MAX_ANNOTATIONS, error, paths_below
from gate.report.rows import in_order
from gate.report.system import lines
from gate.words import plural


def errors(record: SystemRecord, policy_file: str | None) -> list[str]:
    """Write an error for every detector that blocks, at its line of the policy, and for each limit on the system."""
    places = _lines(record) if policy_file is not None else {}
    order = {facts.name: i for i, facts in enumerate(record.detectors)}
    found = []
    for line in lines(record):
        if line.blocks:
            blocking = [finding for finding in in_order(record.of(line.name)) if finding.blocks]
            helps = next((finding.remedy for finding in blocking if finding.remedy), None)
            message = ". What would help: ".join(filter(None, [line.why, helps]))
            place: Location = ("detectors", order[line.name])
            found.append(error(f"{line.name}: {line.outcome}", message, policy_file, places.get(place)))
    for i, finding in enumerate(record.joint):
        if finding.blocks:
            message = ". What would help: ".join(filter(None, [finding.message, finding.remedy]))
            title = f"{finding.check}: {finding.outcome}"
            found.append(error(title, message, policy_file, places.get(("system", i))))
    if len(found) > MAX_ANNOTATIONS:
        rest = plural(len(found) - MAX_ANNOTATIONS + 1, "more detector")
        more = error(f"{rest} block this release", "the report lists all of them", policy_file, None)
        found = [*found[: MAX_ANNOTATIONS - 1], more]
    return found


def outputs(record: SystemRecord, exit_code: int, directory: PurePath | None, manifest: bytes = b"") -> dict[str, str]:
    """Return the outputs that later steps read; each detector's calibrator lies below `detectors/`."""
    found = {"outcome": record.outcome, "exit-code": str(exit_code)}
    if directory is None:
        return found
    return found | paths_below(directory) | {"manifest-sha256": hashlib.sha256(manifest).hexdigest()}


def _lines(record: SystemRecord) -> dict[Location, int]:
    try:
        return dict(recorded_policy(record.policy).lines)
    except GateError:
        return {}
