"""The options that several commands take: they check one value each, and never the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial, reduce, wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from gate.cli.inputs import now
from gate.report.formats import Shown, by_ending, offered

Command = Callable[..., int | None]
if TYPE_CHECKING:
    from gate.policy import Columns

    Type = click.ParamType[Any]
else:
    Type = click.ParamType  # before click 8.4 this class takes no type parameter


def given(text: str) -> str:
    """Refuse an empty value: an unset variable in a script must not silently become the default."""
    if not text:
        raise click.BadParameter("must not be empty")
    return text


def files(option: str, help_: str, **more: Any) -> Callable[[Command], Command]:
    """Make an option that names score files and may be given several times."""
    name = option.strip("-").replace("-", "_") + "_paths"
    return click.option(option, name, type=given, multiple=True, metavar="FILE", help=help_, **more)


class NumberOption(Type):
    """A number written as in a policy: 1000000, 1e6, 0.5 or, if it is a share, 50%."""

    name = "number"

    def __init__(self, low: Decimal | int | str, high: Decimal | int | str, must: str, whole: bool) -> None:
        self.low, self.high, self.must, self.whole = Decimal(low), Decimal(high), must, whole

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        from gate.policy import rate  # imported when an option is given: `gate --help` need not wait for it

        if not isinstance(value, str):  # a default
            return value
        exact = rate(value) if not (self.whole and value.strip().endswith("%")) else None
        if exact is None or not self.low <= exact <= self.high or (self.whole and exact != int(exact)):
            self.fail(f"must be {self.must}, got {value[:40]!r}", parameter, context)
        return int(exact) if self.whole else float(exact)


ROWS = NumberOption(2, 10**12, "a whole number of rows from 2 to 10^12, such as 140000 or 1e6", whole=True)
SEED = NumberOption(0, 10**18, "a whole number from 0 on", whole=True)
RELEASES = NumberOption(2, 99, "a whole number from 2 to 99", whole=True)
SHARE = NumberOption("1e-9", "0.999999999", "a share of the rows above 0 and below 1, such as 50% or 0.3", whole=False)
POWER = NumberOption("0.5", "0.9999", "from 50% to 99.99%, such as 95% or 0.95", whole=False)


overrides = click.option(
    "--set",
    "overrides",
    type=given,
    multiple=True,
    metavar="KEY=VALUE",
    help="Any key of the policy with another value, written as YAML, such as data.label=is_fraud or "
    "calibration.domain=[0,100]; may be given several times  [default: the policy's]",
)


class OneOf(Type):
    """One of some words; a function gives the words when they are needed."""

    name = "choice"

    def __init__(self, words: Callable[[], Sequence[str]]) -> None:
        self.words = words

    def get_metavar(self, *args: Any, **kwargs: Any) -> str | None:
        return click.Choice(self.words()).get_metavar(*args, **kwargs)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        return click.Choice(self.words()).convert(value, parameter, context)

    def shell_complete(self, context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return click.Choice(self.words()).shell_complete(context, parameter, begun)


class OfFiles(click.Command):
    """A command whose help names what files of scores may end in."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from gate.rows.formats import endings

        named = copy(self)
        named.help = (self.help or "").replace("ENDINGS", ", ".join(endings()))
        click.Command.format_help_text(named, ctx, formatter)


def shown_as(shown: Shown) -> Callable[[Command], Command]:
    """Add the options of a command that shows something: the format and the place."""
    endings, place = ", ".join(_endings(shown)), "Where to write  [default: stdout]"
    options = (
        click.option("-o", "--output", type=given, default="-", metavar="FILE", help=place),
        click.option(
            "--format",
            "format_",
            type=OneOf(partial(offered, shown)),
            help=f"What to write  [default: by the ending of FILE ({endings}), else text]",
        ),
    )
    return lambda command: reduce(lambda decorated, option: option(decorated), options, command)


def _endings(shown: Shown) -> list[str]:
    """List the endings of the formats that show it, one for each format."""
    known = offered(shown)
    return [ending for ending, name in by_ending().items() if name in known and ending != ".htm"]


