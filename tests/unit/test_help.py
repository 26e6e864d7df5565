"""The examples that every `--help` shows are commands that gate takes."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from gate.checks import EVERY
from gate.cli import cli
from gate.report.explain import find

EXAMPLE = re.compile(r"^ +(gate [a-z]+(?: .*)?)$", re.MULTILINE)


def examples() -> list[str]:
    texts = [cli.help or "", *(cli.commands[name].help or "" for name in sorted(cli.commands))]
    shown = [found for text in texts for found in EXAMPLE.findall(text.partition("Example:")[2].replace("\\\n", " "))]
    return [example.partition(" > ")[0] for example in shown]


@pytest.mark.parametrize("example", examples())
def test_an_example_of_the_help_is_taken(example: str) -> None:
    """Its options and their values, as far as can be told without files."""
    name, *arguments = shlex.split(example, comments=True)[1:]
    command = cli.commands[name]
    with command.make_context(name, arguments, resilient_parsing=False) as context:
        assert isinstance(context, click.Context)


def test_every_command_shows_an_example() -> None:
    shown = {shlex.split(example)[1] for example in examples()}
    assert shown >= {*cli.commands}


def test_no_help_shows_a_range_of_numbers_that_a_parser_wrote() -> None:
    for name, command in cli.commands.items():
        text = command.get_help(click.Context(command, info_name=name))
        assert "<=x" not in text.replace("\n", "")


def test_every_option_says_what_happens_without_it() -> None:
    """What must be given has no default."""
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name)
        for option in command.get_params(context):
            if not isinstance(option, click.Option) or option.required or "--help" in option.opts:
                continue
            _, said = option.get_help_record(context) or ("", "")
            assert re.search(r"\S  \[default: [^\]]+\]$", said), f"gate {name} {option.opts[-1]}: {said}"


def test_explain_names_every_check_with_what_it_asks() -> None:
    """The names that it takes, those of findings too; other help does not wait for what that loads."""
    command = cli.commands["explain"]
    said = " ".join(command.get_help(click.Context(command, info_name="explain")).partition("Checks:\n")[2].split())
    shown = [f"{', '.join(dict.fromkeys([check.key, *check.names]))} {check.asks}" for check in EVERY]
    assert said == " ".join(shown)
    assert all(find(name)[0] is check for check in EVERY for name in (check.key, *check.names))
