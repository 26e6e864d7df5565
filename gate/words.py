"""What is said of numbers, names and text, the same wherever it is read."""

from __future__ import annotations

import re


def escape_json(text: str) -> str:
    """JSON in which one `#` of `##[` is written as its number: the same value, and no command to a CI system."""
    return re.sub(r"(?<=#)#(?=\w{0,32}\[)", r"\\u0023", text)


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 more`."""
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def cut_within(name: str, most: int) -> str:
    """A long name without its middle: names of one kind differ at their ends."""
    return name if len(name) <= most else f"{name[: most - most // 2]}…{name[len(name) - most // 2 + 1 :]}"


def spaced_percent(share: float, digits: str = ".4g") -> str:
    """A share as the reports write it: `95 %`."""
    return f"{format(100 * share, digits)} %"


def visible(text: str) -> str:
    """Text from outside with every control and direction character shown as its number."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `139,315 rows`: counts in sentences are never left to the reader's grammar."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
