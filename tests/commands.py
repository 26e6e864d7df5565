"""`gate` as a process of its own, with its own exit code and streams, forked from one that has imported everything.

Importing scipy and pyarrow takes a second, and the suite runs hundreds of commands. What depends on the start of the
interpreter itself (its options, PYTHON* variables, the locale, limits) is run by `cold`.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib
import io
import json
import os
import pkgutil
import select
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

GATE = [sys.executable, "-m", "gate"]
COLD_VARIABLES = ("PYTHON", "LC_", "LANG", "MPL", "OPENBLAS", "OMP_", "ARROW", "LD_", "MALLOC")
TIMEOUT = 120
FIGURES = "figures"
SERVER = "GATE_TESTS_SERVER"  # the process that shares a server, and its directory
drawn = True  # whether releases have figures, or a substitute (`pages.stand_in`)

Streams = int | IO[Any] | None


def gate(
    *args: str,
    cwd: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: Streams = None,
    stdout: Streams = None,
    stderr: Streams = None,
    before: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; a stream that is not given is captured, and stdin is empty."""
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as logged:
        streams: dict[str, Streams] = {"stdin": stdin, "stdout": stdout or printed, "stderr": stderr or logged}
        process = start(*args, cwd=cwd, env=env, **streams, before=before)
        code = process.wait(TIMEOUT)
        for file in (printed, logged):
            file.seek(0)
        # Newlines as `subprocess` gives them in text mode.
        texts = [file.read().decode().replace("\r\n", "\n") for file in (printed, logged)]
    return subprocess.CompletedProcess([*GATE, *args], code, *texts)


def cold(*args: str, cwd: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command in a new interpreter, as a user's shell starts it."""
    return subprocess.run(
        [*GATE, *args],
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )


class Process:
    """A running command, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid: int = _receive(connection)[0]["pid"]
        self.returncode: int | None = None

    def wait(self, timeout: float = TIMEOUT) -> int:
        """The exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = _receive(self._connection)[0]["status"]
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise
            finally:
                self._connection.close()
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def has_ended(self) -> bool:
        return self.returncode is not None or bool(select.select([self._connection], [], [], 0)[0])

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def start(
    *args: str,
    cwd: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: Streams = None,
    stdout: Streams = None,
    stderr: Streams = None,
    before: str = "",
) -> Process | subprocess.Popen[bytes]:
    """Begin one command; a stream that is not given goes nowhere. Its process runs the code `before` first."""
    environment = dict(os.environ if env is None else env)
    changed = {name for name in environment.keys() | os.environ.keys() if environment.get(name) != os.environ.get(name)}
    if not hasattr(os, "pidfd_open") or any(name.startswith(COLD_VARIABLES) for name in changed):
        nowhere = subprocess.DEVNULL
        streams: dict[str, Any] = {"stdin": stdin or nowhere, "stdout": stdout or nowhere, "stderr": stderr or nowhere}
        command = [sys.executable, "-c", f"{before}\nfrom gate.cli import main\nmain()"] if before else GATE
        return subprocess.Popen([*command, *args], cwd=cwd, env=environment, **streams)
    with open(os.devnull, "r+b") as nowhere_file:
        files = [stream if stream is not None else nowhere_file for stream in (stdin, stdout, stderr)]
        numbers = [file if isinstance(file, int) else file.fileno() for file in files]
        return _ask(_server(), args, os.fspath(cwd), environment, numbers, drawn, before)


def _ask(
    address: str,
    args: Sequence[str],
    cwd: str,
    environment: dict[str, str],
    files: list[int],
    figures: bool,
    before: str = "",
) -> Process:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    _send(connection, {"args": args, "cwd": cwd, "env": environment, FIGURES: figures, "before": before}, files)
    return Process(connection)


def write_program(path: Path, *words: str, before: str = "") -> None:
    """A program that runs `gate` by the server, for scripts that call one; it must be called with these words first."""
    words = words or ("",)
    command = f"exec {shlex.quote(sys.executable)} -I {shlex.quote(__file__)} {shlex.quote(_server())}"
    test = f'[ "$*" != "${{*#{" ".join(words)} }}" ] || exit 99\nshift {len(words)}\n' if words[0] else ""
    path.write_text(f'#!/bin/sh\n{test}{command} {FIGURES if drawn else "client"} {shlex.quote(before)} "$@"\n')
    path.chmod(0o755)


# --- between the tests and the server -----------------------------------------------------------------------


def _send(connection: socket.socket, message: dict[str, Any], files: list[int] | None = None) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], files or [])
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    if not head:
        raise ConnectionError("the process that commands are forked from has ended")
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return json.loads(data), files


