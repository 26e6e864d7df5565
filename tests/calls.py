"""gate's commands without a process for each: calls of the whole command line after all imports."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from gate import cli


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str


def call(*arguments: str) -> Result:
    """What `gate ARGUMENTS` does, prints and exits with; signal handlers and hooks are put back afterwards."""
    out, err = io.StringIO(), io.StringIO()
    with _restored(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Result(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    handlers, hook = [signal.getsignal(number) for number in numbers], sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
