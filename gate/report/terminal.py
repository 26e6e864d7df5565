"""The terminal report: a table where there is room for one, a list where there is not."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.errors import plural
from gate.release import BaselineSection, Record
from gate.report.changes import Changes, DetectionRow, changes, detection_rows
from gate.report.rows import (
    Row,
    baseline_findings,
    by_remedy,
    clean,
    detection_findings,
    headline,
    in_order,
    not_asked,
    other_rows,
    passed_checks,
    rows,
    segment_rows,
)

STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
SEGMENTS, SEGMENTS_TOLD = 10, 3
BLOCKING = 12
TOLD = ("reused", "counted")  # reasons of passing checks that say more than their name
NAME = 20
_COMMAND = re.compile(r":(?=:|$)|##(?=\[)")


def inert(text: str) -> str:
    """Text from outside that no line break can turn into a command of the CI system (`::error::`, `##[error]`)."""
    return _COMMAND.sub(lambda match: f"{match[0]} ", clean(text))


@contextmanager
def working(what: Callable[[], str], after: float = 2.0, every: float = 0.5) -> Iterator[None]:
    """A moving line on stderr that says what is being done, from the time when a person begins to wonder."""
    status = Console(stderr=True).status(Text(inert(what())))
    over = Event()

    def show() -> None:
        if not over.wait(after):
            status.start()
        while not over.wait(every):
            status.update(Text(inert(what())))

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        status.stop()


def console_on(buffer: io.StringIO, width: int, color: bool) -> Console:
    """A console of this width that asks neither the environment nor the terminal for anything."""
    return Console(
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


def text_of(buffer: io.StringIO) -> str:
    """What was printed, without the blanks that rich pads lines with."""
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def render(record: Record, width: int = 80, color: bool = False) -> str:
    buffer = io.StringIO()
    console = console_on(buffer, width, color)
    _print_verdict(console, record)
    targets, segments = rows(record), segment_rows(record)
    others, apart = other_rows(record), [*detection_findings(record), *baseline_findings(record)]
    told = [*targets, *apart, *others, *segments[:SEGMENTS_TOLD]]
    blocking = [row for row in in_order(told) if row.blocks][:BLOCKING]
    _print_remedies(console, blocking)
    more = sum(finding.blocks for finding in record.findings) - len(blocking)
    if more:
        console.print(Text(f"\nand {plural(more, 'more finding')} against this release, which verdict.json lists"))
    console.print()
    _print_numbers(console, targets, "target", [row.target for row in targets])
    if targets:
        rates = ", ".join(f"{row.target} = {row.target_one_in}" for row in targets)
        console.print(Text(rates, style="dim"))
    _print_segments(console, record, segments[:SEGMENTS])
    detection = detection_rows(record)
    if detection:
        console.print()
        _print_detection(console, detection)
    _print_remedies(console, [row for row in told if row.remedy and not row.blocks])
    _print_settled(console, apart, others)
    if record.not_asked:
        console.print()
        console.print(Text(f"not asked in a check: {inert(not_asked(record))}.", style="dim"))
    if record.baseline is not None:
        console.print()
        _print_changes(console, changes(record.baseline, record.kind))
    for warning in record.warnings:
        console.print()
        console.print(Text.assemble(("warning: ", "yellow"), f"{inert(warning)}."))
    for waiver in record.waivers:
        console.print()
        console.print(
            Text(
                f"waiver of {inert(waiver.check)}: {waiver.status} (until {inert(waiver.expires)}, "
                f"{inert(waiver.owner)}: {inert(waiver.reason)})"
            )
        )
    return text_of(buffer)


def _print_verdict(console: Console, record: Record) -> None:
    console.print(Text(headline(record), style=STYLES[record.outcome]))
    console.print(Text(f"{inert(record.reason)}."))
    sizes = f"{record.fit.n:,} benign rows to fit, {record.holdout.n:,} held out"
    if record.kind == "check":
        sizes = f"nothing fitted, {record.holdout.n:,} benign rows checked"
    console.print(
        Text(
            f"{'check of' if record.kind == 'check' else 'release'} {inert(record.release)}, "
            f"policy {inert(record.policy.name)}, rule {inert(record.policy.rule)}, {sizes}",
            style="dim",
        )
    )


def _print_segments(console: Console, record: Record, shown: list[Row]) -> None:
    if not shown:
        return
    console.print()
    _print_numbers(console, shown, "segment", [_segment(row) for row in shown])
    counted = record.segments
    tests = len(counted.names) * len(counted.targets) if counted else len(segment_rows(record))
    if tests > len(shown):
        console.print(Text(f"and {tests - len(shown):,} more segments, which verdict.json lists"))


def _print_remedies(console: Console, findings: list[Row]) -> None:
    """Findings with what would help them."""
    for remedy, helped in by_remedy(findings):
        console.print()
        for row in helped:
            aside = "" if row.blocks else f" ({row.standing})"
            heading = f"{inert(row.check)}: {row.outcome}{aside}"
            console.print(Text.assemble((heading, STYLES[row.outcome]), f": {inert(row.message)}."))
        if remedy:
            console.print(Text.assemble(("What would help: ", "bold"), f"{inert(remedy)}."))


def _print_settled(console: Console, apart: list[Row], others: list[Row]) -> None:
    """What needs no remedy: in a sentence where that says more than a name, the rest by name."""
    settled = [row for row in [*apart, *others] if not row.remedy and not row.blocks]
    told = [row for row in settled if row in apart or row.outcome != "pass" or row.reason in TOLD]
    for row in told:
        console.print()
        console.print(Text.assemble(f"{inert(row.check)}: ", _outcome(row), f": {inert(row.message)}."))
    names = [inert(name) for name in passed_checks(others) if name not in {row.check for row in told}]
    if names:
        console.print()
        console.print(Text.assemble(("pass", STYLES["pass"]), f": {', '.join(names)}"))


def render_changes(section: BaselineSection, record: Record, width: int = 80, color: bool = False) -> str:
    """Two releases side by side, without a verdict."""
    buffer = io.StringIO()
    console = console_on(buffer, width, color)
    console.print(Text(f"{inert(section.release)} ({section.outcome}) and {inert(record.release)} ({record.outcome})"))
    console.print()
    _print_changes(console, changes(section, "run"))
    return text_of(buffer)


def _print_detection(console: Console, detection: list[DetectionRow]) -> None:
    judged = any(row.minimum for row in detection)
    headings = ["at FPR", "detected / malicious", "interval", *(["minimum", "outcome"] if judged else [])]
    cells = [
        [row.target, row.counted, row.interval.replace(" to ", "–"), row.minimum, row.outcome][: len(headings)]
        for row in detection
    ]
    _print_table(console, headings, cells)


def _print_changes(console: Console, changed: Changes) -> None:
    console.print(Text(f"What changed since {inert(changed.since)} ({inert(changed.created[:10])})", style="bold"))
    if not changed.is_reference:
        console.print(Text(f"{inert(changed.release)} did not pass its own gate ({changed.outcome}): no reference."))
    headings = ["target", "raw then", "raw now", "FPR then", "FPR now", "p"]
    cells = [[row.target, *row.thresholds, row.old, row.new, row.p] for row in changed.rows]
    if changed.stale:
        headings.append("at raw then")
        cells = [[*line, row.stale.partition(" (")[0]] for line, row in zip(cells, changed.rows, strict=True)]
    _print_table(console, headings, cells)
    if changed.stale:
        console.print(Text("at raw then: what the new scores would flag at the old raw threshold", style="dim"))
    if changed.paired:
        console.print()
        headings = ["target", "newly flagged", "no longer", "flipped"]
        _print_table(console, headings, [[row.target, row.gained, row.lost, row.flipped] for row in changed.rows])
    if changed.detection:
        console.print()
        headings = ["at FPR", "TPR then", "TPR now", "change in points", "p"]
        cells = [[row.target, row.old, row.new, row.difference, row.p] for row in changed.detection]
        _print_table(console, headings, [[cell.replace(" points", "") for cell in line] for line in cells])
    console.print()
    if changed.policy_same:
        console.print(Text("The policy asks for the same."))
    for change in changed.policy:
        console.print(Text(f"policy {inert(change)}"))


def _print_table(console: Console, headings: list[str], cells: list[list[str]]) -> None:
    """A table, or a list where it is too wide: no cell is ever cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in cells:
        table.add_row(*line)
    if console.measure(table, options=console.options.update_width(1000)).maximum <= console.width:
        console.print(table)
        return
    for line in cells:
        console.print(Text(line[0], style="bold"))
        for heading, cell in zip(headings[1:], line[1:], strict=True):
            if cell:
                console.print(Text(f"  {heading} {cell}"))


