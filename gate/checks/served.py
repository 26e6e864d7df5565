"""Served: whether production gave each row the calibrated score that the release gives it. Export, service and log are
tested with the calibrator, and a difference between any two of them is told apart from drift."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from gate.calibration.served import Served, compare
from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy
from gate.stored import Section
from gate.words import in_digits, percent, plural

NAME = CheckName("served")


class ServedSettings(Frozen):
    """Whether calibrated scores (`gate check --calibrated`) are those that the release gives for the raw ones."""

    required: Flag = Field(default=True, description="false: shown, but never blocks; float32 rounding never does")


class ServedRows(Section):
    """Every row that has both scores: the benign rows, and the malicious ones where there are any."""

    benign: Served
    malicious: Served | None = None

    @property
    def parts(self) -> tuple[Served, ...]:
        return (self.benign,) if self.malicious is None else (self.benign, self.malicious)

    @property
    def differ(self) -> int:
        return sum(part.differ for part in self.parts)

    @property
    def harmless(self) -> bool:
        """Whether only float32 rounding differs, the effect of which every count shows."""
        return all(part.only_rounded for part in self.parts)


def measure(case: Case) -> ServedRows | None:
    """Compare both scores; None if raw scores are judged, or if no raw scores stand beside the calibrated ones."""
    if not case.calibrated or not case.holdout.has_raw:
        return None
    served = [
        compare(*sample.raw_and_served(), case.calibrator)
        for sample in (case.holdout, case.malicious)
        if sample is not None and sample.has_raw
    ]
    return ServedRows(benign=served[0], malicious=served[1] if len(served) > 1 else None)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail if there is any difference; if it is only float32 rounding, advise."""
    settings, found = policy.settings(ServedSettings), evidence.of(ServedRows)
    if settings is None or found is None:
        return
    yield Finding(
        check=NAME,
        outcome="fail" if found.differ else "pass",
        required=settings.required and not (found.differ and found.harmless),
        reason="served-otherwise" if found.differ else "served-alike",
        message=_message(found),
        remedy=next((remedy(part) for part in found.parts if part.differ), None),
    )


# --- sentences ----------------------------------------------------------------------------------------------

NAMED = 3  # anchors in a sentence
WORDS = {
    "missing": "no calibrated score was served",
    "float32": "rounding to float32 explains what was served",
    "scaled": "the calibrated score was multiplied by {factor:.6g}",
    "other": "another score was served, which neither float32 nor one factor gives",
}
REMEDIES = {
    "missing": "serve a calibrated score for every row, and alarm where there is none",
    "float32": "keep float64 from the calibrator's input to the log",
    "scaled": "serve the calibrated score as it is, without a factor",
    "other": "compare some of these rows by hand: raw score, column, and the calibrator that serves (`gate export`)",
}


def counted(served: Served) -> dict[str, int]:
    """How many rows differ for each cause."""
    causes = {"missing": served.missing, served.cause: served.differ - served.missing}
    return {cause: rows for cause, rows in causes.items() if cause is not None and rows}


def message(served: Served) -> str:
    """The sentence of a finding with the reason code `served-otherwise`."""
    if not served.differ:
        return f"all {plural(served.rows, 'row')} were served the calibrated score that the release gives"
    causes = "; ".join(
        f"{WORDS[cause].format(factor=served.factor)} ({plural(rows, 'row')})"
        for cause, rows in counted(served).items()
    )
    much = f"they differ by at most {served.largest:.3g}, " if served.largest else ""
    return (
        f"{served.differ:,} of {plural(served.rows, 'row')} were served otherwise than the release gives them: "
        f"{causes}; {much}from calibrated score {served.lowest:.6g} on; {_flags(served)}"
    )


def _flags(served: Served) -> str:
    """The flags that differ, at the anchors with the most such rows, because a contract may have many anchors."""
    if not served.crossings:
        return "no row crosses an anchor because of it"
    at = []
    most = sorted(served.crossings, key=lambda crossing: -crossing.more - crossing.fewer)[:NAMED]
    for crossing in [crossing for crossing in served.crossings if crossing in most]:
        counts = [f"{crossing.more:,} more"] if crossing.more else []
        counts += [f"{crossing.fewer:,} fewer"] if crossing.fewer else []
        promise = f"FPR {percent(crossing.fpr)}"
        at.append(f"{' and '.join(counts)} at {in_digits(crossing.score)} ({promise})")
    others = len(served.crossings) - len(at)
    return f"rows flagged because of it: {', '.join(at)}" + (
        f", and at {plural(others, 'more anchor')}" if others else ""
    )


def remedy(served: Served) -> str | None:
    """What to do about the cause of most rows; None if nothing differs."""
    causes = counted(served)
    return REMEDIES[max(causes, key=causes.__getitem__)] if causes else None


def _message(found: ServedRows) -> str:
    if found.malicious is None:
        return message(found.benign)
    return f"benign: {message(found.benign)}; malicious: {message(found.malicious)}"


# --- what is asked ------------------------------------------------------------------------------------------


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(ServedSettings)
    if evidence.calibrated and settings is not None:
        needs = "the raw scores beside the calibrated ones (data.calibrated)"
        beside = policy.data.calibrated not in (None, policy.data.score)
        yield Asked(NAME, settings.required, needs, ("checks", "served"), by_check=beside)


CHECK = Check(
    key="served",
    asks="whether production served every row the calibrated score that the release gives for its raw score",
    decides=(
        "It compares the two scores of every row bit by bit. Any difference fails. What float32 rounding explains is "
        "recognised and does not block."
    ),
    causes=(
        "no score at all, rounding to float32, one factor, or another score: of another calibrator than the release's, "
        "of another column, clipped, rounded to decimals, or not calibrated; the finding says which of the four it is"
    ),
    helps=(
        "Do what the finding names: deploy the calibrator of this release, log its output unrounded, or name the "
        "right column (data.calibrated)."
    ),
    evidence=ServedRows,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"served-alike": "served as released", "served-otherwise": "served otherwise"},
    sentences={"served-otherwise": "scores were served otherwise than the release gives them"},
    settings=ServedSettings,
    default=ServedSettings(),
)
