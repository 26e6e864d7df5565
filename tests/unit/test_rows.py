"""What a sample answers about its rows, against plain Python: counts, names, copies, fingerprints, flagged rows."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, column_of, sample_of

from gate.errors import GateError
from gate.policy import Columns
from gate.rows.engine import using
from gate.rows.joined import paired
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample

SCORES = st.sampled_from([0.0, -0.0, 5e-324, 0.1, 0.1 + 1e-17, 0.25, 1 / 3, 0.5, np.nextafter(0.5, 1), 0.9, 1.0])
NAMES = st.sampled_from(["a", "b", "B", "é", "e\u0301", "z z", "7", "07", "7.0", "", "'", '"', "\x1f"])
DOMAIN = (0.0, 1.0)


@st.composite
def relations(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Rows with every column that a sample may have."""
    n = draw(st.integers(2, 40))
    return {
        "score": np.array(draw(st.lists(SCORES, min_size=n, max_size=n))),
        "id": np.array([f"r{i}" for i in draw(st.permutations(range(n)))], dtype=object),
        "grp": np.array(draw(st.lists(st.sampled_from("abcde"), min_size=n, max_size=n)), dtype=object),
        "part": np.array(draw(st.lists(st.sampled_from(["x", "y", "Y"]), min_size=n, max_size=n)), dtype=object),
        "seen": np.array(draw(st.lists(st.integers(10**9, 10**9 + 5), min_size=n, max_size=n))),
    }


ALL = Columns(id="id", group="grp", segment="part", timestamp="seen")


def written(place: Path, table: dict[str, Any], form: str, name: str = "rows") -> str:
    path = place / f"{name}.{form}"
    if form == "parquet":
        pa.parquet.write_table(pa.table(table), path)
    elif form == "csv":
        pa.csv.write_csv(pa.table(table), path)
    elif form == "jsonl":
        rows = zip(*(np.asarray(column).tolist() for column in table.values()), strict=True)
        path.write_text("".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows))
    else:
        arrays: dict[str, Any] = {key: np.asarray(column) for key, column in table.items()}
        np.savez(path, **arrays)
    return str(path)


# --- names ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NAMES, min_size=2, max_size=30), st.lists(NAMES, min_size=2, max_size=30))
def test_shared_names_are_those_found_one_by_one(some: list[str], others: list[str]) -> None:
    """Two spellings of one letter are one name; case, blanks and zeros before a number are not."""
    plain = [[name.replace("e\u0301", "é") for name in names] for names in (some, others)]
    one, other = (sample_of(np.linspace(0, 1, len(names)), groups=names) for names in (some, others))
    both = {*plain[0]} & {*plain[1]}
    assert one.shared(other, "grp") == (len(both), sum(name in both for name in plain[0]))
    assert other.shared(one, "grp") == (len(both), sum(name in both for name in plain[1]))
    counts = Counter(plain[0])
    assert (one.group_count, one.largest_group) == (len(counts), max(counts.values()))


ONE_NAME = {
    "int8": lambda values: pa.array(values, pa.int8()),
    "int64": lambda values: pa.array(values, pa.int64()),
    "uint64": lambda values: pa.array(values, pa.uint64()),
    "float32": lambda values: pa.array(np.array(values, dtype=np.float32)),
    "float64": lambda values: pa.array(np.array(values, dtype=np.float64)),
    "decimal": lambda values: pa.array(values, pa.decimal128(12, 3)),
    "text": lambda values: pa.array([str(value) for value in values]),
    "dictionary": lambda values: pa.array([str(value) for value in values]).dictionary_encode(),
}


@pytest.mark.parametrize("role", ["id", "group", "segment"])
def test_a_whole_number_is_one_name_in_every_type(role: str) -> None:
    numbers = [0, 7, 12, 100, 127]
    expected = sorted(str(number) for number in numbers)
    asked = {"id": "id", "group": "grp", "segment": "segment"}[role]
    for make in ONE_NAME.values():
        table = pa.table({"score": [0.1, 0.2, 0.3, 0.4, 0.5], "name": make(numbers)})
        sample = from_object(table, "x", Columns(**{role: "name"}), DOMAIN)
        assert sorted(column_of(sample, asked)) == expected


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_large_whole_numbers_are_one_name_in_every_format(form: str, tmp_path: Path) -> None:
    numbers = [10**15, 2**53 - 1, -5, 123456789012]
    path = written(tmp_path, {"score": [0.1, 0.2, 0.3, 0.4], "id": numbers}, form)
    assert column_of(read([path], Columns(id="id"), DOMAIN), "id") == [str(number) for number in numbers]
    if form == "parquet":
        floats = written(tmp_path, {"score": [0.1, 0.2, 0.3, 0.4], "id": np.array(numbers, dtype=float)}, form, "f")
        assert column_of(read([floats], Columns(id="id"), DOMAIN), "id") == [str(number) for number in numbers]


