"""The exports give what the calibrator gives, to the last bit, and the same bytes every time."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from calibrators import DOMAINS, bits, drawn, exported, predicted, probes, reached
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.export import Exported, to_onnx, to_sql
from gate.calibration.fit import fit
from gate.errors import GateError
from gate.policy import Calibration

NOT_FINITE = np.array([np.nan, -np.nan, np.inf, -np.inf])


def served(content: bytes, level: Any = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# --- ONNX -----------------------------------------------------------------------------------------------------


@pytest.mark.each_run(1)
@pytest.mark.parametrize("domain", DOMAINS[:4])
def test_the_graph_is_the_pipeline_on_two_million_points(domain: tuple[float, float]) -> None:
    """In all: half a million and the neighbours of 10,000 knots for each of four calibrators, none above 200 KB."""
    (low, high), rng = domain, np.random.default_rng(int(domain[1]) % 1000)
    calibrator = fit(low + (high - low) * rng.beta(0.5, 8, 60_000), Calibration(domain=domain))
    assert len(calibrator.knots[0]) > 9_900
    content = to_onnx(exported(calibrator))
    assert len(content) < 200_000
    points = probes(calibrator, rng, 500_000)
    assert len(points) >= 500_000 + 3 * len(calibrator.knots[0])
    (found,) = served(content).run(["calibrated"], {"score": points})
    assert found.dtype == np.float64
    assert np.array_equal(bits(found), bits(predicted(calibrator, points)))


@settings(deadline=None, max_examples=examples(40))
@given(seed=st.integers(0, 10_000), optimised=st.booleans())
def test_the_graph_is_the_pipeline_whatever_was_fitted(seed: int, optimised: bool) -> None:
    """With the runtime's optimisations and without; rows that are no finite number have no calibrated score."""
    calibrator = drawn(seed)
    points = probes(calibrator, np.random.default_rng(seed), 1_000)
    levels = onnxruntime.GraphOptimizationLevel
    session = served(to_onnx(exported(calibrator)), levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL)
    mixed = np.concatenate([points, NOT_FINITE])
    found = session.run(None, {"score": mixed})[0]
    assert np.array_equal(bits(found[: len(points)]), bits(predicted(calibrator, points)))
    assert np.isnan(found[len(points) :]).all()
    assert session.run(None, {"score": np.empty(0)})[0].shape == (0,)


def test_the_graph_takes_no_float32() -> None:
    """Which the service would have to widen first: the graph does not round for it."""
    session = served(to_onnx(exported(drawn(1))))
    with pytest.raises(Exception, match=r"Unexpected input data type.*double"):
        session.run(None, {"score": np.array([0.5], dtype=np.float32)})


@pytest.mark.parametrize("release", ["v1", 'a "b" \\ é'])
def test_the_graph_says_what_it_is(release: str) -> None:
    calibrator = drawn(2)
    own = exported(calibrator, release)
    facts = served(to_onnx(own)).get_modelmeta().custom_metadata_map
    assert facts["release"] == release
    assert facts["outcome"] == "pass"
    assert facts["calibrator.joblib"] == f"sha256:{calibrator.sha256}"
    assert facts["calibrator.json"] == f"sha256:{own.json_sha256}"
    thresholds = {Decimal(repr(anchor["fpr"])): anchor["raw_score"] for anchor in json.loads(facts["contract"])}
    assert thresholds == calibrator.thresholds


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(GateError, match=r"^--to onnx: must have the package onnx, got none; .*'fpr-gate\[onnx\]'$"):
        to_onnx(exported(drawn(1)))


# --- SQL ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(40))
@given(seed=st.integers(0, 10_000))
def test_the_expression_flags_what_the_calibrator_flags(seed: int) -> None:
    """On every knot, threshold and neighbour, in and outside the domain, in an engine that reads it as it stands."""
    calibrator = drawn(seed)
    points = probes(calibrator, np.random.default_rng(seed), 1_000)
    scored = pa.table({"score": points})
    with duckdb.connect() as connection:
        connection.register("scored", scored)
        query = f"SELECT ({to_sql(exported(calibrator)).decode()}) AS anchor FROM scored"
        found = connection.execute(query).fetchnumpy()["anchor"]
        kind = connection.execute(f"SELECT DISTINCT typeof(anchor) FROM ({query})").fetchall()
        connection.register("scored", pa.table({"score": pa.array([None, *NOT_FINITE], pa.float64())}))
        missing = connection.execute(query).fetchall()
    assert kind == [("DOUBLE",)]
    assert missing == [(None,)] * 5
    assert np.array_equal(found, reached(calibrator, points))


@settings(deadline=None, max_examples=examples(20))
@given(seed=st.integers(0, 10_000))
def test_another_engine_reads_the_same_expression(seed: int) -> None:
    """SQLite, whose NaN is a NULL already, and which knows no type of the result but that of each value."""
    calibrator = drawn(seed)
    points = probes(calibrator, np.random.default_rng(seed), 100)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE scored (score REAL)")
        connection.executemany("INSERT INTO scored VALUES (?)", [(point,) for point in points.tolist()])
        rows = connection.execute(f"SELECT ({to_sql(exported(calibrator)).decode()}) FROM scored").fetchall()
        connection.execute("DELETE FROM scored")
        connection.executemany("INSERT INTO scored VALUES (?)", [(point,) for point in NOT_FINITE.tolist()])
        missing = connection.execute(f"SELECT ({to_sql(exported(calibrator)).decode()}) FROM scored").fetchall()
    assert np.array_equal(np.array(rows, dtype=float)[:, 0], reached(calibrator, points))
    assert missing == [(None,)] * 4


def test_where_every_score_reaches_an_anchor_so_does_one_below_the_domain() -> None:
    """As with averaged ties, where all rows lie at the domain's lower end."""
    calibrator = fit(np.full(50, 0.25), Calibration(ties="average", domain=(0.25, 1.0)))
    assert 0.25 in calibrator.thresholds.values()
    text = to_sql(exported(calibrator)).decode()
    with duckdb.connect() as connection:
        ((below,),) = connection.execute(f"SELECT ({text}) FROM (SELECT 0.1::DOUBLE AS score)").fetchall()
    assert below == reached(calibrator, np.array([0.1]))[0] > 0


def test_an_anchor_that_no_score_reaches_is_a_comment() -> None:
    calibrator = fit(np.full(50, 1.0), Calibration())
    assert None in calibrator.thresholds.values()
    lines = to_sql(exported(calibrator)).decode().splitlines()
    for fpr, threshold in calibrator.thresholds.items():
        (line,) = (line for line in lines if line.endswith(f"FPR {(100 * fpr).normalize():f} %"))
        assert line.startswith("  -- no score reaches ") == (threshold is None)


@pytest.mark.parametrize("release", ["v1", "a\nDROP TABLE x;--\r\u2028b", "*/ '; --"])
def test_the_header_names_the_release_and_nothing_breaks_out_of_it(release: str) -> None:
    text = to_sql(exported(drawn(3), release)).decode()
    lines = text.splitlines()
    assert lines[0].startswith("-- Release ")
    assert lines[0].isprintable()
    assert [line for line in lines[:4] if not line.startswith("-- ")] == []
    assert lines[4] == "CASE"
    assert text.count("\n") == len(lines)


@pytest.mark.parametrize("export", [to_onnx, to_sql])
def test_the_same_release_gives_the_same_bytes(export: Any) -> None:
    own = exported(drawn(4))
    assert export(own) == export(Exported(own.release, own.outcome, own.artifact_sha256, own.calibrator_json))
    assert export(own) != export(exported(drawn(4), "v2"))
