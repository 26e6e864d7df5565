"""A policy is read exactly or refused with every error at once, each on one line that says where and what to write."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from gate.checks import POLICY, default_policy, load_policy, parse_policy, policy_schema
from gate.contract import Contract
from gate.errors import GateError
from gate.names import CheckName
from gate.policy import MAX_BYTES, Document, Policy, Target, Tolerance

POLICIES = Path(__file__).parents[2] / "policies"
SHIPPED = sorted(POLICIES.glob("*.yaml"))
DEFAULT = (POLICIES / "default.yaml").read_text()


def policy_text(extra: str = "", fpr: str = "0.1", min_n: str = "100", error: str = "0.5") -> str:
    """The shortest policy, its one target on line 4 and whatever is added from line 5 on."""
    return f"version: 1\nname: x\ntargets:\n  - {{fpr: {fpr}, min_n: {min_n}, max_relative_error: {error}}}\n{extra}"


def read(text: str) -> Policy:
    return parse_policy(text, "p.yaml").policy


def errors(text: str) -> list[str]:
    with pytest.raises(GateError) as caught:
        parse_policy(text, "p.yaml")
    return str(caught.value).split("\n")


# --- messages -----------------------------------------------------------------------------------------------

MANY_ERRORS = """\
version: 2
name: 5
rule: porven
confidence: 1.5
calibration: {knots: 5, ties: averge, domain: [1, 0], plotting: mean}
contract:
  - {fpr: 0.1, score: 0.1}
  - {fpr: 0.2, score: 0.05}
  - {fpr: 0.01, scor: 0.3}
targets:
  - {fpr: 0.3, min_n: 0, max_relative_error: 0}
  - fpr: 0.1
    min_n: 1.5
    max_relative_error: {above: 0.5, blow: 1}
    required: yes
  - {fpr: 10%, min_n: 100, max_relative_error: x}
data: {score: "", label: 3, benign_label: [0, 0]}
checks: {overlapp: {}}
waivers:
  - {check: fpr@0.1, reason: known, owner: us, expires: tomorrow}
