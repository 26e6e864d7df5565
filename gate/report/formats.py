"""The one table of output formats: the name of each, its file in a release directory, and what renders it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from gate.errors import GateError

if TYPE_CHECKING:
    from gate.record import Record
    from gate.record.system import SystemRecord

Shown = Literal["record", "system", "comparison", "history"]


@dataclass(frozen=True)
class Format:
    """One way to show what was found; a renderer is a module with a function, such as `gate.report.html:render`.

    record         the renderer of the record of one detector
    system         the renderer of the record of several detectors
    comparison     the renderer of two releases side by side; None if the format has none
    history        the renderer of many releases over time; None if the format has none
    file           its file in a release directory, for one detector and for several; None if it has no file there
    endings        the endings of files that `gate report -o` writes in this format
    offered        whether a command names it
    fits_screen    whether its renderers take the width and the colours of a terminal
    """

    name: str
    record: str
    system: str
    comparison: str | None = None
    history: str | None = None
    file: str | None = None
    endings: tuple[str, ...] = ()
    offered: bool = True
    fits_screen: bool = False

    def renderer(self, shown: Shown) -> Callable[..., str]:
        """Import the renderer when it is needed: a dry run need not wait for matplotlib."""
        module, _, function = getattr(self, shown).partition(":")
        found: Callable[..., str] = getattr(import_module(module), function)
        return found


FORMATS: tuple[Format, ...] = (
    Format(
        "text",
        record="gate.report.terminal:render",
        system="gate.report.system_text:render",
        comparison="gate.report.compared:render",
        history="gate.report.history:render",
        endings=(".txt",),
        fits_screen=True,
    ),
    Format("short", record="gate.report.short:render", system="gate.report.system:render_short"),
    Format(
        "md",
        record="gate.report.markdown:render",
        system="gate.report.system:render_markdown",
        comparison="gate.report.compared:render_markdown",
        history="gate.report.history:render_markdown",
        file="report.md",
        endings=(".md",),
    ),
    Format(
        "html",
        record="gate.report.html:render",
        system="gate.report.system:render_html",
        history="gate.report.history:render_html",
        file="report.html",
        endings=(".html", ".htm"),
    ),
    Format(
        "junit",
        record="gate.report.junit:render",
        system="gate.report.system:render_junit",
        file="junit.xml",
        endings=(".xml",),
    ),
    Format(
        "predicate",
        record="gate.report.predicate:render",
        system="gate.report.system:render_predicate",
        file="predicate.json",
        offered=False,
    ),
    Format(
        "json",
        record="gate.report.document:render",
        system="gate.report.document:render",
        comparison="gate.report.compared:to_json",
        history="gate.report.history:to_json",
        file="verdict.json",
        endings=(".json",),
    ),
)


def render(record: Record | SystemRecord, name: str) -> str:
    """Render a record in one format."""
    return named(name).renderer(shown_of(record))(record)


def shown_of(record: Record | SystemRecord) -> Shown:
    """Say whether a record is of one detector or of several."""
    from gate.record import Record

    return "record" if isinstance(record, Record) else "system"


def rendered(record: Record | SystemRecord, page: Callable[[], str] | None = None) -> dict[str, bytes]:
    """Render the files of a release that follow from its record alone; `page` gives an HTML report drawn before.

    `page` is called last, so that the report is drawn while the others are rendered.
    """
    files = written_files()
    drawn = {files.pop("html"): page} if page else {}
    found = {file: render(record, name).encode() for name, file in files.items()}
    return found | {file: draw().encode() for file, draw in drawn.items()}


def written_files() -> dict[str, str]:
    """List the formats that a release directory has, and the file of each."""
    return {each.name: each.file for each in FORMATS if each.file}


def warm_up() -> None:
    """Import and prepare all that a release directory takes, once for several releases that are drawn side by side."""
    from gate.report.numbers import clean
    from gate.report.templates import template

    for format_ in FORMATS:
        if format_.file is not None:
            format_.renderer("record")
    markdown, page = import_module("gate.report.markdown"), import_module("gate.report.page")
    most = page.LIMITS[0].characters  # nearly every record fits into this page
    template("report.html", clean, clean, most)
    template("report.md", markdown.escape, markdown.verbatim, most)
    figures = import_module("gate.report.figures")
    figures.to_svg(figures.MappingDisplay([0.0, 1.0], [0.0, 1.0], [0.5], [0.5], ["1 %"]), "first")  # loads its fonts


def named(name: str) -> Format:
    found = next((format_ for format_ in FORMATS if format_.name == name), None)
    if found is None:
        known = ", ".join(format_.name for format_ in FORMATS)
        raise GateError(f"format: must be one of {known}, got {name[:40]!r}")
    return found


def offered(shown: Shown) -> list[str]:
    """List the formats that a command can be asked for."""
    return [format_.name for format_ in FORMATS if format_.offered and getattr(format_, shown)]


def by_ending() -> dict[str, str]:
    """Map each ending of a file to its format."""
    return {ending: format_.name for format_ in FORMATS for ending in format_.endings}
