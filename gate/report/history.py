"""Shows the history to people and scripts: as terminal tables, a page with figures, Markdown, and JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gate.checks.check import Finding
from gate.history import Detected, Flagged, History, PastRelease, Reading
from gate.record.system import SystemRecord
from gate.report.figures import to_svg
from gate.report.html import FigurePart
from gate.report.markdown import escape, verbatim
from gate.report.numbers import bounds, clean, grouped, share
from gate.report.page import Limit, fitting
from gate.report.rows import Row, plain_reason, rate_row, rated, unseen
from gate.report.system import sentence
from gate.report.templates import shortened, template
from gate.report.terminal import NAME, SCREEN, STYLES, console_on, inert, plain_table, text_of
from gate.report.timeline import MOST_DRAWN, HistoryColumn, counted, display, finding_of, in_words, latest, title_of
from gate.report.timeline import figure as draw
from gate.words import between, percent, plural

MAX_BYTES = {"html": 1_000_000, "md": 60_000}
MOST = {"html": 50, "md": 30, "text": 20}  # most records in a table: the latest, half of them checks
MOST_ANCHORS = 12
WIDEST = 10_000  # a table wider than the terminal wraps there: better than numbers cut short
NAMED = 3  # checks named in a note
WORDS = ("release", "created", "outcome")  # the columns of words
BRIEF = 3  # targets in Markdown's first table: the rarest, and those that block before those that advise


@dataclass(frozen=True)
class TargetCell:
    """One anchor in one release, ready to print; `tolerance` is empty where it is that of the latest release."""

    outcome: str
    weight: str
    observed: str
    counted: str
    interval: str
    tolerance: str
    threshold: str
    if_kept: str
    tpr: str
    tpr_counted: str
    tpr_interval: str
    tpr_outcome: str


@dataclass(frozen=True)
class ReleaseLine:
    """One release or check, ready to print; a cell is null where it was not judged at that anchor.

    `of` is the number of the release that a check is of, null where that is not among those read.
    """

    number: int
    name: str
    created: str
    kind: str
    of: int | None
    outcome: str
    fit: str
    holdout: str
    notes: list[str]
    cells: list[TargetCell | None]

    @property
    def shown_name(self) -> str:
        """The name, cut if it is long; a number is never cut."""
        return shortened(inert(self.name), NAME)


# --- the parts that every format shows ----------------------------------------------------------------------


def columns(history: History) -> list[HistoryColumn]:
    """List the anchors as the releases' reports write them."""
    found = []
    for check in history.checks[:MOST_ANCHORS]:
        readings = [(r.name, r.readings[check]) for r in history.releases if check in r.readings]
        latest = readings[-1][1].fpr
        row = _row(latest)
        first = next((name for name, reading in readings if reading.origin), "")
        target = row.target if check.detector is None else f"{clean(check.detector)} {row.target}"
        found.append(HistoryColumn(check, target, row.score, row.tolerance, latest.required, clean(first)))
    return found


def _row(finding: Finding) -> Row:
    return rate_row(rated([finding])[0])


def lines(history: History, shown: list[HistoryColumn], most: int) -> list[ReleaseLine]:
    """Make the lines of the latest releases and checks, in the order in which they were made."""
    numbers = {id(release): number for number, release in enumerate(history.releases, start=1)}
    return [
        ReleaseLine(
            number=numbers[id(release)],
            name=clean(release.name),
            created=clean(release.created)[:16].replace("T", " "),
            kind=release.kind,
            of=numbers.get(id(history.released(release))),
            outcome=release.outcome,
            fit=grouped(release.fit_n),
            holdout=grouped(release.holdout_n),
            notes=_notes(release),
            cells=[_cell(release.readings.get(column.check), column) for column in shown],
        )
        for release in latest(history.releases, most)
    ]


