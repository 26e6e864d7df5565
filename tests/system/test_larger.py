"""Samples larger than the memory: sorted in runs, they give the same release to the byte, and leave nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path

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
DISK = ("--memory", f"{N // 150}kB")  # some runs for each sample


def scores(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw smooth scores with an atom that outgrows a run, and coarse ties."""
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
            pa.csv.write_csv(part, path)
        else:
            path.write_text("".join(f'{{"score": {value!r}}}\n' for value in part["score"].to_pylist()))
    return folder


def run(where: Path, out: str, fit: Path, holdout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (where / "policy.yaml").write_text(POLICY)
    files = ("--fit", fit.name, "--holdout", holdout.name)
    return gate(
        "run", "--policy", "policy.yaml", "--release", "r", *files, "--out", out, *options, cwd=where, env=EPOCH
    )


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.each_run(3)
@pytest.mark.parametrize(
    ("form", "files"),
    [("parquet", 1), ("parquet", 50), ("npy", 1), ("csv", 3), ("feather", 7), ("jsonl", 2), ("npz", 4)],
)
def test_runs_on_disk_give_the_same_release_as_the_memory(tmp_path: Path, form: str, files: int) -> None:
    rng = np.random.default_rng(SEED)
    fit, holdout = (
        write(tmp_path / name, pa.table({"score": scores(rng, N)}), form, files) for name in ("fit", "holdout")
    )
    memory, disk = run(tmp_path, "memory", fit, holdout), run(tmp_path, "disk", fit, holdout, *DISK, "--scratch", "s")
    assert (disk.returncode, disk.stdout) == (memory.returncode, memory.stdout)
    assert memory.returncode in (0, 1, 3), memory.stderr
    assert bytes_of(tmp_path / "disk") == bytes_of(tmp_path / "memory")
    assert [*(tmp_path / "s").iterdir()] == []


def test_labels_are_read_in_shards_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 1)
    labels = pa.array(rng.integers(0, 2, N), pa.int8())
    fit, holdout = (
        write(tmp_path / name, pa.table({"score": scores(rng, N), "label": labels}), "parquet", 3)
        for name in ("fit", "holdout")
    )
    options = ("--set", "data.label=label", "--malicious", "holdout")
    memory = run(tmp_path, "memory", fit, holdout, *options)
    disk = run(tmp_path, "disk", fit, holdout, *options, *DISK)
    assert (disk.returncode, disk.stdout) == (memory.returncode, memory.stdout)
    assert memory.returncode in (0, 1, 3), memory.stderr
    assert bytes_of(tmp_path / "disk") == bytes_of(tmp_path / "memory")


