"""Handles SIGINT and SIGTERM: it takes back what was begun, and the exit code says which signal it was."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from gate.cli.codes import INTERRUPTED
from gate.cli.streams import log


def end(work: Callable[[list[int]], int]) -> NoReturn:
    """End the process with the exit code of the work, which is told the signals received, or with that of a signal."""
    received = _received

    def stop(number: int, _frame: object) -> None:
        """Take back what was begun; a second signal must not stop that."""
        received.append(number)
        for known in _STOPS:
            signal.signal(known, signal.SIG_IGN)
        raise StoppedError

    def stop_later(lost: sys.UnraisableHookArgs) -> None:
        """Stop a moment later, because Python drops what is raised while it clears up an object."""
        if lost.exc_type is not StoppedError:
            sys.__unraisablehook__(lost)
            return
        signal.signal(signal.SIGALRM, lambda *_: stop(received[0], None))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    try:
        sys.unraisablehook = stop_later
        for number in _STOPS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # the caller may ignore it
                signal.signal(number, stop)
        code = work(received)
        for number in (*_STOPS, signal.SIGALRM):  # what comes while Python shuts down changes no exit code
            signal.signal(number, signal.SIG_IGN)
    except StoppedError:
        code = INTERRUPTED
    if received:
        log(f"stopped by {signal.Signals(received[0]).name}")
        code = 128 + received[0]
    sys.exit(code)


def stop_if_signalled() -> None:
    """Stop before anything is written, if a library has swallowed what a signal raised in it."""
    if _received:
        raise StoppedError


_STOPS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []  # the signals that this process received


class StoppedError(BaseException):
    """It is no KeyboardInterrupt: after one in the wrong place Python ends by SIGINT, whatever the exit code."""