def _notes(release: PastRelease) -> list[str]:
    """Note what the cells do not say: other checks that block, waivers, and held-out rows that have judged before."""
    notes = []
    if release.blocking:
        more = len(release.blocking) - NAMED
        named = ", ".join(clean(str(check)) for check in release.blocking[:NAMED])
        notes.append(f"blocked by {named}{f' and {more:,} more' if more > 0 else ''}")
    for waiver in release.waivers:
        if waiver.status != "unused":
            until = f"until {waiver.expires}, {clean(waiver.owner)}: {clean(waiver.reason)}"
            notes.append(
                f"{'waived' if waiver.status == 'active' else 'waiver expired:'} {clean(str(waiver.check))} ({until})"
            )
    use = max(release.use, release.ledger_use or 1)
    if use > 1:
        last = f", last by {clean(release.last_use)}" if release.last_use is not None else ""
        notes.append(f"use {use} of the same held-out rows{last}")
    return notes


def _cell(reading: Reading | None, column: HistoryColumn) -> TargetCell | None:
    if reading is None:
        return None
    row = _row(reading.fpr)
    tpr, counted, interval = _detected(reading.tpr)
    return TargetCell(
        outcome=row.outcome,
        weight=row.weight,
        observed=row.observed,
        counted=row.counted,
        interval=row.interval,
        tolerance="" if row.tolerance == column.tolerance else row.tolerance,
        threshold="none" if reading.threshold is None else f"{reading.threshold:.6g}",
        if_kept=_flagged(reading.if_kept) if reading.if_kept else "",
        tpr=tpr,
        tpr_counted=counted,
        tpr_interval=interval,
        tpr_outcome=reading.tpr.outcome or "" if reading.tpr else "",
    )


def _detected(found: Detected | None) -> tuple[str, str, str]:
    """Write the detection rate, its counts and its interval."""
    if found is None:
        return "", "", ""
    edges, tally = None if found.minimum is None else (found.minimum, Decimal(1)), found.tally
    counted = f"{grouped(tally.flagged)} / {grouped(tally.rows)}"
    return share(tally.flagged, tally.rows, edges), counted, bounds(found.interval, edges)


def _flagged(flagged: Flagged) -> str:
    """Write the share of held-out rows, rounded outward if only its two ends are known."""
    low, high = (
        Context(prec=3, rounding=rounding).divide(Decimal(count), Decimal(max(flagged.benign, 1)))
        for count, rounding in ((flagged.least, ROUND_FLOOR), (flagged.most, ROUND_CEILING))
    )
    if flagged.least == flagged.most:
        return percent(Context(prec=3).divide(Decimal(flagged.most), Decimal(max(flagged.benign, 1))))
    return between(percent(low), percent(high))


def summary(history: History) -> str:
    """Say how many records there are, from when to when, and how they came out."""
    days = [clean(release.created)[:10] for release in (history.releases[0], history.releases[-1])]
    when = f"of {days[0]}" if days[0] == days[1] else f"from {days[0]} to {days[1]}"
    outcomes = Counter(release.outcome for release in history.releases)
    came_out = ", ".join(f"{outcomes[o]:,} {o}" for o in ("pass", "fail", "inconclusive") if outcomes[o])
    return f"{counted(history)} {when}: {came_out}"


def reason(history: History) -> str:
    """Say in one sentence with numbers why the latest release or check came out as it did."""
    if isinstance(history.record, SystemRecord):
        return sentence(history.record)
    said = history.releases[-1].reason
    if history.record is None:
        return f"{said[:1].upper()}{said[1:]}"
    return f"{plain_reason(history.record)}{unseen(history.record)}"


# --- the pages ----------------------------------------------------------------------------------------------


def render_html(history: History) -> str:
    shown = columns(history)
    drawn = [
        FigurePart(
            f"anchor-{i}",
            to_svg(display(history, column.check), f"anchor-{i}", title_of(column), in_words(history, column)),
            finding_of(history, column),
            f"Calibrated score {column.score}, tolerance {column.tolerance}"
            + (". " if column.required else " (advisory). "),
        )
        for i, column in enumerate(shown)
    ]
    return fitting(
        lambda limit: template("history.html", clean, clean, limit.characters).render(
            _parts(history, shown, limit, "html"), figures=drawn
        ),
        MAX_BYTES["html"],
    )


def render_markdown(history: History) -> str:
    shown = columns(history)
    return fitting(
        lambda limit: template("history.md", escape, verbatim, limit.characters).render(
            _parts(history, shown, limit, "md")
        ),
        MAX_BYTES["md"],
    )


