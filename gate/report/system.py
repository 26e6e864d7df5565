"""Reports on several detectors: first what blocks the release, then every detector at every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from html import escape
from typing import Any
from xml.etree import ElementTree

from gate.checks import reasons
from gate.checks.check import Finding
from gate.checks.system import System, Together, describe_pass
from gate.record.system import DETECTORS, DetectorFacts, SystemRecord
from gate.report import markdown, predicate
from gate.report.formats import written_files
from gate.report.junit import fill, written
from gate.report.numbers import bounds, clean, grouped, share
from gate.report.page import Limit, fitting
from gate.report.pairs import draw_pairs
from gate.report.rows import VERDICTS, describe_blocking, in_order, unseen_by, weight
from gate.report.short import MAX_CHARACTERS
from gate.report.templates import shortened, template
from gate.report.together import picture
from gate.stored import Outcome
from gate.words import between, in_digits, listed, percent, plural

MAX_HTML_BYTES, MAX_MARKDOWN_BYTES = 1_500_000, 60_000
TABLED = ("fpr", "ranges", "tpr")  # families with a column of their own
PAIRS = 10  # pairs that are listed; more are drawn instead
MOST_BLOCKING = 12  # findings that are named


@dataclass(frozen=True)
class Cell:
    """One detector at one target."""

    column: str
    outcome: str
    observed: str = ""
    interval: str = ""
    tolerance: str = ""
    counted: str = ""
    because: str = ""
    weight: str = ""


@dataclass(frozen=True)
class Line:
    """One detector: its verdict, its cells in the order of the columns, and what else of it did not pass."""

    name: str
    outcome: str
    weight: str
    reason: str
    blocks: bool
    cells: tuple[Cell, ...]
    others: str
    unscored: int
    why: str
    remedy: str

    @property
    def link(self) -> str:
        return f"{DETECTORS}/{self.name}/{written_files()['html']}"


@dataclass(frozen=True)
class Added:
    """What one detector adds to the rows that all flag."""

    name: str
    flagged: str
    alone: str
    unscored: str
    detected: str = ""
    detected_alone: str = ""


@dataclass(frozen=True)
class Joint:
    """What all detectors flag together at one score."""

    score: str
    outcome: str
    because: str
    message: str
    remedy: str
    blocks: bool
    limit: str
    counted: str
    observed: str
    interval: str
    largest: str
    independent: str
    sum: str
    unscored: str
    detected: str
    added: tuple[Added, ...]
    pairs: tuple[tuple[str, str, str], ...]
    matrix: tuple[tuple[str, ...], ...]
    svg: str


def sentence(record: SystemRecord) -> str:
    """Say why in one sentence: which detectors block the release, and what all flag together, with its numbers."""
    if record.outcome == "pass":
        return _sentence_of_pass(record)
    names = [line.name for line in lines(record) if line.blocks and line.outcome == record.outcome]
    one, many = ("fails", "fail") if record.outcome == "fail" else ("cannot be judged",) * 2
    verb = one if len(names) == 1 else many
    said = [f"{len(names)} of {plural(len(record.detectors), 'detector')} {verb}: {listed(names)}"] if names else []
    blocked = [one for one in joint(record) if one.blocks and one.outcome == record.outcome]
    said += [f"together they flag {listed([_flagged(one) for one in blocked])}"] if blocked else []
    return "; ".join(said) or f"{record.reason[:1].upper()}{record.reason[1:]}"


def _sentence_of_pass(record: SystemRecord) -> str:
    """The recorded reason, with numbers for the count of limits; the headline says what was not judged."""
    held = [_flagged(one) for one in joint(record) if one.outcome == "pass" and one.limit != "none"]
    limits = f"together they flag {listed(held[:2])}{f'; {len(held) - 2} more limits hold' if held[2:] else ''}"
    judged = any(finding.required and not finding.waived for finding in record.joint)
    required = sum(facts.required for facts in record.detectors)
    others = [facts.name for facts in record.detectors if not facts.required and facts.outcome != "pass"]
    waived = sum(finding.waived for finding in record.findings)
    return describe_pass(required, limits if judged and held else "", waived, others)


def _flagged(one: Joint) -> str:
    """Write `5 % of benign rows from a score of 0.3 on (2.9 % allowed)`; if it is open, also what is possible."""
    possible = "" if one.outcome != "inconclusive" or not one.interval else f", {one.interval} possible"
    return f"{one.observed} of benign rows from a score of {one.score} on ({one.limit} allowed{possible})"


def remedies(record: SystemRecord) -> list[tuple[str, str, str]]:
    """List each remedy once: an outcome, for whom it is, and the remedy."""
    blocking = [line for line in lines(record) if line.blocks]
    found: dict[tuple[str, str], list[str]] = {}
    for outcome, name, remedy in [
        *((line.outcome, line.name, line.remedy) for line in blocking),
        *((one.outcome, f"system@{one.score}", one.remedy) for one in joint(record) if one.blocks),
    ]:
        if remedy:
            found.setdefault((outcome, remedy), []).append(name)
    return [(outcome, _some(names), remedy) for (outcome, remedy), names in found.items()]


def _some(names: list[str]) -> str:
    more = len(names) - MOST_BLOCKING
    return ", ".join(names[:MOST_BLOCKING]) + (f" and {more} more" if more > 0 else "")


def next_step(record: SystemRecord) -> str:
    """Say what to do if nothing blocks."""
    if record.kind == "check":
        return "Nothing: the contract holds on these rows. Check again on later ones."
    return (
        "Nothing blocks this release. Deploy each detector with its own calibrator, below detectors/; gate check tells "
        "later whether the contract still holds."
    )


def headline(record: SystemRecord) -> str:
    """Write the verdict in words, with the name of the release; a pass also says whose detection was not judged."""
    return VERDICTS[record.kind, record.outcome].format(release=clean(record.release)) + unseen_by(record)


# --- the matrix ---------------------------------------------------------------------------------------------


def columns(record: SystemRecord) -> list[tuple[str, str]]:
    """List the targets of all detectors: the key of a column and what it is called."""
    found = {
        (finding.check.family, finding.check.rate, finding.check.to): finding.check
        for finding in record.findings
        if finding.check.detector is not None and finding.check.family in TABLED
    }
    order = sorted(found, key=lambda key: (TABLED.index(key[0]), -(key[1] or 0), -(key[2] or 0)))
    return [(_column(found[key].kind, *key[1:]), _heading(*key)) for key in order]


def _column(kind: str, rate: Decimal | None, to: Decimal | None) -> str:
    return f"{kind} {rate} {to}"


def _heading(family: str, rate: Decimal | None, to: Decimal | None) -> str:
    at = "" if rate is None else percent(rate) if to is None else between(percent(rate), percent(to))
    return f"detected at {at}" if family == "tpr" else at


def lines(record: SystemRecord) -> list[Line]:
    """List every detector: first those that block the release, and among these first those that fail."""
    headed = columns(record)
    found = [_line(record, facts, headed) for facts in record.detectors]
    return sorted(found, key=lambda line: (not line.blocks, line.outcome != "fail", line.outcome == "pass"))


def _line(record: SystemRecord, facts: DetectorFacts, headed: list[tuple[str, str]]) -> Line:
    findings = record.of(facts.name)
    cells = {
        _column(finding.check.kind, finding.check.rate, finding.check.to): _cell(finding)
        for finding in findings
        if finding.check.family in TABLED
    }
    others = [f for f in findings if f.check.family not in TABLED and f.outcome != "pass"]
    named = [f"{replace(f.check, detector=None)} ({f.outcome})" for f in in_order(others)]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return Line(
        name=clean(facts.name),
        outcome=facts.outcome,
        weight="required" if facts.required else "advisory",
        reason=clean(facts.reason),
        blocks=facts.required and facts.outcome != "pass",
        cells=tuple(cells.get(key, Cell(heading, "")) for key, heading in headed),
        others=clean(", ".join(named[:3]) + more),
        unscored=facts.unscored,
        why=clean(describe_blocking(findings) or f"{facts.reason[:1].upper()}{facts.reason[1:]}"),
        remedy=clean(next((f.remedy for f in in_order(findings) if f.blocks and f.remedy), "")),
    )


def _cell(finding: Finding) -> Cell:
    heading = _heading(finding.check.family, finding.check.rate, finding.check.to)
    because, rate = reasons().get(finding.reason, clean(finding.reason)), finding.rate
    if rate is None:
        return Cell(heading, finding.outcome, because=because, weight=weight(finding))
    tally = rate.tally
    return Cell(
        column=heading,
        outcome=finding.outcome,
        observed=share(tally.flagged, tally.rows, rate.tolerance),
        interval=bounds(rate.interval, rate.tolerance),
        tolerance=bounds(rate.tolerance, None),
        counted=f"{grouped(tally.flagged)} / {grouped(tally.rows)}",
        because=because,
        weight=weight(finding),
    )


# --- what they flag together --------------------------------------------------------------------------------


def joint(record: SystemRecord) -> list[Joint]:
    """List every score at which the detectors were counted together."""
    system = record.system
    if system is None:
        return []
    findings = {finding.check.rate: finding for finding in record.joint}
    return [_joint(system, one, findings.get(one.score)) for one in system.benign]


def _joint(system: System, one: Together, finding: Finding | None) -> Joint:
    tally, edges = one.tally, None if finding is None or finding.rate is None else finding.rate.tolerance
    malicious = next((other for other in system.malicious if other.score == one.score), None)
    names = [clean(member.name) for member in one.detectors]
    few = len(names) <= PAIRS
    pairs = [(both, names[j], names[i + 1]) for i, row in enumerate(one.both) for j, both in enumerate(row) if both]
    largest = sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]
    return Joint(
        score=in_digits(one.score),
        outcome="" if finding is None else finding.outcome,
        because="not judged" if finding is None else _because(finding),
        message="" if finding is None else clean(finding.message),
        remedy="" if finding is None else clean(finding.remedy or ""),
        blocks=finding is not None and finding.blocks,
        limit="none" if edges is None else percent(edges[1]),
        counted=f"{grouped(tally.flagged)} / {grouped(tally.rows)}",
        observed=share(tally.flagged, tally.rows, edges),
        interval="" if finding is None or finding.rate is None else bounds(finding.rate.interval, edges),
        largest=percent(one.largest, 3),
        independent=percent(one.independent, 3),
        sum=percent(one.sum, 3),
        unscored=f"{grouped(one.unscored)}" if one.unscored else "",
        detected="" if malicious is None else share(malicious.tally.flagged, malicious.tally.rows),
        added=tuple(_added(one, malicious)),
        pairs=tuple((first, second, grouped(both)) for both, first, second in largest),
        matrix=_matrix(one, names) if few else (),
        svg="" if few else draw_pairs(names, one),
    )


def _because(finding: Finding) -> str:
    said = reasons().get(finding.reason, clean(finding.reason))
    return said if weight(finding) == "required" else f"{said}, {weight(finding)}"


def _added(one: Together, malicious: Together | None) -> list[Added]:
    """List the detectors; the one that flags most rows alone comes first."""
    caught = {} if malicious is None else {member.name: member for member in malicious.detectors}
    found = []
    for member in sorted(one.detectors, key=lambda member: -member.alone):
        also = caught.get(member.name)
        found.append(
            Added(
                name=clean(member.name),
                flagged=grouped(member.flagged),
                alone=grouped(member.alone),
                unscored=grouped(member.unscored),
                detected="" if also is None else grouped(also.flagged),
                detected_alone="" if also is None else grouped(also.alone),
            )
        )
    return found


def _matrix(one: Together, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Count the rows that both of each two detectors flag; the diagonal has the rows of each one."""
    cells = [[""] * len(names) for _ in names]
    for i, member in enumerate(one.detectors):
        cells[i][i] = grouped(member.flagged)
        for j in range(i):
            cells[i][j] = cells[j][i] = grouped(one.both[i - 1][j])
    return tuple((name, *row) for name, row in zip(names, cells, strict=True))


