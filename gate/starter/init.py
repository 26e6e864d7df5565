"""Writes what `gate init` puts into a repository: a policy that fits the rows on hand, and its workflow."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path

from gate.checks import default_policy, parse_policy
from gate.errors import GateError
from gate.names import in_percent
from gate.planning import plan_target
from gate.planning.plan import RANGE_POINTS
from gate.planning.ranges import plan_range, round_up
from gate.policy import OWN, Document, Policy, Range, Target, Tolerance, rate
from gate.storage import place_to_write, write_file
from gate.words import in_digits, percent

POLICY, WORKFLOW = OWN, Path(".github/workflows/release-gate.yml")
UNKNOWN = "OWNER/REPO"  # stands for the repository of gate's action if neither the installation nor an option tells

_TEMPLATE = Path(__file__).parent / "workflow.yml"
_COMMENT = 32  # the column of the comments in the policy
_HEADER = """\
# What a release must show before it may be deployed. `gate init` wrote it; it is yours to change, and
# `gate plan --policy policies/release.yaml` tells how often it errs.
"""
_CHECK_ALL = """\
        run: |
          echo "$MANIFEST_SHA256  release/manifest.json" | sha256sum --check --strict
          cd release
          jq -r '.sha256 | to_entries[] | "\\(.value)  \\(.key)"' manifest.json | sha256sum --check --strict --quiet
"""


# --- the policy ---------------------------------------------------------------------------------------------


def policy(targets: str | None = None, rule: str | None = None, holdout_n: int | None = None) -> Document:
    """Write the default policy as the user's own file, tailored to what is given."""
    default = default_policy()
    head, block, rest = judged_block(default)
    rule = rule or default.policy.rule
    if targets is not None or rule != default.policy.rule or holdout_n is not None:
        ruled = default.policy.model_copy(update={"rule": rule})
        wanted = _wanted(ruled, targets, holdout_n)
        block = [*_targets(ruled, wanted, targets, holdout_n), ""]
        block += range_block(ruled, [one for one in wanted if holdout_n is None or one.rows <= holdout_n], holdout_n)
    if rule != "proven":  # the default's words on its errors hold only for its own rule
        head = [re.sub(r"(# of every interval);.*", r"\1", line) for line in head]
    text = as_own("\n".join([*head, *block, *rest]) + "\n", default.policy.name)
    return parse_policy(text.replace(f"\nrule: {default.policy.rule}", f"\nrule: {rule}", 1), str(POLICY))


def judged_block(document: Document) -> tuple[list[str], list[str], list[str]]:
    """Divide a policy into the lines before its targets and ranges, and the lines after them."""
    lines = document.text.splitlines()
    first, last = document.lines["targets",], document.lines["ranges",]
    following = min(line for place, line in document.lines.items() if len(place) == 1 and line > last)
    return lines[: first - 1], lines[first - 1 : following - 1], lines[following - 1 :]


def as_own(text: str, name: str) -> str:
    """Turn the default policy's text into that of a repository's own policy."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("# yaml-language-server:")]
    return _HEADER + "".join(lines).replace(f"\nname: {name}", "\nname: release", 1)


def _rates(targets: str, policy: Policy) -> list[Decimal]:
    """Read the rates in a list such as `1%,0.1%`; each must be an anchor of the contract."""
    anchors = [anchor.fpr for anchor in policy.contract]
    known = ", ".join(map(in_percent, anchors))
    rates: list[Decimal] = []
    for name in targets.split(","):
        found = rate(name)
        if found not in anchors or found in rates:
            raise GateError(f"--targets: must be different anchors of the contract ({known}), got {name.strip()!r}")
        rates.append(found)
    return sorted(rates, reverse=True)


@dataclass(frozen=True)
class Wanted:
    """A target, and the rows that it needs so that a sound release usually passes and a bad one does not."""

    fpr: Decimal
    error: Tolerance
    rows: int


def _wanted(policy: Policy, targets: str | None, holdout_n: int | None) -> list[Wanted]:
    """Return the named targets, or the policy's own."""
    rates = [target.fpr for target in policy.targets] if targets is None else _rates(targets, policy)
    wanted = [want(policy, fpr) for fpr in rates]
    least = min(target.rows for target in wanted)
    if holdout_n is not None and holdout_n < least:
        raise GateError(
            f"--holdout-n: must be at least {least:,} for any of these targets, got {holdout_n:,}; "
            "hold out more benign rows, or choose another --rule or --targets"
        )
    return wanted


