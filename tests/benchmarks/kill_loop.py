"""Runs that are killed at random moments: the release that was there stays, or the new one is there, each whole.

    python tests/benchmarks/kill_loop.py --kills 200

Half of the kills wait until files are being written and strike within milliseconds. Prints how many struck before,
while and after; exits 1 at the first release directory that is neither the old nor the new one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GATE = [sys.executable, "-m", "gate"]
POLICY = "version: 1\nname: small\ntargets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]\n"
STOPS = {signal.SIGTERM: 143, signal.SIGINT: 130}
OUTCOMES = (0, 1, 3)


def write_inputs(place: Path) -> None:
    rng = np.random.default_rng(11)
    for name, shift in (("fit", 0.0), ("one", 0.0), ("two", 1.0)):
        np.save(place / f"{name}.npy", 1 / (1 + np.exp(-rng.normal(-5 + shift, 1.4, 20_000))))
    (place / "policy.yaml").write_text(POLICY)


def arguments(holdout: str) -> list[str]:
    """Return the arguments of a run that replaces whatever release is there."""
    args = ["run", "--policy", "policy.yaml", "--release", "v1", "--out", "releases/v1", "--force"]
    return [*args, "--fit", "fit.npy", "--holdout", f"{holdout}.npy"]


def environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}


def start(place: Path, holdout: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*GATE, *arguments(holdout)],
        cwd=place,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a process in the background ignores it
    )


def snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.is_dir() else {}


def is_ready(process: Any) -> bool:
    """Whether the process handles SIGTERM by now: before, Python itself is starting."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) & (1 << (signal.SIGTERM - 1)))


def wait(condition: object, process: Any) -> None:
    assert callable(condition)
    while process.poll() is None and not condition():
        time.sleep(0.0005)


Start = Callable[[Path, str], Any]


def finished(place: Path, name: str, begin: Start) -> int:
    process = begin(place, name)
    process.communicate(timeout=120)
    return int(process.returncode)


def kill_loop(kills: int, seed: int, place: Path, begin: Start = start) -> Counter[str]:
    """Kill so many runs, and count what became of each. An AssertionError says what was lost."""
    write_inputs(place)
    target, parent = place / "releases" / "v1", place / "releases"
    whole, duration = {}, 0.0
    for name in ("one", "two"):
        began = time.monotonic()
        assert finished(place, name, begin) in OUTCOMES
        duration = time.monotonic() - began  # the duration of the second run: the first must find its files
        whole[name] = snapshot(target)
    assert whole["one"] != whole["two"]
    rng, counts = random.Random(seed), Counter[str]()
    present = "two"
    for i in range(kills):
        new = "one" if present == "two" else "two"
        number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        earlier = {path.name for path in parent.iterdir()}
        process = begin(place, new)
        if number != signal.SIGKILL:
            wait(lambda process=process: is_ready(process), process)
        if i % 2:
            wait(lambda earlier=earlier: {path.name for path in parent.iterdir()} - earlier, process)
            time.sleep(rng.random() * 0.01)
        else:
            time.sleep(rng.random() * duration)
        process.send_signal(number)
        stderr = process.communicate(timeout=120)[1]
        found = snapshot(target)
        assert found in (whole[present], whole[new]), f"kill {i}: neither the old nor the new release is there"
        if found == whole[new]:
            present = new
        left = {path.name for path in parent.iterdir()} - earlier
        ended = process.returncode in OUTCOMES
        if number == signal.SIGKILL:
            assert ended or process.returncode == -signal.SIGKILL, process.returncode
            assert all(name.startswith(".gate-") and name.endswith(".partial") for name in left), left
        else:
            assert ended or process.returncode == STOPS[number], (number, process.returncode, stderr)
            assert "Traceback" not in stderr, stderr
            if not ended:
                assert left == set(), left
        moment = "after it had ended" if ended else "with the new one there" if found == whole[new] else ""
        moment = moment or ("while writing" if left or i % 2 else "before writing")
        counts[f"{number.name} {moment}"] += 1
    assert finished(place, "one", begin) in OUTCOMES
    assert snapshot(target) == whole["one"]
    assert [path.name for path in parent.iterdir()] == ["v1"], "what dead runs left must be removed by the next"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-kills-") as place:
        counts = kill_loop(options.kills, options.seed, Path(place))
    for what, count in sorted(counts.items()):
        print(f"{count:6,}  {what}")
    print(f"{sum(counts.values()):,} kills: every release whole, the previous one or the new one")


if __name__ == "__main__":
    main()