def _print_numbers(console: Console, findings: list[Row], name: str, names: list[str]) -> None:
    table = _table(findings, name, names)
    if not findings or console.measure(table, options=console.options.update_width(1000)).maximum <= console.width:
        console.print(table)
        return
    for row, shown in zip(findings, names, strict=True):
        console.print(Text.assemble((shown, "bold"), "  ", _outcome(row)))
        console.print(Text(f"  {row.counted} = {row.observed}"))
        console.print(Text(f"  interval {row.interval}"))
        console.print(Text(f"  tolerance {row.tolerance}"))


def _table(findings: list[Row], name: str, names: list[str]) -> Table:
    """No cell wraps and none is cut: a number that lost its end would be another number.

    A segment has the tolerance of its target, which stands in the table above it.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(name, justify="right" if name == "target" else "left", no_wrap=True)
    headings = ("FP / benign", "interval", "tolerance") if name == "target" else ("FP / benign", "interval")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for row, shown in zip(findings, names, strict=True):
        cells = [row.counted, row.interval.replace(" to ", "–"), row.tolerance.replace(" to ", "–")]
        table.add_row(shown, *cells[: len(headings)], _outcome(row))
    return table


def _segment(row: Row) -> str:
    """A name may be cut, a number never."""
    name = inert(row.check.partition("/")[2])
    return f"{name if len(name) <= NAME else name[: NAME - 1] + '…'} {row.target}"


def _outcome(row: Row) -> Text:
    """The reason's code says more than the grade would: too few rows can be proven and inconclusive at once."""
    aside = inert(row.reason) if row.standing == "required" else row.standing
    return Text.assemble((row.outcome, STYLES[row.outcome]), f" ({aside})" if aside else "")
