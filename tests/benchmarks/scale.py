"""Any number of rows: `gate run` against the plain script, and in little memory against as much as it likes.

    python tests/benchmarks/scale.py [--full] [--only NAME ...]

Prints Markdown tables. What is compared is measured in turns in one run: CPU seconds say what the work costs, wall
seconds what one waits on this machine, and a busy machine shows in the second only. --full adds 400 million rows. Rows
are drawn into a temporary directory, 8 bytes each and twice: set TMPDIR to a place with room.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

PARTS = ["script", "larger"]
FILE = 5_000_000  # rows of one Parquet file
LIMIT = "1GB"
IMPORTS = "import gate.gating, gate.cli, gate.report.html, matplotlib.figure, matplotlib.patches"
PEER = """
import sys, numpy as np
from fprcal import fit_calibration_pipeline
from scipy.stats import binomtest
def load(path):
    if path.endswith(".npy"):
        return np.load(path)
    import pyarrow.parquet
    return pyarrow.parquet.read_table(path)["score"].to_numpy()
fit, holdout = map(load, sys.argv[1:])
calibrated = fit_calibration_pipeline(fit).predict(holdout.reshape(-1, 1))
for score in (0.1, 0.3, 0.5, 0.7, 0.85, 0.95):
    binomtest(int((calibrated >= score).sum()), len(holdout)).proportion_ci(0.95)
"""
SORT = """
import sys, numpy as np, pyarrow.parquet
for folder in sys.argv[1:]:
    np.sort(pyarrow.parquet.read_table(folder)["score"].to_numpy())
"""


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds waited, CPU seconds of all its processes, and the most memory of all of them."""

    wall: float
    cpu: float
    peak: float


def run(*command: str) -> Cost:
    """A Python command, with the memory of its whole family looked at ten times a second, shared pages counted once."""
    before = os.times()
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], sum(map(_proportional, _family(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, said = process.communicate()
    wall = time.perf_counter() - start
    over.set()
    watcher.join()
    if process.returncode not in (0, 1, 3):
        raise SystemExit(f"{command[:4]}: exit {process.returncode}: {said.decode()[-500:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu, peak[0])


def _family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def _proportional(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return 1024 * float(text.split("Pss:")[1].split()[0])
    return 0.0


def best(repeats: int, **commands: tuple[str, ...]) -> dict[str, Cost]:
    """Run the commands in turns, and return the least cost of each."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            found[name].append(run(*command))
    return {
        name: Cost(min(c.wall for c in costs), min(c.cpu for c in costs), max(c.peak for c in costs))
        for name, costs in found.items()
    }


def gate(directory: Path, fit: str, holdout: str, *options: str) -> tuple[str, ...]:
    files = ("--fit", f"{directory}/{fit}", "--holdout", f"{directory}/{holdout}")
    return ("-m", "gate", "run", "--release", "r", *files, "--out", f"{directory}/out", "--force", *options)


def draw(directory: Path, rows: int) -> None:
    """Two samples in folders of Parquet files."""
    rng = np.random.default_rng(rows)
    for name in ("fit", "holdout"):
        folder = directory / f"{name}-{rows}"
        if folder.exists():
            continue
        folder.mkdir()
        for i, start in enumerate(range(0, rows, FILE)):
            table = pa.table({"score": rng.beta(0.5, 8, min(FILE, rows - start))})
            pa.parquet.write_table(table, folder / f"{i:04}.parquet")


def table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def against_the_script(directory: Path) -> None:
    """`gate run` and the script with the paper's own package on the same files."""
    if importlib.util.find_spec("fprcal") is None:
        print(
            "\nfprcal is not installed (tests/benchmarks/peers-no-deps.txt says how): no plain script to compare with"
        )
        return
    rows = []
    for n in (100_000, 1_000_000, 10_000_000):
        rng = np.random.default_rng(n)
        for form in ("npy", "parquet"):
            paths = [f"{name}-{n}.{form}" for name in ("fit", "holdout")]
            for path in paths:
                scores = rng.beta(0.5, 8, n)
                if form == "npy":
                    np.save(directory / path, scores)
                else:
                    pa.parquet.write_table(pa.table({"score": scores}), directory / path)
            script = ("-c", PEER, *(f"{directory}/{path}" for path in paths))
            found = best(3, ours=gate(directory, *paths), script=script, imports=("-c", IMPORTS))
            ours, theirs, imports = found["ours"], found["script"], found["imports"]
            allowed = (3 * 16 * n + 400e6) / 1e9
            rows.append(
                (
                    f"{n:,} + {n:,} .{form}",
                    f"{ours.wall:.2f} / {theirs.wall:.2f}",
                    f"{ours.wall / theirs.wall:.2f}",
                    f"{ours.cpu / theirs.cpu:.2f}",
                    f"{ours.wall / imports.wall:.2f}",
                    f"{ours.peak / 1e9:.2f} of {allowed:.2f}",
                )
            )
    head = ("rows", "gate run / fprcal script, s", "ratio", "of CPU", "over its imports", "peak, GB")
    table("`gate run`, all files written, against load, `fprcal` fit, predict and six `binomtest`:", head, rows)


def larger(directory: Path, full: bool) -> None:
    """The script, gate, gate in little memory, and reading and sorting alone, as rows grow."""
    rows = []
    for n in (10_000_000, 100_000_000, *([400_000_000] if full else [])):
        draw(directory, n)
        paths = f"fit-{n}", f"holdout-{n}"
        folders = [f"{directory}/{path}" for path in paths]
        commands = {"gate_run": gate(directory, *paths), "little": gate(directory, *paths, "--memory", LIMIT)}
        if n <= 100_000_000:
            commands["sort"] = ("-c", SORT, *folders)
            commands |= {"script": ("-c", PEER, *folders)} if importlib.util.find_spec("fprcal") else {}
        found = best(2 if n <= 10_000_000 else 1, **commands)
        script = found.get("script")
        for name, called in CALLED.items():
            if name in found:
                cost = found[name]
                share = "" if script is None else f"{cost.cpu / script.cpu:.2f}"
                figures = f"{cost.wall:.1f}", f"{cost.cpu:.1f}", share, f"{cost.peak / 1e9:.2f}"
                rows.append((f"{n:,} + {n:,}", called, *figures))
        for folder in folders:
            shutil.rmtree(folder)
    table("As rows grow, on Parquet:", ("rows", "command", "s", "CPU-s", "of the script's CPU", "peak, GB"), rows)


CALLED = {
    "script": "load, `fprcal` fit, predict and six `binomtest`",
    "gate_run": "`gate run`",
    "little": f"`gate run --memory {LIMIT}`",
    "sort": "read and `np.sort`",
}


def measure(names: list[str], full: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="gate-scale-") as directory:
        if "script" in names:
            against_the_script(Path(directory))
        if "larger" in names:
            larger(Path(directory), full)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="400 million rows too")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    measure(options.only, options.full)


if __name__ == "__main__":
    main()
