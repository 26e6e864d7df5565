"""What is said of numbers, names and text, the same wherever it is read."""

from __future__ import annotations

import re


def escape_json(text: str) -> str:
    """JSON in which one `#` of `##[` is written as its number: the same value, and no command to a CI system."""
    return re.sub(r"(?<=#)#(?=\w{0,32}\[)", r"\\u0023", text)