tragets: []
name: again
"""


def test_all_errors_are_listed_at_once() -> None:
    """Each names file, line, key, what must be true, what was found, and the nearest key for a misspelt one.

    The key that is missing because it is misspelt is not an error of its own.
    """
    assert errors(MANY_ERRORS) == [
        "p.yaml:1: version: must be 1, got 2",
        "p.yaml:2: name: must be text, got 5; put it in quotes",
        "p.yaml:3: rule: must be 'proven', 'observed' or 'not-refuted', got 'porven'",
        "p.yaml:4: confidence: must be at least 0.5 and below 1, such as 0.95, got 1.5",
        "p.yaml:5: calibration.domain: must be [lowest, highest] with lowest below highest, got [1, 0]",
        "p.yaml:5: calibration.knots: must be from 11 to 1,000,000, got 5",
        "p.yaml:5: calibration.plotting: must be a known key; did you mean `plotting_position`?",
        "p.yaml:5: calibration.ties: must be 'conservative' or 'average', got 'averge'",
        "p.yaml:8: contract[1].fpr: must fall strictly from below 1 to above 1e-10, got 0.2",
        "p.yaml:8: contract[1].score: must rise strictly from above 0 to below 0.99, got 0.05",
        "p.yaml:9: contract[2].scor: must be a known key; did you mean `score`?",
        "p.yaml:11: targets[0].fpr: must be an anchor of the contract (20%, 10%, 1%), got 0.3",
        "p.yaml:11: targets[0].max_relative_error: must be above 0 and at most 1000, such as 0.5 for 50 %, got 0",
        "p.yaml:11: targets[0].min_n: must be from 1 to 10^12, got 0",
        "p.yaml:13: targets[1].min_n: must be a whole number such as 98000, got 1.5",
        "p.yaml:14: targets[1].max_relative_error.blow: must be a known key; did you mean `below`?",
        "p.yaml:15: targets[1].required: must be true or false, got 'yes'",
        "p.yaml:16: targets[2].fpr: must differ from every other target's, got '10%'",
        "p.yaml:16: targets[2].max_relative_error: must be a number such as 0.001, 1e-3 or 0.1%, got 'x'",
        "p.yaml:17: data.benign_label: must be a number or a word of the label column, or a list of those, got [0, 0]",
        "p.yaml:17: data.label: must be text, got 3; put it in quotes",
        "p.yaml:17: data.score: must be one line of 1 to 200 printable characters, got ''",
        "p.yaml:18: checks.overlapp: must be a known key; did you mean `overlap`?",
        "p.yaml:20: waivers[0].expires: must be a date written as 2026-12-31, got 'tomorrow'",
        "p.yaml:21: tragets: must be a known key; did you mean `targets`?",
        "p.yaml:22: name: must be given once, got it again (first on line 2); delete one",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tragets: []", "targets"),
        ("Confidence: 0.9", "confidence"),
        ("calibration: {knot: 100}", "knots"),
        ("contract: [{fpr: 0.1, score: 0.1, scores: 1}]", "score"),
        ("data: {lable: x}", "label"),
        ("waivers: [{chek: x}]", "check"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_nearest_one(written: str, meant: str) -> None:
    assert any(line.endswith(f"must be a known key; did you mean `{meant}`?") for line in errors(policy_text(written)))


def test_a_key_like_no_other_is_answered_with_all_that_are_known() -> None:
    known = "fit, holdout, benign, split, malicious, connect, score, calibrated, label, benign_label, segment, group, "
    known += "id, timestamp, count"
    assert errors(policy_text("data: {zzz: 1}")) == [f"p.yaml:5: data.zzz: must be a known key; known here: {known}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (policy_text("rule: proven\nrule: observed\n"), "p.yaml:6: rule: must be given once"),
        (policy_text('rule: proven\n"rule": proven\n'), "p.yaml:6: rule: must be given once"),
        (policy_text("data:\n  score: a\n  score: b\n"), "p.yaml:7: data.score: must be given once"),
        (policy_text("", fpr="0.1, fpr: 0.1"), "p.yaml:4: targets[0].fpr: must be given once"),
    ],
)
def test_a_repeated_key_is_refused_wherever_it_stands(text: str, line: str) -> None:
    (found,) = errors(text)
    assert found.startswith(line)
    assert "first on line" in found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "p.yaml:1: must be a mapping that starts with `version: 1`, got nothing"),
        ("# nothing\n", "p.yaml:1: must be a mapping that starts with `version: 1`, got nothing"),
        ("- version: 1\n", "p.yaml:1: must be a mapping that starts with `version: 1`, got a list"),
        ("version 1", "p.yaml:1: must be a mapping that starts with `version: 1`, got 'version 1'"),
        (
            "version: 1\nname: x\ntargets: []\n",
            "p.yaml:3: targets: must list at least one target: nothing measured is never a pass, got an empty list",
        ),
        ("version: 1\nname: x\ntargets:\n", "p.yaml:3: targets: must be a list, got nothing"),
        ("version: 1\nname: x\ntargets: [5]\n", "p.yaml:3: targets[0]: must be a mapping of keys and values, got 5"),
        ("version: 1\nname: x\n", "p.yaml:1: targets: must be given"),
        (policy_text("contract: []\n"), "p.yaml:5: contract: must list at least one anchor, got an empty list"),
        (policy_text("data:\n"), "p.yaml:5: data: must be a mapping of keys and values, got nothing"),
        (policy_text("calibration: {domain: [0]}"), "must be two numbers, such as [0.0, 1.0], got [0]"),
        (policy_text("calibration: {domain: [0, 1, 2]}"), "must be two numbers, such as [0.0, 1.0], got [0, 1, 2]"),
        (policy_text("calibration: {domain: [0, x]}"), "p.yaml:5: calibration.domain[1]: must be a number such as"),
    ],
)
def test_what_is_missing_or_empty_is_named(text: str, line: str) -> None:
    (found,) = errors(text)
    assert line in found


@pytest.mark.parametrize("written", ["true", "1.0", "'1'", "2", "", "[1]"])
def test_only_the_whole_number_1_is_version_1(written: str) -> None:
    (found,) = errors(policy_text().replace("version: 1", f"version: {written}"))
    assert found.startswith("p.yaml:1: version: must be 1, got ")


@pytest.mark.parametrize("name", ['"a\\nb"', '"\\x07"', '"\\u202e"', "''", "'  '", "a" * 201, "|\n  a\n  b"])
def test_text_is_one_printable_line(name: str) -> None:
    (found,) = errors(policy_text().replace("name: x", f"name: {name}"))
    assert found.startswith("p.yaml:2: name: must be one line of 1 to 200 printable characters, got '")
    assert found.isprintable()


@pytest.mark.parametrize("key", ['"a\\nb"', '"\\x1b[31m"', '"\\ud800"', "a" * 900, "''", "'::error::'", "a.b"])
def test_a_strange_key_cannot_break_or_forge_a_line(key: str) -> None:
    (found,) = errors(policy_text(f"? {key}\n: 1\n"))
    assert re.match(r"p\.yaml:5: ['a]", found)
    assert found.isprintable()
    assert len(found) < 250


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    ["0.001", "1e-3", "1E-3", "1.0e-3", "0.1%", "'0.1%'", '"1e-3"', ".001", "+0.001", "0.00100", "10e-2%", "' 0.001 '"],
)
def test_a_rate_is_the_exact_decimal_that_was_written(written: str) -> None:
    (target,) = read(policy_text(fpr=written)).targets
    assert target.fpr == Decimal("0.001")
    assert str(target.check) == "fpr@0.1%"


def test_every_digit_of_a_rate_is_kept() -> None:
    policy = read(policy_text("confidence: 0.9999999999999999999999\n", error="33.33333333333333333333333%"))
    assert policy.confidence == Decimal("0.9999999999999999999999")
    assert policy.targets[0].max_relative_error.above == Decimal("0.3333333333333333333333333")


@pytest.mark.parametrize(
    "written", ["98000", "98_000", "'98000'", "'98_000'", "9.8e4", "98e3", "98000.0", "+98000", "98000."]
)
def test_a_count_may_be_written_in_any_usual_way(written: str) -> None:
    (target,) = read(policy_text(min_n=written)).targets
    assert (target.min_n, type(target.min_n)) == (98_000, int)


NOT_NUMBERS = [
    *[".nan", ".inf", "-.inf", "nan", "true", "false", "null", "''", "ten", "no", "on", "[0.1]"],
    *["0x10", "0o17", "0b1", "010", "00.1", "1:30", "2026-12-31", "1e99999999999999999999"],
    *["'0,5'", "'0.1 %'", "'%'", "1e", "--1", "0.1.2", "_1", "½", "١"],
]


@pytest.mark.each_run(30)
@pytest.mark.parametrize("key", ["fpr", "min_n", "error"])
@pytest.mark.parametrize("written", NOT_NUMBERS)
def test_what_is_not_a_number_is_refused_as_one(key: str, written: str) -> None:
    """Among them every value that YAML 1.1 reads as a number, a date or a truth behind the writer's back."""
    (found,) = errors(policy_text(**{key: written}))
    name = "max_relative_error" if key == "error" else key
    kind = "a whole number such as 98000" if key == "min_n" else "a number such as 0.001, 1e-3 or 0.1%"
    assert found.startswith(f"p.yaml:4: targets[0].{name}: must be {kind}, got ")


