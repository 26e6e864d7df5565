"""The false positives: a list of the benign rows that reach an anchor, for people to examine. It judges nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gate.calibration.calibrator import Calibrator
from gate.checks.check import own_thresholds
from gate.errors import GateError
from gate.rows.sample import Sample

ENDINGS = (".csv", ".parquet")


def list_flagged(sample: Sample, calibrator: Calibrator, calibrated: bool = False) -> dict[str, Any]:
    """The rows of a sample that reach any anchor, highest first, as columns of equal length.

    id           the id of the row, if the sample has ids
    score        its raw score; left out if the sample has `calibrated` scores and no raw scores beside them
    calibrated   its calibrated score
    anchor       the rarest false-positive rate whose threshold it reaches
    segment      its segment, if the sample has segments

    Rows of one score are ordered by id, else by segment, so that the same rows give the same table.
    """
    own = own_thresholds(calibrator.contract.anchors) if calibrated else calibrator.thresholds
    thresholds = {fpr: cut for fpr, cut in own.items() if cut is not None}
    lowest = min(thresholds.values(), default=np.inf)
    rows = sample.rows_of(lowest) if np.isfinite(lowest) else sample.rows_of(np.finfo(np.float64).max)
    scores = np.asarray(rows["score"], dtype=np.float64)
    table: dict[str, Any] = {"id": rows["id"].tolist()} if "id" in rows else {}
    if not calibrated:
        table |= {"score": scores, "calibrated": calibrator.predict(scores) if len(scores) else scores}
    else:
        table |= {"calibrated": scores} if "raw" not in rows else {"score": rows["raw"], "calibrated": scores}
    rates = sorted(thresholds)  # the rarest first
    reached = np.stack([scores >= thresholds[rate] for rate in rates], axis=1) if rates else np.empty((0, 0), bool)
    table["anchor"] = np.array([float(rate) for rate in rates])[reached.argmax(axis=1)] if len(scores) else scores
    if "segment" in rows:
        table["segment"] = rows["segment"].tolist()
    return table


def require_ending(name: str) -> None:
    if Path(name).suffix.lower() not in ENDINGS:
        raise GateError(f"--flagged: must end in {' or '.join(ENDINGS)}, got {name!r}; name it so")


def render(table: Mapping[str, Any], ending: str) -> bytes:
    """The table as the bytes of a .csv or .parquet file."""
    if ending.lower() == ".parquet":
        from gate.rows.engine import here

        return here().parquet(table)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in table.values()]
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode(errors="surrogateescape")
