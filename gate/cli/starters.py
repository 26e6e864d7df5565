"""The commands that need no scores: `gate demo`, `plan` and `init`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from gate.cli.codes import EXIT_CODES
from gate.cli.inputs import now
from gate.cli.options import POWER, RELEASES, ROWS, given
from gate.cli.outputs import conclude, render
from gate.cli.streams import log, show, width, working
from gate.errors import GateError
from gate.words import visible

if TYPE_CHECKING:
    from gate.contract import Floats


@click.command()
@click.option(
    "--out", type=given, default="gate-demo", show_default=True, metavar="DIR", help="Where to put scores and release."
)
@click.option("--releases", type=RELEASES, metavar="N", help="Retrain the detector N times  [default: one release]")
@click.option("--force", is_flag=True, help="Replace an earlier demo  [default: refuse]")
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
    from gate.checks import default_policy
    from gate.rows.reading import read
    from gate.starter.demo import simulate
    from gate.storage import refuse_existing

    directory, document, created = Path(out), default_policy(), now()
    release_directory = directory / "releases" / "demo"
    refuse_existing(release_directory, force)
    _make_directory(directory)
    for name, values in simulate():
        _write_scores(directory / f"{name}.parquet", values, force)
    columns, domain = document.policy.data, document.policy.calibration.domain
    fit, holdout = (
        read([str(directory / f"{name}.parquet")], columns, domain) for name in ("benign-fit", "benign-holdout")
    )
    from gate.gating import Job, gate_release

    judged = gate_release(Job(document, "demo", created, created.date()), fit, holdout)
    code = conclude(judged, release_directory, force, as_json=False)
    drifted = [f"--fit {quote(str(directory / 'benign-fit.parquet'))}"]
    drifted += [f"--holdout {quote(str(directory / 'benign-drifted.parquet'))}"]
    log(f"next, traffic that has drifted: gate run --release drifted {' '.join(drifted)}")
    log("next, your own scores: gate init --scores FILE")
    return code


def _demo_releases(directory: Path, releases: int, force: bool) -> int:
    """Gate every retraining, then show what the records say together; the exit code is that of the worst."""
    from gate.checks import default_policy
    from gate.gating import Job, gate_release
    from gate.history import collect
    from gate.report import history as histories
    from gate.rows.reading import read
    from gate.starter.demo import retrain
    from gate.storage import refuse_existing, write_file

    document, outcomes, written = default_policy(), set(), []
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
        with working(f"gating {retrained.name}"):
            job = Job(document, retrained.name, retrained.created, retrained.created.date())
            release = gate_release(job, fit, holdout)
            release.write(release_directory, force)
        log(f"{retrained.name}: {release.outcome}: {release.record.reason}")
        outcomes.add(release.outcome)
        written.append(str(release_directory))
    history = collect(written)
    for name, draw in (("history.html", histories.render_html), ("history.svg", histories.figure)):
        write_file(directory / name, draw(history).encode())
    show(render(history, "history", "text", to_terminal=True))
    log(f"history: {directory / 'history.html'}")
    log(f"next, two of them side by side: gate compare {quote(written[0])} {quote(written[-1])}")
    return next(EXIT_CODES[outcome] for outcome in ("fail", "inconclusive", "pass") if outcome in outcomes)


def _write_scores(path: Path, values: Floats, force: bool) -> None:
    from gate.rows.engine import here
    from gate.storage import write_file

    if path.exists() and not force:
        raise GateError(f"{path}: must not exist yet; choose another --out, or --force to replace it")
    write_file(path, here().parquet({"score": values}))
    log(f"simulated {path}: {len(values):,} benign scores")


def _make_directory(directory: Path) -> None:
    from gate.storage import refuse_links

    try:
        refuse_links(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GateError(f"{directory}: must be a directory that can be written, got {error.strerror}") from None


@click.command()
@click.option(
    "--policy",
    type=given,
    metavar="FILE",
    help="The policy (YAML), or built-in  [default: policies/release.yaml where it exists, else built-in]",
)
@click.option("--fit-n", type=ROWS, metavar="N", help="Benign rows to fit on, such as 1e6  [default: as held out]")
@click.option("--holdout-n", type=ROWS, metavar="N", help="Benign rows held out, such as 1e6  [default: each min_n]")
@click.option(
    "--power", type=POWER, default=0.95, metavar="SHARE", help="How often a sound release shall pass  [default: 95%]"
)
@click.option(
    "--rows-per-check",
    type=ROWS,
    metavar="N",
    help="Also what a check of N rows, such as 1e5, finds of a drift, and how often it alarms by chance in a year  "
    "[default: no]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON  [default: the table]")
def plan(
    policy: str | None,
    fit_n: int | None,
    holdout_n: int | None,
    power: float,
    rows_per_check: int | None,
    as_json: bool,
) -> None:
    """How often the gate errs, and how many rows a policy needs.

    \b
    Example:
      gate plan --policy policies/default.yaml
      gate plan --fit-n 6e4 --holdout-n 1.4e5
      gate plan --rows-per-check 1e5
    """
    from gate import planning
    from gate.checks import find_policy
    from gate.policy import OWN
    from gate.report import plan as plans

    document = find_policy(policy)
    if policy is None and document.path == str(OWN):
        log(f"policy {document.path} (found here)")
    if document.policy.detectors:
        from gate.planning.system import plan_system
        from gate.report import system_plan

        if rows_per_check is not None:
            raise click.UsageError("--rows-per-check is of one detector; name one as --policy FILE#NAME")
        several = plan_system(document.policy, fit_n, holdout_n, power)
        if as_json:
            show(system_plan.to_json(several, document.policy), "json")
        else:
            show(system_plan.render(several, document.policy, width=width()))
        return
    planned = planning.plan(document.policy, fit_n, holdout_n, power)
    watched = None if rows_per_check is None else planning.watch(document.policy, rows_per_check, fit_n)
    if as_json:
        show(plans.to_json(planned, document.policy, watched), "json")
    else:
        show(plans.render(planned, document.policy, width=width(), watch=watched))


@click.command()
@click.option(
    "--scores",
    type=given,
    multiple=True,
    metavar="FILE...",
    help="Score files to look at, so that the policy fits them  [default: an example policy]",
)
@click.argument("more", type=given, nargs=-1, metavar="")
@click.option(
    "--detectors",
    type=given,
    metavar="COLUMNS",
    help="With --scores: the score columns of several detectors to gate together, such as a,b, or all  "
    "[default: one detector]",
)
@click.option(
    "--targets", type=given, metavar="RATES", help="The rates to judge, such as 1%,0.1%  [default: those of built-in]"
)
@click.option(
    "--rule", type=click.Choice(["proven", "observed", "not-refuted"]), help="What may ship  [default: proven]"
)
@click.option(
    "--holdout-n",
    type=ROWS,
    metavar="N",
    help="Benign rows on hand to hold out; a target that needs more never blocks  [default: as many as needed]",
)
@click.option(
    "--action",
    type=given,
    metavar="OWNER/REPO@REF",
    help="Where the workflow finds gate's action  [default: where gate was installed from]",
)
@click.option("--force", is_flag=True, help="Replace files that exist  [default: refuse]")
def init(
    scores: tuple[str, ...],
    more: tuple[str, ...],
    detectors: str | None,
    targets: str | None,
    rule: str | None,
    holdout_n: int | None,
    action: str | None,
    force: bool,
) -> None:
    """Write a policy made for your scores, and a GitHub workflow.

    Writes policies/release.yaml and .github/workflows/release-gate.yml, both or none. With --scores it looks at the
    files first: their columns, kinds, rows, range, labels, ties, ids, times and direction. It says what it found and
    what the policy therefore asks for, and prints the command that gates them. Without, it prints the policy's plan.

    \b
    Example:
      gate init --scores scores/benign-fit.parquet scores/benign-holdout.parquet
      gate init --scores scores.csv
      gate init --scores scores.parquet --detectors injection,jailbreak
      gate init --targets 1%,0.1% --holdout-n 140000
    """
    if more and not scores:
        raise click.UsageError("give score files with --scores")
    if scores and (targets or rule or holdout_n):
        raise click.UsageError("give either --scores, which finds the targets, or --targets, --rule and --holdout-n")
    if detectors is not None and not scores:
        raise click.UsageError("--detectors names score columns: give the files with --scores")
    if scores:
        _init_for((*scores, *more), detectors, action, force)
        return
    from gate import planning
    from gate.report import plan as plans
    from gate.starter import init as templates

    document, workflow = templates.policy(targets, rule, holdout_n), templates.workflow(action)
    planned = planning.plan(document.policy, None, holdout_n)
    templates.write({templates.POLICY: document.text, templates.WORKFLOW: workflow}, force)
    show(plans.render(planned, document.policy, width=width()))
    _say_next(workflow)
    log("next: name your score files there, or let `gate init --scores FILE... --force` do it")
    log("next: before any tag, try it here: gate run --release try --fit FILE --holdout FILE --dry-run")
    log("next: commit both files, and push a tag such as v1.0.0")


def _init_for(paths: tuple[str, ...], detectors: str | None, action: str | None, force: bool) -> None:
    """Make the policy and the workflow for some files, with the reasons and the command."""
    from gate.starter import init as templates
    from gate.starter.several import tailor_several
    from gate.starter.survey import look
    from gate.starter.tailor import tailor

    templates.refuse_existing({templates.POLICY, templates.WORKFLOW}, force)
    with working(f"looking at {', '.join(paths)}"):
        tailored = tailor(look(paths)) if detectors is None else tailor_several(paths, detectors)
    workflow = templates.workflow(action, named=True, several=detectors is not None)
    templates.write({templates.POLICY: tailored.document.text, templates.WORKFLOW: workflow}, force)
    show("".join(f"{visible(sentence)}\n" for sentence in tailored.sentences))
    show("\nTry it here, before any tag:\n" + "".join(f"  {visible(command)}\n" for command in tailored.commands))
    _say_next(workflow)
    log("next: run the command above, then commit both files, and push a tag such as v1.0.0")


def _say_next(workflow: str) -> None:
    from gate.starter import init as templates

    log(f"wrote {templates.POLICY} and {templates.WORKFLOW}")
    if templates.UNKNOWN in workflow:
        log(f"next: in {templates.WORKFLOW}, put the repository that holds gate's action for {templates.UNKNOWN}")
