"""The judgement: it checks whether policy, calibrator and verdict of a record follow from one another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import CHECKS, curve, ranges
from gate.checks.duplicates import Duplicates
from gate.checks.reuse import confidences
from gate.contract import Contract
from gate.errors import GateError
from gate.inspection.answers import RefusedError, other_installation, refuse_differences, require, same_words
from gate.policy import Document, Policy, digest_of
from gate.record import Record, StoredRelease, read_release, recorded_policy
from gate.record.system import SystemRecord
from gate.stored import MOST_ROWS
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
    require(calibrator.facts.n == record.fit.n, "calibrator.json was fitted on another number of rows")
    same = calibrator.facts.lowest_label == facts.lowest_label  # equal to the last digit: one run wrote both
    require(same, "calibrator.json has another lowest label than the record")
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
    """Check that every raw threshold of the record is the calibrator's."""
    refuse_differences("thresholds", [*record.calibrator.thresholds.values()], [*calibrator.thresholds.values()])
    if record.curve is not None:
        traced = replace(calibrator, contract=Contract(curve.grid(policy.anchors))).thresholds
        refuse_differences("curve", [point.tally.threshold for point in record.curve.points], [*traced.values()])
        counted = [(point.tally.threshold, point.tally.flagged) for point in record.curve.points]
        for objection in ranges.counted_otherwise(policy, record.evidence, calibrator, counted):
            raise RefusedError(objection)


def check_verdict(record: Record, policy: Policy) -> str:
    _judge_again(record, policy)
    findings = plural(len(record.findings), "finding")
    judged = f"{record.outcome} follows from the recorded counts and policy; {findings} judged again"
    if not same_words(record):
        other = other_installation(record)
        raise RefusedError(f"{judged}, but the sentences may be other ones: {other}", "cannot be checked")
    return judged


def _judge_again(record: Record, policy: Policy) -> Verdict:
    """Refuse a record that does not say what the policy says about its evidence."""
    evidence = record.evidence
    for objection in _contradictions(record, policy):
        raise RefusedError(objection)
    verdict = judge(policy, evidence)
    refuse_another_verdict(record, verdict, confidences(policy, evidence))
    return verdict


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


def _contradictions(record: Record, policy: Policy) -> Iterator[str]:
    """Name values that no samples could give, before any arithmetic uses them."""
    evidence = record.evidence
    for name, facts in (("fit", record.fit), ("holdout", record.holdout), ("malicious", record.malicious)):
        if facts is None:
            continue
        if facts.n > MOST_ROWS:
            yield f"{name}.n must be at most {MOST_ROWS:,}, got {facts.n:,}"
        foreign = name == "fit" and record.kind == "check"  # the release's sample, which may have had other columns
        labelled = facts.labels is not None if foreign else bool(record.data.label)
        yield from (f"{name}.{what}" for what in facts.contradictions(labelled))
        if not foreign and (facts.groups is not None) != (record.data.group is not None):
            yield f"{name}.groups must be counted where there is a column of them, only there"
    yield from _contradicting_sizes(record)
    if judged_by_day(policy) != (record.judged_on is not None):
        yield "judged_on must be recorded where the policy has waivers or a freshness, only there"
    if record.judged_on is not None and record.judged_on.isoformat() < record.created[:10]:
        yield f"judged_on must not be before the record was created, got {record.judged_on} and {record.created[:10]}"
    if record.kind == "run" and record.calibrated:
        yield "calibrated must be false in a release, which is fitted on raw scores"
    if record.kind == "check" and record.split is not None:
        yield "split must be null in a check, which has one sample"
    if record.curve is None:
        yield "curve must be recorded"
    else:
        yield from curve.contradictions(policy, evidence, record.curve)
    for check in CHECKS:
        yield from check.contradictions(policy, evidence)


def _contradicting_sizes(record: Record) -> Iterator[str]:
    """Name samples whose rows do not add up to those of their sources; rows that repeat an id count once."""
    found = record.of(Duplicates) or Duplicates()
    again, held_again, malicious_again, of_both = (
        repeats.repeated if repeats is not None and repeats.by == "ids" else 0
        for repeats in (found.fit, found.holdout, found.malicious, found.pool)
    )
    fit, holdout = record.fit, record.holdout
    if record.split is not None:
        told = fit.n + holdout.n + fit.unscored + holdout.unscored + again + held_again + of_both
        if not fit.benign == holdout.benign == told:
            yield "fit.n and holdout.n do not add up to the benign rows of their sources"
    else:
        # A check names the sources of the release that it checks, which may have split them or counted rows once.
        if fit.benign != fit.n + again + fit.unscored and not (record.kind == "check" and fit.benign > fit.n):
            yield "fit.n is not the benign rows of its sources"
        if holdout.benign != holdout.n + held_again + holdout.unscored:
            yield "holdout.n is not the benign rows of its sources"
    malicious = record.malicious
    repeated = malicious_again + (0 if malicious is None else malicious.unscored)
    if malicious is not None and malicious.rows - malicious.benign != malicious.n + repeated:
        yield "malicious.n is not the malicious rows of its sources"