@pytest.mark.parametrize(
    ("written", "must"),
    [
        ("1" + "0" * 400, "must be written in at most 28 characters"),
        ("9" * 5000, "must be written in at most 28 characters"),
        ("0." + "1" * 40, "must be written in at most 28 characters"),
        ("1e400", "must be a number of ordinary size"),
        ("1e-400", "must be a number of ordinary size"),
        ("'1e400'", "must be a number of ordinary size"),
        ("1e999%", "must be a number of ordinary size"),
    ],
)
def test_numbers_of_absurd_size_are_refused_without_being_expanded(written: str, must: str) -> None:
    for key in ("fpr", "min_n", "error"):
        (found,) = errors(policy_text(**{key: written}))
        assert must in found
        assert len(found) < 200


@pytest.mark.parametrize("written", ["0", "-5", "0.5", "100%", "1e13", "0e999"])
def test_a_count_is_whole_and_within_reason(written: str) -> None:
    (found,) = errors(policy_text(min_n=written))
    assert found.startswith("p.yaml:4: targets[0].min_n: must be ")


@pytest.mark.parametrize("written", ["0", "-1", "1001", "0%"])
def test_a_tolerance_is_above_0(written: str) -> None:
    (found,) = errors(policy_text(error=written))
    assert found.startswith("p.yaml:4: targets[0].max_relative_error: must be above 0 and at most 1000")


@pytest.mark.parametrize("written", ["0.49", "1", "100%", "95", "-0.95"])
def test_confidence_is_a_fraction_from_a_half(written: str) -> None:
    (found,) = errors(policy_text(f"confidence: {written}\n"))
    assert found.startswith("p.yaml:5: confidence: must be at least 0.5 and below 1, such as 0.95, got ")


@pytest.mark.parametrize("written", ["0.95", "95%", "'0.95'", "9.5e-1"])
def test_confidence_may_be_written_as_percent(written: str) -> None:
    assert read(policy_text(f"confidence: {written}\n")).confidence == Decimal("0.95")


# --- traps of YAML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["no", "on", "yes", "off", "010", "1:30", "2026-12-31", "0x10", ".inf", "tRuE"])
def test_a_word_stays_the_word_that_was_written(written: str) -> None:
    """YAML 1.1 would read a truth, an octal, a sexagesimal, a date or a number."""
    policy = read(policy_text(f"data: {{score: {written}, label: {written}, benign_label: {written}}}\n"))
    assert (policy.data.score, policy.data.label, policy.data.benign_label) == (written, written, (written,))


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("[0, false, BENIGN]", ("0", "false", "BENIGN")),
        ("[0.0]", ("0.0",)),
        ("0", "0"),
        ("1.0", "1.0"),
        ("benign", "benign"),
        ("'0'", "0"),
        ("true", "true"),
        ("False", "false"),
        ("-1", "-1"),
    ],
)
def test_the_benign_label_may_be_a_number_a_word_a_truth_or_a_list(written: str, label: str | tuple[str, ...]) -> None:
    expected = (label,) if isinstance(label, str) else label
    assert read(policy_text(f"data: {{benign_label: {written}}}\n")).data.benign_label == expected


