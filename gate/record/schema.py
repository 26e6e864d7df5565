"""The public format of a record: what was decided, from what, and where it came from."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from gate.checks import Parts
from gate.checks.baseline import Comparison, ReferenceFacts
from gate.checks.check import CalibratorFacts, Evidence, Finding
from gate.checks.curve import Curve
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.checks.reuse import Alphas, confidences
from gate.policy import Columns
from gate.sources import PathText, SampleFacts, Split
from gate.stored import Outcome, Rate, Section
from gate.verdict import NotAsked, WaiverUse, judged_by_day
from gate.words import escape_json

if TYPE_CHECKING:
    from gate.policy import Document
    from gate.verdict import Verdict

SCHEMA_VERSION = 1


class Tool(Section):
    """`libraries` are the versions on which the bytes of the calibrator and of the reports depend."""

    name: str
    version: str
    libraries: dict[str, str]


@cache
def libraries() -> dict[str, str]:
    """Return the versions, besides gate's own, on which the bytes of a release depend."""
    names = ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


class PolicyText(Section):
    """The policy: `content` is its text to the letter, `set` the `KEY=VALUE` of each `--set`, whose values win.

    `sha256` is the digest of the text; where keys were set, that of the JSON list of the text and the sorted `set`.
    """

    name: str
    rule: str
    confidence: Rate
    interval: str = "clopper-pearson"
    path: PathText
    sha256: str
    content: str
    set: tuple[str, ...] = ()


def known_columns(value: Any) -> Any:
    return (
        {key: name for key, name in value.items() if key in Columns.model_fields}
        if isinstance(value, Mapping)
        else value
    )


class Record(Section):
    """Everything a report needs, without the data.

    kind        `run` of a release that was fitted and judged, or `check` of one fitted earlier, whose `fit` and
                `calibrator` are those of that release
    calibrated  the rows had calibrated scores, as production serves them, which the contract's own scores flag; the
                raw thresholds of `calibrator` are the release's
    judged_on   the day by which waivers and ages were judged, where the policy has any
    confidence  of the intervals on held-out rows: the policy's, less what earlier uses of these rows have spent;
                `malicious_confidence` is that of the intervals on malicious rows, where there are any
    data        the columns read, after the command line had its say
    checks      what each check measured; the findings follow from it and the policy alone
    """

    schema_version: Literal[1]
    kind: Literal["run", "check"]
    tool: Tool
    release: str
    created: str
    calibrated: bool = False
    judged_on: date | None = None
    outcome: Outcome
    reason: str
    confidence: Rate
    malicious_confidence: Rate | None = None
    policy: PolicyText
    data: Annotated[Columns, BeforeValidator(known_columns)]
    fit: SampleFacts
    holdout: SampleFacts
    malicious: SampleFacts | None = None
    split: Split | None = None
    calibrator: CalibratorFacts
    findings: tuple[Finding, ...]
    not_asked: tuple[NotAsked, ...] = ()
    waivers: tuple[WaiverUse, ...] = ()
    warnings: tuple[str, ...] = ()
    checks: SerializeAsAny[Parts]
    curve: Curve | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Refuse counts at other anchors than the calibrator's, or of unnamed samples: reports rely on both."""
        known = {anchor.fpr for anchor in self.calibrator.anchors}
        for part in (self.of(Targets), self.of(Detection)):
            if part is not None and not {anchor.fpr for anchor in part.anchors} <= known:
                raise ValueError("must count rows at the anchors of its calibrator")
        if self.of(Detection) is not None and self.malicious is None:
            raise ValueError("must name the malicious rows that it counts")
        if any(found.rate is not None and found.rate.target is None for found in self.findings):
            raise ValueError("must name the target of every rate that is judged")
        return self

    def to_json(self) -> str:
        return json_text(self.model_dump(mode="json"))

    @property
    def time(self) -> datetime:
        return read_time(self.created)

    @property
    def day(self) -> date:
        return self.judged_on or self.time.date()

    @property
    def alphas(self) -> Alphas:
        """How often its intervals miss; a record without `malicious_confidence` has that of the policy."""
        malicious = self.policy.confidence if self.malicious_confidence is None else self.malicious_confidence
        return Alphas(1 - self.confidence, 1 - malicious)

    @property
    def evidence(self) -> Evidence:
        """Everything that was measured, so that it can be judged again."""
        return Evidence(
            self.kind,
            self.day,
            self.calibrator,
            self.fit,
            self.holdout,
            self.malicious,
            self.checks,
            self.calibrated,
        )

    def of(self, part: type[Any]) -> Any:
        """Return what one check measured."""
        return self.checks.of(part)

    @property
    def reference(self) -> ReferenceFacts | None:
        """The release that it is compared with, or that was checked."""
        found = self.of(Comparison)
        return None if found is None else found.reference

    @property
    def is_first(self) -> bool:
        """Whether it is declared to be the first release."""
        return self.of(Comparison) is not None and self.reference is None


def json_text(content: dict[str, Any]) -> str:
    """Escape JSON for a log, where `##[error]` would be a command to the CI system."""
    return escape_json(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def stamp(created: datetime) -> str:
    return created.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def policy_text(document: Document) -> PolicyText:
    policy = document.policy
    return PolicyText(
        name=policy.name,
        rule=policy.rule,
        confidence=float(policy.confidence),
        interval=policy.interval,
        path=document.path,
        sha256=document.sha256,
        content=document.text,
        set=document.overrides,
    )


def compose(
    *,
    release: str,
    created: datetime,
    version: str,
    document: Document,
    evidence: Evidence,
    verdict: Verdict,
    split: Split | None = None,
    curve: Curve | None = None,
) -> Record:
    """Put together what was decided and where it came from."""
    policy = document.policy
    return Record(
        schema_version=SCHEMA_VERSION,
        kind=evidence.kind,
        tool=Tool(name="fpr-gate", version=version, libraries=libraries()),
        release=release,
        created=stamp(created),
        calibrated=evidence.calibrated,
        judged_on=evidence.day if judged_by_day(policy) else None,
        outcome=verdict.outcome,
        reason=verdict.reason,
        **confidences(policy, evidence),
        policy=policy_text(document),
        data=policy.data,
        fit=evidence.fit,
        holdout=evidence.holdout,
        malicious=evidence.malicious,
        split=split,
        calibrator=evidence.calibrator,
        findings=verdict.findings,
        not_asked=verdict.not_asked,
        waivers=verdict.waivers,
        warnings=verdict.warnings,
        checks=evidence.parts,
        curve=curve,
    )


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `verdict.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Record.model_json_schema(mode="serialization")}
