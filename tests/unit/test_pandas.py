"""Data frames of pandas, which the tests' environment does not have: its types, missing values and names."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.rows.engine import Duck, using
from gate.rows.formats import open_object
from gate.rows.table import Table

pd = pytest.importorskip("pandas", reason="pandas is not installed beside the tests")


@pytest.fixture(scope="module")
def engine() -> Iterator[Duck]:
    with using() as duck:
        yield duck


def column(engine: Duck, table: Table, name: str) -> list[Any]:
    """The values of a column in the order of the rows, as the engine's own text says them; None where missing."""
    found = next(each for each in table.columns if each.name == name)
    answer = engine.ask(f"SELECT CAST({found.sql} AS VARCHAR) AS v FROM {table.rows} ORDER BY nr")
    return list(np.ma.asarray(answer["v"]).tolist())


def floats(engine: Duck, table: Table, name: str) -> list[float | None]:
    return [None if text is None else float(text) + 0.0 for text in column(engine, table, name)]


MAYBE = st.none() | st.floats(allow_infinity=False)
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=examples(50), deadline=None)
@given(values=st.lists(MAYBE, max_size=8), names=st.lists(TEXTS, min_size=8, max_size=8))
def test_missing_values_are_none(values: list[float | None], names: list[str | None], engine: Duck) -> None:
    texts = names[: len(values)]
    missing = [None if each is None or math.isnan(each) else each + 0.0 for each in values]
    frames = (
        pd.DataFrame({"score": pd.Series(values, dtype=float), "name": pd.Series(texts, dtype=object)}),
        pd.DataFrame({"score": pd.array(missing, dtype="Float64"), "name": pd.array(texts, dtype="string")}),
    )
    for frame in frames:
        table = open_object(engine, frame, "it", ["score", "name"])
        assert floats(engine, table, "score") == missing
        assert column(engine, table, "name") == texts


@pytest.mark.parametrize(
    "data",
    [
        pd.Series([0.5, 0.25], name="x"),
        pd.DataFrame({"score": [0.5, 0.25]}, index=[7, 7]),
        pd.DataFrame(
            {"score": np.array([0.5, 0.25], dtype=">f8"), "odd": [1j, 2j], "period": pd.period_range("2020", periods=2)}
        ),
        pd.DataFrame({"Score": [0.25, 0.5], "score": [0.5, 0.25]}),
    ],
    ids=["series", "index", "odd", "case"],
)
def test_scores_of_frames(data: Any, engine: Duck) -> None:
    assert floats(engine, open_object(engine, data, "it", ["score"]), "score") == [0.5, 0.25]


def test_decimals_beside_nan_keep_their_digits(engine: Duck) -> None:
    data = pd.DataFrame({"score": pd.Series([Decimal("0.1"), Decimal("0.30000000000000004"), None], dtype=object)})
    table = open_object(engine, data, "it", ["score"])
    assert column(engine, table, "score") == ["0.1", "0.30000000000000004", None]
    assert table.columns[0].kind == "decimal"


def test_a_name_that_comes_twice_is_refused(engine: Duck) -> None:
    data = pd.DataFrame([[1, 2]], columns=["score", "score"])
    with pytest.raises(GateError, match=r"^it: must have one column 'score', got 2"):
        open_object(engine, data, "it", ["score"])


def test_types(engine: Duck) -> None:
    """What DuckDB has no type for is left without values, and the other columns are read."""
    day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    frame = pd.DataFrame(
        {
            "cat": pd.Categorical([2**53 + 1, None]),
            "text": ["a", None],
            "time": pd.to_datetime([day, None]),
            "date": pd.Series([day.date(), None], dtype=object),
            "whole": pd.array([2**53 + 1, None], dtype="Int64"),
            "span": pd.to_timedelta([1, 2], unit="s"),
            "sparse": pd.arrays.SparseArray([0.0, 1.0]),
        }
    )
    table = open_object(engine, frame, "it", [])
    assert {each.name: (each.kind, column(engine, table, each.name)) for each in table.columns} == {
        "cat": ("integer", ["9007199254740993", None]),
        "text": ("text", ["a", None]),
        "time": ("time", ["2026-01-02 00:00:00+00", None]),
        "date": ("time", ["2026-01-02 00:00:00", None]),
        "whole": ("integer", ["9007199254740993", None]),
        "span": ("other", [None, None]),
        "sparse": ("other", [None, None]),
    }
