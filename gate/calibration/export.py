"""The exports: a calibrator for places without Python, as an ONNX graph or an SQL expression, from its JSON alone.

Both are functions of `calibrator.json` and of what names the release: the same release gives the same bytes, so that
`gate verify` makes them again if they lie beside it. A finite score outside the domain counts as its nearer end.
The pipeline refuses a score that is no finite number; here it has no calibrated score: NaN, or NULL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from gate.calibration.calibrator import Calibrator, from_json
from gate.errors import GateError
from gate.stored import exact
from gate.words import percent, visible

OPSET, IR_VERSION = 17, 8  # what ONNX Runtime reads from version 1.12 on
INPUT, OUTPUT = "score", "calibrated"
LARGEST = "1.7976931348623157E+308"  # the last finite double


@dataclass(frozen=True)
class Exported:
    """What an export says of the release that it is from."""

    release: str
    outcome: str
    artifact_sha256: str  # of calibrator.joblib
    calibrator_json: str

    @property
    def json_sha256(self) -> str:
        return hashlib.sha256(self.calibrator_json.encode()).hexdigest()

    @property
    def calibrator(self) -> Calibrator:
        return from_json(self.calibrator_json)


def to_sql(exported: Exported) -> bytes:
    """The raw thresholds of all anchors as one CASE expression, the rarest first.

    A number with an exponent is a double in standard SQL; a number without one is an exact decimal. The digits name
    this double and no other. Engines disagree on how NaN compares, so the expression tests for it first.
    """
    calibrator = exported.calibrator
    lowest, _ = calibrator.settings.domain
    lines = [
        f"-- Release {visible(exported.release)} ({exported.outcome}): which anchor of the contract a score reaches.",
        f"-- calibrator.json has the sha256 {exported.json_sha256},",
        f"-- calibrator.joblib {exported.artifact_sha256}.",
        "-- `score` stands for the column of raw scores, which must be of double precision.",
        "CASE",
        f"  WHEN score IS NULL OR score NOT BETWEEN -{LARGEST} AND {LARGEST} THEN NULL",
    ]
    otherwise = Decimal(0)
    for anchor in reversed(calibrator.contract.anchors):
        threshold, score = calibrator.thresholds[anchor.fpr], _double(anchor.score)
        promise = f"FPR {percent(anchor.fpr)}"
        if threshold is None:
            lines.append(f"  -- no score reaches {score}, {promise}")
        elif threshold <= lowest:  # scores below the domain reach it too
            lines.append(f"  -- every score reaches {score}, {promise}")
            otherwise = max(otherwise, anchor.score)
        else:
            lines.append(f"  WHEN score >= {_double(threshold)} THEN {score} -- {promise}")
    return "\n".join([*lines, f"  ELSE {_double(otherwise)}", "END", ""]).encode()


def _double(value: Any) -> str:
    return f"{exact(float(value)).normalize():E}"


def to_onnx(exported: Exported) -> bytes:
    """The whole pipeline as a graph of float64 operations, each rounded as NumPy rounds it, hence bit-equal."""
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise GateError(
            "--to onnx: must have the package onnx, got none; install it with: pip install 'fpr-gate[onnx]'"
        ) from None
    calibrator = exported.calibrator
    graph = _Graph(calibrator)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "calibrator",
            [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["rows"])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.DOUBLE, ["rows"])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="gate",
    )
    anchors = [
        {"fpr": float(anchor.fpr), "score": float(anchor.score), "raw_score": calibrator.thresholds[anchor.fpr]}
        for anchor in calibrator.contract.anchors
    ]
    facts = {
        "release": exported.release,
        "outcome": exported.outcome,
        "contract": json.dumps(anchors),
        "calibrator.json": f"sha256:{exported.json_sha256}",
        "calibrator.joblib": f"sha256:{exported.artifact_sha256}",
    }
    helper.set_model_props(model, facts)
    checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


class _Graph:
    """The nodes and constants: rescale and clip as MinMaxScaler, find the knot, interpolate as `numpy.interp`."""

    def __init__(self, calibrator: Calibrator) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        scaler, (x, y) = calibrator.pipeline[0], calibrator.knots
        bottom, top = scaler.feature_range
        scaled = self.add("Mul", INPUT, self.constant("scale", scaler.scale_))
        shifted = self.add("Add", scaled, self.constant("shift", scaler.min_))
        low = self.constant("low", np.float64(max(bottom, x[0])))
        inside = self.add("Clip", shifted, low, self.constant("high", np.float64(min(top, x[-1]))))
        clipped = self.add("Add", inside, self.add("Sub", INPUT, INPUT))  # NaN where the score is not finite
        knots, values = self.constant("rescaled", x), self.constant("knots", y)
        last = self.constant("last", np.array([len(x) - 1], dtype=np.int64))
        place = self.find(clipped, knots, last, len(x))
        after = self.add("Min", self.add("Add", place, self.constant("one", np.array([1], dtype=np.int64))), last)
        begin, start = self.add("Gather", knots, place), self.add("Gather", values, place)
        run = self.add("Sub", self.add("Gather", knots, after), begin)
        rise = self.add("Sub", self.add("Gather", values, after), start)
        nothing = self.constant("nothing", np.array([0.0]))
        slope = self.add("Where", self.add("Greater", run, nothing), self.add("Div", rise, run), nothing)
        part = self.add("Mul", slope, self.add("Sub", clipped, begin))
        self.add("Add", part, start, name=OUTPUT)

    def find(self, values: str, knots: str, last: str, count: int) -> str:
        """The last knot at or below each value, by bisection: each step goes on where the knot there is not above."""
        place = self.constant("first", np.array([0], dtype=np.int64))
        for power in reversed(range((count - 1).bit_length())):
            step = self.constant(f"step{power}", np.array([1 << power], dtype=np.int64))
            further = self.add("Min", self.add("Add", place, step), last)
            reached = self.add("LessOrEqual", self.add("Gather", knots, further), values)
            place = self.add("Where", reached, further, place)
        return place

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = name or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


FILES: dict[str, tuple[str, Callable[[Exported], bytes]]] = {
    "onnx": ("calibrator.onnx", to_onnx),
    "sql": ("thresholds.sql", to_sql),
}
