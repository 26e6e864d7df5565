"""The strings that every report shows: numbers that cannot contradict the verdict, names that cannot do harm."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from gate.release import FindingEntry, Record

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


def rows(record: Record) -> list[Row]:
    return [_row(finding) for finding in record.findings]


def _row(finding: FindingEntry) -> Row:
    low, high = bounds(finding.interval, finding.tolerance)
    edges = [percent(Decimal(repr(edge)), 15) for edge in finding.tolerance]
    return Row(
        check=clean(finding.check),
        target=percent(Decimal(repr(finding.target_fpr)), 15),
        score=f"{finding.score:g}",
        threshold="none" if finding.threshold is None else f"{finding.threshold:.6g}",
        counted=f"{finding.false_positives:,} / {finding.benign:,}",
        observed=percent(Decimal(finding.observed_fpr), 4),
        error=f"{100 * finding.relative_error:+.1f} %",
        interval=f"{low.removesuffix(' %')} to {high}",
        tolerance=f"{edges[0].removesuffix(' %')} to {edges[1]}",
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
    """The interval in percent, rounded outward, with as many digits as it takes to stay on its side of each edge."""
    low, high = (Decimal(bound) for bound in interval)
    edges = [Decimal(repr(edge)) for edge in tolerance]
    for digits in range(3, 18):
        down = _rounded(low, digits, ROUND_FLOOR)
        up = _rounded(high, digits, ROUND_CEILING)
        if all((low < edge) == (down < edge) and (high > edge) == (up > edge) for edge in edges):
            break
    return percent(down, digits), percent(up, digits)


def percent(rate: Decimal, digits: int) -> str:
    """A rate as `0.1005 %`, never in exponent notation."""
    return f"{_rounded(rate * 100, digits, ROUND_HALF_EVEN).normalize():f} %"


def _rounded(value: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding).create_decimal(value)


def clean(text: str) -> str:
    """Text from outside with every control and direction character made visible."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
