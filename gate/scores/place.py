"""The place of samples: how much memory they may take, where their sorted runs lie, and who works on them.

Runs lie in a directory of their own below `--scratch`, which is gone at the end; the next run removes what a killed one
has left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.fs

from gate.errors import GateError
from gate.scores.budget import memory
from gate.scores.wording import reason_of

PREFIX = "gate-scratch-"
SHARE = 0.6  # the share of the memory that the machine or its control group grants


class Place:
    """What one command may use for its samples."""

    def __init__(self, most: int | None = None, scratch: str | None = None, engine: str = "local") -> None:
        self.memory = most or int(SHARE * memory())
        self.parent = scratch or tempfile.gettempdir()
        self.engine = engine

    @cached_property
    def directory(self) -> str:
        """A new directory, made when it is first needed."""
        try:
            filesystem, parent = locate(self.parent)
            local = isinstance(filesystem, pyarrow.fs.LocalFileSystem)
            name = f"{PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
            filesystem.create_dir(parent)
            lock = _make_local(parent, name) if local else None
            if not local:
                _make_remote(filesystem, parent, name)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise GateError(
                f"--scratch: must be a directory that can be written, got {self.parent}: {reason_of(error)}; "
                "name another one"
            ) from None
        self._remover = weakref.finalize(self, _remove, filesystem, f"{parent}/{name}", lock, os.getpid())
        return f"{parent if local else self.parent.rstrip('/')}/{name}"  # workers run elsewhere

    def close(self) -> None:
        """Remove the directory."""
        if "directory" in self.__dict__:
            self._remover()
            del self.__dict__["directory"]


_place: ContextVar[Place | None] = ContextVar("place", default=None)


def here() -> Place:
    """Return the place of the samples that are read now."""
    return _place.get() or Place()


@contextlib.contextmanager
def read_into(place: Place) -> Iterator[None]:
    """Put the samples that are read meanwhile into this place; it is closed at the end."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)
        place.close()


def locate(place: str) -> tuple[Any, str]:
    """Find the file system of a path or a URI, and the path in it."""
    if "://" in place:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(place)
        return filesystem, path.rstrip("/")
    return pyarrow.fs.LocalFileSystem(), os.path.abspath(place)


def _make_local(parent: str, name: str) -> int:
    """Make a directory and lock it until this process ends; remove those that nobody locks: killed runs left them."""
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(above, fcntl.LOCK_EX)
        for left in [entry for entry in os.listdir(parent) if entry.startswith(PREFIX)]:
            with contextlib.suppress(OSError):
                held = os.open(f"{parent}/{left}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(f"{parent}/{left}", ignore_errors=True)
                finally:
                    os.close(held)
        os.mkdir(f"{parent}/{name}", 0o700)
        lock = os.open(f"{parent}/{name}", os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        return lock
    finally:
        os.close(above)


def _make_remote(filesystem: Any, parent: str, name: str) -> None:
    """Make a directory in a store, where nothing can be locked; process numbers show what dead ones here have left."""
    prefix = f"{PREFIX}{socket.gethostname()}-"
    for info in filesystem.get_file_info(pyarrow.fs.FileSelector(parent)):
        number = info.base_name.removeprefix(prefix).partition("-")[0]
        if info.base_name.startswith(prefix) and number.isdigit() and not os.path.exists(f"/proc/{number}"):
            filesystem.delete_dir(info.path)
    filesystem.create_dir(f"{parent}/{name}")


def _remove(filesystem: Any, path: str, lock: int | None, owner: int) -> None:
    if os.getpid() != owner:  # a forked child leaves it alone
        return
    with contextlib.suppress(pa.ArrowException, OSError):
        filesystem.delete_dir(path)
    if lock is not None:
        with contextlib.suppress(OSError):
            os.close(lock)
