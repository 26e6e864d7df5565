"""Samples larger than the memory: divided where they stand, they give the same release, and leave nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from drawing import often
from small import CLEAN, POLICY, gate

SEED = int(os.environ.get("GATE_SEED", "15"))
N = often(60_000, 230_000)
EPOCH = {"SOURCE_DATE_EPOCH": "1790000000"}
LITTLE = ("--memory", "200kB")  # far less than the scores
# A sample of a test is small: only little is fetched from it at once.
FETCH = "from gate.rows import ordered\nordered.FETCH = 3_000\n"


def scores(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw smooth scores with an atom and coarse ties."""
    smooth, coarse = rng.beta(0.5, 8, n - n // 4 - n // 8), np.round(rng.beta(0.5, 8, n // 8), 3)
    drawn = np.concatenate([smooth, np.full(n // 4, 0.0), coarse])
    rng.shuffle(drawn)
    return drawn


def write(folder: Path, table: pa.Table, form: str, files: int) -> Path:
    folder.mkdir()
    ends = np.linspace(0, len(table), files + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(ends)):
        part, path = table.slice(start, stop - start), folder / f"part-{i:03}.{form}"
        if form == "parquet":
            pa.parquet.write_table(part, path, row_group_size=9_000)
        elif form == "npy":
            np.save(path, part["score"].to_numpy())
        elif form == "npz":
            np.savez(path, **{name: part[name].to_numpy() for name in part.column_names})
        elif form == "feather":
            pa.feather.write_feather(part, path, chunksize=9_000)
        elif form == "csv":
            pa.csv.write_csv(part, path, pa.csv.WriteOptions(quoting_style="none", quoting_header="none"))
        else:
            path.write_text("".join(f'{{"score": {value!r}}}\n' for value in part["score"].to_pylist()))
    return folder


def run(where: Path, out: str, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
    (where / "policy.yaml").write_text(POLICY)
    if "--benign" not in options:
        options = ("--fit", "fit", "--holdout", "holdout", *options)
    command = ("run", "--policy", "policy.yaml", "--release", "r", "--out", out)
    return gate(*command, *options, cwd=where, env=EPOCH, before=before)


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def require_the_same(where: Path, *options: str) -> None:
    """A run in memory and one in little memory: what they print and write is the same, and scratch is empty."""
    memory = run(where, "memory", *options)
    little = run(where, "little", *options, *LITTLE, "--scratch", "s", before=FETCH)
    assert memory.returncode in (0, 1, 3), memory.stderr
    assert (little.returncode, little.stdout) == (memory.returncode, memory.stdout), little.stderr
    assert little.stderr == memory.stderr.replace("memory", "little")
    assert bytes_of(where / "little") == bytes_of(where / "memory")
    assert [*(where / "s").iterdir()] == []


@pytest.mark.each_run(3)
@pytest.mark.parametrize(
    ("form", "files"),
    [("parquet", 1), ("parquet", 50), ("npy", 1), ("csv", 3), ("feather", 7), ("jsonl", 2), ("npz", 4)],
)
def test_little_memory_gives_the_same_release(tmp_path: Path, form: str, files: int) -> None:
    rng = np.random.default_rng(SEED)
    for name in ("fit", "holdout"):
        write(tmp_path / name, pa.table({"score": scores(rng, N)}), form, files)
    require_the_same(tmp_path)


def with_columns(rng: np.random.Generator, n: int, first: int) -> pa.Table:
    """Draw rows with an id, a segment, a label and a time; some ids come twice."""
    again = np.concatenate([np.arange(n), rng.integers(0, n, n // 50)])
    names = np.array(["de", "en", "fr"])[rng.integers(0, 3, n)]
    return pa.table(
        {
            "score": np.round(rng.beta(0.5, 8, n), 6)[again],
            "id": [f"row {first + i}" for i in again],
            "segment": names[again],
            "user": [f"user {first + i // 3}" for i in again],
            "label": rng.integers(0, 2, n)[again],
            "seen": 1_790_000_000 - rng.integers(0, 10**6, len(again)),
        }
    )


MORE = ("--set", "data.id=id", "--set", "data.segment=segment", "--set", "data.timestamp=seen")
COLUMNS = {
    "labels": ("--set", "data.label=label"),
    "ids, segments and times": (*MORE, "--set", "data.label=label"),
    "groups": ("--set", "data.label=label", "--set", "data.group=user", "--set", "data.segment=segment"),
}


@pytest.mark.each_run(2)
@pytest.mark.parametrize("columns", COLUMNS)
def test_so_do_other_columns(tmp_path: Path, columns: str) -> None:
    rng = np.random.default_rng(SEED + 6)
    for name, first in (("fit", 0), ("holdout", N // 4 - 50), ("malicious", N)):
        write(tmp_path / name, with_columns(rng, N // 4, first), "parquet", 3)
    require_the_same(tmp_path, "--malicious", "malicious", *COLUMNS[columns])


@pytest.mark.each_run(1)
@pytest.mark.parametrize(
    "options", [("--set", "data.label=label"), COLUMNS["groups"], COLUMNS["ids, segments and times"]]
)
def test_so_does_a_sample_that_is_split(tmp_path: Path, options: tuple[str, ...]) -> None:
    write(tmp_path / "benign", with_columns(np.random.default_rng(SEED + 7), N // 4, 0), "parquet", 3)
    require_the_same(tmp_path, "--benign", "benign", "--split", "0.3", *options)


def test_counts_give_the_record_of_the_rows_written_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 8)
    long = tmp_path / "long"
    long.mkdir()
    for name in ("fit", "holdout"):
        values, counts = np.unique(np.round(rng.beta(0.5, 8, N), 5), return_counts=True)
        shuffled = rng.permutation(len(values))
        table = pa.table({"score": values[shuffled], "n": counts[shuffled]})
        write(tmp_path / name, table, "parquet", 2)
        write(long / name, pa.table({"score": np.repeat(table["score"], table["n"])}), "npy", 1)
    require_the_same(tmp_path, "--set", "data.count=n")
    assert run(long, "memory").returncode in (0, 1, 3)
    records = [json.loads((place / "memory" / "verdict.json").read_text()) for place in (tmp_path, long)]
    for record in records:
        for sample in (record["fit"], record["holdout"]):
            del sample["sources"], sample["files"]
        record["data"].pop("count", None)
        del record["policy"]  # the rows written out need no --set
        del record["checks"]["duplicates"]  # rows that stand for many cannot show copies
        record["findings"] = [found for found in record["findings"] if found["check"] != "duplicates"]
    assert records[0] == records[1]


def test_a_bad_last_row_leaves_nothing_behind_and_is_named_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 2)
    write(tmp_path / "fit", pa.table({"score": np.append(scores(rng, N), 1.5)}), "parquet", 1)
    write(tmp_path / "holdout", pa.table({"score": scores(rng, N)}), "parquet", 1)
    memory, little = run(tmp_path, "memory"), run(tmp_path, "little", *LITTLE, "--scratch", "s")
    assert f"got 1.5 in row {N + 1:,}" in memory.stderr
    assert (little.returncode, little.stderr) == (2, memory.stderr)
    assert not (tmp_path / "little").exists()
    assert [*(tmp_path / "s").iterdir()] == []


# --- scratch ------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    rng = np.random.default_rng(SEED + 3)
    for name in ("fit", "holdout"):
        write(tmp_path / name, pa.table({"score": rng.random(40_000)}), "csv", 1)
    return tmp_path


def test_what_a_killed_run_left_is_removed_and_a_living_run_is_left_alone(plain: Path) -> None:
    dead, running = (plain / "s" / f"gate-scratch-{i}-00" for i in (1, 2))
    for left in (dead, running):
        left.mkdir(parents=True)
        (left / "run").write_bytes(bytes(8))
    lock = os.open(running, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = run(plain, "out", *LITTLE, "--scratch", "s")
    finally:
        os.close(lock)
    assert found.returncode in (0, 1, 3), found.stderr
    assert [*(plain / "s").iterdir()] == [running]


@pytest.fixture
def full(plain: Path) -> Any:
    """A file system of its own for scratch, with little room."""
    small = plain / "s"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, env=CLEAN).returncode:
        pytest.skip("this user may not mount a small file system")
    yield small
    subprocess.run(["umount", str(small)], check=True)


def test_a_full_scratch_is_one_line(plain: Path, full: Path) -> None:
    """A sample that is divided into rows to fit on and others is kept, and here there is no room for it."""
    rng = np.random.default_rng(SEED + 4)
    rows = 4_000_000
    table = pa.table({"score": rng.random(rows), "id": rng.permutation(rows)})
    write(plain / "benign", table, "parquet", 1)
    split = ("--benign", "benign", "--split", "0.5", "--set", "data.id=id")
    found = run(plain, "out", *split, "--memory", "128MB", "--scratch", "s")
    assert (found.returncode, found.stdout) == (2, ""), found.stderr
    *_, error = found.stderr.splitlines()
    assert error.startswith("gate: benign: must "), found.stderr
    assert error.endswith("raise --memory, or name a --scratch with more room"), found.stderr
    assert [*full.iterdir()] == []
    assert not (plain / "out").exists()


def test_no_temporary_directory_is_needed_where_none_is_used(plain: Path) -> None:
    command = ("run", "--fit", "fit", "--holdout", "holdout", "--release", "r", "--dry-run")
    before = "import tempfile\ntempfile.tempdir = '/proc/nowhere'\n"
    found = gate(*command, cwd=plain, env=EPOCH, before=before)
    assert found.returncode in (0, 1, 3), found.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--memory", "none"), "must be a number of bytes"),
        ((*LITTLE, "--scratch", "policy.yaml"), "--scratch: must be a directory"),
    ],
)
def test_what_cannot_be_is_said(plain: Path, options: tuple[str, ...], said: str) -> None:
    found = run(plain, "out", *options)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr
    assert not (plain / "out").exists()


# While rows are counted, this run asks a question that takes for ever.
ENDLESS = """\
from pathlib import Path
from gate.rows import engine
real = engine.Duck.ask
def ask(self, sql):
    self.folder
    Path("ready").touch()
    return real(self, "SELECT sum(a.range * b.range) AS n FROM range(1000000000) AS a, range(1000000000) AS b")
engine.Duck.ask = ask
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_question_within_a_second_and_leaves_nothing(
    plain: Path, number: signal.Signals, code: int
) -> None:
    words = ("run", "--release", "v1", "--fit", "fit", "--holdout", "holdout", "--scratch", "s")
    with (plain / "log").open("w+b") as log:
        process: Any = commands.start(*words, cwd=plain, stderr=log, before=ENDLESS)
    while not (plain / "ready").exists():
        assert not process.has_ended(), (plain / "log").read_text()
        time.sleep(0.01)
    time.sleep(0.5)
    sent = time.monotonic()
    process.send_signal(number)
    assert process.wait() == code
    assert time.monotonic() - sent < 1.5  # a busy machine takes a little longer
    assert (plain / "log").read_text().splitlines()[-1] == f"gate: stopped by {number.name}"
    assert [*(plain / "s").iterdir()] == []
    assert not (plain / "releases").exists()


def test_two_runs_at_once_share_a_scratch(plain: Path) -> None:
    """Each has a folder of its own, and leaves that of the other alone."""
    words = ("run", "--release", "v1", "--fit", "fit", "--holdout", "holdout", "--scratch", "s", *LITTLE)
    processes: list[Any] = []
    for i in range(2):
        with (plain / f"log{i}").open("w+b") as log:
            processes.append(commands.start(*words, "--out", f"out{i}", cwd=plain, stderr=log, env=EPOCH, before=FETCH))
    codes = [process.wait() for process in processes]
    assert codes[0] == codes[1] != 2, (plain / "log0").read_text()
    assert bytes_of(plain / "out0") == bytes_of(plain / "out1")
    assert [*(plain / "s").iterdir()] == []
