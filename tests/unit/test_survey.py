"""`gate init --scores` says what each column is: ids that repeat are ids, what looks like labels is never guessed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.starter.survey import look
from gate.starter.tailor import tailor

SUFFIXES = [".csv", ".parquet", ".jsonl", ".feather"]
ID_NAMES = ["id", "request_id", "uuid", "sha256", "rowId", "event_key"]
FEW = settings(max_examples=examples(12), deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def write(place: Path, columns: dict[str, Any]) -> str:
    """One table in the format that its name says."""
    if place.suffix == ".csv":
        rows = zip(*(list(column) for column in columns.values()), strict=True)
        place.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    elif place.suffix == ".jsonl":
        lists = {
            name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in columns.items()
        }
        lines = [json.dumps(dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True)]
        place.write_text("".join(f"{line}\n" for line in lines))
    elif place.suffix == ".feather":
        pyarrow.feather.write_feather(pa.table(columns), str(place))
    else:
        pq.write_table(pa.table(columns), place)
    return str(place)


def draw_ids(rng: np.random.Generator, n: int) -> Any:
    """So many different ids, as text or as whole numbers, that do not number the rows."""
    numbers = rng.choice(10**9, n, replace=False) + 10
    return numbers if rng.random() < 0.5 else np.array([f"r-{number:x}" for number in numbers])


def draw_scores(rng: np.random.Generator, n: int, shift: Any = 0.0) -> Any:
    return 1 / (1 + np.exp(-rng.normal(-3.0 + shift, 1.4, n)))


# --- ids ----------------------------------------------------------------------------------------------------


@FEW
@given(SEEDS, st.sampled_from(SUFFIXES), st.sampled_from(ID_NAMES), st.sampled_from([0.05, 0.2, 0.5, 1.0]))
def test_ids_that_repeat_are_ids(tmp_path_factory: Any, seed: int, suffix: str, name: str, share: float) -> None:
    """`cat a a > b`, and files in which some of the rows are there twice."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 300))
    rows = np.concatenate([np.arange(n), np.arange(n)[: max(1, int(share * n))]])
    ids, scores = draw_ids(rng, n)[rows], draw_scores(rng, n)[rows]
    path = write(tmp_path_factory.mktemp("rows") / f"scores{suffix}", {name: ids, "score": scores})
    found = look([path])
    assert (found.columns.id, found.repeated) == (name, len(rows) - n)
    assert found.fit_n + found.holdout_n == n
    assert any(f"'{name}' repeats in {len(rows) - n} row" in line for line in tailor(found).sentences)