def _targets(policy: Policy, wanted: list[Wanted], targets: str | None, holdout_n: int | None) -> list[str]:
    """Write the targets as YAML; a target that the rows on hand cannot decide does not block."""
    advisory = {target.fpr for target in policy.targets if not target.required} if targets is None else set()
    lines = [commented("targets:", "each one is an anchor of the contract that must hold on held-out benign rows")]
    for target in wanted:
        lines += entry(target, policy, holdout_n)
        if holdout_n is not None and target.rows > holdout_n:
            why = f"more than the {holdout_n:,} rows on hand: shown in the report, never blocks"
            lines.append(commented("    required: false", why))
        elif holdout_n is None and target.fpr in advisory:
            lines.append(commented("    required: false", "shown in the report, never blocks"))
    return lines


def want(policy: Policy, fpr: Decimal, error: Tolerance | None = None) -> Wanted:
    """Make a target; its tolerance is the given one, or the default policy's at this rate, or at its rarest rate."""
    known = {target.fpr: target.max_relative_error for target in policy.targets}
    error = error or known.get(fpr, known[min(known)])
    target = Target(fpr=fpr, min_n=1, max_relative_error=error)
    inside = math.ceil(100 / fpr)  # rows of a fit sample that reaches the rate
    planned = plan_target(policy, target, None, inside, 0.95)
    if planned.equal_needed is None or planned.needed_against_bad is None:
        raise GateError(f"--targets: no number of rows proves {in_percent(fpr)} by rule {policy.rule}; drop it")
    return Wanted(fpr, error, max(planned.equal_needed, planned.needed_against_bad))


