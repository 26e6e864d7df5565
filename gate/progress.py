"""How far the work is: counted by whoever works, shown by whoever talks to the user. No output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event, Lock, Thread


@dataclass
class Meter:
    """One piece of work: the rows done, and what share of its present stage."""

    what: str
    stage: str = ""
    rows: int = 0
    share: float = 0.0
    stage_begun: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def enter(self, stage: str) -> None:
        with self._lock:
            self.stage, self.rows, self.share, self.stage_begun = stage, 0, 0.0, time.monotonic()

    def advance(self, rows: int, share: float) -> None:
        with self._lock:
            self.rows, self.share = self.rows + rows, min(self.share + share, 1.0)

    def text(self, now: float | None = None) -> str:
        """`reading fit: 12,000,000 rows, 3,100,000 rows/s, 45 % done, 12 s left`, as far as it is known."""
        with self._lock:
            took = max((time.monotonic() if now is None else now) - self.stage_begun, 1e-9)
            parts = [self.stage] if self.stage else []
            if self.rows:
                parts += [f"{self.rows:,} rows", f"{_rounded(self.rows / took):,} rows/s"]
            if 0 < self.share < 1:
                parts += [f"{int(100 * self.share)} % done", f"{_time(took * (1 - self.share) / self.share)} left"]
            return f"{self.what}: {', '.join(parts)}" if parts else self.what


_meters: list[Meter] = []


@contextlib.contextmanager
def metered(what: str) -> Iterator[Meter]:
    """Let the work that is done meanwhile be counted."""
    meter = Meter(what)
    _meters.append(meter)
    try:
        yield meter
    finally:
        _meters.remove(meter)


@contextlib.contextmanager
def meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    """Let a thread do something until the block is over, which the event tells it."""
    over = Event()
    thread = Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def enter(stage: str) -> None:
    """A stage of the work begins, be anybody counting or not."""
    if _meters:
        _meters[-1].enter(stage)


def advance(rows: int, share: float) -> None:
    """So many rows more are done, and so much more of the stage."""
    if _meters:
        _meters[-1].advance(rows, share)


def _rounded(rate: float) -> int:
    """Two digits are all that a rate is known to."""
    return int(float(f"{rate:.2g}"))


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
