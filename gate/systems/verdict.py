"""Judges several detectors jointly: each keeps its own verdict, and all required ones and the system must pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

from gate.checks import system
from gate.checks.check import Finding
from gate.checks.system import System, SystemEvidence
from gate.inspection.answers import judged_again, refuse_differences, require
from gate.inspection.judgement import refuse_another_verdict
from gate.policy import Policy
from gate.record import Record
from gate.record.system import SystemRecord, facts_of
from gate.stored import Outcome
from gate.verdict import NOT_JUDGED, Verdict, WaiverUse, find, judged_by_day, waive, waiver_use
from gate.words import in_digits, listed, plural


def judge_together(policy: Policy, records: Mapping[str, Record], found: System | None, day: date) -> Verdict:
    """Judge all together: every required finding of required detectors and of the system must pass, uncorrected.

    To pass a bad release, the bad detector itself must be passed (Berger 1982), whatever the others show.
    """
    required = {detector.name: detector.required for detector in policy.detectors}
    own = [_named(name, finding, required[name]) for name, record in records.items() for finding in record.findings]
    evidence = SystemEvidence(tuple(records), found)
    joint = waive(policy, find(policy, evidence, (system.CHECK,))[0], day)
    findings = (*own, *joint)
    blocking = {finding.outcome for finding in findings if finding.blocks}
    blocking |= {*blocking_detectors(policy, records).values()}
    # Perhaps nothing that was measured is required: then nothing was shown.
    judged = any(required.values()) or bool(joint)
    outcome: Outcome = "fail" if "fail" in blocking else "inconclusive" if blocking or not judged else "pass"
    unseen = outcome == "pass" and any(record.malicious is None for record in records.values())
    return Verdict(
        outcome=outcome,
        reason=_reason(policy, outcome, records, joint) + (f"; {NOT_JUDGED}" if unseen else ""),
        findings=findings,
        waivers=tuple(_waiver_uses(policy, records, joint, day)),
        warnings=tuple(f"{name}: {said}" for name, record in records.items() for said in record.warnings),
    )


def judge_again(
    record: SystemRecord, policy: Policy, records: Mapping[str, Record], digests: Mapping[str, str]
) -> None:
    """Refuse a record that says otherwise than the policy says of these detectors.

    digests   of the detectors' own records, as they were read
    """
    required = {detector.name: detector.required for detector in policy.detectors}
    require([*required] == [*records], "the detectors are others than the policy's")
    facts = []
    for name, own in records.items():
        facts.append(facts_of(name, required[name], own, digests[name]).model_dump())
        for key in ("kind", "release", "created"):
            refuse_differences(f"{name}: {key}", getattr(own, key), getattr(record, key))
    refuse_differences("detectors", [one.model_dump() for one in record.detectors], facts)
    require(
        depends_on_day(policy) == (record.judged_on is not None),
        "judged_on must be recorded where the policy has waivers or a freshness, only there",
    )
    with judged_again():
        verdict = judge_together(policy, records, record.system, record.day)
    refuse_another_verdict(record, verdict, {})


def depends_on_day(policy: Policy) -> bool:
    """Say whether the verdict on all detectors depends on the day."""
    return bool(policy.waivers) or any(judged_by_day(policy.detector(detector.name)) for detector in policy.detectors)


def blocking_detectors(policy: Policy, records: Mapping[str, Record]) -> dict[str, Outcome]:
    """List the required detectors that do not pass; those that fail come first."""
    required = [detector.name for detector in policy.detectors if detector.required]
    blocking = {name: records[name].outcome for name in required if records[name].outcome != "pass"}
    return dict(sorted(blocking.items(), key=lambda entry: entry[1] != "fail"))


def _named(name: str, finding: Finding, required: bool) -> Finding:
    check = replace(finding.check, detector=name)
    return finding.model_copy(update={"check": check, "required": finding.required and required})


def _waiver_uses(
    policy: Policy, records: Mapping[str, Record], joint: Sequence[Finding], day: date
) -> Iterator[WaiverUse]:
    """List the waivers in the policy's order; those of a detector are as its own record has them."""
    own = {name: iter(record.waivers) for name, record in records.items()}
    for waiver in policy.waivers:
        if waiver.check.detector in own:
            use = next(own[waiver.check.detector], None)
            if use is not None:
                yield use.model_copy(update={"check": waiver.check})
        else:
            yield waiver_use(waiver, joint, day)


# --- the reason ---------------------------------------------------------------------------------------------


def _reason(policy: Policy, outcome: Outcome, records: Mapping[str, Record], joint: Sequence[Finding]) -> str:
    """Say which detectors block the release, then what holds for all together."""
    if outcome == "pass":
        return _reason_of_pass(policy, records, joint)
    names = [name for name, own in blocking_detectors(policy, records).items() if own == outcome]
    parts = []
    if len(names) == 1:
        parts.append(f"{names[0]}: {records[names[0]].reason}")
    elif names:
        verb = "fail" if outcome == "fail" else "cannot be judged"
        parts.append(f"{len(names)} of {plural(len(records), 'detector')} {verb}: {listed(names)}")
    said: dict[str, list[str]] = {}
    for finding in joint:
        if finding.blocks and finding.outcome == outcome:
            sentence = system.CHECK.sentences.get(finding.reason, finding.reason)
            said.setdefault(sentence, []).append(_at(finding.check.rate))
    parts += [f"{sentence} at a score of {listed(scores)}" for sentence, scores in said.items()]
    return "; ".join(parts) or "no detector is required"


def _reason_of_pass(policy: Policy, records: Mapping[str, Record], joint: Sequence[Finding]) -> str:
    required = [detector.name for detector in policy.detectors if detector.required]
    others = [name for name in records if name not in required and records[name].outcome != "pass"]
    waived = sum(finding.waived for finding in joint) + sum(
        finding.waived for record in records.values() for finding in record.findings
    )
    return system.describe_pass(len(required), _limits(joint), waived, others)


def _limits(joint: Sequence[Finding]) -> str:
    counted = [finding for finding in joint if finding.required and not finding.waived]
    if not counted:
        return ""
    proven = sum(finding.grade == "proven" for finding in counted)
    passed = "proven" if proven == len(counted) else f"passed, {proven} of them proven"
    return f"{plural(len(counted), 'limit')} on what they flag together {passed}"


def _at(score: Decimal | None) -> str:
    return "" if score is None else in_digits(score)
