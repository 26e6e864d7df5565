"""The outputs of a command: text on stdout or in a file, a release directory, and the exit code of its verdict."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate.cli import signals
from gate.cli.codes import EXIT_CODES
from gate.cli.github import on_github, publish
from gate.cli.streams import color_wanted, is_terminal, log, show, width, working
from gate.errors import GateError
from gate.report.formats import Shown, named, shown_of, written_files
from gate.words import plural

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.cli.options import Request
    from gate.gating import Release
    from gate.rows.sample import Sample
    from gate.systems import SystemRelease


def refuse_places(asked: Request, policy: str | None, inputs: Iterable[str]) -> str | None:
    """Refuse, before any row is read, places where nothing may be written; return what `write` may replace."""
    from gate.storage import place_to_write, refuse_existing

    taken = [*inputs, *([] if policy is None else [policy, policy.rpartition("#")[0]])]  # FILE#NAME is a part of FILE
    for option, name in (("--ledger", asked.ledger), ("--flagged", asked.flagged)):
        if name is None:
            continue
        if Path(os.path.realpath(place_to_write(name, taken))).is_relative_to(os.path.realpath(asked.directory)):
            place = f"the release directory {asked.directory}"
            raise GateError(f"{option}: must lie outside {place}, got {name!r}; move it")
        taken.append(name)
    if asked.flagged is not None:
        from gate.flagged import require_ending

        require_ending(asked.flagged)
    return None if asked.out is None else refuse_existing(asked.out, asked.force, taken)


def conclude(
    judged: Release | SystemRelease,
    out: Path | None,
    force: bool,
    as_json: bool,
    replaces: str | None = None,
    flagged: str | None = None,
) -> int:
    """Write every report of a judged release, and then return its exit code."""
    if out is not None:
        from gate.storage import write

        with working(f"writing {out}"):
            files = judged.files
            signals.stop_if_signalled()
            write(out, files, force, replaces)
    show(render(judged.record, shown_of(judged.record), "json" if as_json else "text", to_terminal=True))
    others = [*([flagged] if flagged else []), *(["the ledger's line"] if judged.used_ledger else [])]
    said = f"only {' and '.join(others)} {'was' if len(others) == 1 else 'were'}" if others else "nothing was"
    log(f"report: {out / written_files()['html']}" if out else f"dry run: {said} written")
    if on_github():
        publish(judged, EXIT_CODES[judged.outcome], out)
    return EXIT_CODES[judged.outcome]


def put_flagged(flagged: str | None, sample: Sample, calibrator: Calibrator, calibrated: bool = False) -> None:
    """Write the list of false positives, if it is asked for, before the verdict is shown."""
    if flagged is None:
        return
    from gate.flagged import list_flagged, render
    from gate.storage import write_file

    table = list_flagged(sample, calibrator, calibrated)
    write_file(flagged, render(table, Path(flagged).suffix))
    hint = "" if "id" in table else "; set data.id to find the rows again"
    log(f"flagged: {plural(len(table['calibrated']), 'benign row')} in {flagged}{hint}")


def put(text: str, output: str, format_: str, inputs: Iterable[str]) -> None:
    """Write to stdout, or to the named file, which must be none that the command read."""
    from gate.storage import write_file

    if output == "-":
        show(text, format_)
    else:
        write_file(output, text.encode(), inputs)


def render(found: Any, shown: Shown, format_: str, to_terminal: bool = False) -> str:
    """Render what a command found; for a terminal in its width, and in colours if they are wanted."""
    known = named(format_)
    fits = known.fits_screen and to_terminal and is_terminal()
    screen = {"width": width(), "color": color_wanted()} if fits else {}
    return known.renderer(shown)(found, **screen)
