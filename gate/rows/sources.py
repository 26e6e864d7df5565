"""The files that one argument names: it reads or refuses each file that may hold rows, and names all others."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import hashlib
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import PurePath
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from gate.errors import GateError
from gate.rows.formats import endings
from gate.rows.table import File, explain
from gate.rows.wording import reason_of
from gate.words import plural

MARKERS = ("_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*", "*.crc", "*.md")
TABLES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
ICEBERG = "*.metadata.json*"  # in its folder `metadata`
END = 1 << 16  # bytes
SPARSE = 1 << 30  # bytes from which a file is looked at for holes


@dataclass(frozen=True)
class Found:
    """The files that one argument names, and the names of those among them that were left out, each with why."""

    files: tuple[File, ...]
    skipped: tuple[tuple[str, str], ...] = ()


def find(argument: str) -> Found:
    """The files that one argument names: a file, a directory, a pattern, a URI, or `-` for numbers on stdin."""
    if argument == "-":
        return Found((File("stdin.csv", argument),))
    if argument.startswith("file://"):
        path = unquote(urlsplit(argument).path)
        found = find(path)
        return replace(found, files=tuple(replace(f, name=f.name.replace(path, argument, 1)) for f in found.files))
    if "://" in argument:
        return _find_remote(argument)
    found = _find_matching(argument) if glob.has_magic(argument) else _find_named(argument)
    for file in found.files:
        _refuse_odd(file)
    for folder in {
        os.path.dirname(path) for f in found.files for path in (os.path.abspath(f.path), os.path.realpath(f.path))
    }:
        _refuse_table(argument, folder)
    return found


def _find_named(name: str) -> Found:
    if not os.path.isdir(name):
        return Found((File(name, name),))
    paths = [os.path.join(folder, each) for folder, names in _walk(name) for each in names]
    return _sort_out(name, [File(path, path) for path in sorted(paths)])


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yield this folder and all below it, through links too, with their files; hidden folders are listed like files."""
    seen: dict[str, str] = {}
    folders = [top]
    while folders:
        folder = folders.pop()
        real = os.path.realpath(folder)
        if real in seen:
            raise GateError(f"{folder}: must be read once, got the same folder again as {seen[real]}; remove the link")
        seen[real] = folder
        entries = _list_folder(folder)
        inner = [name for name, is_folder in entries.items() if is_folder and not name.startswith(".")]
        folders += [os.path.join(folder, name) for name in inner]
        yield folder, [name for name in entries if name not in inner]


def _list_folder(folder: str) -> dict[str, bool]:
    """List the names in a folder, and say which are folders."""
    try:
        with os.scandir(folder or ".") as entries:
            return {entry.name: entry.is_dir() for entry in sorted(entries, key=lambda entry: entry.name)}
    except OSError as error:
        raise GateError(
            f"{folder or '.'}: must be a folder that can be listed, got: {reason_of(error)}; "
            "allow this user to read it or move it elsewhere"
        ) from None


def _find_matching(pattern: str) -> Found:
    """Find the files that a pattern matches, and whole folders; a file whose name is the pattern is taken alone."""
    matched, passed = _expand(pattern)
    if os.path.lexists(pattern):
        others = [name for name in matched if name != pattern]
        if others:
            raise GateError(
                f"{pattern}: must be a file or a pattern, got a file of this name and {plural(len(others), 'other')} "
                f"that it matches as a pattern ({others[0]}); rename the file"
            )
        return _find_named(pattern)
    parts = pattern.split("/")
    base = "/".join(parts[: next(i for i, part in enumerate(parts) if glob.has_magic(part))])
    files: dict[str, File] = {}
    skipped = dict.fromkeys(passed, "not matched by the pattern")
    for name in matched:
        if os.path.isdir(name):
            found = _find_named(name)
        elif _is_marker(name):
            found = Found((), ((name, "a marker"),))
        else:
            found = Found((File(name, name),))
        files |= {file.path: replace(file, keys=_keys(base, file)) for file in found.files}
        skipped |= dict(found.skipped)
    if not files:
        raise GateError(f"{pattern}: must match at least one file, got none; check the pattern")
    left_out = sorted((name, why) for name, why in skipped.items() if name not in files)
    return Found(tuple(files[path] for path in sorted(files)), tuple(left_out))


