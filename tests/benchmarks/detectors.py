"""Fifty detectors on the same rows: the time and memory of one release against those of one detector.

    python tests/benchmarks/detectors.py [DETECTORS] [ROWS]

The bound: at most DETECTORS times what one detector takes without its start, plus one start.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GATE = [sys.executable, "-m", "gate"]
SINGLE = """\
version: 1
name: speed
targets:
  - {fpr: 1%, min_n: 37000, max_relative_error: 0.25}
  - {fpr: 0.1%, min_n: 98000, max_relative_error: 0.5}
"""


def write(directory: Path, detectors: int, rows: int) -> None:
    for seed, sample in enumerate(("fit", "holdout")):
        rng = np.random.default_rng(seed)
        common = rng.random(rows)
        columns = {f"d{i:02}": 0.3 * common + 0.7 * rng.random(rows) for i in range(detectors)}
        pq.write_table(pa.table(columns), directory / f"{sample}.parquet")
    (directory / "one.yaml").write_text(SINGLE + "data: {score: d00}\n")
    listed = "".join(f"  - {{name: d{i:02}, score: d{i:02}}}\n" for i in range(detectors))
    system = "system:\n  - {score: 0.5, max_fpr: 50%, min_n: 50000}\n"
    (directory / "all.yaml").write_text(SINGLE + f"detectors:\n{listed}{system}")


# All that a run imports.
START = "import gate.systems, gate.report.figures, matplotlib.figure, matplotlib.backends.backend_svg, gate.report.html"


def spend(directory: Path, command: list[str]) -> tuple[float, float]:
    """The processor time and the wall time of a command with all that it starts; other load changes only the latter."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def run(directory: Path, policy: str) -> tuple[float, float]:
    files = ["--fit", "fit.parquet", "--holdout", "holdout.parquet", "--force"]
    return spend(directory, [*GATE, "run", "--release", "v1", "--policy", policy, *files])


def main() -> None:
    detectors, rows = (int(text) for text in [*sys.argv[1:], "50", "1000000"][:2])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, detectors, rows)
        run(directory, "one.yaml")  # so that files and code are in the cache
        begun, _ = spend(directory, [sys.executable, "-c", START])
        one, one_wall = run(directory, "one.yaml")
        everything, wall = run(directory, "all.yaml")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        bound = detectors * (one - begun) + begun
        print(f"processor: start {begun:.1f} s, one detector {one:.1f} s, {detectors} detectors {everything:.1f} s")
        print(
            f"wall: one detector {one_wall:.1f} s, {detectors} detectors {wall:.1f} s; largest process {peak:,.0f} MB"
        )
        print(f"bound {bound:.1f} s of the processor: {'kept' if everything <= bound else 'BROKEN'}")


if __name__ == "__main__":
    main()
