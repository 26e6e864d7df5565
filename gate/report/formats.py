"""One table of output formats: what each is called, the file of a release directory, and what renders it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath

from gate.record import Record


@dataclass(frozen=True)
class Format:
    """One way to show a record; `file` is its name in a release directory, None where it has none there."""

    name: str
    module: str
    file: str | None = None

    @property
    def render(self) -> Callable[[Record], str]:
        """What renders it, imported when it is needed: a dry run need not wait for matplotlib."""
        found: Callable[[Record], str] = import_module(self.module).render
        return found


FORMATS: tuple[Format, ...] = (
    Format("text", "gate.report.terminal"),
    Format("short", "gate.report.short"),
    Format("md", "gate.report.markdown", "report.md"),
    Format("html", "gate.report.html", "report.html"),
    Format("junit", "gate.report.junit", "junit.xml"),
    Format("predicate", "gate.report.predicate", "predicate.json"),
    Format("json", "gate.report.document", "verdict.json"),
)


def rendered(record: Record, formats: tuple[Format, ...] = FORMATS) -> dict[str, bytes]:
    """The files of a release that follow from its record alone."""
    return {format_.file: format_.render(record).encode() for format_ in formats if format_.file is not None}


def warm_up() -> None:
    """Import and prepare all that a release directory takes, once for several that are drawn side by side."""
    from gate.report.numbers import clean
    from gate.report.templates import template

    for format_ in FORMATS:
        if format_.file is not None:
            format_.render  # noqa: B018, which imports it
    markdown, page = import_module("gate.report.markdown"), import_module("gate.report.page")
    most = page.LIMITS[0].characters  # of the page that nearly every record fits
    template("report.html", clean, clean, most)
    template("report.md", markdown.escape, markdown.verbatim, most)
    figures = import_module("gate.report.figures")
    figures.to_svg(figures.MappingDisplay([0.0, 1.0], [0.0, 1.0], [0.5], [0.5], ["1 %"]), "first")  # loads its fonts


def named(name: str) -> Format:
    return next(format_ for format_ in FORMATS if format_.name == name)


def by_ending(path: str) -> str | None:
    """The format that a file's name asks for; None where its ending tells none."""
    ending = PurePath(path).suffix
    files = {PurePath(format_.file).suffix: format_.name for format_ in reversed(FORMATS) if format_.file is not None}
    known = files | {".json": "json", ".xml": "junit", ".txt": "text"}
    return known.get(ending)
