"""The verdict: the policy applied to the evidence by comparing counts. No file, no clock, no third-party code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from gate.errors import plural

if TYPE_CHECKING:
    from gate.comparison import Change, Comparison
    from gate.detection import Detected
    from gate.evidence import Evidence, Measurement, Use
    from gate.policy import Detection, DetectionTarget, Policy, Waiver
    from gate.samples import Ages, Resolution
    from gate.segments import SegmentEvidence, SegmentMeasurement
    from gate.statistics.binomial import CriticalCounts
    from gate.statistics.exchangeability import TailScan

Outcome = Literal["pass", "fail", "inconclusive"]
Grade = Literal["proven", "open", "refuted"]

MOST_SEGMENTS = 50  # findings; the record counts the others
NOT_JUDGED = "without malicious rows, detection was not judged"


@dataclass(frozen=True)
class Finding:
    """One check's outcome with its reason, in words that a person can act on."""

    check: str
    outcome: Outcome
    grade: Grade | None
    required: bool
    waived: bool
    reason: str
    message: str
    remedy: str | None
    accepts: tuple[int, int] | None = None
    measurement: Measurement | SegmentMeasurement | None = None
    detected: Detected | None = None
    change: Change | None = None

    @property
    def blocks(self) -> bool:
        return self.required and not self.waived and self.outcome != "pass"


@dataclass(frozen=True)
class WaiverUse:
    """What became of a waiver: `active` covers a finding, `expired` no longer does, `unused` had nothing to cover."""

    waiver: Waiver
    status: Literal["active", "expired", "unused"]


@dataclass(frozen=True)
class NotAsked:
    """What the policy asks of a release and a check cannot ask again, and what it would need."""

    check: str
    needs: Literal["fit rows", "ids or fit rows", "malicious rows", "another release"]