def _expand(pattern: str) -> tuple[list[str], list[str]]:
    """List what a pattern matches, and what may hold rows but is passed over in the folders that it looks into.

    `glob` would say nothing of a folder that it cannot list.
    """
    found, passed = ["/" if pattern.startswith("/") else ""], []
    parts = [part for part in pattern.split("/") if part]
    for i, part in enumerate(parts):
        folders = [name for name in found if not name or os.path.isdir(name)]
        if part == "**":
            found = [folder for top in folders for folder, _ in _walk(top)] if i < len(parts) - 1 else folders
            continue
        if not glob.has_magic(part):
            found = [path for folder in folders if os.path.lexists(path := os.path.join(folder, part))]
            continue
        found = []
        for folder in dict.fromkeys(folders):
            for name, is_folder in _list_folder(folder).items():
                path = os.path.join(folder, name)
                if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")):
                    found.append(path)
                elif (is_folder and parts[i - 1 : i] != ["**"]) or _suffix(name) in endings():
                    passed.append(path)
    return found, passed


def _refuse_table(argument: str, folder: str) -> None:
    """Refuse a folder that is, or lies in, a table of a format whose files still hold deleted rows."""
    for place in (folder, *map(str, PurePath(folder).parents)):
        for mark, kind in TABLES.items():
            if os.path.isdir(os.path.join(place, mark)):
                raise _table_error(argument, kind)
        if glob.glob(os.path.join(glob.escape(place), "metadata", ICEBERG)):
            raise _table_error(argument, "Iceberg")


def _table_error(argument: str, kind: str) -> GateError:
    return GateError(
        f"{argument}: must hold the rows that count and no others, got the files of a table in {kind} format, which "
        "keeps deleted rows; read the table with its own reader, write it as Parquet and name that"
    )


def _sort_out(name: str, files: list[File]) -> Found:
    """Divide a directory into score files, with the keys in their paths (`label=0`), and files that are no data."""
    found, skipped = [], {}
    for file in files:
        below = _below(name, file)
        for mark in TABLES.keys() & {*below}:
            raise _table_error(name, TABLES[mark])
        if below[-2:-1] == ["metadata"] and fnmatch.fnmatchcase(below[-1], ICEBERG):
            raise _table_error(name, "Iceberg")
    for file in files:
        below = _below(name, file)
        hidden = next((i for i, part in enumerate(below) if part.startswith(".")), None)
        private = next((part for part in below if part.startswith("_") and "=" not in part), None)
        if hidden is not None:
            skipped["/".join(below[: hidden + 1])] = "hidden"
        elif _is_marker(file.name):
            skipped["/".join(below)] = "a marker"
        elif file.suffix not in endings() and _is_empty(file):
            skipped["/".join(below)] = "empty"
        elif private is not None:
            raise GateError(
                f"{file}: must be left out or read, got {private!r}, which other tools leave out because of its `_`; "
                "rename it or move it elsewhere"
            )
        elif file.suffix not in endings():
            must = f"must end in one of {', '.join(endings())} (or these with .gz), got {file.suffix or 'no suffix'}"
            raise GateError(f"{file}: {must}; convert it, or move it elsewhere if it holds no scores")
        elif not file.is_remote and not os.path.exists(file.path):
            raise GateError(f"{file}: must be a file, got a broken link; restore or remove it")
        else:
            found.append(replace(file, keys=_keys(name, file)))
    if not found:
        raise GateError(f"{name}: must hold score files ({', '.join(endings())}), got none; name another directory")
    return Found(tuple(found), tuple(sorted(skipped.items())))


