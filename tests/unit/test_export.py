"""The exports give what the calibrator gives, to the last bit, and the same bytes every time."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.calibrator import Calibrator
from gate.calibration.export import Exported, to_onnx, to_sql
from gate.calibration.fit import fit
from gate.contract import Anchor, Contract
from gate.errors import GateError
from gate.policy import Calibration

DOMAINS = [(0.0, 1.0), (-30.0, 30.0), (0.0, 255.0), (-1e39, 1e39), (0.0, 1e-39), (1.0, 1.0 + 30 * 2**-52), (-2.0, -1.0)]


def drawn(seed: int, knots: int | None = None, rows: int | None = None) -> Calibrator:
    """A calibrator of drawn size, shape, domain, contract and settings."""
    rng = np.random.default_rng(seed)
    low, high = domain = DOMAINS[int(rng.integers(len(DOMAINS)))]
    n = rows or int(10 ** rng.uniform(0.4, 4.3))
    scores = np.clip(low + (high - low) * rng.beta(0.5, 8, n).round(int(rng.choice([2, 17]))), low, high)
    options = Calibration(
        knots=knots or int(10 ** rng.uniform(1.1, 4)),
        plotting_position=str(rng.choice(["filliben", "mean", "median", "conformal"])),
        ties=str(rng.choice(["conservative", "average"])),
        domain=domain,
    )
    anchors = (Anchor(Decimal("0.2"), Decimal("0.25")), Anchor(Decimal("1e-7"), Decimal("0.9")))
    return fit(scores, options, Contract(anchors) if rng.random() < 0.3 else Contract())


def exported(calibrator: Calibrator, release: str = "v1") -> Exported:
    return Exported(release, "pass", calibrator.sha256, calibrator.to_json())


def probes(calibrator: Calibrator, rng: np.random.Generator, count: int) -> np.ndarray:
    """Raw scores at every knot and threshold, their neighbours, drawn ones, the ends of the domain and beyond."""
    low, high = calibrator.settings.domain
    scaler = calibrator.pipeline[0]
    with np.errstate(over="ignore"):
        knots = (calibrator.knots[0] - scaler.min_) / scaler.scale_
        places = np.concatenate([knots, [t for t in calibrator.thresholds.values() if t is not None], [low, high]])
        near = [places, *(np.nextafter(places, end) for end in (-np.inf, np.inf))]
        beyond = np.nextafter([low, high], [-np.inf, np.inf])
    spread = low + (high - low) * np.concatenate([rng.random(count // 2), rng.beta(0.5, 8, count - count // 2)])
    return np.concatenate([*near, beyond, spread])


def served(content: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def bits(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).view(np.int64)


# --- ONNX -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_graph_is_the_pipeline_on_two_million_points(seed: int) -> None:
    calibrator = drawn(seed, 10_000, 5_000)
    content = to_onnx(exported(calibrator))
    assert len(content) < 200_000
    points = probes(calibrator, np.random.default_rng(seed), 500_000)
    assert len(points) >= 500_000
    (found,) = served(content).run(["calibrated"], {"score": points})
    assert found.dtype == np.float64
    assert np.array_equal(bits(found), bits(calibrator.predict(points)))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_the_graph_is_the_pipeline_whatever_was_fitted(seed: int) -> None:
    calibrator = drawn(seed)
    points = probes(calibrator, np.random.default_rng(seed), 1_000)
    session = served(to_onnx(exported(calibrator)))
    assert np.array_equal(bits(session.run(None, {"score": points})[0]), bits(calibrator.predict(points)))
    assert session.run(None, {"score": np.empty(0)})[0].shape == (0,)
    assert np.isnan(session.run(None, {"score": np.array([np.nan])})[0]).all()


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
    told = {Decimal(repr(anchor["fpr"])): anchor["raw_score"] for anchor in json.loads(facts["contract"])}
    assert told == calibrator.thresholds


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(GateError, match=r"^--to onnx: must have the package onnx, got none; .*'fpr-gate\[onnx\]'$"):
        to_onnx(exported(drawn(1)))


# --- SQL ------------------------------------------------------------------------------------------------------


def reached(calibrator: Calibrator, calibrated: np.ndarray) -> np.ndarray:
    """The highest anchor at or below each calibrated score."""
    anchors = np.array([0.0, *(float(anchor.score) for anchor in calibrator.contract.anchors)])
    return anchors[np.searchsorted(anchors, calibrated, side="right") - 1]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_the_expression_flags_what_the_calibrator_flags(seed: int) -> None:
    """On every threshold and its neighbours, in an engine that reads it as it stands."""
    calibrator = drawn(seed)
    points = np.clip(probes(calibrator, np.random.default_rng(seed), 1_000), *calibrator.settings.domain)
    scored = pa.table({"score": points})
    with duckdb.connect() as connection:
        connection.register("scored", scored)
        query = f"SELECT ({to_sql(exported(calibrator)).decode()}) AS anchor FROM scored"
        found = connection.execute(query).fetchnumpy()["anchor"]
        kind = connection.execute(f"SELECT typeof(anchor) FROM ({query}) LIMIT 1").fetchone()
        (missing,) = (
            connection.execute(query.replace("FROM scored", "FROM (SELECT NULL::DOUBLE AS score)")).fetchone() or ()
        )
    assert kind == ("DOUBLE",)
    assert missing is None
    assert np.array_equal(found, reached(calibrator, calibrator.predict(points)))


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
    assert [line for line in lines[:3] if not line.startswith("-- ")] == []
    assert lines[3] == "CASE"
    assert text.count("\n") == len(lines)


@pytest.mark.parametrize("export", [to_onnx, to_sql])
def test_the_same_release_gives_the_same_bytes(export: Any) -> None:
    own = exported(drawn(4))
    assert export(own) == export(Exported(own.release, own.outcome, own.artifact_sha256, own.calibrator_json))
    assert export(own) != export(exported(drawn(4), "v2"))
