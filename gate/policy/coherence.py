"""What only several keys of a policy together show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic_core import PydanticCustomError

from gate.contract import FLAG_ALL, LOWEST, PAPER_ANCHORS
from gate.names import CheckName, in_percent, parse_name
from gate.policy.values import Location, exact_decimal


def incoherences(policy: Mapping[str, Any], families: frozenset[str] = frozenset()) -> Iterator[tuple[Location, str]]:
    """What only several keys together show. A value that cannot be read is passed over: its own error says so."""
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
    yield from _bad_lists(policy.get("targets"), ("targets",), fprs)
    checks = policy.get("checks")
    for key, settings in checks.items() if isinstance(checks, Mapping) else ():
        if isinstance(settings, Mapping):
            yield from _bad_lists(settings.get("targets"), ("checks", key, "targets"), fprs)
    waivers = policy.get("waivers")
    for i, waiver in enumerate(waivers if isinstance(waivers, list | tuple) else ()):
        name = waiver.get("check") if isinstance(waiver, Mapping) else None
        name = parse_name(name) if isinstance(name, str) else name
        if families and isinstance(name, CheckName) and name.family not in families:
            yield ("waivers", i, "check"), f"must name a check that gate makes ({', '.join(sorted(families))})"


def _bad_lists(listed: Any, at: Location, anchors: list[Decimal | None]) -> Iterator[tuple[Location, str]]:
    """A list of targets: each a mapping with its `fpr`, or the rate alone."""
    if listed in ([], ()):
        yield at, "must list at least one target: nothing measured is never a pass"
    points = listed if isinstance(listed, list | tuple) else ()
    plain = [not isinstance(point, Mapping) for point in points]
    rates = _rates([{"fpr": point} if alone else point for point, alone in zip(points, plain, strict=True)], "fpr")
    places = [(*at, i) if alone else (*at, i, "fpr") for i, alone in enumerate(plain)]
    yield from _bad_targets(places, rates, anchors)


def _bad_targets(
    places: list[Location], targets: list[Decimal | None], anchors: list[Decimal | None]
) -> Iterator[tuple[Location, str]]:
    """Targets that are no anchors of the contract, or stand there twice."""
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
    """One number of each point of a list, None where it cannot be read."""
    rates: list[Decimal | None] = []
    for point in points if isinstance(points, list | tuple) else ():
        try:
            rates.append(exact_decimal(point[key]))
        except (PydanticCustomError, LookupError, TypeError):
            rates.append(None)
    return rates
