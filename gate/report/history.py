"""The history for people and scripts: a table per terminal, one page with figures, Markdown, and JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.errors import plural
from gate.history import Flagged, History, Reading, Release
from gate.release import FindingEntry
from gate.report import figures
from gate.report.html import FigurePart
from gate.report.markdown import escape, verbatim
from gate.report.page import Limit, fitting
from gate.report.rows import (
    THIN_SPACE,
    Row,
    bare_percent,
    beside,
    bounds,
    clean,
    fpr_findings,
    grouped,
    numbered_rows,
    percent,
    regrouped,
    spaced,
)
from gate.report.templates import shortened, template
from gate.report.terminal import NAME, STYLES, inert

MAX_BYTES = {"html": 1_000_000, "md": 60_000}
MOST = {"html": 50, "md": 30, "text": 20}  # releases in the table: the latest
MOST_ANCHORS = 12
MOST_DRAWN = 300  # releases in a figure: about one for each point of its width
WIDEST = 400  # a table wider than the terminal wraps there: better than numbers cut short
DRAWN_NAME = 9


@dataclass(frozen=True)
class Cell:
    """One anchor in one release, ready to print; `tolerance` is empty where it is that of the latest release."""

    outcome: str
    standing: str
    observed: str
    counted: str
    interval: str
    tolerance: str
    threshold: str
    stale: str
    tpr: str
    tpr_counted: str
    tpr_interval: str


@dataclass(frozen=True)
class Line:
    """One release, ready to print; a cell is null where the release was not judged at that anchor."""

    number: int
    name: str
    created: str
    kind: str
    outcome: str
    fit: str
    holdout: str
    notes: list[str]
    cells: list[Cell | None]

    @property
    def shown_name(self) -> str:
        """A name may be cut, a number never."""
        return shortened(inert(self.name), NAME)


@dataclass(frozen=True)
class Column:
    """One anchor: what the latest release that was judged there was held to."""

    check: str
    target: str
    score: str
    tolerance: str
    required: bool
    first: str


# --- the parts that every format shows ----------------------------------------------------------------------


def columns(history: History) -> list[Column]:
    """The anchors as the releases' reports write them."""
    found = []
    for check in history.checks[:MOST_ANCHORS]:
        readings = [(r.name, r.readings[check]) for r in history.releases if check in r.readings]
        row = _row(readings[-1][1], ",")
        if row is not None:
            first = next((name for name, reading in readings if reading.fpr.threshold is not None), "")
            required = readings[-1][1].fpr.required
            found.append(Column(check, row.target, row.score, row.tolerance, required, clean(first)))
    return found


def lines(history: History, shown: list[Column], most: int, separator: str) -> list[Line]:
    """The latest releases, in the order in which they were made."""
    start = max(0, len(history.releases) - most)
    return [
        Line(
            number=number,
            name=clean(release.name),
            created=clean(release.created).removesuffix("Z").replace("T", " "),
            kind=release.kind,
            outcome=release.outcome,
            fit=grouped(release.fit_n, separator),
            holdout=grouped(release.holdout_n, separator),
            notes=_notes(release),
            cells=[_cell(release.readings.get(column.check), column, separator) for column in shown],
        )
        for number, release in enumerate(history.releases[start:], start=start + 1)
    ]


def _notes(release: Release) -> list[str]:
    """What a pass may rest on besides its own counts: waivers, and held-out rows that have judged before."""
    notes = [f"check of {clean(release.name)}"] if release.kind == "check" else []
    for waiver in release.waivers:
        if waiver.status != "unused":
            until = f"until {clean(waiver.expires)}, {clean(waiver.owner)}: {clean(waiver.reason)}"
            notes.append(f"{'waived' if waiver.status == 'active' else 'waiver expired:'} {clean(waiver.check)} ({until})")
    use = max(release.use, release.ledger_use or 1)
    if use > 1:
        last = f", last by {clean(release.last_use)}" if release.last_use is not None else ""
        notes.append(f"use {use} of the same held-out rows{last}")
    return notes


def _row(reading: Reading, separator: str) -> Row | None:
    return next(iter(numbered_rows([reading.fpr], separator)), None)


