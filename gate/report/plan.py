"""The plan in words: a table for the terminal, JSON for scripts, and a chart of the chance to pass."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from itertools import cycle
from typing import Any

from rich.table import Table
from rich.text import Text

from gate.planning import CHECKS_A_YEAR, Alarm, Curve, Plan, TargetPlan, TargetWatch, Watch, describe_weakness
from gate.policy import Policy
from gate.report.drawing import defaults, matplotlib
from gate.report.numbers import percent
from gate.report.terminal import console_on, inert, text_of

WIDEST = 200  # a table wider than the terminal wraps there: better than numbers cut short


def render(plan: Plan, policy: Policy, width: int = 80, watch: Watch | None = None) -> str:
    buffer = io.StringIO()
    console, tables = (console_on(buffer, columns_wide, color=False) for columns_wide in (width, WIDEST))
    console.print(Text(f"policy {inert(policy.name)}: rule {policy.rule}, confidence {policy.confidence}"))
    console.print()
    console.print(Text(f"Rows needed so that a sound release passes {plan.power:.4g} of the time"))
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
            console.print(Text(f"{target.standing}: {weakness}."))
    if watch is not None:
        console.print()
        console.print(Text(_WATCHED.format(rows=watch.rows, checks=CHECKS_A_YEAR)))
        tables.print(_watched(watch))
        for line in _watched_in_words(watch):
            console.print()
            console.print(Text(line))
    return text_of(buffer)


_WATCHED = (
    "What one check of {rows:,} rows does at a multiple of the target (fails / does not pass), and how often in "
    "{checks} daily checks a sound release, and at most one at the edge of its tolerance (fails)"
)


def _watched(watch: Watch) -> Table:
    table = _table("target", "1+2r", "2x", "5x", "sound, a year", "edge, a year")
    for watched in watch.targets:
        sound = " / ".join(_times(chance) for chance in (watched.sound.fails, watched.sound.not_passes))
        table.add_row(
            percent(watched.target.fpr),
            *(f"{_chance(alarm.fails)} / {_chance(alarm.not_passes)}" for alarm in watched.drifted),
            sound,
            _times(watched.at_an_edge),
        )
    return table


def _watched_in_words(watch: Watch) -> list[str]:
    """The required targets together, and each target at which no check can pass."""
    lines = []
    if any(watched.target.required for watched in watch.targets):
        together = watch.together
        lines.append(
            f"All required targets together: in {CHECKS_A_YEAR} daily checks a sound release fails "
            f"{_often(together.fails)} and does not pass {_often(together.not_passes)}."
        )
    return lines + [problem for watched in watch.targets if (problem := _silent(watched))]


def _silent(watched: TargetWatch) -> str | None:
    """Why no check passes at a target, where none does."""
    if watched.sound.not_passes < 1.0:
        return None
    least = watched.target.min_n
    why = f"min_n is {least:,}" if watched.rows < least else "no count of so few rows does"
    return f"dead: {watched.target.check}: no check of {watched.rows:,} rows passes: {why}; gather more rows a check."


def _times(chance: float) -> str:
    """How often in a year of daily checks; a chance is never printed as none."""
    times = CHECKS_A_YEAR * chance
    return "0" if times == 0 else "<0.001" if times < 0.001 else f"{times:.3g}"


def _needs(plan: Plan) -> Table:
    table = _table("target", "tolerance", "held out", "to fit", "paper's rule")
    for target in plan.targets:
        table.add_row(
            _target(target),
            _tolerance(target),
            _rows(target.holdout_needed, target.computed),
            _rows(target.fit_needed, target.computed),
            f"{target.paper_n:,}",
        )
    return table


def _chances(plan: Plan) -> Table:
    table = _table("target", "to fit", "held out", "passes", "fails", "open", "1+2r", "2x", "5x")
    for target in plan.targets:
        table.add_row(
            _target(target),
            f"{target.fit_n:,}",
            f"{target.holdout_n:,}",
            *(
                _bracket([getattr(sound, kind) for sound in target.sound])
                for kind in ("passes", "fails", "inconclusive")
            ),
            *(_chance(teeth.passes) for teeth in target.teeth),
        )
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _target(planned: TargetPlan) -> str:
    return percent(planned.target.fpr)


def _tolerance(planned: TargetPlan) -> str:
    error = planned.target.max_relative_error
    low = "any" if error.below >= 1 else f"-{percent(error.below)}"
    return f"{low} to +{percent(error.above)}"


def _rows(count: int | None, computed: bool) -> str:
    return f"{count:,}" if count is not None else "none do" if computed else "not computed"


def _bracket(chances: list[float]) -> str:
    """One chance, or the two that bracket it where the fit sample is shallow."""
    low, high = _chance(min(chances)), _chance(max(chances))
    return low if low == high else f"{low}–{high}"


def _chance(probability: float) -> str:
    """A chance; none is printed as certain."""
    if 0.0 < probability < 0.0005:
        return "<0.1%"
    if probability >= 0.9995:
        return ">99.9%"
    return f"{100 * probability:.3g}%"


def _often(chance: float) -> str:
    times = _times(chance)
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
    if watch is not None:
        document["watch"] = _watch_as_json(watch)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _as_json(planned: TargetPlan, power: float) -> dict[str, Any]:
    chances = planned.sound
    return {
        "check": planned.target.check,
        "target_fpr": float(planned.target.fpr),
        "min_n": planned.target.min_n,
        "fit_n": planned.fit_n,
        "holdout_n": planned.holdout_n,
        "sound": {
            kind: [min(values), max(values)]
            for kind in ("passes", "fails", "inconclusive")
            if (values := [getattr(chance, kind) for chance in chances])
        },
        "teeth": [{"multiple": float(teeth.multiple), "passes": teeth.passes} for teeth in planned.teeth],
        "holdout_needed": planned.holdout_needed,
        "fit_needed": planned.fit_needed,
        "computed": planned.computed,
        "paper_n": planned.paper_n,
        "standing": planned.standing,
        "warning": describe_weakness(planned, power),
    }


def _watch_as_json(watch: Watch) -> dict[str, Any]:
    return {
        "rows_per_check": watch.rows,
        "checks_a_year": CHECKS_A_YEAR,
        "sound_at_most": _alarm(watch.together),
        "targets": [
            {
                "check": watched.target.check,
                "drifted": [_alarm(alarm) for alarm in watched.drifted],
                "sound": _alarm(watched.sound),
                "edges": [_alarm(alarm) for alarm in watched.edges],
            }
            for watched in watch.targets
        ],
    }


def _alarm(alarm: Alarm) -> dict[str, float]:
    return {"multiple": float(alarm.multiple), "fails": alarm.fails, "not_passes": alarm.not_passes}


class OperatingCharacteristicDisplay:
    """The chance to pass against the true FPR, one curve per target."""

    def __init__(self, curves: list[Curve]) -> None:
        self.curves = curves

    def plot(self, ax: Any = None) -> OperatingCharacteristicDisplay:
        if ax is None:
            ax = matplotlib().figure.Figure(figsize=(7.2, 4.2), layout="constrained").subplots()
        self.ax_, self.figure_ = ax, ax.figure
        for curve, dashes in zip(self.curves, cycle(["-", "--", "-.", ":"])):  # curves often lie on each other
            label = f"{percent(Decimal(curve.target))} ({curve.holdout_n:,} held out)"
            ax.plot(curve.multiples, curve.passes, dashes, label=label, linewidth=1.8)
        ax.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":")
        ax.set_xscale("log")
        ticks = [0.25, 0.5, 1, 1.5, 2, 3, 5]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_xticks([], minor=True)
        ax.set_xlim(0.25, 5)
        ax.set_ylim(0, 1)
        ax.set_xlabel("true FPR, as a multiple of the target")
        ax.set_ylabel("chance to pass")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9", linewidth=0.6)
        ax.legend(title="target", frameon=False, loc="best")
        return self

    def to_svg(self) -> str:
        """The chart as SVG with real text, the same bytes for the same curves."""
        style = {"svg.fonttype": "none", "svg.hashsalt": "gate", "font.family": "sans-serif"}
        with matplotlib().rc_context({**defaults(), **style}):
            self.plot()
            buffer = io.StringIO()
            self.figure_.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return buffer.getvalue()