# --- rows with one id -------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=40), st.booleans(), st.integers(0, 2**32))
def test_rows_with_one_id_are_one_row_the_oldest(items: list[int], timed: bool, seed: int) -> None:
    if len({*items}) < 2:
        return
    times = np.random.default_rng(seed).integers(10**9, 10**9 + 4, len(items))
    sample = sample_of(
        [i / 20 for i in items],
        ids=[f"r{i}" for i in items],
        groups=[f"g{i % 3}" for i in items],
        times=times if timed else None,
    )
    assert (sample.n, sample.repeated) == (len({*items}), len(items) - len({*items}))
    assert sorted(column_of(sample, "id")) == sorted(f"r{i}" for i in {*items})
    assert sorted(column_of(sample)) == sorted(i / 20 for i in {*items})
    if timed:
        oldest = {f"r{i}": min(t for j, t in zip(items, times, strict=True) if j == i) for i in {*items}}
        found = dict(zip(column_of(sample, "id"), column_of(sample, "time"), strict=True))
        assert found == {name: t * 10**6 for name, t in oldest.items()}
        assert sample.seen == (min(oldest.values()) * 10**6, max(oldest.values()) * 10**6)


@pytest.mark.parametrize("role", ["group", "segment"])
def test_rows_with_one_id_must_agree(role: str) -> None:
    table = {"score": [0.1, 0.2, 0.1], "id": ["a", "b", "a"], "x": ["p", "q", "r"]}
    with pytest.raises(GateError, match=rf"^x: must have one {role} for each id, got 'a' with p and r; give every row"):
        from_object(pa.table(table), "x", Columns(id="id", **{role: "x"}), DOMAIN)


# --- whole rows -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 300), min_size=20, max_size=60, unique=True), st.data())
def test_whole_rows_are_counted_as_python_would(items: list[int], data: st.DataObject) -> None:
    """A text that nearly every row has for itself tells rows apart; without one, nothing is said of copies."""
    again = data.draw(st.lists(st.sampled_from(items), max_size=30))
    rows = data.draw(st.permutations(items + again))
    prompts = pa.array([None if i == items[0] else f"prompt {i}" for i in rows])
    sample = from_object(pa.table({"score": [i / 400 for i in rows], "prompt": prompts}), "x", Columns(), DOMAIN)
    assert sample.copied == len(rows) - len({*rows})
    other = from_object(
        pa.table({"score": [i / 400 for i in range(60)], "prompt": [f"prompt {i}" for i in range(60)]}),
        "x",
        Columns(),
        DOMAIN,
    )
    both = {*rows} & {*range(60)} - {items[0]}
    assert sample.shared(other, "whole") == (len(both), sum(i in both for i in rows))


def test_where_no_column_tells_rows_apart_nothing_is_said_of_whole_rows() -> None:
    scores = np.random.default_rng(1).random(200)
    for unread in (
        {},
        {"language": np.array(["de", "en"] * 100)},
        {"row": np.arange(200)},
        {"row": np.arange(200) + 7},
    ):
        sample = sample_of(scores, others=unread)
        assert (sample.copied, "whole" in sample.roles) == (None, False)
        assert sample.unread == tuple(unread)


# --- flagged rows -----------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(relations(), SCORES, st.booleans())
def test_the_rows_that_reach_a_threshold_are_listed_highest_first(
    table: dict[str, np.ndarray], threshold: float, named: bool
) -> None:
    sample = from_object(table, "x", Columns(id="id" if named else None, segment="part"), DOMAIN)
    found = sample.rows_of(threshold)
    rows = zip(*(table[key].tolist() for key in ("score", "id", "part")), strict=True)
    reached = [(score, id_, part) for score, id_, part in rows if score >= threshold]
    ordered = sorted(reached, key=lambda row: (-row[0], row[1] if named else row[2]))
    assert found["score"].tolist() == [row[0] for row in ordered]
    assert found["segment"].tolist() == [row[2] for row in ordered] or not named
    assert not named or found["id"].tolist() == [row[1] for row in ordered]