@dataclass(frozen=True)
class Verdict:
    """All findings and what follows from them."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverUse, ...]
    use: Use | None = None
    not_asked: tuple[NotAsked, ...] = ()


def judge(policy: Policy, evidence: Evidence, today: date) -> Verdict:
    """Fail if any required, unwaived finding fails; else inconclusive if any is; else pass."""
    covered = {waiver.check for waiver in policy.waivers if today <= waiver.expires}
    found = list(_all_findings(policy, evidence, covered, today))
    found += _not_measured(policy, evidence, {finding.check for finding in found})
    findings = tuple(
        replace(finding, waived=finding.check in covered and finding.outcome != "pass") for finding in found
    )
    blocking = {finding.outcome for finding in findings if finding.blocks}
    outcome: Outcome = "fail" if "fail" in blocking else "inconclusive" if blocking or not findings else "pass"
    uses = tuple(_waiver_use(waiver, findings, today) for waiver in policy.waivers)
    not_asked = tuple(_not_asked(policy, evidence))
    unseen = f"; {NOT_JUDGED}" if outcome == "pass" and evidence.detection is None else ""
    return Verdict(outcome, _whole_reason(outcome, findings) + unseen, findings, uses, evidence.use, not_asked)


def _not_asked(policy: Policy, evidence: Evidence) -> Iterator[NotAsked]:
    """In a check nothing is fitted and no other release is at hand, and malicious rows need not be."""
    detection = policy.checks.detection
    if not _is_check(evidence):
        return
    names = ["overlap", "exchangeability", *(granularity_check(found) for found in evidence.measurements), "floor"]
    for check in names:
        yield NotAsked(check, "fit rows")
    if evidence.duplicates is None:
        yield NotAsked("duplicates", "ids or fit rows")
    if evidence.direction is None:
        yield NotAsked("direction", "malicious rows")
    for target in detection.targets if detection and evidence.detection is None else ():
        yield NotAsked(target.check, "malicious rows")
    for target in detection.targets if detection and detection.max_drop is not None else ():
        yield NotAsked(target.drop_check, "another release")


def _not_measured(policy: Policy, evidence: Evidence, found: set[str]) -> Iterator[Finding]:
    """A check that the policy asks for, and of which there is neither a finding nor a reason why it was not asked."""
    checks = policy.checks
    asked: dict[str, tuple[bool, str]] = {target.check: (target.required, "held-out rows") for target in policy.targets}
    if any((evidence.overlap, evidence.tail_scan, evidence.resolution)):  # there are fit rows
        asked["overlap"] = (checks.overlap.required, "fit rows")
        asked["duplicates"] = (checks.duplicates.required, "fit rows")
        asked["exchangeability"] = (checks.exchangeability.required, "fit rows")
        asked["floor"] = (checks.floor.required, "fit rows")
    if checks.freshness is not None:
        asked["freshness"] = (checks.freshness.required, f"held-out rows with a column {policy.data.timestamp!r}")
    if checks.segments is not None:
        asked["segments"] = (checks.segments.required, f"held-out rows with a column {policy.data.segment!r}")
    for target in checks.detection.targets if checks.detection else ():
        asked[target.check] = (checks.detection is not None and checks.detection.required, "malicious rows")
    known = found | {entry.check for entry in _not_asked(policy, evidence)}
    for check, (required, needs) in asked.items():
        if check not in known:
            message = f"the policy asks for this, and nothing that was given shows it: it takes {needs}"
            yield _ungraded(check, "inconclusive", required, "not-measured", message, f"give {needs}")


def _is_check(evidence: Evidence) -> bool:
    return evidence.comparison is not None and evidence.comparison.itself


def _all_findings(policy: Policy, evidence: Evidence, covered: set[str], today: date) -> Iterator[Finding]:
    from gate.checks import duplicates, overlap  # which take pydantic; the others do without

    for measurement in evidence.measurements:
        yield judge_target(policy, measurement)
    if evidence.overlap is not None:
        yield _ungraded("overlap", *overlap.judge(policy.checks.overlap, evidence.overlap))
    if evidence.duplicates is not None:
        yield _ungraded("duplicates", *duplicates.judge(policy.checks.duplicates, evidence.duplicates))
    if evidence.tail_scan is not None:
        yield judge_exchangeability(policy, evidence.tail_scan)
    if evidence.resolution is not None:
        for measurement in evidence.measurements:
            yield judge_granularity(policy, evidence.resolution, measurement)
        yield judge_floor(policy, evidence.measurements)
    if policy.checks.freshness is not None and evidence.holdout_ages is not None:
        yield judge_freshness(policy, evidence.holdout_ages, evidence.fit_ages, today)
    if evidence.use is not None:
        yield judge_reuse(policy, evidence.use)
    if policy.checks.detection is not None and not (_is_check(evidence) and evidence.detection is None):
        for target in policy.checks.detection.targets:
            yield judge_detection(policy.rule, policy.checks.detection, target, evidence.detection)
    if evidence.direction is not None:
        from gate.checks import direction  # which takes pydantic and scipy; judging the rest does without

        alpha = policy.alpha(evidence.use.number if evidence.use else 1)
        yield _ungraded("direction", *direction.judge(policy.checks.direction, alpha, evidence.direction))
    if evidence.comparison is not None:
        yield judge_baseline(policy, evidence.comparison)
        yield from judge_drops(policy, evidence.comparison, evidence.detection is not None)
    elif evidence.first_release:
        message = "declared to be the first release: there is none to compare with"
        yield _ungraded("baseline", "pass", False, "first-release", message, None)
    else:
        yield from judge_missing_baseline(policy)
    if evidence.segments is not None:
        yield from judge_segments(policy, evidence.segments, covered)


def judge_target(policy: Policy, measured: Measurement) -> Finding:
    """One target by the policy's rule; the numbers are in the measurement, the decision is here."""
    grade = grade_count(measured)
    outcome, reason = _decide(policy.rule, measured, grade)
    reading = _reading(policy, measured, outcome, grade)
    return Finding(
        check=measured.check,
        outcome=outcome,
        grade=grade,
        required=measured.target.required,
        waived=False,
        reason=reason,
        message="; ".join(filter(None, [_message(measured, reason), _READINGS.get(reading)])),
        remedy=_DRIFT_REMEDY if reading == "drift" else _remedy(measured, reason),
        accepts=accepted_counts(policy.rule, measured),
        measurement=measured,
    )


def judge_exchangeability(policy: Policy, scan: TailScan) -> Finding:
    """Whether the held-out rows look like the fit rows over the whole upper half of the curve."""
    check = policy.checks.exchangeability
    differ = scan.p_value <= float(check.alpha)
    message = f"held-out and fit benign scores {'differ' if differ else 'can come from one population'}"
    message += f" (p = {scan.p_value:.4f})"
    if scan.worst is not None:
        message += (
            f"; most at the top {scan.worst.pooled:,} rows of both, {scan.worst.held_out:,} of them held out "
            f"where {scan.worst.expected:,.0f} would be on average"
        )
    outcome: Outcome = "fail" if differ else "pass"
    reason, remedy = ("differ", _DRIFT_REMEDY) if differ else ("exchangeable", None)
    return _ungraded("exchangeability", outcome, check.required, reason, message, remedy)


