"""The strings that every report shows: numbers that cannot contradict the verdict, names that cannot do harm."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from gate.errors import GateError
from gate.release import FindingEntry, Record

FLOAT_DIGITS = 17  # enough to tell any two float64 numbers apart

HEADLINES = {
    "pass": "PASS: this release may ship",
    "fail": "FAIL: this release must not ship",
    "inconclusive": "INCONCLUSIVE: the data cannot tell whether this release may ship",
}


@dataclass(frozen=True)
class Row:
    """One FPR finding, ready to print."""

    check: str
    target: str
    score: str
    threshold: str
    counted: str
    observed: str
    error: str
    interval: str
    tolerance: str
    accepts: str
    outcome: str
    standing: str
    grade: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Note:
    """A finding that is no FPR check, ready to print."""

    check: str
    outcome: str
    standing: str
    message: str
    remedy: str


def rows(record: Record) -> list[Row]:
    return [_row(finding) for finding in record.findings if finding.target_fpr is not None]


def notes(record: Record) -> list[Note]:
    return [
        Note(clean(f.check), f.outcome, standing(f), clean(f.message), clean(f.remedy or ""))
        for f in record.findings
        if f.target_fpr is None
    ]


def _row(finding: FindingEntry) -> Row:
    numbers = (finding.interval, finding.tolerance, finding.target_fpr, finding.observed_fpr, finding.relative_error)
    if None in numbers:
        raise GateError(f"{clean(finding.check)}: must have all its numbers; write the record again with `gate run`")
    assert finding.interval
    assert finding.tolerance
    assert finding.target_fpr is not None
    assert finding.observed_fpr is not None
    assert finding.relative_error is not None
    low, high = bounds(finding.interval, finding.tolerance)
    edges = [_exact(edge) for edge in finding.tolerance]
    least, most = (percent(edge) for edge in edges)
    return Row(
        check=clean(finding.check),
        target=percent(_exact(finding.target_fpr)),
        score=f"{finding.score:g}",
        threshold="none" if finding.threshold is None else f"{finding.threshold:.6g}",
        counted=f"{finding.false_positives:,} / {finding.benign:,}",
        observed=percent(beside(_exact(finding.observed_fpr), edges, 4, ROUND_HALF_EVEN)),
        error=f"{100 * finding.relative_error:+.1f} %",
        interval=f"{low.removesuffix(' %')} to {high}",
        tolerance=f"{least.removesuffix(' %')} to {most}",
        accepts="none" if finding.accepts is None else f"{finding.accepts[0]:,} to {finding.accepts[1]:,}",
        outcome=finding.outcome,
        standing=standing(finding),
        grade=finding.grade or "",
        message=clean(finding.message),
        remedy=clean(finding.remedy or ""),
    )


def standing(finding: FindingEntry) -> str:
    """Whether the finding counts: `required`, `waived` or `advisory`."""
    return "waived" if finding.waived else "required" if finding.required else "advisory"


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


def percent(rate: Decimal) -> str:
    """A rate as `0.1005 %`, never in exponent notation."""
    return f"{(rate * 100).normalize():f} %"


def _exact(number: float) -> Decimal:
    """The number as the record writes it."""
    return Decimal(repr(number))


def clean(text: str) -> str:
    """Text from outside with every control and direction character made visible."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
