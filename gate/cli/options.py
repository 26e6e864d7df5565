"""The options that several commands take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., int | None]


def given(text: str) -> str:
    """An unset variable in a script must not silently become the default."""
    if not text:
        raise click.BadParameter("must not be empty")
    return text


def files(option: str, help_: str, **more: Any) -> Callable[[Command], Command]:
    """An option that names score files and may be given several times."""
    name = option.strip("-").replace("-", "_") + "_paths"
    return click.option(option, name, type=given, multiple=True, metavar="FILE", help=help_, **more)


def columns_of_files(command: Command) -> Command:
    """The columns of score files, which the policy names unless the command line does."""
    for key in ("count", "timestamp", "id", "group", "segment", "benign", "label", "score"):
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


def bounded(command: Command) -> Command:
    """Of every command that reads scores: how much they may become, where they live and who works on them."""

    def bound(context: click.Context, _option: click.Parameter, size: int | None) -> None:
        if size is not None:
            from gate.scores.budget import bound

            context.with_resource(bound(size))

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        kept = context.meta.setdefault("gate.place", {})
        kept[option.name] = value
        if len(kept) == 3 and any(each is not None for each in kept.values()):
            from gate.scores.engines import check
            from gate.scores.place import Place, living

            context.with_resource(living(Place(kept["memory"], kept["scratch"], check(kept["engine"] or "local"))))

    for option in (
        click.option(
            "--engine",
            type=given,
            callback=keep,
            expose_value=False,
            metavar="NAME",
            help="Who reads and sorts: dask:tcp://HOST:PORT, ray:ADDRESS, spark  [default: local]",
        ),
        click.option(
            "--scratch",
            type=given,
            callback=keep,
            expose_value=False,
            metavar="DIR",
            help="Where samples larger than the memory are sorted; engines share it  [default: TMPDIR]",
        ),
        click.option(
            "--memory",
            type=_size,
            callback=keep,
            expose_value=False,
            metavar="SIZE",
            help="What samples may take of it; larger ones are sorted in --scratch  [default: 60 %]",
        ),
        click.option(
            "--max-bytes",
            type=_size,
            callback=bound,
            expose_value=False,
            metavar="SIZE",
            help="What the columns of one sample may decode to  [default: a quarter of the memory]",
        ),
    ):
        command = option(command)
    return command


def judging(command: Command) -> Command:
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
            "--ledger", type=given, metavar="FILE", help="Count how often these held-out rows have judged (JSON lines)."
        ),
    ):
        command = option(command)
    return command
