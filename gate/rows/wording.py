"""Words for messages about what a file or an object held."""

from __future__ import annotations

import re

NUMBER = r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*"


def is_number(text: str) -> bool:
    return re.fullmatch(NUMBER, text, re.ASCII) is not None


def reason_of(error: Exception) -> str:
    """What a library said about a file, shortened to one printable line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = re.sub(r"reading the stream registered as '\w+' failed: ", "", text)
    text = text.partition(" Detail: Python exception")[0]
    return one_line((text.strip().splitlines() or [type(error).__name__])[0].rstrip("."), 160)


def one_line(text: str, length: int) -> str:
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: length + 1])
    return visible if len(visible) <= length else visible[: length - 3] + "..."


def show(value: object) -> str:
    """A value from a file; text is quoted, so that blanks show."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return one_line(repr(value) if isinstance(value, str) else str(value), 40)


def shorten(value: float) -> str:
    """0.5 as `0.5`, but all digits of a number if fewer would name another one."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def name_rows(first: int | None, rows: int) -> str:
    """`row 17 and 2 more`, counted from 1 in the file; `3 rows` where rows have no numbers."""
    if first is None:
        return f"{rows:,} row{'' if rows == 1 else 's'}"
    return f"row {first + 1:,}" + (f" and {rows - 1:,} more" if rows > 1 else "")
