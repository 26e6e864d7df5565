"""`--set KEY=VALUE`: a key gets what a file with that value would give it, or a refusal in one line that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gate.checks import CHECKS, parse_policy
from gate.checks import policy_model as policy_model_of
from gate.errors import GateError
from gate.policy import Document, digest_of

TARGET = {"fpr": "1%", "min_n": 100, "max_relative_error": {"above": 0.5, "below": 1}, "required": True}
SPAN = {"from": "10%", "to": "1%", "min_n": 100, "max_relative_error": {"above": 0.5, "below": 1}, "required": True}
ONE: dict[str, Any] = {
    "version": 1,
    "name": "base",
    "contract": [{"fpr": "10%", "score": 0.1}, {"fpr": "1%", "score": 0.3}],
    "calibration": {"plotting_position": {"np": 0.9}},
    "targets": [TARGET],
    "ranges": [SPAN],
    "data": {"score": "risk"},
    "checks": {
        "freshness": {"max_age_days": 3},
        "detection": {"targets": [{"fpr": "1%", "min_tpr": 0.5}]},
        "segments": {
            "targets": ["1%"],
            "min_n": 50,
            "max_relative_error": {"above": 0.5, "below": 1},
            "ranges": [{"from": "10%", "to": "1%"}],
        },
    },
    "reuse": {"max_uses": 3},
    "waivers": [{"check": "fpr@1%", "reason": "known", "owner": "me", "expires": "2099-12-31"}],
}
SEVERAL: dict[str, Any] = {
    **ONE,
    "detectors": [
        {"name": "a", "calibration": {"plotting_position": {"np": 0.9}}, "checks": ONE["checks"]}
        | {"targets": [TARGET], "ranges": [SPAN]},
        {"name": "b", "score": "other"},
    ],
    "system": [{"score": 0.3, "max_fpr": "5%", "min_n": 100}],
    "waivers": [],
}

# --- the keys and what they may be --------------------------------------------------------------------------

COUNTS = st.integers(11, 10**6).flatmap(lambda n: st.sampled_from([str(n), f"{n:_}", f'"{n}"']))
FLAGS = st.sampled_from(["true", "false", "True"])
RATES = st.sampled_from(["1%", "0.01", "1e-2", '"1%"', "10%", "0.1"])
SHARES = st.sampled_from(["50%", "0.3", "3e-1", '"0.3"'])
WORDS = st.sampled_from(["is_fraud", "a b", "'1'", '"null"', "ü", "x=y", "'#x'", "a.b[0]"])
MAYBE = WORDS | st.just("null")
PATHS = st.sampled_from(["scores.csv", "[a.csv, b/*.parquet]", "s3://bucket/x", "null"])
LABELS = st.sampled_from(["0", "[0, 'no']", "benign", "true", "1.5"])
ERRORS = st.sampled_from(["0.5", "50%", "{above: 0.5, below: 1}"])
POINTS = st.sampled_from(["[{fpr: 1%, min_n: 9, max_relative_error: 1}]", json.dumps([TARGET])])
SPANS = st.sampled_from(["[]", "[{from: 10%, to: 1%, min_n: 9, max_relative_error: 1}]", json.dumps([SPAN])])
CONTRACTS = st.sampled_from(["[{fpr: 10%, score: 0.2}, {fpr: 1e-2, score: 0.4}]"])
DETECTION_TARGETS = st.sampled_from(["[{fpr: 10%, min_tpr: 0.9}]"])
POSITIONS = st.sampled_from(["mean", "median", "{np: 0.95}", "{np: 95%}"])

TARGET_KEYS: dict[str, Any] = {"fpr": RATES, "min_n": COUNTS, "required": FLAGS}
ERROR_KEYS: dict[str, Any] = {"": ERRORS, ".above": SHARES, ".below": SHARES}
ENDS: dict[str, Any] = {"from": st.just("10%"), "to": st.just("1e-2")}
OWN: dict[str, Any] = {
    "rule": st.sampled_from(["proven", "observed", "not-refuted"]),
    "calibration.knots": COUNTS,
    "calibration.plotting_position": POSITIONS,
    "calibration.ties": st.sampled_from(["average", "conservative"]),
    "calibration.domain": st.sampled_from(["[0,100]", "[-1e1, 2.5]", '["0", "1_0"]']),
    "targets": POINTS,
    **{f"targets[0].{key}": values for key, values in TARGET_KEYS.items()},
    **{f"targets[0].max_relative_error{key}": values for key, values in ERROR_KEYS.items()},
    "ranges": SPANS,
    **{f"ranges[0].{key}": values for key, values in {**ENDS, "min_n": COUNTS, "required": FLAGS}.items()},
    **{f"ranges[0].max_relative_error{key}": values for key, values in ERROR_KEYS.items()},
    **{f"checks.{name}.max_share": SHARES for name in ("overlap", "duplicates")},
    "checks.exchangeability.alpha": st.sampled_from(["1%", "0.2", "5e-3", '"0.001"']),
    **{f"checks.{check.key}.required": FLAGS for check in CHECKS if check.settings is not None},
    "checks.freshness.max_age_days": st.integers(1, 36_500).map(str),
    "checks.detection.targets": DETECTION_TARGETS,
    "checks.detection.targets[0].fpr": RATES,
    "checks.detection.targets[0].min_tpr": SHARES,
    "checks.detection.max_drop": SHARES | st.just("null"),
    "checks.segments.targets": st.sampled_from(["[1%]", "[10%, 1e-2]"]),
    "checks.segments.min_n": COUNTS,
    **{f"checks.segments.max_relative_error{key}": values for key, values in ERROR_KEYS.items()},
    "checks.segments.ranges": st.sampled_from(["[]", "[{from: 10%, to: 1%}]"]),
    **{f"checks.segments.ranges[0].{key}": values for key, values in ENDS.items()},
    "checks.segments.expect": st.sampled_from(["[de, en]", "[]", "['1']"]),
}
OWN.pop("checks.baseline.required", None)
VALUES: dict[str, Any] = {
    "version": st.just("1"),
    "name": WORDS,
    "confidence": st.sampled_from(["0.9", "95%", "9e-1"]),
    "interval": st.sampled_from(["sequential", "clopper-pearson"]),
    "contract": CONTRACTS,
    "contract[1].fpr": st.just("1e-2"),
    "contract[1].score": st.sampled_from(["0.2", "30%"]),
    **OWN,
    **dict.fromkeys(("data.fit", "data.holdout", "data.benign", "data.malicious"), PATHS),
    "data.split": SHARES,
    "data.score": WORDS,
    "data.label": MAYBE | st.just("false"),
    "data.benign_label": LABELS,
    **{f"data.{key}": MAYBE for key in ("connect", "calibrated", "segment", "group", "id", "timestamp", "count")},
    "reuse.max_uses": st.integers(1, 1000).map(str),
    "waivers": st.sampled_from(["[]", json.dumps(ONE["waivers"])]),
    "waivers[0].check": st.sampled_from(["fpr@10%", "overlap"]),
    "waivers[0].reason": WORDS,
    "waivers[0].owner": WORDS,
    "waivers[0].expires": st.sampled_from(["2030-01-02", "'2030-01-02'"]),
}
OF_DETECTORS: dict[str, Any] = {
    "detectors": st.just("[{name: a, score: x}, {name: b, score: y}]"),
    "detectors[0].name": st.sampled_from(["a", "c.d-1"]),
    "detectors[0].score": MAYBE,
    "detectors[0].label": MAYBE | st.just("false"),
    "detectors[0].benign_label": LABELS,
    **dict.fromkeys(("detectors[0].fit", "detectors[0].holdout", "detectors[0].malicious"), PATHS),
    "detectors[0].required": FLAGS,
    **{f"detectors[0].{key}": values for key, values in OWN.items()},
    "system": st.sampled_from(["[]", "[{score: 0.5, max_fpr: 1%, min_n: 9}]"]),
    "system[0].score": st.sampled_from(["0.5", "30%"]),
    "system[0].max_fpr": RATES,
    "system[0].min_n": COUNTS,
    "system[0].required": FLAGS,
    **{f"data.{key}": MAYBE for key in ("id", "segment", "group")},
}


def leaves(model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Every key of the model that holds a value or a list, with `[]` for an entry of a list."""
    for name, field in model.model_fields.items():
        key = f"{at}{field.alias or name}"
        inside, is_list = model_in(field.annotation)
        if inside is None or is_list:
            yield key
        if inside is not None:
            yield from leaves(inside, f"{key}[]." if is_list else f"{key}.")


