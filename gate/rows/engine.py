"""The engine: it answers what is asked of rows, one SELECT at a time. DuckDB does it inside this process.

No code of DuckDB's comes from the network, no file is read that no question names, and nothing of the user's is
written: temporary tables and what does not fit into memory lie in a folder of scratch that is gone at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gate.errors import GateError
from gate.progress import reach

if TYPE_CHECKING:
    import duckdb

Result = TypeVar("Result")
Reply = dict[str, Any]  # a NumPy array for each column, masked where it has nulls

SHARE = 0.6  # of the memory that the machine or its control group grants
LEAST = 128 << 20  # bytes; with fewer DuckDB answers nothing
PREFIX = "gate-scratch-"
POLL = 0.2  # seconds between two looks at the progress of a question


class Engine(Protocol):
    """What answers: DuckDB here, or a database or cluster that the user has.

    double, word   how it calls a float64, and a text of any length
    memory         the bytes that rows may take in this process
    """

    double: str
    word: str
    memory: int

    def ask(self, sql: str) -> Reply: ...

    def interrupt(self) -> None:
        """End the question that is being answered."""

    def one_form(self, sql: str) -> str:
        """A text in one Unicode form (NFC), where the engine can do that."""

    def microseconds(self, sql: str) -> str:
        """A time as microseconds since 1970 in UTC."""


def text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """The name of a column or table as SQL writes it."""
    return '"' + value.replace('"', '""') + '"'


def number(engine: Engine, value: float) -> str:
    """A float as SQL writes it, to its last bit."""
    return f"CAST('{float(value)!r}' AS {engine.double})"


class Duck:
    """DuckDB in this process. Questions run in a thread of their own, so that a signal can end them at once."""

    double, word = "DOUBLE", "VARCHAR"

    def __init__(self, memory: int | None = None, scratch: str | None = None) -> None:
        self.memory = memory or int(SHARE * installed_memory())
        self.scratch = scratch or tempfile.gettempdir()
        self._asked_for_scratch = scratch is not None
        self._thread = ThreadPoolExecutor(1)
        self._names = 0
        self._owner = os.getpid()
        self._kept: list[object] = []

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        settings: dict[str, Any] = {
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # Statistics of Parquet files leave NaN out, and the optimizer believes them (duckdb/duckdb#25521).
            "disabled_optimizers": "statistics_propagation,filter_pushdown",
            "memory_limit": f"{max(self.memory // 2, LEAST)}B",
            "python_enable_replacements": False,
            "temp_directory": self._folder or "",
            "threads": cores(),
        }
        connection = duckdb.connect(config=settings)
        for setting in ("TimeZone='UTC'", "enable_progress_bar=true", "enable_progress_bar_print=false"):
            connection.execute(f"SET {setting}")
        connection.execute("SET lock_configuration=true")
        return connection

    def one_form(self, sql: str) -> str:
        return f"nfc_normalize({sql})"

    def microseconds(self, sql: str) -> str:
        return f"epoch_us(CAST({sql} AS TIMESTAMPTZ))"

    # --- questions ------------------------------------------------------------------------------------------

    def ask(self, sql: str) -> Reply:
        """The answer to one SELECT."""
        return self._run(lambda: self.connection.execute(sql).fetchnumpy())

    def do(self, sql: str) -> None:
        """Carry out one statement that answers nothing."""
        self._run(lambda: self.connection.execute(sql) and None)

    def register(self, table: str, thing: Any) -> None:
        """Let questions name an object of this process as a table."""
        self._kept.append(thing)
        self._run(lambda: self.connection.register(table, thing) and None)

    def parquet(self, columns: Mapping[str, Any]) -> bytes:
        """The bytes of a Parquet file with these columns."""
        import numpy as np

        table, path = self.name("written"), f"{self.folder}/{self.name('written')}.parquet"
        self.register(table, {key: np.asarray(column) for key, column in columns.items()})
        self.do(f"COPY (SELECT * FROM {table}) TO {text(path)} (FORMAT parquet)")
        with open(path, "rb") as file:
            return file.read()

    def use_filesystem(self, filesystem: Any) -> None:
        """Let questions read what an fsspec file system reads."""
        self._run(lambda: self.connection.register_filesystem(filesystem))

    def name(self, prefix: str) -> str:
        """A name that no table has yet."""
        self._names += 1
        return f"{prefix}_{self._names}"

    def _run(self, work: Callable[[], Result]) -> Result:
        if os.getpid() != self._owner:
            raise GateError("rows: must be asked in the process that reads them, got a forked one; read them there")
        future: Future[Result] = self._thread.submit(work)
        try:
            while wait([future], POLL).not_done:
                if "connection" in self.__dict__:
                    reach(self.connection.query_progress() / 100)
        except BaseException:  # a signal: the question is ended, and nobody waits for its answer
            self.interrupt()
            raise
        return future.result()

    def interrupt(self) -> None:
        """End the question that is being answered."""
        if "connection" in self.__dict__:
            self.connection.interrupt()

    # --- scratch --------------------------------------------------------------------------------------------

    @cached_property
    def _folder(self) -> str | None:
        """A folder of this run's own; None where none can be made, since most runs need none."""
        try:
            if self._asked_for_scratch:
                Path(self.scratch).mkdir(parents=True, exist_ok=True)
            folder, lock = _make_folder(self.scratch)
        except OSError as error:
            if self._asked_for_scratch:
                raise GateError(
                    f"--scratch: must be a directory that can be written, got {self.scratch}: {error.strerror}; "
                    "name another one"
                ) from None
            return None
        self._remover = weakref.finalize(self, _remove, folder, lock, os.getpid())
        return folder

    @property
    def folder(self) -> str:
        """Where this run may put files of its own."""
        if self._folder is None:
            raise GateError(
                f"--scratch: must be given where {self.scratch} cannot be written, got none; "
                "name a directory for temporary files"
            )
        return self._folder

    def close(self) -> None:
        """End what is being answered, and remove what lies in scratch."""
        self.interrupt()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if "connection" in self.__dict__:
            self.connection.close()
        if self.__dict__.get("_folder") is not None:
            self._remover()


