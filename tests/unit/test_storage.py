"""Files are put where they were named: through no link of a checkout, and so that a power cut loses none."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.starter import init
from gate.storage import place_to_write, refuse_existing, refuse_links, write, write_file


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


# --- the door of every file ---------------------------------------------------------------------------------

FILES = {"verdict.json": b"{}", "report.md": b"#", "detectors/one/verdict.json": b"{}"}
drawn = settings(max_examples=examples(300), deadline=None)


@contextmanager
def workplace() -> Iterator[Path]:
    """A working directory for one drawn case, named as the system names it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as made:
        place = Path(os.path.realpath(made), "work")
        place.mkdir()
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(before)


def everything(place: Path) -> dict[str, object]:
    """Every entry below a directory: the bytes of a file, where a link leads, or what else it is."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        kind: object = path.lstat().st_mode
        found[str(path.relative_to(place))] = (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else kind
        )
    return found


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from(["file", "directory", "nothing", "inside"]),
    st.sampled_from(["relative", "dotted", "absolute", "through a link to here"]),
    st.booleans(),
)
@drawn
def test_a_file_is_written_through_no_link(parts: list[str], at: int, leads_to: str, spelt: str, exists: bool) -> None:
    """Whatever part of the path is the link, wherever it leads, and however the path is written."""
    with workplace() as here:
        outside = here.parent / "outside"
        (outside / "c").mkdir(parents=True)
        (outside / "profile").write_text("kept")
        (here / "mine").mkdir()
        (here.parent / "here").symlink_to(here)
        linked = here.joinpath(*parts[: min(at, len(parts) - 1) + 1])
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(
            {"file": outside / "profile", "directory": outside, "nothing": outside / "no", "inside": here / "mine"}[
                leads_to
            ]
        )
        if exists and leads_to in ("directory", "inside"):
            (linked / "c").mkdir(exist_ok=True)
        spellings: dict[str, str | Path] = {
            "relative": Path(*parts),
            "dotted": f"./{parts[0]}/../{'/'.join(parts)}",
            "absolute": here.joinpath(*parts),
            "through a link to here": here.parent.joinpath("here", *parts),
        }
        before = everything(here.parent)
        with pytest.raises(GateError, match="must lead through no symbolic link, got one at"):
            write_file(spellings[spelt], b"text")
        assert everything(here.parent) == before


NAMED = [
    "itself",
    "its directory",
    "a directory above",
    "a linked directory",
    "a pattern",
    "a plain pattern",
    "its release",
    "a link",
]


@given(
    st.sampled_from(NAMED),
    st.sampled_from(["same", "dotted", "absolute", "hard link", "symbolic link"]),
    st.integers(0, 3),
    st.booleans(),
)
@drawn
def test_no_output_takes_the_place_of_an_input(named: str, spelt: str, others: int, missing: bool) -> None:
    """However the input was named, and by whatever name the output is; beside it anything may be written."""
    with workplace() as here:
        Path("in/deep").mkdir(parents=True)
        read = Path("in/deep/a.csv")
        if named == "its release":
            write("in/deep/v1", FILES, force=False)
            read = Path("in/deep/v1/report.md")
        elif not (missing and named == "itself"):  # another output of the run, not written yet
            read.write_text("precious")
        Path("linked").symlink_to("in")
        Path("link.csv").symlink_to(read)
        for name in ("around", "again"):  # two circles: who follows each does so for ever
            (here / "in" / name).symlink_to(here / "in")
        given_ = {
            "itself": str(read),
            "its directory": "in/deep",
            "a directory above": ".",
            "a linked directory": "linked",
            "a pattern": "./in/**/*.csv",
            "a plain pattern": "in/d*/?.csv",
            "its release": "in/deep/v1",
            "a link": "link.csv",
        }[named]
        path = {"same": read, "dotted": Path("in/../in/./deep", read.relative_to("in/deep")), "absolute": here / read}
        if spelt.endswith("link") and read.exists():
            path[spelt] = Path("other.csv") if named != "a directory above" else here.parent / "other.csv"
            (os.link if spelt == "hard link" else os.symlink)(here / read, path[spelt])
        inputs = [*(f"other-{i}.csv" for i in range(others)), "s3://bucket/in", "-", given_]
        before = everything(here)
        with pytest.raises(GateError) as caught:
            write_file(path.get(spelt, read), b"text", inputs)
        (line,) = str(caught.value).splitlines()
        assert "must be no input of this run" in line or "must lead through no symbolic link" in line
        assert everything(here) == before
        free = Path("in/deep/v1/notes.md") if named == "its release" else here.parent / "b.csv"
        for _ in range(2):
            write_file(free, b"text", inputs)
        assert free.read_bytes() == b"text"


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "device"])
def test_only_a_file_is_replaced(checkout: Path, kind: str) -> None:
    """A pipe would wait for a reader, and a rename would turn /dev/null into a file."""
    path = Path("/dev/null") if kind == "device" else Path("there")
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("there")
    mode = path.lstat().st_mode
    for attempt in (lambda: place_to_write(path), lambda: write_file(path, b"text")):
        with pytest.raises(GateError, match=rf"^{path}: must be a file, got (a directory|a {kind}|something else); "):
            attempt()
    assert path.lstat().st_mode == mode
    assert len(list(checkout.iterdir())) == (kind != "device")


# --- what a release consists of -----------------------------------------------------------------------------

STRANGE = ["file", "file below", "link", "link to a directory", "link for a file", "pipe", "directory for a file"]


@given(st.lists(st.sampled_from(STRANGE), max_size=3, unique=True), st.booleans())
@drawn
def test_a_release_is_replaced_only_where_nothing_else_is_there(strange: list[str], empty: bool) -> None:
    """What is there besides is named; an empty directory holds nothing of anyone."""
    with workplace() as here:
        (here / "victim").write_text("kept")
        release = here / "v1"
        write(release, FILES, force=False)
        if empty:
            (release / "deep" / "er").mkdir(parents=True)
        places = {
            "file": "notes.md",
            "file below": "detectors/one/holdout.csv",
            "link": "profile",
            "link to a directory": "detectors/two",
            "link for a file": "report.md",
            "pipe": "pipe",
            "directory for a file": "detectors/one/verdict.json",
        }
        for kind in strange:
            place = release / places[kind]
            if kind.startswith("file"):
                place.write_text("precious")
            elif kind == "pipe":
                os.mkfifo(place)
            else:
                place.unlink(missing_ok=True)
                place.symlink_to(here / "victim") if kind != "link to a directory" else place.symlink_to(here)
            if kind == "directory for a file":
                place.unlink()
                place.mkdir()
                (place / "notes").write_text("precious")
        before = everything(here)
        for attempt in (lambda: refuse_existing(release, True), lambda: write(release, FILES, force=True)):
            if not strange:
                attempt()
                continue
            with pytest.raises(GateError) as caught:
                attempt()
            assert "must hold nothing but a release for --force to replace it, got " in str(caught.value)
            named = str(caught.value).partition(", got ")[2].partition("; ")[0]
            assert any(named.startswith(places[kind]) for kind in strange)
            assert everything(here) == before
        if not strange:
            assert {name for name in everything(release) if (release / name).is_file()} == {*FILES, "manifest.json"}
            assert not (release / "deep").exists()


@pytest.mark.parametrize("named", ["v1", "v1/report.md", "hard"])
def test_a_release_that_was_read_is_not_replaced(checkout: Path, named: str) -> None:
    """Such as the baseline of the new one."""
    write("v1", FILES, force=False)
    os.link("v1/report.md", "hard")
    before = everything(checkout)
    with pytest.raises(GateError, match="must be no input of this run"):
        refuse_existing("v1", True, ["none", named])
    assert everything(checkout) == before
    refuse_existing("v1", True, ["none", "v2"])