def model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in get_args(annotation):
        inside, is_list = model_in(part)
        if inside is not None:
            return inside, is_list or getattr(annotation, "__origin__", None) is tuple
    return None, False


def test_every_key_of_the_model_is_set_below() -> None:
    known = {*leaves(policy_model_of(CHECKS))}
    covered = {re.sub(r"\[\d\]", "[]", key) for key in {**VALUES, **OF_DETECTORS}}
    assert {key for key in known if key not in covered} == set()


# --- the same as a file -------------------------------------------------------------------------------------


def steps(key: str) -> list[Any]:
    return [int(step) if step.isdigit() else step for step in re.findall(r"\w+", key)]


def written(base: dict[str, Any], key: str, value: str) -> str:
    """The base as a file that has the value at the key."""
    content: Any = json.loads(json.dumps(base))
    holder = content
    *path, last = steps(key)
    for step in path:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    holder[last] = "@@"
    return yaml.safe_dump(content, sort_keys=False).replace("'@@'", value)


def outcome(text: str, *overrides: str) -> Document | None:
    try:
        return parse_policy(text, "p.yaml", overrides=overrides)
    except GateError:
        return None


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_a_key_that_is_set_is_as_in_a_file_with_that_value(data: st.DataObject) -> None:
    base, values = data.draw(st.sampled_from([(ONE, VALUES), (SEVERAL, OF_DETECTORS)]))
    key = data.draw(st.sampled_from(sorted(values)))
    value = data.draw(values[key])
    lacking = data.draw(st.sets(st.sampled_from(["calibration", "data", "checks", "reuse", "ranges"])))
    part = {name: content for name, content in base.items() if name not in lacking or "[" in key}
    plain = outcome(written(part, key, value))
    found = outcome(json.dumps(part), f"{key}={value}")
    assert (found is None) == (plain is None)
    if not lacking and not (key.endswith(".score") and value == "null" and "detectors" in base):
        assert found is not None, f"{key}={value} must be valid, or it shows nothing"
    if found is None or plain is None:
        return
    assert found.policy == plain.policy
    assert (found.text, found.overrides) == (json.dumps(part), (f"{key}={value}",))
    assert found.sha256 != outcome_digest(part)
    for name, own in found.detectors.items():
        again = parse_policy(own.text, own.path, overrides=own.overrides)
        assert again.policy == own.policy == plain.detectors[name].policy
        assert again.sha256 == own.sha256