@pytest.mark.parametrize("written", ["[]", "[0, '0']", "[0, [1]]", "{a: 1}", "[null]", "['']"])
def test_a_list_of_benign_labels_names_each_once(written: str) -> None:
    with pytest.raises(GateError, match=r"data\.benign_label: must be a number or a word of the label column"):
        read(policy_text(f"data: {{benign_label: {written}}}\n"))


@pytest.mark.parametrize("written", ["yes", "no", "on", "1", "0", "'true'", "null"])
def test_required_is_true_or_false_and_nothing_like_it(written: str) -> None:
    (found,) = errors(policy_text(error=f"0.5, required: {written}"))
    assert found.startswith("p.yaml:4: targets[0].required: must be true or false, got ")


def test_aliases_are_refused_before_they_explode() -> None:
    """Ten levels of ten would be 10^10 values."""
    laughs = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10) if i else 'ha'}]\n" for i in range(10))
    assert errors(laughs) == ["p.yaml:2: must not use YAML aliases, got *a0; write it out"]


def test_merge_keys_are_no_way_around_it() -> None:
    assert errors(policy_text("a: &a {b: 1}\ndata:\n  <<: *a\n")) == [
        "p.yaml:7: must not use YAML aliases, got *a; write it out"
    ]
    (found,) = errors(policy_text("data:\n  <<: {score: a}\n"))
    assert found.startswith("p.yaml:6: data.'<<': must be a known key")


@pytest.mark.parametrize("text", ["[" * 50_000, "{a: " * 50_000, "- " * 50_000, "? " * 50_000, "[" * 21 + "]" * 21])
def test_deep_nesting_is_refused_before_it_exhausts_the_stack(text: str) -> None:
    assert errors(text) == ["p.yaml:1: must not nest deeper than 20 levels"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b: c\n", "p.yaml:1: must be YAML, got an error: mapping values are not allowed here"),
        (policy_text("\tx: 1\n"), "p.yaml:5: must be YAML, got an error: while scanning for the next token, found"),
        (policy_text("a: [1, 2\n"), "p.yaml:6: must be YAML, got an error: while parsing a flow sequence, expected"),
        (policy_text("---\na: 1\n"), "p.yaml:5: must be YAML, got an error: expected a single document in the stream"),
        (policy_text("a: \x00\n"), "p.yaml:5: must be YAML, got the character U+0000; remove it"),
        (policy_text("a: \x1b[31m\n"), "p.yaml:5: must be YAML, got the character U+001B; remove it"),
        (policy_text('a: "\\UFFFFFFFF"\n'), "p.yaml:5: must be YAML, got a number out of range"),
        (f"%YAML 1.{'1' * 5000}\n---\na: 1\n", "p.yaml:1: must be YAML, got a number out of range"),
        (policy_text("? [a, b]\n: 1\n"), "p.yaml:5: must have plain words as keys, got a list or mapping as one"),
        (policy_text("a: !!python/object/apply:os.getcwd []\n"), "p.yaml:5: a: must be a known key"),
    ],
)
def test_text_that_is_not_plain_yaml_is_refused_with_its_line(text: str, line: str) -> None:
    (found,) = errors(text)
    assert found.startswith(line)
    assert found.isprintable()


# --- coherence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contract", "wrong"),
    [
        ("[{fpr: 0.1, score: 0.1}, {fpr: 0.1, score: 0.3}]", ["contract[1].fpr: must fall strictly"]),
        ("[{fpr: 0.1, score: 0.1}, {fpr: 0.5, score: 0.3}]", ["contract[1].fpr: must fall strictly"]),
        ("[{fpr: 0.1, score: 0.3}, {fpr: 0.01, score: 0.3}]", ["contract[1].score: must rise strictly"]),
        ("[{fpr: 1, score: 0.1}, {fpr: 0.1, score: 0.3}]", ["contract[0].fpr: must fall strictly from below 1"]),
        ("[{fpr: 0.1, score: 0.1}, {fpr: 1e-10, score: 0.3}]", ["contract[1].fpr: must fall strictly"]),
        ("[{fpr: 0.1, score: 0}]", ["contract[0].score: must rise strictly from above 0"]),
        ("[{fpr: 0.1, score: 0.99}]", ["contract[0].score: must rise strictly from above 0 to below 0.99"]),
        ("[{fpr: 0.1, score: 0.5}, {fpr: 0.2, score: 0.4}]", ["contract[1].fpr", "contract[1].score"]),
        ("[{fpr: 0.1, score: 0.1234567890123}]", ["contract[0].score: must have at most 12 significant digits"]),
    ],
)
def test_a_contract_falls_in_rate_and_rises_in_score(contract: str, wrong: list[str]) -> None:
    found = errors(policy_text(f"contract: {contract}\n"))
    assert len(found) == len(wrong)
    assert all(line.startswith(f"p.yaml:5: {start}") for line, start in zip(found, wrong, strict=True))


