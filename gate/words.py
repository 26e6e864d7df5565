"""Words for numbers, names and text, the same in every report. The module knows no check."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal


def escape_json(text: str) -> str:
    """JSON in which one `#` of `##[` is written as its number: the same value, and no command to a CI system."""
    return re.sub(r"(?<=#)#(?=\w{0,32}\[)", r"\\u0023", text)


def shown(value: object, none: str = "nothing") -> str:
    """A setting as a policy writes it, or a word if there is none."""
    if value is None or value == ():
        return none
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return str(value).lower()
    return in_digits(value) if isinstance(value, Decimal) else str(value)


def listed(names: list[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 more`."""
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def cut_within(name: str, most: int) -> str:
    """A long name without its middle: names of one kind differ at their ends."""
    return name if len(name) <= most else f"{name[: most - most // 2]}…{name[len(name) - most // 2 + 1 :]}"


def in_digits(number: Decimal) -> str:
    """A decimal as `0.0001`: without needless digits, and never with an exponent."""
    return f"{number.normalize():f}"


def percent(rate: Decimal | float, digits: int | None = None, rounding: str = ROUND_HALF_EVEN) -> str:
    """A rate as `0.1005 %`; a float has so many digits at most. It has no needless digits and never an exponent."""
    share = rate * 100 if isinstance(rate, Decimal) else Decimal(100 * rate)
    return f"{in_digits(share if digits is None else Context(prec=digits, rounding=rounding).create_decimal(share))} %"


def between(low: str, high: str) -> str:
    """Two rates in percent as `0.05 to 0.15 %`."""
    return f"{low.removesuffix(' %')} to {high}"


def signed(number: Decimal) -> str:
    """`+0.50`, and a true minus sign: all digits that the number has."""
    return f"{number:+,f}".replace("-", "−")


def rounded_percent(share: float, places: int = 0) -> str:
    """A share as `60.0 %`, always with so many places."""
    return f"{100 * share:.{places}f} %"


def chance(probability: float) -> str:
    """A chance; it is never printed as certain."""
    if 0.0 < probability < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if probability >= 0.9995 else percent(probability, 3)


def chance_at_most(probability: float) -> str:
    """A chance, rounded up, so that it is no larger than printed; `less than 0.1 %` below that."""
    if probability < 0.001:
        return "less than 0.1 %"
    return percent(min(math.ceil(probability * 1000) / 1000, 1.0), 3)


def chance_of_few(probability: float) -> str:
    """A chance that may be far below one in a thousand, and may be certain."""
    return "below 0.01 %" if probability < 0.0001 else percent(probability, 3)


def p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 0.0001 else "below 0.0001"


def visible(text: str) -> str:
    """Text from outside with every control and direction character shown as its number."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `139,315 rows`: counts in sentences are never left to the reader's grammar."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