def _refuse_odd(file: File) -> None:
    """Refuse a pipe or a device, whose bytes may never end, and a file of holes, which reads as zeros for hours."""
    if not os.path.exists(file.path):
        return
    status = os.stat(file.path)
    if not stat.S_ISREG(status.st_mode):
        raise GateError(
            f"{file}: must be a file, got a pipe or a device; write its rows to a file, or give numbers on stdin as `-`"
        )
    if status.st_size > SPARSE + 64 * 512 * status.st_blocks:
        with explain(file), open(file.path, "rb") as opened:
            if os.lseek(opened.fileno(), 0, os.SEEK_HOLE) < status.st_size:
                what = f"must hold the {status.st_size:,} bytes that it claims, got a file that is nearly all holes"
                raise GateError(f"{file}: {what}; write it again")


def _suffix(name: str) -> str:
    return File(name, name).suffix


def _is_marker(name: str) -> bool:
    return _suffix(name) not in endings() and any(fnmatch.fnmatchcase(PurePath(name).name, each) for each in MARKERS)


def _is_empty(file: File) -> bool:
    return (file.is_remote or os.path.isfile(file.path)) and file.size == 0


def _below(folder: str, file: File) -> list[str]:
    return file.name.removeprefix(folder).strip("/").split("/")


def _keys(folder: str, file: File) -> dict[str, str]:
    keys: dict[str, str] = {}
    for part in _below(folder, file)[:-1]:
        key, equals, value = part.partition("=")
        if equals and keys.setdefault(key, unquote(value)) != unquote(value):
            raise GateError(
                f"{file}: must have one {key!r} in its path, got {keys[key]!r} and {unquote(value)!r}; rename a folder"
            )
    return keys


def find_each(paths: Iterable[str]) -> list[tuple[str, Found]]:
    """Find the files of every argument, each of them once."""
    named = [(path, find(path)) for path in paths]
    seen: dict[Hashable, str] = {}
    for _, found in named:
        for file in found.files:
            _refuse_repeated(file, seen)
    return named


def refuse_copies(files: Iterable[File]) -> None:
    copy = find_copy(files)
    if copy is not None:
        raise GateError(f"{copy[1]}: must be read once, got the same bytes as in {copy[0]}; name one of the two")


def _refuse_repeated(file: File, seen: dict[Hashable, str]) -> None:
    """Refuse a file that is named twice: its rows would count twice, and every interval would be too narrow."""
    place: Hashable = file.path
    if not file.is_remote and file.path != "-":
        try:
            status = os.stat(file.path)
        except OSError:
            return  # reading the file gives a better message
        place = (status.st_dev, status.st_ino)  # the same for a file and for every hard or symbolic link to it
    if place in seen:
        raise GateError(f"{file}: must be read once, got the same file again as {seen[place]}; name it once")
    seen[place] = str(file)


def find_copy(files: Iterable[File]) -> tuple[File, File] | None:
    """Find the first two files with the same bytes; only files with the same size and ends are read whole."""
    groups = [[file for file in files if file.path not in ("", "-")]]  # not objects in memory or stdin
    for feature in (lambda file: file.size, _ends, digest):
        groups = [alike for group in groups for alike in _alike(group, feature)]
    return (groups[0][0], groups[0][1]) if groups else None


def _alike(files: list[File], feature: Callable[[File], Hashable]) -> list[list[File]]:
    groups: dict[Hashable, list[File]] = {}
    for file in files:
        with explain(file):
            groups.setdefault(feature(file), []).append(file)
    return [group for group in groups.values() if len(group) > 1]


def _ends(file: File) -> tuple[bytes, bytes]:
    with file.open() as opened:
        first = opened.read(END)
        opened.seek(max(0, file.size - END))
        return first, opened.read(END)


def digest(file: File) -> str:
    """The SHA-256 of the bytes of a file, as `sha256sum` prints it."""
    whole = hashlib.sha256()
    with explain(file), file.open() as opened:
        while piece := opened.read(1 << 20):
            whole.update(piece)
    return whole.hexdigest()


