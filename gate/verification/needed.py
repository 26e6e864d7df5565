"""Names what it takes to repeat a judgement, and what of it was not given; it reads no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gate.checks.baseline import Comparison
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.inspection.answers import Answer, state_of
from gate.policy import Document
from gate.record import Record
from gate.verification.result import Data, NotChecked


def needed_for(record: Record) -> dict[str, str]:
    """List options, by the names in `Data`, and what each binds."""
    needed = {}
    if record.split is not None:
        needed["benign"] = "the rows that it split, and every count of them"
    elif record.kind == "run":
        needed["fit"] = "the rows that it was fitted on"
    if record.split is None:
        needed["holdout"] = "the rows that it was judged on, and every count of them"
    if record.malicious is not None:
        needed["malicious"] = "the malicious rows, and every count of them"
    reference = record.reference
    if record.kind == "check":
        needed["baseline"] = "the release that was checked"
    elif reference is not None:
        needed["baseline"] = "the release that it was held against"
    elif record.of(Comparison) is not None:
        needed["baseline"] = "that it is the first release"
    if reference is not None and reference.sources:
        needed["baseline_holdout"] = "that release's scores of the held-out rows"
    if reference is not None and reference.malicious_sources:
        needed["baseline_malicious"] = "that release's scores of the malicious rows"
    if record.of(Uses) is not None:
        needed["ledger"] = "how often its rows had judged before"
    return needed


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse_unneeded(needed: Mapping[str, str], data: Data) -> None:
    """Refuse data that the record says was not used: they cannot confirm it, but they may belong to another record."""
    unneeded = sorted(data.given - needed.keys())
    if unneeded:
        raise GateError(
            f"{option(unneeded[0])}: must be left out, for the record says that it was judged without; is it another "
            "one?"
        )


def not_checked(
    needed: Mapping[str, str], data: Data, pinned: Document | None, baseline: str = "DIR"
) -> Iterator[NotChecked]:
    """List what was not given, with the option that would bind it; `baseline` is what that option would take."""
    if pinned is None:
        yield NotChecked("whether this policy, with these keys set, is the one that you want", "--policy FILE")
    for name, what in needed.items():
        if name not in data.given:
            yield NotChecked(what, f"{option(name)} {baseline if name == 'baseline' else 'FILE'}")


def with_data(answers: Iterable[Answer], shown: Iterable[Answer]) -> tuple[Answer, ...]:
    """Join all answers with what the data show; if the data cannot be used, what does not hold is still said."""
    found = [*answers]
    try:
        found.extend(shown)
    except GateError:
        if state_of(tuple(found)) != "does not hold":
            raise
    return tuple(found)
