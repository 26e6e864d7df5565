"""What the documents of the repository name exists: files, headings, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from repository import ROOT

from gate.starter.init import POLICY, WORKFLOW

PRINTED = {"golden", "templates"}  # gate prints these, and their readers follow the links elsewhere
DOCUMENTS = [
    path
    for path in sorted(
        chain(ROOT.glob("*.md"), *(ROOT.glob(f"{top}/**/*.md") for top in (".github", "gate", "policies", "tests")))
    )
    if not PRINTED.intersection(path.parts)
]
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:href|src|srcset)=\"([^\"\s]+)\"")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:gate|tests|policies|\.github|\.ci)/[\w./-]*)`")


def prose(path: Path) -> str:
    return CODE.sub("", path.read_text())


@cache
def anchors(path: Path) -> frozenset[str]:
    """Its headings as GitHub names them: small letters, hyphens for spaces, and no other marks."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


def broken(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The links that lead to no file of the repository, or to no heading of it."""
    for link in (one or other for one, other in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(path)))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_relative_to(root) or not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_or_to_a_heading(path: Path) -> None:
    assert [*broken(path)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_is_named_exists(path: Path) -> None:
    """Here, or in a repository where `gate init` has been."""
    named = {*NAMED.findall(prose(path))} - {str(POLICY)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    assert len(DOCUMENTS) >= 10
    assert {str(POLICY), str(WORKFLOW)} <= {*NAMED.findall(prose(ROOT / "README.md"))}
    good = ["x.md", "#a-heading-one", "x.md#a-heading-one", "https://example.org/gone"]
    bad = ["gone.md", "x.md#gone", "#gone", "../x.md", "/etc/passwd"]
    path = tmp_path / "x.md"
    path.write_text("# A heading: `one`\n" + "".join(f"[x]({link})\n" for link in (*good, *bad)))
    assert [*broken(path, tmp_path)] == bad
    path.write_text('```md\n[x](gone.md)\n```\n`[x](gone.md)` <img src="gone.png" srcset="x.md">\n')
    assert [*broken(path, tmp_path)] == ["gone.png"]


def test_no_sentence_stands_in_two_documents() -> None:
    """What is said in one place is linked from the others; tables are compared elsewhere."""
    found: dict[str, set[Path]] = {}
    for path in DOCUMENTS:
        text = " ".join(line for line in prose(path).splitlines() if not line.startswith("|"))
        for sentence in re.split(r"(?<=[.:;]) ", " ".join(text.split())):
            found.setdefault(sentence, set()).add(path)
    assert len(found) > 300
    assert {sentence for sentence, paths in found.items() if len(sentence) >= 50 and len(paths) > 1} == set()