def entry(target: Wanted, policy: Policy, holdout_n: int | None) -> list[str]:
    """Write one target as YAML, every line with its comment."""
    digits = 10 ** max(0, len(str(target.rows)) - 2)
    rounded = -(-target.rows // digits) * digits
    min_n = target.rows if holdout_n is not None and target.rows <= holdout_n < rounded else rounded
    score = next(anchor.score for anchor in policy.contract if anchor.fpr == target.fpr)
    above, below = target.error.above, target.error.below
    low, high = (percent(target.fpr * factor) for factor in (1 - below, 1 + above))
    lines = [
        commented(f"  - fpr: {in_percent(target.fpr)}", f"calibrated score {score}"),
        commented(
            f"    min_n: {min_n}", "enough held-out rows that a sound release passes 95 % of the time (fit on as many)"
        ),
    ]
    if below >= 1:
        text = f"    max_relative_error: {{above: {above}, below: {below}}}"
        lines.append(commented(text, f"at most {high}; only too many false positives count"))
    else:
        lines.append(commented(f"    max_relative_error: {above}", f"the true rate may lie between {low} and {high}"))
    return lines


def range_block(policy: Policy, wanted: list[Wanted], rows: int | None) -> list[str]:
    """Write as YAML an advisory range between the targets that can be decided, as deep as the rows on hand allow.

    There is none without two such targets, or with too few rows for any range between them.
    """
    targets = sorted((one for one in wanted if one.error.below < 1), key=lambda one: -one.fpr)
    for last in range(len(targets) - 1, 0, -1):
        span, start, stop = targets[: last + 1], targets[0].fpr, targets[last].fpr
        error = Tolerance(above=max(one.error.above for one in span), below=max(one.error.below for one in span))
        judged = Range.model_validate({"from": start, "to": stop, "min_n": 1, "max_relative_error": error})
        planned = plan_range(policy, judged, most_points=RANGE_POINTS)
        needed = None if planned.equal_needed is None else round_up(planned.equal_needed.value)
        if needed is not None and (rows is None or needed <= rows):
            return [*_range_entry(policy, start, stop, needed, error), ""]
    return []


def _range_entry(policy: Policy, start: Decimal, stop: Decimal, rows: int, error: Tolerance) -> list[str]:
    scores = {anchor.fpr: anchor.score for anchor in policy.contract}
    low, high = (in_digits(1 + share) for share in (-error.below, error.above))
    errors = f"{{above: {error.above}, below: {error.below}}}" if error.above != error.below else str(error.above)
    needs = "enough held-out rows that a sound release passes 95 % of the time (fit on as many)"
    return [
        commented("ranges:", "each one is a stretch of the contract that must hold at every threshold"),
        commented(f"  - from: {in_percent(start)}", f"calibrated scores from {scores[start]}"),
        commented(f"    to: {in_percent(stop)}", f"to {scores[stop]}"),
        commented(f"    min_n: {rows}", needs),
        commented(f"    max_relative_error: {errors}", f"at every threshold {low} to {high} times the promised rate"),
        commented("    required: false", "advisory: scores of trees may hold at the anchors and jump between them"),
    ]


def commented(text: str, comment: str) -> str:
    return f"{text:<{_COMMENT}}# {comment}" if len(text) < _COMMENT else f"{text}   # {comment}"


# --- the workflow -------------------------------------------------------------------------------------------


def workflow(action: str | None = None, named: bool = False, several: bool = False) -> str:
    """Write the workflow with the composite action of `OWNER/REPO@REF`, by default of gate's own installation.

    Where the files are `named` in the policy, the workflow names none.
    `several` detectors have a calibrator each: what is deployed is checked by the manifest of all.
    """
    if action is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", action, re.ASCII):
        raise GateError(f"--action: must be OWNER/REPO@REF, got {action!r}; name the repository with gate's action")
    repository, _, ref = (action or installed_from()).partition("@")
    if repository == UNKNOWN:
        ref += " # zizmor: ignore[unpinned-uses] name the repository, and its commit instead of the tag"
    text = _TEMPLATE.read_text(encoding="utf-8")
    if named:
        text = re.sub(r"(?m)^          fit: .*\n          holdout: .*\n", "", text)
    if several:
        text = text.replace("calibrator-sha256", "manifest-sha256").replace("CALIBRATOR_SHA256", "MANIFEST_SHA256")
        text = text.replace("it is the calibrator that was judged", "it is the release that was judged")
        text = re.sub(r"(?m)^        run: echo .*sha256sum.*\n", lambda _: _CHECK_ALL, text)
        text = text.replace(
            "Deploy release/calibrator.joblib from", "Deploy release/detectors/*/calibrator.joblib from"
        )
    return text.replace("REPOSITORY", repository).replace("REF", ref)


def installed_from() -> str:
    """Find the repository and commit that pip took gate from, or else the version's tag in a repository to be named."""
    installed = distribution("fpr-gate")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    repository = re.fullmatch(r"\w+://(?:\w+@)?github\.[\w.]+/([\w.-]+/[\w.-]+?)(?:\.git)?/?", origin.get("url", ""))
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    if repository and re.fullmatch("[0-9a-f]{40}", commit):
        return f"{repository[1]}@{commit}"
    return f"{UNKNOWN}@v{installed.version}"


# --- the files ----------------------------------------------------------------------------------------------


def write(files: Mapping[Path, str], force: bool) -> None:
    """Write all of the files or none; an existing file stays, unless forced."""
    refuse_existing(files, force)
    before = {path: path.read_bytes() if path.is_file() else None for path in files}
    made: list[Path] = []
    try:
        for path, text in files.items():
            made += _make_directories(path.parent)
            write_file(path, text.encode())
    except GateError:
        for path, content in before.items():
            _restore(path, content)
        for directory in reversed(made):
            directory.rmdir()
        raise


def refuse_existing(files: Iterable[Path], force: bool) -> None:
    """Refuse to replace a file, unless forced, and to write where no file may be written."""
    for path in sorted(files, reverse=True):
        place_to_write(path)
        if path.exists() and not force:
            raise GateError(f"{path}: must not exist yet; --force to replace it")


def _make_directories(directory: Path) -> list[Path]:
    missing = [path for path in (directory, *directory.parents) if not path.exists()][::-1]
    for path in missing:
        try:
            path.mkdir()
        except OSError as error:
            raise GateError(f"{path}: must be a directory that can be written, got {error.strerror}") from None
    return missing


def _restore(path: Path, content: bytes | None) -> None:
    if content is not None:
        write_file(path, content)
    elif path.is_file():
        path.unlink()
