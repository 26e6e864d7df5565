"""A release directory, or one file, is written whole or not at all, and nothing else is touched."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gate import storage
from gate.errors import GateError
from gate.storage import refuse_existing, write, write_file

FILES = {"verdict.json": b"{}\n", "report.html": b"<p>\n", "calibrator.joblib": bytes(range(256))}
NEWER = {name: content + b"newer" for name, content in FILES.items()}


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, with hidden ones, so that no leftover goes unseen."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def refused() -> Iterator[Callable[[], str]]:
    """The block must raise a GateError of one line; the value gives the line."""
    lines: list[str] = []
    with pytest.raises(GateError) as caught:
        yield lambda: lines[0]
    lines.extend(str(caught.value).splitlines())
    assert len(lines) == 1
    assert lines[0]


# --- the directory ------------------------------------------------------------------------------------------


def test_a_release_holds_its_files_and_a_manifest_of_their_digests(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "v1", FILES, force=False)
    found = snapshot(tmp_path / "deep" / "v1")
    manifest = json.loads(found.pop("manifest.json"))
    assert found == FILES
    assert manifest["sha256"] == {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    assert list(manifest["sha256"]) == sorted(FILES)
    assert entries(tmp_path / "deep") == ["v1"]


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    write(tmp_path / "v1", FILES, force=False)
    assert snapshot(tmp_path / "v1").keys() == FILES.keys() | {"manifest.json"}
    assert entries(tmp_path) == ["v1"]


def test_an_existing_release_is_refused_without_force(tmp_path: Path) -> None:
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=False)
    assert "must not exist yet" in line()
    assert "--force" in line()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("at_once", [True, False])
def test_force_replaces_a_release_and_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """It takes one step, or two if the file system cannot exchange two directories."""
    if not at_once:
        monkeypatch.setattr(storage, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", {**FILES, "old-report.md": b"old"}, force=False)
    write(tmp_path / "v1", NEWER, force=True)
    found = snapshot(tmp_path / "v1")
    assert found.keys() == NEWER.keys() | {"manifest.json"}
    assert found["verdict.json"] == NEWER["verdict.json"]
    assert entries(tmp_path) == ["v1"]


OTHER_MANIFESTS = [b"", b"{}", b"[]", b"null", b'{"sha256": {}}', b'{"name": "app"}', b"\xff", b"[" * 10**5]


@pytest.mark.parametrize("manifest", [None, *OTHER_MANIFESTS], ids=lambda content: repr(content)[:20])
def test_force_never_deletes_what_is_no_release(tmp_path: Path, manifest: bytes | None) -> None:
    """A web application has a manifest.json too."""
    target = tmp_path / "site"
    target.mkdir()
    (target / "index.html").write_text("precious")
    if manifest is not None:
        (target / "manifest.json").write_bytes(manifest)
    before = snapshot(tmp_path)
    with refused() as line:
        write(target, FILES, force=True)
    assert "manifest.json" in line()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_a_link_or_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path, force: bool) -> None:
    write(tmp_path / "real", FILES, force=False)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("precious")
    before = snapshot(tmp_path)
    for name in ("link", "dangling", "file"):
        with refused() as line:
            write(tmp_path / name, FILES, force=force)
        assert "must be a new directory" in line()
    assert snapshot(tmp_path) == before
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["file/v1", "file/deep/v1", "x" * 300, "\u00fc" * 200])
def test_an_impossible_place_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    with refused() as line:
        refuse_existing(tmp_path / name, force=False)
    assert "must be" in line() or "must not exist yet" in line()
    assert entries(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("force", "said"),
    [(False, "/: must not exist yet; "), (True, "/: must be a release for --force to replace it, got ")],
)
def test_the_root_is_no_place_for_a_release_and_none_to_replace(force: bool, said: str) -> None:
    with refused() as line:
        refuse_existing(Path("/"), force=force)
    assert line().startswith(said)


def test_a_long_but_possible_name_is_written(tmp_path: Path) -> None:
    """The directory's own name may use up what the file system allows."""
    write(tmp_path / ("x" * 255), FILES, force=False)
    write_file(tmp_path / ("y" * 255), b"text")
    assert entries(tmp_path) == ["x" * 255, "y" * 255]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "v1", FILES, force=False)
        write_file(tmp_path / "report.md", b"text")
    finally:
        assert os.umask(before) == umask
    assert stat.S_IMODE((tmp_path / "v1").stat().st_mode) == 0o777 & ~umask
    for path in [*(tmp_path / "v1").iterdir(), tmp_path / "report.md"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


# --- what happens when the disk does not play along ---------------------------------------------------------


def fail_on_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int, error: BaseException) -> None:
    """Let the nth call of a function raise; earlier and later calls do their work."""
    real, calls = getattr(owner, name), iter(range(1, 10**6))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, force: bool
) -> None:
    """At the first, a middle or the last file: no directory, no leftover, and an old release untouched."""
    if force:
        write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    fail_on_call(monkeypatch, os, "fsync", nth, disk_full())
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=force)
    assert line() == f"{tmp_path / 'v1'}: must be writable, got No space left on device; nothing was written"
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == (["v1"] if force else [])


