"""The repository under test: its files, what its README shows, and how its installation is told apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

import gate

PACKAGE = Path(gate.__file__).parent
ROOT = Path(__file__).parents[1]
ACTION_FILE = ROOT / ".github" / "actions" / "release-gate" / "action.yml"
ACTION_README = ACTION_FILE.with_name("README.md")
ACTION = yaml.safe_load(ACTION_FILE.read_text())


def blocks(language: str, start: str, document: Path = ROOT / "README.md") -> list[str]:
    """The blocks of a document in a language that begin like this."""
    found = re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if block.startswith(start)]


def installed(tmp_path: Path, origin: object) -> Path:
    """A directory of packages where gate's installation says that it came from there."""
    place = tmp_path / "packages" / "fpr_gate-1.2.3.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: fpr-gate\nVersion: 1.2.3\n")
    if origin is not None:
        (place / "direct_url.json").write_text(json.dumps(origin))
    return place.parent


COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"vcs": "git", "commit_id": COMMIT, "requested_revision": "v1.2.3"}


def read_tables(text: str) -> list[list[list[str]]]:
    """Every Markdown table: its rows, and the header first."""
    blocks = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    split = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()] for block in blocks]
    return [[rows[0], *rows[2:]] for rows in split]