def _parts(history: History, shown: list[HistoryColumn], limit: Limit, format_: str) -> dict[str, Any]:
    """Make what the templates fill in. Names ending in `_more` say how many entries were left out."""
    made = lines(history, shown, min(limit.entries, MOST[format_]))
    cells = [cell for line in made for cell in line.cells if cell]
    return {
        "counted": counted(history),
        "total": len(history.releases),
        "latest": history.releases[-1],
        "reason": clean(reason(history)),
        "summary": summary(history),
        "columns": shown,
        "brief": sorted(sorted(range(len(shown)), key=lambda i: (not shown[i].required, -i))[:BRIEF]),
        "columns_more": len(history.checks) - len(shown),
        "lines": made,
        "lines_more": len(history.releases) - len(made),
        "left_out": left_out(history, made),
        "unread": history.unread[: limit.entries],
        "unread_more": max(0, len(history.unread) - limit.entries),
        "kept": any(cell.if_kept for cell in cells),
        "detected": any(cell.tpr for cell in cells),
        "drawn": MOST_DRAWN,
        "undrawn": len(history.releases) > MOST_DRAWN,
        "checked": any(release.kind == "check" for release in history.releases),
    }


def left_out(history: History, made: list[ReleaseLine]) -> str:
    """`the latest 10 of 14 releases and the latest 40 of 365 checks`."""
    parts = []
    for kind, noun in (("run", "release"), ("check", "check")):
        shown, known = (sum(one.kind == kind for one in some) for some in (made, history.releases))
        part = f"the latest {shown:,} of {plural(known, noun)}" if shown < known else f"all {plural(known, noun)}"
        parts += [part] if known else []
    return " and ".join(parts)


def figure(history: History) -> str:
    """Draw the figure by itself."""
    return draw(history, columns(history))