def judge_granularity(policy: Policy, resolution: Resolution, measured: Measurement) -> Finding:
    """Whether the fit scores are fine enough that some threshold has a rate inside the tolerance."""
    tied = measured.tied
    message = f"{resolution.n:,} fit rows have {plural(resolution.distinct, 'distinct score')}"
    message += f", the commonest of them in {plural(resolution.largest_tie, 'row')}"
    if tied is not None:
        low, high = (f"{flagged:,} ({100 * flagged / tied.n:.6g} %)" for flagged in (tied.above, tied.through))
        message += f"; a threshold here flags {low} or {high} of them"
    coarse = measured.unattainable
    return _ungraded(
        granularity_check(measured),
        "fail" if coarse else "pass",
        policy.checks.granularity.required,
        "granularity" if coarse else "fine",
        f"{message}, neither inside the tolerance" if coarse else message,
        _FINER_SCORES if coarse else None,
    )


def granularity_check(measured: Measurement) -> str:
    return f"granularity@{measured.check.partition('@')[2]}"


def judge_floor(policy: Policy, measurements: tuple[Measurement, ...]) -> Finding:
    """Whether the fit sample is large enough to have seen every target's rate."""
    below = [measured for measured in measurements if measured.extrapolated]
    required = policy.checks.floor.required
    if not below:
        return _ungraded("floor", "pass", required, "seen", "the fit sample shows every target's rate", None)
    names = _listed([measured.check for measured in below])
    message = f"the fit sample is too small to show the rate of {names}: the threshold is extrapolated"
    advised = [(measured.advice and measured.advice.again) or measured.fit_rows_to_support for measured in below]
    rows = max(advised)  # the same number as at the target, where that has one
    remedy = f"fit on at least {rows:,} benign rows whose highest scores are not tied"
    return _ungraded("floor", "inconclusive", required, "extrapolated", message, remedy)


def judge_freshness(policy: Policy, holdout: Ages, fit: Ages | None, today: date) -> Finding:
    """Whether every held-out row was seen within the days that the policy allows, and none is yet to come."""
    check = policy.checks.freshness
    assert check is not None
    age, remedy = (today - holdout.oldest).days, None
    message = f"held-out rows from {holdout.oldest} to {holdout.newest}"
    if (holdout.newest - today).days > 1:  # a day of grace for clocks and zones
        reason = "future"
        message += f", later than this release of {today}"
        remedy = f"look at column {policy.data.timestamp!r}: its times or their unit are wrong"
    else:
        reason = "stale" if age > check.max_age_days else "recent"
        message += f", the oldest {plural(max(age, 0), 'day')} old where {check.max_age_days:,} are allowed"
        remedy = f"hold out rows of the last {plural(check.max_age_days, 'day')}" if reason == "stale" else None
    message += f"; fit rows from {fit.oldest} to {fit.newest}" if fit is not None else ""
    return _ungraded("freshness", "fail" if remedy else "pass", check.required, reason, message, remedy)


def judge_segments(policy: Policy, evidence: SegmentEvidence, covered: set[str]) -> Iterator[Finding]:
    """How many segments there are, the expected that are absent, and the worst of the others by themselves.

    What a waiver covers comes last: a finding that is not shown blocks only where a shown one does.
    """
    check = policy.checks.segments
    required = check is not None and check.required
    decided = [(*_decide(policy.rule, m, _segment_grade(m)), m) for m in evidence.measurements]
    tests = len(decided)
    if check is None:  # nobody asked: only what these rows can judge is shown
        decided = [entry for entry in decided if entry[1] != "min-n"]

    def badness(entry: tuple[Outcome, str, SegmentMeasurement]) -> tuple[bool, int, float, str]:
        outcome, _, measured = entry
        rank = ("fail", "inconclusive", "pass").index(outcome)
        return outcome != "pass" and measured.check in covered, rank, measured.tail, measured.check

    decided.sort(key=badness)
    outcomes = [outcome for outcome, _, _ in decided]
    counted = [f"{outcomes.count(outcome):,} {outcome}" for outcome in ("fail", "inconclusive", "pass")]
    counted += [f"{tests - len(decided):,} with too few rows"] if tests > len(decided) else []
    counted += [f"{plural(len(evidence.missing), 'expected segment')} absent"] if evidence.missing else []
    message = f"{plural(len(evidence.names), 'segment')}, {plural(tests, 'test')}: {', '.join(counted)}"
    if len(decided) > MOST_SEGMENTS:
        message += f"; the worst {MOST_SEGMENTS} are shown"
    message += "" if check else "; for information, as the policy has no checks.segments"
    worst: Outcome = "fail" if "fail" in outcomes or evidence.missing else "pass"
    if worst == "pass" and "inconclusive" in outcomes:
        worst = "inconclusive"
    yield _ungraded("segments", worst, False, "counted", message, None)  # what blocks is each by itself
    for name in evidence.missing:
        yield _ungraded(
            f"segment/{evidence.column}={name}",
            "fail",
            required,
            "missing",
            "no held-out row belongs to this segment, which the policy expects",
            "hold out benign rows of this segment, or take it out of checks.segments.expect",
        )
    for outcome, reason, measured in decided[:MOST_SEGMENTS]:
        yield _of_segment(policy, outcome, reason, measured)


