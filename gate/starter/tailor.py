"""Writes a policy for the score files that are there: its text, the reasons, and the command that applies it."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from gate.checks import default_policy, parse_policy
from gate.names import in_percent
from gate.policy import Document, Policy, Tolerance
from gate.rows.wording import shorten, show
from gate.starter.columns import describe_rows
from gate.starter.init import POLICY, Wanted, as_own, commented, entry, judged_block, range_block, want
from gate.starter.survey import Facts, Survey
from gate.words import percent, plural

COARSE = 0.5  # a threshold that flags less than the target by this share of its tolerance is too far off
REVERSED, USELESS = 0.4, 0.6  # concordances below which scores fall with maliciousness, or hardly rise
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True)
class Tailored:
    """A policy for some files, what was seen and decided, and the commands that lead to a verdict."""

    document: Document
    sentences: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """How scores are written, and the range that they may take."""

    name: str
    low: float
    high: float


def tailor(survey: Survey) -> Tailored:
    """Turn what was seen into a policy, its reasons and its commands."""
    scale = scale_of(survey.facts, survey.columns.score)
    default = default_policy()
    head, _, rest = judged_block(default)
    judged, reasons = _judged(survey, default.policy)
    lines = [*head, *judged, *rest]
    domain = f"  domain: [{shorten(scale.low)}, {shorten(scale.high)}]"
    lines = [_keyed(line, "domain", domain, f"{scale.name}: the lowest and highest raw score") for line in lines]
    lines = _with_data(lines, survey)
    document = parse_policy(as_own("\n".join(lines) + "\n", default.policy.name), str(POLICY))
    return Tailored(document, (*_seen(survey, scale), *reasons), _commands(survey))


# --- the scale ----------------------------------------------------------------------------------------------


def scale_of(facts: Facts, column: str = "") -> Scale:
    """Choose the scale of the scores by their range and name; a scale without bounds gets some with room to spare.

    Benign scores do not show how far malicious ones go: logits below 0 are not assumed to end there.
    """
    low, high, name = facts.low, facts.high, column.casefold()
    reach = max(abs(low), abs(high))
    if "logit" in name and reach <= 50:
        return Scale("logits", -100.0, 100.0)
    if low >= 0 and high <= 100 and ("percent" in name or "pct" in name):
        return Scale("a percent scale", 0.0, 100.0)
    if low >= 0:
        for known, top in (("scores from 0 to 1", 1.0), ("a percent scale", 100.0)):
            if high <= top:
                return Scale(known, 0.0, top)
        return Scale("scores from 0 on, without a known top", 0.0, _step_above(2 * high))
    if reach <= 1:
        return Scale("scores from -1 to 1", -1.0, 1.0)
    if reach <= 50:
        return Scale("logits" if high > 0 else "logits or log-likelihoods", -100.0, 100.0)
    return Scale("scores without known ends", -_step_above(2 * reach), _step_above(2 * reach))


def _step_above(value: float) -> float:
    """Return the next number that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


# --- the targets --------------------------------------------------------------------------------------------


def _judged(survey: Survey, policy: Policy) -> tuple[list[str], list[str]]:
    """The targets that the rows can prove, as YAML, the next one as advice; the range between them, which tied scores
    would jump over, as advice too; and the sentences that say why."""
    n = min(survey.fit_n, survey.holdout_n)
    lines = [commented("targets:", "each one is an anchor of the contract that must hold on held-out benign rows")]
    proven: list[str] = []
    sentences: list[str] = []
    fine: list[Wanted] = []
    for anchor in policy.contract:
        fpr, coarse = anchor.fpr, _is_coarse(survey, policy, anchor.fpr)
        tried = [want(policy, fpr, error) for error in _errors(policy, fpr, coarse)]
        fits = next((target for target in tried if target.rows <= n), None)
        if coarse is not None:
            sentences.append(coarse)
        if fits is not None:
            lines += entry(fits, policy, n)
            proven.append(in_percent(fpr))
            fine += [fits] if coarse is None else []
            continue
        least = min(tried, key=lambda target: target.rows)
        if proven:
            lines += [*entry(tried[0], policy, n), _advisory(n)]
            explained = f"{in_percent(fpr)} takes {tried[0].rows:,} of each, so it is shown and never blocks."
        else:
            lines += entry(least, policy, n)
            takes = f"{in_percent(fpr)} takes {least.rows:,} of each"
            explained = f"even {takes}, so the gate will say inconclusive until there are."
        sentences.append(f"Not enough rows: {explained}")
        break
    if proven:
        sentences.insert(0, f"Enough rows to prove {', '.join(proven)}: these targets block.")
    rows = f"{survey.fit_n:,} benign rows to fit and {survey.holdout_n:,} held out"
    if survey.paths("benign"):
        how = "the older half is fitted on" if "time" in survey.by else "half of them by chance"
        rows += f", from one sample ({how})"
    block = range_block(policy, fine, n)
    if block:
        sentences.append(_RANGE)
    return [*lines, "", *block], [f"Rows: {rows}.", *sentences]