def outcome_digest(part: dict[str, Any]) -> str:
    return digest_of(json.dumps(part), ())


def test_several_keys_count_in_any_order_and_the_later_command_wins() -> None:
    text, given_ = json.dumps(ONE), ("data.label=a", "calibration.domain=[0,9]", "targets[0].min_n=7")
    one, other = parse_policy(text, "p", overrides=given_), parse_policy(text, "p", overrides=given_[::-1])
    assert (one.policy, one.sha256) == (other.policy, other.sha256)
    assert one.sha256 != parse_policy(text, "p", overrides=given_[:2]).sha256
    later = one.override(["data={score: s}"])
    assert later.overrides == ("calibration.domain=[0,9]", "targets[0].min_n=7", "data={score: s}")
    assert (later.policy.data.label, later.policy.data.score) == (None, "s")
    with pytest.raises(GateError, match=r"^--set data.label=x: must be the only --set of this key, got --set data="):
        later.override(["data.label=x"])


def test_a_file_that_lacks_a_key_is_whole_with_it() -> None:
    text = json.dumps({key: value for key, value in ONE.items() if key != "targets"})
    assert outcome(text) is None
    found = outcome(text, "targets=[{fpr: 1%, min_n: 9, max_relative_error: 1}]")
    assert found is not None
    assert found.policy.targets[0].min_n == 9


def test_lines_are_those_of_the_file_alone() -> None:
    text = "version: 1\nname: x\ndata:\n  label: l\ntargets:\n  - {fpr: 1%, min_n: 9, max_relative_error: 1}\n"
    found = parse_policy(text, "p", overrides=["data.label=a", "targets=[{fpr: 10%, min_n: 9, max_relative_error: 1}]"])
    assert ("data", "label") not in found.lines
    assert ("targets", 0) not in found.lines
    assert (found.lines["data",], found.lines["name",]) == (3, 2)