def judge_reuse(policy: Policy, use: Use) -> Finding:
    """Rows that have judged often enough no longer decide; without a limit in the policy they are only pointed out."""
    message = f"use {use.number} of these held-out rows"
    if use.earlier:
        shares = use.shared or (1.0,) * len(use.earlier)
        message += f", after {_listed([_told(*use_) for use_ in zip(use.earlier, shares, strict=True)][::-1])}"
    exhausted = policy.reuse is not None and use.number > policy.reuse.max_uses
    if policy.reuse is not None:
        message += f"; the intervals of this use miss at most {float(policy.alpha(use.number)):.2g} of the time"
    elif use.earlier:
        message += "; each further use makes a false pass likelier"
    fresh = "hold out benign rows that have judged no release yet"
    outcome: Outcome = "inconclusive" if exhausted else "pass"
    reason = "exhausted" if exhausted else "reused" if use.earlier else "fresh"
    return _ungraded("reuse", outcome, policy.reuse is not None, reason, message, fresh if exhausted else None)


def _told(release: str, share: float | None) -> str:
    """An earlier judgement, and how much of the smaller set of rows it shares where that is not all."""
    if share is None:
        return f"{release} (which shares an unknown part of them)"
    return release if share == 1 else f"{release} (which shares about {share * 100:.0f} % of the smaller set)"


def judge_detection(
    rule: str, check: Detection, target: DetectionTarget, detection: tuple[Detected, ...] | None
) -> Finding:
    """Whether enough malicious rows are detected at one anchor: the same three grades, with only a lower edge."""
    found = next((at for at in detection or () if at.target == target), None)
    if found is None or found.critical is None:
        message, remedy = (
            "no malicious rows were given",
            "give the detector's scores of malicious rows with --malicious",
        )
        return _ungraded(target.check, "inconclusive", check.required, "not-measured", message, remedy)
    grade, accepts = _grade(found.true_positives, found.critical), found.critical.passing(rule, found.malicious)
    outcome, reason = _decide_detection(rule, grade, _inside(accepts, found.true_positives))
    return Finding(
        check=target.check,
        outcome=outcome,
        grade=grade,
        required=check.required,
        waived=False,
        reason=reason,
        message=_detection_message(found, found.critical, target),
        remedy=_detection_remedy(rule, found, reason),
        accepts=accepts,
        detected=found,
    )


def judge_baseline(policy: Policy, comparison: Comparison) -> Finding:
    """Which release this one is held against. One that did not pass is shown, and nothing is judged against it."""
    old, detection = comparison.baseline, policy.checks.detection
    passed = old.outcome == "pass"
    itself = "its own release, " if comparison.itself else ""
    message = f"compared with {itself}{old.release} of {old.created[:10]}, which " + (
        "passed its own gate" if passed else f"did not pass its own gate ({old.outcome}) and so is no reference"
    )
    if comparison.policy_changes:
        weaker = sum(change.startswith("weaker") for change in comparison.policy_changes)
        changes = plural(len(comparison.policy_changes), "change")
        message += f"; {changes} in the policy since, {weaker or 'none'} of them weaker"
    return Finding(
        check="baseline",
        outcome="pass" if passed else "inconclusive",
        grade=None,
        required=not comparison.itself
        and detection is not None
        and detection.required
        and detection.max_drop is not None,
        waived=False,
        reason="passed" if passed else "did-not-pass",
        message=message,
        remedy=None if passed else "name a release that passed",
    )


def judge_drops(policy: Policy, comparison: Comparison, measured: bool) -> Iterator[Finding]:
    """Non-inferiority: detection may not fall below the baseline's by more than the policy's margin.

    A baseline that did not pass is no reference, which its own finding says, and a check is of one detector only.
    """
    check, passed = policy.checks.detection, comparison.baseline.outcome == "pass"
    if check is None or check.max_drop is None or comparison.itself or not measured or not passed:
        return
    changes = {change.anchor.fpr: change for change in comparison.malicious}
    for target in check.targets:
        yield judge_drop(policy.rule, check, target, changes.get(target.fpr), comparison.baseline.release)


