"""Shows two releases side by side, of one detector or of several, for people and scripts; it judges nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gate.checks.baseline import Comparison
from gate.checks.drop import Drops
from gate.record import Record

if TYPE_CHECKING:
    from gate.report.changes import Changes


@dataclass(frozen=True)
class ComparedReleases:
    """Two releases side by side, and the record of the newer one."""

    record: Record
    comparison: Comparison
    drops: Drops | None


@dataclass(frozen=True)
class ComparedSystems:
    """Two releases of several detectors side by side: the detectors of both, and those of one only."""

    both: Mapping[str, ComparedReleases]
    came: tuple[str, ...]
    went: tuple[str, ...]


Compared = ComparedReleases | ComparedSystems


def render(found: Compared, width: int = 80, color: bool = False) -> str:
    from gate.report import terminal

    return _sections(found, "{}:\n", lambda one: terminal.render_changes(_changes(one), one.record, width, color))


def render_markdown(found: Compared) -> str:
    from gate.report import markdown

    return _sections(found, "## {}\n\n", lambda one: markdown.render_changes(_changes(one), one.record))


def to_json(found: Compared) -> str:
    if isinstance(found, ComparedReleases):
        content = _content(found)
    else:
        parts = {name: _content(one) for name, one in found.both.items()}
        content = {"detectors": parts, "came": found.came, "went": found.went}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _content(found: ComparedReleases) -> dict[str, Any]:
    parts = {"baseline": found.comparison, "drop": found.drops}
    return {key: None if part is None else part.model_dump(mode="json") for key, part in parts.items()}


def _changes(found: ComparedReleases) -> Changes:
    from gate.report.changes import describe_changes

    changed = describe_changes(found.comparison, found.drops, found.record.alphas)
    assert changed is not None
    return changed


def _sections(found: Compared, heading: str, render_one: Callable[[ComparedReleases], str]) -> str:
    """Show several detectors one by one, and name those that came or went."""
    if isinstance(found, ComparedReleases):
        return render_one(found)
    sections = [f"{heading.format(name)}{render_one(one)}" for name, one in found.both.items()]
    for what, names in (("New", found.came), ("No longer there", found.went)):
        sections += [f"{what}: {', '.join(names)}.\n"] if names else []
    return "\n".join(sections)
