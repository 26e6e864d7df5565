"""Engines: Dask and Ray on loopback give the release of one process to the byte; what fails there is one line."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from small import CLEAN, POLICY

SEED = int(os.environ.get("GATE_SEED", "16"))
N = 60_000
ENVIRONMENT = {**CLEAN, "SOURCE_DATE_EPOCH": "1790000000", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
SMALL = ("--memory", "1MB", "--scratch", "s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "it has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail("nobody listens")


@contextmanager
def started(*command: str, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and stop it at the end by its number."""
    with (cwd / "engine.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=cwd, stdout=log, stderr=log, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def dask(cwd: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed: pip install fpr-gate[dask]")
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    elsewhere = cwd / "elsewhere"  # workers have another working directory
    elsewhere.mkdir()
    with started(*scheduler, cwd=elsewhere) as first:
        wait_for(port, first)
        with started(*worker, cwd=elsewhere) as one, started(*worker, cwd=elsewhere) as other:
            yield f"dask:{address}", [one, other]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two Dask workers for all tests that stop neither."""
    with dask(tmp_path_factory.mktemp("dask")) as (engine, _):
        yield engine


@contextmanager
def ray(cwd: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install fpr-gate[ray]")
    port = free_port()
    place = Path(f"/tmp/gate-ray-{os.getpid()}")  # its sockets must have short names
    head = ("ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port))
    more = ("--num-cpus", "2", "--include-dashboard", "false", "--disable-usage-stats", "--temp-dir", str(place))
    with started(*head, *more, "--object-store-memory", "100000000", cwd=cwd) as process:
        wait_for(port, process)
        time.sleep(5)  # from the port to a node with workers
        yield f"ray:127.0.0.1:{port}", [process]


def scores(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw smooth scores with an atom and coarse ties."""
    drawn = np.concatenate(
        [rng.beta(0.5, 8, n // 2), np.zeros(n // 4), np.round(rng.beta(0.5, 8, n - n // 2 - n // 4), 3)]
    )
    return rng.permutation(drawn)


def write(folder: Path, rng: np.random.Generator, form: str, files: int, first: int = 0) -> None:
    folder.mkdir()
    table = pa.table({"score": scores(rng, N), "id": [f"row {first + i}" for i in range(N)]})
    for i, (start, stop) in enumerate(pairwise(np.linspace(0, N, files + 1).astype(int))):
        part, path = table.slice(start, stop - start), folder / f"{i:03}.{form}"
        if form == "parquet":
            pa.parquet.write_table(part, path, row_group_size=3_000)
        elif form == "csv":
            pa.csv.write_csv(part, path)
        else:
            np.save(path, part["score"].to_numpy())


def words(out: str, *options: str) -> list[str]:
    files = ("--fit", "fit", "--holdout", "holdout")
    return ["run", "--policy", "policy.yaml", "--release", "r", *files, "--out", out, *options]


def run(cwd: Path, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    (cwd / "policy.yaml").write_text(POLICY)
    return commands.gate(*words(out, *options), cwd=cwd, env=ENVIRONMENT)


def begin(cwd: Path, out: str, *options: str) -> Any:
    """Start the same run while the test goes on; its output is in a file of the same name."""
    with (cwd / f"{out}.log").open("wb") as log:
        return commands.start(*words(out, *options), cwd=cwd, env=ENVIRONMENT, stderr=log)


def same(cwd: Path, engine: str, *options: str) -> None:
    """Check that memory, disk and engine give the same release to the byte."""
    found = {
        "memory": run(cwd, "memory", *options),
        "disk": run(cwd, "disk", *options, *SMALL),
        "engine": run(cwd, "engine", *options, *SMALL, "--engine", engine),
    }
    assert found["memory"].returncode in (0, 1, 3), found["memory"].stderr
    for name in ("disk", "engine"):
        assert (found[name].returncode, found[name].stdout) == (found["memory"].returncode, found["memory"].stdout)
        ours, theirs = ({p.name: p.read_bytes() for p in (cwd / each).iterdir()} for each in ("memory", name))
        assert ours == theirs, name
        assert found[name].stderr == found["memory"].stderr.replace("memory", name)
    assert [*(cwd / "s").iterdir()] == []


@pytest.mark.each_run(2)
@pytest.mark.parametrize(
    ("form", "files", "options"),
    [*(("parquet", n, ("--set", "data.id=id")) for n in (50, 4)), ("npy", 1, ()), ("csv", 3, ()), ("parquet", 2, ())],
)
def test_dask_gives_the_release_of_one_process(
    tmp_path: Path, cluster: str, form: str, files: int, options: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(SEED)
    for name, first in (("fit", 0), ("holdout", N)):
        write(tmp_path / name, rng, form, files, first)
    same(tmp_path, cluster, *options)


def test_ray_gives_the_release_of_one_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 1)
    for name, first in (("fit", 0), ("holdout", N)):
        write(tmp_path / name, rng, "parquet", 3, first)
    with ray(tmp_path) as (engine, _):
        same(tmp_path, engine, "--set", "data.id=id")


def test_a_worker_lost_half_way_costs_its_shards_and_not_the_run(tmp_path: Path) -> None:
    with dask(tmp_path) as (engine, workers):
        rng = np.random.default_rng(SEED + 2)
        for name in ("fit", "holdout"):
            write(tmp_path / name, rng, "parquet", 20)
        expected = run(tmp_path, "memory")
        process = begin(tmp_path, "engine", *SMALL, "--engine", engine)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len([*(tmp_path / "s").glob("*/*")]) < 5:
            time.sleep(0.01)
        workers[0].kill()
        assert process.wait(300) == expected.returncode, (tmp_path / "engine.log").read_text()
    ours, theirs = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("memory", "engine"))
    assert ours == theirs
    assert [*(tmp_path / "s").iterdir()] == []


def test_a_bad_last_row_on_a_worker_is_one_line(tmp_path: Path, cluster: str) -> None:
    rng = np.random.default_rng(SEED + 3)
    write(tmp_path / "fit", rng, "parquet", 2)
    (tmp_path / "holdout").mkdir()
    bad = pa.table({"score": np.append(scores(rng, N), 1.5)})
    pa.parquet.write_table(bad, tmp_path / "holdout" / "x.parquet", row_group_size=3_000)
    found = run(tmp_path, "out", *SMALL, "--engine", cluster)
    assert (found.returncode, found.stdout) == (2, "")
    last = found.stderr.splitlines()[-1]
    assert last.startswith("gate: holdout/x.parquet: column 'score' must lie in the domain"), found.stderr
    assert f"got 1.5 in row {N + 1:,}" in found.stderr
    assert not (tmp_path / "out").exists()
    assert [*(tmp_path / "s").iterdir()] == []


@pytest.mark.each_run(2)
@pytest.mark.parametrize(
    ("engine", "listens"), [(e, listens) for e in ("dask:tcp://", "ray:") for listens in (False, True)]
)
def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path: Path, engine: str, listens: bool) -> None:
    if importlib.util.find_spec({"d": "distributed", "r": "ray"}[engine[0]]) is None:
        pytest.skip(f"{engine} is not installed")
    rng = np.random.default_rng(SEED + 4)
    for name in ("fit", "holdout"):
        write(tmp_path / name, rng, "npy", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        found = run(tmp_path, "out", *SMALL, "--engine", f"{engine}127.0.0.1:{silent.getsockname()[1]}")
    assert (found.returncode, found.stdout) == (2, "")
    first, error = found.stderr.splitlines()
    assert first.startswith("gate: policy policy.yaml; "), found.stderr
    assert error.startswith("gate: --engine: must have workers that answer, got "), found.stderr
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_installed_is_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("joblibspark") is not None:
        pytest.skip("it is installed")
    rng = np.random.default_rng(SEED + 5)
    for name in ("fit", "holdout"):
        write(tmp_path / name, rng, "npy", 1)
    found = run(tmp_path, "out", *SMALL, "--engine", "spark")
    assert found.returncode == 2
    assert found.stderr.endswith("No module named 'joblibspark'; install fpr-gate[spark]\n")


def test_two_runs_share_a_scratch_and_a_killed_one_is_cleared_by_the_next(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 6)
    for name in ("fit", "holdout"):
        write(tmp_path / name, rng, "parquet", 20)
    expected = run(tmp_path, "memory")
    killed = begin(tmp_path, "killed", *SMALL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len([*(tmp_path / "s").glob("*/*")]) < 3:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    left = {*(tmp_path / "s").iterdir()}
    assert left
    both = {name: begin(tmp_path, name, *SMALL) for name in ("one", "other")}
    for name, process in both.items():
        assert process.wait(300) == expected.returncode, (tmp_path / f"{name}.log").read_text()
    assert [*(tmp_path / "s").iterdir()] == []
    ours, one, other = (
        {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("memory", "one", "other")
    )
    assert ours == one == other