def test_a_target_is_an_anchor_of_the_contract() -> None:
    (found,) = errors(policy_text(fpr="0.2"))
    known = "10%, 1%, 0.1%, 0.01%, 0.001%, 0.0001%"
    assert found == f"p.yaml:4: targets[0].fpr: must be an anchor of the contract ({known}), got 0.2"
    own = "contract: [{fpr: 5%, score: 0.2}, {fpr: 0.5%, score: 0.4}]\n"
    assert read(policy_text(own, fpr="0.05")).targets[0].fpr == Decimal("0.05")
    assert errors(policy_text(own)) == [
        "p.yaml:4: targets[0].fpr: must be an anchor of the contract (5%, 0.5%), got 0.1"
    ]


def test_no_target_is_judged_twice_however_it_is_written() -> None:
    again = "  - {fpr: 10%, min_n: 5, max_relative_error: 1}\n"
    assert errors(policy_text(again)) == ["p.yaml:5: targets[1].fpr: must differ from every other target's, got '10%'"]


def test_an_error_in_one_target_does_not_hide_an_incoherence_in_another() -> None:
    """One run lists both, so that nobody fixes one error only to meet the next."""
    more = "  - {fpr: 0.2, min_n: 5, max_relative_error: 1}\n  - {fpr: 1%, min_n: x, max_relative_error: 1}\n"
    assert [line.split(": must")[0] for line in errors(policy_text(more, fpr="x"))] == [
        "p.yaml:4: targets[0].fpr",
        "p.yaml:5: targets[1].fpr",
        "p.yaml:6: targets[2].min_n",
    ]


def test_targets_are_not_held_against_a_contract_that_cannot_be_read() -> None:
    (found,) = errors(policy_text("contract: [{fpr: x, score: 0.1}]\n"))
    assert found.startswith("p.yaml:5: contract[0].fpr: must be a number")


def test_a_policy_built_in_python_is_held_to_the_same_rules() -> None:
    target = Target(fpr=Decimal("0.1"), min_n=5, max_relative_error=Tolerance(above=Decimal(1), below=Decimal(1)))
    assert POLICY(version=1, name="x", targets=(target,)).targets == (target,)
    with pytest.raises(ValidationError, match="must differ from every other target's"):
        POLICY(version=1, name="x", targets=(target, target))
    with pytest.raises(ValidationError, match="must list at least one target"):
        POLICY(version=1, name="x", targets=())


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "above", "below"),
    [
        ("0.5", "0.5", "0.5"),
        ("50%", "0.5", "0.5"),
        ("'0.5'", "0.5", "0.5"),
        ("{above: 0.5, below: 1}", "0.5", "1"),
        ("{above: 20%, below: 1e1}", "0.2", "10"),
    ],
)
def test_a_tolerance_is_one_number_or_one_for_each_side(written: str, above: str, below: str) -> None:
    error = read(policy_text(error=written)).targets[0].max_relative_error
    assert (error.above, error.below) == (Decimal(above), Decimal(below))


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("{above: 0.5}", "p.yaml:4: targets[0].max_relative_error.below: must be given"),
        ("{above: 0.5, below: -1}", "p.yaml:4: targets[0].max_relative_error.below: must be above 0"),
        ("[0.5, 1]", "p.yaml:4: targets[0].max_relative_error: must be a number such as 0.001, 1e-3 or 0.1%, got [0.5"),
    ],
)
def test_a_tolerance_of_another_shape_is_refused(written: str, line: str) -> None:
    (found,) = errors(policy_text(error=written))
    assert found.startswith(line)


def waiver(**changed: str) -> str:
    fields = {"check": "fpr@0.1", "reason": "known", "owner": "'@team'", "expires": "2026-12-31", **changed}
    return policy_text(f"waivers:\n  - {{{', '.join(f'{key}: {value}' for key, value in fields.items() if value)}}}\n")


