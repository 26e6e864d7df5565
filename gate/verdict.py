"""The verdict: every check's findings, what waivers cover, and the one outcome with its reason. It measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import Any, Literal

from gate.checks import CHECKS
from gate.checks.check import NOT_MEASURED, Asked, Check, CheckOf, Evidence, EvidenceT, Finding, not_measured
from gate.names import Name
from gate.policy import Policy, Waiver
from gate.stored import Outcome, Section
from gate.words import listed, plural

NOT_JUDGED = "without malicious rows, detection was not judged"


class WaiverUse(Section):
    """What became of a waiver: `active` covers a finding, `expired` no longer does, `unused` had nothing to cover."""

    check: Name
    reason: str
    owner: str
    expires: date
    status: Literal["active", "expired", "unused"]


class NotAsked(Section):
    """What the policy asks of a release and a check of it cannot ask again, and what it would need."""

    check: Name
    needs: str


@dataclass(frozen=True)
class Verdict:
    """All findings and what follows from them."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverUse, ...]
    not_asked: tuple[NotAsked, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The outcome, its reason, and the numbers of the first finding that blocks."""
        shown = [finding for finding in self.findings if finding.blocks and finding.outcome == self.outcome]
        said = "".join(f" ({finding.check}: {finding.message.partition('; ')[0]})" for finding in shown[:1])
        return f"<Verdict {self.outcome}: {self.reason}{said}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = "".join(
            f"<tr><td>{finding.outcome}</td><td>{escape(str(finding.check))}</td><td>{escape(finding.message)}</td></tr>"
            for finding in self.findings
        )
        return f"<p><strong>{self.outcome.upper()}</strong>: {escape(self.reason)}.</p><table>{rows}</table>"


def judge(policy: Policy, evidence: Evidence, checks: tuple[Check, ...] = CHECKS) -> Verdict:
    """Fail if any required, unwaived finding fails; else inconclusive if any is; else pass."""
    found, passed_over = find(policy, evidence, checks, again=evidence.kind == "check")
    findings = waive(policy, found, evidence.day)
    blocking = {finding.outcome for finding in findings if finding.blocks}
    outcome: Outcome = "fail" if "fail" in blocking else "inconclusive" if blocking or not findings else "pass"
    unseen = f"; {NOT_JUDGED}" if outcome == "pass" and evidence.malicious is None else ""
    return Verdict(
        outcome=outcome,
        reason=_reason(outcome, findings, checks) + unseen,
        findings=findings,
        waivers=tuple(waiver_use(waiver, findings, evidence.day) for waiver in policy.waivers),
        not_asked=tuple(NotAsked(check=one.name, needs=one.needs) for one in passed_over),
        warnings=tuple(_warnings(policy, evidence, checks)),
    )


def find(
    policy: Policy, evidence: EvidenceT, checks: Sequence[CheckOf[Any, EvidenceT]], again: bool = False
) -> tuple[list[Finding], list[Asked]]:
    """Every check's findings, also on missing input; and the questions not asked if a release is checked `again`."""
    measured = [[*check.judge(policy, evidence)] for check in checks]
    known = {finding.check for part in measured for finding in part}
    found: list[Finding] = []
    passed_over: list[Asked] = []
    for check, part in zip(checks, measured, strict=True):
        lacking = [one for one in check.asked(policy, evidence) if one.name not in known]
        left_out = [one for one in lacking if again and not one.by_check]
        found += [*part, *(not_measured(one) for one in lacking if one not in left_out)]
        passed_over += left_out
    return found, passed_over


def waive(policy: Policy, found: Sequence[Finding], today: date) -> tuple[Finding, ...]:
    """The findings; those that do not pass are marked if a waiver covers them."""
    covered = {waiver.check for waiver in policy.waivers if today <= waiver.expires}
    return tuple(
        finding.model_copy(update={"waived": True})
        if finding.check in covered and finding.outcome != "pass"
        else finding
        for finding in found
    )


def judged_by_day(policy: Policy) -> bool:
    """Whether the verdict depends on the day."""
    return bool(policy.waivers) or any(
        getattr(settings, "column", None) == "timestamp" for settings in vars(policy.checks).values()
    )


def waiver_use(waiver: Waiver, findings: Sequence[Finding], today: date) -> WaiverUse:
    """What became of a waiver among these findings."""
    covers = any(finding.check == waiver.check and finding.waived for finding in findings)
    status: Literal["active", "expired", "unused"] = "active" if covers else "unused"
    said = {"check": waiver.check, "reason": waiver.reason, "owner": waiver.owner, "expires": waiver.expires}
    return WaiverUse(**said, status="expired" if waiver.expires < today else status)


def _warnings(policy: Policy, evidence: Evidence, checks: tuple[Check, ...]) -> Iterator[str]:
    for check in checks:
        yield from check.warnings(policy, evidence)


# --- the reason ---------------------------------------------------------------------------------------------

# If several checks block, these come first in the sentence; the others follow in the order of a report.
_FIRST = ("unread", "direction", "overlap", "reuse", "duplicates", "floor")


def _reason(outcome: Outcome, findings: tuple[Finding, ...], checks: tuple[Check, ...]) -> str:
    """The sentence: first what the benign rows show, then what the malicious rows and the baseline show."""
    if outcome == "pass":
        return _reason_of_pass(findings, checks)
    blocking = [finding for finding in findings if finding.blocks and finding.outcome == outcome]
    benign = [finding for finding in blocking if _about(finding, checks) == "benign"]
    later = [finding for finding in blocking if _about(finding, checks) != "benign"]
    parts = [*_reasons("held-out benign", outcome, benign, checks), *_reasons("malicious", outcome, later, checks)]
    return "; ".join(parts) or "nothing was measured"


def _reasons(rows: str, outcome: Outcome, blocking: list[Finding], checks: tuple[Check, ...]) -> Iterator[str]:
    verb = "disprove" if outcome == "fail" else "neither prove nor disprove"
    for decided, said in (
        ([f for f in blocking if f.grade is not None and f.reason != "min-n"], f"the {rows} rows {verb} {{}}"),
        ([f for f in blocking if f.reason == "min-n"], f"too few {rows} rows for {{}}"),
        ([f for f in blocking if f.reason == NOT_MEASURED], "{} could not be measured"),
    ):
        if decided:
            yield said.format(listed([str(finding.check) for finding in decided]))
    yield from _sentences([f for f in blocking if f.grade is None and f.reason not in ("min-n", NOT_MEASURED)], checks)


def _sentences(blocking: list[Finding], checks: tuple[Check, ...]) -> Iterator[str]:
    """The checks' sentences on findings without a rate; if there are none, the names and the reason in words."""
    said: dict[tuple[str, str], str] = {}
    words: dict[tuple[str, str], str] = {}
    for check in sorted(checks, key=lambda check: _FIRST.index(check.key) if check.key in _FIRST else len(_FIRST)):
        for name in check.names:
            said |= {(name, code): sentence for code, sentence in check.sentences.items()}
            words |= {(name, code): text for code, text in check.reasons.items()}
    found = {(finding.check.family, finding.reason) for finding in blocking}
    yield from dict.fromkeys(sentence for key, sentence in said.items() if key in found)
    others: dict[str, list[str]] = {}
    for finding in blocking:
        key = finding.check.family, finding.reason
        if key not in said:
            others.setdefault(words.get(key, finding.reason), []).append(str(finding.check))
    yield from (f"{listed(names)}: {reason}" for reason, names in others.items())


def _about(finding: Finding, checks: tuple[Check, ...]) -> str:
    return next((check.about for check in checks if finding.check.family in check.names), "benign")


def _reason_of_pass(findings: tuple[Finding, ...], checks: tuple[Check, ...]) -> str:
    targets = [f for f in findings if f.required and f.check.family == "fpr" and f.rate is not None]
    required = [finding for finding in targets if not finding.waived]
    proven = sum(finding.grade == "proven" for finding in required)
    waived = sum(finding.waived for finding in findings)
    detection = sum(finding.required and _about(finding, checks) == "malicious" for finding in findings)
    aside = f"; {plural(waived, 'finding')} waived" if waived else ""
    aside += f"; {plural(detection, 'detection check')} passed" if detection else ""
    if not required:
        return ("every required target is waived" if targets else "no target is required") + aside
    if proven == len(required):
        return f"{plural(proven, 'required target')} proven on held-out benign rows{aside}"
    return f"{plural(len(required), 'required target')} passed on held-out benign rows, {proven} of them proven{aside}"
