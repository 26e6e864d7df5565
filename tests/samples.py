"""Samples from numbers, as tests need them: every column of a sample that a test names, and no file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gate.policy import Columns
from gate.rows.labels import Kind
from gate.rows.ordered import Divided
from gate.rows.reading import from_object
from gate.rows.sample import Sample
from gate.sources import Source

ROLES = {
    "ids": "id",
    "groups": "group",
    "segments": "segment",
    "times": "timestamp",
    "weights": "count",
    "served": "calibrated",
}


def sample_of(
    scores: Any,
    sources: tuple[Source, ...] = (),
    *,
    kind: Kind = "benign",
    name: str = "scores",
    domain: tuple[float, float] | None = None,
    others: dict[str, Any] | None = None,
    **columns: Any,
) -> Sample:
    """Scores, with ids, groups, segments, times, weights or served scores beside them; `others` are columns unread."""
    given = {key: np.asarray(column) for key, column in columns.items() if column is not None}
    for key in ("ids", "groups", "segments"):
        if key in given:
            given[key] = given[key].astype(str).astype(object)
    roles = Columns.model_validate({ROLES[key]: key for key in given} | {"label": None})
    values = np.asarray(scores, dtype=np.float64)
    domain = domain or (min(0.0, values.min()), max(1.0, values.max()))
    table = {"score": values, **given, **(others or {})}
    found = from_object(table, name, roles, domain, kind)
    return replace(found, sources=sources) if sources else found


@contextmanager
def asked_in_parts(fetch: int = 8) -> Iterator[None]:
    """Hold no scores in memory: every sample is divided where it stands, until so few rows are left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate.rows.sample.SHARE", 1 << 40)
        patch.setattr("gate.rows.ordered.FETCH", fetch)
        patch.setattr("gate.rows.ordered.EACH", 2)
        yield


def is_divided(found: Sample) -> bool:
    return isinstance(found.ordered, Divided)


def column_of(found: Sample, role: str = "score") -> list[Any]:
    """A column of a sample, in the order of its files and rows."""
    order = "f, nr" if "nr" in found.roles else "1"
    column: list[Any] = found.engine.ask(f"SELECT {role} AS c FROM {found.rows} ORDER BY {order}")["c"].tolist()
    return column
