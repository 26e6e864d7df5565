"""The strings that every report shows of its findings, and their order; it compares and decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, TypeVar

from gate.checks import owner, reasons
from gate.checks.check import Finding, JudgedRate
from gate.checks.detection import DetectionSettings
from gate.checks.drop import Drops
from gate.checks.range_words import describe_in_brief
from gate.checks.segments import Segments
from gate.errors import GateError
from gate.record import Record, recorded_policy
from gate.record.system import SystemRecord
from gate.report.numbers import (
    FLOAT_DIGITS,
    WIDE,
    Edges,
    beside,
    bounds,
    clean,
    grouped,
    one_in,
    share,
    signed_percent,
)
from gate.stored import exact
from gate.words import between, in_digits, listed, p_value, percent

MOST_NOT_ASKED = 20

VERDICTS = {
    ("run", "pass"): "PASS: {release} may ship",
    ("run", "fail"): "FAIL: {release} must not ship",
    ("run", "inconclusive"): "INCONCLUSIVE: the data cannot tell whether {release} may ship",
    ("check", "pass"): "PASS: {release} still keeps its contract",
    ("check", "fail"): "FAIL: {release} no longer keeps its contract",
    ("check", "inconclusive"): "INCONCLUSIVE: the data cannot tell whether {release} still keeps its contract",
}


def headline(record: Record) -> str:
    """Write the verdict in words, with the name of the release.

    A pass on benign rows alone says so: scores that flag no attack also keep every promise on false positives.
    """
    served = " as served" if record.calibrated else ""
    return VERDICTS[record.kind, record.outcome].format(release=clean(record.release)) + served + unseen(record)


def unseen(record: Record) -> str:
    return "; detection was not judged" if record.outcome == "pass" and record.malicious is None else ""


def unseen_by(record: SystemRecord) -> str:
    """Say whose detection was not judged: that of all detectors, or of those without malicious rows."""
    unseen = [facts.name for facts in record.detectors if facts.malicious_n is None]
    by = "" if len(unseen) == len(record.detectors) else f" by {clean(listed(unseen))}"
    return f"; detection{by} was not judged" if record.outcome == "pass" and unseen else ""


# --- one sentence in plain language -------------------------------------------------------------------------


def plain_reason(record: Record, brief: bool = False) -> str:
    """Say why in one sentence with numbers: what blocks, or else the target that comes nearest to its limit.

    A `brief` sentence leaves the numbers of a pass to the table beside it.
    """
    blocking = describe_blocking(record.findings, record)
    if blocking:
        return blocking
    targets = [f for f in record.findings if f.required and f.rate is not None and f.check.family == "fpr"]
    judged = [finding for finding in targets if not finding.waived]
    if not judged or record.outcome != "pass":
        return f"{record.reason[:1].upper()}{record.reason[1:]}"
    nearest = max(judged, key=_nearness)
    proven = all(finding.grade == "proven" for finding in judged)
    few = {1: "the required target", 2: "both required targets"}
    count = few.get(len(judged), f"all {len(judged)} required targets")
    stands = f"{'Proven' if proven else 'Within tolerance'} at {count}"
    if proven and (whole := proven_ranges(record)):
        stands += f" and from {listed(list(whole.values()))}"
    return stands if brief else f"{stands}; nearest to its limit: {_flags(nearest)}"


def proven_ranges(record: Record) -> dict[str, str]:
    """Name the ranges that are proven at every threshold, such as `10 to 0.1 %`."""
    return {
        clean(str(f.check)): between(percent(f.check.rate), percent(f.check.to))
        for f in record.findings
        if f.check.family == "ranges" and f.grade == "proven" and f.outcome == "pass" and f.check.rate and f.check.to
    }


def describe_blocking(findings: Iterable[Finding], record: Record | None = None) -> str:
    """Describe the first finding that blocks, with its numbers, and count the others; empty if nothing blocks."""
    blocking = [finding for finding in in_order(findings) if finding.blocks]
    if not blocking:
        return ""
    first, more = blocking[0], len(blocking) - 1
    said = f"{first.message[:1].upper()}{first.message[1:]}"
    if first.rate is not None:
        said = _describe_rate(first)
    elif first.range is not None:
        said = describe_in_brief(first.range, first.grade)
    elif first.check.kind == "tpr-drop" and record is not None:
        said = _describe_drop(record, first) or said
    elif first.check.segment:
        said = f"{clean(first.check.segment)}: {first.message}"
    return f"{said}; {more:,} more {'finding blocks' if more == 1 else 'findings block'} it" if more else said


def _nearness(finding: Finding) -> float:
    """Measure how much of the way from the target to an edge of its tolerance the interval goes."""
    rate = finding.rate
    assert rate is not None
    assert rate.target is not None
    target, (low, high), (least, most) = float(rate.target), rate.interval, map(float, rate.tolerance)
    above = (high - target) / (most - target) if most > target else 0.0
    below = (target - low) / (target - least) if 0 < least < target else 0.0
    return max(above, below)


def _describe_rate(finding: Finding) -> str:
    """Write `Flags 0.21 % of benign rows at the 0.1 % threshold; the policy allows 0.05 to 0.15 %`."""
    rate = finding.rate
    assert rate is not None
    said = _flags(finding)
    if finding.outcome == "fail":
        return said[:1].upper() + said[1:]
    interval = bounds(rate.interval, rate.tolerance)
    return f"{said[:1].upper()}{said[1:]}, and these {rate.tally.rows:,} rows leave {interval} possible"


def _describe_drop(record: Record, finding: Finding) -> str:
    """Write `Detects 74.6 % of malicious rows at the 1 % threshold, where v1 detected 86.2 %; the policy ...`."""
    drops, old = record.of(Drops), record.reference
    change = next((c for c in drops.anchors if c.fpr == finding.check.rate), None) if drops else None
    if change is None or old is None:
        return ""
    new, before = (share(tally.flagged, tally.rows) for tally in (change.new, change.old))
    said = f"Detects {new} of malicious rows at the {percent(change.fpr)} threshold, where "
    said += f"{clean(old.release)} detected {before}"
    try:
        settings = recorded_policy(record.policy).policy.settings(DetectionSettings)
    except GateError:
        return said
    lost = None if settings is None else settings.max_drop
    return said if lost is None else f"{said}; the policy allows a loss of {in_digits(lost * 100)} points"


def _flags(finding: Finding) -> str:
    rate = finding.rate
    assert rate is not None
    malicious = finding.check.kind == "tpr"
    observed = share(rate.tally.flagged, rate.tally.rows, rate.tolerance)
    at = "" if rate.target is None else f" at the {percent(rate.target)} threshold"
    where = f" of {clean(finding.check.segment)}" if finding.check.segment else ""
    verb, kind = ("detects", "malicious") if malicious else ("flags", "benign")
    least, most = rate.tolerance
    allowed = f"asks for {percent(least)}" if malicious else f"allows {between(percent(least), percent(most))}"
    return f"{verb} {observed} of {kind} rows{where}{at}; the policy {allowed}"


def not_asked(record: Record) -> str:
    """Name what a check left out: `overlap, floor (for want of fit rows); tpr@1% (for want of malicious rows)`."""
    needs: dict[str, list[str]] = {}
    for entry in record.not_asked[:MOST_NOT_ASKED]:
        needs.setdefault(clean(entry.needs), []).append(clean(str(entry.check)))
    more = len(record.not_asked) - MOST_NOT_ASKED
    listed = [f"{', '.join(checks)} (for want of {what})" for what, checks in needs.items()]
    return "; ".join([*listed, f"and {more:,} more"] if more > 0 else listed)


# --- findings as strings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One finding, ready to print; the cells from `target` on are empty if it is not about a rate."""

    check: str
    kind: str
    outcome: str
    weight: str
    reason: str
    because: str
    message: str
    remedy: str
    blocks: bool
    segment: str = ""
    target: str = ""
    target_one_in: str = ""
    score: str = ""
    threshold: str = ""
    exact_threshold: str = ""
    counted: str = ""
    observed: str = ""
    error: str = ""
    interval: str = ""
    interval_one_in: str = ""
    tolerance: str = ""
    tolerance_one_in: str = ""
    accepts: str = ""
    predicted: str = ""
    drift: str = ""
    effective: str = ""
    plain_interval: str = ""


