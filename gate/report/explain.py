"""Explains what a check asks, how it decides, and what to do when it is red; it may show a release's own numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gate.checks import EVERY, owner
from gate.checks.check import CheckOf, Finding
from gate.errors import GateError
from gate.names import CheckName, parse_name
from gate.record import Record
from gate.record.system import SystemRecord
from gate.report.numbers import clean
from gate.report.rows import in_order, weight
from gate.report.terminal import Paper
from gate.words import shown


def find(name: str) -> tuple[CheckOf[Any, Any], CheckName | None]:
    """Find the check that a name or a key means, and the name if it is that of one finding."""
    for check in EVERY:
        if name in (check.key, *check.names):
            return check, None
    parsed = parse_name(name)
    found = None if parsed is None else owner(parsed)
    if found is None:
        known = ", ".join(check.key for check in EVERY)
        raise GateError(f"CHECK: must name a check, got {name[:80]!r}; write one of {known}, or fpr@0.1% and its like")
    return found, parsed


def render(name: str, record: Record | SystemRecord | None = None, width: int = 80) -> str:
    """Write the explanation; with a record, also what that release shows."""
    check, wanted = find(name)
    lines = _wrapped(f"{name}: {check.asks}", width, indent="")
    lines += ["", "How it decides", *_wrapped(check.decides, width)]
    lines += ["", "The usual causes", *_wrapped(f"{check.causes[0].upper()}{check.causes[1:]}.", width)]
    lines += ["", "What to do next", *_wrapped(check.helps, width)]
    if check.settings is not None:
        lines += ["", f"In the policy, under checks.{check.key}"]
        for key, field in check.settings.model_fields.items():
            default = "" if field.is_required() else f"  [default: {shown(field.default, 'none')}]"
            lines += _wrapped(f"{key}: {field.description or ''}{default}", width)
    lines += ["", "Its reasons"]
    for code, words in check.reasons.items():
        lines += _wrapped(code if words == code.replace("-", " ") else f"{code}: {words}", width)
    if record is not None:
        lines += ["", f"In {clean(record.release)}", *_of_release(check, wanted, record, width)]
    return "\n".join(lines) + "\n"


def _of_release(
    check: CheckOf[Any, Any], wanted: CheckName | None, record: Record | SystemRecord, width: int
) -> Iterator[str]:
    found = [f for f in in_order(record.findings) if _is_wanted(f, check, wanted)]
    if not found:
        yield from _wrapped("nothing was found: the policy does not ask for it, or there was nothing to measure", width)
    for finding in found:
        said = f"{clean(str(finding.check))}: {finding.outcome} ({check.reasons.get(finding.reason, finding.reason)}, "
        yield from _wrapped(f"{said}{weight(finding)}): {clean(finding.message)}.", width)
        if finding.remedy:
            yield from _wrapped(f"What would help: {clean(finding.remedy)}.", width)


def _is_wanted(finding: Finding, check: CheckOf[Any, Any], wanted: CheckName | None) -> bool:
    """Whether the finding is asked for; with several detectors, a name without a detector means every one."""
    if wanted is None:
        return finding.check.family in check.names
    return finding.check == (wanted if wanted.detector else replace(wanted, detector=finding.check.detector))


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    tied = text.replace(" %", f"{Paper.TIE}%")
    lines = textwrap.wrap(tied, width - 2, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(Paper.TIE, " ") for line in lines]
