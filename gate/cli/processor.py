"""Which of the processor's instructions NumPy uses: settled before it is imported, for the speed of sorting alone."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

HEAD = 4096  # bytes of the system's list that tell of the first core


def choose_instructions() -> None:
    """Have NumPy sort by AVX2 on AMD's processors with AVX-512, unless the environment says otherwise.

    Their AVX-512 stores selected elements slowly: 10 million scores take 0.65 s to sort, by AVX2 0.10 s.
    """
    if "numpy" in sys.modules or "NPY_DISABLE_CPU_FEATURES" in os.environ:
        return
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as listed:
        head = listed.read(HEAD)
        flags = next((line.split() for line in head.splitlines() if line.startswith("flags")), [])
        if "AuthenticAMD" in head and {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"} <= {*flags}:
            newer = tuple(map(int, version("numpy").split(".")[:2])) >= (2, 4)  # which names its sets of instructions
            os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V4" if newer else "AVX512_SKX"
