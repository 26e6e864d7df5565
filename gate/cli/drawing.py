"""Draws the HTML report in a child, which imports matplotlib while this process imports the stages and judges."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gate.errors import GateError

if TYPE_CHECKING:
    from gate.gating import Release
    from gate.record import Record


@contextlib.contextmanager
def drawing(dry_run: bool) -> Iterator[Callable[[Release], Release]]:
    """Give a function that hands a judged release to the child and returns it with the page that the child draws.

    If a child is of no use, or gives no answer, the release draws its page itself when the page is asked for.
    """
    from gate.ordered import cores
    from gate.scores.budget import ByteBudget
    from gate.scores.child import isolated

    if dry_run or "matplotlib" in sys.modules or cores() == 1 or not hasattr(os, "memfd_create"):
        yield lambda release: release
        return
    with contextlib.ExitStack() as opened:
        reading_end, writing_end = os.pipe()
        waiting, asking = opened.enter_context(open(reading_end, "rb")), opened.enter_context(open(writing_end, "wb"))
        record = opened.enter_context(open(os.memfd_create("gate"), "w+b"))

        def draw() -> str:
            from gate.report import html
            from gate.report.formats import warm_up

            warm_up()
            waiting.read(1)
            record.seek(0)
            return html.render(pickle.load(record))

        try:
            answer = opened.enter_context(isolated(draw, ByteBudget().memory))
        except GateError:  # there is no memory for one more process
            yield lambda release: release
            return

        def hand_over(release: Release) -> Release:
            pickle.dump(release.record, record)
            record.flush()
            asking.write(b"1")
            asking.flush()
            return replace(release, page=lambda: _page(answer, release.record))

        yield hand_over


def _page(answer: Callable[[], str], record: Record) -> str:
    from gate.report import html

    try:
        return answer()
    except Exception:  # drawing in this process gives a better message
        return html.render(record)
