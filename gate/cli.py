"""The command line: arguments in, the stages called in order, an exit code out. No arithmetic, no judgement."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from gate import limits
from gate.errors import GateError, visible
from gate.streams import Inert, escape_json, guard

if TYPE_CHECKING:
    from gate.api import Release
    from gate.contract import Floats
    from gate.history import History
    from gate.policy import Document, Policy
    from gate.release import BaselineSection, Record
    from gate.scores import Scores

# Stages are imported inside the commands that need them: `gate --help` must not wait for scipy.

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
NO_JUDGEMENT, INTERNAL_ERROR, INTERRUPTED = 2, 70, 130
OUT_OF_MEMORY = "memory: must hold all scores at once, got too little; give fewer rows or use a larger machine"
JUDGING = (["run"], ["check"])  # the commands that end in a verdict, as their first argument

EXIT_CODE_HELP = """\b
Exit codes:
   0  pass (waived and advisory findings are shown, and do not block)
   1  fail: the evidence shows a violation of the policy
   2  no judgement possible: bad usage, policy, scores or release directory
   3  inconclusive: not enough evidence either way
  70  internal error (a crash is not a verdict)
"""


def _name(text: str) -> str:
    """An unset variable in a script must not silently become the default."""
    if not text:
        raise click.BadParameter("must not be empty")
    return text


@click.group(
    epilog=EXIT_CODE_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(package_name="fpr-gate", prog_name="gate")
@click.pass_context
def cli(context: click.Context) -> None:
    """Decide whether a detector's new release may ship.

    gate fits the release's calibrator on benign scores, counts held-out benign false positives at every target of
    the policy, bounds them exactly, and passes, fails or declines to judge.

    \b
    Example:
      gate demo
      gate run --release v2.4.0 --fit benign-fit.parquet --holdout benign-holdout.parquet
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(NO_JUDGEMENT)
    if limits.limit() is not None:
        limits.require_room()
        import gate.api  # noqa: F401, all libraries before the first row: they cope worst with memory that runs out


_Command = Callable[..., int | None]


def _files(option: str, help_: str, **more: Any) -> Callable[[_Command], _Command]:
    """An option that names score files and may be given several times."""
    name = option.strip("-").replace("-", "_") + "_paths"
    return click.option(option, name, type=_name, multiple=True, metavar="FILE", help=help_, **more)


def _columns(command: _Command) -> _Command:
    """The columns of score files, which the policy names unless the command line does."""
    for key in ("timestamp", "id", "group", "segment", "benign", "label", "score"):
        option, value = (f"--{key}-column", "NAME")
        more: dict[str, Any] = {"help": f"Overrides data.{key} of the policy."}
        if key == "benign":
            option, value, more = (
                "--benign-label",
                "VALUE",
                {"help": f"{more['help'][:-1]}; repeatable.", "multiple": True},
            )
        command = click.option(option, key, metavar=value, **more)(command)
    return command


def _size(text: str) -> int:
    """A number of bytes, as 500MB or 2GiB."""
    units = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(b|[kmgt](i?)b|)", text.strip().lower())
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** units[found[2][:1]]) if found else 0
    if size < 1:
        raise click.BadParameter(f"must be a number of bytes such as 500MB or 8GB, got {text[:40]!r}")
    return size


def _bounded(command: _Command) -> _Command:
    """Of every command that reads scores: how much they may become."""

    def bound(context: click.Context, _option: click.Parameter, size: int | None) -> None:
        if size is not None:
            from gate.scores.budget import bound

            context.with_resource(bound(size))

    return click.option(
        "--max-bytes",
        type=_size,
        callback=bound,
        expose_value=False,
        metavar="SIZE",
        help="What the columns of one sample may decode to  [default: a quarter of the memory]",
    )(command)


def _judging(command: _Command) -> _Command:
    """What every command that judges can do with its verdict."""
    for option in (
        click.option("--force", is_flag=True, help="Replace an existing directory."),
        click.option("--json", "as_json", is_flag=True, help="Print the record as JSON instead of the table."),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Evaluate and print the verdict, write nothing but the ledger's line; exits as the real run.",
        ),
        click.option(
            "--ledger", type=_name, metavar="FILE", help="Count how often these held-out rows have judged (JSON lines)."
        ),
    ):
        command = option(command)
    return command


