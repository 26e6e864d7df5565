"""Compares a record with one made again, except values that nothing binds or that other libraries computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gate.inspection.answers import RefusedError, other_installation, refuse_differences, same_words
from gate.record import Record
from gate.record.system import SystemRecord

# What no data and no policy can bind, by its place in the record: times, names that people chose, where things lay, and
# a fraction or seed beside another one that divides the rows alike. The same rows may stand in other files.
UNBOUND = (
    "created",
    "judged_on",
    "release",
    "policy.path",
    "checks.baseline.reference.path",
    "checks.reuse.ledger",
    "split.fraction",
    "split.seed",
    "tool.libraries.*",
    "*sources.*.path",
    "*.files.*",
)
UNBOUND_OF_SEVERAL = ("created", "judged_on", "release", "policy.path", "tool.libraries.*")
# These places depend on libraries; they are excepted if the record was written with others than those installed.
OF_LIBRARIES = ("calibrator.sha256", "calibrator.bytes", "detectors.*.calibrator_sha256")
# Sentences may change from version to version of gate.
SENTENCES = ("tool.version", "reason", "warnings", "findings.*.message", "findings.*.remedy")


def not_bound(record: Record) -> tuple[str, ...]:
    """List what nothing can bind in this record; a check has the name of the release that it is given."""
    places = [place for place in UNBOUND if not (place == "release" and record.kind == "check")]
    return tuple(place for place in places if place[0] == "*" or _is_there(record, place))


def _is_there(record: Record, place: str) -> bool:
    value: Any = record
    for key in place.split("."):
        if key == "*":
            break
        value = getattr(value, key, None)
    return value is not None


def refuse_another(
    where: str,
    record: Record | SystemRecord,
    again: Record | SystemRecord,
    excepted: Iterable[str],
    whole: Record | SystemRecord,
) -> None:
    """Refuse a record that is not what was made again, in any value but the excepted ones.

    The record of the `whole` release says which installation wrote all of it.
    """
    places = [*excepted, *(OF_LIBRARIES if other_installation(whole) else ())]
    places += [] if same_words(whole) else SENTENCES
    recorded, found = (without(one.model_dump(mode="json"), places) for one in (record, again))
    refuse_differences(where, recorded, found)


def refuse_other_words(record: Record | SystemRecord) -> None:
    """Refuse sentences of another version of gate: only those of the same version can be compared."""
    if not same_words(record):
        other = other_installation(record)
        raise RefusedError(
            f"the numbers are the same again, but the sentences may be others: {other}", "cannot be checked"
        )


def without(value: Any, places: Sequence[str], at: str = "") -> Any:
    """Return the value without the places that a pattern names: keys and numbers, joined by dots."""
    if any(fnmatchcase(at, place) for place in places):
        return None
    if isinstance(value, dict):
        return {key: without(part, places, f"{at}.{key}" if at else key) for key, part in value.items()}
    if isinstance(value, list):
        return [without(part, places, f"{at}.{i}") for i, part in enumerate(value)]
    return value
