"""The page is drawn in a child where that helps, and by the command itself wherever the child has no answer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import gate
from gate.cli.drawing import drawing
from gate.errors import GateError
from gate.gating import Release
from gate.record import Record
from gate.report import formats, html

HERE = os.getpid()


@pytest.fixture(scope="module")
def release() -> Release:
    return gate.run(np.linspace(0, 1, 2000), np.linspace(0, 1, 2001), release="v1")


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start as in a process that has drawn nothing yet, on two cores."""
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    monkeypatch.setattr(formats, "warm_up", lambda: None)
    monkeypatch.setattr("gate.rows.engine.cores", lambda: 2)


def draw_as(monkeypatch: pytest.MonkeyPatch, in_the_child: Callable[[], str]) -> None:
    """Let the page be what the child makes of it there, and the word `here` in this process."""

    def render(record: Record) -> str:
        assert record.release == "v1"
        return "here" if os.getpid() == HERE else in_the_child()

    monkeypatch.setattr(html, "render", render)


def test_the_child_draws_the_page_among_all_files(monkeypatch: pytest.MonkeyPatch, release: Release) -> None:
    draw_as(monkeypatch, lambda: "there")
    with drawing(dry_run=False) as drawn:
        files = drawn(release).files
    assert files == {**replace(release).files, "report.html": b"there"}


def end_by(number: signal.Signals) -> str:
    os.kill(os.getpid(), number)
    return "never"


def refuse() -> str:
    raise MemoryError


@pytest.mark.parametrize(
    "fate",
    [refuse, lambda: str(1 // 0), lambda: end_by(signal.SIGKILL), lambda: end_by(signal.SIGSEGV)],
    ids=["memory", "error", "killed", "crash"],
)
def test_without_an_answer_it_is_drawn_here(
    monkeypatch: pytest.MonkeyPatch, release: Release, fate: Callable[[], str]
) -> None:
    draw_as(monkeypatch, fate)
    with drawing(dry_run=False) as drawn:
        judged = drawn(release)
        assert judged.page is not None
        assert judged.files["report.html"] == b"here"


def test_no_child_where_it_is_of_no_use_or_cannot_be(monkeypatch: pytest.MonkeyPatch, release: Release) -> None:
    draw_as(monkeypatch, lambda: "there")
    with drawing(dry_run=True) as drawn:
        assert drawn(release).page is None
    with monkeypatch.context() as patch:
        patch.setattr("gate.rows.engine.cores", lambda: 1)
        with drawing(dry_run=False) as drawn:
            assert drawn(release).page is None
    monkeypatch.setattr(os, "fork", no_process)
    with drawing(dry_run=False) as drawn:
        assert drawn(release).page is None


def no_process() -> int:
    raise OSError("there is no memory for one more process")


def test_a_command_that_fails_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that nobody asks for a page would wait for ever."""
    started: list[int] = []
    fork = os.fork

    def counted() -> int:
        started.append(fork())
        return started[-1]

    monkeypatch.setattr(os, "fork", counted)
    with pytest.raises(GateError, match="no rows"), drawing(dry_run=False):
        raise GateError("no rows")
    assert len(started) == 1
    with pytest.raises(ChildProcessError):
        os.waitpid(started[0], 0)
