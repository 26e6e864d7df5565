"""The terminal report: a table where there is room for one, a list where there is not."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.release import Record
from gate.report.rows import HEADLINES, Row, clean, notes, rows

STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_COMMAND = re.compile(r":(?=:|$)|##(?=\[)")


def inert(text: str) -> str:
    """Text from outside that no line break can turn into a command of the CI system (`::error::`, `##[error]`)."""
    return _COMMAND.sub(lambda match: f"{match[0]} ", clean(text))


def render(record: Record, width: int = 80, color: bool = False) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        height=25,  # where only one of the two is given, rich asks the environment for both
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    console.print(Text(HEADLINES[record.outcome], style=STYLES[record.outcome]))
    console.print(Text(f"{inert(record.reason)}."))
    console.print(
        Text(
            f"release {inert(record.release)}, policy {inert(record.policy.name)}, rule {inert(record.policy.rule)}, "
            f"{record.fit.n:,} benign rows to fit, {record.holdout.n:,} held out",
            style="dim",
        )
    )
    console.print()
    findings = rows(record)
    table = _table(findings)
    if console.measure(table, options=console.options.update_width(1000)).maximum <= width:
        console.print(table)
    else:
        for row in findings:
            console.print(Text.assemble((row.target, "bold"), "  ", _outcome(row)))
            console.print(Text(f"  {row.counted} = {row.observed}"))
            console.print(Text(f"  interval {row.interval}"))
            console.print(Text(f"  tolerance {row.tolerance}"))
    for row in findings:
        if row.remedy:
            console.print()
            heading = f"{inert(row.check)}: {row.outcome}"
            console.print(Text.assemble((heading, STYLES[row.outcome]), f": {inert(row.message)}."))
            console.print(Text(f"What would help: {inert(row.remedy)}."))
    for note in notes(record):
        console.print()
        heading = f"{inert(note.check)}: {note.outcome}"
        console.print(Text.assemble((heading, STYLES[note.outcome]), f" ({note.standing}): {inert(note.message)}."))
        if note.remedy:
            console.print(Text(f"What would help: {inert(note.remedy)}."))
    for warning in record.warnings:
        console.print()
        console.print(Text.assemble(("warning", "bold yellow"), f": {inert(warning)}."))
    for waiver in record.waivers:
        console.print()
        console.print(
            Text(
                f"waiver of {inert(waiver.check)}: {waiver.status} (until {inert(waiver.expires)}, "
                f"{inert(waiver.owner)}: {inert(waiver.reason)})"
            )
        )
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _table(findings: list[Row]) -> Table:
    """No cell wraps and none is cut: a number that lost its end would be another number."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("target", "FP / benign", "interval", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for row in findings:
        interval, tolerance = (cell.replace(" to ", "–") for cell in (row.interval, row.tolerance))
        table.add_row(row.target, row.counted, interval, tolerance, _outcome(row))
    return table


def _outcome(row: Row) -> Text:
    aside = row.grade if row.standing == "required" else row.standing
    return Text.assemble((row.outcome, STYLES[row.outcome]), f" ({aside})" if aside else "")
