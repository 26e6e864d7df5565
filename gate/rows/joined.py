"""Rows that two samples have, joined by id: how many of them each threshold flags. It judges nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gate.contract import Floats
from gate.errors import GateError
from gate.rows.engine import Engine, number
from gate.rows.sample import Sample


@dataclass(frozen=True)
class Paired:
    """Rows that two samples have both scored, in groups where they come in groups: a line for each, else one line.

    sizes                 the rows of each line
    old, new              those that reach the old sample's thresholds, and the new one's: a column for each pair
    new_only, old_only    those that reach only one of the two
    stale                 those whose new score reaches the old threshold
    lacking               rows that only one of the samples has scored
    """

    sizes: Floats
    old: Floats
    new: Floats
    new_only: Floats
    old_only: Floats
    stale: Floats
    lacking: int

    @property
    def rows(self) -> int:
        return int(self.sizes.sum())


COUNTED = ("old", "new", "new_only", "old_only", "stale")


def paired(old: Sample, new: Sample, thresholds: list[tuple[float | None, float | None]]) -> Paired:
    """Count the rows of both samples at pairs of thresholds: the old score's and the new one's."""
    for sample in (old, new):
        if not sample.has_ids:
            raise GateError(f"{sample.files}: must have ids to be compared row by row; set data.id")
        if sample.repeated:
            raise GateError(
                f"{sample.files}: must have another id for every row to be compared row by row, got "
                f"{sample.repeated:,} rows with the id of another; remove the copies"
            )
    grouped = new.has_groups
    group = ", b.grp" if grouped else ""
    sides = f"({old.relation}) AS a JOIN ({new.relation}) AS b ON a.id = b.id"
    joined = f"SELECT a.score AS a, b.score AS b{group} FROM {sides}"
    engine, asked = new.engine, ["count(*) AS m"]
    for i, (then, now) in enumerate(thresholds):
        was, is_, would = _flag(engine, "a", then), _flag(engine, "b", now), _flag(engine, "b", then)
        conditions = (was, is_, f"{is_} AND NOT {was}", f"{was} AND NOT {is_}", would)
        asked += [
            f"count(CASE WHEN {each} THEN 1 END) AS {key}{i}" for key, each in zip(COUNTED, conditions, strict=True)
        ]
    question = f"SELECT {', '.join(asked)} FROM ({joined}) AS j"
    found = new.ask(f"{question} GROUP BY grp" if grouped else question)
    order = np.lexsort([np.asarray(column) for column in found.values()])
    table = {key: np.asarray(column, dtype=np.float64)[order] for key, column in found.items()}
    rows = int(table["m"].sum())
    if rows == 0:
        raise GateError(f"{old.files}: must have scored rows of the new release too, got no id in common with them")
    columns = {key: np.empty((len(order), 0)) for key in COUNTED}
    if thresholds:
        columns = {key: np.column_stack([table[f"{key}{i}"] for i in range(len(thresholds))]) for key in COUNTED}
    return Paired(sizes=table["m"], lacking=old.n + new.n - 2 * rows, **columns)


def _flag(engine: Engine, column: str, threshold: float | None) -> str:
    return "FALSE" if threshold is None else f"({column} >= {number(engine, threshold)})"