def judge_missing_baseline(policy: Policy) -> Iterator[Finding]:
    """A drop that the policy limits and nobody measured is no pass; a first release must be declared to be one."""
    check = policy.checks.detection
    if check is None or check.max_drop is None:
        return
    for target in check.targets:
        message = "no baseline was given to compare with"
        remedy = "name the release that went before with --baseline DIR, or say --baseline none where there is none"
        yield _ungraded(target.drop_check, "inconclusive", check.required, "not-measured", message, remedy)


def judge_drop(rule: str, check: Detection, target: DetectionTarget, change: Change | None, release: str) -> Finding:
    """One anchor: the whole interval of the difference against the margin."""
    if change is None or change.interval is None or check.max_drop is None:
        why = "recorded no malicious rows" if change is None else "did not record what its grouped rows are worth"
        remedy = "give its scores of the malicious rows with --baseline-malicious"
        return _ungraded(target.drop_check, "inconclusive", check.required, "not-measured", f"{release} {why}", remedy)
    (low, high), edge = change.interval, -float(check.max_drop)
    grade: Grade = "proven" if low >= edge else "refuted" if high < edge else "open"
    new, old = (Fraction(side.flagged, side.rows) for side in (change.new, change.old))
    inside = rule == "not-refuted" or (rule == "observed" and new - old >= -Fraction(check.max_drop))
    outcome, reason = _decide_detection(rule, grade, inside)
    return Finding(
        check=target.drop_check,
        outcome=outcome,
        grade=grade,
        required=check.required,
        waived=False,
        reason="dropped" if reason == "missed" else reason,
        message=_drop_message(change, edge, release),
        remedy=_drop_remedy(outcome, change),
        change=change,
    )


def _decide_detection(rule: str, grade: Grade, accepted: bool) -> tuple[Outcome, str]:
    if grade == "refuted":
        return "fail", "missed"
    if grade == "proven":
        return "pass", "proven"
    if accepted:
        return "pass", rule
    return "inconclusive", "open" if rule == "proven" else "outside"


def grade_count(measured: Measurement) -> Grade:
    """What the count proves by itself, whatever the rule."""
    return _grade(measured.false_positives, measured.critical)


def _grade(k: int, critical: CriticalCounts) -> Grade:
    if _inside(critical.proven, k):
        return "proven"
    if critical.refuted_at_or_below is not None and k <= critical.refuted_at_or_below:
        return "refuted"
    if critical.refuted_at_or_above is not None and k >= critical.refuted_at_or_above:
        return "refuted"
    return "open"


def accepted_counts(rule: str, measured: Measurement) -> tuple[int, int] | None:
    """The smallest and largest count that passes on these rows, or None where no count does."""
    if measured.effective_n < measured.target.min_n:
        return None
    return measured.critical.passing(_rule_for(rule, measured), measured.benign)


def _rule_for(rule: str, measured: Measurement | SegmentMeasurement) -> str:
    """An extrapolated threshold is believed only when proven on held-out rows."""
    return "proven" if measured.extrapolated else rule


def _decide(rule: str, measured: Measurement | SegmentMeasurement, grade: Grade) -> tuple[Outcome, str]:
    if grade == "refuted":
        if measured.threshold is None:
            return "fail", "unreachable"
        if measured.unattainable:
            return "fail", "granularity"
        return "fail", "too-many" if measured.relative_error > 0 else "too-few"
    # Where nothing is ever flagged, more rows bring no false positive, and a band above zero none to pass on.
    stuck = measured.threshold is None and measured.tolerance[0] > 0 and _rule_for(rule, measured) != "not-refuted"
    if stuck:
        return "inconclusive", "unreachable"
    if measured.effective_n < measured.target.min_n:
        return "inconclusive", "min-n"
    if grade == "proven":
        return "pass", "proven"
    believed = _rule_for(rule, measured)
    if believed == "not-refuted" or (believed == "observed" and measured.inside):
        return "pass", rule
    if measured.unattainable:
        return "inconclusive", "granularity"
    if measured.extrapolated:
        return "inconclusive", "extrapolated"
    return "inconclusive", "open" if rule == "proven" else "outside"


def _segment_grade(measured: SegmentMeasurement) -> Grade:
    return "refuted" if measured.refuted else "proven" if measured.proven else "open"


def _of_segment(policy: Policy, outcome: Outcome, reason: str, measured: SegmentMeasurement) -> Finding:
    counted = f"{plural(measured.false_positives, 'false positive')} in {plural(measured.benign, 'benign row')}"
    if measured.effective_n < measured.benign:
        counted += f", in groups worth {int(measured.effective_n):,} independent ones"
    if reason == "min-n":
        counted += f", {measured.target.min_n:,} wanted"
    if reason in ("too-many", "too-few"):
        counted += f"; disproved even as one of {plural(measured.tests, 'test')}"
    return Finding(
        check=measured.check,
        outcome=outcome,
        grade=_segment_grade(measured),
        required=measured.target.required,
        waived=False,
        reason=reason,
        message=counted,
        remedy=_segment_remedy(policy.rule, measured, outcome, reason),
        measurement=measured,
    )


