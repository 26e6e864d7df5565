"""A few thousand mutated inputs of every kind; `python tests/fuzz.py` tries a hundred thousand."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import commands
import fuzz
import pytest


def test_mutated_inputs_break_no_promise(tmp_path: Path) -> None:
    """In a process of its own, whose memory and addresses are limited."""
    result = subprocess.run(
        [sys.executable, fuzz.__file__, "--inputs", "3000", "--seed", "7"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=400,
    )
    assert result.returncode == 0, result.stderr
    print(result.stdout)
    assert "no promise broken" in result.stdout


def test_a_broken_promise_is_noticed() -> None:
    """So that the counts above say something."""
    with pytest.raises(fuzz.BrokenPromiseError, match="must be printable"):
        fuzz.refused(lambda: (_ for _ in ()).throw(fuzz.GateError("a.csv: must\x1b[31m")), "a.csv")
    with pytest.raises(ZeroDivisionError):
        fuzz.refused(lambda: 1 / 0, "a.csv")
    files = fuzz.release_files()
    with pytest.raises(fuzz.BrokenPromiseError, match="another manifest holds"):
        fuzz.take_manifest({**files, "manifest.json": b""})(files["manifest.json"])


def test_the_command_breaks_no_promise_either(tmp_path: Path) -> None:
    """Whole processes, with every file of a run mutated in turn: exit codes, no traceback, nothing outside --out."""
    rng = random.Random(4)
    scores, files = fuzz.score_files(), fuzz.release_files()
    jobs: list[tuple[str, list[bytes], list[str]]] = [
        ("policy.yaml", [fuzz.POLICY, fuzz.SMALL], ["plan", "--policy", "policy.yaml"]),
        ("verdict.json", [files["verdict.json"]], ["report", "."]),
        ("verdict.json", [files["verdict.json"]], ["report", ".", "--format", "html", "-o", "out.html"]),
        ("verdict.json", [files["verdict.json"]], ["verify", "."]),
        ("calibrator.json", [files["calibrator.json"]], ["verify", "."]),
        ("manifest.json", [files["manifest.json"]], ["verify", "."]),
    ]
    for name in ("scores.csv", "scores.parquet", "scores.jsonl.gz"):
        run = ["run", "--policy", "sound.yaml", "--release", "../v1", "--out", "out", "--force", "--fit", name]
        jobs.append((name, [scores[name]], [*run, "--holdout", name]))
    for i, (name, examples, args) in enumerate(jobs):
        place = tmp_path / str(i)
        place.mkdir()
        for file, content in {**files, "sound.yaml": fuzz.SMALL}.items():
            if name != "policy.yaml":
                (place / file).write_bytes(content)
        (place / name).write_bytes(fuzz.mutate(rng, examples))
        before = {path.name for path in place.iterdir()} | {"out", "out.html"}
        result = commands.gate(*args, cwd=place)
        told = (name, args[0], result.returncode, result.stderr)
        assert result.returncode in (0, 1, 2, 3), told
        if args[0] == "verify" and (place / name).read_bytes() != files[name]:
            assert result.returncode != 0, told
        assert "Traceback" not in result.stderr, told
        assert {path.name for path in place.iterdir()} <= before, told
        assert {path.name for path in tmp_path.iterdir()} == {str(j) for j in range(i + 1)}, told
        assert all(line.isprintable() for line in result.stderr.splitlines()), told


BOMBS = {
    "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "nesting": b"[" * 100_000,
    "a long number": b"version: 1" + b"0" * 100_000,
    "tags": b"!!python/object/apply:os.system ['touch pwned']",
    "control characters": b'version: 1\nname: "a\\x1b[2Jb"\n',
    "directions": 'version: 1\nname: "a\u202eb"\n'.encode(),
    "a null byte": b"version: 1\nname: a\x00b\n",
}


@pytest.mark.parametrize("case", BOMBS)
def test_the_usual_bombs_are_refused_at_once(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not fuzz.take_policy(BOMBS[case])
    assert not fuzz.take_record(BOMBS[case])
    assert not fuzz.take_calibrator(BOMBS[case])
    assert not fuzz.take_ledger(BOMBS[case])
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("policy.yaml", "ledger.jsonl")] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_json_has_no_number_that_is_none(number: str) -> None:
    files = fuzz.release_files()
    record = json.loads(files["verdict.json"])
    record["findings"][0]["threshold"] = "HERE"
    assert not fuzz.take_record(json.dumps(record).replace('"HERE"', number).encode())
    calibrator = json.loads(files["calibrator.json"])
    calibrator["calibrated"][3] = "HERE"
    assert not fuzz.take_calibrator(json.dumps(calibrator).replace('"HERE"', number).encode())
