"""Unread: whether a column that nobody reads looks like labels, so that malicious rows are taken for benign ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy
from gate.stored import Count, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.sample import Sample

NAME = CheckName("unread")
FEWEST = 5  # rows of a value; fewer are among the highest scores by chance
HALF = 0.5


class UnreadSettings(Frozen):
    """Whether a column that no key of `data:` names looks like labels."""

    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Suspect(Section):
    """A value of a column that is not read: its rows, and how many of them are among as many highest scores.

    top   the rows that reach the score from which on there are as many rows as the value has
    """

    column: str
    value: str
    rows: Count
    top: Count
    reached: Count

    def concentrates(self, n: int) -> bool:
        """Whether the rows of the value are most of the highest scores, and mostly there, beyond what chance makes."""
        if not FEWEST <= self.rows < n:
            return False
        share = self.rows / n
        least = min(self.reached / self.rows, self.reached / max(self.top, 1))
        return (least - share) / (1 - share) >= HALF


class UnreadColumns(Section):
    """The value that looks most like a label, in benign rows; null where none does."""

    n: Count
    suspect: Suspect | None = None


def measure(case: Case) -> UnreadColumns | None:
    """Look at the columns with few values; nothing to do where the policy names the labels, or says there are none."""
    if case.policy.data.label is not None:
        return None
    samples = [case.holdout] if case.fit is None or case.holdout.pool is not None else [case.fit, case.holdout]
    for sample in samples:
        whole = sample.pool or sample
        suspect = find_suspect(whole)
        if suspect is not None:
            return UnreadColumns(n=whole.n, suspect=suspect)
    return UnreadColumns(n=len(case.holdout))


def find_suspect(sample: Sample) -> Suspect | None:
    """The first value that looks like a label, of the columns that have few values and no role."""
    for column, value, rows, top, reached in sample.values_at_the_top():
        suspect = Suspect(column=column[:80], value=value[:80], rows=rows, top=top, reached=reached)
        if suspect.concentrates(sample.n):
            return suspect
    return None


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    settings, found = policy.settings(UnreadSettings), evidence.of(UnreadColumns)
    if settings is None or found is None:
        return
    suspect = found.suspect
    if suspect is None:
        message = "no column that is not read looks like labels"
        yield Finding(check=NAME, outcome="pass", required=settings.required, reason="no-labels", message=message)
        return
    yield Finding(
        check=NAME,
        outcome="inconclusive",
        required=settings.required,
        reason="label-like",
        message=(
            f"column {suspect.column!r} is not read and looks like labels: {suspect.reached:,} of "
            f"{plural(suspect.rows, 'row')} with {suspect.value!r} are among the {suspect.top:,} highest scores"
        ),
        remedy=(
            f"name it with data.label (--set data.label={suspect.column}) and the benign value with data.benign_label; "
            "or say `label: false` if every row is benign"
        ),
    )


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(UnreadSettings)
    if settings is not None and policy.data.label is None:
        yield Asked(NAME, settings.required, "held-out rows", ("checks", "unread"))


CHECK = Check(
    key="unread",
    asks="whether a column that is not read looks like labels",
    decides="Of each column with few values that no key of `data:` names, it counts the rows of one value among the "
    "highest scores: those of a label are mostly there and make up most of these.",
    causes="a file with labels whose column the policy does not name",
    helps="Name the column with data.label, or say `label: false` if every row is benign.",
    evidence=UnreadColumns,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"no-labels": "no labels unread", "label-like": "a column looks like labels"},
    sentences={"label-like": "a column that is not read looks like labels"},
    settings=UnreadSettings,
    default=UnreadSettings(),
)