def test_a_row_that_stands_for_many_is_listed_as_many() -> None:
    sample = sample_of([0.1, 0.9, 0.5], weights=[4, 2, 3])
    assert sample.rows_of(0.5)["score"].tolist() == [0.9, 0.9, 0.5, 0.5, 0.5]


# --- columns that nobody reads ------------------------------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(relations(), st.booleans())
def test_the_values_at_the_top_are_counted_as_python_would(table: dict[str, np.ndarray], divided: bool) -> None:
    with asked_in_parts() if divided else nullcontext():
        sample = from_object(table, "x", Columns(id="id"), DOMAIN)
        found = {(column, value): rest for column, value, *rest in sample.values_at_the_top()}
    for column in ("grp", "part"):
        values = {*table[column].tolist()}
        if len(values) < 2:
            continue
        for value in values:
            own = table["score"][table[column] == value]
            at = np.sort(table["score"])[::-1][len(own) - 1]
            assert found[column, value] == [len(own), (table["score"] >= at).sum(), (own >= at).sum()]


# --- fingerprints -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(36), deadline=None)
@given(relations(), st.integers(0, 2**32))
def test_order_division_and_memory_leave_the_fingerprint(table: dict[str, np.ndarray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table["score"]))
    whole = from_object(table, "x", ALL, DOMAIN)
    shuffled = from_object({key: column[order] for key, column in table.items()}, "x", ALL, DOMAIN)
    with asked_in_parts():
        divided = from_object(table, "x", ALL, DOMAIN)
        assert (divided.fingerprint, divided.rows_sha256) == (whole.fingerprint, whole.rows_sha256)
    assert (shuffled.fingerprint, shuffled.rows_sha256) == (whole.fingerprint, whole.rows_sha256)
    with using(memory=1):
        small = from_object(table, "x", ALL, DOMAIN)
        assert (small.fingerprint, small.rows_sha256) == (whole.fingerprint, whole.rows_sha256)


