"""Writes the terminal report: a table if there is room for one, else a list; it compares and decides nothing."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.checks.segments import Segments
from gate.progress import meanwhile
from gate.record import Record
from gate.record.system import SystemRecord
from gate.report.changes import Changes, DetectionRow, changes, detection_rows
from gate.report.numbers import clean
from gate.report.page import next_step, weakest_pass
from gate.report.rows import (
    Row,
    baseline_findings,
    by_remedy,
    detection_findings,
    each_remedy,
    headline,
    in_order,
    not_asked,
    other_rows,
    passed_checks,
    plain_reason,
    proven_ranges,
    segment_rows,
    segment_words,
    target_rows,
)
from gate.words import cut_within, plural

STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
SEGMENTS, SEGMENTS_NAMED = 10, 3
BLOCKING = 12
SAYS_MORE = ("reused", "counted")  # reasons of passing checks that say more than their name
NAME = 20
SCREEN = 18  # of 24 lines; the log and the prompt take the rest; a longer report repeats the verdict at its end
_COMMAND = re.compile(r":(?=:|$)|##(?=\[)")


def inert(text: str) -> str:
    """Clean text from outside: no line break can turn it into a command of the CI system (`::error::`, `##[error]`)."""
    return _COMMAND.sub(lambda match: f"{match[0]} ", clean(text))


@contextmanager
def working(what: Callable[[], str], after: float = 2.0, every: float = 0.5) -> Iterator[None]:
    """Show a moving line on stderr that says what is being done, once a person begins to wonder."""
    status = Console(stderr=True).status(Text(inert(what())))

    def show(over: Event) -> None:
        if not over.wait(after):
            status.start()
        while not over.wait(every):
            status.update(Text(inert(what())))

    try:
        with meanwhile(show):
            yield
    finally:
        status.stop()


class Paper(Console):
    """A console on which no number is parted from its percent sign at the end of a line."""

    TIE = "\ue000"  # not printable, so that no text from outside holds one

    def print(self, *objects: Any, **options: Any) -> None:
        for text in objects:
            if isinstance(text, Text):
                text.plain = text.plain.replace(" %", f"{self.TIE}%")
        super().print(*objects, **options)


def console_on(buffer: io.StringIO, width: int, color: bool) -> Console:
    """A console of this width that asks neither the environment nor the terminal for anything."""
    return Paper(
        file=buffer,
        width=width,
        height=25,  # if only one of the two is given, rich asks the environment for both
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )


def text_of(buffer: io.StringIO) -> str:
    """Return what was printed, without the blanks with which rich pads lines."""
    return "\n".join(line.rstrip() for line in buffer.getvalue().replace(Paper.TIE, " ").splitlines()) + "\n"


def render(record: Record, width: int = 80, color: bool = False) -> str:
    """Write the verdict and why, what blocks, what would help, and the numbers; a plain pass takes at most 8 lines."""
    buffer = io.StringIO()
    console = console_on(buffer, width, color)
    _print_verdict(console, record)
    targets, segments = target_rows(record), segment_rows(record)
    others, apart = other_rows(record), [*detection_findings(record), *baseline_findings(record)]
    judged = [*targets, *apart, *others, *segments[:SEGMENTS_NAMED]]
    blocking, passed = [row for row in in_order(judged) if row.blocks][:BLOCKING], record.outcome == "pass"
    _print_remedies(console, blocking)
    more = sum(finding.blocks for finding in record.findings) - len(blocking)
    if more:
        console.print(Text(f"\nand {plural(more, 'more finding')} against this release, which verdict.json lists"))
    if blocking or segments:
        console.print()
    _print_numbers(console, targets, "target", [row.target for row in targets], brief=passed)
    _print_segments(console, record, segments[:SEGMENTS])
    _print_detection(console, detection_rows(record), targets, brief=passed)
    in_table = [row for row in targets if passed and row.outcome == "inconclusive"]  # the table shows their outcome
    _print_advice(console, [row for row in judged if row.remedy and not row.blocks and row not in in_table], blocking)
    _print_settled(console, record, apart, others)
    if record.policy.rule != "proven" and (said := weakest_pass(record)):
        console.print(Text(f"{inert(said)}.", style="dim"))
    if record.not_asked:
        console.print(Text(f"not asked in a check: {inert(not_asked(record))}.", style="dim"))
    changed = changes(record)
    if changed is not None:
        console.print()
        _print_changes(console, changed)
    print_notes(console, record)
    if buffer.getvalue().count("\n") > SCREEN:
        console.print()
        _print_verdict(console, record)
        _print_what_to_do(console, record, blocking)
    return text_of(buffer)


def print_notes(console: Console, record: Record | SystemRecord) -> None:
    """Print warnings and waivers; of an advisory target only what is weak: the report says what would help."""
    advisory = {str(finding.check) for finding in record.findings if not finding.required}
    for warning in record.warnings:
        if warning.partition(": ")[0] in advisory:
            weakness = warning.partition(";")[0].partition(" with ")[0]
            console.print(Text(f"{inert(weakness)}.", style="dim"))
        else:
            console.print(Text.assemble(("warning: ", "yellow"), f"{inert(warning)}."))
    for waiver in record.waivers:
        said = f"{waiver.status} (until {waiver.expires}, {inert(waiver.owner)}: {inert(waiver.reason)})"
        console.print(Text(f"waiver of {inert(str(waiver.check))}: {said}"))


def _print_verdict(console: Console, record: Record) -> None:
    console.print(Text(inert(headline(record)), style=STYLES[record.outcome]))
    said, others = inert(plain_reason(record, brief=True)), _others(record)
    console.print(Text(f"{said}{others if len(said + others) < console.width else ''}."))


def _others(record: Record) -> str:
    """Say how many checks pass beside those that the reason names; the report has their names."""
    passed = [name for name in _passed(record) if name not in proven_ranges(record)] if record.outcome == "pass" else []
    return f"; {plural(len(passed), 'other check')} {'passes' if len(passed) == 1 else 'pass'}" if passed else ""


def _passed(record: Record) -> list[str]:
    """List the checks that pass and have no numbers of their own."""
    return passed_checks([*detection_findings(record), *other_rows(record)])


def _print_what_to_do(console: Console, record: Record, blocking: list[Row]) -> None:
    """Print each remedy once and whole, with its checks, as the last lines, if the first ones have left the screen."""
    remedies = each_remedy(blocking) if blocking else [(next_step(record).rstrip("."), [])]
    for remedy, helped in remedies[:3]:
        names = [*dict.fromkeys(inert(row.segment or row.check) for row in helped)][:3]
        where = f" ({', '.join(names)})" if len(remedies) > 1 or any(row.segment for row in helped) else ""
        console.print(Text.assemble((f"What to do{where}: ", "bold"), f"{inert(remedy)}."))


def _print_segments(console: Console, record: Record, shown: list[Row]) -> None:
    if not shown:
        return
    console.print()
    _print_numbers(console, shown, "segment", [_segment(row) for row in shown])
    counted: Segments | None = record.of(Segments)
    tests = len(counted.names) * len(counted.targets) if counted else len(segment_rows(record))
    if tests > len(shown):
        more = tests - len(shown)
        console.print(Text(f"and {more:,} more {segment_words(record)[more > 1]}, which verdict.json lists"))


def _print_remedies(console: Console, findings: list[Row]) -> None:
    """Print findings, and the remedy of each."""
    for remedy, helped in by_remedy(findings):
        console.print()
        for row in helped:
            heading = f"{inert(row.check)}: {row.outcome}"
            console.print(Text.assemble((heading, STYLES[row.outcome]), f": {inert(row.message)}."))
        if remedy:
            console.print(Text.assemble(("What would help: ", "bold"), f"{inert(remedy)}."))


def _print_advice(console: Console, findings: list[Row], blocking: list[Row]) -> None:
    """Print findings that do not block: one line for those with the same remedy, without its reasons.

    The outcome of a target stands in the table.
    """
    known = {row.remedy for row in blocking}
    same = "the same would help"
    brief = [replace(row, remedy=same if row.remedy in known else row.remedy.partition(": ")[0]) for row in findings]
    for cure, helped in by_remedy(brief):
        names = ", ".join(inert(row.check) for row in helped)
        outcome = (helped[0].outcome, STYLES[helped[0].outcome])
        in_table = all(row.target and not row.segment for row in helped)
        found = Text() if in_table else Text.assemble(outcome, f" ({helped[0].weight}): ")
        console.print(Text.assemble(f"{names}: ", found, f"{inert(cure)}."))


def _print_settled(console: Console, record: Record, apart: list[Row], others: list[Row]) -> None:
    """Print what needs no remedy: a sentence if it says more than a name, else the name; a pass counts them."""
    settled = [row for row in [*apart, *others] if not row.remedy and not row.blocks]
    said = [r for r in settled if r.outcome != "pass" or r.kind == "baseline" or r.reason in SAYS_MORE]
    for row in said:
        console.print(Text.assemble(f"{inert(row.check)}: ", _outcome(row), f": {inert(row.message)}."))
    names = [inert(name) for name in _passed(record) if name not in {row.check for row in said}]
    if names and record.outcome != "pass":
        console.print(Text.assemble(("pass", STYLES["pass"]), f": {', '.join(names)}"))


def render_changes(changed: Changes, record: Record, width: int = 80, color: bool = False) -> str:
    """Show two releases side by side, without a verdict."""
    buffer = io.StringIO()
    console = console_on(buffer, width, color)
    console.print(Text(f"{inert(changed.release)} ({changed.outcome}) and {inert(record.release)} ({record.outcome})"))
    console.print()
    _print_changes(console, changed)
    return text_of(buffer)


def _print_detection(console: Console, found: list[DetectionRow], targets: list[Row], *, brief: bool) -> None:
    """Print a table; for a pass only a line for each minimum, or else one for the rarest required target."""
    judged = [row for row in found if row.minimum]
    if brief:
        required = {row.target for row in targets if row.weight == "required"}
        for row in judged or [row for row in found if row.target in required][-1:]:
            least = f"; minimum {row.minimum}{'' if row.outcome == 'pass' else f': {row.outcome}'}" if judged else ""
            console.print(Text(f"detected at {row.target}: {row.counted} malicious rows, {row.interval}{least}"))
        return
    headings = ["at FPR", "detected / malicious", "interval", *(["minimum", "outcome"] if judged else [])]
    cells = [
        [row.target, row.counted, row.interval.replace(" to ", "–"), row.minimum, row.outcome][: len(headings)]
        for row in found
    ]
    if cells:
        console.print()
        print_table(console, headings, cells)


def _print_changes(console: Console, changed: Changes) -> None:
    console.print(Text(f"What changed since {inert(changed.since)} ({inert(changed.created[:10])})", style="bold"))
    if not changed.is_reference:
        console.print(Text(f"{inert(changed.release)} did not pass its own gate ({changed.outcome}): no reference."))
    headings = ["target", "raw then", "raw now", "FPR then", "FPR now", "p"]
    cells = [[row.target, *row.thresholds, row.old, row.new, row.p] for row in changed.rows]
    if changed.stale:
        headings.append("at raw then")
        cells = [[*line, row.stale.partition(" (")[0]] for line, row in zip(cells, changed.rows, strict=True)]
    print_table(console, headings, cells)
    if changed.stale:
        console.print(Text("at raw then: what the new scores would flag at the old raw threshold", style="dim"))
    if changed.paired:
        console.print()
        headings = ["target", "newly flagged", "no longer", "flipped"]
        print_table(console, headings, [[row.target, row.gained, row.lost, row.flipped] for row in changed.rows])
    if changed.detection:
        console.print()
        headings = ["at FPR", "TPR then", "TPR now", "change in points", "p"]
        cells = [[row.target, row.old, row.new, row.difference, row.p] for row in changed.detection]
        print_table(console, headings, [[cell.replace(" points", "") for cell in line] for line in cells])
    console.print()
    if changed.policy_same:
        console.print(Text("The policy asks for the same."))
    for change in changed.policy:
        console.print(Text(f"policy {inert(change)}"))


def plain_table(*headings: str, left: tuple[str, ...] = (), room: int = 2) -> Table:
    """Make a table of numbers, and of words in the columns of `left`: no cell wraps and none is cut."""
    table = Table(box=None, pad_edge=False, padding=(0, room, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    return table


def print_table(console: Console, headings: list[str], cells: list[list[str]]) -> None:
    """Print a table, or a list if the table is too wide: no cell is ever cut."""
    table = plain_table(*headings, left=("detector",))
    for line in cells:
        table.add_row(*line)
    if _fits(console, table):
        console.print(table)
        return
    for line in cells:
        console.print(Text(line[0], style="bold"))
        for heading, cell in zip(headings[1:], line[1:], strict=True):
            if cell:
                console.print(Text(f"  {heading} {cell}"))


def _print_numbers(console: Console, findings: list[Row], name: str, names: list[str], *, brief: bool = False) -> None:
    """Print a table if one fits, else a list; a `brief` table first leaves out the counts, then the tolerances."""
    whole = ("FP / benign", "interval", "tolerance")
    tables = [whole, whole[1:], whole[1:2]] if brief else [whole[:2] if name == "segment" else whole]
    for headings in tables:
        table = _table(findings, name, names, headings)
        if not findings or _fits(console, table):
            console.print(table)
            return
    for row, shown in zip(findings, names, strict=True):
        console.print(Text.assemble((shown, "bold"), "  ", _outcome(row)))
        console.print(Text(f"  {row.counted} = {row.observed}"))
        console.print(Text(f"  interval {row.interval}"))
        console.print(Text(f"  tolerance {row.tolerance}"))


def _fits(console: Console, table: Table) -> bool:
    return console.measure(table, options=console.options.update_width(1000)).maximum <= console.width


def _table(findings: list[Row], name: str, names: list[str], headings: tuple[str, ...]) -> Table:
    """Make the table; no cell wraps and none is cut: a number that lost its end would be another number.

    A segment has the tolerance of its target, which stands in the table above it.
    """
    table = plain_table(name, *headings, "outcome", left=("segment", "outcome"), room=min(len(headings), 2))
    for row, shown in zip(findings, names, strict=True):
        cells = {"FP / benign": row.counted, "interval": row.interval, "tolerance": row.tolerance}
        table.add_row(shown, *(cells[heading].replace(" to ", "–") for heading in headings), _outcome(row))
    return table


def _segment(row: Row) -> str:
    """Shorten the name of a segment: a name may be cut, but never a number."""
    return f"{cut_within(inert(row.segment), NAME)} {row.target}"


def _outcome(row: Row) -> Text:
    """Write the outcome with its reason's code, which says more than the grade: too few rows are open though proven."""
    aside = inert(row.reason) if row.weight == "required" else row.weight
    return Text.assemble((row.outcome, STYLES[row.outcome]), f" ({aside})" if aside else "")
