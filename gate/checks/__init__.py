"""One file for each check: its settings in the policy, what it measures, its evidence as the record stores it, how it
judges, what it says. `CHECKS` lists them in the order of a report."""

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
)
from gate.checks.check import Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Policy
from gate.stored import Section

CHECKS: tuple[Check, ...] = (
    fpr.CHECK,
    ranges.CHECK,
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

EVERY = (*CHECKS, system.CHECK)  # that of a system is about all detectors, and in the record of none
NOT_MEASURED = "not-measured"


@cache
def parts_model(checks: tuple[Check, ...]) -> type[Section]:
    """The type of what is measured: one field for each check, null where there was nothing to measure."""
    fields: dict[str, Any] = {check.key: (check.evidence | None, None) for check in checks}
    model: type[Section] = create_model("Parts", __base__=Section, __doc__="What each check measured.", **fields)
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
    return policies.with_checks(fields, frozenset(name for check in (*checks, system.CHECK) for name in check.names))


if TYPE_CHECKING:
    Parts = Section  # whose fields are those of CHECKS
else:
    Parts = parts_model(CHECKS)
POLICY = policy_model(CHECKS)


# The functions of `gate.policy` with the model that knows these checks.
load_policy = partial(policies.load, model=POLICY)
find_policy = partial(policies.find, model=POLICY)
parse_policy = partial(policies.parse, model=POLICY)
default_policy = partial(policies.load_default, POLICY)
policy_schema = partial(policies.schema, POLICY)


def measure(case: Case, checks: tuple[Check, ...] = CHECKS) -> Section:
    """What every check measures of a case."""
    return parts_model(checks)(**{check.key: check.measure(case) for check in checks})


@cache
def reasons() -> dict[str, str]:
    """Every reason code in words."""
    known = {code: words for check in EVERY for code, words in check.reasons.items()}
    return known | {NOT_MEASURED: "not measured"}


def owner(name: CheckName) -> Check | None:
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