def _segment_remedy(rule: str, measured: SegmentMeasurement, outcome: Outcome, reason: str) -> str | None:
    if outcome == "pass":
        return None
    if reason in ("too-many", "too-few"):
        return "find out how benign rows of this segment differ: the calibrator fits them together with the others"
    if reason == "unreachable":
        return _UNREACHABLE
    advice = measured.advice(_rule_for(rule, measured))
    if not advice.computed:
        return f"hold out more benign rows of this segment: {_NOT_COMPUTED}"
    rows = advice.more
    if rows is None:
        return "find out how benign rows of this segment differ: at the rate observed no number of rows would pass"
    more = f"hold out {rows - measured.benign:,} more benign rows of this segment ({rows:,} in all)"
    return f"{more}: at the rate observed, it {_PROMISE}"


def _ungraded(check: str, outcome: Outcome, required: bool, reason: str, message: str, remedy: str | None) -> Finding:
    return Finding(check, outcome, None, required, False, reason, message, remedy)


def _inside(counts: tuple[int, int] | None, k: int) -> bool:
    return counts is not None and counts[0] <= k <= counts[1]


# --- sentences ----------------------------------------------------------------------------------------------


def _overall_reason(outcome: Outcome, findings: tuple[Finding, ...]) -> str:
    if outcome == "pass":
        targets = [f for f in findings if f.required and f.measurement is not None and "/" not in f.check]
        required = [finding for finding in targets if not finding.waived]
        proven = sum(finding.grade == "proven" for finding in required)
        waived = sum(finding.waived for finding in findings)
        aside = f"; {plural(waived, 'finding')} waived" if waived else ""
        if not required:
            none = "every required target is waived" if targets else "no target is required"
            return f"{none}{aside}"
        if proven == len(required):
            return f"{plural(proven, 'required target')} proven on held-out benign rows{aside}"
        return (
            f"{plural(len(required), 'required target')} passed on held-out benign rows, {proven} of them proven{aside}"
        )
    blocking = [finding for finding in findings if finding.blocks and finding.outcome == outcome]
    if outcome == "fail":
        disproved = [finding.check for finding in blocking if finding.measurement is not None]
        parts = [f"the held-out benign rows disprove {_listed(disproved)}"] if disproved else []
        reasons = {finding.reason: finding for finding in blocking if finding.measurement is None}
        parts += [sentence for reason, sentence in _DATA_FAILURES.items() if reason in reasons]
        return "; ".join(parts)
    undecided = [f.check for f in blocking if f.measurement is not None and f.reason != "min-n"]
    too_few = [finding.check for finding in blocking if finding.reason == "min-n"]
    parts = [f"the held-out benign rows neither prove nor disprove {_listed(undecided)}"] if undecided else []
    parts += [f"too few held-out benign rows for {_listed(too_few)}"] if too_few else []
    lacking = [finding.check for finding in blocking if finding.reason == "not-measured"]
    parts += [f"{_listed(lacking)} could not be measured"] if lacking else []
    parts += ["the held-out rows have judged too often"] if any(f.reason == "exhausted" for f in blocking) else []
    repeated = any(finding.reason == "repeated-scores" for finding in blocking)
    parts += ["rows repeat inside one sample, so that some count more than once"] if repeated else []
    parts += ["the fit sample does not reach every target"] if any(f.check == "floor" for f in blocking) else []
    return "; ".join(parts) or "nothing was measured"


_DATA_FAILURES = {
    "reversed": "malicious rows are flagged less often than benign ones",
    "shared-rows": "held-out rows are among the fit rows",
    "shared-scores": "most held-out rows have the scores of fit rows",
    "shared-groups": "held-out and fit rows share groups",
    "repeated-ids": "too many rows repeat the id of another",
    "differ": "held-out and fit benign rows differ",
    "granularity": "the scores are too coarse for a target",
    "stale": "held-out rows are too old",
    "future": "held-out rows lie in the future",
    "missing": "expected segments have no held-out row",
}


