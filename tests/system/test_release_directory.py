"""A release directory appears whole or not at all, whatever other runs do beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gate.storage import write

FILES = {"verdict.json": b"{}\n", "report.html": b"<p>\n", "calibrator.joblib": bytes(range(256))}


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_a_killed_run_left_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    """The system takes the lock back from a process that dies; nothing else tells the two apart."""
    script = """if 1:
        import sys, time
        from pathlib import Path
        from gate.storage import _staging
        with _staging(Path(sys.argv[1])) as staging:
            (staging / "half").write_bytes(b"x")
            print(staging.name, flush=True)
            time.sleep(600)
    """
    runs = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, encoding="utf-8")
        for _ in range(2)
    ]
    try:
        dead, alive = (run.stdout.readline().strip() for run in runs if run.stdout)
        runs[0].kill()
        runs[0].wait(10)
        assert entries(tmp_path) == sorted([dead, alive])
        (tmp_path / ".gate-other.partial").write_text("a file")
        (tmp_path / ".gate-link.partial").symlink_to(tmp_path / alive)
        write(tmp_path / "v1", FILES, force=False)
        assert entries(tmp_path) == sorted(["v1", alive, ".gate-other.partial", ".gate-link.partial"])
        assert (tmp_path / alive / "half").exists()
    finally:
        for run in runs:
            run.kill()
            run.communicate()