@cli.command()
@click.option("--policy", type=_name, metavar="FILE", help="The policy (YAML); without it, the built-in default.")
@click.option("--release", required=True, metavar="NAME", help="What the release is called in the record.")
@_files("--fit", "Benign scores to fit on.")
@_files("--holdout", "Benign scores to judge on; never used to fit.")
@_files("--benign", "Benign scores to split into the two.")
@click.option(
    "--split", type=click.FloatRange(0, 1, True, True), metavar="X", help="The fraction of --benign to fit on."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the split.")
@_files("--malicious", "Malicious scores, for what is detected at each anchor.")
@click.option("--baseline", type=_name, metavar="DIR", help="The release that went before; none for the first one.")
@_files("--baseline-holdout", "The baseline's scores of the held-out rows, joined by id.")
@_files("--baseline-malicious", "The baseline's scores of the malicious rows, joined by id.")
@click.option("--out", type=_name, metavar="DIR", help="The release directory to write  [default: releases/NAME]")
@_columns
@_bounded
@_judging
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
    from gate.release import refuse_existing

    first_release = baseline == "none"
    baseline = None if first_release else baseline
    _require_samples(fit_paths, holdout_paths, benign_paths, split)
    _require_both("--baseline-holdout", baseline_holdout_paths, "--baseline", baseline)
    _require_both("--baseline-malicious", baseline_malicious_paths, "--baseline", baseline)
    _require_both("--baseline-malicious", baseline_malicious_paths, "--malicious", malicious_paths)
    release, created = _release_name(release), _now()
    directory = Path(out) if out else Path("releases", _as_directory(release))
    document = policies.load(policy) if policy else policies.load_default()
    document = document.with_columns(columns)
    document.require_columns()
    _require_ledger(document, ledger)
    replaces = refuse_existing(directory, force)
    from gate.api import gate_release, judging_day, read_baseline
    from gate.scores import read
    from gate.scores import split as divide

    reference = None
    if baseline is not None:
        reference = read_baseline(baseline, document, baseline_holdout_paths, baseline_malicious_paths, _read)
    divided = None
    if split is None:
        fit, holdout = _read("fit", fit_paths, document.policy), _read("holdout", holdout_paths, document.policy)
    else:
        with _working(f"reading {', '.join(benign_paths)}"):
            benign = read(benign_paths, document.policy.data, document.policy.calibration.domain)
        fit, holdout, divided = divide(benign, split, seed)
        _log(f"benign: {benign.summary}; {len(fit):,} to fit, {len(holdout):,} held out ({divided.by})")
    malicious = _read("malicious", malicious_paths, document.policy) if malicious_paths else None
    with _working("fitting, counting and judging"):
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
    return _conclude(judged, None if dry_run else directory, force, as_json, replaces)


@cli.command()
@click.argument("directory", type=_name, metavar="RELEASE_DIR")
@_files("--holdout", "Benign scores to judge on.", required=True)
@_files("--malicious", "Malicious scores, for what is detected at each anchor.")
@click.option("--policy", type=_name, metavar="FILE", help="The policy (YAML); without it, that of the release.")
@click.option("--out", type=_name, metavar="DIR", help="The directory to write  [default: checks/NAME-TIME]")
@_columns
@_bounded
@_judging
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
    created = _now()
    from gate import policy as policies
    from gate.release import recorded_policy, refuse_existing
    from gate.verification import read_judged

    stored = read_judged(directory)
    document = policies.load(policy) if policy else recorded_policy(stored)
    document = document.with_columns(columns)
    document.require_columns()
    _require_ledger(document, ledger)
    target = Path(out) if out else Path("checks", f"{_as_directory(stored.record.release)}-{created:%Y%m%dT%H%M%SZ}")
    replaces = refuse_existing(target, force)
    from gate.api import check_release, judging_day

    holdout = _read("holdout", holdout_paths, document.policy)
    malicious = _read("malicious", malicious_paths, document.policy) if malicious_paths else None
    with _working("counting and judging"):
        day = judging_day(created)
        judged = check_release(stored, document, created, holdout, judged_on=day, ledger=ledger, malicious=malicious)
    return _conclude(judged, None if dry_run else target, force, as_json, replaces)


@cli.command()
@click.argument("old", type=_name, metavar="OLD_DIR")
@click.argument("new", type=_name, metavar="NEW_DIR")
@_files("--holdout", "The new release's scores of benign rows.")
@_files("--baseline-holdout", "The old release's scores of the same rows, joined by id.")
@_files("--malicious", "The new release's scores of malicious rows.")
@_files("--baseline-malicious", "The old release's scores of the same rows, joined by id.")
@_columns
@_bounded
@click.option("--format", "format_", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
@click.option("-o", "--output", type=_name, default="-", metavar="FILE", help="Write here instead of to stdout.")
def compare(
    old: str,
    new: str,
    holdout_paths: tuple[str, ...],
    baseline_holdout_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    baseline_malicious_paths: tuple[str, ...],
    format_: str,
    output: str,
    **columns: str | tuple[str, ...] | None,
) -> None:
    """Two releases side by side: thresholds, false-positive rates, detection, and what changed in the policy.

    Without scores it compares what was recorded. With --holdout it also shows what the old raw thresholds would
    flag of the new scores, and with --baseline-holdout which rows' flags flipped. It judges nothing: exit code 0.

    \b
    Example:
      gate compare releases/v2.3.0 releases/v2.4.0
      gate compare releases/v2.3.0 releases/v2.4.0 --holdout new.parquet --baseline-holdout old.parquet --id-column id
    """
    from gate.api import read_baseline
    from gate.comparison import compare as compare_samples
    from gate.comparison import scored
    from gate.release import baseline_section, recorded_policy, recorded_samples
    from gate.verification import read_judged

    _require_both("--baseline-holdout", baseline_holdout_paths, "--holdout", holdout_paths)
    _require_both("--baseline-malicious", baseline_malicious_paths, "--malicious", malicious_paths)
    stored = read_judged(new)
    document = recorded_policy(stored).with_columns(columns)
    reference = read_baseline(old, document, baseline_holdout_paths, baseline_malicious_paths, _read)
    benign, malicious = recorded_samples(stored.record)
    thresholds, policy = benign.thresholds, document.policy
    if holdout_paths:
        benign = scored(thresholds, _read("holdout", holdout_paths, policy), policy)
    if malicious_paths:
        malicious = scored(thresholds, _read("malicious", malicious_paths, policy), policy)
    section = baseline_section(compare_samples(reference, policy, policy.anchors, benign, malicious))
    _put(_render_changes(section, stored.record, format_, to_terminal=output == "-"), output, format_)


@cli.command()
@click.option(
    "--out", type=_name, default="gate-demo", show_default=True, metavar="DIR", help="Where to put scores and release."
)
@click.option("--releases", type=click.IntRange(2, 99), metavar="N", help="Retrain the detector instead: N releases.")
@click.option("--force", is_flag=True, help="Replace an earlier demo.")
def demo(out: str, releases: int | None, force: bool) -> int:
    """The whole job on simulated scores; no input needed.

    Writes benign scores to fit on, to hold out, and after a drift, and gates a release with the built-in policy.
    With --releases, it simulates a detector that is retrained every month while benign traffic stays the same, gates
    each release, and writes their history as history.html and history.svg.

    \b
    Example:
      gate demo
      gate run --release drifted --fit gate-demo/benign-fit.parquet --holdout gate-demo/benign-drifted.parquet
      gate demo --releases 6
    """
    if releases is not None:
        return _demo_releases(Path(out), releases, force)
    from gate.demo import simulate
    from gate.policy import load_default
    from gate.release import refuse_existing
    from gate.scores import read

    directory, document, created = Path(out), load_default(), _now()
    release_directory = directory / "releases" / "demo"
    refuse_existing(release_directory, force)
    _make_directory(directory)
    for name, values in simulate():
        _write_scores(directory / f"{name}.parquet", values, force)
    columns, domain = document.policy.data, document.policy.calibration.domain
    fit, holdout = (
        read([str(directory / f"{name}.parquet")], columns, domain) for name in ("benign-fit", "benign-holdout")
    )
    from gate.api import gate_release

    judged = gate_release(document, "demo", created, fit, holdout)
    return _conclude(judged, release_directory, force, as_json=False)


@cli.command()
@click.option("--policy", type=_name, metavar="FILE", help="The policy (YAML); without it, the built-in default.")
@click.option(
    "--fit-n", type=click.IntRange(2, 10**12), metavar="N", help="Benign rows to fit on  [default: as held out]"
)
@click.option(
    "--holdout-n", type=click.IntRange(2, 10**12), metavar="M", help="Benign rows held out  [default: each min_n]"
)
@click.option(
    "--power",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="How often a sound release shall pass.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON instead of the table.")
@click.option("--chart", type=_name, metavar="FILE", help="Draw the chance to pass against the true FPR (SVG).")
def plan(
    policy: str | None, fit_n: int | None, holdout_n: int | None, power: float, as_json: bool, chart: str | None
) -> None:
    """How often the gate errs, and how many rows a policy needs.

    \b
    Example:
      gate plan --policy policies/default.yaml
      gate plan --fit-n 60000 --holdout-n 140000 --chart plan.svg
    """
    from gate import planning
    from gate import policy as policies
    from gate.release import write_file
    from gate.report import plan as plans

    document = policies.load(policy) if policy else policies.load_default()
    planned = planning.plan(document.policy, fit_n, holdout_n, power)
    if chart is not None:
        curves = planning.operating_characteristics(document.policy, planned)
        write_file(Path(chart), plans.OperatingCharacteristicDisplay(curves).to_svg().encode())
    if as_json:
        _print(plans.to_json(planned, document.policy), "json")
    else:
        _print(plans.render(planned, document.policy, width=_width()))


@cli.command()
@click.argument("directory", type=_name, metavar="RELEASE_DIR")
@click.option(
    "--format", "format_", type=click.Choice(["text", "md", "html", "junit", "json"]), default="text", show_default=True
)
@click.option("-o", "--output", type=_name, default="-", metavar="FILE", help="Write here instead of to stdout.")
def report(directory: str, format_: str, output: str) -> None:
    """Render a record again, in any format, without the data.

    \b
    Example:
      gate report releases/v2.4.0
      gate report releases/v2.4.0 --format md -o release-notes.md
    """
    from gate.release import read_record

    _put(_render(read_record(directory), format_, to_terminal=output == "-"), output, format_)


@cli.command()
@click.option("--targets", type=_name, metavar="RATES", help="The rates to judge, such as 1%,0.1%  [default: four]")
@click.option(
    "--rule", type=click.Choice(["proven", "observed", "not-refuted"]), help="What may ship  [default: proven]"
)
@click.option(
    "--holdout-n",
    type=click.IntRange(2, 10**12),
    metavar="M",
    help="Benign rows on hand to hold out; a target that needs more is shown and never blocks.",
)
@click.option(
    "--action",
    type=_name,
    metavar="OWNER/REPO@REF",
    help="Where the workflow finds gate's action  [default: where gate was installed from]",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def init(targets: str | None, rule: str | None, holdout_n: int | None, action: str | None, force: bool) -> None:
    """Write a policy and a GitHub workflow into this repository.

    Writes policies/release.yaml and .github/workflows/release-gate.yml, both or none, and prints the policy's plan.

    \b
    Example:
      gate init
      gate init --targets 1%,0.1% --holdout-n 140000
    """
    from gate import init as templates
    from gate import planning
    from gate.report import plan as plans

    document, workflow = templates.policy(targets, rule, holdout_n), templates.workflow(action)
    planned = planning.plan(document.policy, None, holdout_n)
    templates.write({templates.POLICY: document.text, templates.WORKFLOW: workflow}, force)
    _print(plans.render(planned, document.policy, width=_width()))
    _log(f"wrote {templates.POLICY} and {templates.WORKFLOW}")
    if templates.UNKNOWN in workflow:
        _log(f"next: in {templates.WORKFLOW}, put the repository that holds gate's action for {templates.UNKNOWN}")
    _log("next: name your score files there, commit both files, and push a tag such as v1.0.0")


@cli.command()
@click.argument("directory", type=_name, metavar="RELEASE_DIR")
@click.option("--policy", type=_name, metavar="FILE", help="The policy that it must be judged by, or built-in.")
@_files("--fit", "The scores it was fitted on.")
@_files("--holdout", "The scores it was judged on.")
@_files("--benign", "The scores that it split.")
@_files("--malicious", "The malicious scores.")
@click.option("--baseline", type=_name, metavar="DIR", help="The release that it was held against, or none.")
@_files("--baseline-holdout", "That release's scores of the held-out rows.")
@_files("--baseline-malicious", "That release's scores of the malicious rows.")
@click.option("--ledger", type=_name, metavar="FILE", help="The ledger that counted its held-out rows.")
@_columns
@_bounded
@click.option("--complete", is_flag=True, help="What is left unbound is exit code 2, as it is once data is given.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def verify(
    directory: str,
    policy: str | None,
    baseline: str | None,
    ledger: str | None,
    complete: bool,
    as_json: bool,
    fit_paths: tuple[str, ...],
    holdout_paths: tuple[str, ...],
    benign_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    baseline_holdout_paths: tuple[str, ...],
    baseline_malicious_paths: tuple[str, ...],
    **columns: str | None,
) -> int:
    """Check that a release is what its counts, its policy and its data give.

    One line says of each check whether it holds. Without the data, the digests, the policy, the calibrator, the
    verdict and the reports are checked, and what nothing binds is listed as not checked. With all of the data the
    whole record is made again and compared value by value. --policy pins the policy that you want, and with it the
    columns, as they were named to `gate run`. The pickle is never loaded.

    \b
    Exit codes of this command:
      0  everything holds
      1  something does not hold
      2  no judgement possible, or something cannot be checked: by this version, or with the data given

    \b
    Example:
      gate verify releases/v2.4.0
      gate verify releases/v2.4.0 --policy policies/release.yaml --fit fit.parquet --holdout holdout.parquet
    """
    from gate.repetition import Data
    from gate.repetition import verify as check

    for key, value in columns.items():
        _require_both("--benign-label" if key == "benign" else f"--{key}-column", value, "--policy", policy)
    data = Data(
        fit_paths,
        holdout_paths,
        benign_paths,
        malicious_paths,
        baseline,
        baseline_holdout_paths,
        baseline_malicious_paths,
        ledger,
    )
    pinned = None if policy is None else _pinned(policy, columns)
    answer = check(directory, data, pinned=pinned, complete=complete)
    _print(answer.to_json() if as_json else "".join(f"{visible(line)}\n" for line in answer.lines))
    if answer.state == "cannot be checked":
        _log("nothing was found wrong, but not all could be checked: see the lines that say so")
    return {"holds": 0, "does not hold": 1, "cannot be checked": NO_JUDGEMENT}[answer.state]


@cli.command()
@click.argument("directories", type=_name, nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "html", "json"]),
    help="[default: by the ending of FILE, else text]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=_name, default="-", metavar="FILE", help="Write here instead of to stdout.")
def history(directories: tuple[str, ...], format_: str | None, as_json: bool, output: str) -> int:
    """The contract across releases, over time, from their records.

    A DIR is a release directory, or a directory that holds some. Where a record cannot be read, the others are shown
    all the same, the page names it, and the exit code is 2.

    \b
    Example:
      gate history releases/
      gate history releases/v2.* -o history.html
    """
    from gate.history import collect

    if as_json and format_ not in (None, "json"):
        raise click.UsageError(f"give either --json or --format {format_}")
    endings = {".html": "html", ".md": "md", ".json": "json"}
    format_ = "json" if as_json else format_ or endings.get(Path(output).suffix, "text")
    with _working("reading records"):
        collected = collect(directories)
    for unread in collected.unread:
        _log(unread.problem)
    if not collected.releases:
        raise GateError("no record could be read, so there is no history")
    with _working("drawing the history"):
        text = _render_history(collected, format_, to_terminal=output == "-")
    _put(text, output, format_)
    return NO_JUDGEMENT if collected.unread else 0


@cli.command()
@click.argument("file", type=click.Choice(["policy", "record"]))
def schema(file: str) -> None:
    """Print the JSON Schema of a policy or of a record (verdict.json).

    \b
    Example:
      gate schema policy > policies/policy.schema.json
    """
    import json

    from gate import policy, release

    module = policy if file == "policy" else release
    _print(json.dumps(module.schema(), indent=2) + "\n", "json")


# --- the stages in order ------------------------------------------------------------------------------------


def _read(name: str, paths: tuple[str, ...], policy: Policy) -> Scores:
    """The scores of one sample, said on stderr."""
    from gate.api import read_sample

    with _working(f"reading {', '.join(paths)}"):
        scores = read_sample(name, paths, policy)
    _log(f"{name}: {scores.summary}")
    return scores


def _pinned(policy: str, columns: dict[str, str | None]) -> Document:
    """The policy that the verifier wants, with the columns that the run was to read."""
    from gate import policy as policies

    return (policies.load_default() if policy == "built-in" else policies.load(policy)).with_columns(columns)


def _conclude(judged: Release, out: Path | None, force: bool, as_json: bool, replaces: str | None = None) -> int:
    """From a judged release to an exit code; every report is written before the code is given."""
    if out is not None:
        with _working(f"writing {out}"):
            judged.write(out, force, replaces)
    _print(_render(judged.record, "json" if as_json else "text", to_terminal=True))
    written = "nothing was written" if judged.record.reuse is None else "only the ledger's line was written"
    _log(f"report: {out / 'report.html'}" if out else f"dry run: {written}")
    if _on_github():
        _publish(judged, EXIT_CODES[judged.outcome], out)
    return EXIT_CODES[judged.outcome]


def _put(text: str, output: str, format_: str) -> None:
    """To stdout, or to the file that was named."""
    from gate.release import write_file

    if output == "-":
        _print(text, format_)
    else:
        write_file(Path(output), text.encode())


def _require_both(option: str, given: object, other: str, also: object) -> None:
    if given and not also:
        raise click.UsageError(f"{option} needs {other}")


def _demo_releases(directory: Path, releases: int, force: bool) -> int:
    """Gate every retraining, then show what the records say together; the exit code is that of the worst."""
    from gate.api import gate_release
    from gate.demo import retrain
    from gate.history import collect
    from gate.policy import load_default
    from gate.release import refuse_existing, write_file
    from gate.report import history as histories
    from gate.scores import read
    from gate.storage import refuse_links

    document, outcomes, written = load_default(), set(), []
    columns, domain = document.policy.data, document.policy.calibration.domain
    for retrained in retrain(releases):
        release_directory = directory / "releases" / retrained.name
        refuse_existing(release_directory, force)
        _make_directory(directory / "scores")
        samples = {"fit": retrained.fit, "holdout": retrained.holdout}
        paths = {kind: directory / "scores" / f"{retrained.name}-{kind}.parquet" for kind in samples}
        for kind, values in samples.items():
            _write_scores(paths[kind], values, force)
        fit, holdout = (read([str(path)], columns, domain) for path in paths.values())
        with _working(f"gating {retrained.name}"):
            release = gate_release(document, retrained.name, retrained.created, fit, holdout)
            release.write(release_directory, force)
        _log(f"{retrained.name}: {release.outcome}: {release.record.reason}")
        outcomes.add(release.outcome)
        written.append(str(release_directory))
    history = collect(written)
    for name, draw in (("history.html", histories.render_html), ("history.svg", histories.figure)):
        write_file(refuse_links(directory / name), draw(history).encode())
    _print(_render_history(history, "text", to_terminal=True))
    _log(f"history: {directory / 'history.html'}")
    return next(EXIT_CODES[outcome] for outcome in ("fail", "inconclusive", "pass") if outcome in outcomes)


def _write_scores(path: Path, values: Floats, force: bool) -> None:
    from gate.scores import write_parquet
    from gate.storage import refuse_links

    refuse_links(path)
    if path.exists() and not force:
        raise GateError(f"{path}: must not exist yet; choose another --out, or --force to replace it")
    try:
        write_parquet(path, values)
    except OSError as error:
        raise GateError(f"{path}: must be writable, got {error.strerror or error}") from None
    _log(f"simulated {path}: {len(values):,} benign scores")


def _require_samples(
    fit: tuple[str, ...], holdout: tuple[str, ...], benign: tuple[str, ...], split: float | None
) -> None:
    """Two samples, or one and how to divide it; nothing else says what was held out."""
    apart, together = bool(fit and holdout), bool(benign and split is not None)
    if apart == together or (apart and (benign or split is not None)) or (together and (fit or holdout)):
        raise click.UsageError("give either --fit and --holdout, or --benign and --split")


def _require_ledger(document: Document, ledger: str | None) -> None:
    from gate.ledger import require

    require(document, ledger)


def _render(record: Record, format_: str, to_terminal: bool = False) -> str:
    if format_ == "json":
        return record.to_json()
    if format_ == "text":
        from gate.report import terminal

        to_terminal = to_terminal and _is_terminal()
        return terminal.render(record, width=_width() if to_terminal else 80, color=to_terminal and _color_wanted())
    from gate.report import html, junit, markdown

    return {"html": html.render, "md": markdown.render, "junit": junit.render}[format_](record)


def _render_changes(section: BaselineSection, record: Record, format_: str, to_terminal: bool) -> str:
    from gate.report import markdown, terminal

    if format_ == "json":
        return section.model_dump_json(indent=2) + "\n"
    if format_ == "md":
        return markdown.render_changes(section, record)
    to_terminal = to_terminal and _is_terminal()
    return terminal.render_changes(section, record, _width() if to_terminal else 80, to_terminal and _color_wanted())


def _render_history(history: History, format_: str, to_terminal: bool = False) -> str:
    from gate.report import history as histories

    if format_ == "text":
        to_terminal = to_terminal and _is_terminal()
        return histories.render(history, width=_width() if to_terminal else 80, color=to_terminal and _color_wanted())
    renderers = {"html": histories.render_html, "md": histories.render_markdown, "json": histories.to_json}
    return renderers[format_](history)


# --- the clock, the environment and the terminal ------------------------------------------------------------


def _now() -> datetime:
    """The time of the record. Read before any stage is: numpy stops with a traceback on a bad SOURCE_DATE_EPOCH.

    What expires is judged by the clock too (`api.judging_day`): whoever sets the variable revives no waiver.
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


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _width() -> int:
    return shutil.get_terminal_size().columns if _is_terminal() else 80


def _color_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _print(text: str, format_: str = "text") -> None:
    """To stdout; a reader that has gone away changes neither the files nor the exit code."""
    if sys.stdout is None:  # closed by the caller (`>&-`)
        return
    try:
        sys.stdout.write(escape_json(text) if format_ == "json" else text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
    except OSError as error:
        _abandon(sys.stdout)
        raise GateError(f"stdout: must be writable, got {error.strerror}; the result was not printed") from None


def _log(text: str) -> None:
    """To stderr, one line that no name from outside can break."""
    _tell(f"gate: {visible(text)}")


def _tell(line: str, command: bool = False) -> None:
    """To stderr, where there is one; only what is meant as a command to the CI system reaches it as one."""
    try:
        if command and isinstance(sys.stderr, Inert):
            sys.stderr.write_command(line)
        elif sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
    except OSError:
        _abandon(sys.stderr)


def _working(what: str) -> AbstractContextManager[None]:
    """Progress for a person at a terminal; nothing in CI, in a pipe or in a log."""
    if os.environ.get("CI") or sys.stderr is None or not sys.stderr.isatty() or not _color_wanted():
        return nullcontext()
    from gate.report.terminal import working

    return working(what)


def _abandon(stream: TextIO) -> None:
    """Let what is still buffered go nowhere: the interpreter's last flush would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _release_name(name: str) -> str:
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise GateError(f"--release: must be one line of 1 to 200 printable characters, got {name!r}")
    return name


def _as_directory(release: str) -> str:
    if release in (".", "..") or "/" in release or "\\" in release:
        raise GateError(
            f"--release: must be a plain name where --out is not given, got {release!r}; name it with --out"
        )
    return release


def _make_directory(directory: Path) -> None:
    from gate.storage import refuse_links

    try:
        refuse_links(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GateError(f"{directory}: must be a directory that can be written, got {error.strerror}") from None


# --- GitHub Actions, where it runs the command --------------------------------------------------------------


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _publish(judged: Release, exit_code: int, out: Path | None) -> None:
    """The verdict as step summary, annotations and outputs; whatever goes wrong here changes no verdict."""
    from gate.release import manifest_of
    from gate.report import github

    record = judged.record
    manifest = manifest_of(judged.files) if out else b""  # as it was written, not as it may have become since
    errors = github.errors(record, _file_of_the_repository(record.policy.path))
    _tell_github(github.summary(record), errors, github.outputs(record, exit_code, out, manifest))


def _publish_refusal(message: str, exit_code: int) -> None:
    from gate.report import github

    error = github.error("no judgement possible", message)
    _tell_github(github.refusal(message), [error], {"exit-code": str(exit_code)})


def _tell_github(summary: str, errors: list[str], outputs: dict[str, str]) -> None:
    import secrets

    from gate.report.github import MAX_OUTPUT_BYTES, MAX_SUMMARY_BYTES, output_lines

    for line in errors:
        _tell(line, command=True)
    _append("GITHUB_STEP_SUMMARY", summary, MAX_SUMMARY_BYTES)
    _append("GITHUB_OUTPUT", output_lines(outputs, secrets.token_hex(16)), MAX_OUTPUT_BYTES)


def _append(variable: str, text: str, most: int) -> None:
    """Add to the file that a variable names, beginning on a line of its own."""
    path, data = os.environ.get(variable), f"\n{text}".encode(errors="backslashreplace")
    if not path:
        return
    try:
        with open(path, "ab") as file:
            if file.tell() + len(data) <= most:
                file.write(data)
            else:
                _log(f"{variable}: must stay below {most:,} bytes, got more; nothing was added to it")
    except OSError as error:
        _log(f"{variable}: must name a file that can be written, got {error.strerror}; nothing was added to it")


def _file_of_the_repository(path: str) -> str | None:
    """The path as annotations know it, from the top of the checkout; None for what is not in it."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    place = Path(path).resolve()
    return str(place.relative_to(root)) if place.is_file() and place.is_relative_to(root) else None


# --- the exit code ------------------------------------------------------------------------------------------


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command and turn whatever happens into an exit code.

    As a process's own command and where memory is limited it runs in a child; a caller in Python gave the arguments.
    """
    if args is not None or limits.limit() is None:
        _run(args)
    code = limits.supervise(lambda: _run(args))
    if code is None:
        code = NO_JUDGEMENT
        with suppress(Exception):  # of what GitHub is told
            guard()
            _refuse(args, code, OUT_OF_MEMORY)
    sys.exit(code)


def _run(args: list[str] | None) -> NoReturn:
    """Run the command and turn whatever happens into the documented exit codes."""
    guard()
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        """Take back what was begun; a second signal must not stop that."""
        received.append(number)
        for known in _STOPS:
            signal.signal(known, signal.SIG_IGN)
        raise _StoppedError

    def stop_later(lost: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised while it clears up an object: raise it again a moment later."""
        if lost.exc_type is not _StoppedError:
            sys.__unraisablehook__(lost)
            return
        signal.signal(signal.SIGALRM, lambda *_: stop(received[0], None))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    try:
        sys.unraisablehook = stop_later
        for number in _STOPS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # the caller may ignore it
                signal.signal(number, stop)
        code = _exit_code(args, received)
        for number in (*_STOPS, signal.SIGALRM):  # what comes while Python shuts down changes no exit code
            signal.signal(number, signal.SIG_IGN)
    except _StoppedError:
        code = INTERRUPTED
    if received:
        _log(f"stopped by {signal.Signals(received[0]).name}")
        code = 128 + received[0]
    sys.exit(code)


_STOPS = (signal.SIGINT, signal.SIGTERM)


class _StoppedError(BaseException):
    """No KeyboardInterrupt: after one in the wrong place Python ends itself by SIGINT, whatever the exit code."""


def _exit_code(args: list[str] | None, received: list[int]) -> int:
    try:
        return cli.main(args, prog_name="gate", standalone_mode=False) or 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except MemoryError:
        return _refuse(args, NO_JUDGEMENT, OUT_OF_MEMORY)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "gate"
        message = " ".join(error.format_message().split()).rstrip(".")
        return _refuse(args, NO_JUDGEMENT, f"{message} (see `{command} --help`)")
    except GateError as error:
        return _refuse(args, NO_JUDGEMENT, str(error))
    except SystemExit:  # click's way out when the reader of a help text has gone away; its code would read as a fail
        return NO_JUDGEMENT
    except Exception as error:
        if received:  # libraries turn an interruption into errors of their own
            return INTERRUPTED
        if args is None and limits.limit() is not None:  # too little memory has as many names as there are libraries
            said = visible(f"{type(error).__name__}: {error}".splitlines()[0])
            return _refuse(args, NO_JUDGEMENT, f"{OUT_OF_MEMORY} (under the limit there was: {said})")
        import traceback

        for line in traceback.format_exc().splitlines():
            _log(line)
        crash = f"internal error: {type(error).__name__}: {error}; this is a bug in gate, not a verdict on the release"
        return _refuse(args, INTERNAL_ERROR, visible(crash))


def _refuse(args: list[str] | None, exit_code: int, message: str) -> int:
    """Say why there is no verdict, on stderr and, where a release was to be judged, to GitHub."""
    for line in message.splitlines():
        _log(line)
    if _on_github() and (args or sys.argv[1:])[:1] in JUDGING:
        _publish_refusal(message, exit_code)
    return exit_code
