"""The repetition: the whole record made again from its data by the stages that made it, and compared value by value.

What nothing given here binds is named, and so is what nothing could bind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate.api import NO_BASELINE, check_release, gate_release, read_baseline, read_sample
from gate.errors import GateError, plural
from gate.policy import Document, Policy
from gate.release import Record, json_text
from gate.scores import Scores, Split, split
from gate.verification import (
    Check,
    CheckError,
    State,
    checked,
    differences,
    inspect,
    judged_day,
    other_installation,
    read_judged,
    state_of,
)

# What no data and no policy can bind, by its place in the record: times, names that people chose, where things lay, and
# a fraction or seed beside another one that divides the rows alike. Files by the names that they had then are compared.
UNBOUND = (
    "created",
    "judged_on",
    "release",
    "policy.path",
    "baseline.path",
    "reuse.ledger",
    "split.fraction",
    "split.seed",
    "tool.libraries.*",
    "*sources.*.path",
    "*.files.first.*.path",
    "*.files.sha256",
)
# What depends on the libraries, of a record that others than those installed here have written.
OF_LIBRARIES = ("calibrator.sha256", "calibrator.bytes")
# Sentences may change from version to version of gate.
SENTENCES = ("tool.version", "reason", "warnings", "findings.*.message", "findings.*.remedy")


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
        """By the names of the options."""
        return {name for name in self.__dataclass_fields__ if getattr(self, name)}


@dataclass(frozen=True)
class NotChecked:
    """What nothing given here binds, and the option that would."""

    what: str
    option: str


@dataclass(frozen=True)
class Answer:
    """All that was found of one directory; `whole` where whatever was not checked is no pass."""

    checks: tuple[Check, ...]
    record: Record | None = None
    not_checked: tuple[NotChecked, ...] = ()
    expired: tuple[str, ...] = ()
    whole: bool = False

    @property
    def state(self) -> State:
        found = state_of(self.checks)
        return "cannot be checked" if found == "holds" and self.whole and self.not_checked else found

    @property
    def lines(self) -> list[str]:
        """For people: what was checked, what was not, what nothing could, and what has expired since."""
        lines = [check.line for check in self.checks]
        lines += [f"not checked: {entry.what}; give {entry.option}" for entry in self.not_checked]
        if self.record is not None:
            lines.append(f"not bound: {', '.join(not_bound(self.record))}: no data can show these")
        return lines + [f"expired: {sentence}" for sentence in self.expired]

    def to_json(self) -> str:
        """For programs; a verified check is told from a verified release by `kind`."""
        content = {
            "schema_version": 1,
            "kind": None if self.record is None else {"run": "release", "check": "check"}[self.record.kind],
            "release": None if self.record is None else self.record.release,
            "outcome": None if self.record is None else self.record.outcome,
            "state": self.state,
            "checks": [asdict(check) for check in self.checks],
            "not_checked": [asdict(entry) for entry in self.not_checked],
            "not_bound": [] if self.record is None else [*not_bound(self.record)],
            "expired": [*self.expired],
        }
        return json_text(content)


def verify(
    directory: str | Path,
    data: Data = Data(),
    *,
    pinned: Document | None = None,
    complete: bool = False,
    today: date | None = None,
) -> Answer:
    """Whether a release is what its own counts, the policy and the data give; `pinned` is the policy that one wants.

    Once any data is given, or where all must be `complete`, what is left unbound is no pass.
    """
    inspected = inspect(directory, pinned)
    checks, record, document = list(inspected.checks), inspected.record, inspected.document
    whole = complete or bool(data.given)
    if record is None or document is None:
        return Answer(tuple(checks), record, whole=whole)
    try:
        _refuse_unneeded(record, data)
        samples = _read(record, document.policy, data)
        checks += _check_samples(record, samples)
        if _needed(record).keys() <= data.given:
            checks.append(checked("data", lambda: _check_data(record, document, samples, data)))
    except GateError:
        if state_of(tuple(checks)) != "does not hold":
            raise
    return Answer(
        tuple(checks),
        record,
        tuple(_not_checked(record, data, pinned)),
        tuple(_expired(record, document.policy, today or datetime.now(UTC).date())),
        whole,
    )


# --- what is needed and what is given -----------------------------------------------------------------------


def _needed(record: Record) -> dict[str, str]:
    """What it takes to repeat the judgement: options, by the names in `Data`, and what each binds."""
    needed = {}
    if record.split is not None:
        needed["benign"] = "the rows that it split, and every count of them"
    elif record.kind == "run":
        needed["fit"] = "the rows that it was fitted on"
    if record.split is None:
        needed["holdout"] = "the rows that it was judged on, and every count of them"
    if record.malicious is not None:
        needed["malicious"] = "the malicious rows, and every count of them"
    if record.kind == "check":
        needed["baseline"] = "the release that was checked"
    elif record.baseline is not None:
        needed["baseline"] = "the release that it was held against"
    elif record.first_release:
        needed["baseline"] = "that it is the first release"
    if record.baseline is not None and record.baseline.sources:
        needed["baseline_holdout"] = "that release's scores of the held-out rows"
    if record.baseline is not None and record.baseline.malicious_sources:
        needed["baseline_malicious"] = "that release's scores of the malicious rows"
    if record.reuse is not None:
        needed["ledger"] = "how often its rows had judged before"
    return needed


def not_bound(record: Record) -> tuple[str, ...]:
    """What nothing can bind of this record; a check bears the name of the release that it is given."""
    places = [place for place in UNBOUND if not (place == "release" and record.kind == "check")]
    return tuple(place for place in places if place[0] == "*" or getattr(record, place.partition(".")[0]) is not None)


def _option(record: Record, name: str) -> str:
    value = (NO_BASELINE if record.first_release else "DIR") if name == "baseline" else "FILE"
    return f"--{name.replace('_', '-')} {value}"


def _refuse_unneeded(record: Record, data: Data) -> None:
    """What the record says was not used cannot confirm it; whoever knows better has found another record."""
    needed = _needed(record)
    unneeded = sorted(data.given - needed.keys())
    if record.kind == "check" and {"fit", "benign"} & {*unneeded}:
        raise GateError("--fit, --benign: must be left out for a check, which fits nothing; give --holdout")
    if record.split is not None and {"fit", "holdout"} & {*unneeded}:
        raise GateError("--fit, --holdout: must be one sample, as this release split it; give it with --benign")
    if "benign" in unneeded:
        raise GateError("--benign: must be a sample that the release split, got one that did not; give --fit")
    if unneeded:
        name = f"--{unneeded[0].replace('_', '-')}"
        raise GateError(f"{name}: must be left out, for the record says that it was judged without; is it another one?")
    declared = data.baseline == NO_BASELINE
    if data.baseline is not None and declared != record.first_release:
        said = "a first release" if record.first_release else "one that is held against another"
        raise GateError(f"--baseline: must fit the record, which is of {said}, got {data.baseline!r}")


def _not_checked(record: Record, data: Data, pinned: Document | None) -> Iterator[NotChecked]:
    if pinned is None:
        yield NotChecked("whether this policy, with these columns, is the one that you want", "--policy FILE")
    lacking = {name: what for name, what in _needed(record).items() if name not in data.given}
    for name, what in lacking.items():
        yield NotChecked(what, _option(record, name))
    if lacking and data.given & _needed(record).keys():
        options = ", ".join(_option(record, name) for name in lacking)
        yield NotChecked("every count, which only all of the data together show", options)


def _expired(record: Record, policy: Policy, today: date) -> Iterator[str]:
    """What was good on the day of the judgement and no longer is."""
    freshness = policy.checks.freshness
    try:
        day = judged_day(record, policy)
        oldest = None if record.holdout.oldest is None else date.fromisoformat(record.holdout.oldest)
    except (CheckError, ValueError):  # which the check of the verdict says
        return
    for waiver in policy.waivers:
        if day <= waiver.expires < today:
            yield f"the waiver of {waiver.check} expired on {waiver.expires}, after the judgement of {day}"
    if freshness is not None and oldest is not None:
        then, now = ((since - oldest).days for since in (day, today))
        if then <= freshness.max_age_days < now:
            yield (
                f"the oldest held-out row is {plural(now, 'day')} old today where {freshness.max_age_days:,} are "
                f"allowed; it was {plural(max(then, 0), 'day')} old at the judgement of {day}"
            )


# --- the data -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Samples:
    """What was given, by the names of the record's sections, and how one sample was divided."""

    scores: dict[str, Scores]
    split: Split | None = None


