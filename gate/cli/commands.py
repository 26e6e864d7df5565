"""The group of all commands, and the options that hold for each; it does no work of its own."""

from __future__ import annotations

import click

from gate.cli.codes import EXIT_CODE_HELP, NO_JUDGEMENT
from gate.cli.exports import export
from gate.cli.records import compare, explain, history, report, schema, verify
from gate.cli.releases import check, run
from gate.cli.starters import demo, init, plan


class InOrder(click.Group):
    """A group that lists commands in the order of their use, each with its whole summary."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in self.commands.items()])


@click.group(
    cls=InOrder,
    epilog=EXIT_CODE_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    commands=[run, check, plan, report, verify, compare, history, explain, export, init, demo, schema],
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
      gate init --scores scores/*.parquet
      gate run --release v2.4.0 --fit benign-fit.parquet --holdout benign-holdout.parquet

    \b
    Shell completion:
      eval "$(_GATE_COMPLETE=bash_source gate)"    # or zsh_source; fish: _GATE_COMPLETE=fish_source gate | source
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(NO_JUDGEMENT)