# --- stores -------------------------------------------------------------------------------------------------

STORES = {"s3": "s3fs", "gs": "gcsfs"}
PATIENCE = 60.0  # seconds for all answers of a store to one question
Answered = TypeVar("Answered")


def _find_remote(uri: str) -> Found:
    """The files of a store that a URI names: a file, a folder or a pattern."""
    scheme, _, rest = uri.partition("://")
    if scheme not in STORES:
        known = ", ".join(f"{each}://" for each in ("file", *STORES))
        raise GateError(f"{uri}: must be a file or directory that can be read, got the scheme {scheme}://; use {known}")
    filesystem = _within(uri, lambda: _filesystem(scheme, uri))
    has_magic = glob.has_magic(rest)
    base = re.split(r"[*?[]", rest)[0].rpartition("/")[0] if has_magic else rest.rstrip("/")
    entries = _within(uri, lambda: filesystem.find(base, detail=True))
    _within(uri, lambda: _refuse_remote_table(uri, filesystem, base))
    files = [
        File(f"{scheme}://{path}", f"{scheme}://{path}", filesystem=filesystem, listed=entry["size"])
        for path, entry in sorted(entries.items())
        if entry["type"] == "file" and not path.endswith("/")
    ]
    alone = [file for file in files if file.path == uri]
    if alone:
        return Found(tuple(alone))
    if not has_magic:
        if not files:
            raise GateError(f"{uri}: must exist, got no such file; check the name")
        return _sort_out(uri, files)
    found = [file for file in files if _matches(file.path.split("/"), uri.split("/"))]
    if not found:
        raise GateError(f"{uri}: must match at least one file, got none; check the pattern")
    passed = [(f.name, "not matched by the pattern") for f in files if f not in found and f.suffix in endings()]
    sorted_out = _sort_out(f"{scheme}://{base}", found)
    return Found(sorted_out.files, tuple(sorted((*sorted_out.skipped, *passed))))


def _matches(path: list[str], pattern: list[str]) -> bool:
    """Whether a pattern names a file, or a folder that it is in."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(path[i:], pattern[1:]) for i in range(len(path) + 1))
    hidden = path and path[0].startswith(".") and not pattern[0].startswith(".")
    return bool(path) and not hidden and fnmatch.fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _filesystem(scheme: str, uri: str) -> Any:
    try:
        package: Any = import_module(STORES[scheme])
    except ImportError:
        got = f"no package {STORES[scheme]}"
        raise GateError(f"{uri}: must be read with {STORES[scheme]}, got {got}; install fpr-gate[cloud]") from None
    if scheme == "s3":
        return package.S3FileSystem(
            config_kwargs={"connect_timeout": 10, "read_timeout": 30, "retries": {"max_attempts": 2}}
        )
    return package.GCSFileSystem()


def _within(uri: str, ask: Callable[[], Answered]) -> Answered:
    """What a store answers, if it does so in time: without a network some libraries try for ever."""
    answers: list[Answered] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if errors and isinstance(errors[0], GateError):
        raise errors[0]
    if not answers:
        got = reason_of(errors[0]) if errors else f"no answer in {PATIENCE:g} seconds"
        raise GateError(
            f"{uri}: must be a file or directory that can be read, got: {got}; check the name and the network"
        )
    return answers[0]


def _refuse_remote_table(uri: str, filesystem: Any, path: str) -> None:
    """Refuse a table in a store whose files still hold deleted rows, as far up as this user may look."""
    with contextlib.suppress(OSError):
        for place in (path, *(str(each) for each in PurePath(path).parents if each.name)):
            for mark, kind in TABLES.items():
                if filesystem.isdir(f"{place}/{mark}"):
                    raise _table_error(uri, kind)
            if filesystem.isdir(f"{place}/metadata") and any(
                fnmatch.fnmatchcase(PurePath(each).name, ICEBERG)
                for each in filesystem.ls(f"{place}/metadata", detail=False)
            ):
                raise _table_error(uri, "Iceberg")