# --- the formats --------------------------------------------------------------------------------------------


def parts(record: SystemRecord, limit: Limit) -> dict[str, Any]:
    """Make what the templates fill in; names ending in `_more` say how many entries were left out."""
    every, together = lines(record), joint(record)
    blocking = [line for line in every if line.blocks]
    blocked = [one for one in together if one.blocks]
    warnings = [clean(warning) for warning in record.warnings]
    detected = any(facts.malicious_n is not None for facts in record.detectors)
    return {
        "record": record,
        "headline": headline(record),
        "reason": sentence(record),
        "columns": [heading for _, heading in columns(record)],
        "lines": every,
        "besides": any(line.others or line.unscored for line in every),
        "blocking": blocking[:MOST_BLOCKING],
        "blocking_more": max(0, len(blocking) - MOST_BLOCKING),
        "blocked": blocked,
        "remedies": remedies(record),
        "next_step": next_step(record),
        "picture": picture(record),
        "together": together[: max(1, limit.entries // 10)],
        "together_more": max(0, len(together) - max(1, limit.entries // 10)),
        "detected": detected,
        "waivers": record.waivers[: limit.entries],
        "warnings": warnings[: limit.entries],
        "warnings_more": max(0, len(warnings) - limit.entries),
        "counted": plural(len(every), "detector"),
        "entries": limit.entries,
    }


def render_html(record: SystemRecord) -> str:
    def page(limit: Limit) -> str:
        return template("system.html", clean, clean, limit.characters).render(parts(record, limit))

    return fitting(page, MAX_HTML_BYTES)


def render_markdown(record: SystemRecord) -> str:
    def page(limit: Limit) -> str:
        return template("system.md", markdown.escape, markdown.verbatim, limit.characters).render(parts(record, limit))

    return fitting(page, MAX_MARKDOWN_BYTES)


def render_junit(record: SystemRecord) -> str:
    """Write a suite for each detector and one for the system: fail is a failure, inconclusive an error."""
    suites = ElementTree.Element("testsuites", name=f"gate {clean(record.release)}")
    groups = [(facts.name, record.of(facts.name)) for facts in record.detectors] + [("system", record.joint)]
    for name, findings in groups:
        if findings:
            suite = ElementTree.SubElement(suites, "testsuite", name=clean(name), timestamp=clean(record.created))
            fill(suite, findings, name)
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    return written(suites)


def render_predicate(record: SystemRecord) -> str:
    """Write the verdict on all as an in-toto test result; see `gate.report.predicate`."""
    digests = {"policy": record.policy.sha256}
    for facts in record.detectors:
        digests |= {f"{facts.name} calibrator": facts.calibrator_sha256, f"{facts.name} verdict": facts.verdict_sha256}
    return predicate.written(record, digests)


def render_short(record: SystemRecord) -> str:
    """Write the verdict, why, and what to do if something blocks, in at most 500 characters."""
    said = [headline(record), clean(sentence(record))]
    said += [f"What to do: {remedy}" for _, _, remedy in remedies(record)[:1]]
    return shortened(". ".join(said) + ".", MAX_CHARACTERS - 1) + "\n"


class Noted:
    """What a prompt and a notebook show of a release of several detectors."""

    record: SystemRecord

    @property
    def outcome(self) -> Outcome:
        return self.record.outcome

    def __repr__(self) -> str:
        count = plural(len(self.record.detectors), "detector")
        return f"<{type(self).__name__} {self.record.release!r}: {self.outcome}, {count}>"

    def _repr_html_(self) -> str:
        said = clean(sentence(self.record))
        return f"<p><strong>{escape(headline(self.record))}</strong><br>{escape(said)}.</p>"