_RANGE = "The range between them is judged at every threshold; it is shown and never blocks, for scores may jump in it."


def _advisory(n: int) -> str:
    return commented("    required: false", f"more than the {n:,} rows on hand: shown in the report, never blocks")


def _errors(policy: Policy, fpr: Decimal, coarse: str | None) -> list[Tolerance]:
    """List the tolerances to try, the narrowest first; with coarse scores only too many false positives can count."""
    half, one = Decimal("0.5"), Decimal(1)
    wide = [Tolerance(above=half, below=one), Tolerance(above=one, below=one)]
    if coarse is not None:
        return wide
    known = {target.fpr: target.max_relative_error for target in policy.targets}
    usual = known.get(fpr, known[min(known)])
    return list(dict.fromkeys([usual, Tolerance(above=half, below=half), wide[1]]))


def _is_coarse(survey: Survey, policy: Policy, fpr: Decimal) -> str | None:
    """Write the sentence on ties that keep every threshold away from a rate; None if none do."""
    n = survey.facts.rows
    if float(fpr) * n < 1:
        return None
    known = {target.fpr: target.max_relative_error for target in policy.targets}
    below = float(known.get(fpr, known[min(known)]).below)
    tail = survey.tail(float(fpr))
    if below >= 1 or tail >= float(fpr) * (1 - COARSE * below):
        return None
    nearest = "none of the rows" if tail == 0 else percent(tail, 2)
    return (
        f"Ties: no threshold flags close to {in_percent(fpr)} of the benign rows; the nearest below flags {nearest}. "
        "So only too many false positives count there."
    )


# --- the data block -----------------------------------------------------------------------------------------


def _with_data(lines: list[str], survey: Survey) -> list[str]:
    columns = survey.columns
    named = {key: getattr(columns, key) for key in ("score", "label", "id", "timestamp")}
    for key, value in named.items():
        if value is not None:
            lines = [_keyed(line, key, f"  {key}: {as_yaml(value)}") for line in lines]
    if columns.label:
        benign = [as_yaml(value) for value in columns.benign_label]
        text = benign[0] if len(benign) == 1 else f"[{', '.join(benign)}]"
        lines = [_keyed(line, "benign_label", f"  benign_label: {text}") for line in lines]
    elif survey.suspect is not None:
        advice = f"{show(survey.suspect.column)} looks like labels: name it here, or write false if every row is benign"
        lines = [_keyed(line, "label", "  label: null", advice) for line in lines]
    place = lines.index("data:") + 1
    files = {kind: survey.paths(kind) for kind in ("fit", "holdout", "benign")} | {"malicious": survey.malicious}
    comments = {
        "benign": "benign scores to split into the two",
        "fit": "benign scores to fit on",
        "holdout": "benign scores to judge on, never used to fit",
    }
    comments["malicious"] = "malicious scores, to show what is detected"
    if columns.label:
        comments["malicious"] += ": the rows that are not benign"
    for key, paths in reversed(files.items()):
        if paths:
            text = as_yaml(_named(survey, paths)[0]) if len(paths) == 1 else json.dumps(_named(survey, paths))
            lines.insert(place, commented(f"  {key}: {text}", comments[key]))
            if key == "benign":
                lines.insert(place + 1, commented("  split: 50%", "how much of it to fit on; the rest is held out"))
    return lines


def _keyed(line: str, key: str, text: str, comment: str | None = None) -> str:
    """Change the value in the line of this key, and keep its comment; other lines stay."""
    found = re.match(rf"  {key}: [^#]*(?:# (.*))?$", line)
    return commented(text, comment or found[1] or "") if found else line


