"""The command's own streams: whatever text is written to them, none of it is a command to the CI that reads the log."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TextIO

# GitHub's runner takes a line for a command that starts with `::`, blanks aside, or that holds `##[`; Azure's and
# TeamCity's take `##vso[` and `##teamcity[`.
_BLANKS = r"(?:[^\S\r\n]|[\u200b-\u200f\u2060\ufeff])*+"
_COMMAND = re.compile(rf"[\r\n]{_BLANKS}:(?=:)|##\w{{0,32}}(?=\[)")
_BLANK_LINE = re.compile(rf"[\r\n]{_BLANKS}(:?)")
_BEGUN = re.compile(r"#\Z|##\w{0,32}\Z")


class Inert(io.TextIOWrapper):
    """A stream that parts the signs of a command by a blank, also where they come in several pieces."""

    _seen = "\n"  # the end of what was written, as far as a command may begin in it

    def write(self, text: str) -> int:
        inert = _COMMAND.sub(r"\g<0> ", self._seen + text)
        super().write(inert[len(self._seen) :])
        line = inert[max(inert.rfind("\n"), inert.rfind("\r"), 0) :]
        blank, begun = _BLANK_LINE.fullmatch(line), _BEGUN.search(line, max(0, len(line) - 40))
        self._seen = f"\n{blank[1]}" if blank else begun[0] if begun else ""
        return len(text)

    def write_command(self, line: str) -> None:
        """The one way for a command; it stands on a line of its own."""
        super().write(line + "\n")
        self._seen = "\n"


def guard() -> None:
    """Put the standard streams behind it. A stream without a descriptor is a caller's own, and stays."""
    sys.stdout = _guarded(sys.stdout, "utf-8")  # as the files are, whatever the locale
    sys.stderr = _guarded(sys.stderr, by_line=True)  # a reader that has gone must show while the command runs


def _guarded(stream: TextIO, encoding: str | None = None, by_line: bool = False) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Inert):
        return stream
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream
    stream.flush()
    raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115, it is the process's own, to its end
    by_line |= stream.line_buffering or stream.write_through or os.isatty(descriptor)
    return Inert(raw, encoding or stream.encoding, stream.errors, line_buffering=by_line)


def escape_json(text: str) -> str:
    """JSON in which one `#` of `##[` is written as its number: the same value, and no command."""
    return re.sub(r"(?<=#)#(?=\w{0,32}\[)", r"\\u0023", text)
