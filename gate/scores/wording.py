"""Words for messages about what a file or an object held."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER = r"^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"


def is_number(text: str) -> bool:
    return re.match(NUMBER, text) is not None


def reason_of(error: Exception) -> str:
    """What a library said of a file, in one short printable line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line((text.strip().splitlines() or [type(error).__name__])[0].rstrip("."), 160)


def one_line(text: str, length: int) -> str:
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: length + 1])
    return visible if len(visible) <= length else visible[: length - 3] + "..."


def show(value: object) -> str:
    """A value from a file; text in quotes, so that spaces show."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return one_line(repr(value) if isinstance(value, str) else str(value), 40)


def kind_of(column: Any) -> str:
    return one_line(str(column.dtype if isinstance(column, np.ndarray) else column.type), 60)


def shorten(value: float) -> str:
    """`0.5` for 0.5, and every digit where fewer would name another number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def name_rows(bad: NDArray[np.bool_], benign: NDArray[np.bool_] | None) -> str:
    """`row 17`, or `row 17 and 2 more`, counted from 1 in the file even when only benign rows were looked at."""
    places = np.flatnonzero(bad)
    if benign is not None:
        places = np.flatnonzero(benign)[places]
    more = len(places) - 1
    return f"row {places[0] + 1:,}" + (f" and {more:,} more" if more else "")
