"""The data that a release is verified with, and the result; nothing is checked here."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gate.inspection.answers import Answer, State, state_of
from gate.record import Record, json_text
from gate.record.system import SystemRecord


@dataclass(frozen=True)
class Data:
    """What a person gives to repeat a judgement with; `baseline` is a directory, or "none" for a first release."""

    fit: tuple[str, ...] = ()
    holdout: tuple[str, ...] = ()
    benign: tuple[str, ...] = ()
    malicious: tuple[str, ...] = ()
    baseline: str | None = None
    baseline_holdout: tuple[str, ...] = ()
    baseline_malicious: tuple[str, ...] = ()
    ledger: str | None = None

    @property
    def given(self) -> set[str]:
        """The given data, by the names of the options."""
        return {name for name in self.__dataclass_fields__ if getattr(self, name)}


NOTHING_GIVEN = Data()


@dataclass(frozen=True)
class NotChecked:
    """Something that the given data do not bind, and the option that would bind it."""

    what: str
    option: str


@dataclass(frozen=True)
class Verification:
    """All that was found about one directory, of one detector or of several.

    `not_bound` names what no data can show of the record; with `whole` whatever was not checked is no pass.
    """

    answers: tuple[Answer, ...]
    record: Record | SystemRecord | None = None
    not_bound: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    expired: tuple[str, ...] = ()
    whole: bool = False
    detectors: tuple[str, ...] | None = None

    @property
    def state(self) -> State:
        found = state_of(self.answers)
        return "cannot be checked" if found == "holds" and self.whole and self.not_checked else found

    @property
    def lines(self) -> list[str]:
        """Write for people what was checked, what was not, what nothing could check, and what has expired since."""
        lines = [answer.line for answer in self.answers]
        lines += [f"not checked: {entry.what}; give {entry.option}" for entry in self.not_checked]
        if self.not_bound:
            lines.append(f"not bound: {', '.join(self.not_bound)}: no data can show these")
        return lines + [f"expired: {sentence}" for sentence in self.expired]

    def to_json(self) -> str:
        """Write for programs; `kind` distinguishes a verified check from a verified release."""
        record = self.record
        content = {
            "schema_version": 1,
            "kind": None if record is None else {"run": "release", "check": "check"}[record.kind],
            "release": None if record is None else record.release,
            "outcome": None if record is None else record.outcome,
            **({} if self.detectors is None else {"detectors": [*self.detectors]}),
            "state": self.state,
            "checks": [asdict(answer) for answer in self.answers],
            "not_checked": [asdict(entry) for entry in self.not_checked],
            "not_bound": [*self.not_bound],
            "expired": [*self.expired],
        }
        return json_text(content)
