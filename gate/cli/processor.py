"""Chooses which processor instructions NumPy uses, before it is imported; only the speed of sorting changes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

HEAD = 4096  # bytes of the system's list, enough to describe the first core


def choose_instructions() -> None:
    """Let NumPy sort with AVX2 on AMD's processors with AVX-512, unless the environment says otherwise.

    Their AVX-512 stores selected elements slowly: to sort 10 million scores takes 0.65 s, and 0.10 s with AVX2.
    """
    if "numpy" in sys.modules or "NPY_DISABLE_CPU_FEATURES" in os.environ:
        return
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as listed:
        head = listed.read(HEAD)
        flags = next((line.split() for line in head.splitlines() if line.startswith("flags")), [])
        if "AuthenticAMD" in head and {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"} <= {*flags}:
            newer = tuple(map(int, version("numpy").split(".")[:2])) >= (2, 4)  # it names sets of instructions
            os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4" if newer else "AVX512_SKX"
