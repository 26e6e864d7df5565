"""The terminal report: a table where there is room for one, a list where there is not."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.release import Record
from gate.report.rows import HEADLINES, Row, clean, rows

TABLE_WIDTH = 76
STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}


def render(record: Record, width: int = 80, color: bool = False) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    console.print(Text(HEADLINES[record.outcome], style=STYLES[record.outcome]))
    console.print(Text(f"{clean(record.reason)}."))
    console.print(
        Text(
            f"release {clean(record.release)}, policy {clean(record.policy.name)}, rule {clean(record.policy.rule)}, "
            f"{record.fit.n:,} benign rows to fit, {record.holdout.n:,} held out",
            style="dim",
        )
    )
    console.print()
    findings = rows(record)
    if width >= TABLE_WIDTH:
        console.print(_table(findings))
    else:
        for row in findings:
            console.print(Text.assemble((row.target, "bold"), "  ", _outcome(row)))
            console.print(Text(f"  {row.counted} = {row.observed}"))
            console.print(Text(f"  interval {row.interval}"))
    for row in findings:
        if row.remedy:
            console.print()
            console.print(Text.assemble((f"{row.check}: {row.outcome}", STYLES[row.outcome]), f": {row.message}."))
            console.print(Text(f"What would help: {row.remedy}."))
    for waiver in record.waivers:
        console.print()
        console.print(
            Text(
                f"waiver of {clean(waiver.check)}: {waiver.status} (until {clean(waiver.expires)}, "
                f"{clean(waiver.owner)}: {clean(waiver.reason)})"
            )
        )
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _table(findings: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in [("target", "right"), ("score", "right"), ("false pos / benign", "right")]:
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("interval", justify="right")
    table.add_column("outcome")
    for row in findings:
        table.add_row(row.target, row.score, row.counted, row.interval, _outcome(row))
    return table


def _outcome(row: Row) -> Text:
    aside = row.grade if row.standing == "required" else f"{row.grade}, {row.standing}"
    return Text.assemble((row.outcome, STYLES[row.outcome]), f" ({aside})" if aside else "")
