"""The budget: it limits the bytes that the columns of a sample may decode to, so no small file fills the memory."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from gate.errors import GateError

SHARE = 4  # the default is this part of the memory: the scores, the same sorted, and what is counted in them must fit
_SLACK = 1 << 30  # what a reader may need beside the columns: libraries reserve addresses long before they use them
_max_bytes: ContextVar[int | None] = ContextVar("max_bytes", default=None)


class ByteBudget:
    """The bytes that may still be decoded for one sample."""

    def __init__(self) -> None:
        self.limit = _max_bytes.get() or memory() // SHARE
        self.taken = 0

    @property
    def memory(self) -> int:
        """The most that a reader may use: for the columns as decoded, as text, and as the rows taken from them."""
        return 3 * self.limit + _SLACK

    def take(self, size: int, name: object) -> None:
        """Count bytes that were decoded from a file."""
        self.refuse(size, name)
        self.taken += size

    def refuse(self, size: int, name: object) -> None:
        """Raise an error before so many bytes are decoded, if they are too many."""
        if self.taken + size > self.limit:
            raise GateError(
                f"{name}: must decode to at most {self.limit:,} bytes, got {self.taken + size:,} or more; "
                "give fewer rows or columns, or use a larger machine"
            )


@contextlib.contextmanager
def bound(max_bytes: int) -> Iterator[None]:
    """Let the columns of each sample that is read meanwhile decode to so many bytes instead of the default."""
    token = _max_bytes.set(max_bytes)
    try:
        yield
    finally:
        _max_bytes.reset(token)


def memory() -> int:
    """The memory of the machine, or less where this process may use less of it."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_of_groups()]
    limits += [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min(limit for limit in limits if limit > 0)


def _of_groups() -> Iterator[int]:
    """The memory that the control groups of this process allow, in version 2 or 1."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, inside = line.split(":", 2)
            mount, file = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
            place = Path("/sys/fs/cgroup", mount, inside.lstrip("/"))
            for group in (place, *place.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield int((group / file).read_text())


def limit_memory(most: int) -> None:
    """Let this process use so many more bytes of its own, not shared, memory."""
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + most
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if soft < 0 else min(soft, wanted), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
