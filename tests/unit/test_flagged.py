"""The list of false positives: every flagged row once, highest first, with the rarest anchor that it reaches."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import gate
from gate.errors import GateError
from gate.flagged import list_flagged, render, require_ending
from gate.policy import Columns
from gate.rows.reading import from_object


@given(st.integers(50, 3000), st.integers(2, 400), st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(max_examples=examples(30), deadline=None)
def test_the_list_has_the_rows_that_the_thresholds_flag(n: int, held: int, seed: int, digits: int) -> None:
    """At each anchor as many as are counted there, however tied the scores are."""
    rng = np.random.default_rng(seed)
    calibrator = gate.fit(np.round(rng.beta(0.5, 8, n), digits))
    values = np.round(rng.beta(0.5, 8, held), digits)
    names = [f"row {i}" for i in rng.permutation(held)]
    sample = from_object(
        pa.table({"score": values, "id": names, "part": rng.choice(["de", "en"], held)}),
        "holdout",
        Columns(id="id", segment="part"),
        (0.0, 1.0),
    )
    table = list_flagged(sample, calibrator)
    scores, anchors = table["score"], table["anchor"]
    assert list(table) == ["id", "score", "calibrated", "anchor", "segment"]
    assert np.all(np.diff(scores) <= 0)
    known = dict(zip(names, values.tolist(), strict=True))
    assert [known[name] for name in table["id"]] == scores.tolist()
    assert len({*table["id"]}) == len(scores)
    for fpr, threshold in calibrator.thresholds.items():
        counted = 0 if threshold is None else int(np.sum(values >= threshold))
        deep_enough = int(np.sum(anchors <= float(fpr)))
        assert deep_enough >= counted  # a rarer anchor may share the threshold
        if threshold is not None:
            assert np.all(scores[anchors <= float(fpr)] >= threshold)
    assert np.array_equal(table["calibrated"], calibrator.predict(scores) if len(scores) else scores)


def test_a_sample_without_ids_lists_scores_alone() -> None:
    rng = np.random.default_rng(1)
    calibrator = gate.fit(rng.beta(0.5, 8, 2000))
    sample = from_object(rng.beta(0.5, 8, 500), "holdout", Columns(), (0.0, 1.0))
    assert list(list_flagged(sample, calibrator)) == ["score", "calibrated", "anchor"]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".CSV"])
@pytest.mark.parametrize("flagged", [0, 3])
def test_either_file_reads_back_as_the_same_table(ending: str, flagged: int) -> None:
    """Also where nothing is flagged, and whatever an id holds."""
    table: dict[str, Any] = {
        "id": ['a,"b"', "=1+1", "line\nbreak"][:flagged],
        "score": np.array([0.9, 0.8, 0.1 + 0.2])[:flagged],
        "anchor": np.array([1e-6, 1e-3, 0.1])[:flagged],
    }
    data = render(table, ending)
    if ending == ".parquet":
        read = {name: column.to_pylist() for name, column in zip(table, pq.read_table(io.BytesIO(data)), strict=True)}
    else:
        rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        read = {"id": [row["id"] for row in rows]}
        read |= {name: [float(row[name]) for row in rows] for name in ("score", "anchor")}
    assert read == {"id": table["id"], "score": table["score"].tolist(), "anchor": table["anchor"].tolist()}


def test_the_ending_must_name_a_format() -> None:
    with pytest.raises(GateError, match=r"--flagged: must end in .csv or .parquet, got 'flagged.txt'"):
        require_ending("flagged.txt")
    require_ending("v1.csv")
