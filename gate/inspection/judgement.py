"""The judgement: it checks whether policy, calibrator and verdict of a record follow from one another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import curve
from gate.checks.reuse import Uses, confidences
from gate.checks.served import ServedRows
from gate.contract import Contract
from gate.errors import GateError
from gate.inspection.answers import (
    RefusedError,
    judged_again,
    other_installation,
    refuse_differences,
    require,
    same_words,
)
from gate.policy import Document, Policy, digest_of
from gate.record import Record, StoredRelease, read_release, recorded_policy
from gate.record.system import SystemRecord
from gate.verdict import Verdict, judge, judged_by_day
from gate.words import plural

VERDICT = ("outcome", "reason", "findings", "waivers", "not_asked", "warnings")
# Sentences may change from version to version of gate; what they say of the verdict may not.
SENTENCES = ("message", "remedy")


def read_judged(directory: str | Path) -> StoredRelease:
    """Read a release to rely on, and judge its evidence again first: a manifest can be sealed by anyone."""
    stored = read_release(directory)
    record = stored.record
    try:
        policy = document_of(record).policy
        if record.kind == "run":
            _check_thresholds(calibrator_of(stored.calibrator_json or b""), record, policy)
        _judge_again(record, policy)
    except RefusedError as objection:
        raise GateError(
            f"{directory}: must be a release whose verdict follows from its own counts and policy, got one where "
            f"{objection}; see `gate verify`, and restore the release"
        ) from None
    return stored


def document_of(record: Record | SystemRecord, pinned: Document | None = None) -> Document:
    """Read the recorded policy again from its text; if one is pinned it must be that one, with the same keys set."""
    section = record.policy
    digest = digest_of(section.content, section.set)
    require(digest == section.sha256, f"its text has the digest {digest[:12]}, the record says {section.sha256[:12]}")
    try:
        document = recorded_policy(section)
    except GateError as error:
        raise RefusedError(f"its text cannot be read: {str(error).splitlines()[0]}") from None
    policy = document.policy
    refuse_differences(
        "policy",
        section.model_dump(include={"name", "rule", "confidence", "interval"}),
        {
            "name": policy.name,
            "rule": policy.rule,
            "confidence": float(policy.confidence),
            "interval": policy.interval,
        },
    )
    if pinned is not None:
        texts = [digest_of(text, ()) for text in (section.content, pinned.text)]
        said = f"it was judged by a text with the digest {texts[0][:12]}, {pinned.path} has {texts[1][:12]}"
        require(texts[0] == texts[1], said)
        refuse_differences("policy", policy.model_dump(), pinned.policy.model_dump())
    refuse_differences("data", record.data.model_dump(), policy.data.model_dump())
    return document


def calibrator_of(content: bytes) -> Calibrator:
    try:
        return from_json(content.decode(errors="replace"))
    except GateError as error:
        raise RefusedError(str(error)) from None


def check_calibrator(files: Mapping[str, bytes], record: Record, policy: Policy) -> str:
    facts, promised = record.calibrator, [(anchor.fpr, anchor.score) for anchor in policy.anchors.anchors]
    same = [(anchor.fpr, anchor.score) for anchor in facts.anchors] == promised
    require(same, "the record has another contract than the policy")
    if record.kind == "check":
        return f"a check fits none; it is that of {record.release!r}, which `gate verify` of that release checks"
    content, pickle = files.get("calibrator.json", b""), files.get("calibrator.joblib", b"")
    calibrator = calibrator_of(content)
    require(calibrator.to_json().encode() == content, "calibrator.json is not what its own knots give")
    require(calibrator.settings == policy.calibration, "calibrator.json has other settings than the policy")
    anchors = [(anchor.fpr, anchor.score) for anchor in calibrator.contract.anchors]
    require(anchors == promised, "calibrator.json has another contract than the policy")
    refuse_differences(
        "calibrator",
        facts.model_dump(exclude={"anchors"}),
        {
            "sha256": hashlib.sha256(pickle).hexdigest(),
            "bytes": len(pickle),
            "knots": len(calibrator.knots[0]),
            "plotting_position": policy.calibration.plotting_position,
            "ties": policy.calibration.ties,
            "lowest_label": calibrator.facts.lowest_label,
        },
    )
    _check_thresholds(calibrator, record, policy)
    if calibrator.artifact != pickle:
        other = other_installation(record)
        require(bool(other), "calibrator.joblib is not the pipeline of calibrator.json; do not load it")
        raise RefusedError(
            "calibrator.json agrees with the record and calibrator.joblib has the recorded digest, but whether it is "
            f"the same pipeline shows only where it was written: {other}",
            "cannot be checked",
        )
    return "calibrator.json agrees with policy and record, and calibrator.joblib is its pipeline, byte for byte"


def _check_thresholds(calibrator: Calibrator, record: Record, policy: Policy) -> None:
    """Check that the record has the calibrator's own sample and thresholds."""
    require(calibrator.facts.n == record.fit.n, "calibrator.json was fitted on another number of rows")
    same = calibrator.facts.lowest_label == record.calibrator.lowest_label  # to the last digit: one run wrote both
    require(same, "calibrator.json has another lowest label than the record")
    refuse_differences("thresholds", [*record.calibrator.thresholds.values()], [*calibrator.thresholds.values()])
    if record.curve is not None:
        traced = replace(calibrator, contract=Contract(curve.grid(policy.anchors))).thresholds
        refuse_differences("curve", [point.tally.threshold for point in record.curve.points], [*traced.values()])


