"""Reading in a child: bytes that crash a library end one forked process, not the process that asked for the scores.

The child leaves its arrays in shared memory, the scores without a second copy, and sends the rest through a pipe.
Where the system cannot fork or cannot share memory in this way, the one process does the reading itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import glob
import mmap
import os
import pickle
import secrets
import signal
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from gate.contract import Floats
from gate.errors import GateError
from gate.parent import die_with_parent
from gate.progress import advance
from gate.scores.budget import limit_memory

Returned = TypeVar("Returned")

_STARTING = threading.Lock()  # a child started meanwhile would hold the other one's pipe open


class _Child:
    """What a child knows: its pipe to the parent, the shared memory, and which array lies where in it."""

    def __init__(self, pipe: IO[bytes], memory: int, copies: str) -> None:
        self.pipe, self.memory, self.copies = pipe, memory, copies
        self.size = 0
        self.places: dict[int, tuple[int, int]] = {}  # from the address of an array to its offset and length

    def put(self, pieces: list[memoryview]) -> tuple[int, int]:
        """Append bytes to the shared memory, starting at the beginning of a page."""
        offset = self.size = -(-self.size // mmap.PAGESIZE) * mmap.PAGESIZE
        with _having_room(sum(map(len, pieces))):
            for rest in pieces:
                while rest:
                    written = os.pwrite(self.memory, rest, self.size)
                    self.size, rest = self.size + written, rest[written:]
        return offset, self.size - offset

    def allocate(self, length: int) -> Floats:
        """Make an array in the shared memory."""
        offset = self.size = -(-self.size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.size += 8 * length
        with _having_room(8 * length):
            os.ftruncate(self.memory, self.size)
            array = np.frombuffer(mmap.mmap(self.memory, 8 * length, offset=offset))
        self.places[_address(array)] = offset, 8 * length
        return array

    def place(self, buffer: pickle.PickleBuffer) -> tuple[int, int]:
        raw = buffer.raw()
        if len(raw) == 0:
            return 0, 0
        offset, length = self.places.get(_address(np.frombuffer(raw, np.uint8)), (0, -1))
        return (offset, length) if length == len(raw) else self.put([raw])


@contextlib.contextmanager
def _having_room(size: int) -> Iterator[None]:
    """Say that the place is too small: for the system, shared memory is a file, and has the limits of a file."""
    try:
        yield
    except OSError as error:
        must = f"memory: must have room for {size:,} bytes that two processes share"
        raise GateError(
            f"{must}, got: {error.strerror}; raise the limits (ulimit -f, ulimit -v) or give fewer rows"
        ) from None


_here: _Child | None = None  # set in a child


def isolate(function: Callable[[], Returned], most: int) -> Returned:
    """Return or raise what the function does in a child with so many bytes; if it dies, name the file it read."""
    with isolated(function, most) as answer:
        return answer()


@contextlib.contextmanager
def isolated(function: Callable[[], Returned], most: int) -> Iterator[Callable[[], Returned]]:
    """Run the function in a child while this process goes on until it asks; no child outlives the context."""
    if _here is not None or not hasattr(os, "memfd_create"):
        yield function
        return
    memory, copies = os.memfd_create("gate"), f"gate-{secrets.token_hex(8)}-"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the child must run no handler of ours
    try:
        pid, pipe = _start(lambda: _settle(mask, most), function, memory, copies)
    except BaseException:
        os.close(memory)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    ended: list[int] = []

    def end() -> int:
        if not ended:
            ended.append(_end(pid))
        return ended[0]

    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield lambda: _collect(pipe, end, memory, copies)
    finally:
        end()
        pipe.close()
        _remove(copies)
        os.close(memory)


def _collect(pipe: IO[bytes], end: Callable[[], int], memory: int, copies: str) -> Any:
    """Wait for a child's answer."""
    answer: Any = None
    name = ""
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while isinstance(answer := pickle.load(pipe), str | _Done):
            if isinstance(answer, _Done):
                advance(*answer)
            else:
                name = answer
            answer = None
    status = end()
    if answer is None:
        _remove(copies)
    if isinstance(answer, BaseException):
        raise answer
    if answer is None:
        raise GateError(_explain(name, status))
    return _receive(answer[0], answer[1], memory)


