"""The verdict: the policy applied to the evidence by comparing counts. No file, no clock, no third-party code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Literal

from gate.errors import plural

if TYPE_CHECKING:
    from gate.binomial import CriticalCounts
    from gate.evidence import Evidence, Measurement, Use
    from gate.exchangeability import TailScan
    from gate.policy import Policy, Waiver

Outcome = Literal["pass", "fail", "inconclusive"]
Grade = Literal["proven", "open", "refuted"]


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
    measurement: Measurement | None = None

    @property
    def blocks(self) -> bool:
        return self.required and not self.waived and self.outcome != "pass"


@dataclass(frozen=True)
class WaiverUse:
    """What became of a waiver: `active` covers a finding, `expired` no longer does, `unused` had nothing to cover."""

    waiver: Waiver
    status: Literal["active", "expired", "unused"]


@dataclass(frozen=True)
class Verdict:
    """All findings and what follows from them."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverUse, ...]
    use: Use | None = None
    scan: TailScan | None = None


def judge(policy: Policy, evidence: Evidence, today: date) -> Verdict:
    """Fail if any required, unwaived finding fails; else inconclusive if any is; else pass."""
    covered = {waiver.check for waiver in policy.waivers if today <= waiver.expires}
    findings = tuple(
        replace(finding, waived=finding.check in covered and finding.outcome != "pass")
        for finding in _all_findings(policy, evidence)
    )
    blocking = {finding.outcome for finding in findings if finding.blocks}
    outcome: Outcome = "fail" if "fail" in blocking else "inconclusive" if blocking or not findings else "pass"
    uses = tuple(_waiver_use(waiver, findings, today) for waiver in policy.waivers)
    return Verdict(outcome, _overall_reason(outcome, findings), findings, uses, evidence.use, evidence.tail_scan)


