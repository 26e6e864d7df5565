"""Unit tests start no process: they are quick, and a fault in one is its own."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest

from gate.report import drawing


def pytest_collection_finish() -> None:
    """Exclude imported and collected objects from garbage collection, and collect less often: a tenth less time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries look for leftover objects at the end, and would find all of these


@pytest.fixture(scope="session")
def imported() -> None:
    """Import modules that start another program: matplotlib without a list of fonts, and NumPy 1.26 for its tests."""
    drawing.matplotlib()
    importlib.import_module("numpy.testing")


@pytest.fixture(scope="module", autouse=True)
def no_process(imported: None, few_points: None) -> Iterator[None]:
    """Refuse every process."""

    def refuse(*_args: object, **_more: object) -> NoReturn:
        pytest.fail("a unit test starts no process; put it into tests/system")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            patch.setattr(os, name, refuse)
        patch.setattr(subprocess, "Popen", refuse)
        yield
