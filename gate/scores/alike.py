"""Finds rows of two samples that are alike in every column: each row gets one number. It judges nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gate.contract import Floats
from gate.ordered import Ordered, collapse, join_entries
from gate.scores.columns import text_buffer
from gate.scores.sample import Scores
from gate.sketch import hash_each, mix

PIECE = 1 << 20


def row_keys(one: Scores, other: Scores) -> tuple[Ordered, Ordered] | None:
    """A number for every row of both samples, the same for rows that agree in their scores and all common columns.

    The answer is None if the score is the only common column. In memory, rows whose score nobody shares are left out:
    no row is like them.
    """
    columns = tuple(
        name
        for name, here, there in (
            ("groups", one.has_groups, other.has_groups),
            ("segments", one.has_segments, other.has_segments),
            ("timestamps", one.has_times, other.has_times),
        )
        if here and there
    )
    if not columns:
        return None
    alike = None
    if not one.is_stored and not other.is_stored:
        alike = _alike(one.ordered, other.ordered)
    keys = partial(_keys, columns=columns, alike=alike)
    return one.in_order(keys), other.in_order(keys)


def _alike(one: Ordered, other: Ordered) -> Floats:
    """Find the scores that more than one row has, in either sample or across both."""
    found = [np.empty(0)]
    cuts = [*one.cuts(PIECE)]
    for ends in zip([None, *cuts], [*cuts, None], strict=True):
        values, rows = collapse(*join_entries([sample.between(*ends) for sample in (one, other)]))
        found.append(values[rows > 1])
    return np.concatenate(found)


def _keys(part: Scores, columns: tuple[str, ...], alike: Floats | None) -> Any:
    rows: Any = slice(None)
    if alike is not None:
        places = np.minimum(np.searchsorted(alike, part.values), max(len(alike) - 1, 0))
        rows = np.flatnonzero(alike[places] == part.values) if len(alike) else np.empty(0, dtype=np.int64)
    key = (part.values[rows] + 0.0).view(np.uint64)
    for name in columns:
        codes = getattr(part, name)[rows]
        if name == "timestamps":
            key = mix(key) + codes.astype(np.uint64)
        else:
            names = part.group_names if name == "groups" else pa.array(part.segment_names, pa.large_string())
            key = mix(key) + hash_each(*text_buffer(names))[codes]
    return (mix(key) >> np.uint64(2)).astype(np.int64)
