"""Parts of samples: one sample divided in two, and the rows that two samples have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError
from gate.scores.columns import text_buffer
from gate.scores.sample import Scores
from gate.scores.wording import show
from gate.sketch import hash_each, mix
from gate.sources import Split


def split(scores: Scores, fraction: float, seed: int) -> tuple[Scores, Scores, Split]:
    """Divide one sample into rows to fit on and rows to hold out; the rows of one group stay together.

    With timestamps the older rows are fitted on. Otherwise a hash decides, of the seed and of what names a row: its
    group, else its id, else its number among all rows, the files in the order of their names. So neither engine, nor
    memory, nor the order of named rows matters.

    Within each segment these are exact: without groups, the number of rows, to the nearest whole one; with groups, the
    number of groups, to the whole one below or above. Which of these two is drawn, so that each group has the same
    chance to be fitted on, whatever its size: the share of rows is as asked for on average. A group in several
    segments is drawn in the first of them. Hashes are cut to the bits that segments leave, 42 with a million: two that
    agree in all of them just where one side ends move one row.
    """
    if not 0 < fraction < 1:
        raise GateError(f"--split: must be a fraction between 0 and 1, got {fraction:g}; write 0.3 to fit on 30 %")
    if scores.counts is not None or scores.stored is not None:
        raise GateError("--split: must divide single rows, got some that stand for many (data.count); write them out")
    whole = "groups" if scores.has_groups else "rows"
    if scores.has_times:
        rule = _by_time(scores, fraction)
        by = f"{whole} by time"
    else:
        rule = _by_hash(scores, fraction, seed)
        by = f"{whole} within segments" if scores.has_segments else whole
    fit, holdout = scores.divide(rule.fitted)
    if min(len(fit), len(holdout)) < 2:
        raise GateError(
            f"--split: must leave at least 2 benign rows on each side, got {len(fit):,} and {len(holdout):,}; "
            "choose another fraction or give more rows or groups"
        )
    cut = None if rule.cut is None else _moment(rule.cut)
    return fit, holdout, Split(fraction=fraction, seed=seed, by=by, cut=cut)


def _moment(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us")) + "Z"


@dataclass(frozen=True)
class Rule:
    """Tells which rows are fitted on: their group was last seen before `cut`, or their key is within the segment's."""

    seed: int = 0
    bits: int = 0
    most: tuple[int, ...] = ()
    cut: int | None = None

    def fitted(self, rows: Scores) -> NDArray[np.bool_]:
        """Mark the rows to fit on among all rows, or among some that contain every group of theirs as a whole."""
        if self.cut is not None:
            return np.asarray(_last_seen(rows) < self.cut)
        keys = _keys(rows, self.seed, self.bits)
        fitted = keys <= np.array(self.most, dtype=np.int64)[keys >> self.bits]
        return np.asarray(fitted if rows.groups is None else fitted[rows.groups])


def _by_time(scores: Scores, fraction: float) -> Rule:
    """Choose the rows before a moment so that at most the fraction lies before it."""
    times = scores.in_order(_last_seen)
    return Rule(cut=int(times.at_rank(times.n - int(fraction * times.n))))


def _last_seen(rows: Scores) -> NDArray[np.int64]:
    """Return when each row was seen, or the newest row of its group."""
    times = rows.timestamps
    assert times is not None
    if rows.groups is None:
        return times
    newest = np.full(len(rows.group_sizes), np.iinfo(np.int64).min)
    np.maximum.at(newest, rows.groups, times)
    return np.asarray(newest[rows.groups])


def _by_hash(scores: Scores, fraction: float, seed: int) -> Rule:
    """Choose so many rows or groups in each segment: those with the lowest keys."""
    strata = max(len(scores.segment_names), 1)
    bits = 62 - (strata - 1).bit_length()
    keys = scores.in_order(partial(_keys, seed=seed, bits=bits))
    starts = keys.n - keys.at_or_above(np.arange(strata + 1, dtype=np.int64) << bits)
    sizes = np.diff(starts)
    if not scores.has_groups:
        wanted = np.round(fraction * sizes)
    else:
        drawn = _mixed(np.arange(strata, dtype=np.uint64) + np.uint64(1 << 63), seed)
        wanted = np.floor(fraction * sizes + drawn / 2.0**64)
    ends = starts[:-1] + wanted.astype(np.int64)
    most = np.where(wanted > 0, keys.at_rank(keys.n - np.maximum(ends - 1, 0)), -1)
    return Rule(seed, bits, tuple(most.tolist()))


def _keys(rows: Scores, seed: int, bits: int) -> NDArray[np.int64]:
    """Return the key of every row or group: the number of its segment, followed by so many bits of a hash."""
    texts, numbers = rows.ids, rows.numbers
    if rows.groups is not None:
        texts, numbers = rows.group_names, np.arange(len(rows.group_sizes))
    if texts is not None:
        names = hash_each(*text_buffer(texts))
    else:
        names = mix(numbers.astype(np.uint64) ^ np.uint64(_NUMBERED))
    hashes = (_mixed(names, seed) >> np.uint64(64 - bits)).astype(np.int64)
    if rows.segments is None:
        return hashes
    strata = rows.segments.astype(np.int64)
    if rows.groups is not None:
        strata = np.full(len(hashes), len(rows.segment_names), dtype=np.int64)
        np.minimum.at(strata, rows.groups, rows.segments)
    return np.asarray((strata << bits) | hashes)


def _mixed(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Mix the seed into hashes: every seed gives other hashes."""
    for word in (seed & _WORD, seed >> 64):
        hashes = mix(hashes ^ mix(np.array([word & _WORD], dtype=np.uint64)))
    return hashes


_WORD = (1 << 64) - 1
_NUMBERED = 0xA0761D6478BD642F  # with this, numbers get other hashes than names


def match(old: Scores, new: Scores) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Match rows by id: return the scores that two releases gave the same rows, and their places in `new`.

    Rows that only one of the two has scored are left out.
    """
    for scores in (old, new):
        if scores.ids is None:
            raise GateError(f"{scores.files}: must have ids to be compared row by row; set data.id")
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
