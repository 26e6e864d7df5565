"""Progress: the code that works counts it, and the code that talks to the user shows it. This module prints nothing."""

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

    def reach(self, share: float) -> None:
        with self._lock:
            self.share = min(max(share, 0.0), 1.0)

    def text(self, now: float | None = None) -> str:
        """The known facts, as `reading fit: 12,000,000 rows, 3,100,000 rows/s, 45 % done, 12 s left`."""
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
    """Count the work that is done in this block."""
    meter = Meter(what)
    _meters.append(meter)
    try:
        yield meter
    finally:
        _meters.remove(meter)


@contextlib.contextmanager
def meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    """Let a thread do something until the event tells it that the block is over."""
    over = Event()
    thread = Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def enter(stage: str) -> None:
    """Begin a stage of the work, whether or not it is counted."""
    if _meters:
        _meters[-1].enter(stage)


def advance(rows: int, share: float) -> None:
    """Count rows that are done, and the share of the stage."""
    if _meters:
        _meters[-1].advance(rows, share)


def reach(share: float) -> None:
    """Say what share of the stage is done."""
    if _meters:
        _meters[-1].reach(share)


def _rounded(rate: float) -> int:
    """A rate, rounded to the two digits that are known."""
    return int(float(f"{rate:.2g}"))


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