def with_columns(rng: np.random.Generator, n: int, first: int) -> pa.Table:
    """Draw rows with an id, a segment and a time; some ids come twice."""
    again = np.concatenate([np.arange(n), rng.integers(0, n, n // 50)])
    names = np.array(["de", "en", "fr"])[rng.integers(0, 3, n)]
    times = 1_790_000_000 + rng.integers(0, 10**6, len(again))
    return pa.table(
        {
            "score": np.round(rng.beta(0.5, 8, n), 6)[again],
            "id": [f"row {first + i}" for i in again],
            "segment": names[again],
            "seen": times,
        }
    )


MORE = ("--set", "data.id=id", "--set", "data.segment=segment", "--set", "data.timestamp=seen")


def test_ids_segments_and_times_are_kept_on_disk_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 6)
    fit, holdout, _ = (
        write(tmp_path / name, with_columns(rng, N // 4, first), "parquet", 3)
        for name, first in (("fit", 0), ("holdout", N // 4 - 50), ("malicious", N))
    )
    options = (*MORE, "--ledger", "ledger.jsonl", "--malicious", "malicious", "--dry-run", "--json")
    memory = run(tmp_path, "memory", fit, holdout, *options)
    (tmp_path / "ledger.jsonl").rename(tmp_path / "memory.jsonl")
    disk = run(tmp_path, "disk", fit, holdout, *options, *DISK, "--scratch", "s")
    assert (disk.returncode, disk.stdout) == (memory.returncode, memory.stdout)
    assert memory.returncode in (0, 1, 3), memory.stderr
    assert (tmp_path / "ledger.jsonl").read_bytes() == (tmp_path / "memory.jsonl").read_bytes()
    assert [*(tmp_path / "s").iterdir()] == []


@pytest.mark.each_run(1)
@pytest.mark.parametrize("options", [(), MORE[:2], MORE[:4], MORE])
def test_a_sample_is_split_on_disk_as_in_memory(tmp_path: Path, options: tuple[str, ...]) -> None:
    write(tmp_path / "benign", with_columns(np.random.default_rng(SEED + 7), N // 4, 0), "parquet", 3)
    (tmp_path / "policy.yaml").write_text(POLICY)
    command = ("run", "--policy", "policy.yaml", "--release", "r", "--benign", "benign", "--split", "0.3", *options)
    memory = gate(*command, "--out", "memory", cwd=tmp_path, env=EPOCH)
    disk = gate(*command, "--out", "disk", *DISK, "--scratch", "s", cwd=tmp_path, env=EPOCH)
    assert (disk.returncode, disk.stdout) == (memory.returncode, memory.stdout)
    assert memory.returncode in (0, 1, 3), memory.stderr
    assert disk.stderr == memory.stderr.replace("memory", "disk")
    assert bytes_of(tmp_path / "disk") == bytes_of(tmp_path / "memory")


def test_counts_are_kept_on_disk_and_give_the_record_of_the_rows_written_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 8)
    (tmp_path / "policy.yaml").write_text(POLICY)
    for name in ("fit", "holdout"):
        values, counts = np.unique(np.round(rng.beta(0.5, 8, N), 5), return_counts=True)
        shuffled = rng.permutation(len(values))
        table = pa.table({"score": values[shuffled], "n": counts[shuffled]})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2_000)
        long = tmp_path / "long"
        long.mkdir(exist_ok=True)
        np.save(long / f"{name}.npy", np.repeat(table["score"], table["n"]))
    records = []
    for folder, suffix, options in (
        (".", "parquet", ("--set", "data.count=n")),
        (".", "parquet", ("--set", "data.count=n", "--memory", "20kB")),
        ("long", "npy", ()),
    ):
        files = ("--fit", f"{folder}/fit.{suffix}", "--holdout", f"{folder}/holdout.{suffix}")
        found = gate(
            "run", "--policy", "policy.yaml", "--release", "r", *files, "--json", "--dry-run", *options,
            cwd=tmp_path, env=EPOCH,
        )  # fmt: skip
        assert found.returncode in (0, 1, 3), found.stderr
        record = json.loads(found.stdout)
        for sample in (record["fit"], record["holdout"]):
            del sample["sources"], sample["files"]
        record["data"].pop("count", None)
        record["policy"] = {**record["policy"], "set": [], "sha256": ""}  # the rows written out need no --set
        records.append(record)
    assert records[0] == records[1] == records[2]


def test_a_bad_last_row_leaves_nothing_behind_and_is_named_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 2)
    bad = np.append(scores(rng, N), 1.5)
    fit = write(tmp_path / "fit", pa.table({"score": bad}), "parquet", 1)
    holdout = write(tmp_path / "holdout", pa.table({"score": scores(rng, N)}), "parquet", 1)
    memory, disk = run(tmp_path, "memory", fit, holdout), run(tmp_path, "disk", fit, holdout, *DISK, "--scratch", "s")
    assert f"got 1.5 in row {N + 1:,}" in memory.stderr
    assert (disk.returncode, disk.stderr) == (2, memory.stderr)
    assert not (tmp_path / "disk").exists()
    assert [*(tmp_path / "s").iterdir()] == []


def test_what_a_killed_run_left_is_removed_and_a_living_run_is_left_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 3)
    fit, holdout = (
        write(tmp_path / name, pa.table({"score": scores(rng, N)}), "npy", 1) for name in ("fit", "holdout")
    )
    dead, running = (tmp_path / "s" / f"gate-scratch-host-{i}-00" for i in (1, 2))
    for left in (dead, running):
        left.mkdir(parents=True)
        (left / "run").write_bytes(bytes(8))
    lock = os.open(running, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = run(tmp_path, "out", fit, holdout, *DISK, "--scratch", "s")
    finally:
        os.close(lock)
    assert found.returncode in (0, 1, 3), found.stderr
    assert [*(tmp_path / "s").iterdir()] == [running]


def test_a_full_scratch_is_one_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + 4)
    fit, holdout = (write(tmp_path / name, pa.table({"score": rng.random(N)}), "npy", 1) for name in ("fit", "holdout"))
    small = tmp_path / "s"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True, env=CLEAN
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        found = run(tmp_path, "out", fit, holdout, *DISK, "--scratch", "s")
        assert (found.returncode, found.stdout) == (2, "")
        first, error = found.stderr.splitlines()
        assert first.startswith("gate: policy policy.yaml; "), found.stderr
        assert error.startswith("gate: --scratch: must have room"), found.stderr
        assert [*small.iterdir()] == []
        assert not (tmp_path / "out").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--memory", "none"), "must be a number of bytes"),
        (("--engine", "slurm:host"), "--engine: must be local, dask:"),
        ((*DISK, "--scratch", "policy.yaml"), "--scratch: must be a directory"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    rng = np.random.default_rng(SEED + 5)
    fit, holdout = (
        write(tmp_path / name, pa.table({"score": rng.random(40_000)}), "npy", 1) for name in ("fit", "holdout")
    )
    found = run(tmp_path, "out", fit, holdout, *options)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr
    assert not (tmp_path / "out").exists()