@FEW
@given(SEEDS, st.sampled_from(SUFFIXES), st.sampled_from(ID_NAMES), st.floats(0.05, 1.0))
def test_ids_that_files_share_are_ids(tmp_path_factory: Any, seed: int, suffix: str, name: str, share: float) -> None:
    """Rows held out that are fit rows are seen by their ids, so the ids stay."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 300))
    leaked = max(1, int(share * n))
    ids, scores = draw_ids(rng, 2 * n), draw_scores(rng, 2 * n)
    held = np.concatenate([np.arange(leaked), np.arange(n, 2 * n - leaked)])
    place = tmp_path_factory.mktemp("rows")
    paths = [
        write(place / f"{file}{suffix}", {name: ids[rows], "score": scores[rows]})
        for file, rows in (("fit", np.arange(n)), ("holdout", held))
    ]
    found = look(paths)
    assert (found.columns.id, found.shared, found.repeated) == (name, leaked, 0)
    assert any(line.startswith(f"Shared: {leaked} held-out row") for line in tailor(found).sentences)


@FEW
@given(SEEDS, st.sampled_from(SUFFIXES), st.sampled_from([0, 1]), st.integers(1, 2))
def test_only_numbers_of_rows_are_no_ids(tmp_path_factory: Any, seed: int, suffix: str, first: int, files: int) -> None:
    """They name rows of each file alike; a number that is out of its place, or there twice, is a name."""
    rng = np.random.default_rng(seed)
    n, place = int(rng.integers(60, 300)), tmp_path_factory.mktemp("rows")
    scores = [draw_scores(rng, n) for _ in range(files)]

    def look_at(numbers: Any, times: int = 1) -> str | None:
        columns = [{"id": np.tile(numbers, times), "score": np.tile(each, times)} for each in scores]
        found = look([write(place / f"part{i}{suffix}", each) for i, each in enumerate(columns)])
        assert (found.columns.id is None) == any("numbers the rows of each file" in why for why in found.dropped)
        return found.columns.id

    numbers = np.arange(first, first + n)
    assert look_at(numbers) is None
    assert look_at(numbers, 2) == "id"
    assert look_at(numbers + 2) == "id"
    assert look_at(numbers[::-1]) == "id"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_name_of_rows_with_other_scores_is_no_id(tmp_path: Path, suffix: str) -> None:
    """A user has many rows: `gate run` would refuse this column as ids."""
    rng = np.random.default_rng(5)
    users = np.array([f"u{i}" for i in rng.integers(0, 100, 500)])
    found = look([write(tmp_path / f"scores{suffix}", {"user_id": users, "score": draw_scores(rng, 500)})])
    assert found.columns.id is None
    assert [why for why in found.dropped if "'user_id' names rows with different scores" in why]


# --- labels -------------------------------------------------------------------------------------------------


@FEW
@given(
    SEEDS,
    st.sampled_from(SUFFIXES),
    st.sampled_from(["is_injection", "jailbreak", "toxic", "flag", "category"]),
    st.sampled_from([(0, 1), ("a", "b"), ("en", "x"), (False, True), (7, 9)]),
)
def test_what_looks_like_labels_is_said_and_not_guessed(
    tmp_path_factory: Any, seed: int, suffix: str, name: str, words: tuple[Any, Any]
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(400, 900))
    malicious = rng.random(n) < 0.1
    labels = np.where(malicious, words[1], words[0])
    languages = rng.choice(["de", "en", "fr"], n)
    columns = {"language": languages, name: labels, "score": draw_scores(rng, n, 9.0 * malicious)}
    found = look([write(tmp_path_factory.mktemp("rows") / f"scores{suffix}", columns)])
    assert found.columns.label is None
    assert found.suspect is not None
    assert found.suspect.column == name
    assert found.suspect.value.casefold() == str(words[1]).casefold()
    written = tailor(found)
    assert any(f"column '{name}' looks like labels" in line for line in written.sentences)
    assert f"# '{name}' looks like labels: name it here" in written.document.text
    assert written.document.policy.data.label is None


@FEW
@given(SEEDS, st.sampled_from(SUFFIXES))
def test_a_column_that_says_nothing_of_the_scores_is_no_label(tmp_path_factory: Any, seed: int, suffix: str) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(400, 900))
    columns = {"language": rng.choice(["de", "en"], n, p=[0.1, 0.9]), "score": draw_scores(rng, n)}
    found = look([write(tmp_path_factory.mktemp("rows") / f"scores{suffix}", columns)])
    assert (found.columns.label, found.suspect) == (None, None)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "words", "benign"),
    [
        ("label", (0, 1), ("0",)),
        ("isMalicious", (False, True), ("false",)),
        ("benign", (1, 0), ("1",)),
        ("kind", ("ham", "spam"), ("ham",)),
        ("verdict", ("Clean", "attack"), ("Clean",)),
        ("target", ("x", "y"), ("x",)),
    ],
)
def test_labels_are_known_by_name_or_words(
    tmp_path: Path, suffix: str, name: str, words: tuple[Any, Any], benign: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(2)
    malicious = rng.random(400) < 0.1
    columns = {name: np.where(malicious, words[1], words[0]), "score": draw_scores(rng, 400, 4.0 * malicious)}
    found = look([write(tmp_path / f"scores{suffix}", columns)])
    assert found.columns.label == name
    assert tuple(each.casefold() for each in found.columns.benign_label) == tuple(each.casefold() for each in benign)
    assert found.malicious_n == malicious.sum()
    assert found.suspect is None


# --- odd columns --------------------------------------------------------------------------------------------

ODD: dict[str, tuple[pa.DataType, Any]] = {
    "a map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "a list": (pa.list_(pa.float64()), [0.5, 0.25]),
    "a struct": (pa.struct([("x", pa.float64()), ("y", pa.string())]), {"x": 0.5, "y": "b"}),
    "lists of structs": (pa.list_(pa.struct([("x", pa.int8())])), [{"x": 1}]),
    "an hour": (pa.time64("us"), 5),
    "bytes": (pa.binary(), b"\xff\xfe"),
}


@FEW
@given(
    SEEDS, st.lists(st.sampled_from(sorted(ODD)), min_size=1, unique=True), st.sampled_from([".parquet", ".feather"])
)
def test_odd_columns_are_named_and_not_read(tmp_path_factory: Any, seed: int, names: list[str], suffix: str) -> None:
    rng = random.Random(seed)
    columns: dict[str, Any] = {"score": [rng.random() for _ in range(60)]}
    for name in names:
        type_, value = ODD[name]
        columns[name] = pa.array([rng.choice([value, None]) for _ in range(59)] + [value], type_)
    found = look([write(tmp_path_factory.mktemp("rows") / f"scores{suffix}", columns)])
    assert (found.columns.score, sorted(found.odd)) == ("score", sorted(names))
    assert any(line.startswith("Not read: ") for line in tailor(found).sentences)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@FEW
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), NESTED), min_size=20, max_size=40), SEEDS)
def test_nested_json_never_stops_it(tmp_path_factory: Any, rows: list[dict[str, Any]], seed: int) -> None:
    rng = random.Random(seed)
    place = tmp_path_factory.mktemp("rows") / "scores.jsonl"
    place.write_text("".join(json.dumps({"score": rng.random(), **row}) + "\n" for row in rows))
    found = look([str(place)])
    assert found.columns.score == "score"
    for name in "abcd":
        if any(isinstance(row.get(name), dict | list) for row in rows):
            assert name in found.odd


# --- what the scores are like -------------------------------------------------------------------------------


@FEW
@given(SEEDS, st.sampled_from(SUFFIXES), st.sampled_from([1, 2, 4, 6, 17]))
def test_facts_are_those_of_plain_numpy(tmp_path_factory: Any, seed: int, suffix: str, digits: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 400))
    labels = rng.permutation((np.arange(n) < n // 4).astype(np.int64))
    scores = np.round(draw_scores(rng, n, 3.0 * labels), digits) if digits < 17 else draw_scores(rng, n, 3.0 * labels)
    found = look([write(tmp_path_factory.mktemp("rows") / f"scores{suffix}", {"score": scores, "label": labels})])
    benign, malicious = scores[labels == 0], scores[labels == 1]
    _, ties = np.unique(benign, return_counts=True)
    pairs = (malicious[:, None] > benign).mean() + (malicious[:, None] == benign).mean() / 2
    facts = found.facts
    assert (facts.low, facts.high, facts.rows) == (scores.min(), scores.max(), len(benign))
    assert (facts.distinct, facts.largest_tie) == (len(ties), ties.max())
    assert facts.concordance == pytest.approx(pairs, abs=1e-12)
    exact = [d for d in range(7) if np.array_equal(np.round(scores, d), scores)]
    assert facts.digits == (exact[0] if exact else None)
    assert (found.fit_n + found.holdout_n, found.malicious_n) == (len(benign), len(malicious))
    for rate in (0.5, 0.1, 0.01, 0.001):
        shares = [float((benign >= cut).mean()) for cut in benign]
        assert found.tail(rate) == max([share for share in shares if share <= rate], default=0.0)


# --- labels that are missing --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize(
    "labels",
    [
        pa.array([0, 1, None] * 20),
        pa.array(["ok", "", "x"] * 20),
        pa.array([None, "x", "y"] * 20),
        pa.array([False, None, True] * 20),
        pa.array([0, 1, None] * 20, pa.decimal128(5, 2)),
        pa.array([0.0, 1.0, None] * 20),
    ],
    ids=["integers", "empty", "words", "booleans", "decimals", "floats"],
)
def test_a_row_without_a_label_is_refused_in_one_line(tmp_path: Path, suffix: str, labels: Any) -> None:
    path = write(tmp_path / f"scores{suffix}", {"score": np.arange(60) / 60, "label": labels})
    with pytest.raises(GateError, match=r"column 'label' must label every row, got none in row \d and 19 more"):
        look([path])


def test_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    """pandas writes the numbers of rows into such a column."""
    path = write(tmp_path / "scores.csv", {"": [f"r{i}" for i in range(60)], "score": np.arange(60) / 60})
    assert look([path]).columns.id is None
