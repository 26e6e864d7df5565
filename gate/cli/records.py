"""The commands that read what was recorded: `gate report`, `compare`, `verify`, `history` and `schema`."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from gate.cli.codes import NO_JUDGEMENT
from gate.cli.inputs import read_scores, require_both
from gate.cli.options import bounded, connect, files, format_for, given, overrides, shown_as
from gate.cli.outputs import put, render
from gate.cli.streams import log, show, width, working
from gate.errors import GateError
from gate.report.formats import shown_of
from gate.words import visible

if TYPE_CHECKING:
    from gate.verification.result import Verification


@click.command()
@click.argument("directory", type=given, metavar="RELEASE_DIR")
@shown_as("record")
def report(directory: str, format_: str | None, output: str) -> None:
    """Render a record again, in any format, without the data.

    \b
    Example:
      gate report releases/v2.4.0
      gate report releases/v2.4.0 -o release-notes.md
      gate report releases/v2.4.0 --format short    # at most 500 characters, for chats and titles
    """
    from gate.record.system import read_any

    format_ = format_for(output, format_, "record")
    record = read_any(directory)
    put(render(record, shown_of(record), format_, to_terminal=output == "-"), output, format_, [directory])


@click.command()
@click.argument("old", type=given, metavar="OLD_DIR")
@click.argument("new", type=given, metavar="NEW_DIR")
@files("--holdout", "The new release's scores of benign rows  [default: recorded counts]")
@files("--baseline-holdout", "The old release's scores of the same rows, joined by id  [default: recorded counts]")
@files("--malicious", "The new release's scores of malicious rows  [default: recorded counts]")
@files("--baseline-malicious", "The old release's scores of the same rows, joined by id  [default: recorded counts]")
@overrides
@bounded
@shown_as("comparison")
def compare(
    old: str,
    new: str,
    holdout_paths: tuple[str, ...],
    baseline_holdout_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    baseline_malicious_paths: tuple[str, ...],
    format_: str | None,
    output: str,
    overrides: tuple[str, ...],
) -> None:
    """Two releases side by side, with what changed in the policy.

    It shows thresholds, false-positive rates and detection rates. Without scores it compares what was recorded. With
    --holdout it also shows what the old raw thresholds would flag of the new scores, and with --baseline-holdout which
    rows' flags flipped. It judges nothing: exit code 0.

    \b
    Example:
      gate compare releases/v2.3.0 releases/v2.4.0
      gate compare releases/v2.3.0 releases/v2.4.0 --set data.id=id \\
          --holdout new.parquet --baseline-holdout old.parquet
    """
    from gate.gating import compare_stored
    from gate.record.system import holds_several
    from gate.systems import compare_systems

    format_ = format_for(output, format_, "comparison")
    require_both("--baseline-holdout", baseline_holdout_paths, "--holdout", holdout_paths)
    require_both("--baseline-malicious", baseline_malicious_paths, "--malicious", malicious_paths)
    scored = {"holdout": holdout_paths, "malicious": malicious_paths}
    scored |= {"baseline-holdout": baseline_holdout_paths, "baseline-malicious": baseline_malicious_paths}
    compared = compare_systems if holds_several(new) else compare_stored
    connect()
    found = compared(old, new, overrides, scored, read_scores)
    read = [old, new, *chain(*scored.values())]
    put(render(found, "comparison", format_, to_terminal=output == "-"), output, format_, read)


@click.command()
@click.argument("directory", type=given, metavar="RELEASE_DIR")
@click.option(
    "--policy", type=given, metavar="FILE", help="The policy that it must be judged by, or built-in  [default: any]"
)
@files("--fit", "The scores it was fitted on  [default: not checked]")
@files("--holdout", "The scores it was judged on  [default: not checked]")
@files("--benign", "The scores that it split  [default: not checked]")
@files("--malicious", "The malicious scores  [default: not checked]")
@click.option(
    "--baseline",
    type=given,
    metavar="DIR",
    help="The release that it was held against, or none for a first  [default: not checked]",
)
@files("--baseline-holdout", "That release's scores of the held-out rows  [default: not checked]")
@files("--baseline-malicious", "That release's scores of the malicious rows  [default: not checked]")
@click.option(
    "--ledger",
    type=given,
    metavar="FILE",
    help="The ledger that counted its held-out rows  [default: not checked]",
)
@overrides
@bounded
@click.option(
    "--complete", is_flag=True, help="Exit with code 2 where anything is left unbound  [default: once data is given]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON  [default: lines]")
def verify(
    directory: str,
    policy: str | None,
    baseline: str | None,
    overrides: tuple[str, ...],
    ledger: str | None,
    complete: bool,
    as_json: bool,
    fit_paths: tuple[str, ...],
    holdout_paths: tuple[str, ...],
    benign_paths: tuple[str, ...],
    malicious_paths: tuple[str, ...],
    baseline_holdout_paths: tuple[str, ...],
    baseline_malicious_paths: tuple[str, ...],
) -> int:
    """Check a release against its counts, its policy and its data.

    One line says of each check whether it holds. Without the data, the digests, the policy, the calibrator, the
    verdict and the reports are checked, and what nothing binds is listed as not checked. With all of the data the
    whole record is made again and compared value by value. --policy pins the policy that you want, and with it the
    keys that were --set for `gate run`. The pickle is never loaded.

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
    from gate.checks import find_policy
    from gate.record.system import holds_several
    from gate.verification.result import Data

    require_both("--set", overrides, "--policy", policy)
    connect()
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
    pinned = None if policy is None else find_policy(policy, overrides)
    if holds_several(directory):
        from gate.verification.system import verify_system as verify_
    else:
        from gate.verification.release import verify as verify_
    return _say(verify_(directory, data, pinned=pinned, complete=complete), as_json)


