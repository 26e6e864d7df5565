"""Sentences about the numbers of a range. The module measures and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from gate.checks.check import JudgedRange
from gate.checks.rates import NOT_COMPUTED, TIED_SCORES, describe_deciding
from gate.planning.range_advice import RangeAdvice
from gate.stored import exact
from gate.words import between, listed, percent, plural

MOST_SAID = 3
BEYOND_ROWS = ("granularity", "unreachable", "unscored")  # reasons for which no number of rows helps
UNREACHABLE_RANGE = f"{TIED_SCORES} or end the range at a higher rate"
TIED_TOP = (
    "give the detector finer scores, or end the range at a higher rate: more rows do not part those that share the "
    "highest score"
)


def span_text(start: Decimal, stop: Decimal) -> str:
    """`10 to 0.231 %`: never more than what the ends say."""
    return between(percent(start, 3, ROUND_FLOOR), percent(stop, 3, ROUND_CEILING))


def describe_in_brief(numbers: JudgedRange, grade: str | None) -> str:
    """What is known of a range, in a few words."""
    whole = f"from {span_text(numbers.start, numbers.stop)}"
    if grade == "proven":
        return f"Proven at every threshold {whole}"
    if numbers.impossible:
        jumps = listed([percent(fpr, 3) for fpr, _ in numbers.impossible])
        return f"Rows of one score make the rate jump at {jumps}, out of the tolerance"
    if numbers.refuted:
        return f"Disproved at {listed([percent(fpr, 3) for fpr in numbers.refuted])}, in the range {whole}"
    if numbers.proven:
        rest = len(numbers.proven) - 2
        parts = [span_text(*ends) for ends in numbers.proven[:2]]
        proven = listed([*parts, plural(rest, "shorter part")] if rest > 0 else parts)
        return f"Proven from {proven}; the rest of {span_text(numbers.start, numbers.stop)} is open"
    return f"Open at every threshold {whole}"


def describe_rows(n: int, worth: float | None, numbers: JudgedRange) -> str:
    said = f"{plural(n, 'benign row')} at {numbers.points:,} thresholds"
    return said if worth is None else f"{said}, in groups worth {int(worth):,} independent ones"


def describe_refuted(points: Sequence[tuple[Decimal, int]], n: int, numbers: JudgedRange) -> list[str]:
    """The rates at which it is disproved, with the count of the point that is farthest from its promise."""
    if not points:
        return []
    fpr, k = max(points, key=lambda point: abs(Fraction(point[1], n) / Fraction(point[0]) - 1))
    at = listed([percent(rate, 3) for rate, _ in points])
    low, high = (fpr * (1 - numbers.tolerance[1]), fpr * (1 + numbers.tolerance[0]))
    allowed = between(percent(max(low, Decimal(0)), 3), percent(min(high, Decimal(1)), 3))
    counted = f"{plural(k, 'false positive')} ({percent(Decimal(k) / n, 3)})"
    return [f"disproved at {at}: at {percent(fpr, 3)} there are {counted}, allowed {allowed}"]


def describe_jumps(jumps: Sequence[tuple[Decimal, Decimal, int, int]]) -> list[str]:
    """The rates between which so many rows share one score that the rate jumps over the tolerance."""
    said = [
        f"just below {percent(start, 3)} the false positives fall from {more:,} to {fewer:,}"
        for start, _, more, fewer in sorted(jumps, key=lambda jump: jump[3] - jump[2])[:MOST_SAID]
    ]
    if not said:
        return []
    left = f" and at {plural(len(jumps) - MOST_SAID, 'other rate')}" if len(jumps) > MOST_SAID else ""
    return [f"{', '.join(said)}{left}: rows share one score there, and no threshold keeps both sides in the tolerance"]


def describe_unreached(fpr: Decimal) -> str:
    return f"from {percent(fpr, 3)} on no raw score reaches the threshold, so nothing is ever flagged there"


def describe_extrapolation(lowest_label: float) -> str:
    return f"below {percent(lowest_label, 3)} the thresholds are extrapolated beyond the fit sample"


def describe_minimum(min_n: int, grouped: bool) -> str:
    return f"no range passes on fewer than {min_n:,} {'independent ' if grouped else ''}rows"


def describe_proven(stretches: Sequence[tuple[Decimal, Decimal]]) -> str:
    """The longest stretches that are proven by themselves."""
    named = [span_text(*ends) for ends in stretches[:MOST_SAID]]
    more = f" and {plural(len(stretches) - MOST_SAID, 'shorter part')}" if len(stretches) > MOST_SAID else ""
    return f"proven by {'itself' if len(stretches) == 1 else 'themselves'}: {', '.join(named)}{more}"


def describe_nearest(numbers: JudgedRange) -> list[str]:
    """The point at which the curve comes nearest to leaving the tolerance, with the bound rounded outwards."""
    near = numbers.nearest
    if near is None:
        return []
    side, error = ("upper", near.error) if near.side == "above" else ("lower", -near.error)
    allowed = numbers.tolerance[0 if near.side == "above" else 1]
    off = Context(prec=3, rounding=ROUND_CEILING).create_decimal(exact(100 * error))
    how = "within what is promised" if error < 0 else f"{off.normalize():,f} % {near.side} what is promised"
    verb = "comes nearest" if near.left >= 0 else "leaves the tolerance most"
    return [
        f"the curve {verb} at {percent(near.fpr, 3)}, where the {side} bound is {how} ({percent(allowed)} tolerated)"
    ]


# --- what would help ----------------------------------------------------------------------------------------


def finer(above: Fraction, two_sided: bool) -> str:
    said = "more rows cannot help: give the detector finer scores, or judge the parts beside the jump as ranges"
    excess = f"max_relative_error: {{above: {float(above):.6g}, below: 1}}"
    return f"{said}, or let only excess count with {excess}" if two_sided else said


def describe_advice(advice: RangeAdvice | None, n: int, support: int | None, grouped: bool) -> str:
    """The rows that would let it pass, and how often; `support` are the fit rows that would show its lowest rate."""
    like = ", in groups like these" if grouped else ""
    shown = "" if support is None else f", at least {support:,} to fit, which show its lowest rate"
    if advice is None:
        return f"hold out more benign rows, or fit again{shown}: {NOT_COMPUTED}; `gate plan` looks further"
    if advice.deciding is not None:
        return describe_deciding(advice.deciding, n)
    if advice.more is not None and advice.fresh:
        return (
            f"hold out about {advice.more:,} benign rows that have judged no release yet{like}: a sound release with "
            "these counts then passes 95 % of the time"
        )
    if advice.more is not None:
        more = f"hold out about {advice.more - n:,} more benign rows ({advice.more:,} in all){like}"
        return f"{more}: a sound release with these counts then passes 95 % of the time"
    if advice.again is not None:
        rows = f"fit on and hold out about {max(advice.again, support or 0):,} fresh rows each{like}"
        return f"{rows}: on benign rows like those to come, a sound release then passes 95 % of the time"
    return "widen max_relative_error or end the range at a higher rate: no number of rows lets a sound release pass"
