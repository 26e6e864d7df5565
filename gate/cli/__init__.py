"""The command line: arguments in, the stages called in order, an exit code out. No arithmetic, no judgement."""

from gate.cli.codes import EXIT_CODE_HELP, EXIT_CODES
from gate.cli.commands import cli
from gate.cli.exits import main

__all__ = ["EXIT_CODES", "EXIT_CODE_HELP", "cli", "main"]
