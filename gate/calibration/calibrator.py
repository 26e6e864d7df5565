"""The calibrator: a plain sklearn Pipeline, its exact raw thresholds, and its JSON form. A pickle is never loaded."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

from gate.contract import FLAG_ALL, LOWEST, Anchor, Contract, Floats
from gate.errors import GateError
from gate.policy import Calibration
from gate.statistics.floats import from_ordinal, ordinal
from gate.stored import exact
from gate.words import percent, visible

FAN = 32  # scores that each step of the search tries for each anchor
_STEPS = np.arange(FAN, dtype=np.uint64)
_AROUND = np.array([*(-(4**i) for i in range(16, -1, -1)), 0, *(4**i for i in range(17))])
TOP = 0.99  # the highest rescaled and calibrated score: a threshold of 1.0 flags nothing


@dataclass(frozen=True)
class FitFacts:
    """What the fit sample was, as far as reports and verdicts need it."""

    n: int
    lowest_label: float


@dataclass(frozen=True, repr=False)
class Calibrator:
    """The shipped pipeline with the contract it keeps and the settings it was fitted with."""

    pipeline: Pipeline
    contract: Contract
    settings: Calibration
    facts: FitFacts

    def __repr__(self) -> str:
        low, high = self.settings.domain
        return (
            f"Calibrator(fitted on {self.facts.n:,} benign scores, "
            f"{len(self.contract.anchors)} anchors, domain [{low:g}, {high:g}])"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the raw threshold at each anchor."""
        rows = "".join(
            f"<tr><td>{percent(anchor.fpr)}</td><td>{anchor.score}</td><td>{_in_words(raw)}</td></tr>"
            for anchor, raw in zip(self.contract.anchors, self.thresholds.values(), strict=True)
        )
        head = "<tr><th>false-positive rate</th><th>calibrated score</th><th>raw threshold</th></tr>"
        words = repr(self).removeprefix("Calibrator(").removesuffix(")")
        return f"<p><b>Calibrator</b>, {words}</p><table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def predict(self, scores: ArrayLike) -> Floats:
        """Calibrated scores; float32 input is promoted first, because sklearn would rescale it in float32."""
        if np.ma.is_masked(scores):
            raise GateError("scores: must be there in every row, got masked ones; fill or leave out these rows")
        column = np.asarray(scores, dtype=np.float64).reshape(-1, 1)
        return np.asarray(self.pipeline.predict(column), dtype=np.float64)

    @property
    def knots(self) -> tuple[Floats, Floats]:
        spline = self.pipeline[-1]
        return spline.X_thresholds_, spline.y_thresholds_

    @cached_property
    def thresholds(self) -> dict[Decimal, float | None]:
        """The smallest raw score that the pipeline maps to each anchor or above, by the anchor's FPR.

        The search divides the float64 values themselves, so that `score >= threshold` and
        `predict(score) >= anchor` agree on every score. It gives None if no score of the domain reaches the anchor.
        """
        anchors = self.contract.anchors
        scores = np.array([float(anchor.score) for anchor in anchors])
        ends = ordinal(np.array(self.settings.domain))
        low, high = np.full(len(anchors), ends[0]), np.full(len(anchors), ends[1])
        middles = np.clip(ordinal(self._near(scores))[:, None] + _AROUND, *ends)  # and ever farther away
        while np.any(low < high):
            reached = self.predict(from_ordinal(middles)).reshape(middles.shape) >= scores[:, None]
            asked = middles.shape[1]
            first = np.where(reached.any(axis=1), reached.argmax(axis=1), asked)
            rows = np.arange(len(anchors))
            high = np.where(first < asked, middles[rows, np.minimum(first, asked - 1)], high)
            low = np.where(first > 0, np.minimum(middles[rows, first - 1] + 1, high), low)
            span = (high - low).view(np.uint64)  # unsigned, so that a wide span does not overflow
            steps = span[:, None] // FAN * _STEPS + span[:, None] % FAN * _STEPS // FAN
            middles = low[:, None] + steps.view(np.int64)
        found = from_ordinal(high)
        reached = self.predict(found) >= scores
        return {
            anchor.fpr: float(threshold) if ok else None
            for anchor, threshold, ok in zip(anchors, found, reached, strict=True)
        }

    def _near(self, scores: Floats) -> Floats:
        """Raw scores that the pipeline maps to about these; a search begins there and may end elsewhere."""
        x, y = self.knots
        low, high = self.settings.domain
        rises = np.append(True, np.diff(y) > 0)  # the first of the knots at one calibrated score
        x, y = x[rises], y[rises]
        share = np.where(scores <= y[0], 0.0, np.interp(scores, y, x, right=TOP)) / TOP
        return low * (1 - share) + high * share

    @cached_property
    def artifact(self) -> bytes:
        """The file of the paper: `joblib.load` and `predict`, none of our code."""
        for _, step in self.pipeline.steps:  # a pipeline that this process has unpickled leaves other names behind
            step.__dict__ = {sys.intern(name): value for name, value in vars(step).items()}
        buffer = io.BytesIO()
        joblib.dump(self.pipeline, buffer)
        return buffer.getvalue()

    def to_json(self) -> str:
        """The calibrator without a pickle; floats are written so that they read back bit-equal."""
        x, y = self.knots
        document = {
            "schema_version": 1,
            "domain": list(self.settings.domain),
            "feature_range": [0.0, TOP],
            "plotting_position": self.settings.plotting_position,
            "ties": self.settings.ties,
            "knots": self.settings.knots,
            "fit": {"n": self.facts.n, "lowest_label": self.facts.lowest_label},
            "contract": [{"fpr": float(anchor.fpr), "score": float(anchor.score)} for anchor in self.contract.anchors],
            "thresholds": [{"fpr": float(fpr), "raw_score": threshold} for fpr, threshold in self.thresholds.items()],
        }
        head = json.dumps(document, indent=1, allow_nan=False).removesuffix("\n}")
        return f'{head},\n "rescaled": {_in_lines(x)},\n "calibrated": {_in_lines(y)}\n}}\n'

    @cached_property
    def sha256(self) -> str:
        """The digest of the artifact."""
        return hashlib.sha256(self.artifact).hexdigest()


