"""The verdict: every check's findings, what waivers cover, and the one outcome with its reason. It measures nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import Literal

from gate.checks import CHECKS, NOT_MEASURED, Check
from gate.checks.check import Asked, Evidence, Finding
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
    found, passed_over = _found(policy, evidence, checks)
    covered = {waiver.check for waiver in policy.waivers if evidence.day <= waiver.expires}
    findings = tuple(
        finding.model_copy(update={"waived": True})
        if finding.check in covered and finding.outcome != "pass"
        else finding
        for finding in found
    )
    blocking = {finding.outcome for finding in findings if finding.blocks}
    outcome: Outcome = "fail" if "fail" in blocking else "inconclusive" if blocking or not findings else "pass"
    unseen = f"; {NOT_JUDGED}" if outcome == "pass" and evidence.malicious is None else ""
    return Verdict(
        outcome=outcome,
        reason=_reason(outcome, findings) + unseen,
        findings=findings,
        waivers=tuple(_waiver_use(waiver, findings, evidence.day) for waiver in policy.waivers),
        not_asked=tuple(NotAsked(check=one.name, needs=one.needs) for one in passed_over),
        warnings=tuple(_warnings(policy, evidence, checks)),
    )


def _found(policy: Policy, evidence: Evidence, checks: tuple[Check, ...]) -> tuple[list[Finding], list[Asked]]:
    """Every check's findings, with what nobody measured; and what is passed over where a release is checked again."""
    measured = [[*check.judge(policy, evidence)] for check in checks]
    known = {finding.check for part in measured for finding in part}
    found: list[Finding] = []
    passed_over: list[Asked] = []
    for check, part in zip(checks, measured, strict=True):
        lacking = [one for one in check.asked(policy, evidence) if one.name not in known]
        left_out = [one for one in lacking if evidence.kind == "check" and not one.by_check]
        found += [*part, *(_not_measured(one) for one in lacking if one not in left_out)]
        passed_over += left_out
    return found, passed_over


def judged_by_day(policy: Policy) -> bool:
    """Whether the verdict depends on the day."""
    return bool(policy.waivers) or any(
        getattr(settings, "column", None) == "timestamp" for settings in vars(policy.checks).values()
    )


def _not_measured(asked: Asked) -> Finding:
    return Finding(
        check=asked.name,
        outcome="inconclusive",
        required=asked.required,
        reason=NOT_MEASURED,
        message=f"the policy asks for this, and nothing that was given shows it: it takes {asked.needs}",
        remedy=asked.remedy or f"give {asked.needs}",
    )


def _waiver_use(waiver: Waiver, findings: tuple[Finding, ...], today: date) -> WaiverUse:
    covers = any(finding.check == waiver.check and finding.waived for finding in findings)
    status: Literal["active", "expired", "unused"] = "active" if covers else "unused"
    said = {"check": waiver.check, "reason": waiver.reason, "owner": waiver.owner, "expires": waiver.expires}
    return WaiverUse(**said, status="expired" if waiver.expires < today else status)


def _warnings(policy: Policy, evidence: Evidence, checks: tuple[Check, ...]) -> Iterator[str]:
    for check in checks:
        yield from check.warnings(policy, evidence)
    samples = {"holdout": evidence.holdout, "malicious": evidence.malicious}
    if evidence.kind == "run":
        samples = {"fit": evidence.fit, **samples}
    for name, facts in samples.items():
        if facts is not None and facts.unread_labels:
            yield _unread(name, facts.unread_labels)


def _unread(sample: str, columns: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, columns))
    named = (
        f"column {names}, named like a label, was" if len(columns) == 1 else f"columns {names}, named like labels, were"
    )
    kind = "malicious" if sample == "malicious" else "benign"
    return f"{sample}: {named} not used, and every row counts as {kind}; name labels in data.label or --label-column"


# --- the reason ---------------------------------------------------------------------------------------------

# Of findings without a rate: what a failing one, or one that cannot tell, says of the release.
_SENTENCES = {
    "reversed": "malicious rows are flagged less often than benign ones",
    "shared-rows": "held-out rows are among the fit rows",
    "shared-scores": "most held-out rows have the scores of fit rows",
    "shared-groups": "held-out and fit rows share groups",
    "mostly-recurring": "most held-out rows recur from the fit rows",
    "repeated-ids": "too many rows repeat the id of another",
    "differ": "held-out and fit benign rows differ",
    "granularity": "the scores are too coarse for a target",
    "stale": "held-out rows are too old",
    "future": "held-out rows lie in the future",
    "missing": "expected segments have no held-out row",
    "exhausted": "rows have judged too often",
    "repeated-scores": "rows repeat inside one sample, so that some count more than once",
    "extrapolated": "the fit sample does not reach every target",
    "served-otherwise": "scores were served otherwise than the release gives them",
    "did-not-pass": "the baseline did not pass its own gate",
    "too-few-groups": "there are too few groups to compare the samples",
}


def _reason(outcome: Outcome, findings: tuple[Finding, ...]) -> str:
    """What the benign rows say and what is said of them, then what the malicious ones and the baseline do."""
    if outcome == "pass":
        return _reason_of_pass(findings)
    blocking = [finding for finding in findings if finding.blocks and finding.outcome == outcome]
    later = [finding for finding in blocking if _is_of_malicious(finding) or finding.check.kind == "baseline"]
    benign = [finding for finding in blocking if finding not in later]
    parts = [*_reasons("held-out benign", outcome, benign), *_reasons("malicious", outcome, later)]
    return "; ".join(parts) or "nothing was measured"


def _reasons(rows: str, outcome: Outcome, blocking: list[Finding]) -> Iterator[str]:
    verb = "disprove" if outcome == "fail" else "neither prove nor disprove"
    for decided, said in (
        ([f for f in blocking if f.grade is not None and f.reason != "min-n"], f"the {rows} rows {verb} {{}}"),
        ([f for f in blocking if f.reason == "min-n"], f"too few {rows} rows for {{}}"),
        ([f for f in blocking if f.reason == NOT_MEASURED], "{} could not be measured"),
    ):
        if decided:
            yield said.format(listed([str(finding.check) for finding in decided]))
    reasons = {finding.reason for finding in blocking if finding.grade is None}
    yield from (sentence for reason, sentence in _SENTENCES.items() if reason in reasons)
    unsaid = reasons - {*_SENTENCES, "min-n", NOT_MEASURED}
    if others := [str(finding.check) for finding in blocking if finding.grade is None and finding.reason in unsaid]:
        yield f"{listed(others)} {'failed' if outcome == 'fail' else 'cannot tell'}"


def _is_of_malicious(finding: Finding) -> bool:
    return finding.check.kind.startswith("tpr")


def _reason_of_pass(findings: tuple[Finding, ...]) -> str:
    targets = [f for f in findings if f.required and f.check.family == "fpr" and f.rate is not None]
    required = [finding for finding in targets if not finding.waived]
    proven = sum(finding.grade == "proven" for finding in required)
    waived = sum(finding.waived for finding in findings)
    detection = sum(finding.required and _is_of_malicious(finding) for finding in findings)
    aside = f"; {plural(waived, 'finding')} waived" if waived else ""
    aside += f"; {plural(detection, 'detection check')} passed" if detection else ""
    if not required:
        return ("every required target is waived" if targets else "no target is required") + aside
    if proven == len(required):
        return f"{plural(proven, 'required target')} proven on held-out benign rows{aside}"
    return f"{plural(len(required), 'required target')} passed on held-out benign rows, {proven} of them proven{aside}"
