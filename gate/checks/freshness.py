"""Freshness: how old the held-out rows are on the day of the judgement."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyCount
from gate.stored import Section
from gate.words import plural

NAME = CheckName("freshness")


class FreshnessSettings(Frozen):
    """How old the held-out rows may be."""

    column: ClassVar[str] = "timestamp"

    max_age_days: PolicyCount = Field(description="no held-out row may be older than this on the day of the release")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_age_days")
    @classmethod
    def _days(cls, value: int) -> int:
        if not 1 <= value <= 36_500:
            raise PydanticCustomError("days", "must be from 1 to 36,500")
        return value


class Ages(Section):
    """The days of the oldest and of the newest held-out row, and of the fit rows where these have times."""

    oldest: date
    newest: date
    fit_oldest: date | None = None
    fit_newest: date | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        fit = (self.fit_oldest, self.fit_newest)
        if self.oldest > self.newest or (None in fit and fit != (None, None)):
            raise ValueError("must have a newest day that is not before the oldest")
        return self


def measure(case: Case) -> Ages | None:
    """Measure the days; None if the held-out rows have no times."""
    from gate.rows.describe import days_of

    held_out, fitted = days_of(case.holdout), None if case.fit is None else days_of(case.fit)
    if held_out is None:
        return None
    oldest, newest = fitted or (None, None)
    return Ages(oldest=held_out[0], newest=held_out[1], fit_oldest=oldest, fit_newest=newest)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail if a held-out row is older than the policy allows, or lies in the future."""
    settings, found, today = policy.settings(FreshnessSettings), evidence.of(Ages), evidence.day
    if settings is None or found is None:
        return
    age, remedy = (today - found.oldest).days, None
    message = f"held-out rows from {found.oldest} to {found.newest}"
    if (found.newest - today).days > 1:  # a day of grace for clocks and zones
        reason = "future"
        message += f", later than this release of {today}"
        remedy = f"look at column {policy.data.timestamp!r}: its times or their unit are wrong"
    else:
        reason = "stale" if age > settings.max_age_days else "recent"
        message += f", the oldest {plural(max(age, 0), 'day')} old where {settings.max_age_days:,} are allowed"
        remedy = f"hold out rows of the last {plural(settings.max_age_days, 'day')}" if reason == "stale" else None
    message += f"; fit rows from {found.fit_oldest} to {found.fit_newest}" if found.fit_oldest is not None else ""
    yield Finding(
        check=NAME,
        outcome="fail" if remedy else "pass",
        required=settings.required,
        reason=reason,
        message=message,
        remedy=remedy,
    )


def expired(policy: Policy, evidence: Evidence, today: date) -> str | None:
    """A sentence if the rows were fresh on the day of the judgement and no longer are."""
    settings, found = policy.settings(FreshnessSettings), evidence.of(Ages)
    if settings is None or found is None:
        return None
    then, now = ((day - found.oldest).days for day in (evidence.day, today))
    if not then <= settings.max_age_days < now:
        return None
    return (
        f"the oldest held-out row is {plural(now, 'day')} old today where {settings.max_age_days:,} are allowed; "
        f"it was {plural(max(then, 0), 'day')} old at the judgement of {evidence.day}"
    )


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(FreshnessSettings)
    if settings is not None:
        needs = f"held-out rows with a column {policy.data.timestamp!r}"
        yield Asked(NAME, settings.required, needs, ("checks", "freshness"))


CHECK = Check(
    key="freshness",
    asks="how old the held-out rows are",
    decides="It fails where the oldest held-out row is older than max_age_days on the day of the judgement, or where "
    "rows lie in the future.",
    causes="an old held-out sample, or times in another unit",
    helps="Hold out recent rows, or name the column that says when a row was seen (data.timestamp).",
    evidence=Ages,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"recent": "recent enough", "stale": "too old", "future": "not yet seen"},
    sentences={"stale": "held-out rows are too old", "future": "held-out rows lie in the future"},
    settings=FreshnessSettings,
    unasked="null: the age of rows does not matter",
)
