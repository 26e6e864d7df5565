"""`gate init` writes a policy that loads and is worth its name, and a workflow that runs; both or neither."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from small import CLEAN

from gate import planning
from gate.checks import default_policy
from gate.errors import GateError
from gate.policy import rate
from gate.starter import init


def every_line_is_commented(text: str) -> bool:
    """Every key has a comment on its line or, before it, on one of its own."""
    block = text.partition("\ntargets:")[2].partition("\ndata:")[0]
    return all("#" in line for line in block.splitlines() if line.strip())


# --- the policy ---------------------------------------------------------------------------------------------


def test_the_policy_is_the_default_one_where_nothing_is_given() -> None:
    document, default = init.policy(), default_policy()
    assert document.policy == default.policy.model_copy(update={"name": "release"})
    assert document.text.splitlines()[0].startswith("# What a release must show")
    assert "$schema" not in document.text
    assert document.text.endswith("\n")


@pytest.mark.each_run(1)
@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
@pytest.mark.parametrize("targets", ["10%", "1%,0.1%", "0.001, 1e-1", "0.0001%"])
def test_a_tailored_policy_lets_a_sound_release_pass_and_stops_a_bad_one(rule: str, targets: str) -> None:
    """At the rows that it asks for, by the plan's own measure."""
    document = init.policy(targets, rule)
    assert document.policy.rule == rule
    wanted = sorted((rate(name) or Decimal(0) for name in targets.split(",")), reverse=True)
    assert [target.fpr for target in document.policy.targets] == wanted
    assert every_line_is_commented(document.text)
    for planned in planning.plan(document.policy).targets:
        assert planned.strength == "good"
        assert planned.liveness >= 0.95
        assert planned.target.required
    assert ("slips through" in document.text) == (rule == "proven")


@pytest.mark.each_run(1)
@pytest.mark.parametrize("holdout_n", [3316, 20_000, 36_600, 140_000, 2_000_000])
def test_what_the_rows_on_hand_cannot_decide_does_not_block(holdout_n: int) -> None:
    """A required target is one that a sound release passes with these rows; the others are shown."""
    policy = init.policy(holdout_n=holdout_n).policy
    assert [target.fpr for target in policy.targets] == [target.fpr for target in default_policy().policy.targets]
    planned = planning.plan(policy, holdout_n=holdout_n).targets
    assert any(target.target.required for target in planned)
    for target in planned:
        assert target.target.required == (target.target.min_n <= holdout_n) == (target.liveness >= 0.95)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"targets": "5%"}, "--targets: must be different anchors of the contract (10%, 1%, "),
        ({"targets": "1%,0.01"}, "got '0.01'"),
        ({"targets": "1%,"}, "got ''"),
        ({"targets": "x\n::error::y"}, "got 'x\\n::error::y'"),
        ({"holdout_n": 400}, "--holdout-n: must be at least 3,316 for any of these targets, got 400; hold out more"),
    ],
)
def test_a_policy_that_could_not_judge_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(GateError, match=re.escape(sentence)):
        init.policy(**given)  # type: ignore[arg-type]


# --- the workflow -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", ["acme", "acme/gate", "acme/gate@", "a/b@c d", "a/b@c\n      - run: x", "a/b@${{ x }}"]
)
def test_an_action_that_is_none_is_refused(action: str) -> None:
    with pytest.raises(GateError, match="--action: must be OWNER/REPO@REF, got "):
        init.workflow(action)


# --- the command --------------------------------------------------------------------------------------------


def test_the_clean_environment_has_no_paths_of_its_own() -> None:
    """The tests above put packages in front of gate's own, which only works where nothing else does."""
    assert "PYTHONPATH" not in CLEAN