@dataclass(frozen=True)
class RatedFinding:
    """A finding on a false-positive rate, with its numbers."""

    finding: Finding
    rate: JudgedRate

    @property
    def outcome(self) -> str:
        return self.finding.outcome

    @property
    def target(self) -> Decimal:
        assert self.rate.target is not None
        return self.rate.target

    @property
    def target_fpr(self) -> float:
        return float(self.target)

    @property
    def edges(self) -> tuple[float, float]:
        """The tolerance as it is drawn."""
        least, most = self.rate.tolerance
        return float(least), float(most)


_FindingOrRow = TypeVar("_FindingOrRow", Finding, Row)


def in_order(findings: Iterable[_FindingOrRow]) -> list[_FindingOrRow]:
    """Sort findings: first what blocks, proven violations before open ones; the rest as the record has it."""
    return sorted(findings, key=lambda f: (not f.blocks, f.blocks and f.outcome != "fail"))


def rated(findings: Iterable[Finding]) -> list[RatedFinding]:
    """Select the findings with numbers on a false-positive rate at one target."""
    return [
        RatedFinding(f, f.rate) for f in findings if f.rate is not None and f.check.kind == "fpr" and f.check.to is None
    ]


def shown_targets(record: Record) -> list[RatedFinding]:
    """List the targets in the order of the record, except that those that block come first."""
    return [found for found in rated(in_order(record.findings)) if found.finding.check.segment is None]


