"""Several detectors in one policy: the settings of each, and what they must not do together. It reads no data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from gate.contract import LOWEST
from gate.names import DETECTOR, CheckName, is_detector, parse_name
from gate.policy.values import Flag, Frozen, LabelColumn, Location, MinRows, Paths, PolicyLabels, PolicyRate, Text, rate

MOST_DETECTORS = 200  # each is a release of its own, and one page shows every pair of them
COLUMNS = ("score", "label", "benign_label")  # keys of `data` that a detector may set for itself
FILES = ("fit", "holdout", "malicious")
# Keys of the policy that a detector may set: mappings are merged by key, lists and words are replaced.
MERGED, REPLACED = ("calibration", "checks"), ("rule", "targets", "ranges")
TOGETHER = ("detectors", "system")  # keys that the policy of one detector lacks


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_detector(value):
        must = "must be 1 to 64 letters, digits, dots, dashes or underscores, and not . or .."
        raise PydanticCustomError("detector", must)
    return value


DetectorName = Annotated[
    str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{DETECTOR}$", "minLength": 1})
]


class Detector(Frozen):
    """One of several detectors: its scores, and whatever of the policy is another for it."""

    name: DetectorName = Field(description="its directory below `detectors/`, and how its findings begin")
    score: Text | None = Field(default=None, description="its column of raw scores; null: that of `data`")
    label: LabelColumn = Field(default=None, description="its column of labels; null: that of `data`; false: none")
    benign_label: PolicyLabels | None = Field(
        default=None, description="what marks a row benign for it; null: as in `data`"
    )
    fit: Paths | None = Field(default=None, description="its own files to fit on; null: those of all")
    holdout: Paths | None = Field(default=None, description="its own files to judge on; null: those of all")
    malicious: Paths | None = Field(default=None, description="its own malicious rows; null: those of all")
    required: Flag = Field(default=True, description="false: judged and shown, but never blocks a release")


class SystemTarget(Frozen):
    """What all detectors together may flag of the rows that are benign for each of them."""

    score: PolicyRate = Field(description="the calibrated score from which a detector flags a row")
    max_fpr: PolicyRate = Field(description="the share of benign rows that any of the detectors may flag there")
    min_n: MinRows = Field(description="the fewest held-out benign rows on which a pass is believed")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("score")
    @classmethod
    def _calibrated(cls, value: Decimal) -> Decimal:
        if not 0 < value < LOWEST.score or len(value.normalize().as_tuple().digits) > 12:
            raise PydanticCustomError("score", f"must be a calibrated score above 0 and below {LOWEST.score}")
        return value

    @field_validator("max_fpr")
    @classmethod
    def _possible(cls, value: Decimal) -> Decimal:
        if not 0 < value < 1:
            raise PydanticCustomError("max_fpr", "must be above 0 and below 1, such as 0.3%")
        return value

    @property
    def check(self) -> CheckName:
        return CheckName("system", self.score)


def alone(policy: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The policy of one detector by itself, from plain values to plain values.

    Its own settings replace those of all detectors. Only the waivers that name it remain, without its name.
    """
    entry = next(entry for entry in policy["detectors"] if entry["name"] == name)
    single = {key: value for key, value in policy.items() if key not in TOGETHER}
    columns = {key: entry[key] for key in (*COLUMNS, *FILES) if entry.get(key) is not None}
    if columns:
        single["data"] = {**(policy.get("data") or {}), **columns}
    for key in MERGED:
        if entry.get(key) is not None:
            single[key] = {**(policy.get(key) or {}), **entry[key]}
    single |= {key: entry[key] for key in REPLACED if entry.get(key) is not None}
    if policy.get("waivers"):
        named = [(waiver, parse_name(str(waiver["check"]))) for waiver in policy["waivers"]]
        single["waivers"] = [
            {**waiver, "check": str(replace(check, detector=None))}
            for waiver, check in named
            if check is not None and check.detector == name
        ]
    return single


def bad_detectors(policy: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """What is wrong with the detectors, the system and the waivers of a policy, as far as these can be read."""
    entries = _mappings(policy.get("detectors"))
    if len(entries) > MOST_DETECTORS:
        yield ("detectors",), f"must list at most {MOST_DETECTORS} detectors"
    data = policy.get("data")
    shared = data.get("score", "score") if isinstance(data, Mapping) else "score"
    names: set[str] = set()
    scores: set[tuple[object, ...]] = set()
    for i, entry in entries:
        name = entry.get("name")
        if isinstance(name, str) and name.casefold() in names:
            yield ("detectors", i, "name"), "must differ from every other detector's, in more than case"
        own = (entry.get("score") or shared, *(_hashable(entry.get(key)) for key in FILES))
        if own in scores:
            yield ("detectors", i), "must have a score column or files of its own; write score: COLUMN"
        names.add(str(name).casefold())
        scores.add(own)
    targets = _mappings(policy.get("system"))
    if targets and not entries:
        yield ("system",), "must be left out where there are no `detectors`"
    judged: set[Decimal | None] = {None}
    for i, target in targets:
        score = rate(str(target.get("score")))
        if score is not None and score in judged:
            yield ("system", i, "score"), "must differ from every other one's"
        judged.add(score)
    yield from _bad_waivers(policy, [str(entry.get("name")) for _, entry in entries])


def _bad_waivers(policy: Mapping[str, Any], names: list[str]) -> Iterator[tuple[Location, str]]:
    """With detectors, a waiver names one of them or the system: none covers another by being vague."""
    for i, waiver in _mappings(policy.get("waivers")):
        check = waiver.get("check")
        found = parse_name(check) if isinstance(check, str) else check
        if not isinstance(found, CheckName):
            continue
        if not names and (found.detector is not None or found.kind == "system"):
            yield ("waivers", i, "check"), "must name no detector and no system where the policy has no `detectors`"
        elif names and found.kind == "system" and found.detector is not None:
            yield ("waivers", i, "check"), "must name no detector: a system is all of them; write system@SCORE"
        elif names and found.kind != "system" and found.detector not in names:
            some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            yield ("waivers", i, "check"), f"must begin with the name of a detector ({some}), such as {names[0]}:fpr@1%"


def _mappings(listed: object) -> list[tuple[int, Mapping[str, Any]]]:
    entries = listed if isinstance(listed, list | tuple) else ()
    return [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Mapping)]


def _hashable(value: object) -> object:
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
