"""Writes a policy for several detectors whose scores stand side by side in the same files; it judges nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal

from gate.checks import parse_policy
from gate.errors import GateError
from gate.names import in_percent
from gate.policy import Policy, Range, Target, Tolerance
from gate.rows.wording import show
from gate.starter.init import POLICY, commented
from gate.starter.survey import Survey, look, survey
from gate.starter.tailor import Tailored, as_yaml, tailor

ALL = "all"


def tailor_several(paths: Sequence[str], named: str) -> Tailored:
    """Write the policy of the detectors whose score columns are named, or of all columns that look like scores."""
    first = look(paths)
    columns = [first.columns.score, *first.others] if named == ALL else [name.strip() for name in named.split(",")]
    if len({*columns}) < 2 or len({*columns}) < len(columns):
        found = ", ".join([first.columns.score, *first.others])
        raise GateError(f"--detectors: must name two or more score columns, each once, got {named!r}; there is {found}")
    surveys = {name: first if name == first.columns.score else survey(first.parts, name) for name in columns}
    alone = {name: tailor(found) for name, found in surveys.items()}
    names = _names(columns)
    policies = [one.document.policy for one in alone.values()]
    lines = [line for line in alone[columns[0]].document.text.splitlines() if not line.startswith("  score: ")]
    place = next(i for i, line in enumerate(lines) if line.startswith("waivers:"))
    system, limit = _system(policies)
    block = [*_entries(names, columns, policies), "", *system]
    text = "\n".join([*lines[:place], *block, *lines[place:]]) + "\n"
    document = parse_policy(text, str(POLICY))
    sentences = _sentences(surveys, alone)
    return Tailored(document, (*sentences, limit), alone[columns[0]].commands)


def _names(columns: list[str]) -> list[str]:
    """Turn columns into names that detectors may have, no two alike."""
    names: list[str] = []
    for i, column in enumerate(columns):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", column).strip("-.")[:60] or f"detector-{i + 1}"
        taken = {other.casefold() for other in names}
        names.append(name if name.casefold() not in taken else f"{name}-{i + 1}")
    return names


def _entries(names: list[str], columns: list[str], policies: list[Policy]) -> list[str]:
    """Write one entry for each detector, with whatever its scores need and those of the first do not."""
    lines = [commented("detectors:", "each one is fitted and judged by itself, by what stands above")]
    shared = policies[0]
    for name, column, own in zip(names, columns, policies, strict=True):
        lines.append(f"  - name: {name}")
        lines.append(commented(f"    score: {as_yaml(column)}", "its column of raw scores"))
        if own.targets != shared.targets:
            lines.append(commented("    targets:", "what its scores can show, where that is less or more"))
            lines += [f"      - {_target(target)}" for target in own.targets]
        if own.ranges != shared.ranges:
            lines.append("    ranges:" if own.ranges else "    ranges: []")
            lines += [f"      - {_range(span)}" for span in own.ranges]
        if own.calibration.domain != shared.calibration.domain:
            low, high = own.calibration.domain
            lines.append(f"    calibration: {{domain: [{low}, {high}]}}")
    return lines


def _target(target: Target) -> str:
    return f"{{fpr: {in_percent(target.fpr)}, {_asked(target)}}}"


def _range(span: Range) -> str:
    return f"{{from: {in_percent(span.start)}, to: {in_percent(span.stop)}, {_asked(span)}}}"


def _asked(one: Target | Range) -> str:
    said = f"min_n: {one.min_n}, max_relative_error: {_error(one.max_relative_error)}"
    return said if one.required else f"{said}, required: false"


def _error(error: Tolerance) -> str:
    same = error.above == error.below
    return f"{error.above}" if same else f"{{above: {error.above}, below: {error.below}}}"


def _system(policies: list[Policy]) -> tuple[list[str], str]:
    """Write a limit on all detectors at the rarest rate that each must keep: the sum of what each may flag there."""
    required = [{target.fpr: target for target in policy.targets if target.required} for policy in policies]
    common = set.intersection(*({*targets} for targets in required))
    fpr = min(common, default=None)
    most = Decimal(1)
    if fpr is not None:
        most = sum((fpr * (1 + targets[fpr].max_relative_error.above) for targets in required), Decimal(0))
        most = Context(prec=2, rounding=ROUND_CEILING).create_decimal(most).normalize()
    if fpr is None or most >= 1:
        return [], "What they flag together is counted and shown; no limit on it follows from these targets."
    score = next(anchor.score for anchor in policies[0].contract if anchor.fpr == fpr)
    rows = max(targets[fpr].min_n for targets in required)
    lines = [
        commented("system:", "what any of them may flag of the rows that are benign for all"),
        commented(f"  - score: {score}", f"from this calibrated score on, which promises each {in_percent(fpr)}"),
        commented(
            f"    max_fpr: {in_percent(most)}", "the sum of what each may flag: lower it to what your users bear"
        ),
        commented(f"    min_n: {rows}", "the fewest held-out benign rows on which a pass is believed"),
        "",
    ]
    return lines, f"Together they may flag {in_percent(most)} from a score of {score} on: the sum of what each may."


def _sentences(surveys: dict[str, Survey], alone: dict[str, Tailored]) -> list[str]:
    """Write each sentence that holds for all once, and the others with the name of their column."""
    everywhere = set.intersection(*({*one.sentences} for one in alone.values()))
    said: list[str] = []
    for column, one in alone.items():
        for sentence in one.sentences:
            if sentence.startswith("Scores: "):
                continue
            text = sentence if sentence in everywhere else f"{show(column)}: {sentence}"
            said += [text] if text not in said else []
    first = next(iter(surveys.values()))
    said.insert(len(first.parts), f"Scores: columns {', '.join(map(show, surveys))}: a detector each.")
    return said
