"""The strings that every report shows: numbers that cannot contradict the verdict, names that cannot do harm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, TypeVar

from gate.checks import reasons
from gate.checks.check import Finding, JudgedRate
from gate.errors import visible
from gate.record import Record

MOST_NOT_ASKED = 20
FLOAT_DIGITS = 17  # enough to tell any two float64 numbers apart
THIN_SPACE = "\u202f"  # narrow, and no line breaks at it
_WIDE = Context(prec=60)
_GROUPS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

HEADLINES = {
    "pass": "PASS: this release may ship",
    "fail": "FAIL: this release must not ship",
    "inconclusive": "INCONCLUSIVE: the data cannot tell whether this release may ship",
}

CHECK_HEADLINES = {
    "pass": "PASS: the contract still holds",
    "fail": "FAIL: the contract no longer holds",
    "inconclusive": "INCONCLUSIVE: the data cannot tell whether the contract still holds",
}


def headline(record: Record) -> str:
    """What the outcome means: of a release, whether it may ship; of a check, whether its contract still holds.

    A pass on benign rows alone says so: scores that flag no attack at all keep every promise on false positives.
    """
    shown = (CHECK_HEADLINES if record.kind == "check" else HEADLINES)[record.outcome]
    return shown if record.outcome != "pass" or record.malicious else f"{shown}; detection was not judged"


def not_asked(record: Record) -> str:
    """What a check left out: `overlap, floor (for want of fit rows); tpr@1% (for want of malicious rows)`."""
    needs: dict[str, list[str]] = {}
    for entry in record.not_asked[:MOST_NOT_ASKED]:
        needs.setdefault(clean(entry.needs), []).append(clean(str(entry.check)))
    more = len(record.not_asked) - MOST_NOT_ASKED
    listed = [f"{', '.join(checks)} (for want of {what})" for what, checks in needs.items()]
    return "; ".join([*listed, f"and {more:,} more"] if more > 0 else listed)


@dataclass(frozen=True)
class FprFinding:
    """A finding on a false-positive rate, with its numbers as floats for figures and as they are for tables."""

    entry: Finding
    rate: JudgedRate

    @property
    def outcome(self) -> str:
        return self.entry.outcome

    @property
    def target(self) -> Decimal:
        assert self.rate.target is not None
        return self.rate.target

    @property
    def target_fpr(self) -> float:
        return float(self.target)

    @property
    def score(self) -> float:
        return float(self.rate.score)

    @property
    def threshold(self) -> float | None:
        return self.rate.tally.threshold

    @property
    def false_positives(self) -> int:
        return self.rate.tally.flagged

    @property
    def benign(self) -> int:
        return self.rate.tally.rows

    @property
    def observed_fpr(self) -> float:
        return self.rate.tally.rate

    @property
    def interval(self) -> tuple[float, float]:
        return self.rate.interval

    @property
    def tolerance(self) -> tuple[float, float]:
        return self.rate.tolerance


@dataclass(frozen=True)
class Row:
    """One finding, ready to print; the cells from `target` on are empty where it is not about an FPR."""

    check: str
    kind: str
    outcome: str
    standing: str
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
    observed_one_in: str = ""
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


# --- which findings stand where -----------------------------------------------------------------------------


def is_segment(finding: Finding) -> bool:
    """`fpr@0.1%/language=de` is the target `fpr@0.1%` on a part of the rows."""
    return finding.rate is not None and finding.check.family == "segments"


_Found = TypeVar("_Found", Finding, Row)


def in_order(findings: Iterable[_Found]) -> list[_Found]:
    """What blocks the release first, a proven violation before what is open; the rest as the record has it."""
    return sorted(findings, key=lambda f: (not f.blocks, f.blocks and f.outcome != "fail"))


def fpr_findings(findings: Iterable[Finding]) -> list[FprFinding]:
    """Those on a false-positive rate that have numbers."""
    return [FprFinding(f, f.rate) for f in findings if f.rate is not None and f.check.kind == "fpr"]


def shown_targets(record: Record) -> list[Finding]:
    return [found.entry for found in fpr_findings(in_order(record.findings)) if not is_segment(found.entry)]


def rows(record: Record, separator: str = ",") -> list[Row]:
    """The targets, in the order of the record but for those that block."""
    return numbered_rows(shown_targets(record), separator)


def segment_rows(record: Record, separator: str = ",") -> list[Row]:
    """The segments, in the order of the record, which is worst first, but for those that block."""
    return numbered_rows(filter(is_segment, in_order(record.findings)), separator)


def numbered_rows(findings: Iterable[Finding], separator: str = ",") -> list[Row]:
    """Those of the findings that have the numbers of an FPR check."""
    return [_fpr_row(found, separator) for found in fpr_findings(findings)]


def other_rows(record: Record, separator: str = ",") -> list[Row]:
    """Everything else that was checked: the data, mostly."""
    numbered = {id(found.entry) for found in fpr_findings(record.findings)}
    rest = [f for f in in_order(record.findings) if id(f) not in numbered and f.check.kind not in _APART]
    return [Row(**_words(f, separator)) for f in rest]


_APART = ("tpr", "tpr-drop", "baseline")


def detection_findings(record: Record, separator: str = ",") -> list[Row]:
    """What is said of malicious rows, which has a place of its own: a detector can calibrate and detect nothing."""
    return [Row(**_words(f, separator)) for f in in_order(record.findings) if f.check.kind in ("tpr", "tpr-drop")]


def baseline_findings(record: Record, separator: str = ",") -> list[Row]:
    """What is said of the release that this one is held against."""
    return [Row(**_words(f, separator)) for f in record.findings if f.check.kind == "baseline"]


def _words(finding: Finding, separator: str) -> dict[str, Any]:
    return {
        "check": clean(str(finding.check)),
        "kind": finding.check.kind,
        "segment": clean(finding.check.segment or ""),
        "outcome": finding.outcome,
        "standing": standing(finding),
        "reason": clean(finding.reason),
        "because": reasons().get(finding.reason, clean(finding.reason)),
        "message": regrouped(clean(finding.message), separator),
        "remedy": regrouped(clean(finding.remedy or ""), separator),
        "blocks": finding.blocks,
    }


def _fpr_row(found: FprFinding, separator: str) -> Row:
    finding, rate = found.entry, found.rate
    low, high = bounds(found.interval, found.tolerance)
    edges = [_exact(edge) for edge in found.tolerance]
    target, observed = found.target, _exact(found.observed_fpr)
    least, most = (percent(edge) for edge in edges)
    words = _words(finding, separator) | {
        "target": percent(target),
        "target_one_in": one_in(target, [target], ROUND_HALF_EVEN, separator),
        "score": f"{found.score:g}",
        "threshold": "none" if found.threshold is None else f"{found.threshold:.6g}",
        "exact_threshold": "none" if found.threshold is None else f"{found.threshold:.{FLOAT_DIGITS}g}",
        "counted": f"{grouped(found.false_positives, separator)} / {grouped(found.benign, separator)}",
        "observed": percent(beside(observed, edges, 4, ROUND_HALF_EVEN)),
        "observed_one_in": one_in(observed, edges, ROUND_HALF_EVEN, separator),
        "error": _signed(_relative_error(found)),
        "interval": f"{low.removesuffix(' %')} to {high}",
        "interval_one_in": _interval_one_in(found, separator),
        "tolerance": f"{least.removesuffix(' %')} to {most}",
        "tolerance_one_in": _tolerance_one_in(edges, separator),
        "accepts": "none" if rate.accepts is None else " to ".join(grouped(count, separator) for count in rate.accepts),
        "predicted": ""
        if rate.predicted is None
        else " to ".join(grouped(count, separator) for count in rate.predicted),
        "drift": "" if rate.drift_p_value is None else p_value(rate.drift_p_value),
    }
    if rate.plain_interval is not None:
        low, high = bounds(rate.plain_interval, found.tolerance)
        words["effective"] = grouped(int(rate.tally.independent_rows), separator)
        words["plain_interval"] = f"{low.removesuffix(' %')} to {high}"
    return Row(**words)


def standing(finding: Finding) -> str:
    """Whether the finding counts: `required`, `waived` or `advisory`."""
    return "waived" if finding.waived else "required" if finding.required else "advisory"


def passed_checks(findings: list[Row]) -> list[str]:
    """The names of the checks that pass, `granularity@10%` and its like as one where all of them do."""
    other = {row.kind for row in findings if row.outcome != "pass"}
    kinds = [(row.check, row.kind) for row in findings if row.outcome == "pass"]
    return list(dict.fromkeys(check if kind in other else kind for check, kind in kinds))


def by_remedy(findings: list[Row]) -> list[tuple[str, list[Row]]]:
    """What would help, with all findings of one outcome that it would help."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in findings:
        groups.setdefault((row.remedy, row.outcome), []).append(row)
    return [(remedy, helped) for (remedy, _), helped in groups.items()]


