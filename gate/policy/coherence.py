"""The errors of a policy that only several of its keys together show. It reads plain values and never the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic_core import PydanticCustomError

from gate.contract import FLAG_ALL, LOWEST, PAPER_ANCHORS
from gate.names import CheckName, in_percent, parse_name
from gate.policy.detectors import bad_detectors
from gate.policy.values import Location, exact_decimal

MOST_RANGES = 10
LEAST_OF_SEGMENTS = Decimal("0.25")  # 20 points a decade take 12 % of it
NO_GROUPS = "must be clopper-pearson where data.group names a column: no bound for rows in groups holds at every look"


def incoherences(policy: Mapping[str, Any], families: frozenset[str] = frozenset()) -> Iterator[tuple[Location, str]]:
    """The errors that only several keys together show. It skips a value that cannot be read: that has its own error."""
    contract: Any = policy.get("contract", [{"fpr": anchor.fpr, "score": anchor.score} for anchor in PAPER_ANCHORS])
    fprs, scores = _rates(contract, "fpr"), _rates(contract, "score")
    if contract in ([], ()):
        yield ("contract",), "must list at least one anchor"
    higher, lower = FLAG_ALL.fpr, FLAG_ALL.score
    for i, (fpr, score) in enumerate(zip(fprs, scores, strict=True)):
        if fpr is not None and not LOWEST.fpr < fpr < higher:
            yield ("contract", i, "fpr"), "must fall strictly from below 1 to above 1e-10"
        if score is not None and not lower < score < LOWEST.score:
            yield ("contract", i, "score"), "must rise strictly from above 0 to below 0.99"
        higher, lower = fpr or higher, score or lower
    detectors = policy.get("detectors")
    yield from _bad_targets_of(policy, (), fprs)
    for i, entry in enumerate(detectors if isinstance(detectors, list | tuple) else ()):
        yield from _bad_targets_of(entry, ("detectors", i), fprs)
    yield from bad_detectors(policy)
    data = policy.get("data")
    if policy.get("interval") == "sequential" and isinstance(data, Mapping) and data.get("group") is not None:
        yield ("interval",), NO_GROUPS
    waivers = policy.get("waivers")
    for i, waiver in enumerate(waivers if isinstance(waivers, list | tuple) else ()):
        name = waiver.get("check") if isinstance(waiver, Mapping) else None
        name = parse_name(name) if isinstance(name, str) else name
        if families and isinstance(name, CheckName) and name.family not in families:
            yield ("waivers", i, "check"), f"must name a check that gate makes ({', '.join(sorted(families))})"


def _bad_targets_of(policy: Any, at: Location, fprs: list[Decimal | None]) -> Iterator[tuple[Location, str]]:
    """Every list of targets in a policy, or in the keys that a detector has for itself."""
    if not isinstance(policy, Mapping):
        return
    yield from _bad_lists(policy.get("targets"), (*at, "targets"), fprs)
    checks = policy.get("checks")
    for key, settings in checks.items() if isinstance(checks, Mapping) else ():
        if isinstance(settings, Mapping):
            place = (*at, "checks", key)
            yield from _bad_lists(settings.get("targets"), (*place, "targets"), fprs)
            yield from _bad_ranges((*place, "ranges"), settings.get("ranges"), fprs)
            if settings.get("ranges"):
                yield from _too_narrow((*place, "max_relative_error"), settings.get("max_relative_error"))
    yield from _bad_ranges((*at, "ranges"), policy.get("ranges"), fprs)


def _bad_lists(listed: Any, at: Location, anchors: list[Decimal | None]) -> Iterator[tuple[Location, str]]:
    """A list of targets: each a mapping with its `fpr`, or the rate alone."""
    if listed in ([], ()):
        yield at, "must list at least one target: nothing measured is never a pass"
    points = listed if isinstance(listed, list | tuple) else ()
    plain = [not isinstance(point, Mapping) for point in points]
    rates = _rates([{"fpr": point} if alone else point for point, alone in zip(points, plain, strict=True)], "fpr")
    places = [(*at, i) if alone else (*at, i, "fpr") for i, alone in enumerate(plain)]
    yield from _bad_targets(places, rates, anchors)


def _bad_ranges(at: Location, ranges: object, anchors: list[Decimal | None]) -> Iterator[tuple[Location, str]]:
    """Ranges that do not fall, that leave the contract, or that are listed twice."""
    starts, stops = _rates(ranges, "from"), _rates(ranges, "to")
    if len(starts) > MOST_RANGES:
        yield at, f"must list at most {MOST_RANGES} ranges"
    known = [fpr for fpr in anchors if fpr is not None]
    judged: set[tuple[Decimal, Decimal]] = set()
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        for key, end in (("from", start), ("to", stop)):
            if end is not None and known and None not in anchors and not min(known) <= end <= max(known):
                ends = f"from {in_percent(max(known))} to {in_percent(min(known))}"
                yield (*at, i, key), f"must lie inside the contract, {ends}"
        if start is None or stop is None:
            continue
        if start <= stop:
            yield (*at, i, "to"), "must be below the rate in `from`"
        if (start, stop) in judged:
            yield (*at, i, "from"), "must differ from every other range's, or its `to` must"
        judged.add((start, stop))


def _too_narrow(at: Location, error: object) -> Iterator[tuple[Location, str]]:
    sides = list(error.values()) if isinstance(error, Mapping) else [error]
    if any(side is not None and side < LEAST_OF_SEGMENTS for side in _rates([{"r": side} for side in sides], "r")):
        yield at, f"must be at least {LEAST_OF_SEGMENTS} where segments are judged along ranges"


def _bad_targets(
    places: list[Location], targets: list[Decimal | None], anchors: list[Decimal | None]
) -> Iterator[tuple[Location, str]]:
    """Targets that are no anchors of the contract, or that are listed twice."""
    highest = sorted((fpr for fpr in anchors if fpr is not None), reverse=True)[:10]
    known = ", ".join(map(in_percent, highest))
    judged: set[Decimal] = set()
    for place, target in zip(places, targets, strict=True):
        if target is None:
            continue
        if target in judged:
            yield place, "must differ from every other target's"
        elif anchors and None not in anchors and target not in anchors:
            yield place, f"must be an anchor of the contract ({known})"
        judged.add(target)


def _rates(points: object, key: str) -> list[Decimal | None]:
    """One number of each point of a list; None if it cannot be read."""
    rates: list[Decimal | None] = []
    for point in points if isinstance(points, list | tuple) else ():
        try:
            rates.append(exact_decimal(point[key]))
        except (PydanticCustomError, LookupError, TypeError):
            rates.append(None)
    return rates
