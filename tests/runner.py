"""What GitHub's runner does with the steps of an action: conditions, scripts, commands in the log, outputs.

Commands and outputs are read as the runner reads them (src/Runner.Common/ActionCommand.cs and
src/Runner.Worker/FileCommandManager.cs in actions/runner).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINES = {"%0D": "\r", "%0A": "\n"}
_UNESCAPED = {"::": _LINES, "##[": {"%3B": ";", **_LINES, "%5D": "]"}}
_UNESCAPED_PROPERTY = {"::": {**_LINES, "%3A": ":", "%2C": ","}, "##[": _UNESCAPED["##["]}


@dataclass(frozen=True)
class Command:
    name: str
    properties: dict[str, str]
    message: str


def commands(log: str) -> list[Command]:
    """Every command in a log: a line that starts with `::`, spaces aside, or that holds `##[` anywhere."""
    found = [_command(line) for line in re.split(r"\r\n|\r|\n", log)]
    return [command for command in found if command is not None]


def _command(line: str) -> Command | None:
    form = "::" if line.lstrip().startswith("::") else "##["
    end, comma = {"::": ("::", ","), "##[": ("]", ";")}[form]
    _, start, rest = line.partition(form)
    head, stop, message = rest.partition(end)
    if not (start and stop):
        return None
    name, _, listed = head.partition(" ")
    pairs = [pair.partition("=") for pair in listed.strip().split(comma) if "=" in pair]
    properties = {key: _unescape(value, _UNESCAPED_PROPERTY[form]) for key, _, value in pairs}
    return Command(name, properties, _unescape(message, _UNESCAPED[form]))


def _unescape(text: str, table: dict[str, str]) -> str:
    for escaped, plain in {**table, "%25": "%"}.items():
        text = text.replace(escaped, plain)
    return text


def outputs(text: str) -> dict[str, str]:
    """The step outputs that a $GITHUB_OUTPUT file holds: `name=value`, or lines between two delimiters."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if not line:
            continue
        equals, heredoc = line.find("="), line.find("<<")
        if equals >= 0 and (heredoc < 0 or equals < heredoc):
            name, _, value = line.partition("=")
        elif heredoc >= 0:
            name, _, delimiter = line.partition("<<")
            assert name, "an output must have a name"
            assert delimiter, "a delimiter must not be empty"
            value = "\n".join(iter(lambda: next(lines), delimiter))
        else:
            raise ValueError(f"invalid format {line!r}")
        found[name] = value
    return found


# --- steps --------------------------------------------------------------------------------------------------


def evaluate(text: str, values: dict[str, str], failed: bool = False) -> object:
    """The value of an expression, in the part of the language that the files of this repository use."""
    functions = {"cancelled()": False, "always()": True, "success()": not failed, "failure()": failed}
    words = {"&&": "and", "||": "or", "!": "not", "true": "True", "false": "False"}
    tokens = re.findall(r"'(?:[^']|'')*'|[\w.-]+(?:\(\))?|&&|\|\||==|!=|[!()]", text)
    python = []
    for token in tokens:
        if token.startswith("'"):
            python.append(repr(token[1:-1].replace("''", "'")))
        elif token in functions:
            python.append(str(functions[token]))
        elif token in words or not re.match(r"\w", token):
            python.append(words.get(token, token))
        else:
            assert token.split(".")[0] in ("inputs", "steps", "needs", "github", "job", "runner"), token
            python.append(repr(values.get(token, "")))
    return eval(" ".join(python), {"__builtins__": {}})


def fill(text: str, values: dict[str, str]) -> str:
    """A value of the file with every `${{ }}` in it replaced."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(evaluate(match[1], values)), text, flags=re.DOTALL)


def wanted(condition: str | None, values: dict[str, str], failed: bool) -> bool:
    """Whether a step or job runs: without a status function in its condition, only while all went well."""
    inside = re.fullmatch(r"\$\{\{(.*)\}\}", (condition or "success()").strip(), re.DOTALL)
    expression = inside[1] if inside else (condition or "success()")
    if not re.search(r"\b(cancelled|always|success|failure)\(\)", expression):
        expression = f"success() && ({expression})"
    return bool(evaluate(expression, values, failed))


@dataclass(frozen=True)
class Step:
    """What became of one `run` step."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


def run(step: dict[str, Any], values: dict[str, str], workspace: Path, env: dict[str, str]) -> Step:
    """Run a step's script as the runner does: in a file of its own, by bash -eo pipefail, in the workspace."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        files = {"GITHUB_OUTPUT": place / "output", "GITHUB_STEP_SUMMARY": place / "summary"}
        for path in files.values():
            path.touch()
        script = place / "script.sh"
        script.write_text(fill(step["run"], values), encoding="utf-8")
        given = {key: fill(str(value), values) for key, value in step.get("env", {}).items()}
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=workspace,
            env={**env, **given, "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace)}
            | {key: str(path) for key, path in files.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=300,
        )
        texts = {key: path.read_text(encoding="utf-8") for key, path in files.items()}
    return Step(result.returncode, result.stdout, outputs(texts["GITHUB_OUTPUT"]), texts["GITHUB_STEP_SUMMARY"])


@dataclass
class Job:
    """What became of an action's steps, in order."""

    failed: bool
    codes: dict[str, int]
    log: str
    summary: str
    outputs: dict[str, str]
    uploads: dict[str, dict[str, bytes]]


def run_action(
    action: dict[str, Any], given: dict[str, str], workspace: Path, env: dict[str, str], done: dict[str, dict[str, str]]
) -> Job:
    """A composite action with these inputs; `done` are the outputs of steps that are not run but taken as they are."""
    values = {f"inputs.{name}": given.get(name, about.get("default", "")) for name, about in action["inputs"].items()}
    job = Job(failed=False, codes={}, log="", summary="", outputs={}, uploads={})
    for step in action["runs"]["steps"]:
        key = step.get("id", step["name"])
        if not wanted(step.get("if"), values, job.failed):
            continue
        if key in done:
            found = done[key]
        elif "run" in step:
            assert step["shell"] == "bash"
            result = run(step, values, workspace, env)
            job.codes[key] = result.code
            job.failed |= result.code != 0
            job.log += result.log
            job.summary += result.summary
            found = result.outputs
        else:
            assert step["uses"].startswith("actions/upload-artifact@"), step["uses"]
            name, place = (fill(step["with"][item], values) for item in ("name", "path"))
            job.uploads[name] = {path.name: path.read_bytes() for path in Path(place).iterdir()}
            found = {}
        values |= {f"steps.{key}.outputs.{name}": value for name, value in found.items()}
    job.outputs = {name: fill(about["value"], values) for name, about in action["outputs"].items()}
    return job
