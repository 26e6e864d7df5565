"""The parent process: a child must not outlive it, because nobody else waits for the child's answer."""

from __future__ import annotations

import ctypes
import signal

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends; raises AttributeError if the system cannot."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