def cores() -> int:
    """How many threads work side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _make_folder(parent: str) -> tuple[str, int]:
    """Make a folder and lock it until this process ends; folders that nobody locks were left by killed runs."""
    for left in [entry for entry in os.listdir(parent) if entry.startswith(PREFIX)]:
        with contextlib.suppress(OSError):
            held = os.open(f"{parent}/{left}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(f"{parent}/{left}", ignore_errors=True)
            finally:
                os.close(held)
    folder = f"{parent}/{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    os.mkdir(folder, 0o700)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


def _remove(folder: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork's child leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


# --- which engine answers -----------------------------------------------------------------------------------

_engine: ContextVar[tuple[int, Duck] | None] = ContextVar("engine", default=None)


_process: list[tuple[int, Duck]] = []  # the engine of this process, where nobody has named one


def here() -> Duck:
    """The engine of this command, or of this process where a caller has named none."""
    known = _engine.get()
    if known is not None and known[0] == os.getpid():
        return known[1]
    if not _process or _process[0][0] != os.getpid():  # a fork's child needs a connection of its own
        _process[:] = [(os.getpid(), Duck())]
    return _process[0][1]


@contextlib.contextmanager
def engine_of_call() -> Iterator[None]:
    """Let a call of the Python API have an engine that is gone with it, unless its caller has named one."""
    known = _engine.get()
    if known is not None and known[0] == os.getpid():
        yield
        return
    with using():
        yield


elsewhere: ContextVar[Engine | None] = ContextVar("elsewhere", default=None)


def asked() -> Engine:
    """What is asked about rows: the engine that the user has named, or else that of this process."""
    return elsewhere.get() or here()


@contextlib.contextmanager
def using(memory: int | None = None, scratch: str | None = None) -> Iterator[Duck]:
    """Let one engine answer all that is asked in this block."""
    engine = Duck(memory, scratch)
    token = _engine.set((os.getpid(), engine))
    try:
        yield engine
    finally:
        _engine.reset(token)
        engine.close()


def values(columns: Mapping[str, Any], names: str = "w") -> str:
    """A small table inside a question: numbers and texts, at least one row of them."""
    import numpy as np

    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    listed = ", ".join(
        f"({', '.join(text(cell) if isinstance(cell, str) else str(cell) for cell in row)})" for row in rows
    )
    return f"(VALUES {listed}) AS {names}({', '.join(columns)})"


# --- the memory of this machine -----------------------------------------------------------------------------


def installed_memory() -> int:
    """The memory of the machine, or less where this process may use less of it."""
    import resource

    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_of_groups()]
    limits += [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min(limit for limit in limits if limit > 0)


def _of_groups() -> Iterator[int]:
    """The memory that the control groups of this process allow, in version 2 or 1."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, inside = line.split(":", 2)
            mount, file = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
            place = Path("/sys/fs/cgroup", mount, inside.lstrip("/"))
            for group in (place, *place.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield int((group / file).read_text())