def check_verdict(record: Record, policy: Policy) -> str:
    _judge_again(record, policy)
    findings = plural(len(record.findings), "finding")
    judged = f"{record.outcome} follows from the recorded counts and policy; {findings} judged again"
    if not same_words(record):
        other = other_installation(record)
        raise RefusedError(f"{judged}, but the sentences may be other ones: {other}", "cannot be checked")
    return judged


def _judge_again(record: Record, policy: Policy) -> None:
    """Refuse a record that does not say what the policy says about its evidence."""
    _require_parts(record, policy)
    with judged_again():
        verdict = judge(policy, record.evidence)
        more = confidences(policy, record.evidence)
    refuse_another_verdict(record, verdict, more)


def _require_parts(record: Record, policy: Policy) -> None:
    """Require the parts that no check asks for, and without which a verdict could be milder."""
    said = "judged_on must be recorded where the policy has waivers or a freshness, only there"
    require(judged_by_day(policy) == (record.judged_on is not None), said)
    require(record.curve is not None, "curve must be recorded")
    require(record.kind == "run" or record.reference is not None, "baseline must be the release that was checked")
    for name, part in (("reuse", record.of(Uses)), ("served", record.of(ServedRows))):
        whole = part is None or (part.malicious is None) == (record.malicious is None)
        require(whole, f"{name} must count malicious rows where there are any, only there")


def refuse_another_verdict(record: Record | SystemRecord, verdict: Verdict, more: Mapping[str, Any]) -> None:
    """Refuse a record with another verdict, or other numbers than these; another gate's sentences may differ."""
    fields = [name for name in VERDICT if name in type(record).model_fields]
    recorded = record.model_dump(include={*fields, *more})
    again: dict[str, Any] = {name: _plain(getattr(verdict, name)) for name in fields}
    again |= more
    if not same_words(record):
        for content in (recorded, again):
            content["findings"] = [{**found, **dict.fromkeys(SENTENCES)} for found in content["findings"]]
            content |= {"reason": None, "warnings": None}
    refuse_differences("verdict.json", recorded, again)


def _plain(value: Any) -> Any:
    return (
        [part if isinstance(part, str) else part.model_dump() for part in value] if isinstance(value, tuple) else value
    )
