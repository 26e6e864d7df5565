"""The record of a release of several detectors: the verdict on all, with the digest of each detector's own record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gate.checks.check import Finding
from gate.checks.system import System
from gate.errors import GateError
from gate.names import is_detector
from gate.policy import Columns
from gate.record.read import follow, parse_json, parse_record, read_bytes
from gate.record.schema import (
    SCHEMA_VERSION,
    PolicyText,
    Record,
    Tool,
    json_text,
    known_columns,
    libraries,
    policy_text,
    read_time,
    stamp,
)
from gate.stored import Count, Outcome, Section
from gate.verdict import WaiverUse

if TYPE_CHECKING:
    from gate.policy import Document
    from gate.verdict import Verdict

DETECTORS = "detectors"  # the directory with one release for each


class DetectorFacts(Section):
    """One detector of the release: what its own record says, and the digest of that.

    required    false where it is judged and shown, but never blocks
    unscored    held-out benign rows that it has not scored
    """

    name: str
    required: bool
    outcome: Outcome
    reason: str
    score: str
    fit_n: Count
    holdout_n: Count
    malicious_n: Count | None = None
    unscored: Count = 0
    calibrator_sha256: str
    verdict_sha256: str


class SystemRecord(Section):
    """Everything a report on all detectors needs, without the data.

    kind        `run` of a release that was fitted and judged, or `check` of one fitted earlier
    findings    every detector's, with its name, then those on the system
    system      what all detectors flag together; null where their rows cannot be joined
    """

    schema_version: Literal[1]
    kind: Literal["run", "check"]
    tool: Tool
    release: str
    created: str
    judged_on: date | None = None
    outcome: Outcome
    reason: str
    policy: PolicyText
    data: Annotated[Columns, BeforeValidator(known_columns)]
    detectors: tuple[DetectorFacts, ...] = Field(min_length=1)
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverUse, ...] = ()
    warnings: tuple[str, ...] = ()
    system: System | None = None

    def to_json(self) -> str:
        return json_text(self.model_dump(mode="json"))

    @property
    def day(self) -> date:
        return self.judged_on or read_time(self.created).date()

    def of(self, name: str) -> list[Finding]:
        """Return one detector's findings."""
        return [finding for finding in self.findings if finding.check.detector == name]

    @property
    def joint(self) -> list[Finding]:
        """The findings on the system."""
        return [finding for finding in self.findings if finding.check.detector is None]


def facts_of(name: str, required: bool, record: Record, verdict_sha256: str) -> DetectorFacts:
    """Return what the record of all says about one detector."""
    return DetectorFacts(
        name=name,
        required=required,
        outcome=record.outcome,
        reason=record.reason,
        score=record.data.score,
        fit_n=record.fit.n,
        holdout_n=record.holdout.n,
        malicious_n=None if record.malicious is None else record.malicious.n,
        unscored=record.holdout.unscored,
        calibrator_sha256=record.calibrator.sha256,
        verdict_sha256=verdict_sha256,
    )


def compose_system(
    *,
    kind: Literal["run", "check"],
    release: str,
    created: datetime,
    judged_on: date | None,
    version: str,
    document: Document,
    detectors: tuple[DetectorFacts, ...],
    verdict: Verdict,
    system: System | None,
) -> SystemRecord:
    """Put together what was decided of all detectors and where it came from."""
    policy = document.policy
    return SystemRecord(
        schema_version=SCHEMA_VERSION,
        kind=kind,
        tool=Tool(name="fpr-gate", version=version, libraries=libraries()),
        release=release,
        created=stamp(created),
        judged_on=judged_on,
        outcome=verdict.outcome,
        reason=verdict.reason,
        policy=policy_text(document),
        data=policy.data,
        detectors=detectors,
        findings=verdict.findings,
        waivers=verdict.waivers,
        warnings=verdict.warnings,
        system=system,
    )


# --- reading ------------------------------------------------------------------------------------------------


def is_system(raw: bytes) -> bool:
    """Say whether the bytes of a `verdict.json` are of several detectors."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, Mapping) and DETECTORS in content


def holds_several(directory: str | Path) -> bool:
    """Say whether a release directory is of several detectors."""
    try:
        return is_system(read_bytes(Path(directory) / "verdict.json", "the record of a release"))
    except GateError:
        return False


def read_any(directory: str | Path) -> Record | SystemRecord:
    """Read the record of a release, of one detector or of several."""
    path = Path(directory) / "verdict.json"
    raw = read_bytes(path, "the record of a release")
    return parse_system(raw, path) if is_system(raw) else parse_record(raw, path)


def parse_system(raw: bytes, path: str | Path) -> SystemRecord:
    """Read the record from the bytes of a `verdict.json`; `path` only names it in messages."""
    return follow(SystemRecord, parse_json(raw, path), path)


def require_detector(name: str, place: str | Path) -> None:
    """Refuse what is no name of a detector: a record may hold any text, and only a name may become a path."""
    if not is_detector(name):
        raise GateError(f"{place}: must name its detectors as a policy can, got {name[:80]!r}; restore the release")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the `verdict.json` of several detectors."""
    content = SystemRecord.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **content}
