"""Writes what GitHub Actions reads about a verdict: step summary, annotations and step outputs, as text.

The limits are the runner's: a summary above 1 MiB is dropped whole, and of the annotations of one kind in a step ten
are kept. A line that starts with `::` is a command, so every text from outside is escaped into one line of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from gate.checks import owner, reasons
from gate.errors import GateError
from gate.names import CheckName
from gate.policy import Document, Location
from gate.record import Record, recorded_policy
from gate.record.system import SystemRecord
from gate.report import markdown
from gate.report.formats import render, written_files
from gate.report.numbers import clean
from gate.report.rows import in_order
from gate.report.templates import shortened
from gate.words import plural

MAX_SUMMARY_BYTES = 900 * 1024
MAX_OUTPUT_BYTES = 1_000_000
MAX_ANNOTATIONS = 10
MAX_CHARACTERS = 2000  # characters of a message; the runner cuts it at 4096


# --- the step summary ---------------------------------------------------------------------------------------


def summary(record: Record | SystemRecord) -> str:
    """Return the Markdown report, which is far smaller than a summary may be."""
    return render(record, "md")


def refusal(error: str) -> str:
    """Write the summary of a run that could not judge."""
    lines = error.splitlines()
    shown = [f"- {markdown.escape(shortened(line, MAX_CHARACTERS))}" for line in lines[:MAX_ANNOTATIONS]]
    more = f"\nAnd {plural(len(lines) - len(shown), 'more line')} in the log.\n" if len(lines) > len(shown) else ""
    return "# NO JUDGEMENT: this release was not judged\n\n" + "\n".join(shown) + f"\n{more}"


# --- annotations --------------------------------------------------------------------------------------------


def errors(record: Record, policy_file: str | None) -> list[str]:
    """Write one error for every finding that blocks, at its line of the policy if the repository has that file."""
    blocking = [finding for finding in in_order(record.findings) if finding.blocks]
    document = _document(record) if policy_file is not None else None
    shown = blocking if len(blocking) <= MAX_ANNOTATIONS else blocking[: MAX_ANNOTATIONS - 1]
    found = [
        error(
            f"{finding.check}: {finding.outcome} ({reasons().get(finding.reason, finding.reason)})",
            ". What would help: ".join(filter(None, [finding.message, finding.remedy])),
            policy_file,
            _line(finding.check, record, document) if document else None,
        )
        for finding in shown
    ]
    if len(shown) < len(blocking):
        rest = plural(len(blocking) - len(shown), "more finding")
        found.append(error(f"{rest} block this release", "the report lists all of them", policy_file, None))
    return found


def error(title: str, message: str, file: str | None = None, line: int | None = None) -> str:
    """Write the workflow command that marks an error, on one line whatever the texts hold."""
    properties = {"title": shortened(clean(title), 200)}
    if file is not None:
        properties |= {"file": file, "line": str(line or 1)}
    named = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    text = "\n".join(clean(part) for part in message.splitlines())
    return f"::error {named}::{_escape(shortened(text, MAX_CHARACTERS))}"


def _document(record: Record) -> Document | None:
    """Read the policy from the text that the record carries; None if that is no policy: a record may hold any text."""
    try:
        return recorded_policy(record.policy)
    except GateError:
        return None


def _line(name: CheckName, record: Record, document: Document) -> int | None:
    """Find the line of the policy that asks for a check, or the line of the nearest setting."""
    return next((document.lines[place] for place in _places(name, record, document) if place in document.lines), None)


def _places(name: CheckName, record: Record, document: Document) -> Iterator[Location]:
    """List where a policy asks for a check: first where it asks by name, then the check's own settings."""
    policy, check = document.policy, owner(name)
    if check is not None:
        yield from (one.place for one in check.asked(policy, record.evidence) if one.name == name)
        yield from check.places
    yield from (("targets", i) for i, target in enumerate(policy.targets) if target.fpr == name.rate)
    yield ("checks",)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


# --- step outputs -------------------------------------------------------------------------------------------


def outputs(record: Record, exit_code: int, directory: PurePath | None, manifest: bytes = b"") -> dict[str, str]:
    """Return the outputs that later steps read; paths and digests only if files were written."""
    found = {"outcome": record.outcome, "exit-code": str(exit_code)}
    if directory is None:
        return found
    found |= paths_below(directory) | {"calibrator": str(directory / "calibrator.joblib")}
    digests = {"calibrator-sha256": record.calibrator.sha256, "manifest-sha256": hashlib.sha256(manifest).hexdigest()}
    return found | digests


def paths_below(directory: PurePath) -> dict[str, str]:
    """Return the paths of a release directory and of its reports, by the names of the outputs."""
    named = {"report-html": "html", "report-md": "md", "verdict-json": "json", "predicate": "predicate"}
    files = written_files()
    return {"directory": str(directory)} | {name: str(directory / files[key]) for name, key in named.items()}


def output_lines(values: Mapping[str, str], delimiter: str) -> str:
    """Write each value between two lines of a delimiter; the caller draws it at random, so that no value can end it."""
    return "".join(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())