def share() -> None:
    """Have one server for this process and all processes that it starts, such as pytest's workers."""
    place = tempfile.mkdtemp(prefix="gate-tests-")
    os.environ[SERVER] = f"{os.getpid()}:{place}"
    atexit.register(shutil.rmtree, place, ignore_errors=True)


@cache
def _server() -> str:
    """The address of the server. The first process to ask starts it; it ends with the process that shares it."""
    if SERVER not in os.environ:
        share()
    owner, _, place = os.environ[SERVER].partition(":")
    address = f"{place}/socket"
    with open(f"{place}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(address):
            receiving, sending = os.pipe()
            process = subprocess.Popen(
                [sys.executable, __file__, address, owner, str(sending)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[sending],
                cwd=Path(__file__).parent.parent,
            )
            process.returncode = 0  # it outlives this process, and nobody here waits for it
            os.close(sending)
            assert os.read(receiving, 1), "the process that commands are forked from must start"
            os.close(receiving)
    return address


# --- the server ---------------------------------------------------------------------------------------------


def serve(address: str, owner: int, sending: int) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process for every request until the owner has gone; in a fork, return the request."""
    running: dict[int, socket.socket] = {}
    ended = os.pidfd_open(owner)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as waiting:
        listener.bind(address)
        listener.listen(64)
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(ended, selectors.EVENT_READ)
        os.write(sending, b"1")
        os.close(sending)
        while True:
            for key, _ in waiting.select():
                if key.fd == ended:
                    return None
                if key.data is not None:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    with running.pop(key.data) as connection:
                        _send(connection, {"status": os.waitpid(key.data, 0)[1]})
                    continue
                connection, _ = listener.accept()
                request, files = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    for held in (connection, *running.values()):
                        held.close()
                    return request, files
                for file in files:
                    os.close(file)
                _send(connection, {"pid": pid})
                running[pid] = connection
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Turn this fork into what `python -m gate ARGS` would be."""
    for place, file in enumerate(files):
        os.dup2(file, place)
    for file in {*files} - {0, 1, 2}:
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    printed, logged = (io.BufferedWriter(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
    sys.stdout = io.TextIOWrapper(printed, "utf-8", line_buffering=os.isatty(1))
    sys.stderr = io.TextIOWrapper(logged, "utf-8", "backslashreplace", line_buffering=True)
    sys.argv = ["gate", *request["args"]]
    from pages import stand_in

    from gate.cli import main
    from gate.report import figures

    if not request[FIGURES]:
        figures.to_svg = stand_in

    exec(request["before"], {})
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(end.code if isinstance(end.code, int) else 1)  # without the teardown of a hundred modules
    raise AssertionError("the command must end by SystemExit")


def preload() -> None:
    """Everything that a command may import, and what its first run computes: templates, fonts, lists of plug-ins."""
    import gate

    for module in pkgutil.walk_packages(gate.__path__, "gate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("pages")
    run_once()
    import gc

    gc.freeze()  # shared memory stays shared


def run_once() -> None:
    """A small release in a directory of its own, written and verified."""
    import numpy as np
    from calls import call

    before = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("fit", "holdout"):
            np.save(f"{name}.npy", np.random.default_rng(len(name)).random(2_000))
        for words in ("run --release first --fit fit.npy --holdout holdout.npy", "verify releases/first", "plan"):
            assert call(*words.split()).code in (0, 1, 3)
        os.chdir(before)


if __name__ == "__main__":
    if sys.argv[2] in ("client", FIGURES):
        address, kind, code, *words = sys.argv[1:]
        process = _ask(address, words, os.getcwd(), dict(os.environ), [0, 1, 2], kind == FIGURES, code)
        sys.exit(process.wait(TIMEOUT))
    preload()
    asked = serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    if asked is not None:
        become(*asked)
