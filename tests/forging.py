"""Small samples that every check has measured, and their evidence with one value changed, as a forged record has it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from gate.calibration.fit import fit_ordered
from gate.checks import parse_policy
from gate.checks.baseline import Reference
from gate.checks.check import Case, Evidence, Part
from gate.checks.reuse import Use, Uses
from gate.gating import calibrator_facts, gather
from gate.policy import Policy
from gate.rows.describe import describe
from gate.rows.reading import columns_for, from_object, kind_of
from gate.rows.sample import Sample

POLICY = """\
version: 1
name: everything
calibration: {knots: 50}
targets:
  - {fpr: 10%, min_n: 10, max_relative_error: 0.9}
  - {fpr: 1%, min_n: 10, max_relative_error: 0.9}
ranges: [{from: 10%, to: 1%, min_n: 10, max_relative_error: 5}]
checks:
  freshness: {max_age_days: 1000}
  detection: {targets: [{fpr: 1%, min_tpr: 0.01}], max_drop: 0.9}
  segments:
    targets: [10%]
    ranges: [{from: 10%, to: 2%}]
    min_n: 1
    max_relative_error: 5
reuse: {max_uses: 3}
"""
COLUMNS = {
    "plain": "data: {segment: segment, timestamp: timestamp}\n",
    "grouped": "data: {id: id, group: group, segment: segment, timestamp: timestamp}\n",
    "served": "data: {segment: segment, timestamp: timestamp, calibrated: served}\n",
}
ROWS = {"fit": 600, "holdout": 400, "malicious": 100}
DAY = date(2026, 3, 1)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A policy and what was measured by it."""

    policy: Policy
    evidence: Evidence

    def forged(self, place: str, value: Any) -> Measured:
        """The evidence with one value of a check's part changed in the record and read back."""
        parts = put(self.evidence.parts, place, value)
        return dataclasses.replace(self, evidence=dataclasses.replace(self.evidence, parts=parts))


def put(section: Part, place: str, value: Any) -> Part:
    """One value put into a part of a record, which is read back."""
    whole: Any = section.model_dump(mode="json")
    content = whole
    *steps, last = (int(step) if step.isdigit() else step for step in place.split("."))
    for step in steps:
        content = content[step]
    content[last] = value
    return type(section).model_validate(whole)


def measured(kind: str, text: str = POLICY) -> Measured:
    """The case of one of COLUMNS; `served` is a check of calibrated scores."""
    case = case_of(kind, text)
    fit = describe(sample("fit", case.policy))
    return Measured(case.policy, gather(case, fit, calibrator_facts(case.calibrator), DAY))


def case_of(kind: str, text: str = POLICY) -> Case:
    """Samples with a calibrator, compared with a release with the same counts."""
    policy = parse_policy(text + COLUMNS[kind], "everything.yaml").policy
    fit, holdout, malicious = (sample(name, policy) for name in ROWS)
    calibrator = fit_ordered(fit.ordered, policy.calibration, policy.anchors)
    if kind == "served":
        holdout, malicious = (sample(name, policy, calibrator.predict) for name in ("holdout", "malicious"))
    uses = Uses(ledger="ledger.jsonl", holdout=Use(number=1), malicious=Use(number=1))
    case = Case(policy, calibrator, holdout, fit, malicious, uses=uses, day=DAY, calibrated=kind == "served")
    old = Reference(
        path="releases/v1",
        release="v1",
        created="2026-02-01T12:00:00Z",
        outcome="pass",
        verdict_sha256="a" * 64,
        policy_sha256="b" * 64,
        policy=policy,
        benign=case.benign,
        malicious=case.detected,
        holdout_sha256="c" * 64,
        rows_sha256=None,
    )
    return dataclasses.replace(case, reference=old, fit=None if kind == "served" else fit)


def sample(name: str, policy: Policy, predict: Callable[[Any], Any] | None = None) -> Sample:
    """Rows with every column that the policy may name; two ids occur twice.

    With `predict` they have calibrated scores beside them, except the last one, which was served raw.
    """
    n, kind = ROWS[name], kind_of(name)
    a, b = (4, 2) if kind == "malicious" else (0.5, 8)
    rows = np.r_[np.arange(n), 0, 1]
    raw = np.random.default_rng(n).beta(a, b, n)[rows]
    served = None if predict is None else np.append(predict(raw[:-1]), raw[-1])
    table = pa.table(
        {
            "score": raw,
            "served": raw if served is None else served,
            "id": [f"{name}{row}" for row in rows],
            "group": [f"{name}{row // 3}" for row in rows],
            "segment": ["b" if row % 3 == 0 else "a" for row in rows],
            "timestamp": ["2026-02-20"] * len(rows),
        }
    )
    return from_object(
        table, name, columns_for(name, policy, calibrated=predict is not None), policy.calibration.domain, kind
    )


# --- any value of a whole record ------------------------------------------------------------------------------

Place = tuple[str | int, ...]


def leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*at, key))
    else:
        yield at


def branches(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every section, list and entry of one."""
    if isinstance(value, dict | list):
        if at:
            yield at
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from branches(part, (*at, key))


def altered(value: Any, at: Place = ()) -> Any:
    """Another value that could stand there as well."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * (1 + 1e-6) if value else 1e-6
        case str() if at == ("judged_on",):
            return (date.fromisoformat(value) + timedelta(days=1)).isoformat()
        case str() if at == ("created",):
            return value.replace("T12:00:00", "T12:00:01")
        case str():
            return {"pass": "fail", "fail": "pass", "run": "check", "check": "run", "active": "unused"}.get(value, "x")
        case None:
            return "x" if at[-1] in NAMED else 1
    raise AssertionError(value)


NAMED = {"label", "segment", "group", "id", "timestamp", "rows_sha256", "remedy", "oldest", "newest", "cut", "grade"}


def at(content: Any, place: Place) -> Any:
    for step in place:
        content = content[step]
    return content


def changed(content: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(content))
    at(copy, place[:-1])[place[-1]] = value
    return copy


def dotted(place: Place) -> str:
    return ".".join(map(str, place))
