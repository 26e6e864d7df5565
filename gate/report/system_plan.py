"""Shows the plan of several detectors: each distinct plan, then what all may flag together; it plans nothing."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.table import Table
from rich.text import Text

from gate.planning.system import AtRate, SystemPlan
from gate.policy import Policy
from gate.report import plan as plans
from gate.report.numbers import grouped
from gate.report.terminal import console_on, inert, plain_table, text_of
from gate.words import chance, in_digits, listed, percent, plural


def render(planned: SystemPlan, policy: Policy, width: int = 80) -> str:
    buffer = io.StringIO()
    console = console_on(buffer, width, color=False)
    alike: dict[int, list[str]] = {}
    for name, own in planned.detectors.items():
        alike.setdefault(id(own), []).append(name)
    for names in alike.values():
        alone = policy.detector(names[0])
        console.print(Text(inert(f"{plural(len(names), 'detector')}: {listed(names)}"), style="bold"))
        console.print(Text(plans.render(planned.detectors[names[0]], alone, width)))
    if len(planned.detectors) > 1:
        said = f"All required detectors pass at most {chance(planned.all_pass)} of the time, if they are independent"
        console.print(Text(f"{said} and sound."))
    if planned.system:
        console.print()
        console.print(Text("What they flag together, if each keeps its promise just so: the chance to pass"))
        console_on(buffer, plans.WIDEST, color=False).print(_table(planned))
    return text_of(buffer)


def _table(planned: SystemPlan) -> Table:
    table = plain_table("score", "limit", "rows", "if independent", "rows needed", "at the sum", "rows needed")
    for one in planned.system:
        cells = [cell for at in (one.independent, one.at_the_sum) for cell in _cells(at)]
        limit = percent(one.target.max_fpr)
        table.add_row(in_digits(one.target.score), limit, grouped(one.rows), *cells)
    return table


def _cells(at: AtRate) -> tuple[str, str]:
    passes = f"{percent(at.rate, 3)}: {chance(at.chances.passes)}"
    return passes, "none would do" if at.needed is None else grouped(at.needed)


def to_json(planned: SystemPlan, policy: Policy) -> str:
    """Write for scripts each detector's plan as for a single detector, and the system's."""
    content: dict[str, Any] = {
        "detectors": {
            name: json.loads(plans.to_json(own, policy.detector(name))) for name, own in planned.detectors.items()
        },
        "all_pass": planned.all_pass,
        "system": [
            {
                "score": float(one.target.score),
                "max_fpr": float(one.target.max_fpr),
                "rows": one.rows,
                "independent": _as_json(one.independent),
                "sum": _as_json(one.at_the_sum),
            }
            for one in planned.system
        ],
    }
    return json.dumps(content, indent=2) + "\n"


def _as_json(at: AtRate) -> dict[str, Any]:
    return {"rate": at.rate, "passes": at.chances.passes, "fails": at.chances.fails, "rows_needed": at.needed}
