"""The command's own streams: no text that is written to them can become a command to the CI that reads the log."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TextIO

from gate.errors import GateError
from gate.progress import Meter, meanwhile, metered
from gate.words import escape_json, visible

# GitHub's runner takes a line for a command that starts with `::`, blanks aside, or that holds `##[`; Azure's and
# TeamCity's take `##vso[` and `##teamcity[`.
_BLANKS = r"(?:[^\S\r\n]|[\u200b-\u200f\u2060\ufeff])*+"
_COMMAND = re.compile(rf"[\r\n]{_BLANKS}:(?=:)|##\w{{0,32}}(?=\[)")
_BLANK_LINE = re.compile(rf"[\r\n]{_BLANKS}(:?)")
_BEGUN = re.compile(r"#\Z|##\w{0,32}\Z")


MINUTE = 60.0


class Inert(io.TextIOWrapper):
    """A stream that puts a blank between the signs of a command, also if they come in several pieces."""

    _seen = "\n"  # the last characters written: a command may begin in them

    def write(self, text: str) -> int:
        inert = _COMMAND.sub(r"\g<0> ", self._seen + text)
        super().write(inert[len(self._seen) :])
        line = inert[max(inert.rfind("\n"), inert.rfind("\r"), 0) :]
        blank, begun = _BLANK_LINE.fullmatch(line), _BEGUN.search(line, max(0, len(line) - 40))
        self._seen = f"\n{blank[1]}" if blank else begun[0] if begun else ""
        return len(text)

    def write_command(self, line: str) -> None:
        """Write a real command to the CI system, on a line of its own; no other way lets one through."""
        super().write(line + "\n")
        self._seen = "\n"


def guard() -> None:
    """Replace the standard streams by such ones. A stream without a descriptor belongs to a caller, and stays."""
    sys.stdout = _guarded(sys.stdout, "utf-8")  # the encoding of the files, whatever the locale
    sys.stderr = _guarded(sys.stderr, by_line=True)  # a reader that has gone must show while the command runs


def _guarded(stream: TextIO, encoding: str | None = None, by_line: bool = False) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Inert):
        return stream
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream
    stream.flush()
    raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115, the process keeps it open to its end
    by_line |= stream.line_buffering or stream.write_through or os.isatty(descriptor)
    return Inert(raw, encoding or stream.encoding, stream.errors, line_buffering=by_line)


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    return shutil.get_terminal_size().columns if is_terminal() else 80


def color_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show(text: str, format_: str = "text") -> None:
    """Write to stdout; a reader that has gone away changes neither the files nor the exit code."""
    if sys.stdout is None:  # the caller closed it (`>&-`)
        return
    try:
        sys.stdout.write(escape_json(text) if format_ == "json" else text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon(sys.stdout)
    except OSError as error:
        abandon(sys.stdout)
        raise GateError(f"stdout: must be writable, got {error.strerror}; the result was not printed") from None


def log(text: str) -> None:
    """Write one line to stderr; no name from outside can break it."""
    tell(f"gate: {visible(text)}")


def tell(line: str, command: bool = False) -> None:
    """Write to stderr, if there is one; only a text that is meant as a command to the CI system becomes one."""
    try:
        if command and isinstance(sys.stderr, Inert):
            sys.stderr.write_command(line)
        elif sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
    except OSError:
        abandon(sys.stderr)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show progress to a person at a terminal; in CI, in a pipe or in a log, write a line a minute."""
    with metered(what) as meter:
        if os.environ.get("CI") or sys.stderr is None or not sys.stderr.isatty() or not color_wanted():
            shown = meanwhile(partial(_tell_each_minute, meter))
        else:
            from gate.report.terminal import working

            shown = working(meter.text)
        with shown:
            yield


def _tell_each_minute(meter: Meter, over: Event) -> None:
    while not over.wait(MINUTE):
        log(meter.text())


def abandon(stream: TextIO) -> None:
    """Drop what is still buffered: the interpreter's last flush would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