@pytest.mark.parametrize("expires", ["2026-12-31", "'2026-12-31'"])
def test_a_waiver_has_a_check_a_reason_an_owner_and_a_last_day(expires: str) -> None:
    (found,) = read(waiver(expires=expires)).waivers
    said = (str(found.check), found.reason, found.owner, found.expires)
    assert said == ("fpr@10%", "known", "@team", date(2026, 12, 31))


@pytest.mark.parametrize("check", ["fpr@0.1", "fpr@10%", "fpr@1e-1", "fpr@0.10", "'fpr@.1'"])
def test_a_waiver_names_its_check_however_the_rate_is_written(check: str) -> None:
    policy = read(waiver(check=check))
    assert policy.waivers[0].check == policy.targets[0].check == CheckName("fpr", Decimal("0.1"))
    assert str(policy.waivers[0].check) == "fpr@10%"


@pytest.mark.parametrize(
    ("check", "canonical"),
    [
        ("overlap", "overlap"),
        ("fpr@0.01/language=de", "fpr@1%/language=de"),
        ("tpr@1e-3", "tpr@0.1%"),
        ("tpr-drop@.1%", "tpr-drop@0.1%"),
        ("granularity@1e-2%", "granularity@0.01%"),
    ],
)
def test_other_checks_are_named_with_their_rates_in_percent(check: str, canonical: str) -> None:
    assert str(read(waiver(check=check)).waivers[0].check) == canonical


@pytest.mark.parametrize(
    ("check", "must"),
    [
        ("fpr@x", "must be the name of a check, such as fpr@0.01%, got 'fpr@x'"),
        ("fpr@0", "must be the name of a check, such as fpr@0.01%, got 'fpr@0'"),
        ("fpr@200%", "must be the name of a check, such as fpr@0.01%, got 'fpr@200%'"),
        ("fprr@1%", "must name a check that gate makes (baseline, direction, duplicates, "),
    ],
)
def test_a_waiver_of_what_is_no_check_is_refused(check: str, must: str) -> None:
    (found,) = errors(waiver(check=check))
    assert found.startswith(f"p.yaml:6: waivers[0].check: {must}")


@pytest.mark.parametrize(
    "expires",
    ["tomorrow", "2026-02-30", "2026-13-01", "20261231", "2026-W53-4", "31.12.2026", "2026-12-31T00:00:00", "true"],
)
def test_a_waiver_expires_on_a_real_day(expires: str) -> None:
    (found,) = errors(waiver(expires=expires))
    assert found.startswith("p.yaml:6: waivers[0].expires: must be a date written as 2026-12-31, got ")


@pytest.mark.parametrize("key", ["check", "reason", "owner", "expires"])
def test_a_waiver_without_any_of_its_keys_is_refused(key: str) -> None:
    assert errors(waiver(**{key: ""})) == [f"p.yaml:6: waivers[0].{key}: must be given"]


def test_what_a_policy_leaves_out_has_its_documented_default() -> None:
    policy = read(policy_text())
    assert (policy.rule, policy.confidence, policy.waivers) == ("proven", Decimal("0.95"), ())
    assert policy.calibration.model_dump() == {
        "knots": 10_000,
        "plotting_position": "filliben",
        "ties": "conservative",
        "domain": (0.0, 1.0),
    }
    none = dict.fromkeys(("calibrated", "label", "segment", "group", "id", "timestamp", "count"))
    assert policy.data.model_dump() == {"score": "score", "benign_label": ("0",), **none}
    assert policy.targets[0].required is True
    assert policy.anchors == Contract()


def models(value: object) -> list[BaseModel]:
    inside = [value] if isinstance(value, BaseModel) else list(value) if isinstance(value, tuple) else []
    nested = [item for model in inside if isinstance(model, BaseModel) for item in model.__dict__.values()]
    return [model for model in inside if isinstance(model, BaseModel)] + [m for item in nested for m in models(item)]


def test_nothing_in_a_policy_can_be_changed() -> None:
    found = models(read(waiver()))
    assert {type(model).__name__ for model in found} == {
        "Policy",
        "Checks",
        "OverlapSettings",
        "ServedSettings",
        "UnreadSettings",
        "DuplicatesSettings",
        "DirectionSettings",
        "ExchangeabilitySettings",
        "GranularitySettings",
        "FloorSettings",
        "Calibration",
        "Columns",
        "ContractPoint",
        "Target",
        "Tolerance",
        "Waiver",
    }
    for model in found:
        for key in type(model).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(model, key, getattr(model, key))


# --- files --------------------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(GateError) as caught:
        load_policy(path)
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith(str(path))
    return line.removeprefix(str(path))