# --- numbers ------------------------------------------------------------------------------------------------


def bounds(interval: tuple[float, float], tolerance: tuple[float, float]) -> tuple[str, str]:
    """The interval in percent, rounded outward, and still on its side of each edge of the tolerance."""
    edges = [_exact(edge) for edge in tolerance]
    low = beside(_exact(interval[0]), edges, 3, ROUND_FLOOR)
    high = beside(_exact(interval[1]), edges, 3, ROUND_CEILING)
    return percent(low), percent(high)


def beside(value: Decimal, edges: list[Decimal], digits: int, rounding: str) -> Decimal:
    """Rounded to at least so many digits, and to as many as it takes to stay below, on or above every edge."""
    sides = [value.compare(edge) for edge in edges]
    rounded = value
    for precision in range(digits, FLOAT_DIGITS + 1):
        rounded = Context(prec=precision, rounding=rounding).create_decimal(value)
        if [rounded.compare(edge) for edge in edges] == sides:
            break
    return rounded


def one_in(rate: Decimal, edges: list[Decimal], rounding: str, separator: str) -> str:
    """A rate as `1 in 513`, on its side of every edge; `about` where no short number is; empty for a rate of zero."""
    if rate <= 0:
        return ""
    sides = [rate.compare(edge) for edge in edges]
    n = _WIDE.divide(Decimal(1), rate)
    for precision in range(3, FLOAT_DIGITS + 1):
        rounded = Context(prec=precision, rounding=rounding).create_decimal(n)
        if [Decimal(1).compare(_WIDE.multiply(rounded, edge)) for edge in edges] == sides:
            return f"1 in {_decimal_grouped(rounded, separator)}"
    near = Context(prec=max(3, n.adjusted() + 1)).create_decimal(n)
    return f"about 1 in {_decimal_grouped(near, separator)}"