def target_rows(record: Record) -> list[Row]:
    return [rate_row(found) for found in shown_targets(record)]


def shown_segments(record: Record) -> list[RatedFinding]:
    """List the segments in the order of the record, worst first, except that those that block come before all."""
    return [found for found in rated(in_order(record.findings)) if found.finding.check.segment is not None]


def segment_rows(record: Record) -> list[Row]:
    return [rate_row(found) for found in shown_segments(record)]


def segment_words(record: Record) -> tuple[str, str]:
    """Say what one such row is called, and several: a segment has one for each of its targets."""
    counted: Segments | None = record.of(Segments)
    single = counted is None or len(counted.targets) <= 1
    return ("segment", "segments") if single else ("test of a segment", "tests of segments")


def _about(finding: Finding) -> str:
    check = owner(finding.check)
    return "benign" if check is None else check.about


def other_rows(record: Record) -> list[Row]:
    """List everything else that was checked: mostly the data."""
    numbered = {id(found.finding) for found in rated(record.findings)}
    rest = [f for f in in_order(record.findings) if id(f) not in numbered and _about(f) == "benign"]
    return [word_row(finding) for finding in rest]


def detection_findings(record: Record) -> list[Row]:
    """List what is said of malicious rows, in a place of its own: a calibrated detector may detect nothing."""
    return [word_row(f) for f in in_order(record.findings) if _about(f) == "malicious"]


def baseline_findings(record: Record) -> list[Row]:
    """List what is said of the release that this one is compared with."""
    return [word_row(f) for f in record.findings if _about(f) == "baseline"]


def weight(finding: Finding) -> str:
    """Say whether the finding counts: `required`, `waived` or `advisory`."""
    return "waived" if finding.waived else "required" if finding.required else "advisory"


def word_row(finding: Finding) -> Row:
    return Row(**_words(finding))


def _words(finding: Finding) -> dict[str, Any]:
    return {
        "check": clean(str(finding.check)),
        "kind": finding.check.kind,
        "segment": clean(finding.check.segment or ""),
        "outcome": finding.outcome,
        "weight": weight(finding),
        "reason": clean(finding.reason),
        "because": reasons().get(finding.reason, clean(finding.reason)),
        "message": clean(finding.message),
        "remedy": clean(finding.remedy or ""),
        "blocks": finding.blocks,
    }