def test_a_file_is_read_with_or_without_a_byte_order_mark_and_in_any_line_ending(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    for raw in (DEFAULT.encode(), b"\xef\xbb\xbf" + DEFAULT.encode(), DEFAULT.replace("\n", "\r\n").encode()):
        path.write_bytes(raw)
        assert load_policy(path).policy == default_policy().policy


def test_a_document_carries_its_text_its_digest_and_its_name(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text("# kept\n"))
    document = load_policy(str(path))
    assert (document.text, document.path) == (policy_text("# kept\n"), str(path))
    assert document.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"version: 1\nname: caf\xe9\n", ":2: must be UTF-8 text, got byte 0xe9; save it as UTF-8"),
        (DEFAULT.encode("utf-16"), ":1: must be UTF-8 text, got byte 0xff; save it as UTF-8"),
        (b"#" * (MAX_BYTES + 1), ": must be a policy of at most 200,000 bytes, got more; is this a score file?"),
        (b"", ":1: must be a mapping that starts with `version: 1`, got nothing"),
        (b"name: \x00\n", ":1: must be YAML, got the character U+0000; remove it"),
        (b"\x93NUMPY\x01\x00", ":1: must be UTF-8 text, got byte 0x93; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(raw)
    assert refusal(path) == message


def test_the_size_limit_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text().ljust(MAX_BYTES, "\n"))
    assert load_policy(path).policy.name == "x"


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    said, cure = ": must be a readable policy file, got: {}; {}", "check the name, or write one with `gate init`"
    assert refusal(tmp_path / "missing.yaml") == said.format("No such file or directory", cure)
    assert refusal(tmp_path) == said.format("Is a directory", cure)
    with pytest.raises(GateError, match="must be a readable policy file, got: embedded null byte"):
        load_policy("policy\0.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(DEFAULT)
    path.chmod(0)
    assert refusal(path) == ": must be a readable policy file, got: Permission denied"


def test_keys_set_elsewhere_replace_the_policys() -> None:
    document = parse_policy(policy_text("data: {score: s, label: l, benign_label: ok}\n"), "p.yaml")
    assert document.override(()) == document
    changed = document.override(("data.score=raw", "data.benign_label=0"))
    none = dict.fromkeys(("calibrated", "segment", "group", "id", "timestamp", "count"))
    assert changed.policy.data.model_dump() == {"score": "raw", "label": "l", "benign_label": ("0",), **none}
    assert (changed.text, changed.policy.targets) == (document.text, document.policy.targets)


@pytest.mark.parametrize("name", ["''", "' '", '"a\\nb"', '"\\x1b[31m"', "a" * 201])
def test_a_column_name_is_one_printable_line(name: str) -> None:
    with pytest.raises(GateError) as caught:
        default_policy().override([f"data.score={name}"])
    said = r"--set data\.score=.*: data\.score: must be one line of 1 to 200 printable characters, got '"
    assert re.match(said, str(caught.value))
    assert str(caught.value).isprintable()


# --- whatever is written ------------------------------------------------------------------------------------


def parse_or_refuse(text: str) -> Document | None:
    """The property: a document, or a refusal made of single printable lines that name the file."""
    try:
        return parse_policy(text, "p.yaml")
    except GateError as error:
        lines = str(error).split("\n")
    for line in lines:
        assert line.isprintable()
        assert re.match(r"p\.yaml:[1-9][0-9]*: ", line)
    return None


@settings(max_examples=examples(200), deadline=None)
@given(st.text())
def test_any_text_is_a_policy_or_a_clear_refusal(text: str) -> None:
    assert parse_or_refuse(text) is None


TRAPS = [
    *["\t", "\n", "\r", "\x85", "\u2028", "\ufeff", "\x00", "\x7f", '"', "'", '"\\U', "\\x", "#", "%YAML 1.1\n---\n"],
    *["---\n", "...\n", "!!", "!<", "!a!b ", "!%ff", "&a ", "*a", "? ", "- ", "|\n", ">+2\n", "{", "}", "[", "]", ": "],
    *[",", "<<: ", "=", "~", "1e999", "-", ".", "_", "%", "@", "`", "0x1", "010", ".nan", "1" * 50, "null", "true", ""],
]
edits = st.lists(
    st.tuples(
        st.integers(0, len(DEFAULT)),
        st.sampled_from([0, 0, 1, 3, 20, 200]),
        st.one_of(st.sampled_from(TRAPS), st.text(max_size=3)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(400), deadline=None)
@given(edits)
def test_any_edit_of_the_default_is_a_policy_or_a_clear_refusal(changes: list[tuple[int, int, str]]) -> None:
    text = DEFAULT
    for start, length, inserted in changes:
        text = text[:start] + inserted + text[start + length :]
    parse_or_refuse(text)


keys = st.one_of(st.sampled_from(sorted(POLICY.model_fields)), st.text(max_size=9))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["0.1%", "1e-3", "no"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)
DEFAULT_VALUES = yaml.safe_load(DEFAULT)


def places(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


def replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    content = copy.copy(content)
    content[place[0]] = replaced(content[place[0]], place[1:], value)
    return content


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(places(DEFAULT_VALUES)), anything)
def test_any_value_at_any_key_is_a_policy_or_a_clear_refusal(place: tuple[Any, ...], value: Any) -> None:
    parse_or_refuse(json.dumps(replaced(DEFAULT_VALUES, place, value)))


# --- shipped policies and the schema ------------------------------------------------------------------------


def as_json(text: str) -> Any:
    """The values that an editor holds against the schema: dates are text there."""
    return json.loads(json.dumps(yaml.safe_load(text), default=date.isoformat))


VALIDATOR = Draft202012Validator(policy_schema())


def test_three_policies_are_shipped() -> None:
    assert [path.stem for path in SHIPPED] == ["default", "paper", "strict"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_policy_loads_follows_the_schema_and_is_called_as_its_file(path: Path) -> None:
    assert load_policy(path).policy.name == path.stem
    VALIDATOR.validate(as_json(path.read_text()))
    assert path.read_text().startswith("# yaml-language-server: $schema=policy.schema.json\n")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_policy_explains_every_key_where_it_first_sets_it(path: Path) -> None:
    """A comment on that line or right above it explains the key."""
    explained: set[str] = set()
    above = ""
    for line in path.read_text().splitlines():
        content, _, comment = line.partition("#")
        keys = re.findall(r"[{,\s-]*(\w+):\s", content + " ")
        sets_a_value = re.search(r":\s*\S", content) is not None
        if sets_a_value and not set(keys) <= explained:
            assert comment.strip() or above.strip(), line
        explained.update(keys)
        above = comment if not content.strip() else ""
    assert {"version", "rule", "confidence", "ties", "fpr", "min_n", "max_relative_error", "benign_label"} <= explained


def test_the_default_is_the_shipped_default() -> None:
    document = default_policy()
    assert document.text == DEFAULT
    assert (document.policy, document.path) == (load_policy(POLICIES / "default.yaml").policy, "built-in default")


def test_the_papers_policy_asks_for_4_over_r_squared_p_rows() -> None:
    policy = load_policy(POLICIES / "paper.yaml").policy
    assert [float(target.fpr) for target in policy.targets] == [0.1, 0.01, 0.001, 0.0001, 0.00001, 0.000001]
    for target in policy.targets:
        assert target.max_relative_error.above == target.max_relative_error.below
        r, p = Fraction(target.max_relative_error.above), Fraction(target.fpr)
        assert target.min_n == 4 / (r**2 * p)


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(policy_schema())


TYPICAL = [
    policy_text(),
    policy_text(fpr="0.1%", min_n="98_000", error="{above: 50%, below: 1}, required: false"),
    policy_text(fpr="1e-3", min_n="1e6", error="5e-1"),
    policy_text("confidence: 95%\nrule: not-refuted\n"),
    policy_text("contract:\n  - {fpr: 10%, score: 0.1}\n  - {fpr: 1e-2, score: 0.3}\n"),
    policy_text("calibration: {knots: 1_000, plotting_position: mean, ties: average, domain: [-8, 8.5]}\n"),
    policy_text("data: {score: s, label: y, benign_label: benign}\nchecks: {}\n"),
    policy_text("data: {label: null, benign_label: true}\n"),
    waiver(),
    waiver(expires="'2026-12-31'"),
]


@pytest.mark.parametrize("text", TYPICAL)
def test_the_schema_accepts_what_the_loader_accepts(text: str) -> None:
    read(text)
    VALIDATOR.validate(as_json(text))


@pytest.mark.parametrize(
    "text",
    [
        policy_text("tragets: []\n"),
        policy_text("calibration: {knot: 1}\n"),
        policy_text("contract: [{fpr: 0.1, score: 0.1, x: 1}]\n"),
        policy_text("data: {scores: x}\n"),
        policy_text(error="{above: 1, below: 1, x: 1}"),
        policy_text(error="0.5, requires: true"),
        waiver(until="2026-12-31"),
        policy_text("checks: {overlapp: {}}\n"),
        policy_text("rule: porven\n"),
        policy_text("contract: []\n"),
        policy_text(error="half"),
        policy_text(min_n="many"),
        policy_text(fpr="010"),
        "version: 1\nname: x\ntargets: []\n",
        "version: 1\nname: x\n",
        "version: 2\n" + policy_text().partition("\n")[2],
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    """Unknown keys at every level, words where numbers belong, and nothing to judge."""
    errors(text)
    content = yaml.load(text, Loader=yaml.BaseLoader) if "010" in text else as_json(text)
    assert not VALIDATOR.is_valid(content)