def tell(name: str) -> None:
    """In a child, tell the parent which file is read from now on."""
    if _here is not None:
        pickle.dump(name, _here.pipe)
        _here.pipe.flush()


class _Done(NamedTuple):
    """The progress that a child reports: the rows read, and their share of all rows."""

    rows: int
    share: float


def tell_done(rows: int, share: float) -> None:
    """Say how much more was read."""
    if _here is None:
        advance(rows, share)
    else:
        pickle.dump(_Done(rows, share), _here.pipe)
        _here.pipe.flush()


def name_copies() -> str:
    """How the names of temporary copies begin, so that the parent can remove them when a child is gone."""
    return "gate-" if _here is None else _here.copies


def join(pieces: list[Floats]) -> Floats:
    """Pieces as one array; in a child it is a new one that lies where the parent will find it."""
    length = sum(map(len, pieces))
    if _here is None and len(pieces) == 1:
        return pieces[0]
    joined = np.empty(length) if _here is None or length == 0 else _here.allocate(length)
    place = 0
    for piece in pieces:
        joined[place : place + len(piece)] = piece
        place += len(piece)
    return joined


def _start(
    settle: Callable[[], None], function: Callable[[], object], memory: int, copies: str
) -> tuple[int, IO[bytes]]:
    with _STARTING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it warns of threads; Arrow restarts its own after a fork
        reading, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reading)
            must = "memory: must suffice for a second process, which reads the scores"
            raise GateError(f"{must}, got: {error.strerror}; use a larger machine") from None
        else:
            if pid == 0:
                _work(settle, function, _Child(os.fdopen(writing, "wb"), memory, copies))
        finally:
            os.close(writing)
    return pid, open(reading, "rb")


def _work(settle: Callable[[], None], function: Callable[[], object], child: _Child) -> NoReturn:
    """The whole life of a child; nothing of it may reach the code of the parent."""
    global _here
    try:
        _here = child
        settle()
        answer: object
        try:
            buffers: list[pickle.PickleBuffer] = []
            result = pickle.dumps(function(), protocol=5, buffer_callback=buffers.append)
            answer = result, [child.place(buffer) for buffer in buffers]
        except Exception as error:
            answer = _portable(error)
        pickle.dump(answer, child.pipe)
        child.pipe.flush()
    finally:
        os._exit(0)


def _settle(mask: set[Any], most: int) -> None:
    """Let a child die at once and in silence: with its parent, by whatever kills it, before it fills the memory."""
    faulthandler.disable()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with contextlib.suppress(AttributeError):
        die_with_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    limit_memory(most)


def _portable(error: Exception) -> Exception:
    """An error as the parent can raise it again; one that nobody expected says where it came from."""
    if not isinstance(error, GateError | MemoryError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        return pickle.loads(pickle.dumps(error)) and error
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))


def _end(pid: int) -> int:
    """Kill the child, so that none stays behind; a child that has answered or died does not notice the signal."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ProcessLookupError, ChildProcessError):  # where a caller ignores SIGCHLD, nobody need wait
        return 0


def _remove(copies: str) -> None:
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{copies}*")):
        os.unlink(path)


def _explain(name: str, status: int) -> str:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number in (0, signal.SIGKILL):
        return f"{name}: must fit into memory, got too little; give fewer rows or use a larger machine"
    if number == signal.SIGBUS:
        return f"{name}: must stay as it is while it is read, got shorter; read a copy that nobody writes to"
    crash = f"a crash of the library that reads it ({signal.Signals(number).name})"
    return f"{name}: must be a file as its format demands, got {crash}; write it again"


def _receive(result: bytes, places: list[tuple[int, int]], memory: int) -> Any:
    """Build the child's answer on the memory that it left; read-only, and freed with the last array in it."""
    size = os.fstat(memory).st_size
    try:
        view = memoryview(mmap.mmap(memory, size, prot=mmap.PROT_READ)) if size else memoryview(b"")
    except OSError as error:
        raise MemoryError(error.strerror) from None
    return pickle.loads(result, buffers=[view[offset : offset + length] for offset, length in places])


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