def _say(answer: Verification, as_json: bool) -> int:
    """Say what was found, and return its exit code."""
    show(answer.to_json() if as_json else "".join(f"{visible(line)}\n" for line in answer.lines))
    if answer.state == "cannot be checked":
        log("nothing was found wrong, but not all could be checked: see the lines that say so")
    return {"holds": 0, "does not hold": 1, "cannot be checked": NO_JUDGEMENT}[answer.state]


@click.command()
@click.argument("directories", type=given, nargs=-1, required=True, metavar="DIR...")
@shown_as("history")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json  [default: off]")
def history(directories: tuple[str, ...], format_: str | None, as_json: bool, output: str) -> int:
    """The contract across releases and their checks, over time, from their records.

    A DIR is a release directory, or a directory that holds some; the checks in checks/ below a release are shown with
    it. Where a record cannot be read, the others are shown all the same, the page names it, and the exit code is 2.

    \b
    Example:
      gate history releases/
      gate history releases/v2.* -o history.html
    """
    from gate.history import collect

    if as_json and format_ not in (None, "json"):
        raise click.UsageError(f"give either --json or --format {format_}")
    format_ = "json" if as_json else format_for(output, format_, "history")
    with working("reading records"):
        collected = collect(directories)
    if not collected.releases and len(collected.unread) == 1:
        raise GateError(collected.unread[0].problem)
    for unread in collected.unread:
        log(unread.problem)
    if not collected.releases:
        raise GateError("no record could be read, so there is no history")
    with working("drawing the history"):
        text = render(collected, "history", format_, to_terminal=output == "-")
    read = [release.directory for release in collected.releases]
    put(text, output, format_, read + [unread.directory for unread in collected.unread])
    return NO_JUDGEMENT if collected.unread else 0


class WithChecks(click.Command):
    """Its help ends with all checks, for which it waits alone: they need libraries that are slow to load."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from gate.checks import EVERY

        with formatter.section("Checks"):
            formatter.write_dl([(", ".join(dict.fromkeys((check.key, *check.names))), check.asks) for check in EVERY])


@click.command(cls=WithChecks)
@click.argument("check", type=given, metavar="CHECK")
@click.argument("directory", type=given, metavar="[RELEASE_DIR]", required=False)
def explain(check: str, directory: str | None) -> None:
    """What a check asks, how it decides, and what to do when it is red.

    With a release directory, also what that release shows.

    \b
    Example:
      gate explain overlap
      gate explain fpr@0.1% releases/v2.4.0
      gate explain jailbreak:fpr@0.1% releases/v2.4.0    # of several detectors
    """
    from gate.record.system import read_any
    from gate.report.explain import render as render_explanation

    show(render_explanation(check, None if directory is None else read_any(directory), width()))


@click.command()
@click.argument("file", type=click.Choice(["policy", "record", "system"]))
def schema(file: str) -> None:
    """Print the JSON Schema of a policy, of a record (verdict.json), or of that of several detectors.

    \b
    Example:
      gate schema policy > policies/policy.schema.json
    """
    import json

    from gate.checks import policy_schema
    from gate.record import schema as record_schema
    from gate.record.system import schema as system_schema

    kinds: Any = {"policy": policy_schema, "record": record_schema, "system": system_schema}
    show(json.dumps(kinds[file](), indent=2) + "\n", "json")
