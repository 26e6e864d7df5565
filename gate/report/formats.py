"""One table of output formats: what each is called, the file of a release directory, and what renders it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gate.record import Record


@dataclass(frozen=True)
class Format:
    """One way to show a record.

    file       its name in a release directory; None where it has none there
    endings    of files that `gate report -o` writes so
    offered    whether `gate report` names it
    """

    name: str
    module: str
    file: str | None = None
    endings: tuple[str, ...] = ()
    offered: bool = True

    @property
    def render(self) -> Callable[[Record], str]:
        """What renders it, imported when it is needed: a dry run need not wait for matplotlib."""
        found: Callable[[Record], str] = import_module(self.module).render
        return found


FORMATS: tuple[Format, ...] = (
    Format("text", "gate.report.terminal", endings=(".txt",)),
    Format("short", "gate.report.short"),
    Format("md", "gate.report.markdown", "report.md", (".md",)),
    Format("html", "gate.report.html", "report.html", (".html", ".htm")),
    Format("junit", "gate.report.junit", "junit.xml", (".xml",)),
    Format("predicate", "gate.report.predicate", "predicate.json", offered=False),
    Format("json", "gate.report.document", "verdict.json", (".json",)),
)


def rendered(record: Record, page: Callable[[], str] | None = None) -> dict[str, bytes]:
    """The files of a release that follow from its record alone; `page` gives the HTML report where it is drawn already.

    It is asked for last, so that it is drawn while the others are rendered.
    """
    drawn = {"html"} if page else set()
    found = {each.file: each.render(record).encode() for each in FORMATS if each.file and each.name not in drawn}
    return found | ({"report.html": page().encode()} if page else {})


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


def offered() -> list[str]:
    """What `gate report` can be asked for."""
    return [format_.name for format_ in FORMATS if format_.offered]


def by_ending() -> dict[str, str]:
    """The format that each ending of a file asks for."""
    return {ending: format_.name for format_ in FORMATS for ending in format_.endings}
