"""Unit tests start no process: they are quick, and a fault in one is its own."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest
from pages import stand_in

from gate.report import drawing, figures

TO_SVG = figures.to_svg


def pytest_collection_finish() -> None:
    """What was imported and collected stays: garbage is looked for elsewhere, and more seldom, in a tenth less time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries look for what is left over at the end, and would find all of it


@pytest.fixture(scope="session")
def fonts() -> None:
    """Where matplotlib has no list of the fonts yet, it asks another program for them as it is imported."""
    drawing.matplotlib()


@pytest.fixture(scope="module", autouse=True)
def no_process(fonts: None) -> Iterator[None]:
    """Refuse every process; a file is read in this one, without the child that `tests/system/test_bytes.py` tests."""

    def refuse(*_args: object, **_more: object) -> NoReturn:
        pytest.fail("a unit test starts no process; put it into tests/system")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate.scores.reading.isolated", lambda function, _most: contextlib.nullcontext(function))
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            patch.setattr(os, name, refuse)
        patch.setattr(subprocess, "Popen", refuse)
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """In files without the mark `figures` draw no figure of a release, and count few points of its curve.

    What a finding advises of a range is simulated with a tenth of the draws: `test_range_plans` asks how sure that is.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            patch.setattr(figures, "to_svg", stand_in)
            patch.setattr("gate.checks.curve.STEPS", 10)
        patch.setattr("gate.planning.range_advice.FINE_DRAWS", 160)
        yield


@pytest.fixture(autouse=True)
def whole_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a test with that mark draw them all the same."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is not None:
            patch.setattr(figures, "to_svg", TO_SVG)
        yield
