"""The commands that judge: `gate run` and `gate check`."""

from __future__ import annotations

from pathlib import Path

import click

from gate.cli.inputs import (
    as_directory,
    now,
    read_scores,
    reading,
    release_name,
    require_both,
    require_ledger,
    require_samples,
)
from gate.cli.options import bounded, columns_of_files, files, given, judging
from gate.cli.outputs import conclude, preparing
from gate.cli.streams import log, working

# Stages are imported inside the commands that need them: `gate --help` must not wait for scipy.


@click.command()
@click.option("--policy", type=given, metavar="FILE", help="The policy (YAML); without it, the built-in default.")
@click.option("--release", required=True, metavar="NAME", help="What the release is called in the record.")
@files("--fit", "Benign scores to fit on.")
@files("--holdout", "Benign scores to judge on; never used to fit.")
@files("--benign", "Benign scores to split into the two.")
@click.option(
    "--split", type=click.FloatRange(0, 1, True, True), metavar="X", help="The fraction of --benign to fit on."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the split.")
@files("--malicious", "Malicious scores, for what is detected at each anchor.")
@click.option("--baseline", type=given, metavar="DIR", help="The release that went before; none for the first one.")
@files("--baseline-holdout", "The baseline's scores of the held-out rows, joined by id.")
@files("--baseline-malicious", "The baseline's scores of the malicious rows, joined by id.")
@click.option("--out", type=given, metavar="DIR", help="The release directory to write  [default: releases/NAME]")
@columns_of_files
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
    ledger: str | None,
    dry_run: bool,
    as_json: bool,
    force: bool,
    **columns: str | tuple[str, ...] | None,
) -> int:
    """Fit, evaluate, judge, report: the release gate.

    --fit and --holdout take a file (.parquet, .pq, .csv, .tsv, .feather, .arrow, .jsonl, .npy, .npz; text and JSON also
    with .gz), a directory, a pattern in quotes, a URI such as s3://bucket/scores/, or - for one number per line on
    stdin, and may be given several times. On GitHub Actions the verdict is also the step's summary, annotations and
    outputs.

    \b
    Example:
      gate run --policy policies/default.yaml --release v2.4.0 \\
          --fit benign-fit.parquet --holdout benign-holdout.parquet --out releases/v2.4.0
    """
    from gate import policy as policies

    first_release = baseline == "none"
    baseline = None if first_release else baseline
    require_samples(fit_paths, holdout_paths, benign_paths, split)
    require_both("--baseline-holdout", baseline_holdout_paths, "--baseline", baseline)
    require_both("--baseline-malicious", baseline_malicious_paths, "--baseline", baseline)
    require_both("--baseline-malicious", baseline_malicious_paths, "--malicious", malicious_paths)
    release, created = release_name(release), now()
    directory = Path(out) if out else Path("releases", as_directory(release))
    document = policies.load(policy) if policy else policies.load_default()
    document = document.with_columns(columns)
    document.require_columns()
    samples = {"fit": fit_paths, "holdout": holdout_paths, "benign": benign_paths, "malicious": malicious_paths}
    with reading(samples, document.policy) as sample:
        require_ledger(document, ledger)
        from gate.release import refuse_existing

        replaces = refuse_existing(directory, force)
        from gate.api import gate_release, judging_day, read_baseline
        from gate.scores import split as divide

        reference = None
        if baseline is not None:
            reference = read_baseline(baseline, document, baseline_holdout_paths, baseline_malicious_paths, read_scores)
        divided = None
        if split is None:
            fit, holdout = sample("fit"), sample("holdout")
        else:
            benign = sample("benign")
            fit, holdout, divided = divide(benign, split, seed)
            log(f"benign: {benign.summary}; {len(fit):,} to fit, {len(holdout):,} held out ({divided.by})")
        malicious = sample("malicious") if malicious_paths else None
    with working("fitting, counting and judging"), preparing(dry_run, fit, holdout):
        judged = gate_release(
            document,
            release,
            created,
            fit,
            holdout,
            judged_on=judging_day(created),
            ledger=ledger,
            split=divided,
            malicious=malicious,
            baseline=reference,
            first_release=first_release,
        )
    return conclude(judged, None if dry_run else directory, force, as_json, replaces)


@click.command()
@click.argument("directory", type=given, metavar="RELEASE_DIR")
@files("--holdout", "Benign scores to judge on.", required=True)
@files("--malicious", "Malicious scores, for what is detected at each anchor.")
@click.option("--policy", type=given, metavar="FILE", help="The policy (YAML); without it, that of the release.")
@click.option("--out", type=given, metavar="DIR", help="The directory to write  [default: checks/NAME-TIME]")
@columns_of_files
@bounded
@judging
def check(
    directory: str,
    holdout_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    policy: str | None,
    out: str | None,
    ledger: str | None,
    dry_run: bool,
    as_json: bool,
    force: bool,
    **columns: str | tuple[str, ...] | None,
) -> int:
    """Evaluate a calibrator fitted earlier on new benign scores, without fitting.

    Does the contract still hold on today's traffic? The calibrator is read from calibrator.json, never from the
    pickle, and the counts are compared with those of the release.

    \b
    Example:
      gate check releases/v2.4.0 --holdout benign-this-week.parquet
    """
    created = now()
    from gate import policy as policies
    from gate.release import recorded_policy, refuse_existing
    from gate.verification import read_judged

    stored = read_judged(directory)
    document = policies.load(policy) if policy else recorded_policy(stored)
    document = document.with_columns(columns)
    document.require_columns()
    target = Path(out) if out else Path("checks", f"{as_directory(stored.record.release)}-{created:%Y%m%dT%H%M%SZ}")
    replaces = refuse_existing(target, force)
    with reading({"holdout": holdout_paths, "malicious": malicious_paths}, document.policy) as sample:
        require_ledger(document, ledger)
        from gate.api import check_release, judging_day

        holdout = sample("holdout")
        malicious = sample("malicious") if malicious_paths else None
    with working("counting and judging"), preparing(dry_run, holdout):
        day = judging_day(created)
        judged = check_release(stored, document, created, holdout, judged_on=day, ledger=ledger, malicious=malicious)
    return conclude(judged, None if dry_run else target, force, as_json, replaces)