def _whole_reason(outcome: Outcome, findings: tuple[Finding, ...]) -> str:
    """What the benign rows say, then what the malicious ones and the baseline do."""
    others = [finding for finding in findings if finding.check.startswith(("tpr", "baseline"))]
    benign = tuple(finding for finding in findings if not finding.check.startswith(("tpr", "baseline")))
    if outcome == "pass":
        passed = sum(finding.required and finding.check != "baseline" for finding in others)
        aside = f"; {plural(passed, 'detection check')} passed" if passed else ""
        return _overall_reason(outcome, benign) + aside
    blocking = [finding for finding in others if finding.blocks and finding.outcome == outcome]
    lacking = [finding.check for finding in blocking if finding.reason == "not-measured"]
    decided = [finding.check for finding in blocking if finding.check not in ("baseline", *lacking)]
    parts = [_overall_reason(outcome, benign)] if any(f.blocks and f.outcome == outcome for f in benign) else []
    verb = "disprove" if outcome == "fail" else "neither prove nor disprove"
    parts += [f"the malicious rows {verb} {_listed(decided)}"] if decided else []
    parts += [f"{_listed(lacking)} could not be measured"] if lacking else []
    parts += ["the baseline did not pass its own gate"] if any(f.check == "baseline" for f in blocking) else []
    return "; ".join(parts) or "nothing was measured"


