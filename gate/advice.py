"""The advice: what a reader should know of a release and no finding says. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping

from gate import comparison as comparisons
from gate import ledger as ledgers
from gate.evidence import Evidence
from gate.planning import warnings
from gate.policy import Policy
from gate.verdict import Verdict


def warnings_of(
    policy: Policy,
    fit_n: int,
    evidence: Evidence,
    verdict: Verdict,
    scores_sha256: str,
    rows_sha256: str | None,
    unread: Mapping[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """What a reader should know and no finding says; `unread` names columns like labels that each sample has."""
    passed = {finding.check for finding in verdict.findings if finding.outcome == "pass"}
    return (
        *warnings(policy, passed, fit_n, evidence.effective_n),
        *ledgers.warnings(evidence.use, rows_sha256, policy),
        *comparisons.warnings(evidence.comparison, scores_sha256, rows_sha256),
        *(_unread_warning(sample, columns) for sample, columns in unread.items() if columns),
    )


def _unread_warning(sample: str, columns: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, columns))
    named = (
        f"column {names}, named like a label, was" if len(columns) == 1 else f"columns {names}, named like labels, were"
    )
    kind = "malicious" if sample == "malicious" else "benign"
    return f"{sample}: {named} not used, and every row counts as {kind}; name labels in data.label or --label-column"
