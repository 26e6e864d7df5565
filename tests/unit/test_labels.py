"""No label silently counts as malicious: each is benign, malicious, or refused, and shown with its rows."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import column_of

import gate
from gate.checks import parse_policy
from gate.errors import GateError
from gate.inspection.answers import state_of
from gate.inspection.differences import differences
from gate.policy import Columns
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample
from gate.verification import release as repetition
from gate.verification.release import verify
from gate.verification.result import Data

DOMAIN = (0.0, 1.0)


def taken(labels: Any, *benign: str, kind: Any = "benign") -> Sample:
    """The scores of labelled rows: 0.00, 0.01, ..., so that each shows its row."""
    array = labels if isinstance(labels, pa.Array) else pa.array(labels)
    table = pa.table({"score": np.arange(len(array)) / max(100, len(array)), "label": array})
    return from_object(table, "rows", Columns(label="label", benign_label=benign or ("0",)), DOMAIN, kind)


def refusal(labels: Any, *benign: str) -> str:
    with pytest.raises(GateError) as caught:
        taken(labels, *benign)
    return str(caught.value).removeprefix("rows: column 'label' ")


def rewritten(text: str, draw: random.Random) -> str:
    """The same label in another way."""
    ways = [
        text.upper(),
        text.title(),
        f" {text}",
        f"{text}\t",
        f"{text}\u200b",
        f"\u00a0{text}",
        f"{text} ",
        f"{text}\0",
    ]
    if text.lstrip("-").isdigit():
        ways += [
            f"{text}.0",
            f"{text}.",
            f"{text}e0",
            f"{text}e-{'0' * 20}",
            f"{text},00",
            f"{int(text):+}",
            f"{int(text):03d}",
        ]
        ways += {"0": ["false", "False", "no", "-0", "０"], "1": ["true", "TRUE", "yes", "１"]}.get(text, [])
    return draw.choice([way for way in ways if way != text])


@settings(max_examples=examples(200), deadline=None)
@given(
    benign=st.sampled_from(["0", "1", "-1", "17", "benign", "ok", "no attack"]),
    rows=st.integers(2, 60),
    at=st.integers(0, 59),
    seed=st.integers(0, 10**6),
)
def test_a_benign_label_written_otherwise_is_refused_or_listed(benign: str, rows: int, at: int, seed: int) -> None:
    other = rewritten(benign, random.Random(seed))
    at %= rows
    labels = [benign] * rows + ["attack"]
    labels[at] = other
    assert refusal(labels, benign).startswith(f"must write a label in one way, got {other!r} in row {at + 1}, which ")
    if not other.isprintable():  # a policy holds no such text
        return
    both = taken(labels, benign, other)
    assert len(both) == rows
    assert both.labels is not None
    assert {(each.label, each.rows, each.taken_for) for each in both.labels.first} >= {("attack", 1, "malicious")}
    assert sum(each.rows for each in both.labels.first if each.taken_for == "benign") == rows


@pytest.mark.parametrize(
    "other", ["0.0", "00", "0 ", "+0", "0e0", "false", "False", "FALSE", "no", "-0", ".0", f"0e{'9' * 20}"]
)
def test_what_zero_is_written_as(other: str) -> None:
    said = refusal(["0", "1", other], "0")
    assert said == (
        f"must write a label in one way, got {other!r} in row 3, which differs from the benign '0' only in case, "
        "blanks or number format; write them alike, or list both in data.benign_label"
    )
    assert len(taken(["0", "1", other], "0", other)) == 2


@pytest.mark.parametrize(
    "missing", ["", "NA", "na", "N/A", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", " ", "?"]
)
def test_a_missing_label_is_refused_however_it_is_spelt(missing: str) -> None:
    said = refusal(["0", "1", missing, missing, "0"], "0")
    assert said.startswith(f"must label every row, got {repr(missing) if missing else 'none'} in row 3 and 1 more; ")
    if missing.strip():
        assert len(taken(["0", "1", missing, "0"], "0", missing)) == 3  # `None` may well be the word for no attack


@pytest.mark.parametrize(
    ("labels", "benign", "n"),
    [
        (["0", "10", "0x", "-", "01"], "1", None),
        (["0", "0", "00x", "10", "o", "O", "0/1"], "0", 2),
        (["a", "a", "b", "c", "d", "e", "f", "n", "t", "y"], "a", 2),
        ([0.0, 0.0, -0.0, 1.0, 0.5], "0", 3),
        ([0.1, 0.1, 0.2], "0.1", 2),
        ([True, False, False], "0", 2),
        ([Decimal("0.00"), Decimal("0.00"), Decimal("1.00")], "0", 2),
    ],
)
def test_labels_that_mean_something_else_are_no_doubt(labels: list[Any], benign: str, n: int | None) -> None:
    if n is None:
        assert "got '-'" in refusal(labels, "0") or "got '01'" in refusal(labels, benign)
    else:
        assert len(taken(labels, benign)) == n


@pytest.mark.parametrize(
    ("labels", "benign"), [([0, 1, 0], "false"), ([False, True, False], "no"), ([0.0, 1.0], "False"), ([1, 2], "true")]
)
def test_numbers_and_truths_are_not_guessed_at(labels: list[Any], benign: str) -> None:
    assert re.match(r"must write a label in one way, got \S+ in row 1( and 1 more)?, which", refusal(labels, benign))


@settings(max_examples=examples(100), deadline=None)
@given(
    n=st.integers(2**53, 2**64 - 3),
    off=st.sampled_from([-2, -1, 1, 2]),
    kind=st.sampled_from([pa.uint64(), pa.decimal128(38, 0), pa.string(), pa.int64()]),
    listed=st.booleans(),
)
def test_large_whole_numbers_are_compared_exactly(n: int, off: int, kind: pa.DataType, listed: bool) -> None:
    n = n // 4 + 2**53 if pa.types.is_signed_integer(kind) else n
    numbers = [n, n + off, n, n + off, n]
    if pa.types.is_string(kind):
        labels = pa.array(list(map(str, numbers)))
    elif pa.types.is_decimal(kind):
        labels = pa.array(list(map(Decimal, numbers)), kind)
    else:
        labels = pa.array(numbers, kind)
    assert len(taken(labels, *((str(n), "0") if listed else (str(n),)))) == 3
    assert len(taken(labels, *((str(n), "0") if listed else (str(n),)), kind="malicious")) == 2


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".feather"])
def test_large_whole_numbers_are_compared_exactly_in_files(suffix: str, tmp_path: Path) -> None:
    n = 2**53 + 1
    rows = [{"score": 0.25, "label": n}, {"score": 0.5, "label": n - 1}, {"score": 0.75, "label": n}]
    path = tmp_path / f"s{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".csv":
        pa.csv.write_csv(pa.Table.from_pylist(rows), path)
    elif suffix == ".feather":
        pa.feather.write_feather(pa.Table.from_pylist(rows), str(path))
    else:
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    assert column_of(read([str(path)], Columns(label="label", benign_label=str(n)), DOMAIN)) == [0.25, 0.75]


def test_floats_that_cannot_tell_whole_numbers_apart_are_refused() -> None:
    assert "must hold labels that can be told apart, got 9007199254740992.0 as a float in row 2" in refusal(
        [0.0, 2.0**53], "0"
    )


def csv_of(path: Path, labels: list[str], separator: str = ",") -> Path:
    rows = [f"{i / 1000}{separator}{label}" for i, label in enumerate(labels)]
    path.write_text("\n".join([f"score{separator}label", *rows, ""]), encoding="utf-8")
    return path


WAYS = ["0", "0.0", "00", "-0", "0e5", " 0", "0 ", ".0", "+0", "0.", "000.000"]


@settings(max_examples=examples(40), deadline=None)
@given(
    ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=3, unique=True),
    others=st.lists(st.sampled_from(["1", "1.0", "2", "1e3", str(2**64 + 1)]), max_size=4),
    listed=st.booleans(),
    suffix=st.sampled_from([".csv", ".tsv"]),
    seed=st.integers(0, 99),
)
def test_numbers_in_text_are_written_in_one_way(
    tmp_path_factory: pytest.TempPathFactory, ways: list[str], others: list[str], listed: bool, suffix: str, seed: int
) -> None:
    """Where all labels are numbers, each is its number, but no two spellings of the benign one are silently equal."""
    labels = [*ways, *ways, *others]
    np.random.default_rng(seed).shuffle(labels)
    path = csv_of(tmp_path_factory.mktemp("ways") / f"s{suffix}", labels, "\t" if suffix == ".tsv" else ",")
    columns = Columns(label="label", benign_label=tuple(ways) if listed else ("0",))
    if len(ways) == 1 or listed:
        expected = [i / 1000 for i, label in enumerate(labels) if label in ways]
        found = read([str(path)], columns, DOMAIN)
        assert column_of(found) == expected
        assert found.labels is not None
        assert {each.label for each in found.labels.first if each.taken_for == "benign"} == {*ways}
    else:
        with pytest.raises(GateError, match=r"must write a label in one way, got .* only in case, blanks or number"):
            read([str(path)], columns, DOMAIN)


def test_truths_in_text_are_written_in_one_way(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "s.csv", ["False", "True", "False", "False"])
    assert len(read([str(path)], Columns(label="label"), DOMAIN)) == 3
    path = csv_of(tmp_path / "s.csv", ["False", "True", "false", "False"])
    with pytest.raises(GateError, match=r"got 'false' in row 3, which differs from the benign 'False' only in case"):
        read([str(path)], Columns(label="label"), DOMAIN)


def test_whole_numbers_of_any_size_in_text_are_told_apart(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "s.csv", ["0", "0", str(2**64), str(2**64 + 1)])
    assert len(read([str(path)], Columns(label="label"), DOMAIN)) == 2
    big = Columns(label="label", benign_label=("0", str(2**64 + 1)))
    assert column_of(read([str(path)], big, DOMAIN)) == [0.0, 0.001, 0.003]


def test_exponents_of_any_length_are_numbers(tmp_path: Path) -> None:
    huge, nothing, path = f"1e{'9' * 19}", f"-0.5e-{'9' * 30}", tmp_path / "s.csv"
    columns = Columns(label="label")
    assert column_of(read([str(csv_of(path, ["0", huge, nothing, "0"]))], columns, DOMAIN)) == [0.0, 0.003]
    both = Columns(label="label", benign_label=(huge,))
    assert column_of(read([str(csv_of(path, [huge, "0", huge]))], both, DOMAIN)) == [0.0, 0.002]
    with pytest.raises(GateError, match="must write a label in one way, got '0e9999999999999999999' in row 2,"):
        read([str(csv_of(path, ["0", f"0e{'9' * 19}", "1"]))], columns, DOMAIN)


@settings(max_examples=examples(40), deadline=None)
@given(
    labels=st.lists(st.integers(0, 40), min_size=2, max_size=300),
    parts=st.integers(1, 4),
    benign=st.sets(st.integers(0, 12), min_size=1, max_size=12),
)
def test_every_label_is_counted_with_what_it_was_taken_for(
    labels: list[int], parts: int, benign: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first ten: benign ones, then those of most rows; and how many there are."""
    folder = tmp_path_factory.mktemp("labels")
    for i in range(parts):
        part = labels[i::parts]
        table = pa.table({"score": np.arange(i, i + len(part)) / 1000, "label": pa.array(part, pa.int64())})
        pa.parquet.write_table(table, folder / f"{i}.parquet")
    counts = Counter(labels)
    columns = Columns(label="label", benign_label=tuple(map(str, sorted(benign))))
    if sum(counts[label] for label in benign) < 2:
        return
    found = read([str(folder)], columns, DOMAIN)
    expected = sorted(counts.items(), key=lambda pair: (pair[0] not in benign, -pair[1], str(pair[0])))
    assert found.labels is not None
    assert found.labels.distinct == len(counts)
    assert [(each.label, each.rows, each.taken_for) for each in found.labels.first] == [
        (str(label), rows, "benign" if label in benign else "malicious") for label, rows in expected[:10]
    ]
    more = len(counts) - 10
    assert f"{len(counts)} label" in found.summary
    assert (f" and {more} more)" in found.summary) == (more > 0)


