"""Writes the terminal report on several detectors: what blocks, what to do, a line for each, and one for all."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from gate.record.system import SystemRecord
from gate.report.system import MOST_BLOCKING, Joint, columns, headline, joint, lines, remedies, sentence
from gate.report.terminal import SCREEN, STYLES, console_on, inert, print_notes, print_table, text_of

REMEDIES = 3  # more are left to the report
NAME = 24  # characters of a detector's name


def render(record: SystemRecord, width: int = 80, color: bool = False) -> str:
    """Write a line for each detector that does not pass, and for the others if they are few."""
    buffer = io.StringIO()
    console = console_on(buffer, width, color)

    def verdict() -> None:
        console.print(Text(inert(headline(record)), style=STYLES[record.outcome]))
        console.print(Text(inert(f"{sentence(record)}.")))

    def helps() -> None:
        every = remedies(record)
        for outcome, names, remedy in every[:REMEDIES]:
            console.print(Text.assemble((inert(names), STYLES[outcome]), f": {inert(remedy)}."))
        if len(every) > REMEDIES:
            console.print(Text(f"and {len(every) - REMEDIES} more, which the report lists"))

    verdict()
    if record.outcome != "pass":
        console.print(Text("What to do", style="bold"))
        helps()
        console.print()
    _print_detectors(console, record)
    for one in joint(record):
        limit = f", limit {one.limit}" if one.limit != "none" else ""
        console.print(
            Text.assemble(f"together from {one.score} on: {one.observed} ({one.counted}){limit}: ", _mark(one))
        )
        detected = f"; malicious detected {one.detected}" if one.detected else ""
        said = f"  largest {one.largest}, if independent {one.independent}, sum {one.sum}{detected}"
        console.print(Text(said, style="dim"))
    print_notes(console, record)
    if buffer.getvalue().count("\n") > SCREEN:
        console.print()
        verdict()
        if record.outcome != "pass":
            console.print(Text("What to do", style="bold"))
        helps()
    return text_of(buffer)


def _print_detectors(console: Console, record: SystemRecord) -> None:
    """Print a table if there is room for one, else a list; if there are many, those that pass are only counted."""
    every = lines(record)
    shown = [line for line in every if line.outcome != "pass"] if len(every) > MOST_BLOCKING else every
    heads = [heading for _, heading in columns(record)]
    used = [i for i in range(len(heads)) if any(line.cells[i].outcome for line in every)]
    cells = [
        [
            line.name if len(line.name) <= NAME else f"{line.name[: NAME - 1]}…",
            f"{line.outcome} (advisory)" if line.weight == "advisory" else line.outcome,
            *(line.cells[i].observed or line.cells[i].outcome for i in used),
        ]
        for line in shown
    ]
    if cells:
        print_table(console, ["detector", "verdict", *(heads[i] for i in used)], cells)
    rest = len(every) - len(shown)
    if rest:
        others = "other detectors" if shown else "detectors"
        console.print(Text.assemble(f"{rest} {others}: ", ("pass", STYLES["pass"])))


def _mark(one: Joint) -> tuple[str, str]:
    return f"{one.outcome} ({one.because})" if one.outcome else one.because, STYLES.get(one.outcome, "")