def test_a_failing_rename_of_a_new_release_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on_call(monkeypatch, Path, "rename", 1, disk_full())
    with refused():
        write(tmp_path / "v1", FILES, force=False)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("error", [disk_full(), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_failing_replacement_puts_the_old_release_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, error: BaseException
) -> None:
    """Whether setting the old one aside fails or putting the new one in its place, and also on Ctrl-C between."""
    monkeypatch.setattr(storage, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    fail_on_call(monkeypatch, Path, "rename", nth, error)
    with pytest.raises((GateError, KeyboardInterrupt)):
        write(tmp_path / "v1", NEWER, force=True)
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == ["v1"]


def test_an_old_release_that_cannot_be_put_back_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path / "v1")
    real, calls = Path.rename, iter(range(1, 10**6))

    def rename(self: Path, target: Path) -> Path:
        if next(calls) > 1:
            raise disk_full()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=True)
    backup = Path(line().rpartition(" is in ")[2])
    assert snapshot(backup) == before


def test_nothing_half_written_is_ever_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While files are written the target does not exist; afterwards it is complete."""
    real, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        seen.append((tmp_path / "v1").exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "v1", FILES, force=False)
    assert seen == [False] * (len(FILES) + 2) + [True] * 2  # every file and their directory; then the two above


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_of_two_runs_at_once_the_first_to_write_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool, at_once: bool
) -> None:
    """Both began when the same release, or none, was there; the second says so and writes nothing."""
    if not at_once:
        monkeypatch.setattr(storage, "_exchanged", lambda one, other: False)
    if force:
        write(tmp_path / "v1", {**FILES, "report.html": b"old"}, force=False)
    one, other = (refuse_existing(tmp_path / "v1", force) for _ in range(2))
    write(tmp_path / "v1", FILES, force, one)
    before = snapshot(tmp_path)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force, other)
    assert line().endswith("another run has written meanwhile; that one stays, nothing else was written")
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == ["v1"]


# --- single files -------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    write_file(path, b"first")
    with monkeypatch.context() as patch:
        fail_on_call(patch, os, "fsync", 1, disk_full())
        with refused() as line:
            write_file(path, b"second")
    assert "report.md: must be writable, got No space left on device" in line()
    assert snapshot(tmp_path) == {"report.md": b"first"}
    write_file(path, b"third")
    assert snapshot(tmp_path) == {"report.md": b"third"}


@pytest.mark.parametrize("name", [".", "missing/report.md", "directory", "file/report.md"])
def test_an_impossible_file_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("directory").mkdir()
    Path("file").write_text("precious")
    with refused() as line:
        write_file(Path(name), b"text")
    assert "must be writable" in line() or "must be a file, got a directory" in line()
    assert entries(tmp_path) == ["directory", "file"]