def _cell(reading: Reading | None, column: Column, separator: str) -> Cell | None:
    row = _row(reading, separator) if reading else None
    if reading is None or row is None:
        return None
    tpr, counted, interval = _detected(reading.tpr, separator)
    return Cell(
        outcome=row.outcome,
        standing=row.standing,
        observed=row.observed,
        counted=row.counted,
        interval=row.interval,
        tolerance="" if row.tolerance == column.tolerance else row.tolerance,
        threshold=row.threshold,
        stale=_flagged(reading.stale) if reading.stale else "",
        tpr=tpr,
        tpr_counted=counted,
        tpr_interval=interval,
    )


def _detected(finding: FindingEntry | None, separator: str) -> tuple[str, str, str]:
    """The detection rate, its counts and its interval, as far as the record has them."""
    if finding is None or finding.true_positives is None or finding.malicious is None or finding.interval is None:
        return "", "", ""
    edge = Decimal(repr(finding.min_tpr or 0.0))
    rate = Decimal(finding.true_positives) / max(finding.malicious, 1)
    low, high = bounds(finding.interval, (float(edge), float(edge)))
    return (
        percent(beside(rate, [edge], 3, ROUND_HALF_EVEN)),
        f"{grouped(finding.true_positives, separator)} / {grouped(finding.malicious, separator)}",
        f"{low.removesuffix(' %')} to {high}",
    )


def _flagged(flagged: Flagged) -> str:
    """The share of held-out rows, rounded outward where only its two ends are known."""
    low, high = (
        Context(prec=3, rounding=rounding).divide(Decimal(count), Decimal(max(flagged.benign, 1)))
        for count, rounding in ((flagged.least, ROUND_FLOOR), (flagged.most, ROUND_CEILING))
    )
    if flagged.least == flagged.most:
        return percent(Context(prec=3).divide(Decimal(flagged.most), Decimal(max(flagged.benign, 1))))
    return f"{percent(low).removesuffix(' %')} to {percent(high)}"


def summary(history: History) -> str:
    """How many records there are, of which kind, from when to when, and how they came out."""
    kinds = Counter(release.kind for release in history.releases)
    counted = " and ".join(plural(kinds[kind], noun) for kind, noun in (("run", "release"), ("check", "check")) if kinds[kind])
    days = [clean(release.created)[:10] for release in (history.releases[0], history.releases[-1])]
    when = f"of {days[0]}" if days[0] == days[1] else f"from {days[0]} to {days[1]}"
    outcomes = Counter(release.outcome for release in history.releases)
    return f"{counted} {when}: " + ", ".join(f"{outcomes[o]:,} {o}" for o in ("pass", "fail", "inconclusive") if outcomes[o])


# --- the figures --------------------------------------------------------------------------------------------


def display(history: History, check: str) -> figures.HistoryDisplay:
    """One anchor over the releases that were judged there, the latest of them."""
    judged = [
        (_drawn_name(number, release.name), release.readings[check], found[0])
        for number, release in enumerate(history.releases, start=1)
        if check in release.readings and (found := fpr_findings([release.readings[check].fpr]))
    ]
    kept = judged[-MOST_DRAWN:]
    first = next((name for name, reading, _ in judged if reading.fpr.threshold is not None), "")
    return figures.HistoryDisplay(
        kept[-1][2].target_fpr,
        [name for name, _, _ in kept],
        [found.observed_fpr for _, _, found in kept],
        [found.interval for _, _, found in kept],
        [found.tolerance for _, _, found in kept],
        [found.outcome for _, _, found in kept],
        [found.threshold for _, _, found in kept],
        [_rates(reading.stale) if reading.stale else None for _, reading, _ in kept],
        first,
    )


def _drawn_name(number: int, name: str) -> str:
    """The release's name where the figure's font has it and there is room, else its number in the table."""
    return name if len(name) <= DRAWN_NAME and name.isascii() and name.isprintable() else f"no. {number}"


def _rates(flagged: Flagged) -> tuple[float, float]:
    n = max(flagged.benign, 1)
    return flagged.least / n, flagged.most / n


