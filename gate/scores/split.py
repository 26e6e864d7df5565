"""Parts of samples: one sample divided in two, and the rows that two samples have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError
from gate.scores.sample import Scores
from gate.scores.wording import show


@dataclass(frozen=True)
class Split:
    """How one sample was divided, exactly enough to do it again on the same rows in the same order.

    `by` says what was kept: whole groups, each segment's share, the order of time; `cut` is the first time held out.
    """

    fraction: float
    seed: int
    by: str
    cut: str | None = None


def split(scores: Scores, fraction: float, seed: int) -> tuple[Scores, Scores, Split]:
    """Divide one sample into rows to fit on and rows to hold out; the rows of one group stay together.

    With timestamps the older rows are fitted on. Otherwise chance decides, in each segment by itself.
    """
    if not 0 < fraction < 1:
        raise GateError(f"--split: must be a fraction between 0 and 1, got {fraction:g}; write 0.3 to fit on 30 %")
    whole = "rows" if scores.groups is None else "groups"
    cut = None
    if scores.timestamps is not None:
        fitted, cut = _older(scores, scores.timestamps, fraction)
        by = f"{whole} by time"
    else:
        fitted = _drawn(scores, fraction, seed)
        by = whole if scores.segments is None else f"{whole} within segments"
    fit, holdout = (scores.part(rows) for rows in (fitted, ~fitted))
    if min(len(fit), len(holdout)) < 2:
        raise GateError(
            f"--split: must leave at least 2 benign rows on each side, got {len(fit):,} and {len(holdout):,}; "
            "choose another fraction or give more rows or groups"
        )
    return fit, holdout, Split(fraction, seed, by, cut)


def _older(scores: Scores, times: NDArray[np.int64], fraction: float) -> tuple[NDArray[np.bool_], str]:
    """The rows before a moment that leaves at most the fraction before it; a group is as old as its newest row."""
    if scores.groups is not None:
        newest = np.full(len(scores.group_sizes), np.iinfo(np.int64).min)
        np.maximum.at(newest, scores.groups, times)
        times = newest[scores.groups]
    cut = np.partition(times, int(fraction * len(times)))[int(fraction * len(times))]
    return times < cut, _moment(int(cut))


def _moment(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us")) + "Z"


def _drawn(scores: Scores, fraction: float, seed: int) -> NDArray[np.bool_]:
    """In each segment, its fraction of the rows, or of the groups: whatever its size, each has the same chance.

    Rows are as many as the fraction is nearest to. Where it asks for a part of a group, chance decides whether that is
    one more: else a segment of one group would never be fitted on.
    """
    rng = np.random.default_rng(seed)
    n = len(scores)
    units = np.arange(n) if scores.groups is None else scores.groups
    count = n if scores.groups is None else len(scores.group_sizes)
    strata = np.zeros(count, dtype=np.int64)
    if scores.segments is not None:  # a group that spans segments is drawn in its first
        strata = np.full(count, len(scores.segment_names), dtype=np.int64)
        np.minimum.at(strata, units, scores.segments)
    order = rng.permutation(count)
    order = order[np.argsort(strata[order], kind="stable")]
    starts = np.searchsorted(strata[order], np.arange(strata.max() + 2))
    wanted = fraction * np.diff(starts)
    whole = np.round(wanted) if scores.groups is None else np.floor(wanted + rng.random(len(wanted)))
    place = np.arange(count) - starts[strata[order]]
    fitted = np.zeros(count, dtype=bool)
    fitted[order[place < whole[strata[order]]]] = True
    return fitted[units]


def match(old: Scores, new: Scores) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """The scores that two releases gave the same rows, by id, and where in `new` these rows stand.

    Rows that only one of the two has scored are left out.
    """
    for scores in (old, new):
        if scores.ids is None:
            raise GateError(f"{scores.files}: must have ids to be compared row by row; set data.id or --id-column")
    # Numbers in the order of first sight, so those of the old rows are 0, 1, 2... as long as no id comes twice.
    numbers = pa.concat_arrays([old.ids, new.ids]).dictionary_encode().indices.to_numpy()
    here, there = numbers[: len(old)], numbers[len(old) :]
    for scores, codes in ((old, here), (new, there)):
        counts = np.bincount(codes)
        if counts.max() > 1:
            copies = np.flatnonzero(codes == np.argmax(counts > 1))
            raise GateError(
                f"{scores.files}: must have another id for every row to be compared row by row, "
                f"got {show(scores.ids[copies[0]].as_py())} in {len(copies):,} rows; remove the copies"
            )
    rows = np.flatnonzero(there < len(old))
    if len(rows) == 0:
        raise GateError(f"{old.files}: must have scored rows of the new release too, got no id in common with them")
    return old.values[there[rows]], new.values[rows], rows
