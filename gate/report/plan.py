"""Shows a plan: a table for the terminal, JSON for scripts; it plans nothing."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.planning import (
    CHECKS_A_YEAR,
    Alarm,
    Plan,
    TargetPlan,
    TargetWatch,
    Watch,
    describe_weakness,
)
from gate.policy import Policy
from gate.report import range_plan
from gate.report.terminal import console_on, inert, plain_table, text_of
from gate.words import chance, percent

WIDEST = 200  # a table wider than the terminal wraps there: better than numbers cut short


def render(plan: Plan, policy: Policy, width: int = 80, watch: Watch | None = None) -> str:
    buffer = io.StringIO()
    console, tables = (console_on(buffer, columns_wide, color=False) for columns_wide in (width, WIDEST))
    console.print(Text(f"policy {inert(policy.name)}: rule {policy.rule}, confidence {policy.confidence}"))
    console.print()
    console.print(Text(f"Rows needed so that a sound release passes {percent(plan.power, 4)} of the time"))
    tables.print(_needs(plan))
    console.print()
    console.print(
        Text("What the gate does with so many rows: to a sound release, and to one at a multiple of the target")
    )
    tables.print(_chances(plan))
    for target in plan.targets:
        weakness = describe_weakness(target, plan.power)
        if weakness:
            console.print()
            console.print(Text(f"{target.strength}: {weakness}."))
    _print_ranges(plan, console, tables)
    if watch is not None:
        console.print()
        console.print(Text(_WATCHED.format(rows=watch.rows, checks=CHECKS_A_YEAR)))
        tables.print(_watched(watch))
        for line in _watched_in_words(watch):
            console.print()
            console.print(Text(line))
    return text_of(buffer)


def _print_ranges(plan: Plan, console: Console, tables: Console) -> None:
    """Print the ranges, and the looks if one may look again."""
    headings = range_plan.headings(plan)
    shown: list[tuple[str, Table]] = []
    if plan.ranges:
        needs = plain_table("range", "tolerance", "held out", "both equal", "lowest alone", "costs")
        shown.append((headings["needs"], range_plan.needs(plan, needs)))
        chances = plain_table("range", "to fit", "held out", "passes", "fails", "1+2r", "from")
        shown.append((headings["chances"], range_plan.chances(plan, chances)))
    if plan.sequential:
        looks = plain_table("target", "true rate", "mean", "median", "95 % by", "proven", "one look")
        shown.append((headings["looks"], range_plan.looks(plan, looks)))
    for heading, table in shown:
        console.print()
        console.print(Text(heading))
        tables.print(table)
    for sentence in range_plan.weaknesses(plan):
        console.print()
        console.print(Text(f"{sentence}."))


_WATCHED = (
    "What one check of {rows:,} rows does at a multiple of the target (fails / does not pass), and how often in "
    "{checks} daily checks a sound release, and at most one at the edge of its tolerance (fails)"
)


def _watched(watch: Watch) -> Table:
    table = plain_table("target", "1+2r", "2x", "5x", "sound, a year", "edge, a year")
    for watched in watch.targets:
        sound = " / ".join(_times(each) for each in (watched.sound.fails, watched.sound.not_passes))
        table.add_row(
            percent(watched.target.fpr),
            *(f"{chance(alarm.fails).removesuffix(' %')} / {chance(alarm.not_passes)}" for alarm in watched.drifted),
            sound,
            _times(watched.at_an_edge),
        )
    return table


def _watched_in_words(watch: Watch) -> list[str]:
    """Describe the required targets together, and each target at which no check can pass."""
    lines = []
    if any(watched.target.required for watched in watch.targets):
        together = watch.together
        lines.append(
            f"All required targets together: in {CHECKS_A_YEAR} daily checks a sound release fails "
            f"{_often(together.fails)} and does not pass {_often(together.not_passes)}."
        )
    return lines + [problem for watched in watch.targets if (problem := _silent(watched))]


def _silent(watched: TargetWatch) -> str | None:
    """Say why no check passes at a target, if none does."""
    if watched.sound.not_passes < 1.0:
        return None
    least = watched.target.min_n
    why = f"min_n is {least:,}" if watched.rows < least else "no count of so few rows does"
    return f"dead: {watched.target.check}: no check of {watched.rows:,} rows passes: {why}; gather more rows a check."


def _times(share: float) -> str:
    """Say how often in a year of daily checks; a chance is never printed as zero."""
    times = CHECKS_A_YEAR * share
    return "0" if times == 0 else "<0.001" if times < 0.001 else f"{times:.3g}"


def _needs(plan: Plan) -> Table:
    table = plain_table("target", "tolerance", "held out", "to fit", "paper's rule")
    for target in plan.targets:
        table.add_row(
            _target(target),
            range_plan.tolerance(target.target.max_relative_error),
            _rows(target.holdout_needed, target.computed),
            _rows(target.fit_needed, target.computed),
            f"{target.paper_n:,}",
        )
    return table


def _chances(plan: Plan) -> Table:
    table = plain_table("target", "to fit", "held out", "passes", "fails", "open", "1+2r", "2x", "5x")
    for target in plan.targets:
        table.add_row(
            _target(target),
            f"{target.fit_n:,}",
            f"{target.holdout_n:,}",
            *(
                _bracket([getattr(sound, kind) for sound in target.sound])
                for kind in ("passes", "fails", "inconclusive")
            ),
            *(chance(bad.passes) for bad in target.bad),
        )
    return table


def _target(planned: TargetPlan) -> str:
    return percent(planned.target.fpr)


def _rows(count: int | None, computed: bool) -> str:
    return f"{count:,}" if count is not None else "none do" if computed else "not computed"


def _bracket(chances: list[float]) -> str:
    """Write one chance, or the two that bracket it if the fit sample is shallow."""
    low, high = chance(min(chances)), chance(max(chances))
    return low if low == high else f"{low.removesuffix(' %')}–{high}"


def _often(share: float) -> str:
    times = _times(share)
    return f"less than {times[1:]} times" if times.startswith("<") else f"at most {times} times"


def to_json(plan: Plan, policy: Policy, watch: Watch | None = None) -> str:
    document: dict[str, Any] = {
        "schema_version": 1,
        "policy": policy.name,
        "rule": policy.rule,
        "confidence": float(policy.confidence),
        "power": plan.power,
        "targets": [_as_json(target, plan.power) for target in plan.targets],
    }
    if plan.ranges:
        document["ranges"] = [range_plan.range_json(planned, plan.power) for planned in plan.ranges]
    if plan.sequential:
        document["looks"] = [range_plan.looks_json(planned) for planned in plan.sequential]
    if watch is not None:
        document["watch"] = _watch_as_json(watch)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _as_json(planned: TargetPlan, power: float) -> dict[str, Any]:
    chances = planned.sound
    return {
        "check": str(planned.target.check),
        "target_fpr": float(planned.target.fpr),
        "min_n": planned.target.min_n,
        "fit_n": planned.fit_n,
        "holdout_n": planned.holdout_n,
        "sound": {
            kind: [min(values), max(values)]
            for kind in ("passes", "fails", "inconclusive")
            if (values := [getattr(each, kind) for each in chances])
        },
        "bad": [{"multiple": float(bad.multiple), "passes": bad.passes} for bad in planned.bad],
        "holdout_needed": planned.holdout_needed,
        "fit_needed": planned.fit_needed,
        "computed": planned.computed,
        "paper_n": planned.paper_n,
        "strength": planned.strength,
        "warning": describe_weakness(planned, power),
    }


def _watch_as_json(watch: Watch) -> dict[str, Any]:
    return {
        "rows_per_check": watch.rows,
        "checks_a_year": CHECKS_A_YEAR,
        "sound_at_most": _alarm(watch.together),
        "targets": [
            {
                "check": str(watched.target.check),
                "drifted": [_alarm(alarm) for alarm in watched.drifted],
                "sound": _alarm(watched.sound),
                "edges": [_alarm(alarm) for alarm in watched.edges],
            }
            for watched in watch.targets
        ],
    }


def _alarm(alarm: Alarm) -> dict[str, float]:
    return {"multiple": float(alarm.multiple), "fails": alarm.fails, "not_passes": alarm.not_passes}