def format_for(output: str, format_: str | None, shown: Shown) -> str:
    """Return the format that was asked for, or else that of the file's ending, or else text."""
    ending = PurePath(output).suffix.lower() if output != "-" else ""
    found = by_ending().get(ending, "text" if ending in ("", ".log") else "")
    if format_ is None and found not in offered(shown):
        endings = ", ".join(_endings(shown))
        raise click.UsageError(f"-o: must end in one of {endings}, or --format must be given, got {output[-40:]!r}")
    return format_ or found


def _size(text: str) -> int:
    """Read a number of bytes, such as 500MB or 2GiB."""
    units = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(b|[kmgt](i?)b|)", text.strip().lower())
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** units[found[2][:1]]) if found else 0
    if size < 1:
        raise click.BadParameter(f"must be a number of bytes such as 500MB or 8GB, got {text[:40]!r}")
    return size


def bounded(command: Command) -> Command:
    """Add the options of commands that read scores: what memory they may take, where they live, who works on them."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        given_ = context.meta.setdefault("gate.engine", {})
        given_[option.name] = value
        if len(given_) == 3:
            from gate.rows.engine import using

            context.with_resource(using(given_["memory"], given_["scratch"]))

    for option in (
        click.option(
            "--connect",
            type=given,
            callback=keep,
            expose_value=False,
            envvar="GATE_CONNECT",
            metavar="URL",
            help="Ask PostgreSQL or Spark: postgresql://HOST/DATABASE, spark://HOST:PORT; FILE is then a table, or a "
            "query in brackets  [default: data.connect of the policy, else files]",
        ),
        click.option(
            "--scratch",
            type=given,
            callback=keep,
            expose_value=False,
            metavar="DIR",
            help="Where what does not fit the memory lies meanwhile  [default: TMPDIR]",
        ),
        click.option(
            "--memory",
            type=_size,
            callback=keep,
            expose_value=False,
            metavar="SIZE",
            help="What rows may take of it; what is larger is asked where it stands  [default: 60 %]",
        ),
    ):
        command = option(command)
    return command


def connect(data: Columns | None = None) -> None:
    """Ask the engine that the command line names, or else the policy, about all rows of this command."""
    context = click.get_current_context()
    given_ = context.meta.get("gate.engine", {})
    url: str | None = given_.get("connect") or (None if data is None else data.connect)
    if url is not None:
        from gate.rows.remote import connected

        context.with_resource(connected(url, given_["memory"]))


@dataclass(frozen=True)
class Request:
    """What a command that judges has to do with its verdict, and when it was called."""

    created: datetime
    ledger: str | None
    flagged: str | None
    dry_run: bool
    as_json: bool
    force: bool
    release: str = ""
    directory: Path = Path()  # a command that judges names it

    @property
    def out(self) -> Path | None:
        return None if self.dry_run else self.directory


def judging(command: Command) -> Command:
    """Add the options of commands that judge: what to do with the verdict; the command gets them as `asked`."""

    @wraps(command)
    def collected(
        ledger: str | None, flagged: str | None, dry_run: bool, as_json: bool, force: bool, **others: Any
    ) -> int | None:
        return command(asked=Request(now(), ledger, flagged, dry_run, as_json, force), **others)

    for option in (
        click.option(
            "--flagged",
            type=given,
            metavar="FILE",
            help="List the false positives here, highest first, as .csv or .parquet, also in a dry run  [default: no]",
        ),
        click.option("--force", is_flag=True, help="Replace an existing release directory  [default: refuse]"),
        click.option("--json", "as_json", is_flag=True, help="Print the record as JSON  [default: the table]"),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Judge, print, exit as the real run; write only --flagged and the ledger's line  [default: write all]",
        ),
        click.option(
            "--ledger",
            type=given,
            metavar="FILE",
            help="Count here how often these held-out rows have judged  [default: not counted]",
        ),
    ):
        collected = option(collected)
    return collected
