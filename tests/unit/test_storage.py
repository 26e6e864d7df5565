"""Files are put where they were named: through no link of a checkout, and so that a power cut loses none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gate.errors import GateError
from gate.starter import init
from gate.storage import refuse_links, write, write_file


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and beside it one that nobody may reach through a link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    return tmp_path / "checkout"


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path.cwd().parent / "elsewhere")


@pytest.mark.parametrize("given", ["a/b/c", "a", "a/../a/b/c", "./a//b/c"])
@pytest.mark.parametrize("absolute", [False, True])
def test_nothing_below_the_working_directory_may_be_a_link(checkout: Path, given: str, absolute: bool) -> None:
    path = str(checkout / given) if absolute else given
    target = refuse_links(path)
    assert target == Path(os.path.abspath(given))
    part = checkout
    for name in target.relative_to(checkout).parts:
        part /= name
        link(part)
        with pytest.raises(GateError) as caught:
            refuse_links(path)
        assert str(caught.value).startswith(f"{path}: must lead through no symbolic link, got one at {part};")
        part.unlink()
        part.mkdir()
    assert refuse_links(path) == target


def test_elsewhere_the_directories_are_the_persons_choice(checkout: Path) -> None:
    """Such as a home directory or a /tmp that is a link; only the last name is not followed."""
    beside = checkout.parent
    (beside / "home").symlink_to(beside / "elsewhere")
    assert refuse_links(beside / "home" / "v1") == beside / "home" / "v1"
    assert refuse_links("../home/v1") == beside / "home" / "v1"
    with pytest.raises(GateError):
        refuse_links("../home")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("path", [part for path in (init.POLICY, init.WORKFLOW) for part in (path, *path.parents[:-1])])
def test_init_writes_through_no_link(checkout: Path, path: Path, force: bool) -> None:
    link(path)
    with pytest.raises(GateError, match="must lead through no symbolic link"):
        init.write({init.POLICY: "policy", init.WORKFLOW: "workflow"}, force)
    assert list((checkout.parent / "elsewhere").iterdir()) == []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was synced and renamed, in order."""
    found: list[tuple[str, str]] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def fsync(descriptor: int) -> None:
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def renamed(move: Any) -> Any:
        def act(self: Path, target: Path) -> Path:
            found.append(("rename", str(target)))
            return move(self, target)

        return act

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed(rename))
    monkeypatch.setattr(Path, "replace", renamed(replace))
    return found


def test_a_release_is_on_disk_before_it_is_renamed_and_its_name_after(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    target = tmp_path / "releases" / "v1"
    write(target, {"verdict.json": b"{}"}, force=False)
    kinds = [kind for kind, _ in calls]
    at = kinds.index("rename")
    assert [Path(path).name for _, path in calls[: at - 1]] == ["verdict.json", "manifest.json"]
    assert Path(calls[at - 1][1]).name.endswith(".partial")
    assert calls[at:] == [("rename", str(target)), ("sync", str(target.parent)), ("sync", str(tmp_path))]


def test_so_are_the_directories_within_it(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    """Each once, after the files that it holds and before the directory that holds it."""
    target = tmp_path / "v1"
    files = {"verdict.json": b"{}", "detectors/one/verdict.json": b"{}", "detectors/two/verdict.json": b"{}"}
    write(target, files, force=False)
    at = [kind for kind, _ in calls].index("rename")
    staging = Path(calls[at - 1][1])
    synced = [Path(path).relative_to(staging).as_posix() for _, path in calls[:at]]
    assert synced == [*files, "manifest.json", "detectors/two", "detectors/one", "detectors", "."]
    assert calls[at:] == [("rename", str(target)), ("sync", str(tmp_path)), ("sync", str(tmp_path.parent))]


def test_so_is_a_file(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    write_file(tmp_path / "page.html", b"text")
    assert calls[1:] == [("rename", str(tmp_path / "page.html")), ("sync", str(tmp_path))]
