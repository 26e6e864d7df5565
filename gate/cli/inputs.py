"""The inputs of a command: the clock, the policy, the samples, and whether they belong together; it judges nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gate.cli.streams import log, working
from gate.errors import GateError

if TYPE_CHECKING:
    from gate.policy import Columns, Document, Policy
    from gate.rows.sample import Sample


def now() -> datetime:
    """Return the time of the record, before any stage runs: numpy shows a traceback for a bad SOURCE_DATE_EPOCH.

    Expiry is also judged by the clock (`gate.gating.judging_day`): to set the variable revives no waiver.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return datetime.now(UTC)
    try:
        if not (epoch.isascii() and epoch.isdigit()):
            raise ValueError
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise GateError(
            f"SOURCE_DATE_EPOCH: must be whole seconds since 1970, got {epoch[:40]!r}; unset it to use the clock"
        ) from None


@contextmanager
def reading(
    samples: Mapping[str, tuple[str, ...]], policy: Policy, calibrated: bool = False
) -> Iterator[Callable[[str], Sample]]:
    """Read the samples in a thread while this process imports the stages; each is logged when it is asked for."""
    from gate.rows.engine import here
    from gate.rows.reading import read_sample

    def read(name: str, paths: tuple[str, ...]) -> Sample:
        sample = read_sample(name, paths, policy, calibrated)
        if name != "benign":  # which is divided before anybody asks for its order
            sample.ordered  # noqa: B018, the answer is kept
        return sample

    engine, context = here(), copy_context()
    with ThreadPoolExecutor(1) as thread:
        answers = {name: thread.submit(context.run, read, name, paths) for name, paths in samples.items() if paths}

        def ask(name: str) -> Sample:
            with working(f"reading {', '.join(samples[name])}"):
                sample = answers[name].result()
            if name != "benign":
                log(f"{name}: {sample.summary}")
            return sample

        try:
            yield ask
        except BaseException:
            thread.shutdown(wait=False, cancel_futures=True)
            engine.interrupt()
            raise


def read_scores(name: str, paths: tuple[str, ...], policy: Policy) -> Sample:
    """Read the scores of one sample, and describe them on stderr."""
    from gate.rows.reading import read_sample

    with working(f"reading {', '.join(paths)}"):
        scores = read_sample(name, paths, policy)
    log(f"{name}: {scores.summary}")
    return scores


def announce(document: Document, named: str | None, samples: Mapping[str, tuple[str, ...]], own: set[str]) -> None:
    """Log the first line on stderr: the policy and the files, and which of them the command line did not name."""
    files = [
        f"{name} {', '.join(paths)}{' (from the policy)' if name in own else ''}"
        for name, paths in samples.items()
        if paths
    ]
    log(f"policy {document.path}{found_here(document, named)}; {'; '.join(files)}")


def found_here(document: Document, named: str | None) -> str:
    from gate.policy import OWN

    return " (found here)" if named is None and document.path == str(OWN) else ""


def require_both(option: str, given: object, other: str, also: object) -> None:
    if given and not also:
        raise click.UsageError(f"{option} needs {other}")


WHICH = (
    "give either --fit and --holdout (or name them in the policy, as data: {fit: FILE, holdout: FILE}), "
    "or --benign and --split (as data: {benign: FILE, split: 50%})"
)


def how_divided(
    given: Mapping[str, tuple[str, ...]], split: float | None, seed: int, data: Columns
) -> tuple[float, int] | None:
    """Return the share to fit on and the seed where one sample is to be divided, and None where there are two.

    The command line says which of the two it is, or else the policy: nothing else says what was held out.
    """
    apart, together = bool(given["fit"] or given["holdout"]), bool(given["benign"] or split is not None)
    if not apart and not together:
        apart, together = bool(data.fit or data.holdout), bool(data.benign)
    share = data.split if split is None else split
    if (apart and together) or (together and (share is None or not (given["benign"] or data.benign))):
        raise click.UsageError(WHICH)
    return (float(share), seed) if together and share is not None else None


def choose_samples(
    given: Mapping[str, tuple[str, ...]], divided: bool, data: Columns
) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Choose the files of each sample, and name the samples whose files the policy gives; the command line wins."""
    chosen, own = dict(given), set()
    for kind in ("benign", "malicious") if divided else ("fit", "holdout", "malicious"):
        if not given[kind] and getattr(data, kind):
            chosen[kind] = getattr(data, kind)
            own.add(kind)
    if not divided and not (chosen["fit"] and chosen["holdout"]):
        raise click.UsageError(WHICH)
    return chosen, own


def require_ledger(document: Document, ledger: str | None) -> None:
    from gate.ledger import require

    require(document, ledger)


def release_name(name: str) -> str:
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise GateError(f"--release: must be one line of 1 to 200 printable characters, got {name!r}")
    return name


def as_directory(release: str) -> str:
    if release in (".", "..") or "/" in release or "\\" in release:
        raise GateError(
            f"--release: must be a plain name where --out is not given, got {release!r}; name it with --out"
        )
    return release
