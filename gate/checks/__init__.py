"""The checks, one file for each: its settings in the policy, what it measures, its evidence as the record stores it,
how it judges, what it says. `CHECKS` lists them in the order of a report."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from gate import policy as policies
from gate.checks import (
    baseline,
    detection,
    direction,
    drop,
    duplicates,
    exchangeability,
    floor,
    fpr,
    freshness,
    granularity,
    overlap,
    ranges,
    reuse,
    segments,
    served,
    system,
    unread,
)
from gate.checks.check import NOT_MEASURED, Case, Check, CheckOf, Evidence, Finding, Measured
from gate.names import CheckName
from gate.policy import Policy

CHECKS: tuple[Check, ...] = (
    fpr.CHECK,
    ranges.CHECK,
    unread.CHECK,
    overlap.CHECK,
    duplicates.CHECK,
    exchangeability.CHECK,
    granularity.CHECK,
    floor.CHECK,
    freshness.CHECK,
    reuse.CHECK,
    detection.CHECK,
    direction.CHECK,
    baseline.CHECK,
    drop.CHECK,
    segments.CHECK,
    served.CHECK,
)

# The check of a system is about all detectors, and stands in no detector's record.
EVERY: tuple[CheckOf[Any, Any], ...] = (*CHECKS, system.CHECK)


@cache
def parts_model(checks: tuple[Check, ...]) -> type[Measured]:
    """The type of what these checks measure."""
    fields: dict[str, Any] = {check.key: (check.evidence | None, None) for check in checks}
    model: type[Measured] = create_model("Parts", __base__=Measured, __doc__="What each check measured.", **fields)
    return model


@cache
def policy_model(checks: tuple[Check, ...]) -> type[Policy]:
    """The policy that has the settings of these checks, and knows what waivers may name."""
    fields: dict[str, tuple[Any, Any]] = {}
    for check in checks:
        if check.settings is not None and check.default is not None:
            fields[check.key] = (check.settings, check.default)
        elif check.settings is not None:
            fields[check.key] = (check.settings | None, Field(default=None, description=check.unasked))
    names = {name for check in checks for name in check.names}
    return policies.with_checks(fields, frozenset(names | {*system.CHECK.names}))


if TYPE_CHECKING:
    Parts = Measured  # its fields are those of CHECKS
else:
    Parts = parts_model(CHECKS)
POLICY = policy_model(CHECKS)


# The functions of `gate.policy` with the model that knows these checks.
load_policy = partial(policies.load, model=POLICY)
find_policy = partial(policies.find, model=POLICY)
parse_policy = partial(policies.parse, model=POLICY)
default_policy = partial(policies.load_default, POLICY)
policy_schema = partial(policies.schema, POLICY)


def measure(case: Case, checks: tuple[Check, ...] = CHECKS) -> Measured:
    """What every check measures of a case."""
    return parts_model(checks)(**{check.key: check.measure(case) for check in checks})


@cache
def reasons() -> dict[str, str]:
    """Every reason code in words."""
    known = {code: words for check in EVERY for code, words in check.reasons.items()}
    return known | {NOT_MEASURED: "not measured"}


def owner(name: CheckName) -> CheckOf[Any, Any] | None:
    """The check that gives findings of this name."""
    return next((check for check in EVERY if name.family in check.names), None)


__all__ = [
    "CHECKS",
    "NOT_MEASURED",
    "Case",
    "Check",
    "Evidence",
    "Finding",
    "Parts",
    "default_policy",
    "find_policy",
    "load_policy",
    "measure",
    "owner",
    "parse_policy",
    "policy_model",
    "policy_schema",
    "reasons",
]