def test_without_a_label_column_there_are_no_labels(tmp_path: Path) -> None:
    assert from_object(np.array([0.1, 0.2]), "fit", Columns(), DOMAIN).labels is None


# --- a column of labels that nobody read --------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".feather", ".npz", "table"])
def test_every_column_that_is_not_read_is_named(suffix: str, tmp_path: Path) -> None:
    """Whatever its name: a label may be called anything."""
    table = pa.table({"score": [0.1, 0.2, 0.3], "Is Attack": [0, 1, 0], "language": ["de", "en", "fr"]})
    path = tmp_path / f"s{suffix}"
    if suffix == "table":
        found = from_object(table, "fit", Columns(), DOMAIN)
    else:
        if suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        elif suffix == ".csv":
            pa.csv.write_csv(table, path)
        elif suffix == ".feather":
            pa.feather.write_feather(table, str(path))
        elif suffix == ".npz":
            arrays: dict[str, Any] = {
                name: np.asarray(column) for name, column in zip(table.column_names, table, strict=True)
            }
            arrays["language"] = arrays["language"].astype(str)
            np.savez(path, **arrays)
        else:
            pa.parquet.write_table(table, path)
        found = read([str(path)], Columns(), DOMAIN)
    assert found.unread == ("Is Attack", "language")
    assert "; not read: 'Is Attack', 'language'" in found.summary