def _read(record: Record, policy: Policy, data: Data) -> _Samples:
    """The samples given, read as the run read them, by as many arguments."""
    named: dict[str, Any] = {"fit": record.fit, "holdout": record.holdout, "benign": record.fit}
    named["malicious"] = record.malicious
    samples = {}
    for name, section in named.items():
        paths = getattr(data, name)
        if paths:
            _refuse_other_arguments(name, paths, section.sources)
            samples[name] = read_sample(name, paths, policy)
    if record.baseline is not None:
        for name, sources in (
            ("baseline_holdout", record.baseline.sources),
            ("baseline_malicious", record.baseline.malicious_sources),
        ):
            if getattr(data, name):
                _refuse_other_arguments(name, getattr(data, name), sources)
    if "benign" in samples and record.split is not None:
        if not 0 <= record.split.seed < 2**64:
            raise GateError(f"split.seed: must be a seed that gate takes, got {record.split.seed}")
        fit, holdout, divided = split(samples.pop("benign"), record.split.fraction, record.split.seed)
        return _Samples({**samples, "fit": fit, "holdout": holdout}, divided)
    return _Samples(samples)


def _refuse_other_arguments(name: str, paths: tuple[str, ...], sources: tuple[Any, ...]) -> None:
    if len(paths) != len(sources):
        raise GateError(
            f"--{name.replace('_', '-')}: must be given as the run had it, by {plural(len(sources), 'argument')} in "
            f"the same order, got {len(paths)}"
        )


