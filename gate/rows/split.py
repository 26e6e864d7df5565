"""One sample divided into rows to fit on and rows to hold out: whole groups and ids on one side, by hash or by time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np

from gate.errors import GateError
from gate.rows.engine import text, values
from gate.rows.reading import counted_again, kept
from gate.rows.sample import Sample
from gate.sources import Split


def split(sample: Sample, fraction: float, seed: int) -> tuple[Sample, Sample, Split]:
    """Divide one sample into rows to fit on and rows to hold out; rows that belong together stay together.

    Together belong the rows of a group, and rows that are equal in all columns. With times the older rows are fitted
    on. Otherwise a hash decides, of the seed and of what names a row: its group, else its id, else its content, else
    its number in its file, the files in the order of their names. So neither engine, nor memory, nor the order of named
    rows matters.

    Within each segment these are exact: without groups, the number of rows, to the nearest whole one; with groups, the
    number of groups, to the whole one below or above. Which of these two is drawn, so that each group has the same
    chance to be fitted on: the share of rows is as asked for on average. A group in several segments is drawn in the
    first of them.
    """
    if not 0 < fraction < 1:
        raise GateError(f"--split: must be a fraction between 0 and 1, got {fraction:g}; write 0.3 to fit on 30 %")
    if sample.has_weights:
        raise GateError("--split: must divide single rows, got some that stand for many (data.count); write them out")
    whole = "groups" if sample.has_groups else "rows"
    cut = None
    if sample.has_times:
        by = f"{whole} by time"
        fitted, cut = _by_time(sample, fraction)
    else:
        by = f"{whole} within segments" if sample.has_segments else whole
        fitted = _by_hash(sample, fraction, seed)
    relation = kept(sample.engine, fitted)
    sides = [
        counted_again(
            replace(sample, relation=f"SELECT * FROM ({relation}) AS s WHERE {side}", pool=sample, copied=None)
        )
        for side in ("fitted", "NOT fitted")
    ]
    fit, holdout = sides
    if min(fit.n, holdout.n) < 2:
        raise GateError(
            f"--split: must leave at least 2 benign rows on each side, got {fit.n:,} and {holdout.n:,}; "
            "choose another fraction or give more rows or groups"
        )
    moment = None if cut is None else str(np.datetime64(cut, "us")) + "Z"
    return fit, holdout, Split(fraction=fraction, seed=seed, by=by, cut=moment)


def _by_time(sample: Sample, fraction: float) -> tuple[str, int]:
    """The rows before a moment, such that at most the fraction lies before it; of a group its newest row decides."""
    newest = "max(time) OVER (PARTITION BY grp)" if sample.has_groups else "time"
    relation = f"SELECT *, {newest} AS moment FROM {sample.rows}"
    place = int(fraction * sample.n)
    found = sample.ask(f"SELECT moment FROM ({relation}) AS m ORDER BY 1 LIMIT 1 OFFSET {place}")
    cut = int(found["moment"][0])
    return f"SELECT *, moment < {cut} AS fitted FROM ({relation}) AS m", cut


def _by_hash(sample: Sample, fraction: float, seed: int) -> str:
    """Those with the lowest hashes, so many in each segment."""
    name = next((role for role in ("grp", "id", "whole") if role in sample.roles), None)
    if name is None and "nr" not in sample.roles:
        raise GateError("--split: must have rows with ids here, got none; set data.id, or give --fit and --holdout")
    named = f"{name}" if name else "f || ':' || nr"
    part = "''"
    if sample.has_segments:
        part = "min(segment) OVER (PARTITION BY grp)" if sample.has_groups else "segment"
    keyed = f"SELECT *, md5({text(f'{seed}:')} || {named}) AS hashed, {part} AS part FROM {sample.rows}"
    # Rows that share a name share its place, so that none of them is apart from the others.
    placed = f"SELECT *, dense_rank() OVER (PARTITION BY part ORDER BY hashed) AS place FROM ({keyed}) AS k"
    counted = "count(*)" if name in (None, "id") else "count(DISTINCT hashed)"
    sizes = sample.ask(f"SELECT part, {counted} AS n FROM ({keyed}) AS k GROUP BY 1")
    parts = [str(each) for each in sizes["part"].tolist()]
    counts = zip(parts, sizes["n"].tolist(), strict=True)
    wanted = [_wanted(fraction * n, each, seed, sample.has_groups) for each, n in counts]
    most = values({"part": parts, "most": wanted})
    return f"SELECT p.*, p.place <= w.most AS fitted FROM ({placed}) AS p JOIN {most} ON p.part = w.part"


def _wanted(exact: float, part: str, seed: int, grouped: bool) -> int:
    """How many rows to fit on, to the nearest whole one; of groups the whole one below or above, which is drawn."""
    if not grouped:
        return math.floor(exact + 0.5)
    drawn = int(hashlib.md5(f"{seed}/{part}".encode(), usedforsecurity=False).hexdigest()[:8], 16) / 2**32
    return math.floor(exact + drawn)