def test_format_and_division_into_files_leave_the_fingerprint(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table: dict[str, Any] = {
        "score": rng.random(3000),
        "id": [f"r{i}" for i in range(3000)],
        "grp": [f"g{i % 700}" for i in range(3000)],
        "part": [("de", "en", "fr")[i % 3] for i in range(3000)],
        "seen": np.arange(3000) + 10**9,
    }
    digests = set()
    for form in ("parquet", "csv", "jsonl", "npz"):
        found = read([written(tmp_path, table, form)], ALL, DOMAIN)
        digests.add((found.n, found.fingerprint, found.rows_sha256, found.seen))
    halves = [{key: column[side] for key, column in table.items()} for side in (slice(1000), slice(1000, None))]
    paths = [
        written(tmp_path, half, form, f"half{form}") for half, form in zip(halves, ("csv", "parquet"), strict=True)
    ]
    for names in (paths, paths[::-1]):
        found = read(names, ALL, DOMAIN)
        digests.add((found.n, found.fingerprint, found.rows_sha256, found.seen))
    assert len(digests) == 1


@settings(max_examples=examples(60), deadline=None)
@given(relations(), st.data())
def test_another_score_segment_group_or_weight_changes_the_fingerprint(
    table: dict[str, np.ndarray], data: st.DataObject
) -> None:
    columns = {key: table[key] for key in ("score", "grp", "part")}
    roles = Columns(group="grp", segment="part")
    before = from_object(columns, "x", roles, DOMAIN).fingerprint
    i = data.draw(st.integers(0, len(table["score"]) - 1))
    for key, other in (("score", 0.7), ("part", "another"), ("grp", "another")):
        changed = columns | {key: columns[key].copy()}
        changed[key][i] = other
        after = from_object(changed, "x", roles, DOMAIN).fingerprint
        alone = key == "grp" and list(columns["grp"]).count(columns["grp"][i]) == 1
        assert alone or after != before, key
    more = {key: np.append(column, column[:1]) for key, column in columns.items()}
    assert from_object(more, "x", roles, DOMAIN).fingerprint != before


def test_a_weight_is_as_many_rows_in_the_fingerprint() -> None:
    scores, weights = [0.1, 0.5, 0.5, 0.9], [3, 1, 0, 2]
    long = sample_of(np.repeat(scores, weights)).fingerprint
    assert sample_of(scores, weights=weights).fingerprint == long
    assert sample_of(scores, weights=[2, 2, 0, 2]).fingerprint != long


def test_a_row_that_stands_for_none_is_none() -> None:
    """Also where it has the lowest or the highest score of all."""
    scores, weights = [0.0, 0.2, 0.5, 0.5, 1.0], [0, 3, 1, 1, 0]
    long = sample_of(np.repeat(scores, weights))
    for context in (nullcontext(), asked_in_parts(0)):
        with context:
            found = sample_of(scores, weights=weights)
            assert (found.lowest, found.highest, found.fingerprint) == (0.2, 0.5, long.fingerprint)
            assert found.ordered.at_rank([1, 5]).tolist() == [0.5, 0.2]


def test_minus_zero_is_zero() -> None:
    names = [sample_of([zero, 0.5], others={"x": ["a", "b"]}) for zero in (0.0, -0.0)]
    assert names[0].distinct_scores.sketch == names[1].distinct_scores.sketch
    assert names[0].shared(names[1], "whole") == (2, 2)
    assert sample_of([0.0, -0.0, 0.5]).fingerprint == sample_of([0.0, 0.0, 0.5]).fingerprint
    with asked_in_parts(0):
        found = sample_of([-0.0, 0.0, -0.0, 0.5])
        assert found.fingerprint == sample_of([0.0, 0.0, 0.0, 0.5]).fingerprint
        assert found.ordered.at_rank([2]).tobytes() == np.array([0.0]).tobytes()


# --- two scores of one row ----------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(st.integers(0, 30), SCORES, min_size=2, max_size=25),
    st.dictionaries(st.integers(0, 30), SCORES, min_size=2, max_size=25),
    st.lists(st.tuples(st.none() | SCORES, st.none() | SCORES), max_size=3),
    st.booleans(),
)
def test_joined_rows_are_counted_one_by_one(
    old: dict[int, float], new: dict[int, float], cuts: list[tuple[float | None, float | None]], grouped: bool
) -> None:
    groups = [f"g{i % 4}" for i in new] if grouped else None
    before, after = sample_of([*old.values()], ids=[*old]), sample_of([*new.values()], ids=[*new], groups=groups)
    both = sorted({*old} & {*new})
    if not both:
        with pytest.raises(GateError, match="got no id in common"):
            paired(before, after, cuts)
        return
    found = paired(before, after, cuts)
    assert (found.rows, found.lacking) == (len(both), len(old) + len(new) - 2 * len(both))
    assert len(found.sizes) == (len({i % 4 for i in both}) if grouped else 1)
    for j, (then, now) in enumerate(cuts):
        was = [then is not None and old[i] >= then for i in both]
        is_ = [now is not None and new[i] >= now for i in both]
        pairs = list(zip(was, is_, strict=True))
        assert found.old[:, j].sum() == sum(was)
        assert found.new[:, j].sum() == sum(is_)
        assert found.new_only[:, j].sum() == sum(b and not a for a, b in pairs)
        assert found.old_only[:, j].sum() == sum(a and not b for a, b in pairs)
        assert found.stale[:, j].sum() == sum(then is not None and new[i] >= then for i in both)


# --- times --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(10**9, 10**9 + 6), min_size=3, max_size=30), st.data())
def test_rows_are_divided_at_a_moment(times: list[int], data: st.DataObject) -> None:
    older = data.draw(st.integers(0, len(times) - 1))
    sample = sample_of(np.linspace(0, 1, len(times)), times=times)
    cut = sorted(times)[older]
    before = [t for t in times if t < cut]
    parts = sample.divided_at_time(older)
    if not before:
        assert parts is None
        return
    assert parts is not None
    assert [sorted(t // 10**6 for t in column_of(part, "time")) for part in parts] == [
        sorted(before),
        sorted(t for t in times if t >= cut),
    ]
    assert [part.n for part in parts] == [len(before), len(times) - len(before)]


def test_the_highest_row_of_each_group_stands_for_it() -> None:
    sample = sample_of([0.1, 0.4, 0.3, 0.2], groups=["a", "a", "b", "b"]).highest_of_groups()
    assert (sample.n, sorted(column_of(sample))) == (2, [0.3, 0.4])


def test_a_sample_that_lost_rows_is_refused() -> None:
    sample = sample_of(np.random.default_rng(1).random(50))
    fewer = replace(sample, relation=f"SELECT * FROM {sample.rows} LIMIT 40")
    with pytest.raises(GateError, match="must stay as it is while gate reads it, got other rows; run again"):
        _ = fewer.ordered


def test_a_sample_has_its_length() -> None:
    sample: Sample = sample_of([0.1, 0.2, 0.3], weights=[1, 0, 5])
    assert (len(sample), sample.n, sample.lowest, sample.highest) == (6, 6, 0.1, 0.3)
