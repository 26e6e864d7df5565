"""The repetition: the whole record made again from its data by the stages that made it, and compared value by value.

What nothing given here binds is named, and so is what nothing could bind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate.checks.freshness import expired as no_longer_fresh
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.gating import NO_BASELINE, Job, check_release, gate_release, read_reference, read_sample
from gate.inspection.answers import Answer, RefusedError, answer, other_installation, refuse_differences, state_of
from gate.inspection.differences import differences
from gate.inspection.judgement import read_judged
from gate.inspection.release import inspect
from gate.policy import Document, Policy
from gate.record import Record
from gate.record.system import SystemRecord
from gate.scores import Scores, split
from gate.sources import Split
from gate.verification.result import NOTHING_GIVEN, Data, NotChecked, Verification
from gate.words import plural

# What no data and no policy can bind, by its place in the record: times, names that people chose, where things lay, and
# a fraction or seed beside another one that divides the rows alike. Files by the names that they had then are compared.
UNBOUND = (
    "created",
    "judged_on",
    "release",
    "policy.path",
    "checks.baseline.reference.path",
    "checks.reuse.ledger",
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


def verify(
    directory: str | Path,
    data: Data = NOTHING_GIVEN,
    *,
    pinned: Document | None = None,
    complete: bool = False,
    today: date | None = None,
) -> Verification:
    """Whether a release is what its own counts, the policy and the data give; `pinned` is the policy that one wants.

    Once any data is given, or where all must be `complete`, what is left unbound is no pass.
    """
    inspected = inspect(directory, pinned)
    answers, record, document = list(inspected.answers), inspected.record, inspected.document
    whole = complete or bool(data.given)
    unbound = () if record is None else not_bound(record)
    if record is None or document is None:
        return Verification(tuple(answers), record, unbound, whole=whole)
    try:
        _refuse_unneeded(record, data)
        samples = _read(record, document.policy, data)
        answers += check_samples(record, samples.scores)
        if needed_for(record).keys() <= data.given:
            answers.append(answer("data", lambda: _check_data(record, document, samples, data)))
    except GateError:
        if state_of(tuple(answers)) != "does not hold":
            raise
    return Verification(
        tuple(answers),
        record,
        unbound,
        tuple(_not_checked(record, data, pinned)),
        tuple(expired(record, document.policy, today or datetime.now(UTC).date())),
        whole,
    )


# --- what is needed and what is given -----------------------------------------------------------------------


def needed_for(record: Record) -> dict[str, str]:
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
    reference = record.reference
    if record.kind == "check":
        needed["baseline"] = "the release that was checked"
    elif reference is not None:
        needed["baseline"] = "the release that it was held against"
    elif record.is_first:
        needed["baseline"] = "that it is the first release"
    if reference is not None and reference.sources:
        needed["baseline_holdout"] = "that release's scores of the held-out rows"
    if reference is not None and reference.malicious_sources:
        needed["baseline_malicious"] = "that release's scores of the malicious rows"
    if record.of(Uses) is not None:
        needed["ledger"] = "how often its rows had judged before"
    return needed


def not_bound(record: Record) -> tuple[str, ...]:
    """What nothing can bind of this record; a check bears the name of the release that it is given."""
    places = [place for place in UNBOUND if not (place == "release" and record.kind == "check")]
    return tuple(place for place in places if place[0] == "*" or _is_there(record, place))


def _is_there(record: Record, place: str) -> bool:
    value: Any = record
    for key in place.split("."):
        if key == "*":
            break
        value = getattr(value, key, None)
    return value is not None


def _option(record: Record, name: str) -> str:
    value = (NO_BASELINE if record.is_first else "DIR") if name == "baseline" else "FILE"
    return f"--{name.replace('_', '-')} {value}"


def _refuse_unneeded(record: Record, data: Data) -> None:
    """What the record says was not used cannot confirm it; whoever knows better has found another record."""
    needed = needed_for(record)
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
    if data.baseline is not None and declared != record.is_first:
        said = "a first release" if record.is_first else "one that is held against another"
        raise GateError(f"--baseline: must fit the record, which is of {said}, got {data.baseline!r}")


def _not_checked(record: Record, data: Data, pinned: Document | None) -> Iterator[NotChecked]:
    if pinned is None:
        yield NotChecked("whether this policy, with these columns, is the one that you want", "--policy FILE")
    lacking = {name: what for name, what in needed_for(record).items() if name not in data.given}
    for name, what in lacking.items():
        yield NotChecked(what, _option(record, name))
    if lacking and data.given & needed_for(record).keys():
        options = ", ".join(_option(record, name) for name in lacking)
        yield NotChecked("every count, which only all of the data together show", options)


def expired_waivers(policy: Policy, judged: date, today: date) -> Iterator[str]:
    for waiver in policy.waivers:
        if judged <= waiver.expires < today:
            yield f"the waiver of {waiver.check} expired on {waiver.expires}, after the judgement of {judged}"


def expired(record: Record, policy: Policy, today: date) -> Iterator[str]:
    """What was good on the day of the judgement and no longer is."""
    yield from expired_waivers(policy, record.day, today)
    stale = no_longer_fresh(policy, record.evidence, today)
    if stale is not None:
        yield stale


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
            samples[name] = read_sample(name, paths, policy, record.calibrated)
    if (reference := record.reference) is not None:
        for name, sources in (
            ("baseline_holdout", reference.sources),
            ("baseline_malicious", reference.malicious_sources),
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


def check_samples(record: Record, samples: Mapping[str, Scores]) -> Iterator[Answer]:
    """Whether each sample is the recorded one, by its digest, whatever else is given."""
    for name, scores in samples.items():
        section: Any = getattr(record, name)
        recorded = {key: getattr(section, key) for key in ("n", "sha256")}
        found = {"n": len(scores), "sha256": scores.sha256}
        first = next(differences(name, recorded, found), None)
        rows = plural(len(scores), f"{scores.kind} row")
        if first is None:
            yield Answer(name, "holds", f"{rows} with the recorded digest")
        else:
            yield Answer(name, "does not hold", first)


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
    refuse_differences("verdict.json", without(recorded, excepted), without(again, excepted))
    refuse_other_words(record)
    return "the whole record, made again from the data, is the same in every value that anything binds"


def _repeat(record: Record, document: Document, samples: _Samples, data: Data) -> Record:
    """What the stages that made the record make of the same data today."""
    job = Job(document, record.release, record.time, record.day, data.ledger, counted=True)
    malicious = samples.scores.get("malicious")
    if record.kind == "check":
        stored = read_judged(str(data.baseline))
        job = replace(job, release=stored.record.release)
        scores, calibrated = samples.scores["holdout"], record.calibrated
        return check_release(job, stored, scores, malicious=malicious, calibrated=calibrated).record
    reference = None
    if record.reference is not None:
        reference = read_reference(str(data.baseline), document, data.baseline_holdout, data.baseline_malicious)
    return gate_release(
        job,
        samples.scores["fit"],
        samples.scores["holdout"],
        split=samples.split,
        malicious=malicious,
        reference=reference,
        first_release=record.is_first,
    ).record


def refuse_other_words(record: Record | SystemRecord) -> None:
    """Sentences are compared only with those of the same version of gate."""
    if record.tool.version != version("fpr-gate"):
        other = other_installation(record)
        raise RefusedError(
            f"the numbers are the same again, but the sentences may be others: {other}", "cannot be checked"
        )


def without(value: Any, places: Sequence[str], at: str = "") -> Any:
    """The same value with nothing at the places that a pattern names: keys and numbers, joined by dots."""
    if any(fnmatchcase(at, place) for place in places):
        return None
    if isinstance(value, dict):
        return {key: without(part, places, f"{at}.{key}" if at else key) for key, part in value.items()}
    if isinstance(value, list):
        return [without(part, places, f"{at}.{i}") for i, part in enumerate(value)]
    return value