def _interval_one_in(found: FprFinding, separator: str) -> str:
    """A smaller rate is one in more: the lower bound is rounded up and the upper one down."""
    edges = [_exact(edge) for edge in found.tolerance]
    low = one_in(_exact(found.interval[0]), edges, ROUND_CEILING, separator)
    high = one_in(_exact(found.interval[1]), edges, ROUND_FLOOR, separator)
    return f"{low} to {high}" if low else f"at most {high}"


def _tolerance_one_in(edges: list[Decimal], separator: str) -> str:
    low, high = (one_in(edge, [edge], ROUND_HALF_EVEN, separator) for edge in edges)
    return f"{low} to {high}" if low else f"at most {high}"


def _relative_error(found: FprFinding) -> Decimal:
    """From the counts: the float of the record may lie on the wrong side of an edge that the rate is on."""
    target = found.target
    observed = _WIDE.divide(Decimal(found.false_positives), Decimal(max(found.benign, 1)))
    ratios = [_WIDE.divide(rate, target) for rate in (observed, *map(_exact, found.tolerance))]
    error, *edges = (Context(prec=40).create_decimal(ratio) - 1 for ratio in ratios)
    return beside(error, edges, 3, ROUND_HALF_EVEN)


def _signed(error: Decimal) -> str:
    return f"{(error * 100).normalize():+f} %".replace("-", "−") if error else "0 %"


def percent(rate: Decimal) -> str:
    """A rate as `0.1005 %`, never in exponent notation."""
    return f"{(rate * 100).normalize():f} %"


def p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 0.0001 else "below 0.0001"


def bare_percent(rate: float) -> str:
    return percent(_exact(rate))


def grouped(count: int, separator: str) -> str:
    return f"{count:,}".replace(",", separator)


def spaced(count: int) -> str:
    return grouped(count, THIN_SPACE)


def regrouped(text: str, separator: str) -> str:
    """A sentence of the record with its `200,000` written as this report writes counts."""
    return _GROUPS.sub(separator, text)


def _decimal_grouped(number: Decimal, separator: str) -> str:
    return f"{number.normalize():,f}".replace(",", separator)


def _exact(number: float) -> Decimal:
    """The number as the record writes it."""
    return Decimal(repr(number))


def clean(text: str) -> str:
    """Text from outside as every report shows it."""
    return visible(text, allowed=THIN_SPACE)
