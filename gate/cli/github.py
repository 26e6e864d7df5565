"""Gives GitHub Actions, if it runs the command, the step's summary, annotations and outputs; it decides nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gate.cli.streams import log, tell

if TYPE_CHECKING:
    from gate.gating import Release
    from gate.systems import SystemRelease


def on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def publish(judged: Release | SystemRelease, exit_code: int, out: Path | None) -> None:
    """Write the verdict as step summary, annotations and outputs; whatever goes wrong here changes no verdict."""
    from gate.record import Record
    from gate.report import github, system_github
    from gate.storage import manifest_of

    record, file = judged.record, _file_of_the_repository(judged.record.policy.path)
    manifest = manifest_of(judged.files) if out else b""  # as it was written: the file may have changed since
    if isinstance(record, Record):
        errors, outputs = github.errors(record, file), github.outputs(record, exit_code, out, manifest)
    else:
        from gate.report import system_github

        errors, outputs = system_github.errors(record, file), system_github.outputs(record, exit_code, out, manifest)
    _tell_github(github.summary(record), errors, outputs)


def publish_refusal(message: str, exit_code: int) -> None:
    from gate.report import github

    error = github.error("no judgement possible", message)
    _tell_github(github.refusal(message), [error], {"exit-code": str(exit_code)})


def _tell_github(summary: str, errors: list[str], outputs: dict[str, str]) -> None:
    import secrets

    from gate.report.github import MAX_OUTPUT_BYTES, MAX_SUMMARY_BYTES, output_lines

    for line in errors:
        tell(line, command=True)
    _append("GITHUB_STEP_SUMMARY", summary, MAX_SUMMARY_BYTES)
    _append("GITHUB_OUTPUT", output_lines(outputs, secrets.token_hex(16)), MAX_OUTPUT_BYTES)


def _append(variable: str, text: str, most: int) -> None:
    """Append a text to the file that a variable names, starting on a new line."""
    path, data = os.environ.get(variable), f"\n{text}".encode(errors="backslashreplace")
    if not path:
        return
    try:
        with open(path, "ab") as file:
            if file.tell() + len(data) <= most:
                file.write(data)
            else:
                log(f"{variable}: must stay below {most:,} bytes, got more; nothing was added to it")
    except OSError as error:
        log(f"{variable}: must name a file that can be written, got {error.strerror}; nothing was added to it")


def _file_of_the_repository(path: str) -> str | None:
    """Return the path from the top of the checkout, as annotations need it; None if it is not in the checkout."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    place = Path(path).resolve()
    return str(place.relative_to(root)) if place.is_file() and place.is_relative_to(root) else None