def _listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 more`."""
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


_READINGS: dict[str | None, str] = {
    "noise": "at this rate the two samples agree, so this is noise: it takes more benign rows, not another model",
    "threshold": "at this rate the two samples agree, so the fit sample put the threshold off",
    "drift": "held-out benign rows differ from fit benign rows: drift, leakage, duplicates or other preprocessing",
    "look": "within tolerance, but the two samples differ: look before relying on it",
}
_FINER_SCORES = "more rows cannot help: give the detector finer scores or drop this target"
_UNREACHABLE = (
    "more held-out rows cannot help: too many benign rows share the highest scores; "
    "give the detector finer scores or drop this target"
)
_PROMISE = "then passes 95 % of the time"
_NOT_COMPUTED = "how many would do was not computed"
_MOST_ROWS = 10**10  # that a record may hold
_DRIFT_REMEDY = "find out what differs between fit and held-out benign rows, then fit on rows like those to come"


def _reading(policy: Policy, measured: Measurement, outcome: Outcome, grade: Grade) -> str | None:
    """Noise or drift: which of the four readings a finding has, by the test of the two samples at its rate."""
    if measured.drift is None:
        return None
    differ = measured.drift.p_value <= float(policy.checks.exchangeability.alpha)
    if outcome == "pass":
        return "look" if differ else None
    if differ:
        return "drift"
    if measured.threshold is None or measured.unattainable:
        return None
    return "threshold" if grade == "refuted" else "noise"


def _message(measured: Measurement, reason: str) -> str:
    counted = f"{plural(measured.false_positives, 'false positive')} in {plural(measured.benign, 'benign row')}"
    if measured.effective_n < measured.benign:
        counted += f", in groups worth {int(measured.effective_n):,} independent ones"
    if measured.threshold is None:
        counted += "; no raw score reaches this anchor, so nothing is ever flagged there"
    elif reason == "granularity" and measured.tied is not None:
        tied = measured.tied
        counted += (
            f"; {tied.through - tied.above:,} of {tied.n:,} fit rows share one score here, so a threshold flags "
            f"{tied.above:,} of them or {tied.through:,}, neither inside the tolerance"
        )
    elif measured.extrapolated:
        counted += "; the threshold is extrapolated beyond the fit sample"
    return f"{counted}; {_deciding_counts(measured, reason)}"


def _deciding_counts(measured: Measurement, reason: str) -> str:
    """`126 to 148 prove it, 84 or fewer or 201 or more refute it`."""
    critical = measured.critical
    proven = "no count proves it"
    if reason == "min-n":
        independent = "independent " if measured.effective_n < measured.benign else ""
        proven = f"no count passes on fewer than {measured.target.min_n:,} {independent}rows"
    elif critical.proven:
        low, high = critical.proven
        proven = f"{low:,} to {high:,} prove it" if low < high else f"only {low:,} proves it"
    limits = []
    if critical.refuted_at_or_below is not None:
        few = critical.refuted_at_or_below
        limits.append(f"{few:,} or fewer" if few else "none at all")
    if critical.refuted_at_or_above is not None:
        limits.append(f"{critical.refuted_at_or_above:,} or more")
    return f"{proven}, {' or '.join(limits)} refute it" if limits else f"{proven}, no count refutes it"


def _remedy(measured: Measurement, reason: str) -> str | None:
    """What would turn the finding green, and how often; None where it is."""
    if reason in ("proven", "observed", "not-refuted"):
        return None
    if reason == "unreachable":
        return _UNREACHABLE
    if reason == "granularity":
        return _FINER_SCORES
    advice, target = measured.advice, measured.target
    if advice is None:
        return f"fit on at least {measured.fit_rows_to_support:,} benign rows whose highest scores are not tied"
    like = ", in groups like these" if measured.effective_n < measured.benign else ""
    if advice.more is not None and advice.fresh:
        rows = f"hold out {advice.more:,} benign rows that have judged no release yet{like}"
        return f"{rows}: a sound release with this count {_PROMISE}"
    if advice.more is not None:
        rows = f"hold out {advice.more - measured.benign:,} more benign rows ({advice.more:,} in all){like}"
        return f"{rows}: a sound release with this count {_PROMISE}"
    if advice.again is not None:
        rows = f"fit on {advice.again:,} fresh benign rows like those to come and hold out as many others{like}"
        return f"{rows}: a sound release {_PROMISE}"
    if not advice.computed:
        return f"hold out more benign rows, or fit again: {_NOT_COMPUTED}; `gate plan` looks further"
    if target.min_n > _MOST_ROWS * measured.effective_n / measured.benign:
        return f"lower the min_n of {target.min_n:,}: gate judges at most {_MOST_ROWS:,} rows"
    none = f"no number of rows up to {_MOST_ROWS:,} lets a sound release pass 95 % of the time"
    return f"widen max_relative_error or drop this target: {none}"


def _detection_message(found: Detected, critical: CriticalCounts, target: DetectionTarget) -> str:
    """`812 of 1,000 malicious rows detected; 825 or more prove the minimum of 80 %, 773 or fewer refute it`."""
    counted = f"{found.true_positives:,} of {plural(found.malicious, 'malicious row')} detected"
    if found.effective_n < found.malicious:
        counted += f", in groups worth {int(found.effective_n):,} independent ones"
    if found.threshold is None:
        counted += "; no raw score reaches this anchor, so nothing is ever detected there"
    minimum = f"the minimum of {float(target.min_tpr) * 100:.10g} %"
    proven = f"{critical.proven[0]:,} or more prove {minimum}" if critical.proven else f"no count proves {minimum}"
    few = critical.refuted_at_or_below
    refuted = (
        "no count refutes it" if few is None else f"{few:,} or fewer refute it" if few else "none at all refutes it"
    )
    return f"{counted}; {proven}, {refuted}"


def _detection_remedy(rule: str, found: Detected, reason: str) -> str | None:
    if reason == "missed":
        return "train the detector further: it catches too few malicious rows, and no calibration changes that"
    if reason not in ("open", "outside"):
        return None
    if found.advice is not None and found.advice.more is not None:
        rows = found.advice.more
        more = f"score {rows - found.malicious:,} more malicious rows ({rows:,} in all)"
        return f"{more}: at the rate observed, a release {_PROMISE}"
    if found.advice is not None and not found.advice.computed:
        return f"score more malicious rows: {_NOT_COMPUTED}"
    if rule == "proven":
        return "train the detector further: no number of rows in reach proves a rate so near, at or below the minimum"
    return "train the detector further: the rate observed lies below the minimum, though not provably"


def _drop_message(change: Change, edge: float, release: str) -> str:
    new, old, (low, high) = change.new, change.old, change.interval or (-1.0, 1.0)
    same = "on the same rows" if change.pairs is not None else "taken as different rows"
    counted = f"{new.flagged:,} of {plural(new.rows, 'malicious row')} detected, {old.flagged:,} of {old.rows:,}"
    return (
        f"{counted} by {release}, {same}; a change of {_points(change.difference, edge, round)} points, between "
        f"{_points(low, edge, math.floor)} and {_points(high, edge, math.ceil)}, where {-edge * 100:.10g} may be lost"
    )


def _drop_remedy(outcome: Outcome, change: Change) -> str | None:
    if outcome == "pass":
        return None
    if outcome == "fail":
        return "find out which malicious rows are no longer detected, and train the detector on rows like them"
    if change.pairs is None:
        return "compare row by row with --baseline-malicious, or score more malicious rows"
    return "score more malicious rows by both releases"


def _points(share: float, edge: float, rounded: Callable[[float], float]) -> str:
    """A difference in percentage points, rounded so that it stays on its side of the edge."""
    shown = share * 100
    for digits in range(2, 15):
        near = rounded(share * 100 * 10**digits) / 10**digits
        if (near < edge * 100) == (share < edge) and (near > edge * 100) == (share > edge):
            shown = near
            break
    return f"{shown + 0.0:+.10g}"


def _waiver_use(waiver: Waiver, findings: tuple[Finding, ...], today: date) -> WaiverUse:
    if waiver.expires < today:
        return WaiverUse(waiver, "expired")
    covers = any(finding.check == waiver.check and finding.waived for finding in findings)
    return WaiverUse(waiver, "active" if covers else "unused")
