"""What a command gives: a text on stdout or in a file, a release directory, and the exit code of its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gate.cli.codes import EXIT_CODES
from gate.cli.github import on_github, publish
from gate.cli.streams import color_wanted, is_terminal, log, show, width, working

if TYPE_CHECKING:
    from gate.gating import ComparedReleases, Release
    from gate.history import History
    from gate.record import Record


def conclude(judged: Release, out: Path | None, force: bool, as_json: bool, replaces: str | None = None) -> int:
    """From a judged release to an exit code; every report is written before the code is given."""
    if out is not None:
        with working(f"writing {out}"):
            judged.write(out, force, replaces)
    show(render(judged.record, "json" if as_json else "text", to_terminal=True))
    written = "nothing was written" if not judged.used_ledger else "only the ledger's line was written"
    log(f"report: {out / 'report.html'}" if out else f"dry run: {written}")
    if on_github():
        publish(judged, EXIT_CODES[judged.outcome], out)
    return EXIT_CODES[judged.outcome]


def put(text: str, output: str, format_: str) -> None:
    """To stdout, or to the file that was named."""
    from gate.storage import write_file

    if output == "-":
        show(text, format_)
    else:
        write_file(Path(output), text.encode())


def render(record: Record, format_: str, to_terminal: bool = False) -> str:
    if format_ == "json":
        return record.to_json()
    if format_ == "text":
        from gate.report import terminal

        to_terminal = to_terminal and is_terminal()
        return terminal.render(record, width=width() if to_terminal else 80, color=to_terminal and color_wanted())
    from gate.report import html, junit, markdown

    return {"html": html.render, "md": markdown.render, "junit": junit.render}[format_](record)


def render_changes(found: ComparedReleases, format_: str, to_terminal: bool) -> str:
    import json

    from gate.report import markdown, terminal
    from gate.report.changes import describe_changes
    from gate.report.rows import THIN_SPACE

    if format_ == "json":
        parts = {"baseline": found.comparison, "drop": found.drops}
        content = {key: None if part is None else part.model_dump(mode="json") for key, part in parts.items()}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    separator = THIN_SPACE if format_ == "md" else ","
    changed = describe_changes(found.comparison, found.drops, found.record, separator)
    assert changed is not None
    if format_ == "md":
        return markdown.render_changes(changed, found.record)
    to_terminal = to_terminal and is_terminal()
    return terminal.render_changes(
        changed, found.record, width() if to_terminal else 80, to_terminal and color_wanted()
    )


def render_history(history: History, format_: str, to_terminal: bool = False) -> str:
    from gate.report import history as histories

    if format_ == "text":
        to_terminal = to_terminal and is_terminal()
        return histories.render(history, width=width() if to_terminal else 80, color=to_terminal and color_wanted())
    renderers = {"html": histories.render_html, "md": histories.render_markdown, "json": histories.to_json}
    return renderers[format_](history)
