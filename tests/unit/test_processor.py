"""Instructions are chosen where they are known to be slow, and nowhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gate.cli import processor

WAS = os.environ.get("NPY_DISABLE_CPU_FEATURES")
AVX512 = "fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("vendor", "flags", "numpy", "chosen"),
    [
        ("AuthenticAMD", AVX512, "2.4.6", "X86_V4"),
        ("AuthenticAMD", AVX512, "3.0", "X86_V4"),
        ("AuthenticAMD", AVX512, "1.26.4", "AVX512_SKX"),
        ("AuthenticAMD", AVX512, "2.3.0rc1", "AVX512_SKX"),
        ("AuthenticAMD", "fpu avx2", "2.4.6", None),
        ("GenuineIntel", AVX512, "2.4.6", None),
        (None, AVX512, "2.4.6", None),
    ],
)
def test_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str | None, flags: str, numpy: str, chosen: str | None
) -> None:
    listed = tmp_path / "cpuinfo"
    if vendor is not None:
        listed.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n" * 400)
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "")  # so that it is put back afterwards
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES")
    monkeypatch.setattr(processor, "Path", lambda _: listed)
    monkeypatch.setattr(processor, "version", lambda _: numpy)
    processor.choose_instructions()
    assert "NPY_DISABLE_CPU_FEATURES" not in os.environ  # NumPy is here already
    hidden: dict[str, Any] = {name: module for name, module in sys.modules.items() if name != "numpy"}
    monkeypatch.setattr(sys, "modules", hidden)
    processor.choose_instructions()
    assert os.environ.get("NPY_DISABLE_CPU_FEATURES") == chosen
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "as the user says")
    processor.choose_instructions()
    assert os.environ["NPY_DISABLE_CPU_FEATURES"] == "as the user says"


def test_the_environment_is_put_back() -> None:
    """Commands that later tests start would compute other last digits."""
    assert os.environ.get("NPY_DISABLE_CPU_FEATURES") in (None, WAS)