def rate_row(found: RatedFinding) -> Row:
    rate, tally = found.rate, found.rate.tally
    words = _words(found.finding) | {
        "target": percent(found.target),
        "target_one_in": one_in(found.target, [found.target]),
        "score": in_digits(rate.score),
        "threshold": "none" if tally.threshold is None else f"{tally.threshold:.6g}",
        "exact_threshold": "none" if tally.threshold is None else f"{tally.threshold:.{FLOAT_DIGITS}g}",
        "counted": f"{grouped(tally.flagged)} / {grouped(tally.rows)}",
        "observed": share(tally.flagged, tally.rows, rate.tolerance, 4),
        "error": signed_percent(_relative_error(found)),
        "interval": bounds(rate.interval, rate.tolerance),
        "interval_one_in": _interval_one_in(rate),
        "tolerance": between(*(percent(edge) for edge in rate.tolerance)),
        "tolerance_one_in": _tolerance_one_in(rate.tolerance),
        "accepts": "none" if rate.accepts is None else " to ".join(map(grouped, rate.accepts)),
        "predicted": "" if rate.predicted is None else " to ".join(map(grouped, rate.predicted)),
        "drift": "" if rate.drift_p_value is None else p_value(rate.drift_p_value),
    }
    if rate.plain_interval is not None:
        words["effective"] = grouped(int(tally.independent_rows))
        words["plain_interval"] = bounds(rate.plain_interval, rate.tolerance)
    return Row(**words)


def _interval_one_in(rate: JudgedRate) -> str:
    """Write an interval as `1 in N`: a smaller rate has a larger N, so the low bound is rounded up, the other down."""
    low = one_in(exact(rate.interval[0]), rate.tolerance, ROUND_CEILING)
    high = one_in(exact(rate.interval[1]), rate.tolerance, ROUND_FLOOR)
    return f"{low} to {high}" if low else f"at most {high}"


def _tolerance_one_in(edges: Edges) -> str:
    low, high = (one_in(edge, [edge]) for edge in edges)
    return f"{low} to {high}" if low else f"at most {high}"


def _relative_error(found: RatedFinding) -> Decimal:
    """Compute the relative error from the counts: a float may lie on the wrong side of an edge that the rate is on."""
    rate = Fraction(found.rate.tally.flagged, found.rate.tally.rows)
    observed = WIDE.divide(Decimal(rate.numerator), Decimal(rate.denominator))
    ratios = [WIDE.divide(number, found.target) for number in (observed, *found.rate.tolerance)]
    error, *edges = (Context(prec=40).create_decimal(ratio) - 1 for ratio in ratios)
    return beside(error, edges, 3, "ROUND_HALF_EVEN")


def passed_checks(findings: list[Row]) -> list[str]:
    """Name the checks that pass; `granularity@10%` and the others of its kind are one name if all of them pass."""
    other = {row.kind for row in findings if row.outcome != "pass"} | {"fpr"}  # a range has its own name
    kinds = [(row.check, row.kind) for row in findings if row.outcome == "pass"]
    return list(dict.fromkeys(check if kind in other else kind for check, kind in kinds))


def each_remedy(findings: list[Row]) -> list[tuple[str, list[Row]]]:
    """List each remedy once, with the findings that it would help; a remedy that ends another is not listed alone."""
    said = list(dict.fromkeys(row.remedy for row in findings if row.remedy))
    whole = [remedy for remedy in said if not any(other != remedy and other.endswith(remedy) for other in said)]
    return [(remedy, [row for row in findings if row.remedy and remedy.endswith(row.remedy)]) for remedy in whole]


def by_remedy(findings: list[Row]) -> list[tuple[str, list[Row]]]:
    """Group findings: each remedy with all findings of one outcome that it would help."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in findings:
        groups.setdefault((row.remedy, row.outcome), []).append(row)
    return [(remedy, helped) for (remedy, _), helped in groups.items()]
