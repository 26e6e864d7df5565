"""Draws the HTML report in a child, which imports matplotlib while this process imports the stages and judges."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gate.gating import Release
    from gate.record import Record


@contextlib.contextmanager
def drawing(dry_run: bool) -> Iterator[Callable[[Release], Release]]:
    """Give a function that hands a judged release to the child and returns it with the page that the child draws.

    If a child is of no use, or gives no answer, the release draws its page itself when the page is asked for.
    """
    import multiprocessing

    from gate.rows.engine import cores

    can_fork = "fork" in multiprocessing.get_all_start_methods()
    if dry_run or "matplotlib" in sys.modules or cores() == 1 or not can_fork:
        yield lambda release: release
        return
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_draw, args=(theirs,), daemon=True)
    try:
        child.start()
    except OSError:  # there is no memory for one more process
        yield lambda release: release
        return
    theirs.close()

    def hand_over(release: Release) -> Release:
        with contextlib.suppress(OSError):
            ours.send(release.record)
        return replace(release, page=lambda: _page(ours, release.record))

    try:
        yield hand_over
    finally:
        child.kill()
        child.join()


def _draw(pipe: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent stops this process
        signal.signal(number, signal.SIG_IGN)
    from gate.report import html
    from gate.report.formats import warm_up

    warm_up()
    with contextlib.suppress(EOFError):
        pipe.send(html.render(pipe.recv()))


def _page(pipe: Any, record: Record) -> str:
    from gate.report import html

    try:
        page: str = pipe.recv()
    except (EOFError, OSError):  # drawing in this process gives a better message
        return html.render(record)
    return page
