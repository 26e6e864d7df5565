"""The labels: which rows are benign and which malicious."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.errors import GateError, plural
from gate.policy import Columns
from gate.scores.columns import decode, round_decimals
from gate.scores.formats import File
from gate.scores.wording import is_number, kind_of, name_rows, show

Kind = Literal["benign", "malicious"]


def take_rows(kind: Kind, labels: Any, columns: Columns, path: File, alone: bool) -> NDArray[np.bool_]:
    """Which rows are benign, or not: the policy's text compared in the label column's own type.

    A file that stands `alone` must have some of the kind; among several, one may hold the other rows only.
    """
    if len(labels) == 0:
        return np.zeros(0, dtype=bool)
    wrong = f"{path}: column {columns.label!r} must hold words, numbers or booleans, got {kind_of(labels)}"
    try:
        labels = decode(labels)
        missing = labels.is_null(nan_is_null=True).to_numpy()
        if pa.types.is_string(labels.type):
            missing = missing | pc.equal(labels, "").fill_null(False).to_numpy()
        benign = _equal(labels, columns.benign)
    except pa.ArrowException:
        raise GateError(f"{wrong} in {plural(len(labels), 'row')}; write them as UTF-8 text or numbers") from None
    if missing.any():
        raise GateError(
            f"{path}: column {columns.label!r} must label every row, got none in {name_rows(missing, None)}; "
            "label or remove these rows"
        )
    taken = benign if kind == "benign" else ~benign
    if alone and not taken.any():
        found = pc.unique(labels)
        shown = ", ".join(map(show, found.slice(0, 5).to_pylist())) + (", ..." if len(found) > 5 else "")
        must = f"{kind} rows with {'' if kind == 'benign' else 'something else than '}{columns.benign!r}"
        raise GateError(
            f"{path}: column {columns.label!r} must mark {must}, "
            f"got {shown} in {plural(len(labels), 'row')}; set data.benign or --benign-label"
        )
    return taken


def _equal(labels: Any, text: str) -> NDArray[np.bool_]:
    """Which labels the policy's text names, read as what the column holds."""
    wanted: bool | str | float | None
    if pa.types.is_boolean(labels.type):
        wanted = {"0": False, "false": False, "1": True, "true": True}.get(text.lower())
    elif pa.types.is_string(labels.type):
        wanted = text
    else:
        labels = round_decimals(labels).cast(pa.float64(), safe=False)
        wanted = float(text) if is_number(text) else None
    if wanted is None:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(pc.equal(labels, wanted).fill_null(False).to_numpy(), dtype=bool)