def as_yaml(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _WORDS
    return text if plain or re.fullmatch(r"0|[1-9][0-9]*", text) else json.dumps(text, ensure_ascii=False)


# --- the command --------------------------------------------------------------------------------------------


def _named(survey: Survey, paths: tuple[str, ...]) -> list[str]:
    """List the files that the command reads: a file without a header is replaced by its copy with one."""
    headless = {part.path for part in survey.parts if part.header is not None}
    return [_with_header(path) if path in headless else path for path in paths]


def _with_header(path: str) -> str:
    place = Path(path)
    return str(place.with_name(f"{place.stem}-named{place.suffix}"))


def _commands(survey: Survey) -> tuple[str, ...]:
    """Write the exact commands: they add a header to files that have none, and run."""
    commands = [
        f"{{ echo {shlex.quote(part.header)}; cat {shlex.quote(part.path)}; }} > {shlex.quote(_with_header(part.path))}"
        for part in survey.parts
        if part.header is not None
    ]
    free = next(f"v{i}" for i in range(1, 10**6) if not Path("releases", f"v{i}").exists())
    return (*commands, shlex.join(["gate", "run", "--release", free]))


# --- what was seen ------------------------------------------------------------------------------------------


def _seen(survey: Survey, scale: Scale) -> list[str]:
    columns, facts = survey.columns, survey.facts
    lines = [f"{describe_rows(part)}{_role(part.role, columns.label or None)}." for part in survey.parts]
    lines += [
        f"{part.path} has no header line: the first command below writes a copy that has one."
        for part in survey.parts
        if part.header is not None
    ]
    named = ",".join([columns.score, *survey.others])
    also = f"; {', '.join(map(show, survey.others))} could be scores too: change data.score for those"
    also += f", or gate several detectors together with --detectors {shlex.quote(named)}"
    also *= bool(survey.others)
    lines.append(f"Scores: column {show(columns.score)}{also}.")
    span = f"from {facts.low:.4g} to {facts.high:.4g}"
    lines.append(f"Scale: {span}: {scale.name}; the domain is [{shorten(scale.low)}, {shorten(scale.high)}].")
    if columns.label:
        shown = [f"{show(value)} ({_taken(value, columns.benign_label)})" for value, _ in survey.labels[:10]]
        lines.append(
            f"Labels: column {show(columns.label)}: {', '.join(shown)}; data.benign_label says which are benign."
        )
    if survey.suspect is not None:
        lines.append(
            f"Labels: none are named, but column {show(survey.suspect.column)} looks like labels: most of the highest "
            f"scores have {show(survey.suspect.value)}. Name it as data.label with its benign value, or write "
            "`label: false`; until then the gate says inconclusive (`unread`)."
        )
    lines += _direction(survey, scale)
    if facts.digits is not None and facts.distinct < facts.rows:
        lines.append(f"Rounding: scores have at most {plural(facts.digits, 'digit')} behind the point.")
    if facts.largest_tie > max(2, facts.rows // 100):
        lines.append(f"Ties: {facts.distinct:,} distinct scores; {facts.largest_tie:,} benign rows share one of them.")
    if columns.id is not None:
        lines.append(f"Ids: column {show(columns.id)} names every row: leaks and repeated rows are found by it.")
        if survey.repeated:
            rows = plural(survey.repeated, "row")
            lines.append(f"Repeated: {show(columns.id)} repeats in {rows}: duplicates are judged by it.")
        if survey.shared:
            rows = plural(survey.shared, "held-out row")
            lines.append(f"Shared: {rows} have the {show(columns.id)} of a row to fit on: overlap is judged by it.")
    if columns.timestamp is not None:
        lines.append(f"Times: column {show(columns.timestamp)}: the older rows are fitted on, the newer held out.")
    if survey.odd:
        lines.append(f"Not read: {', '.join(map(show, survey.odd))}: neither numbers, words nor times.")
    return [*lines, *(f"Not used: {why}." for why in survey.dropped)]


def _taken(value: str, benign: tuple[str, ...]) -> str:
    return "benign" if value in benign else "malicious"


def _role(role: str, label: str | None) -> str:
    rows = "benign rows" if label is not None else "rows, all taken for benign,"
    return {
        "fit": f"; its {rows} to fit on",
        "holdout": f"; its {rows} held out",
        "malicious": "; taken for malicious rows",
    }.get(role, "" if label is not None else "; all taken for benign rows")


def _direction(survey: Survey, scale: Scale) -> list[str]:
    share = survey.facts.concordance
    if share is None:
        return ["Direction: unknown without malicious rows; gate takes higher scores for more malicious."]
    pairs = f"a malicious row scores higher than a benign one in {percent(share, 3)} of pairs"
    if share < REVERSED:
        turned = "the negated score" if scale.low < 0 else f"{shorten(scale.high)} - score"
        cure = f"gate needs scores that rise with maliciousness: write {turned} instead"
        return [f"Direction: REVERSED: {pairs}. {cure}. Until then the gate fails with `direction`."]
    if share < USELESS:
        return [f"Direction: unclear: {pairs}."]
    return [f"Direction: right: {pairs}."]
