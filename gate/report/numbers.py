"""Numbers and names as every report prints them: rounded so that they cannot contradict the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from gate.statistics.proportions import Interval
from gate.stored import exact
from gate.words import between, percent, signed, visible

FLOAT_DIGITS = 17  # enough to tell any two float64 numbers apart
WIDE = Context(prec=60)
Edges = Sequence[Decimal]  # ends of what is accepted: a number near an edge is printed on its own side of it


def clean(text: str) -> str:
    """Clean text from outside as every report shows it."""
    return visible(text)


def signed_percent(error: Decimal) -> str:
    return f"{signed((error * 100).normalize())} %" if error else "0 %"


def grouped(count: int) -> str:
    return f"{count:,}"


def bounds(interval: Interval | Edges, edges: Edges | None = None) -> str:
    """Write an interval in percent, rounded outward, with each bound still on its side of each edge."""
    low, high = (end if isinstance(end, Decimal) else exact(end) for end in interval)
    return between(
        percent(beside(low, edges or (), 3, ROUND_FLOOR)), percent(beside(high, edges or (), 3, ROUND_CEILING))
    )


def share(k: int, n: int, edges: Edges | None = None, digits: int = 3) -> str:
    """Write so many of n in percent, still on its side of each edge."""
    return percent(beside(WIDE.divide(Decimal(k), Decimal(max(n, 1))), edges or (), digits, ROUND_HALF_EVEN))


def beside(value: Decimal, edges: Edges, digits: int, rounding: str) -> Decimal:
    """Round to at least so many digits, and to as many as it takes to stay below, on or above every edge."""
    sides = [value.compare(edge) for edge in edges]
    rounded = value
    for precision in range(digits, FLOAT_DIGITS + 1):
        rounded = Context(prec=precision, rounding=rounding).create_decimal(value)
        if [rounded.compare(edge) for edge in edges] == sides:
            break
    return rounded


def one_in(rate: Decimal, edges: Edges, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a rate as `1 in 513` on its side of every edge; `about` if no short number is; empty for a zero rate."""
    if rate <= 0:
        return ""
    sides = [rate.compare(edge) for edge in edges]
    n = WIDE.divide(Decimal(1), rate)
    for precision in range(3, FLOAT_DIGITS + 1):
        rounded = Context(prec=precision, rounding=rounding).create_decimal(n)
        if [Decimal(1).compare(WIDE.multiply(rounded, edge)) for edge in edges] == sides:
            return f"1 in {rounded.normalize():,f}"
    near = Context(prec=max(3, n.adjusted() + 1)).create_decimal(n)
    return f"about 1 in {near.normalize():,f}"
