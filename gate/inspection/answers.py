"""Answers: they say of each thing that is checked whether it holds, does not hold, or cannot be checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from gate.inspection.differences import differences
from gate.record import Record, libraries
from gate.record.system import SystemRecord

State = Literal["holds", "does not hold", "cannot be checked"]


@dataclass(frozen=True)
class Answer:
    """One line of the answer."""

    name: str
    state: State
    message: str

    @property
    def line(self) -> str:
        return f"{self.state}: {self.name}: {self.message}"


class RefusedError(Exception):
    """Why something does not hold, or cannot be checked."""

    def __init__(self, message: str, state: State = "does not hold") -> None:
        super().__init__(message)
        self.state = state


def state_of(answers: tuple[Answer, ...]) -> State:
    """Sum up answers: one that does not hold decides, and one that could not be checked is no pass."""
    states: tuple[State, ...] = ("does not hold", "cannot be checked")
    return next((state for state in states if any(one.state == state for one in answers)), "holds")


def answer(name: str, check: Callable[[], str]) -> Answer:
    try:
        return Answer(name, "holds", check())
    except RefusedError as objection:
        return Answer(name, objection.state, str(objection))


def require(true: bool, message: str) -> None:
    if not true:
        raise RefusedError(message)


@contextmanager
def judged_again() -> Iterator[None]:
    """Refuse a record that breaks the judgement: its numbers are those of no samples, or a part of it is missing."""
    try:
        yield
    except (RefusedError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RefusedError(f"its record breaks the judgement: {said}") from None


def refuse_differences(where: str, recorded: Any, found: Any) -> None:
    first = next(differences(where, recorded, found), None)
    if first is not None:
        raise RefusedError(first)


def other_installation(record: Record | SystemRecord) -> str:
    """Say how the writer of the record differs from this gate: bytes are compared only between equal installations."""
    recorded = {"gate": record.tool.version, **record.tool.libraries}
    installed = {"gate": version("fpr-gate"), **libraries()}
    other = [name for name in installed if recorded.get(name) != installed[name]]
    return ", ".join(f"written with {name} {recorded.get(name, 'unknown')}, here {installed[name]}" for name in other)


def same_words(record: Record | SystemRecord) -> bool:
    """Whether its sentences are those of this version of gate."""
    return record.tool.version == version("fpr-gate")


def refuse_other_bytes(names: list[str], record: Record | SystemRecord, what: str) -> None:
    """Refuse files with other bytes than the record gives; files of another installation may differ."""
    other = other_installation(record)
    if names and other:
        raise RefusedError(f"{named(names)} to be compared where it was written: {other}", "cannot be checked")
    require(not names, f"{named(names)} {what}")


def named(names: list[str]) -> str:
    return f"{listed_files(names)} {'is' if len(names) == 1 else 'are'}"


def listed_files(names: list[str]) -> str:
    """List file names, which may be long and many."""
    return ", ".join(name[:100] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
