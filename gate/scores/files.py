"""The files: where the rows are that one argument names; their content is not looked at."""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from gate.errors import GateError
from gate.scores.formats import READERS, File
from gate.scores.wording import reason_of


def find(argument: str) -> list[File]:
    """The files that one argument names: a file, a directory, a pattern, a URI, or `-` for numbers on stdin."""
    if argument == "-":
        return [File("stdin.csv", argument)]
    if "://" in argument:
        return _find_remote(argument)
    if not os.path.exists(argument) and any(char in argument for char in "*?["):
        found = sorted(name for name in glob.glob(argument, recursive=True) if os.path.isfile(name))
        if not found:
            raise GateError(f"{argument}: must match at least one file, got none; check the pattern")
        return [File(name, name) for name in found]
    if not os.path.isdir(argument):
        return [File(argument, argument)]
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(argument) for name in names)
    return _of_directory(argument, [File(path, path) for path in sorted(inside)])


def _find_remote(uri: str) -> list[File]:
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
        if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
            return [replace(file, name=file.name.replace(path, uri, 1)) for file in find(path)]
        kind = filesystem.get_file_info(path).type
        if kind == pyarrow.fs.FileType.File:
            return [File(uri, path, remote=filesystem)]
        if kind == pyarrow.fs.FileType.NotFound:
            raise GateError(f"{uri}: must exist, got no such file; check the name")
        listing = filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise GateError(f"{uri}: must be a file or directory that can be read, got: {reason_of(error)}") from None
    paths = sorted(info.path for info in listing if info.type == pyarrow.fs.FileType.File)
    return _of_directory(uri, [File(uri.rstrip("/") + p.removeprefix(path), p, remote=filesystem) for p in paths])


def _of_directory(name: str, files: list[File]) -> list[File]:
    """The score files of a directory, without hidden ones, and with the keys that their paths carry (`label=0`)."""
    found = []
    for file in files:
        below = file.name.removeprefix(name).strip("/").split("/")
        if file.suffix in READERS and not any(part.startswith((".", "_")) for part in below):
            keys = dict(part.split("=", 1) for part in below[:-1] if "=" in part)
            found.append(replace(file, keys={key: unquote(value) for key, value in keys.items()}))
    if not found:
        raise GateError(f"{name}: must hold score files ({', '.join(READERS)}), got none; name another directory")
    return found


def refuse_repeated(file: File, seen: dict[str, str]) -> None:
    """Rows read twice would count twice, and make every interval too narrow."""
    place = file.path if file.remote is not None or file.path == "-" else os.path.realpath(file.path)
    if place in seen:
        raise GateError(f"{file}: must be read once, got the same file again as {seen[place]}; name it once")
    seen[place] = str(file)
