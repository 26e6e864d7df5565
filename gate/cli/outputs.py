"""The outputs of a command: text on stdout or in a file, a release directory, and the exit code of its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate.cli import signals
from gate.cli.codes import EXIT_CODES
from gate.cli.github import on_github, publish
from gate.cli.streams import color_wanted, is_terminal, log, show, width, working
from gate.report.formats import Shown, named, shown_of, written_files
from gate.words import plural

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.gating import Release
    from gate.scores import Scores
    from gate.systems import SystemRelease


def conclude(
    judged: Release | SystemRelease, out: Path | None, force: bool, as_json: bool, replaces: str | None = None
) -> int:
    """Write every report of a judged release, and then return its exit code."""
    if out is not None:
        from gate.storage import write

        with working(f"writing {out}"):
            files = judged.files
            signals.stop_if_signalled()
            write(out, files, force, replaces)
    show(render(judged.record, shown_of(judged.record), "json" if as_json else "text", to_terminal=True))
    written = "nothing was written" if not judged.used_ledger else "only the ledger's line was written"
    log(f"report: {out / written_files()['html']}" if out else f"dry run: {written}")
    if on_github():
        publish(judged, EXIT_CODES[judged.outcome], out)
    return EXIT_CODES[judged.outcome]


def put_flagged(flagged: Path | None, sample: Scores, calibrator: Calibrator, calibrated: bool = False) -> None:
    """Write the list of false positives, if it is asked for, before the verdict is shown."""
    if flagged is None:
        return
    from gate.flagged import list_flagged, render
    from gate.storage import write_file

    table = list_flagged(sample, calibrator, calibrated)
    write_file(flagged, render(table, flagged.suffix))
    hint = "" if "id" in table else "; set data.id to find the rows again"
    log(f"flagged: {plural(len(table['calibrated']), 'benign row')} in {flagged}{hint}")


def put(text: str, output: str, format_: str) -> None:
    """Write to stdout, or to the named file."""
    from gate.storage import write_file

    if output == "-":
        show(text, format_)
    else:
        write_file(Path(output), text.encode())


def render(found: Any, shown: Shown, format_: str, to_terminal: bool = False) -> str:
    """Render what a command found; for a terminal in its width, and in colours if they are wanted."""
    known = named(format_)
    fits = known.fits_screen and to_terminal and is_terminal()
    screen = {"width": width(), "color": color_wanted()} if fits else {}
    return known.renderer(shown)(found, **screen)
