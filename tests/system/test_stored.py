"""Samples in blocks on disk answer every question as samples in memory do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from gate.ordered import Ordered
from gate.scores import Scores, read, row_keys, split
from gate.scores.budget import ByteBudget
from gate.scores.place import Place, read_into
from gate.scores.split import match
from gate.scores.stored import Stored, read_stored
from gate.scores.taking import read_whole
from gate.sketch import share, sketch

import gate
from gate.calibration.fit import fit_sorted
from gate.checks import parse_policy, ranges, segments
from gate.checks.check import Case
from gate.checks.shared import compare_scores
from gate.errors import GateError
from gate.flagged import list_flagged
from gate.policy import Columns

KEYS = ("id", "group", "segment", "timestamp")
PROBES = np.array([-np.inf, 0.0, 0.01, 0.2, 0.9, np.inf])


@dataclass(frozen=True)
class Drawn:
    columns: Columns
    paths: tuple[str, ...]


def draw(folder: Path, seed: int, keys: tuple[str, ...], first: int = 0) -> Drawn:
    """Draw rows over a few files; some ids come again, groups are of all sizes, and one segment is rare."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(9_000, 14_000))
    again = np.concatenate([np.arange(n), rng.integers(0, n, n // 20)])
    rng.shuffle(again)
    held = {
        "score": np.round(rng.beta(0.5, 8, n), int(rng.integers(2, 9))),
        "id": np.array([f"row {first + i}" for i in range(n)]),
        "group": np.array([f"user {i}" for i in first // 8 + (n / 8 * rng.random(n) ** 3).astype(int)]),
        "segment": np.where(rng.random(n) < 1e-3, "rare", rng.choice(["de", "en", "fr"], n)),
        "timestamp": rng.integers(1_700_000_000, 1_710_000_000, n),
    }
    rows = again if "id" in keys else np.arange(n)
    table = pa.table({name: held[name][rows] for name in ("score", *keys)})
    folder.mkdir()
    ends = np.linspace(0, len(table), int(rng.integers(2, 6))).astype(int)
    for i, (start, stop) in enumerate(pairwise(ends)):
        pa.parquet.write_table(table.slice(start, stop - start), folder / f"{i}.parquet", row_group_size=2_000)
    return Drawn(Columns(**{key: key for key in keys}), (str(folder),))


def read_both(drawn: Drawn, place: Place, keep_rows: bool = False) -> tuple[Scores, Stored]:
    whole = read_whole(drawn.paths, drawn.columns, (0.0, 1.0), "benign", ByteBudget())
    stored = read_stored(drawn.paths, drawn.columns, (0.0, 1.0), "benign", place, keep_rows)
    assert isinstance(stored, Stored)
    assert len(stored.__dict__["blocks"]) >= 2
    return whole, stored


def all_of(ordered: Ordered) -> np.ndarray:
    return np.asarray(ordered.between(None, None)[0])


def same_order(one: Ordered, other: Ordered) -> None:
    assert one.n == other.n
    ranks = np.unique(np.linspace(1, one.n, 50).astype(int))
    assert np.array_equal(one.at_rank(ranks), other.at_rank(ranks))


def same(one: Scores, other: Scores) -> None:
    assert (len(one), one.sha256, one.rows_sha256) == (len(other), other.sha256, other.rows_sha256)
    assert (one.repeated, one.seen, one.segment_names) == (other.repeated, other.seen, other.segment_names)
    assert (one.summary, one.labels) == (other.summary, other.labels)
    same_order(one.ordered, other.ordered)
    same_order(one.score_hashes(), other.score_hashes())
    if one.has_ids:
        same_order(one.id_hashes(), other.id_hashes())
        assert sorted(one.ids.to_pylist()) == sorted(other.ids.to_pylist())
    found = []
    if one.has_groups:
        assert one.group_names.equals(other.group_names), "in the same order"
        assert np.array_equal(one.group_sizes, other.group_sizes)
        same_order(one.highest_of_groups(), other.highest_of_groups())
        found.append((one.by_group(PROBES), other.by_group(PROBES)))
    if one.has_segments:
        found.append((one.by_segment(PROBES), other.by_segment(PROBES)))
    if one.has_groups and one.has_segments:
        found.append((one.by_group_in_segment(PROBES), other.by_group_in_segment(PROBES)))
    for ours, theirs in found:
        assert all(np.array_equal(*columns) for columns in zip(ours, theirs, strict=True))
    for name in ("ids", "groups", "segments", "timestamps"):
        assert (getattr(one, name) is None) == (getattr(other, name) is None)
    assert np.array_equal(np.sort(one.values), np.sort(other.values))


@pytest.mark.each_run(2)
@pytest.mark.parametrize(
    "keys",
    [("id",), ("group",), ("segment",), ("timestamp",), ("group", "segment"), ("id", "group", "timestamp"), KEYS],
)
def test_every_answer_is_that_of_the_memory(tmp_path: Path, keys: tuple[str, ...]) -> None:
    place = Place(500_000, str(tmp_path / "scratch"))
    same(*read_both(draw(tmp_path / "rows", len(keys), keys), place))


@pytest.mark.each_run(1)
@pytest.mark.parametrize(
    "keys", [(), ("id",), ("group",), ("segment",), ("timestamp",), ("id", "group", "segment"), KEYS]
)
def test_so_is_every_division(tmp_path: Path, keys: tuple[str, ...]) -> None:
    place = Place(500_000, str(tmp_path / "scratch"))
    whole, stored = read_both(draw(tmp_path / "rows", 10 + len(keys), keys), place, keep_rows=True)
    ours, theirs = split(whole, 0.3, 7), split(stored, 0.3, 7)
    assert ours[2] == theirs[2]
    same(whole, stored)
    for side in range(2):
        one, other = ours[side], theirs[side]
        assert isinstance(one, Scores)
        assert isinstance(other, Stored)
        same(one, other)


@pytest.mark.each_run(1)
@pytest.mark.parametrize("keys", [("id",), ("group",), KEYS])
def test_so_is_what_two_samples_share(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """It does not matter which of the two lies on disk, and in how many parts."""
    small, large = Place(500_000, str(tmp_path / "small")), Place(1_000_000, str(tmp_path / "large"))
    one = read_both(draw(tmp_path / "one", 20, keys), small)
    other = read_both(draw(tmp_path / "other", 21, keys, first=2_000), large)
    pairs = [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other]
    if "id" in keys:
        assert len({a.shared_ids(b) for a, b in pairs[:4]}) == 1
        assert {a.shared_ids(b) for a, b in pairs} == {len({*one[0].ids.to_pylist()} & {*other[0].ids.to_pylist()})}
        assert len({share(sketch(a.id_hashes()), b.id_hashes()) for a, b in pairs[:4]}) == 1
        joined = {tuple(np.sort(column).tobytes() for column in match(a, b)[:2]) for a, b in pairs[:4]}
        assert len(joined) == 1
    keyed = [row_keys(a, b) for a, b in pairs[:4]]
    if "group" in keys:
        assert len({len(np.intersect1d(all_of(both[0]), all_of(both[1]))) for both in keyed if both is not None}) == 1
        assert len({a.shared_groups(b) for a, b in pairs[:4]}) == 1
        assert len({a.shared_groups(b) for a, b in pairs[4:]}) == 1
        both = {*one[0].group_names.to_pylist()} & {*other[0].group_names.to_pylist()}
        assert one[1].shared_groups(other[1])[0] == len(both) > 0


def test_an_id_with_two_scores_is_refused_there_too(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    ids = [*(f"row {i}" for i in range(30_000)), "row 77"]
    scores = np.append(np.full(30_000, 0.25), 0.5)
    pa.parquet.write_table(
        pa.table({"score": scores, "id": ids}), tmp_path / "rows" / "a.parquet", row_group_size=2_000
    )
    drawn = Drawn(Columns(id="id"), (str(tmp_path / "rows"),))
    said = rf"^{tmp_path}/rows: must have one score for each id, got 'row 77' with 0.25 and 0.5"
    with pytest.raises(GateError, match=said):
        read_whole(drawn.paths, drawn.columns, (0.0, 1.0), "benign", ByteBudget())
    with pytest.raises(GateError, match=said):
        read_stored(drawn.paths, drawn.columns, (0.0, 1.0), "benign", Place(1_000_000, str(tmp_path / "s")))


def test_to_count_in_groups_and_segments_reads_no_column_whole(tmp_path: Path) -> None:
    """Whether a sample has one is known without it: the memory is for blocks of rows."""
    text = "data: {group: group, segment: segment}, targets: [{fpr: 10%, min_n: 9, max_relative_error: 0.5}]"
    text += ", ranges: [{from: 10%, to: 1%, min_n: 9, max_relative_error: 0.5}]"
    text += ", checks: {segments: {targets: [10%], min_n: 9, max_relative_error: 1, ranges: [{from: 10%, to: 2%}]}}"
    policy = parse_policy(f"{{version: 1, name: o, {text}}}", "o.yaml").policy
    for keys in (("group", "segment"), ("segment",)):
        place = tmp_path / "-".join(keys)
        place.mkdir()
        fit, holdout = (
            read_both(draw(place / name, seed, keys), Place(500_000, str(place / "scratch")))[1]
            for seed, name in ((7, "fit"), (11, "holdout"))  # rounded alike
        )
        columns = policy.data.model_copy(update={"group": "group" if "group" in keys else None})
        case = Case(
            policy.model_copy(update={"data": columns}),
            fit_sorted(fit.ordered, policy.calibration, policy.anchors),
            holdout,
            fit,
        )
        assert ranges.measure(case) is not None
        assert segments.measure(case) is not None
        compare_scores(fit, holdout)
        for sample in (fit, holdout):
            assert not {"groups", "segments", "values"} & sample.__dict__.keys(), keys


CHOICES = [
    tuple(compress(("count", "id", "group", "segment"), chosen))
    for chosen in product((False, True), repeat=4)
    if not (chosen[0] and (chosen[1] or chosen[2]))  # a policy may not name these beside counts
]


@pytest.mark.each_run(3)
@pytest.mark.parametrize("keys", CHOICES, ids="-".join)
def test_release_division_and_list_are_those_of_the_memory(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """With any columns, the functions that everyone calls give the same, or refuse alike."""
    rng = np.random.default_rng(len(keys))
    for name in ("fit", "holdout"):
        n = 5_000
        columns = {
            "score": np.round(rng.beta(0.5, 8, n), 4),
            "count": rng.integers(0, 4, n),
            "id": [f"{name} {i}" for i in range(n)],
            "group": [f"{name} {i // 3}" for i in range(n)],
            "segment": rng.choice(["de", "en"], n),
        }
        table = pa.table({key: columns[key] for key in ("score", *keys)})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=500)
    text = "{version: 1, name: o, calibration: {knots: 50}, data: {%s}, targets: [{fpr: 10%%, min_n: 9, %s}]}"
    data = ", ".join(f"{key}: {key}" for key in keys)
    document = parse_policy(text % (data, "max_relative_error: 0.5"), "o.yaml")
    paths = {name: str(tmp_path / f"{name}.parquet") for name in ("fit", "holdout")}

    def work() -> tuple[Any, ...]:
        samples = [read([path], document.policy.data, (0.0, 1.0)) for path in paths.values()]
        release = gate.run(*paths.values(), release="v1", policy=document, created=datetime(2026, 3, 1, tzinfo=UTC))
        listed = list_flagged(samples[1], release.calibrator)
        try:
            parts: Any = [(len(part), part.sha256) for part in split(samples[0], 0.5, 1)[:2]]
        except GateError as error:
            parts = str(error)
        flagged = {name: list(column) for name, column in listed.items()}
        return [(len(rows), rows.sha256) for rows in samples], release.record.to_json(), flagged, parts, samples

    *here, _ = work()
    with read_into(Place(80_000, str(tmp_path / "scratch"))):
        *there, samples = work()
    assert all(isinstance(rows, Stored) or rows.stored is not None for rows in samples)
    assert here == there
    assert ("got some that stand for many" in here[3]) == (keys == ("count",))
