"""Ranges and the interval in a policy: read exactly, or refused on their line."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gate.checks import parse_policy, policy_schema
from gate.errors import GateError
from gate.names import in_percent
from gate.policy import Policy, Range

HEAD = "version: 1\nname: x\ntargets:\n  - {fpr: 0.1, min_n: 100, max_relative_error: 0.5}\n"
RANGE = "{from: 10%, to: 0.1%, min_n: 109000, max_relative_error: 0.5}"


def read(text: str) -> Policy:
    return parse_policy(HEAD + text, "p.yaml").policy


def errors(text: str) -> list[str]:
    with pytest.raises(GateError) as caught:
        parse_policy(HEAD + text, "p.yaml")
    return str(caught.value).split("\n")


def test_a_range_has_exact_ends_a_tolerance_and_a_name() -> None:
    """Its check has one name, as reports and waivers spell it, for every way to write its rates."""
    policy = read(
        "ranges:\n"
        f"  - {RANGE}\n"
        "  - {from: 0.05, to: 1e-4, min_n: 1e6, max_relative_error: {above: 0.5, below: 1}, required: false}\n"
        'waivers:\n  - {check: "fpr@0.1..1e-3", reason: r, owner: o, expires: 2026-12-31}\n'
        '  - {check: "fpr@5%..0.01%/language=de", reason: r, owner: o, expires: 2026-12-31}\n'
    )
    one, other = policy.ranges
    assert (one.start, one.stop, one.min_n, one.required) == (Decimal("0.1"), Decimal("0.001"), 109_000, True)
    assert (one.max_relative_error.above, one.max_relative_error.below) == (Decimal("0.5"), Decimal("0.5"))
    assert (other.start, other.stop, other.required) == (Decimal("0.05"), Decimal("0.0001"), False)
    assert [str(judged.check) for judged in policy.ranges] == ["fpr@10%..0.1%", "fpr@5%..0.01%"]
    assert [str(waiver.check) for waiver in policy.waivers] == ["fpr@10%..0.1%", "fpr@5%..0.01%/language=de"]


@given(st.integers(1, 999), st.integers(0, 9))
def test_percent_is_exact(digits: int, places: int) -> None:
    rate = Decimal(digits).scaleb(-3 - places)
    text = in_percent(rate)
    assert Decimal(text.removesuffix("%")) / 100 == rate
    assert "E" not in text


def test_without_ranges_nothing_changes() -> None:
    policy = read("")
    assert policy.ranges == ()
    assert policy.interval == "clopper-pearson"
    assert read("interval: sequential\n").interval == "sequential"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ranges: [{from: 0.1%, to: 10%, min_n: 1, max_relative_error: 1}]", "ranges[0].to: must be below the rate in"),
        ("ranges: [{from: 1%, to: 1%, min_n: 1, max_relative_error: 1}]", "ranges[0].to: must be below the rate in"),
        (
            "ranges: [{from: 20%, to: 1%, min_n: 1, max_relative_error: 1}]",
            "ranges[0].from: must lie inside the contract, from 10% to 0.0001%",
        ),
        (
            "ranges: [{from: 10%, to: 1e-7, min_n: 1, max_relative_error: 1}]",
            "ranges[0].to: must lie inside the contract, from 10% to 0.0001%",
        ),
        ("ranges: [{from: 1%, to: 0.1234567890123%, min_n: 1, max_relative_error: 1}]", "must have at most 12 signif"),
        ("ranges: [{from: 1%, to: 0.1%, min_n: 0, max_relative_error: 1}]", "ranges[0].min_n: must be from 1 to"),
        ("ranges: [{from: 1%, to: 0.1%, min_n: 1, max_relative_error: 0}]", "must be above 0 and at most 1000"),
        ("ranges: [{from: 1%, min_n: 1, max_relative_error: 1}]", "ranges[0].to: must be given"),
        ("ranges: [{form: 1%, to: 0.1%, min_n: 1, max_relative_error: 1}]", "did you mean `from`?"),
        ("ranges: [{start: 1%, to: 0.1%, min_n: 1, max_relative_error: 1}]", "ranges[0].start: must be a known key"),
        ("ranges: 3", "ranges: must be a list"),
        (f"ranges: [{', '.join([RANGE] * 2)}]", "ranges[1].from: must differ from every other range's"),
        (f"ranges: [{', '.join([RANGE] * 11)}]", "ranges: must list at most 10 ranges"),
        ("interval: wald", "interval: must be 'clopper-pearson' or 'sequential'"),
        (
            "checks: {segments: {targets: [10%], min_n: 1, max_relative_error: 0.1, ranges: [{from: 10%, to: 1%}]}}",
            "checks.segments.max_relative_error: must be at least 0.25 where segments are judged along ranges",
        ),
        (
            "checks: {segments: {targets: [10%], min_n: 1, max_relative_error: 1, ranges: [{from: 1%, to: 10%}]}}",
            "checks.segments.ranges[0].to: must be below the rate in",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: str) -> None:
    found = errors(text + "\n")
    assert any(line in entry and entry.startswith("p.yaml:5: ") for entry in found), found


def test_no_bound_for_groups_holds_at_every_look() -> None:
    """Neither where the policy names the column nor where the command line sets it."""
    text = "interval: sequential\ndata: {group: tenant}\n"
    (line,) = errors(text)
    assert line == (
        "p.yaml:5: interval: must be clopper-pearson where data.group names a column: no bound for rows in groups "
        "holds at every look, got 'sequential'"
    )
    document = parse_policy(HEAD + "interval: sequential\n", "p.yaml")
    document.require_columns()
    with pytest.raises(GateError, match=r"p\.yaml:5: interval: must be clopper-pearson"):
        document.override(["data.group=tenant"])


def test_segments_take_ranges_too() -> None:
    checks: Any = read(
        "checks: {segments: {targets: [10%], min_n: 1, max_relative_error: 0.5, ranges: [{from: 10%, to: 1%}]}}\n"
    ).checks
    check = checks.segments
    assert check is not None
    assert [str(span.check) for span in check.ranges] == ["fpr@10%..1%"]


def test_the_schema_spells_the_keys_as_the_file_does() -> None:
    validator = Draft202012Validator(policy_schema())
    good = {"from": "10%", "to": 0.001, "min_n": 5, "max_relative_error": 0.5}
    whole = {"version": 1, "name": "x", "targets": [{"fpr": 0.1, "min_n": 1, "max_relative_error": 1}]}
    assert validator.is_valid({**whole, "ranges": [good], "interval": "sequential"})
    assert not validator.is_valid({**whole, "ranges": [{**good, "start": "10%"}]})
    assert not validator.is_valid({**whole, "ranges": [{"to": "10%", "min_n": 5, "max_relative_error": 0.5}]})
    assert not validator.is_valid({**whole, "interval": "wald"})
    assert Range.model_validate(good).model_dump(by_alias=True, mode="json")["from"] == "0.1"