def test_columns_that_are_read_are_not_named(tmp_path: Path) -> None:
    table = pa.table({"score": [0.1, 0.2], "label": [0, 0], "class": ["a", "b"]})
    assert from_object(table, "fit", Columns(label="label", segment="class"), DOMAIN).unread == ()
    assert from_object(table, "fit", Columns(segment="class"), DOMAIN).unread == ("label",)
    (tmp_path / "label=1").mkdir()
    pa.parquet.write_table(table.select(["score"]), tmp_path / "label=1" / "a.parquet")
    assert read([str(tmp_path)], Columns(), DOMAIN).unread == ("label",)


POLICY = """\
version: 1
name: small
targets:
  - {fpr: 10%, min_n: 100, max_relative_error: 0.9}
"""


def released(directory: Path, seed: int, *overrides: str) -> tuple[Any, Path]:
    """A release whose samples carry a label column, written with its data beside it."""
    rng = np.random.default_rng(seed)
    paths = []
    for name in ("fit", "holdout"):
        rows = int(rng.integers(2000, 4000))
        labels = rng.choice(["0", "1", "x"], rows, p=[0.8, 0.1, 0.1])
        paths.append(directory / f"{name}.parquet")
        pa.parquet.write_table(pa.table({"score": rng.random(rows), "label": labels}), paths[-1])
    document = parse_policy(POLICY, "p.yaml", overrides=overrides)
    made = gate.run(str(paths[0]), str(paths[1]), release="r", policy=document)
    made.write(directory / "release")
    return made, directory / "release"


