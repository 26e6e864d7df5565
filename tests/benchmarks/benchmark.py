"""Speed and memory as ratios, each pair measured side by side in one run.

    python tests/benchmarks/benchmark.py [--rows 10000000] [--check] [--alone] [--full]

Prints a Markdown table, and then those of `scale.py`, unless --alone; with --check, exits 1 where a ratio exceeds its
bound.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import scale

from gate.calibration.fit import fit
from gate.checks import default_policy
from gate.policy import Calibration, Columns
from gate.rows.reading import read

REPEATS = 5
LIBRARIES = {"numpy", "scipy", "sklearn", "joblib", "pyarrow", "pydantic", "yaml", "jinja2", "gate"}


@dataclass(frozen=True)
class Ratio:
    what: str
    against: str
    ours: float
    theirs: float
    bound: float | None

    @property
    def value(self) -> float:
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        return self.bound is None or self.value <= self.bound


def best(*actions: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """The shortest time of each action, taken in turns so that a busy machine slows all of them alike."""
    times = [float("inf")] * len(actions)
    for _ in range(repeats):
        for i, action in enumerate(actions):
            start = time.perf_counter()
            action()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def measure_fit(rows: int) -> list[Ratio]:
    rng = np.random.default_rng(1)
    smooth = rng.beta(0.5, 8, rows)
    tied = np.round(rng.beta(0.5, 8, rows), 4)
    ratios = []
    for name, scores in [("distinct scores", smooth), ("tied scores", tied)]:
        for ties in ("conservative", "average"):
            settings = Calibration(ties=ties)
            ours, theirs = best(lambda s=scores, c=settings: fit(s, c), lambda s=scores: np.sort(s))  # type: ignore[misc]
            ratios.append(Ratio(f"fit {rows:,} {name}, {ties} ties", "np.sort", ours, theirs, 1.5))
    return ratios


def run_python(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def measure_imports() -> list[Ratio]:
    bare, click, help_, run = best(
        run_python("-c", "pass"),
        run_python("-c", "import click"),
        run_python("-m", "gate", "--help"),
        run_python("-c", IMPORTS),
        repeats=7,
    )
    return [
        Ratio("gate --help", 'python -c "import click"', help_, click, 3.0),
        Ratio("imports of gate run", "bare interpreter", run, bare, None),
    ]


def import_shares() -> list[tuple[str, float]]:
    """Which library the imports of `gate run` wait for, as shares of their time."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", IMPORTS], check=True, capture_output=True, text=True
    )
    shares: dict[str, float] = {}
    for line in process.stderr.splitlines()[1:]:
        own, _, module = line.removeprefix("import time:").split("|")
        root = module.strip().partition(".")[0]
        root = root if root in LIBRARIES else "the rest"
        shares[root] = shares.get(root, 0.0) + float(own)
    total = sum(shares.values())
    return sorted(((root, own / total) for root, own in shares.items()), key=lambda share: -share[1])


def measure_reading(rows: int) -> list[Ratio]:
    """Files to benign float64 scores, every value checked, against Arrow's own reader of the same column.

    The bounds allow for a child and its shared memory, which costs as much as decoding; see the whole run below.
    """
    table = pa.table({"score": np.random.default_rng(4).beta(0.5, 8, rows)})
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        parquet, csv = f"{directory}/scores.parquet", f"{directory}/scores.csv"
        pa.parquet.write_table(table, parquet)
        pa.csv.write_csv(table, csv)
        for path, reader, bound in [(parquet, pa.parquet.read_table, 3.0), (csv, pa.csv.read_csv, 2.0)]:
            ours, theirs = best(
                lambda path=path: read([path], Columns(), (0.0, 1.0)),  # type: ignore[misc]
                lambda path=path, reader=reader: reader(path),  # type: ignore[misc]
                repeats=3 * REPEATS,
            )
            what = f"read {rows:,} scores from .{path.rpartition('.')[2]}"
            ratios.append(Ratio(what, "Arrow's reader", ours, theirs, bound))
    return ratios


IMPORTS = "import gate.gating, gate.cli, gate.report.html"
RAW = """
import sys, numpy as np, pyarrow.parquet
for path in sys.argv[1:]:
    np.sort(pyarrow.parquet.read_table(path, columns=["score"])["score"].to_numpy())
"""


