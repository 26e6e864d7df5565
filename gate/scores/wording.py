"""Words for messages about what a file or an object held."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.errors import GateError

NUMBER = r"^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"


def is_number(text: str) -> bool:
    return re.match(NUMBER, text) is not None


def reason_of(error: Exception) -> str:
    """Shorten what a library said about a file to one printable line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line((text.strip().splitlines() or [type(error).__name__])[0].rstrip("."), 160)


def one_line(text: str, length: int) -> str:
    visible = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: length + 1])
    return visible if len(visible) <= length else visible[: length - 3] + "..."


def show(value: object) -> str:
    """Write a value from a file; text is quoted, so that spaces show."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return one_line(repr(value) if isinstance(value, str) else str(value), 40)


def type_of(column: Any) -> str:
    return one_line(str(column.dtype if isinstance(column, np.ndarray) else column.type), 60)


def shorten(value: float) -> str:
    """Write 0.5 as `0.5`, but all digits of a number if fewer would name another number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


_before: ContextVar[int] = ContextVar("rows before", default=0)


@contextlib.contextmanager
def count_rows_from(before: int) -> Iterator[None]:
    """Name rows by their place in the file when so many rows come before."""
    token = _before.set(before)
    try:
        yield
    finally:
        _before.reset(token)


def name_rows(bad: NDArray[np.bool_], taken: NDArray[np.bool_] | None) -> str:
    """Name rows as `row 17` or `row 17 and 2 more`: counted from 1 in the file, even if only some rows were taken."""
    places = np.flatnonzero(bad)
    if taken is not None:
        places = np.flatnonzero(taken)[places]
    more = len(places) - 1
    return f"row {_before.get() + places[0] + 1:,}" + (f" and {more:,} more" if more else "")


def _too_large(file: Any, error: Exception) -> GateError:
    what = f"must be a readable {file.suffix} file that fits into memory, got: {reason_of(error)}"
    return GateError(f"{file}: {what}; give fewer rows or use a larger machine")


@contextlib.contextmanager
def explain(file: Any, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises into a message that names the file and what to do."""
    try:
        yield
    except GateError:
        raise
    except FileNotFoundError:
        raise GateError(f"{file}: must exist, got no such file; check the name") from None
    except PermissionError:
        raise GateError(f"{file}: must be readable, got permission denied; allow this user to read it") from None
    except MemoryError as error:
        raise _too_large(file, error) from None
    except OSError as error:
        if error.errno == errno.ENOMEM:  # a mapped file takes addresses
            raise _too_large(file, error) from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # packed and piped files are copied first
            what = f"must fit into the temporary directory, got: {reason_of(error)}"
            raise GateError(f"{file}: {what}; set TMPDIR to a place with more room") from None
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {reason_of(error)}; {remedy}") from None
    except Exception as error:  # NumPy, zipfile and Arrow raise a dozen types on a broken file; all say the same
        if "worker thread" in str(error):  # Arrow had no memory for a thread: nothing is wrong with the file
            raise _too_large(file, error) from None
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {reason_of(error)}; {remedy}") from None