def _all_findings(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    for measurement in evidence.measurements:
        yield judge_target(policy, measurement)
    if evidence.tail_scan is not None:
        yield judge_exchangeability(policy, evidence.tail_scan)
    if evidence.use is not None:
        yield judge_reuse(policy, evidence.use)


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
        remedy=_DRIFT_REMEDY if reading == "drift" else _remedy(policy.rule, measured, reason),
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
    return Finding(
        check="exchangeability",
        outcome="fail" if differ else "pass",
        grade=None,
        required=check.required,
        waived=False,
        reason="differ" if differ else "exchangeable",
        message=message,
        remedy=_DRIFT_REMEDY if differ else None,
    )


def judge_reuse(policy: Policy, use: Use) -> Finding:
    """Rows that have judged often enough no longer decide; without a limit in the policy they are only pointed out."""
    message = f"use {use.number} of these held-out rows"
    if use.earlier:
        message += f", after {_listed(list(use.earlier[::-1]))}"
    exhausted = policy.reuse is not None and use.number > policy.reuse.max_uses
    if policy.reuse is not None:
        message += f"; the intervals of this use miss at most {float(policy.alpha(use.number)):.2g} of the time"
    elif use.earlier:
        message += "; each further use makes a false pass likelier"
    fresh = "hold out benign rows that have judged no release yet"
    return Finding(
        check="reuse",
        outcome="inconclusive" if exhausted else "pass",
        grade=None,
        required=policy.reuse is not None,
        waived=False,
        reason="exhausted" if exhausted else "reused" if use.earlier else "fresh",
        message=message,
        remedy=fresh if exhausted else None,
    )


def grade_count(measured: Measurement) -> Grade:
    """What the count proves by itself, whatever the rule."""
    k, critical = measured.false_positives, measured.critical
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
    return passing_counts(_rule_for(rule, measured), measured.critical, measured.benign)


def passing_counts(rule: str, critical: CriticalCounts, n: int) -> tuple[int, int] | None:
    """The smallest and largest count of n rows that a rule lets pass, whatever the policy's minimum of rows."""
    if rule == "proven":
        return critical.proven
    if rule == "observed":
        return critical.observed
    low = -1 if critical.refuted_at_or_below is None else critical.refuted_at_or_below
    high = n + 1 if critical.refuted_at_or_above is None else critical.refuted_at_or_above
    return (low + 1, high - 1) if low + 1 < high else None


def _rule_for(rule: str, measured: Measurement) -> str:
    """An extrapolated threshold is believed only when proven on held-out rows."""
    return "proven" if measured.extrapolated else rule


def _decide(rule: str, measured: Measurement, grade: Grade) -> tuple[Outcome, str]:
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
    if _inside(accepted_counts(rule, measured), measured.false_positives):
        return "pass", rule
    if measured.unattainable:
        return "inconclusive", "granularity"
    if measured.extrapolated:
        return "inconclusive", "extrapolated"
    return "inconclusive", "open" if rule == "proven" else "outside"


def _inside(counts: tuple[int, int] | None, k: int) -> bool:
    return counts is not None and counts[0] <= k <= counts[1]


# --- sentences ----------------------------------------------------------------------------------------------


def _overall_reason(outcome: Outcome, findings: tuple[Finding, ...]) -> str:
    if outcome == "pass":
        required = [f for f in findings if f.required and not f.waived and f.measurement is not None]
        proven = sum(finding.grade == "proven" for finding in required)
        waived = sum(finding.waived for finding in findings)
        aside = f"; {plural(waived, 'finding')} waived" if waived else ""
        if not required:
            all_waived = any(f.required and f.measurement is not None for f in findings)
            none = "every required target is waived" if all_waived else "no target is required"
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
        parts += ["held-out and fit benign rows differ"] if len(disproved) < len(blocking) else []
        return "; ".join(parts)
    undecided = [finding.check for finding in blocking if finding.reason not in ("min-n", "exhausted")]
    too_few = [finding.check for finding in blocking if finding.reason == "min-n"]
    parts = [f"the held-out benign rows neither prove nor disprove {_listed(undecided)}"] if undecided else []
    parts += [f"too few held-out benign rows for {_listed(too_few)}"] if too_few else []
    parts += ["the held-out rows have judged too often"] if any(f.reason == "exhausted" for f in blocking) else []
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
    if reason == "min-n":
        counted += f", {measured.target.min_n:,} wanted"
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
    return f"{counted}; {_deciding_counts(measured)}"


def _deciding_counts(measured: Measurement) -> str:
    """`126 to 148 prove it, 84 or fewer or 201 or more refute it`."""
    critical = measured.critical
    proven = "no count proves it"
    if critical.proven:
        low, high = critical.proven
        proven = f"{low:,} to {high:,} prove it" if low < high else f"only {low:,} proves it"
    limits = []
    if critical.refuted_at_or_below is not None:
        few = critical.refuted_at_or_below
        limits.append(f"{few:,} or fewer" if few else "none at all")
    if critical.refuted_at_or_above is not None:
        limits.append(f"{critical.refuted_at_or_above:,} or more")
    return f"{proven}, {' or '.join(limits)} refute it" if limits else f"{proven}, no count refutes it"


def _remedy(rule: str, measured: Measurement, reason: str) -> str | None:
    """What would turn the finding green; None where it is."""
    if reason in ("proven", "observed", "not-refuted"):
        return None
    if reason == "unreachable":
        return (
            "more held-out rows cannot help: too many benign rows share the highest scores; "
            "give the detector finer scores or drop this target"
        )
    if reason == "granularity":
        return "more rows cannot help: give the detector finer scores or drop this target"
    if reason == "too-many":
        return "refit on more, or more recent, benign rows: at this threshold the true rate exceeds the tolerance"
    if reason == "too-few":
        return "refit on more, or more recent, benign rows: at this threshold the true rate is below the tolerance"
    if reason == "extrapolated" and rule != "proven":
        fit = f"fit on at least {measured.fit_rows_to_support:,} benign rows whose highest scores are not tied"
        return f"{fit}, or {_more_rows(rule, measured)}" if measured.rows_to_prove else fit
    return _more_rows(rule, measured)


def _more_rows(rule: str, measured: Measurement) -> str:
    """How many rows would pass at the observed rate, as far as any number would."""
    k, n, min_n, rule = measured.false_positives, measured.benign, measured.rows_wanted, _rule_for(rule, measured)
    if rule == "proven":
        if measured.rows_to_prove is None:
            return "no number of rows in reach proves a rate so near, at or beyond the edge: refit on more benign rows"
        wanted = measured.rows_to_prove
    elif n >= min_n:
        return "hold out more benign rows: the observed rate lies outside the tolerance, but not provably"
    elif _inside(passing_counts(rule, measured.critical_at_min_n, min_n), min_n * k // n):
        wanted = min_n
    elif _inside(measured.critical.observed, k):  # only rounding puts the count outside: a multiple of n needs none
        wanted = -(-min_n // n) * n
    else:
        more = f"hold out {min_n - n:,} more benign rows ({min_n:,} in all)"
        return f"{more}; at the observed rate, outside the tolerance, they would not pass"
    return f"hold out {wanted - n:,} more benign rows ({wanted:,} in all) at this rate"


def _waiver_use(waiver: Waiver, findings: tuple[Finding, ...], today: date) -> WaiverUse:
    if waiver.expires < today:
        return WaiverUse(waiver, "expired")
    covers = any(finding.check == waiver.check and finding.waived for finding in findings)
    return WaiverUse(waiver, "active" if covers else "unused")
