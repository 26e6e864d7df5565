"""Some hundred mutated inputs of every kind; `python tests/fuzz.py` tries a hundred thousand."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import fuzz
import hostile
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import gate
from drawing import often

from gate.errors import GateError

INPUTS = often(200, 400)


def test_mutated_inputs_break_no_promise(tmp_path: Path) -> None:
    """The test runs in its own process, whose children have limited memory and addresses."""
    result = subprocess.run(
        [sys.executable, fuzz.__file__, "--inputs", str(INPUTS), "--seed", "7"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert f"{INPUTS} inputs, seed 7: no promise broken" in result.stdout
    taken = re.findall(r"^(\w[\w ]*?) +\d[\d,]* +(\d[\d,]*) ", result.stdout, re.MULTILINE)
    assert [kind for kind, count in taken if count == "0" and kind != "release"] == [], "no input of a kind was taken"
    reached = re.findall(r"^(gate/rows/\w+\.py): \d+ of \d+ lines reached \((\d+)%\)$", result.stdout, re.MULTILINE)
    assert [file for file, share in reached if int(share) < LEAST.get(file, 60)] == []
    assert len(reached) >= 6


# These modules serve other engines, several detectors, remote places, objects in memory or scores beyond the memory.
LEAST = {
    f"gate/rows/{name}.py": 0
    for name in ("copies", "driver", "joined", "postgres", "remote", "spark", "together", "ordered")
}
LEAST |= {f"gate/rows/{name}.py": 35 for name in ("arrays", "engine", "sample", "sketch", "sources", "split")}


@pytest.mark.parametrize("case", hostile.CRAFTED)
def test_what_was_found_once_is_refused(case: str, tmp_path: Path) -> None:
    """The command refuses it, and its process does not die; nothing is written, and stderr is one line."""
    made = hostile.CRAFTED[case]()
    pa.parquet.write_table(fuzz.sound_rows(1), tmp_path / "fit.parquet")
    with contextlib.chdir(tmp_path):
        fuzz.write(made)
    columns = [word for name in made.columns for word in ("--set", f"data.{name}={name}")]
    sample = ["--fit", "fit.parquet", "--holdout", made.name]
    result = gate("run", "--release", "v1", "--out", "out", *sample, *columns, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert made.name in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_broken_promise_is_noticed() -> None:
    """Otherwise the counts above would say nothing."""
    with pytest.raises(fuzz.BrokenPromiseError, match="must be printable"):
        fuzz.refused(lambda: (_ for _ in ()).throw(GateError("a.csv: must\x1b[31m")), "a.csv")
    with pytest.raises(ZeroDivisionError):
        fuzz.refused(lambda: 1 / 0, "a.csv")
    section = {"sources": [{"rows": 3}], "n": 3, "sha256": "a"}
    record = {"holdout": section, "data": {}, "checks": {"duplicates": None}}
    with pytest.raises(fuzz.BrokenPromiseError, match="gate counts"):
        fuzz.compare(
            "a.csv",
            "holdout",
            {"holdout": section, "data": {}, "checks": {"duplicates": None}},
            {"rows": 3, "n": 3, "sha256": "b"},
            dict,
        )
    unread = fuzz.outside(lambda: {"": 1 // 0})
    with pytest.raises(fuzz.BrokenPromiseError, match="the plain reader does not"):
        fuzz.compare("a.csv", "holdout", record, unread, lambda: unread)


def test_without_what_the_plain_reader_stumbles_over_all_other_changes_are_expected() -> None:
    """It refuses the whole file for a text that gate has no need to read; a score changed beside it is still there."""
    sound, both, one = (b"score,note\n0.%d,a\n0.2,%b\n" % each for each in ((1, b"b"), (3, b"\xff"), (3, b"b")))
    made = hostile.Files("holdout.csv", {"": both}, sound={"": sound})
    readable = hostile.Files("holdout.csv", {"": one}, sound={"": one})
    assert fuzz.was(made, None, malicious=False) == fuzz.was(readable, None, malicious=False)


def test_groups_segments_and_times_are_compared(tmp_path: Path) -> None:
    """The plain reader can tell them in every format, and what differs is a finding."""
    command = [sys.executable, fuzz.__file__, "--columns"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120)
    assert result.returncode == 0, result.stderr
    found = {suffix: {*names} for suffix, names in json.loads(result.stdout).items()}
    assert found == {suffix: {"group", "segment", "times"} for suffix in hostile.FORMATS if suffix != ".npy"}


def test_an_input_that_kills_its_process_is_kept_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(rng: random.Random) -> bool:
        Path("content").write_bytes(b"x")
        if rng.random() < 0.2:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    monkeypatch.setattr(fuzz, "KINDS", {"one": (1, act)})
    found = fuzz.batch(1, [*range(20)], tmp_path, None)
    assert sorted(result["number"] for result in found) == [*range(20)]
    crashed = {result["number"] for result in found if result["problem"]}
    assert 0 < len(crashed) < 20
    assert {int(place.name) for place in tmp_path.iterdir()} == crashed


def test_the_command_breaks_no_promise_either(tmp_path: Path) -> None:
    """Whole processes get every file of a run mutated: known exit codes, no traceback, nothing outside --out."""
    rng = random.Random(4)
    files = fuzz.release_files()
    jobs: list[tuple[str, list[bytes], list[str]]] = [
        ("policy.yaml", [fuzz.POLICY, fuzz.SMALL], ["plan", "--policy", "policy.yaml"]),
        ("verdict.json", [files["verdict.json"]], ["report", "."]),
        ("verdict.json", [files["verdict.json"]], ["report", ".", "--format", "html", "-o", "out.html"]),
        ("verdict.json", [files["verdict.json"]], ["verify", "."]),
        ("calibrator.json", [files["calibrator.json"]], ["verify", "."]),
        ("manifest.json", [files["manifest.json"]], ["verify", "."]),
    ]
    for suffix in (".csv", ".parquet", ".arrow"):
        name, content = f"scores{suffix}", hostile.encode(rng, fuzz.sound_rows(1), suffix)
        run = ["run", "--policy", "sound.yaml", "--release", "../v1", "--out", "out", "--force", "--fit", name]
        jobs.append((name, [content], [*run, "--holdout", name]))
    for i, (name, examples, args) in enumerate(jobs):
        place = tmp_path / str(i)
        place.mkdir()
        for file, content in {**files, "sound.yaml": fuzz.SMALL}.items():
            if name != "policy.yaml":
                (place / file).write_bytes(content)
        (place / name).write_bytes(hostile.mutate(rng, examples))
        before = {path.name for path in place.iterdir()} | {"out", "out.html"}
        result = gate(*args, cwd=place)
        details = (name, args[0], result.returncode, result.stderr)
        assert result.returncode in (0, 1, 2, 3), details
        if args[0] == "verify" and (place / name).read_bytes() != files[name]:
            assert result.returncode != 0, details
        assert "Traceback" not in result.stderr, details
        assert {path.name for path in place.iterdir()} <= before, details
        assert {path.name for path in tmp_path.iterdir()} == {str(j) for j in range(i + 1)}, details
        assert all(line.isprintable() for line in result.stderr.splitlines()), details


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
    assert not fuzz.take_ledger(BOMBS[case] + b"\n")  # a last line without a line end counts as torn
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("policy.yaml", "ledger.jsonl")] == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_json_has_no_number_that_is_none(number: str) -> None:
    files = fuzz.release_files()
    record = json.loads(files["verdict.json"])
    record["findings"][0]["rate"]["tally"]["threshold"] = "HERE"
    assert not fuzz.take_record(json.dumps(record).replace('"HERE"', number).encode())
    calibrator = json.loads(files["calibrator.json"])
    calibrator["calibrated"][3] = "HERE"
    assert not fuzz.take_calibrator(json.dumps(calibrator).replace('"HERE"', number).encode())
