"""The commands that judge: `gate run` and `gate check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gate.cli.drawing import drawing
from gate.cli.inputs import (
    announce,
    as_directory,
    choose_samples,
    how_divided,
    read_scores,
    reading,
    release_name,
    require_both,
    require_ledger,
)
from gate.cli.options import (
    SEED,
    SHARE,
    OfFiles,
    Request,
    bounded,
    connect,
    files,
    given,
    judging,
    overrides,
)
from gate.cli.outputs import conclude, put_flagged, refuse_places
from gate.cli.streams import log, working
from gate.cli.systems import Given, check_detectors, run_detectors

if TYPE_CHECKING:
    from gate.gating import Release
    from gate.policy import Document
    from gate.record import StoredRelease

# Stages are imported inside the commands that need them: `gate --help` must not wait for scipy.


@click.command(cls=OfFiles)
@click.option("--release", required=True, metavar="NAME", help="What the release is called in the record.")
@click.option(
    "--policy",
    type=given,
    metavar="FILE",
    help="The policy (YAML), or built-in  [default: policies/release.yaml where it exists, else built-in]",
)
@files("--fit", "Benign scores to fit on  [default: data.fit of the policy]")
@files("--holdout", "Benign scores to judge on, never used to fit  [default: data.holdout of the policy]")
@files("--benign", "Benign scores to split into the two, with --split  [default: --fit and --holdout]")
@click.option(
    "--split",
    type=SHARE,
    metavar="SHARE",
    help="How much of --benign to fit on, such as 50%; the rest is held out  [default: none]",
)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N", help="Which random split it is.")
@files("--malicious", "Malicious scores, to show what is detected  [default: data.malicious of the policy]")
@click.option(
    "--baseline",
    type=given,
    metavar="DIR",
    help="The release that went before, or none for a first one  [default: no comparison]",
)
@files("--baseline-holdout", "The baseline's scores of the held-out rows, joined by id  [default: its counts]")
@files("--baseline-malicious", "The baseline's scores of the malicious rows, joined by id  [default: its counts]")
@click.option("--out", type=given, metavar="DIR", help="The release directory to write  [default: releases/NAME]")
@overrides
@bounded
@judging
def run(
    policy: str | None,
    release: str,
    fit_paths: tuple[str, ...],
    holdout_paths: tuple[str, ...],
    benign_paths: tuple[str, ...],
    split: float | None,
    seed: int,
    malicious_paths: tuple[str, ...],
    baseline: str | None,
    baseline_holdout_paths: tuple[str, ...],
    baseline_malicious_paths: tuple[str, ...],
    out: str | None,
    overrides: tuple[str, ...],
    asked: Request,
) -> int:
    """Fit, evaluate, judge, report: the release gate.

    --fit and --holdout take a file (ENDINGS; text and JSON also with .gz), a directory, a pattern in quotes, a URI
    such as s3://bucket/scores/, or - for one number per line on stdin, and may be given several times. Where the
    policy names the files, --release is all that it takes. --set gives any key of the policy another value, and the
    record shows it. On GitHub Actions the verdict is also the step's summary, annotations and outputs.

    \b
    Example:
      gate run --release v2.4.0
      gate run --release v2.4.0 --policy policies/default.yaml \\
          --fit benign-fit.parquet --holdout benign-holdout.parquet --out releases/v2.4.0
      gate run --release v2.4.0 --benign benign.parquet --split 50% --set calibration.domain=[0,100]
    """
    from gate.checks import find_policy
    from gate.storage import NO_BASELINE

    before = None if baseline == NO_BASELINE else baseline
    require_both("--baseline-holdout", baseline_holdout_paths, "--baseline", before)
    require_both("--baseline-malicious", baseline_malicious_paths, "--baseline", before)
    release = release_name(release)
    directory = Path(out) if out else Path("releases", as_directory(release))
    document = find_policy(policy, overrides)
    document.require_columns()
    connect(document.policy.data)
    samples = {"fit": fit_paths, "holdout": holdout_paths, "benign": benign_paths, "malicious": malicious_paths}
    asked = replace(asked, release=release, directory=directory)
    run_ = run_detectors if document.policy.detectors else run_detector
    divided = how_divided(samples, split, seed, document.policy.data)
    scored = (baseline_holdout_paths, baseline_malicious_paths)
    return run_(document, Given(policy, samples, divided, baseline, scored), asked)


def run_detector(document: Document, given: Given, asked: Request) -> int:
    """Fit, evaluate and judge the one detector of a policy."""
    samples, own = choose_samples(given.samples, given.split is not None, document.policy.data)
    require_both("--baseline-malicious", given.scored[1], "--malicious", samples["malicious"])
    read = [*chain(*samples.values()), *given.others]
    replaces = refuse_places(asked, document.path, read)
    announce(document, given.policy, samples, own)
    with drawing(asked.dry_run) as drawn:
        judged = drawn(_run(document, given, asked, samples))
        return conclude(judged, asked.out, asked.force, asked.as_json, replaces, asked.flagged)


def _run(document: Document, given: Given, asked: Request, samples: Mapping[str, tuple[str, ...]]) -> Release:
    with reading(samples, document.policy) as sample:
        require_ledger(document, asked.ledger)
        from gate.gating import Job, gate_release, judging_day, read_reference
        from gate.rows.split import split as divide
        from gate.storage import NO_BASELINE

        reference = None
        if given.baseline not in (None, NO_BASELINE):
            reference = read_reference(given.baseline, document, *given.scored, read_scores)
        how = None
        if given.split is None:
            fit, holdout = sample("fit"), sample("holdout")
        else:
            benign = sample("benign")
            fit, holdout, how = divide(benign, *given.split)
            log(f"benign: {benign.summary}; {len(fit):,} to fit, {len(holdout):,} held out ({how.by})")
        malicious = sample("malicious") if samples["malicious"] else None
    job = Job(document, asked.release, asked.created, judging_day(asked.created), asked.ledger)
    with working("fitting, counting and judging"):
        judged = gate_release(
            job,
            fit,
            holdout,
            split=how,
            malicious=malicious,
            reference=reference,
            first_release=given.baseline == NO_BASELINE,
        )
    put_flagged(asked.flagged, holdout, judged.calibrator)
    return judged


@click.command()
@click.argument("directory", type=given, metavar="RELEASE_DIR")
@files("--holdout", "Benign scores to judge on.", required=True)
@files("--malicious", "Malicious scores, to show what is detected  [default: none]")
@click.option(
    "--calibrated",
    "is_calibrated",
    is_flag=True,
    help="Judge calibrated scores, as services log them  [default: raw ones]",
)
@click.option(
    "--policy", type=given, metavar="FILE", help="The policy (YAML), or built-in  [default: that of the release]"
)
@click.option("--out", type=given, metavar="DIR", help="The directory to write  [default: RELEASE_DIR/checks/TIME]")
@overrides
@bounded
@judging
def check(
    directory: str,
    holdout_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    is_calibrated: bool,
    policy: str | None,
    out: str | None,
    overrides: tuple[str, ...],
    asked: Request,
) -> int:
    """Judge an earlier release's calibrator on new benign scores.

    Does the contract still hold on today's traffic? Nothing is fitted. The calibrator is read from calibrator.json,
    never from the pickle, and the counts are compared with those of the release. The result is kept in checks/ below
    the release. With --calibrated the scores are those that production has calibrated, so that the whole way is under
    test; where the raw scores stand beside them, each row is compared with what the release gives.

    \b
    Example:
      gate check releases/v2.4.0 --holdout benign-this-week.parquet
      gate check releases/v2.4.0 --holdout log.parquet --calibrated --set data.calibrated=served
    """
    samples = {"holdout": holdout_paths, "malicious": malicious_paths}
    from gate.record.system import holds_several
    from gate.storage import CHECKS_DIRECTORY

    place = Path(out) if out else Path(directory, CHECKS_DIRECTORY, f"{asked.created:%Y%m%dT%H%M%SZ}")
    asked = replace(asked, directory=place)
    if not holds_several(directory):
        return check_detector(directory, policy, overrides, samples, asked, is_calibrated)
    if is_calibrated:
        raise click.UsageError("--calibrated judges one detector; name it as RELEASE_DIR/detectors/NAME")
    return check_detectors(directory, policy, overrides, samples, asked)


def check_detector(
    directory: str,
    named: str | None,
    overrides: tuple[str, ...],
    given: Mapping[str, tuple[str, ...]],
    asked: Request,
    is_calibrated: bool,
) -> int:
    """Judge the one detector of an earlier release on new benign scores."""
    from gate.checks import find_policy
    from gate.inspection.judgement import read_judged
    from gate.record import recorded_policy

    stored = read_judged(directory)
    record = stored.record
    document = find_policy(named, overrides) if named else recorded_policy(record.policy).override(overrides)
    document.require_columns()
    connect(document.policy.data)
    replaces = refuse_places(asked, named, [directory, *chain(*given.values())])
    announce(document, named or document.path, given, set())
    with drawing(asked.dry_run) as drawn:
        judged = drawn(_check(stored, document, given, asked, is_calibrated))
        return conclude(judged, asked.out, asked.force, asked.as_json, replaces, asked.flagged)


def _check(
    stored: StoredRelease,
    document: Document,
    given: Mapping[str, tuple[str, ...]],
    asked: Request,
    is_calibrated: bool,
) -> Release:
    with reading(given, document.policy, is_calibrated) as sample:
        require_ledger(document, asked.ledger)
        from gate.gating import Job, check_release, judging_day

        holdout = sample("holdout")
        malicious = sample("malicious") if given["malicious"] else None
    with working("counting and judging"):
        job = Job(document, stored.record.release, asked.created, judging_day(asked.created), asked.ledger)
        judged = check_release(job, stored, holdout, malicious=malicious, calibrated=is_calibrated)
    put_flagged(asked.flagged, holdout, judged.calibrator, is_calibrated)
    return judged
