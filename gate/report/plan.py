"""The plan in words: a table for the terminal, JSON for scripts, and a chart of the chance to pass."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from itertools import cycle
from typing import Any

from rich.table import Table
from rich.text import Text

from gate.planning import Curve, Plan, TargetPlan, describe_weakness
from gate.policy import Policy
from gate.report.drawing import defaults, matplotlib
from gate.report.rows import percent
from gate.report.terminal import console_on, inert, text_of

WIDEST = 200  # a table wider than the terminal wraps there: better than numbers cut short


def render(plan: Plan, policy: Policy, width: int = 80) -> str:
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
    return text_of(buffer)


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


def to_json(plan: Plan, policy: Policy) -> str:
    document = {
        "schema_version": 1,
        "policy": policy.name,
        "rule": policy.rule,
        "confidence": float(policy.confidence),
        "power": plan.power,
        "targets": [_as_json(target, plan.power) for target in plan.targets],
    }
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
