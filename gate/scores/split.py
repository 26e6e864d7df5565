"""Parts of samples: one sample divided in two, and the rows that two samples have in common."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError
from gate.scores.sample import Scores
from gate.scores.wording import show
from gate.sources import Split


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
    return fit, holdout, Split(fraction=fraction, seed=seed, by=by, cut=cut)


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
    """In each segment, units drawn in random order as long as they stay within its fraction of the rows."""
    rng = np.random.default_rng(seed)
    n = len(scores)
    units = np.arange(n) if scores.groups is None else scores.groups
    sizes = np.ones(n) if scores.groups is None else scores.group_sizes
    strata = np.zeros(len(sizes), dtype=np.int64)
    if scores.segments is not None:  # a group that spans segments is drawn in its first
        strata = np.full(len(sizes), len(scores.segment_names), dtype=np.int64)
        np.minimum.at(strata, units, scores.segments)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(strata[order], kind="stable")]
    before = np.concatenate([[0.0], np.cumsum(sizes[order])])
    starts = np.searchsorted(strata[order], np.arange(strata.max() + 2))
    rows = np.diff(before[starts])
    allowed = np.round(fraction * rows) if scores.groups is None else fraction * rows
    taken = order[before[1:] - before[starts[strata[order]]] <= allowed[strata[order]]]
    fitted = np.zeros(len(sizes), dtype=bool)
    fitted[taken] = True
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
