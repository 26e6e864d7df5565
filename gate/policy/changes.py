"""The changes between two policies: weaker, stricter or only other. It reads policies alone and judges no release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gate.names import CheckName, in_percent
from gate.policy.model import Policy, Waiver
from gate.policy.targets import Range, Target
from gate.words import percent, shown

_SIDES = ("above", "below")
_RULES = ("not-refuted", "observed", "proven")
# Whether a larger value asks for more (1) or for less (-1), by the end of the key; other keys just change.
_DIRECTIONS = {"confidence": 1, "alpha": 1, "min_tpr": 1, "required": 1, "max_drop": -1, "max_uses": -1}


def policy_changes(old: Policy, new: Policy) -> tuple[str, ...]:
    """Every difference in one sentence that starts with `weaker:`, `stricter:` or `changed:`, in that order."""
    found = [*_target_changes(old, new), *_waiver_changes(old, new), *_key_changes(old, new)]
    order = {"weaker": 0, "stricter": 1, "changed": 2}
    return tuple(f"{kind}: {what}" for kind, what in sorted(found, key=lambda change: order[change[0]]))


def _target_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    before, after = (_judged(policy) for policy in (old, new))
    for check, target in before.items():
        if check not in after:
            yield "weaker", f"{check} is no longer judged"
        else:
            yield from _changes_of_target(target, after[check])
    for check in [check for check in after if check not in before]:
        yield "stricter", f"{check} is judged for the first time"


def _judged(policy: Policy) -> dict[CheckName, Target | Range]:
    judged: list[Target | Range] = [*policy.targets, *policy.ranges]
    return {one.check: one for one in judged}


def _changes_of_target(old: Target | Range, new: Target | Range) -> Iterator[tuple[str, str]]:
    if old.min_n != new.min_n:
        kind = "weaker" if new.min_n < old.min_n else "stricter"
        yield kind, f"{new.check} needs {new.min_n:,} rows instead of {old.min_n:,}"
    sides = {side: (getattr(old.max_relative_error, side), getattr(new.max_relative_error, side)) for side in _SIDES}
    if sides["above"] == sides["below"]:
        sides = {"around": sides["above"]}
    for side, (before, after) in sides.items():
        if before != after:
            kind = "weaker" if after > before else "stricter"
            now, once = percent(after), percent(before)
            yield kind, f"{new.check} may err {now} {side} its target instead of {once}"
    if old.required != new.required:
        yield (
            ("stricter", f"{new.check} is required now")
            if new.required
            else ("weaker", f"{new.check} no longer blocks a release")
        )


def _waiver_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    before, after = (_by_check(policy.waivers) for policy in (old, new))
    for check, waiver in after.items():
        if check not in before:
            yield "weaker", f"{check} is waived until {waiver.expires}"
        elif waiver.expires != before[check].expires:
            kind = "weaker" if waiver.expires > before[check].expires else "stricter"
            yield kind, f"{check} is waived until {waiver.expires} instead of {before[check].expires}"
    for check in [check for check in before if check not in after]:
        yield "stricter", f"{check} is no longer waived"


def _by_check(waivers: tuple[Waiver, ...]) -> dict[CheckName, Waiver]:
    return {waiver.check: waiver for waiver in waivers}


def _key_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    """Every other key, by its path in the file."""
    before, after = (
        dict(_leaves(policy.model_dump(exclude={"targets", "ranges", "waivers"}), "")) for policy in (old, new)
    )
    for key in dict.fromkeys([*before, *after]):
        then, now = before.get(key), after.get(key)
        if then == now or key == "name":
            continue
        kind = _kind(key, then, now)
        yield kind, f"{key} is {shown(now)} instead of {shown(then)}"


def _kind(key: str, old: Any, new: Any) -> str:
    direction = _DIRECTIONS.get(key.rpartition(".")[2], 0)
    if key == "rule":
        direction, old, new = 1, _RULES.index(old), _RULES.index(new)
    elif key.startswith(("checks.", "reuse.")) and None in (old, new):  # a check was added or removed
        direction, old, new = 1, old is not None, new is not None
    if not direction or None in (old, new):
        return "changed"
    return "stricter" if (new - old) * direction > 0 else "weaker"


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping) and "fpr" in value[0]:
        for part in value:
            rest = {key: number for key, number in part.items() if key != "fpr"}
            yield from _leaves(rest, f"{at}[{in_percent(part['fpr'])}]")
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping) and "start" in value[0]:
        for part in value:
            yield f"{at}[{CheckName('fpr', part['start'], part['stop']).at}]", "judged"
    elif value != ():
        yield at, value
