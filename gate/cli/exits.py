"""The exit code: it turns whatever happens in a command into one of the documented codes."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

import click

from gate.cli import signals
from gate.cli.codes import INTERNAL_ERROR, INTERRUPTED, NO_JUDGEMENT
from gate.cli.commands import cli
from gate.cli.github import on_github, publish_refusal
from gate.cli.streams import guard, log
from gate.errors import GateError
from gate.words import visible

COMPLETING = "_GATE_COMPLETE"  # a shell sets it to ask how a line may go on
JUDGING = (["run"], ["check"])  # the commands that end in a verdict, as their first argument
OUT_OF_MEMORY = "memory: must have room for this run, got too little; lower --memory, or use a larger machine"


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command and turn whatever happens into an exit code; `args` are those of a caller in Python."""
    if args or sys.argv[1:]:  # a shell that asks names no command; who names one gets its verdict
        os.environ.pop(COMPLETING, None)
    gc.set_threshold(100_000, 50, 100)  # garbage collection takes an eighth of the time of imports
    guard()
    signals.end(lambda received: _exit_code(args, received))


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
    except SystemExit as end:
        if os.environ.get(COMPLETING) and end.code == 0:  # click has answered a shell, and run no command
            return 0
        return NO_JUDGEMENT  # click exits so when the reader of a help text has gone; its code would read as a fail
    except Exception as error:
        if received:  # libraries turn a signal into errors of their own
            return INTERRUPTED
        import traceback

        for line in traceback.format_exc().splitlines():
            log(line)
        crash = f"internal error: {type(error).__name__}: {error}; this is a bug in gate, not a verdict on the release"
        return _refuse(args, INTERNAL_ERROR, visible(crash))


def _refuse(args: list[str] | None, exit_code: int, message: str) -> int:
    """Say why there is no verdict: on stderr, and to GitHub if a release was to be judged."""
    for line in message.splitlines():
        log(line)
    if on_github() and (args or sys.argv[1:])[:1] in JUDGING:
        publish_refusal(message, exit_code)
    return exit_code