def test_the_record_names_a_column_that_was_not_used(tmp_path: Path) -> None:
    made, directory = released(tmp_path, 1)
    assert (made.record.fit.unread, made.record.holdout.unread) == (("label",), ("label",))
    assert state_of(verify(str(directory)).answers) == "holds"


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    return [at] if items is None else [leaf for key, part in items for leaf in leaves(part, (*at, key))]


@pytest.mark.parametrize("overrides", [[], ["data.label=label"]])
def test_no_value_of_files_and_labels_can_be_changed_unnoticed(overrides: list[str], tmp_path: Path) -> None:
    made, directory = released(tmp_path, 2, *overrides)
    data = Data(fit=(str(tmp_path / "fit.parquet"),), holdout=(str(tmp_path / "holdout.parquet"),))
    assert state_of(verify(str(directory), data).answers) == "holds"
    document = parse_policy(POLICY, "p.yaml", overrides=overrides)
    samples = repetition._read(made.record, document.policy, data)
    again = repetition._repeat(made.record, document, samples, data).model_dump(mode="json")
    original = json.loads((directory / "verdict.json").read_text())
    changed = 0
    for sample in ("fit", "holdout"):
        for key in ("files", "labels", "unread", "sources"):
            for path in leaves(original[sample][key], (sample, key)):
                content = json.loads(json.dumps(original))
                holder = content
                for step in path[:-1]:
                    holder = holder[step]
                value = holder[path[-1]]
                others = {"benign": "malicious", "malicious": "benign"}
                holder[path[-1]] = value + 1 if isinstance(value, int) else others.get(value, f"{value}x")
                if value is None or path[-3:] == ("sources", 0, "path"):
                    continue  # where the file stood is free text
                changed += 1
                record = type(made.record).model_validate(content)
                assert next(differences("", record.model_dump(mode="json"), again), None), path
    assert changed >= 14


def test_the_files_are_listed_up_to_a_hundred_with_a_digest_of_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for name, count in (("fit", 130), ("holdout", 100)):
        (tmp_path / name).mkdir()
        for i in range(count):
            rows = int(rng.integers(20, 60))
            pa.parquet.write_table(pa.table({"score": rng.random(rows)}), tmp_path / name / f"{i:03d}.parquet")
        pa.parquet.write_table(pa.table({"score": pa.array([], pa.float64())}), tmp_path / name / "none.parquet")
    made = gate.run(str(tmp_path / "fit"), str(tmp_path / "holdout"), release="r", policy=parse_policy(POLICY, "p"))
    files = made.record.fit.files
    assert files is not None
    assert (files.count, len(files.first)) == (130, 100)
    assert made.record.holdout.files is not None
    assert made.record.holdout.files.count == 100
    assert files.first[7].path == str(tmp_path / "fit" / "007.parquet")
    made.write(tmp_path / "release")
    data = Data((str(tmp_path / "fit"),), (str(tmp_path / "holdout"),))
    assert state_of(verify(str(tmp_path / "release"), data).answers) == "holds"
    last = sorted((tmp_path / "fit").iterdir())[111]  # beyond the hundredth
    rows = pa.parquet.read_metadata(last).num_rows
    pa.parquet.write_table(pa.table({"score": rng.random(rows)}), last)
    assert state_of(verify(str(tmp_path / "release"), data).answers) == "does not hold"
