"""Shows the plan of ranges and of looks at a growing sample, as tables and as JSON; it plans nothing."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from gate.planning import Plan
from gate.planning.ranges import DRAWS, Estimate, RangePlan, describe_weakness, round_up
from gate.planning.sequential import PATHS, LookRows, SequentialPlan
from gate.policy import Tolerance
from gate.words import between, chance, percent

RANGES = (
    "Ranges: rows needed so that a sound release passes at every threshold {power} of the time, beside those of "
    "the lowest rate alone (simulated {draws:,} times, ± two standard errors)"
)
CHANCES = (
    "What the gate does with so many rows along a range: to a sound release, and at most to one that is off by 1+2r in "
    "one decade only, in the decade where it passes most often"
)
LOOKS = (
    "Looking as often as you like: rows until a release at a multiple of its target is decided, with how many are "
    "proven in the end, beside the rows of one look planned before (simulated {paths:,} times)"
)


def tolerance(error: Tolerance) -> str:
    low = "any" if error.below >= 1 else f"-{percent(error.below)}"
    return f"{low} to +{percent(error.above)}"


def _span(planned: RangePlan) -> str:
    return between(percent(planned.judged.start), percent(planned.judged.stop))


def needs(plan: Plan, table: Table) -> Table:
    """Make the table of the rows that every range needs."""
    for planned in plan.ranges:
        cost = "" if planned.cost is None else f"{100 * planned.cost:+.0f} %"
        alone = "none do" if planned.anchor_needed is None else f"{planned.anchor_needed:,}"
        needed = (_rows(planned.holdout_needed), _rows(planned.equal_needed))
        table.add_row(_span(planned), tolerance(planned.judged.max_relative_error), *needed, alone, cost)
    return table


def _rows(found: Estimate | None) -> str:
    if found is None:
        return "none do"
    return f"{round_up(found.value):,} ± {round_up(2 * found.error):,}"


def chances(plan: Plan, table: Table) -> Table:
    """Make the table of what the gate does with the rows on hand."""
    for planned in plan.ranges:
        worst = planned.worst_bad
        table.add_row(
            _span(planned),
            f"{planned.fit_n:,}",
            f"{planned.holdout_n:,}",
            *(_about(found) for found in (planned.passes, planned.fails)),
            chance(worst.passes),
            between(percent(worst.start, 3), percent(worst.stop, 3)),
        )
    return table


def _about(found: Estimate) -> str:
    return f"{chance(found.value).removesuffix(' %')} ± {200 * found.error:.1f} %"


def looks(plan: Plan, table: Table) -> Table:
    """Make the table of the rows that it takes if one may look as often as one likes."""
    for planned in plan.sequential:
        fixed = "none do" if planned.fixed is None else f"{planned.fixed:,}"
        for rows in planned.rows:
            sizes = (_decided(size) for size in (rows.mean, rows.median, rows.most))
            times = f"{float(rows.multiple):.3g}x"
            table.add_row(percent(planned.target.fpr), times, *sizes, chance(rows.proven), fixed)
    return table


def _decided(rows: float) -> str:
    return f"{round_up(rows):,}" if math.isfinite(rows) else "not in sight"


def weaknesses(plan: Plan) -> list[str]:
    """Write a sentence for every range that is weak at the sizes on hand."""
    found = []
    for planned in plan.ranges:
        weakness = describe_weakness(planned, plan.power)
        if weakness is not None:
            found.append(f"{'dead' if planned.passes.value <= 0 else 'weak'}: {weakness}")
    return found


def headings(plan: Plan) -> dict[str, str]:
    """Write what stands above each table."""
    return {
        "needs": RANGES.format(power=percent(plan.power, 4), draws=DRAWS),
        "chances": CHANCES,
        "looks": LOOKS.format(paths=PATHS),
    }


# --- JSON ---------------------------------------------------------------------------------------------------


def range_json(planned: RangePlan, power: float) -> dict[str, Any]:
    return {
        "check": str(planned.judged.check),
        "from": float(planned.judged.start),
        "to": float(planned.judged.stop),
        "min_n": planned.judged.min_n,
        "fit_n": planned.fit_n,
        "holdout_n": planned.holdout_n,
        "sound": {"passes": _estimate(planned.passes), "fails": _estimate(planned.fails)},
        "off_in_one_decade": [
            {"from": one.start, "to": one.stop, "multiple": float(one.multiple), "passes_at_most": one.passes}
            for one in planned.bad
        ],
        "holdout_needed": _estimate(planned.holdout_needed),
        "equal_needed": _estimate(planned.equal_needed),
        "needed_against_bad": planned.needed_against_bad,
        "lowest_rate_needed": planned.anchor_needed,
        "cost": planned.cost,
        "exact": planned.exact,
        "warning": describe_weakness(planned, power),
    }


def _estimate(found: Estimate | None) -> dict[str, float] | None:
    return None if found is None else {"value": found.value, "error": found.error}


def looks_json(planned: SequentialPlan) -> dict[str, Any]:
    return {
        "check": str(planned.target.check),
        "one_look": planned.fixed,
        "rows": [_looked(rows) for rows in planned.rows],
    }


def _looked(rows: LookRows) -> dict[str, Any]:
    sizes = {"mean": rows.mean, "median": rows.median, "most": rows.most}
    return {
        "multiple": float(rows.multiple),
        **{name: size if math.isfinite(size) else None for name, size in sizes.items()},
        "proven": rows.proven,
        "decided": rows.decided,
        "error": rows.error,
    }
