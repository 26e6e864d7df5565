"""Runs a command under a memory limit (`ulimit -v`) in a child: if memory kills the child, it says so in one line.

When an allocation fails, libraries abort, or end with exit code 1, which would read as a verdict, or do nothing.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from gate.errors import GateError

ROOM = 512_000_000  # addresses that the libraries take before the first row is read
# Libraries get one thread and reserve no addresses: OpenBLAS wants 32 MB for every thread and waits forever for them.
FRUGAL = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def limit() -> int | None:
    """Return how many bytes of addresses or data this process may have, if they are limited."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((most for most in limits if most != resource.RLIM_INFINITY), default=None)


def require_room() -> None:
    """Refuse a limit under which not even the libraries can be loaded."""
    most = limit()
    if most is None:
        return
    with contextlib.suppress(OSError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if most - used < ROOM:
            raise GateError(
                f"memory: must allow {(used + ROOM) / 1e6:,.0f} MB of addresses, got {most / 1e6:,.0f}; "
                "raise the limit (ulimit -v)"
            )


def supervise(work: Callable[[], object]) -> int | None:
    """Return the exit code with which the work ends in a child; None if something else ended the child."""
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        _work(work, writing)
    os.close(writing)

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, forward)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer[0] if answer else None


def _work(work: Callable[[], object], writing: int) -> NoReturn:
    """Do the work in the child: gate's own words go to stderr, but what libraries print there is dropped."""
    try:
        os.environ.update({name: value for name, value in FRUGAL.items() if name not in os.environ})
        with contextlib.suppress(Exception):
            from gate.parent import die_with_parent

            die_with_parent()
        if sys.stderr is not None:
            sys.stderr.flush()
            said = os.dup(2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.stderr = os.fdopen(said, "w", 1, sys.stderr.encoding, "backslashreplace", closefd=False)
        try:
            work()
        except SystemExit as end:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os.write(writing, bytes([end.code if isinstance(end.code, int) else 1]))
    finally:
        os._exit(1)