def in_words(history: History, column: Column) -> str:
    """What the figure of an anchor shows, for those who do not see it."""
    judged = [release.readings[column.check] for release in history.releases if column.check in release.readings]
    numbers = [found for reading in judged for found in fpr_findings([reading.fpr])]
    ratios = [f"{found.observed_fpr / found.target_fpr:.3g}" for found in numbers]
    sentences = [
        f"{plural(len(numbers), 'release')} judged at {column.target}. The observed rate was between "
        f"{min(ratios, key=float)} and {max(ratios, key=float)} times the target."
    ]
    thresholds = [f"{found.threshold:.4g}" for found in numbers if found.threshold is not None]
    if thresholds:
        low, high = min(thresholds, key=float), max(thresholds, key=float)
        sentences.append(f"The raw threshold was between {low} and {high}, and is {thresholds[-1]} in the latest.")
    stale = [_flagged(reading.stale) for reading in judged if reading.stale]
    if stale:
        rates = sorted((_rates(reading.stale) for reading in judged if reading.stale), key=lambda pair: pair[1])
        sentences.append(
            f"The raw threshold of {column.first} would have flagged between {bare_percent(float(f'{rates[0][0]:.3g}'))} "
            f"and {bare_percent(float(f'{rates[-1][1]:.3g}'))} of the held-out rows of the later releases."
        )
    return " ".join(sentences)


# --- the terminal -------------------------------------------------------------------------------------------


def render(history: History, width: int = 80, color: bool = False) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        height=25,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    shown = columns(history)
    made, latest = lines(history, shown, MOST["text"], ","), history.releases[-1]
    console.print(Text(f"{summary(history)}."))
    console.print(
        Text.assemble(
            f"Latest, {inert(latest.name)}: ", (latest.outcome, STYLES[latest.outcome]), f": {inert(latest.reason)}."
        )
    )
    if len(history.releases) > len(made):
        console.print(Text(f"The latest {len(made)} are shown; --format json has all.", style="dim"))
    console.print()
    console.print(_overview(made), crop=False, width=WIDEST)
    for i, column in enumerate(shown):
        console.print()
        tolerance = column.tolerance.replace(" to ", "–")
        heading = f"{column.target}: calibrated score {column.score}, tolerance {tolerance}"
        console.print(Text(heading if column.required else f"{heading}, advisory", style="bold"))
        console.print(_anchor_table(made, i), crop=False, width=WIDEST)
    if any(cell and cell.stale for line in made for cell in line.cells):
        first = " and ".join(dict.fromkeys(shortened(inert(column.first), NAME) for column in shown))
        console.print()
        console.print(
            Text(f"stale: what the raw threshold of {first}, never recalibrated, would flag of the held-out rows.")
        )
    if len(history.checks) > len(shown):
        console.print(Text(f"and {len(history.checks) - len(shown):,} more targets, which --format json lists"))
    for line in made:
        for note in line.notes:
            console.print(Text(f"{line.shown_name}: {inert(note)}"))
    for unread in history.unread:
        console.print(Text(f"not read: {inert(unread.problem)}"))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _overview(made: list[Line]) -> Table:
    table = _table(("release", "left"), ("created", "left"), ("to fit", "right"), ("held out", "right"))
    table.add_column("outcome", no_wrap=True)
    for line in made:
        kind = " (check)" if line.kind == "check" else ""
        outcome = Text.assemble((line.outcome, STYLES[line.outcome]), kind)
        table.add_row(line.shown_name, inert(line.created), line.fit, line.holdout, outcome)
    return table


def _anchor_table(made: list[Line], i: int) -> Table:
    """One anchor over the releases; a column that no release has anything for is left out."""
    measured = [(line, cell) for line in made if (cell := line.cells[i])]
    table = _table(("release", "left"), ("FP / benign", "right"), ("interval", "right"))
    optional = {
        "tolerance": [cell.tolerance for _, cell in measured],
        "threshold": [cell.threshold for _, cell in measured],
        "stale": [cell.stale for _, cell in measured],
        "TPR": [cell.tpr for _, cell in measured],
    }
    present = {name: cells for name, cells in optional.items() if any(cells)}
    for name in present:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for j, (line, cell) in enumerate(measured):
        numbers = [cell.counted, cell.interval, *(cells[j] for cells in present.values())]
        waived = " (waived)" if cell.standing == "waived" else ""
        outcome = Text.assemble((cell.outcome, STYLES[cell.outcome]), waived)
        table.add_row(line.shown_name, *(number.replace(" to ", "–") for number in numbers), outcome)
    return table


def _table(*headings: tuple[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in headings:
        table.add_column(name, justify=justify, no_wrap=True)
    return table