def measure_runs(rows: int) -> list[Ratio]:
    """A whole `gate run` as a process, against one that imports the same, reads the same and sorts twice.

    And with the targets judged again in 1,000 segments, against the run without them.
    """
    rng = np.random.default_rng(6)
    names = pa.array([f"segment-{i:03}" for i in range(1_000)])
    with tempfile.TemporaryDirectory() as directory:
        paths = [f"{directory}/{name}.parquet" for name in ("fit", "holdout")]
        for path in paths:
            codes = pa.array(rng.integers(0, 1_000, rows), pa.int32())
            segments = pa.DictionaryArray.from_arrays(codes, names).cast(pa.string())
            pa.parquet.write_table(pa.table({"score": rng.beta(0.5, 8, rows), "segment": segments}), path)
        policy = f"{directory}/segments.yaml"
        checks = (
            "data: {segment: segment}\nchecks: {segments: {targets: [1%, 0.1%], min_n: 5000, max_relative_error: 1}}\n"
        )
        Path(policy).write_text(default_policy().text.partition("data:")[0] + checks)
        run = ["-m", "gate", "run", "--release", "r", "--fit", paths[0], "--holdout", paths[1], "--force"]
        raw, plain, segmented = best(
            run_python("-c", IMPORTS + RAW, *paths),
            run_python(*run, "--out", f"{directory}/plain"),
            run_python(*run, "--out", f"{directory}/segmented", "--policy", policy),
            repeats=3,
        )
    size = f"{rows:,} + {rows:,} rows"
    return [
        Ratio(f"gate run, {size}", "imports + raw read + two sorts", plain, raw, 2.0),
        Ratio(f"gate run, {size} in 1,000 segments", "the same without segments", segmented, plain, 2.0),
    ]


def measure_artifact(rows: int) -> Ratio:
    size = len(fit(np.random.default_rng(5).beta(0.5, 8, rows)).artifact)
    return Ratio(f"calibrator fitted on {rows:,} scores (KB)", "its allowance", size / 1e3, 200.0, 1.0)


def measure_memory(rows: int) -> Ratio:
    """The peak of a whole `gate run` on Parquet files, against three times the two float64 arrays plus 400 MB."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, f"{name}.parquet") for name in ("fit", "holdout")]
        for path in paths:
            pa.parquet.write_table(pa.table({"score": rng.beta(0.5, 8, rows)}), path)
        command = ["-m", "gate", "run", "--release", "memory", "--fit", str(paths[0]), "--holdout", str(paths[1])]
        command += ["--out", f"{directory}/release"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        run_python(*command)()
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if peak <= before:
        raise SystemExit("memory: an earlier child was larger; the peak of gate run cannot be told")
    allowed = 3 * 2 * 8 * rows + 400e6
    return Ratio(
        f"peak memory of gate run, {rows:,} + {rows:,} rows (GB)",
        "its allowance",
        peak * 1024 / 1e9,
        allowed / 1e9,
        1.0,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without what takes 100 million rows")
    parser.add_argument("--full", action="store_true", help="400 million rows too")
    options = parser.parse_args()
    ratios = [
        measure_memory(options.rows),
        *measure_reading(options.rows),
        *measure_runs(options.rows),
        *measure_fit(options.rows),
        measure_artifact(options.rows),
        *measure_imports(),
    ]
    print("| what | against | measured | ratio | bound |")
    print("| --- | --- | ---: | ---: | ---: |")
    for ratio in ratios:
        bound = "" if ratio.bound is None else f"{ratio.bound:g}"
        print(
            f"| {ratio.what} | {ratio.against} | {ratio.ours:.2f} / {ratio.theirs:.2f} | {ratio.value:.2f} | {bound} |"
        )
    shares = ", ".join(f"{root} {share:.0%}" for root, share in import_shares())
    print(f"\nImport time of gate run: {shares}.")
    if not options.alone:
        scale.measure(scale.PARTS, options.full)
    return 1 if options.check and not all(ratio.holds for ratio in ratios) else 0


if __name__ == "__main__":
    sys.exit(main())
