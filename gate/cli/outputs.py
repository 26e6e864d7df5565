"""What a command gives: a text on stdout or in a file, a release directory, and the exit code of its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gate.cli import signals
from gate.cli.codes import EXIT_CODES
from gate.cli.github import on_github, publish
from gate.cli.streams import color_wanted, is_terminal, log, show, width, working
from gate.errors import GateError
from gate.words import plural

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.gating import ComparedReleases, Release
    from gate.history import History
    from gate.record import Record
    from gate.record.system import SystemRecord
    from gate.scores import Scores
    from gate.systems import ComparedSystems, SystemRelease


def conclude(
    judged: Release | SystemRelease, out: Path | None, force: bool, as_json: bool, replaces: str | None = None
) -> int:
    """From a judged release to an exit code; every report is written before the code is given."""
    if out is not None:
        from gate.storage import write

        with working(f"writing {out}"):
            files = judged.files
            signals.heed()
            write(out, files, force, replaces)
    show(render(judged.record, "json" if as_json else "text", to_terminal=True))
    written = "nothing was written" if not judged.used_ledger else "only the ledger's line was written"
    log(f"report: {out / 'report.html'}" if out else f"dry run: {written}")
    if on_github():
        publish(judged, EXIT_CODES[judged.outcome], out)
    return EXIT_CODES[judged.outcome]


def put_flagged(flagged: Path | None, sample: Scores, calibrator: Calibrator, calibrated: bool = False) -> None:
    """The list of false positives, where one is asked for; written before the verdict is said."""
    if flagged is None:
        return
    from gate.flagged import list_flagged, render
    from gate.storage import write_file

    table = list_flagged(sample, calibrator, calibrated)
    write_file(flagged, render(table, flagged.suffix))
    hint = "" if "id" in table else "; give --id-column NAME to find the rows again"
    log(f"flagged: {plural(len(table['calibrated']), 'benign row')} in {flagged}{hint}")


def put(text: str, output: str, format_: str) -> None:
    """To stdout, or to the file that was named."""
    from gate.storage import write_file

    if output == "-":
        show(text, format_)
    else:
        write_file(Path(output), text.encode())


def _page(to_terminal: bool) -> tuple[int, bool]:
    """How wide a text is, and whether it has colours: as the terminal, where it goes to one."""
    shown = to_terminal and is_terminal()
    return width() if shown else 80, shown and color_wanted()


def render(record: Record | SystemRecord, format_: str, to_terminal: bool = False) -> str:
    from gate.record import Record
    from gate.report.formats import named, offered

    if not isinstance(record, Record):
        from gate.report import system, system_text

        if format_ != "text":
            if format_ not in system.FORMATS:
                known = ", ".join(["text", *(name for name in offered() if name in system.FORMATS)])
                raise GateError(f"--format: must be one of {known} for several detectors, got {format_}")
            return system.FORMATS[format_](record)
        return system_text.render(record, *_page(to_terminal))
    if format_ != "text":
        return named(format_).render(record)
    from gate.report import terminal

    return terminal.render(record, *_page(to_terminal))


def render_changes(found: ComparedReleases, format_: str, to_terminal: bool) -> str:
    import json

    from gate.report import markdown, terminal
    from gate.report.changes import describe_changes

    if format_ == "json":
        parts = {"baseline": found.comparison, "drop": found.drops}
        content = {key: None if part is None else part.model_dump(mode="json") for key, part in parts.items()}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    changed = describe_changes(found.comparison, found.drops, found.record.alphas)
    assert changed is not None
    if format_ == "md":
        return markdown.render_changes(changed, found.record)
    return terminal.render_changes(changed, found.record, *_page(to_terminal))


def render_pairs(pairs: ComparedSystems, format_: str, to_terminal: bool) -> str:
    """Detector by detector, and which came or went."""
    import json

    parts = {name: render_changes(found, format_, to_terminal) for name, found in pairs.both.items()}
    if format_ == "json":
        content = {"detectors": {name: json.loads(part) for name, part in parts.items()}}
        return json.dumps({**content, "came": pairs.came, "went": pairs.went}, indent=2, ensure_ascii=False) + "\n"
    heading = "## {}\n\n" if format_ == "md" else "{}:\n"
    sections = [f"{heading.format(name)}{part}" for name, part in parts.items()]
    for what, names in (("New", pairs.came), ("No longer there", pairs.went)):
        sections += [f"{what}: {', '.join(names)}.\n"] if names else []
    return "\n".join(sections)


def render_history(history: History, format_: str, to_terminal: bool = False) -> str:
    from gate.report import history as histories

    if format_ == "text":
        return histories.render(history, *_page(to_terminal))
    renderers = {"html": histories.render_html, "md": histories.render_markdown, "json": histories.to_json}
    return renderers[format_](history)