def _check_samples(record: Record, samples: _Samples) -> Iterator[Check]:
    """Whether each sample is the recorded one, by its digest, whatever else is given."""
    for name, scores in samples.scores.items():
        section: Any = getattr(record, name)
        recorded = {key: getattr(section, key) for key in ("n", "sha256")}
        found = {"n": len(scores), "sha256": scores.sha256}
        first = next(differences(name, recorded, found), None)
        rows = plural(len(scores), f"{scores.kind} row")
        if first is None:
            yield Check(name, "holds", f"{rows} with the recorded digest")
        else:
            yield Check(name, "does not hold", first)


def _check_data(record: Record, document: Document, samples: _Samples, data: Data) -> str:
    """The whole record again, compared in every value that anything binds."""
    again = _repeat(record, document, samples, data).model_dump(mode="json")
    recorded = record.model_dump(mode="json")
    other = other_installation(record)
    same_words = record.tool.version == version("fpr-gate")
    excepted = [place for place in not_bound(record) if ".files." not in place]
    excepted += [*(OF_LIBRARIES if other else ()), *(() if same_words else SENTENCES)]
    for name in ("fit", "holdout", "malicious"):
        was, is_ = ([source["path"] for source in (r[name] or {"sources": []})["sources"]] for r in (recorded, again))
        excepted += [f"{name}.files.first.*.path", f"{name}.files.sha256"] if was != is_ else []
    first = next(differences("verdict.json", without(recorded, excepted), without(again, excepted)), None)
    if first is not None:
        raise CheckError(first)
    if not same_words:
        raise CheckError(
            f"the numbers are the same again, but the sentences may be others: {other}", "cannot be checked"
        )
    return "the whole record, made again from the data, is the same in every value that anything binds"


def _repeat(record: Record, document: Document, samples: _Samples, data: Data) -> Record:
    """What the stages that made the record make of the same data today."""
    day = judged_day(record, document.policy)
    created = datetime.strptime(record.created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    malicious = samples.scores.get("malicious")
    if record.kind == "check":
        return check_release(
            read_judged(str(data.baseline)),
            document,
            created,
            samples.scores["holdout"],
            judged_on=day,
            ledger=data.ledger,
            counted=True,
            malicious=malicious,
        ).record
    baseline = None
    if record.baseline is not None:
        baseline = read_baseline(str(data.baseline), document, data.baseline_holdout, data.baseline_malicious)
    return gate_release(
        document,
        record.release,
        created,
        samples.scores["fit"],
        samples.scores["holdout"],
        judged_on=day,
        ledger=data.ledger,
        counted=True,
        split=samples.split,
        malicious=malicious,
        baseline=baseline,
        first_release=record.first_release,
    ).record


def without(value: Any, places: Sequence[str], at: str = "") -> Any:
    """The same value with nothing at the places that a pattern names: keys and numbers, joined by dots."""
    if any(fnmatchcase(at, place) for place in places):
        return None
    if isinstance(value, dict):
        return {key: without(part, places, f"{at}.{key}" if at else key) for key, part in value.items()}
    if isinstance(value, list):
        return [without(part, places, f"{at}.{i}") for i, part in enumerate(value)]
    return value