def to_json(history: History) -> str:
    """Write every release in order of time, with the numbers of its record at each anchor."""
    document = {
        "schema_version": 1,
        "releases": [_as_json(release, history.released(release)) for release in history.releases],
        "unread": [{"directory": unread.directory, "problem": unread.problem} for unread in history.unread],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_json(release: PastRelease, of: PastRelease | None) -> dict[str, Any]:
    return {
        "release": release.name,
        "kind": release.kind,
        "of": None if of is None else {"release": of.name, "created": of.created, "directory": of.directory},
        "calibrated": release.calibrated,
        "created": release.created,
        "directory": release.directory,
        "outcome": release.outcome,
        "reason": release.reason,
        "policy": {"name": release.policy, "rule": release.rule, "sha256": release.policy_sha256},
        "fit_n": release.fit_n,
        "holdout_n": release.holdout_n,
        "holdout_use": {"history": release.use, "ledger": release.ledger_use, "last": release.last_use},
        "blocking": [str(check) for check in release.blocking],
        "waivers": [waiver.model_dump(mode="json") for waiver in release.waivers],
        "targets": [
            {
                **reading.fpr.model_dump(mode="json"),
                "tpr": _tpr_as_json(reading.tpr),
                "if_kept": asdict(reading.if_kept) if reading.if_kept else None,
            }
            for reading in release.readings.values()
        ],
    }


def _tpr_as_json(found: Detected | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "tally": found.tally.model_dump(mode="json"),
        "interval": found.interval,
        "minimum": None if found.minimum is None else float(found.minimum),
        "outcome": found.outcome,
    }


# --- the terminal -------------------------------------------------------------------------------------------


def render(history: History, width: int = 80, color: bool = False) -> str:
    buffer = io.StringIO()
    console, tables = (console_on(buffer, columns_wide, color) for columns_wide in (width, WIDEST))
    shown = columns(history)
    made, latest = lines(history, shown, MOST["text"]), history.releases[-1]
    read = " that could be read" if history.unread else ""
    outcome = (latest.outcome.upper(), STYLES[latest.outcome])
    name = f"{inert(latest.name)}{' (check)' if latest.kind == 'check' else ''}"
    verdict = Text.assemble(f"Latest{read}, {name}: ", outcome, f". {inert(reason(history))}.")
    console.print(verdict)
    console.print(Text(f"{summary(history)}."))
    if len(history.releases) > len(made):
        console.print(Text(f"Shown are {left_out(history, made)}; --format json has all.", style="dim"))
    console.print()
    tables.print(_overview(made))
    for i, column in enumerate(shown):
        console.print()
        tolerance = column.tolerance.replace(" to ", "–")
        heading = f"{column.target}: calibrated score {column.score}, tolerance {tolerance}"
        console.print(Text(heading if column.required else f"{heading}, advisory", style="bold"))
        for table in _anchor_tables(made, i, width):
            tables.print(table)
    if len(history.checks) > len(shown):
        console.print()
        console.print(Text(f"And {len(history.checks) - len(shown):,} more targets, which --format json lists."))
    if any(cell and cell.if_kept for line in made for cell in line.cells):
        console.print()
        console.print(
            Text("if kept: what the first release's raw threshold, kept since then, would flag of the held-out rows.")
        )
    notes = [f"{line.shown_name}: {note}" for line in made for note in line.notes]
    unattached = [line for line in made if line.kind == "check" and not line.of]
    notes += [f"{line.shown_name} (check; its release was not read)" for line in unattached]
    notes += [f"not read: {unread.problem}" for unread in history.unread]
    if notes:
        console.print()
    for note in notes:
        console.print(Text(inert(note)))
    if buffer.getvalue().count("\n") > SCREEN:
        console.print()
        console.print(verdict)
    return text_of(buffer)


def _overview(made: list[ReleaseLine]) -> Table:
    table = plain_table("release", "created", "to fit", "held out", "outcome", left=WORDS)
    for line in made:
        outcome = Text.assemble((line.outcome, STYLES[line.outcome]), "" if line.kind == "run" else " (check)")
        table.add_row(line.shown_name, inert(line.created), line.fit, line.holdout, outcome)
    return table


def _anchor_tables(made: list[ReleaseLine], i: int, width: int) -> list[Table]:
    """Make the table of one anchor over the releases, or several tables if one is too wide and they are not."""
    measured = [(line, cell) for line in made if (cell := line.cells[i])]
    counts = {
        "FP / benign": [cell.counted for _, cell in measured],
        "interval": [cell.interval for _, cell in measured],
        "tolerance": [cell.tolerance for _, cell in measured],
    }
    raw = {
        "threshold": [cell.threshold for _, cell in measured],
        "if kept": [cell.if_kept for _, cell in measured],
    }
    detected = {
        "TP / malicious": [cell.tpr_counted for _, cell in measured],
        "TPR interval": [cell.tpr_interval for _, cell in measured],
        "TPR": [cell.tpr_outcome for _, cell in measured],
    }
    whole = _anchor_table(measured, counts | raw | detected)
    others = [part for part in (raw, detected) if any(map(any, part.values()))]
    parts = [_anchor_table(measured, counts), *(_anchor_table(measured, part, judged=False) for part in others)]
    return parts if _wide(whole) > width >= max(map(_wide, parts)) else [whole]


def _wide(table: Table) -> int:
    """Count the characters that a line of a table takes."""
    texts = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    return sum(max(map(cell_len, column)) for column in texts) + 2 * (len(texts) - 1)


def _anchor_table(
    measured: list[tuple[ReleaseLine, TargetCell]], found: dict[str, list[str]], judged: bool = True
) -> Table:
    """Make a table; columns without an entry in any release are left out."""
    present = {name: cells for name, cells in found.items() if any(cells)}
    table = plain_table("release", *present, *(["outcome"] if judged else []), left=WORDS)
    for j, (line, cell) in enumerate(measured):
        if not any(cells[j] for cells in present.values()):
            continue
        waived = " (waived)" if cell.weight == "waived" else ""
        outcome = [Text.assemble((cell.outcome, STYLES[cell.outcome]), waived)] if judged else []
        name = f"{line.shown_name} (check)" if line.kind == "check" else line.shown_name
        table.add_row(name, *(cells[j].replace(" to ", "–") for cells in present.values()), *outcome)
    return table