# --- refusals -----------------------------------------------------------------------------------------------

REFUSED = {
    "label": "--set label: must be KEY=VALUE with a key of the policy, such as data.label=is_fraud",
    "=x": "--set =x: must be KEY=VALUE with a key of the policy, such as data.label=is_fraud",
    "data..label=x": "--set data..label=x: must be KEY=VALUE with a key of the policy, such as data.label=is_fraud",
    "data.label=": "--set data.label=: must have a value after the =, got nothing; write null to unset a key",
    "data.label= ": "--set data.label= : must have a value after the =, got nothing; write null to unset a key",
    "data.label=#x": "--set data.label=#x: must have a value after the =, got nothing; write null to unset a key",
    "data.labl=x": "--set data.labl=x: data.labl: must be a known key; did you mean `label`?",
    "dat.label=x": "--set dat.label=x: dat: must be a known key; did you mean `data`?",
    "calibration={knot: 9}": "--set calibration={knot: 9}: calibration.knot: must be a known key; did you mean "
    "`knots`?",
    "name.x=1": "--set name.x=1: name: must be a mapping of keys and values, got 'base'",
    "name[0]=1": "--set name[0]=1: name: must be a list, got 'base'",
    "targets.fpr=1": "--set targets.fpr=1: targets: must be a mapping of keys and values, got a list",
    "targets[1].fpr=1%": "--set targets[1].fpr=1%: targets: must have an entry [1], got 1; the first is [0]",
    "targets[0].fpr=2%": "--set targets[0].fpr=2%: targets[0].fpr: must be an anchor of the contract (10%, 1%), got "
    "'2%'",
    "data.label=true": "--set data.label=true: data.label: must be the name of a column, null, or false where there "
    "are no labels, got true",
    "data.split=1": "--set data.split=1: data.split: must be above 0 and below 1, such as 50%, got 1",
    "data.label=*a": "--set data.label=*a: must not use YAML aliases, got *a; write it out",
    "data.fit=[a, a": "--set data.fit=[a, a: must be YAML, got an error: while parsing a flow sequence, expected ',' "
    "or ']', but got '<stream end>'",
    "data={id: a, id: b}": "--set data={id: a, id: b}: data.id: must be given once, got it again (first on line 1); "
    "delete one",
    "name=a\nb": r"--set 'name=a\nb': must be one line of printable characters",
    "name=\x1b[31m": r"--set 'name=\x1b[31m': must be one line of printable characters",
    "name=\udcff": r"--set 'name=\udcff': must be one line of printable characters",
}


@pytest.mark.parametrize("given_", REFUSED)
def test_what_cannot_be_set_is_refused_in_one_line(given_: str) -> None:
    with pytest.raises(GateError) as caught:
        parse_policy(json.dumps(ONE), "p.yaml", overrides=[given_])
    assert str(caught.value) == REFUSED[given_]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("data.id=a", "data.id=b"),
        ("data={}", "data.id=b"),
        ("data.id=a", "data={}"),
        ("targets=[]", "targets[0].fpr=1"),
    ],
)
def test_a_key_is_set_once(one: str, other: str) -> None:
    with pytest.raises(GateError) as caught:
        parse_policy(json.dumps(ONE), "p.yaml", overrides=[one, "name=x", other])
    assert str(caught.value) == f"--set {other}: must be the only --set of this key, got --set {one} too; delete one"


@settings(deadline=None, max_examples=examples(200))
@given(st.text(max_size=12), st.sampled_from([*VALUES, "x", ""]), st.text(max_size=30))
def test_any_text_is_a_policy_or_refused_in_printable_lines(before: str, key: str, value: str) -> None:
    for text in (f"{before}{value}", f"{key}={value}", f"{before}{key}={value}"):
        try:
            parse_policy(json.dumps(ONE), "p.yaml", overrides=[text])
        except GateError as error:
            for line in str(error).split("\n"):
                assert line.isprintable()
                assert line.startswith(("--set ", "p.yaml:1: "))