def _in_lines(values: Floats) -> str:
    """A list as `json.dumps(indent=1)` writes it inside a document, ten times as fast."""
    return "[\n  {}\n ]".format(json.dumps(values.tolist(), allow_nan=False)[1:-1].replace(", ", ",\n  "))


def _in_words(threshold: float | None) -> str:
    return "no score reaches it" if threshold is None else f"{threshold:.6g}"


def from_json(text: str, where: str = "calibrator.json") -> Calibrator:
    """Rebuild a calibrator from its JSON, bit-equal; a pickle is never loaded."""
    try:
        document = json.loads(text)
        if document["schema_version"] != 1 or document["feature_range"] != [0.0, TOP]:
            raise GateError(f"{where}: must be a calibrator of schema_version 1, got another; upgrade gate")
        low, high = (float(end) for end in document["domain"])
        settings = Calibration(
            knots=document["knots"],
            plotting_position=document["plotting_position"],
            ties=document["ties"],
            domain=(low, high),
        )
        anchors = tuple(Anchor(exact(p["fpr"]), exact(p["score"])) for p in document["contract"])
        facts = FitFacts(**document["fit"])
        x = np.array(document["rescaled"], dtype=np.float64)
        y = np.array(document["calibrated"], dtype=np.float64)
        scaler = MinMaxScaler(feature_range=(0, TOP), clip=True).fit([[low], [high]])
        spline = IsotonicRegression(increasing=True, out_of_bounds="clip").fit(x, y)
        points = (FLAG_ALL, *anchors, LOWEST)
        ordered = all(one.fpr > other.fpr and one.score < other.score for one, other in pairwise(points))
        plain = type(facts.n) is int and type(facts.lowest_label) is float
        possible = plain and facts.n >= 2 and 0 < facts.lowest_label <= 1
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        said = visible(" ".join(str(error).split())[:200])
        raise GateError(f"{where}: must be a calibrator written by gate, got {type(error).__name__}: {said}") from None
    if not (anchors and ordered and possible):
        raise GateError(f"{where}: must be a calibrator written by gate, got an impossible contract or fit sample")
    if not (np.array_equal(spline.X_thresholds_, x) and np.array_equal(spline.y_thresholds_, y)):
        raise GateError(f"{where}: its knots must rise; this file was not written by gate")
    return Calibrator(Pipeline([("scale", scaler), ("calibrate", spline)]), Contract(anchors), settings, facts)
