"""Hostile input all the way to an outcome: score files, directories, policies, records, ledgers and whole releases.

    python tests/fuzz.py --inputs 100000 --seed 1     # many; prints how much of what reads them was reached
    python tests/fuzz.py --input 4711 --seed 1        # one again, here, with all that it prints

Every input goes through `gate run` or `gate verify` (or the reader of its kind) in a forked child, so that a crash is
caught. It must be taken, or refused in printable lines, within SECONDS and MEGABYTES, and no file may appear that was
not asked for. Of whatever gate takes, a plain reader that shares no code with it must count the same rows and scores.
Inputs that break a promise are kept, with what they break; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import gc
import json
import math
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import plain
import pyarrow as pa
import pyarrow.parquet
from calls import Result, call
from samples import column_of, sample_of

from gate import gating, ledger
from gate import policy as policies
from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import curve, default_policy, fpr, load_policy, parse_policy
from gate.errors import GateError
from gate.record import parse_record
from gate.report import figures, junit, markdown, terminal
from gate.rows.engine import using
from gate.rows.reading import read
from gate.storage import manifest_of

SECONDS = 20  # of processor time, for one input
PATIENCE = 600  # seconds of the clock, on a busy machine
MEGABYTES = 1000  # more than at the start, for one child
DATA = 8 << 30  # bytes; no header may make gate ask for more
BATCH = 100  # inputs to a child
WATCHED = 20  # one child in so many is watched line by line, which is slow
ROOT = Path(__file__).parent.parent


class BrokenPromiseError(AssertionError):
    """An input was neither taken nor refused as it should be, or its rows were counted otherwise."""


# --- sound examples -----------------------------------------------------------------------------------------

POLICY = b"""\
version: 1
name: production
rule: proven
confidence: 0.95
calibration: {knots: 50, plotting_position: {np: 0.9}, ties: average, domain: [0.0, 1.0]}
contract: [{fpr: 10%, score: 0.1}, {fpr: 1e-2, score: 0.3}]
targets:
  - {fpr: 0.1, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 0.01, min_n: 5_000, max_relative_error: {above: 0.5, below: 1}, required: false}
data: {score: score, label: label, benign_label: 0, group: group, id: id}
checks: {exchangeability: {alpha: 0.01, required: true}}
reuse: {max_uses: 3}
waivers:
  - {check: fpr@0.01, reason: "known", owner: "@team", expires: 2026-12-31}
"""
SMALL = b"""\
version: 1
name: small
calibration: {knots: 40}
contract: [{fpr: 10%, score: 0.5}]
targets: [{fpr: 10%, min_n: 10, max_relative_error: 0.5}]
waivers: [{check: fpr@0.1, reason: until relabelled, owner: "@detections", expires: 2026-12-31}]
"""
PARTS = (
    SMALL
    + b"""\
data: {segment: segment, timestamp: timestamp}
checks:
  segments: {targets: [10%], min_n: 5, max_relative_error: 0.9, expect: [segment0]}
  freshness: {max_age_days: 3000}
"""
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@cache
def sound_rows(seed: int, rows: int = 300) -> pa.Table:
    """Rows with every column, in the types that are common; those of another seed are other rows."""
    rng = np.random.default_rng(seed)
    parts = {name: [f"{name}{i}" for i in rng.integers(0, 3, rows)] for name in ("group", "segment")}
    held = {"score": rng.random(rows), "label": (np.arange(rows) % 5 == 4).astype(int), **parts}
    ids = [f"s{seed}-{i}" for i in range(rows)]
    return pa.table({**held, "id": ids, "timestamp": rng.integers(1_700_000_000, 1_770_000_000, rows)})


@cache
def release_files(text: bytes = SMALL) -> dict[str, bytes]:
    document = parse_policy(text.decode(), "policy.yaml")
    samples = (np.asarray(sound_rows(seed)["score"]) for seed in (1, 2))
    judged = gating.run(*samples, release="v1", policy=document, created=NOON)
    return {**judged.files, "manifest.json": manifest_of(judged.files)}


# --- what each kind goes through: True where it was taken, False where it was refused ------------------------------


def refused(act: Callable[[], Any], name: str) -> Any:
    """The result of the act, or None if it refuses in lines that name the input and are safe for a terminal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return act()
    except GateError as error:
        lines = str(error).split("\n")
        for line in lines:
            if not (line.isprintable() and name in line and len(line) < 2000):
                raise BrokenPromiseError(f"a refusal must be printable and name {name}, got {line[:300]!r}") from None
        return None


def gate(*arguments: str) -> Result:
    """A command in this process; exit codes are as documented and what it says may be sent to a terminal."""
    result = call(*arguments)
    message = f"gate {' '.join(arguments)}: exit {result.code}: {result.stderr[-1500:]}"
    if result.code not in (0, 1, 2, 3):
        raise BrokenPromiseError(message)
    if not all(line.isprintable() and len(line) < 2000 for line in result.stderr.splitlines()):
        raise BrokenPromiseError(f"must be printable: {message!r}")
    if result.code == 2 and not result.stderr.strip():
        raise BrokenPromiseError(f"must say why: {message}")
    return result


def write(made: hostile.Files) -> None:
    """Put the files of one argument where it says."""
    for place, content in made.files.items():
        path = Path(made.name, place) if place else Path(made.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for place, target in made.links.items():
        with contextlib.suppress(FileExistsError):
            Path(made.name, place).symlink_to(target)


def scores(rng: random.Random) -> bool:
    """A drawn file or directory in one of the places where `gate run` reads scores."""
    role = rng.choice(["holdout", "holdout", "holdout", "holdout", "fit", "malicious", "benign"])
    return judge_scores(rng, hostile.files(rng, role), role)


def judge_scores(rng: random.Random, made: hostile.Files, role: str = "holdout") -> bool:
    write(made)
    for name, seed in (("sound-fit", 1), ("sound-holdout", 2)):
        pa.parquet.write_table(sound_rows(seed), f"{name}.parquet")
    both = {"segment", "timestamp"} <= {*made.columns}
    Path("policy.yaml").write_bytes(PARTS if both and rng.random() < 0.7 else SMALL)
    arguments = ["run", "--policy", "policy.yaml", "--release", "v1", "--out", "out", "--dry-run", "--json"]
    for name in made.columns:
        arguments += ["--set", f"data.{name}={name}"]
    samples = {"fit": "sound-fit.parquet", "holdout": "sound-holdout.parquet", role: made.name}
    if role == "benign":
        samples = {role: made.name}
        arguments += ["--split", "0.5", "--seed", str(rng.randrange(9))]
    for name, path in samples.items():
        arguments += [f"--{name}", path]
    if rng.random() < 0.04:  # larger than the memory: the files are read in parts, and sorted on disk
        arguments += ["--memory", rng.choice(["500B", "5kB", "50kB"]), "--scratch", "."]
    result = gate(*arguments)
    if result.code == 2:
        return False
    record = json.loads(result.stdout)
    label = "label" if "label" in made.columns else None
    malicious = role == "malicious"
    read = outside(lambda: read_plainly(Path(made.name), label, malicious))
    compare(made.name, role, record, read, lambda: was(made, label, malicious))
    compare_others(made, label, malicious)
    return True


def compare_others(
    made: hostile.Files, label: str | None, malicious: bool, ask: Callable[..., Any] | None = None
) -> None:
    """Compare groups, segments and times of rows by gate and by the plain reader, if that one can tell."""
    names = tuple(name for name in ("group", "segment") if name in made.columns)
    timestamp = "timestamp" if "timestamp" in made.columns else None
    if not names and timestamp is None:
        return
    columns = policies.Columns(label=label, timestamp=timestamp, **{name: name for name in names})
    try:
        with using():
            found = read([made.name], columns, (0.0, 1.0), "malicious" if malicious else "benign")
            values = column_of(found)
            roles = {"group": "grp", "segment": "segment"}
            parts: dict[str, Any] = {name: plain.parts_of(values, column_of(found, roles[name])) for name in names}
            parts["times"] = plain.times_of(values, column_of(found, "time")) if timestamp else []
    except GateError:  # the run does not need all columns of malicious rows
        return

    def read_again() -> dict[str, Any]:
        rows = plain.read(Path(made.name), "score", label, "0", malicious, names, timestamp)
        return {name: rows.parts(name) for name in names} | {"times": rows.times(timestamp) if timestamp else []}

    plainly = (ask or outside)(read_again)
    if "problem" in plainly:
        return
    for name in names:
        if parts[name] != plainly[name]:
            raise BrokenPromiseError(f"{made.name}: gate puts other rows into one {name} than the plain reader")
    for ours, theirs in zip(parts["times"], plainly["times"], strict=True):
        if ours[0] != theirs[0] or abs(ours[1] - theirs[1]) > 1:
            raise BrokenPromiseError(f"{made.name}: gate dates {ours} where the plain reader has {theirs}")


def notice_differences(suffix: str) -> list[str]:
    """Which of the columns beside the score are compared in files of this format: those where a difference is found."""
    content = hostile.encode(random.Random(3), sound_rows(3), suffix)
    made = hostile.Files(f"holdout{suffix}", {"": content}, ("label", "group", "segment", "timestamp"))
    write(made)
    collected: list[dict[str, Any]] = []

    def collect(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        collected.append(outside(act))
        return collected[-1]

    compare_others(made, "label", malicious=False, ask=collect)
    noticed = []
    for name, found in collected[0].items():
        other = [[score, time + 9] for score, time in found] if name == "times" else ""
        changed = {**collected[0], name: other}
        try:
            compare_others(made, "label", malicious=False, ask=lambda _, changed=changed: changed)
        except BrokenPromiseError as broken:
            noticed += [name] if "the plain reader" in str(broken) else []
    return noticed


def was(made: hostile.Files, label: str | None, malicious: bool) -> dict[str, Any]:
    """What the plain reader finds in the same files without the changes that it stumbles over, each tried by itself."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, made.name)
        files = {**made.files, **made.sound}
        steps = [(name, slice(0, 0)) for name in made.sound]  # first change nothing
        steps += [(name, part) for name, sound in made.sound.items() for part in changed_parts(sound, made.files[name])]
        for name, part in steps:
            before = files[name]
            files[name] = before[: part.start] + made.files[name][part] + before[part.stop :]
            write(hostile.Files(str(path), files))
            read = outside(lambda: read_plainly(path, label, malicious))
            if "problem" in read and found:
                files[name] = before
            else:
                found = read
    return found


def changed_parts(sound: bytes, content: bytes) -> list[slice]:
    """The runs of bytes that differ; none if bytes were added or left out, or if there are too many runs to try."""
    if len(sound) != len(content):
        return []
    differs = np.frombuffer(sound, np.uint8) != np.frombuffer(content, np.uint8)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], differs, [False]]).astype(np.int8))).tolist()
    parts = [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return parts if len(parts) <= 20 else []


def read_plainly(path: Path, label: str | None, malicious: bool) -> dict[str, Any]:
    found = plain.read(path, "score", label, "0", malicious)
    return {"rows": found.rows, "n": len(found.scores), "sha256": found.sha256}


def compare(
    name: str, role: str, record: dict[str, Any], read: dict[str, Any], was: Callable[[], dict[str, Any]]
) -> None:
    """Compare gate's counts with the plain reader's.

    A plain reader may refuse what gate has no need to look at. Then gate must have counted what was once written.
    """
    problem = read.get("problem")
    read = was() if problem else read
    if "problem" in read:
        raise BrokenPromiseError(f"{name}: gate took it, the plain reader does not: {problem}; {read['problem']}")
    section = record["fit" if role == "benign" else role]
    counted = {"rows": sum(source["rows"] for source in section["sources"]), "n": section["n"]}
    repeats = [
        (record["checks"]["duplicates"] or {}).get(name)
        for name in (["fit", "holdout"] if role == "benign" else [role])
    ]
    repeated = sum(found["repeated"] for found in repeats if found)
    counted["n"] += repeated  # rows with the id of another count once, which the plain reader does not know
    if role == "benign":
        counted["n"] += record["holdout"]["n"]
    elif not repeated and not {"group", "segment"} & {*record["data"]}:  # compare_others has the scores of these
        counted["sha256"] = section["sha256"]
    expected = {key: read[key] for key in counted}
    if counted != expected:
        raise BrokenPromiseError(f"{name}: gate counts {counted}, the plain reader {expected} {problem or ''}")


def outside(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of the act in a child of its own, because other readers may crash too, which is no fault of gate.

    The process that asks must not have used polars itself: its threads are not in a fork, which would wait for them.
    """
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # polars prints where its own code panics
            try:
                found = act()
            except BaseException as error:
                found = {"problem": f"{type(error).__name__}: {error}"[:500]}
            os.write(sending, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return dict(json.loads(answer)) if answer else {"problem": f"ended with status {status}"}


def verified_data(rng: random.Random) -> bool:
    """A sound release beside data that may be its own: it holds only where the plain reader finds the same scores."""
    files = release_files()
    write(hostile.Files("release", files))
    kind = rng.choice(["fit", "holdout"])
    suffix = rng.choice(hostile.FORMATS)
    rows = sound_rows(1 if kind == "fit" else 2).select(["score"])
    content = hostile.encode(rng, rows, suffix)
    made = hostile.Files(kind + suffix, {"": hostile.spoil(rng, content, suffix, rows.num_rows)})
    write(made)
    Path("policy.yaml").write_bytes(SMALL)
    other = "holdout" if kind == "fit" else "fit"
    np.save(f"other-{other}.npy", np.asarray(sound_rows(1 if other == "fit" else 2)["score"]))
    data = [f"--{kind}", made.name, f"--{other}", f"other-{other}.npy"]
    result = gate("verify", "release", "--policy", "policy.yaml", *data)
    if f"holds: {kind}:" not in result.stdout.replace("does not holds", ""):
        return False
    record = json.loads(files["verdict.json"])
    read = outside(lambda: read_plainly(Path(made.name), None, False))
    if read.get("sha256") != record[kind]["sha256"]:
        raise BrokenPromiseError(f"{made.name} holds as {kind}, the plain reader has {read}")
    return result.code == 0


def _alike(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of a float, which another version of a library may compute otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other and type(one) is type(other))


FREE = ("created", "judged_on", "tool", "release", "policy")  # values that do not follow from the data


def release(rng: random.Random) -> bool:
    """A release with one file changed, mostly sealed again: it holds, data given, only where nothing was changed."""
    sound = release_files()
    files = dict(sound)
    name = rng.choice(["verdict.json", "verdict.json", "calibrator.json", "manifest.json", "calibrator.joblib"])
    files[name] = hostile.mutate(rng, [files[name]])
    if rng.random() < 0.05:
        files[rng.choice(["extra.txt", "calibrator.pkl", "report.html.bak"])] = b"x"
    if rng.random() < 0.8 and name != "manifest.json":
        files["manifest.json"] = manifest_of({key: value for key, value in files.items() if key != "manifest.json"})
    write(hostile.Files("release", files))
    arguments = ["verify", "release"]
    if rng.random() < 0.6:
        for kind, seed in (("fit", 1), ("holdout", 2)):
            np.save(f"{kind}.npy", np.asarray(sound_rows(seed)["score"]))
            arguments += [f"--{kind}", f"{kind}.npy"]
        Path("policy.yaml").write_bytes(SMALL)
        arguments += ["--policy", "policy.yaml"]
    result = gate(*arguments)
    if result.code == 0 and files != sound:
        was, is_ = (json.loads(f["verdict.json"]) for f in (sound, files))
        differing = {key for key in {**was, **is_} if not _alike(was.get(key), is_.get(key))}
        if name != "verdict.json" or not differing <= {*FREE}:
            raise BrokenPromiseError(f"a release with another {name} holds; it differs in {sorted(differing)}")
    return result.code == 0


def take_policy(content: bytes) -> bool:
    Path("policy.yaml").write_bytes(content)
    document = refused(lambda: load_policy(Path("policy.yaml")), "policy.yaml")
    if document is not None and not document.policy.targets:
        raise BrokenPromiseError("a policy without targets was taken")
    return document is not None


def policy(rng: random.Random) -> bool:
    """A drawn policy, which a sound run is judged by."""
    if not take_policy(hostile.mutate(rng, [POLICY, SMALL, PARTS, default_policy().text.encode()])):
        return False
    for name, seed in (("fit", 1), ("holdout", 2)):
        pa.parquet.write_table(sound_rows(seed), f"{name}.parquet")
    samples = ["--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    result = gate("run", "--policy", "policy.yaml", "--release", "v", *samples, "--dry-run", "--ledger", "ledger.jsonl")
    return result.code != 2


def take_record(content: bytes) -> bool:
    record = refused(lambda: parse_record(content, "verdict.json"), "verdict.json")
    if record is None:
        return False
    for text in (terminal.render(record, width=80, color=False), markdown.render(record), junit.render(record)):
        text.encode()
        if any(line.startswith("::") or "##[" in line for line in text.split("\n")):
            raise BrokenPromiseError("a report holds a command of the CI system")
        if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in {*text} - {"\n"}):
            raise BrokenPromiseError("a report holds control characters")
    return True


def take_calibrator(content: bytes) -> bool:
    calibrator = refused(lambda: from_json(content.decode(errors="replace")), "calibrator.json")
    if calibrator is None:
        return False
    low, high = calibrator.settings.domain
    predicted = calibrator.predict(np.linspace(low, high, 50))
    if not (np.diff(predicted) >= 0).all():
        raise BrokenPromiseError("a calibrator that falls was taken")
    return True


def take_ledger(content: bytes) -> bool:
    Path("ledger.jsonl").write_bytes(content)
    return refused(lambda: ledger.read("ledger.jsonl"), "ledger.jsonl") is not None


def changed(take: Callable[[bytes], bool], example: Callable[[], list[bytes]]) -> Callable[[random.Random], bool]:
    """Run the reader of one kind of file on a mutated example."""

    def act(rng: random.Random) -> bool:
        content = hostile.mutate(rng, example())
        Path("content").write_bytes(content)
        return take(content)

    return act


def _records() -> list[bytes]:
    text = release_files()["verdict.json"]
    return [json.dumps({**json.loads(text), "curve": None}).encode()] * 4 + [text]


def _ledgers() -> list[bytes]:
    return [ledger_line() * 3]


@cache
def ledger_line() -> bytes:
    """One judgement of rows with ids, as the ledger keeps it."""
    with tempfile.TemporaryDirectory() as place, using():
        rows = ledger.rows_of(sample_of([0.1, 0.2, 0.2], ids=["a", "b", "c"]))
        path = Path(place, "ledger.jsonl")
        ledger.claim(str(path), rows, "b c", "v1", "2026-03-01T12:00:00Z")
        return path.read_bytes()


KINDS: dict[str, tuple[int, Callable[[random.Random], bool]]] = {  # how many of a hundred inputs
    "scores": (78, scores),
    "data to verify": (3, verified_data),
    "release": (3, release),
    "policy": (5, policy),
    "record": (4, changed(take_record, _records)),
    "calibrator": (4, changed(take_calibrator, lambda: [release_files()["calibrator.json"]])),
    "ledger": (3, changed(take_ledger, _ledgers)),
}
EXPECTED = {
    "policy.yaml", "sound-fit.parquet", "sound-holdout.parquet", "release", "content", "ledger.jsonl", "fit.npy",
    "holdout.npy", "fit.parquet", "holdout.parquet", "other-fit.npy", "other-holdout.npy",
}  # fmt: skip


# --- one input ----------------------------------------------------------------------------------------------


def kind_of(rng: random.Random) -> str:
    return rng.choices([*KINDS], [share for share, _ in KINDS.values()])[0]


def attempt(seed: int, number: int) -> dict[str, Any]:
    """Make one input in the current directory and put it through; what came of it."""
    rng = random.Random(f"{seed} {number}")
    kind = kind_of(rng)
    began, state = time.perf_counter(), "refused"
    problem = None
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        state = "taken" if KINDS[kind][1](rng) else "refused"
        named = {path.name for path in Path().iterdir()}
        unexpected = {
            name for name in named - EXPECTED if not name.startswith(("holdout", "fit", "malicious", "benign"))
        }
        if unexpected:
            raise BrokenPromiseError(f"files appeared that nobody asked for: {sorted(unexpected)}")
    except BrokenPromiseError as broken:
        problem = str(broken)
    except Exception as error:
        problem = "".join(traceback.format_exception(error))[-1500:]
    for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
        signal.setitimer(timer, 0)
    return {"number": number, "kind": kind, "state": state, "problem": problem, "took": time.perf_counter() - began}


# --- lines reached ------------------------------------------------------------------------------------------


class Lines:
    """The lines of some modules that were reached, in memory that all children share."""

    def __init__(self, places: list[Path]) -> None:
        self.places: dict[str, tuple[int, set[int]]] = {}
        start = 0
        for file in sorted(file for place in places for file in ([place] if place.is_file() else place.glob("*.py"))):
            lines = set(_lines(compile(file.read_text(encoding="utf-8"), str(file), "exec")))
            if lines:
                self.places[str(file)] = (start, lines)
                start += max(lines) + 1
        self.seen = mmap.mmap(-1, max(start, 1))

    def watch(self, frame: types.FrameType, _event: str, _argument: object) -> Any:
        place = self.places.get(frame.f_code.co_filename)
        if place is None:
            return None
        start, seen = place[0], self.seen

        def line(frame: types.FrameType, _event: str, _argument: object) -> Any:
            seen[start + frame.f_lineno] = 1
            return line

        return line(frame, _event, _argument)

    def reached(self) -> dict[str, tuple[int, int, list[int]]]:
        """The number of lines inside functions reached, the number of all, and the lines not reached."""
        found = {}
        for file, (start, lines) in self.places.items():
            missed = sorted(line for line in lines if not self.seen[start + line])
            found[str(Path(file).relative_to(ROOT))] = (len(lines) - len(missed), len(lines), missed)
        return found


def _lines(code: types.CodeType, inside: bool = False) -> Iterator[int]:
    """The lines of all functions; those of a module are run when it is imported, which says nothing."""
    if inside:
        yield from (line for _, line in dis.findlinestarts(code) if line is not None)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _lines(part, inside or part.co_flags & 0x02 != 0)


# --- the run ------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Import everything, once, for all children, and leave out what costs most and reads nothing."""
    figures.to_svg = lambda display, name, *_, **__: f"<svg id='{name}'></svg>"
    import duckdb  # noqa: F401
    import polars  # noqa: F401

    curve.STEPS = 10  # points of a figure; each asks what groups are worth
    vars(fpr)["plan_warnings"] = (
        lambda *_, **__: ()
    )  # the planner's advice follows from counts, and takes longer than all else
    policies.parse = cache(policies.parse)
    remember_predictions()
    release_files()
    rng, before = random.Random(1), Path.cwd()
    with tempfile.TemporaryDirectory() as place:  # so that children find what the first run imports and computes
        os.chdir(place)
        content = hostile.encode(rng, sound_rows(3), ".parquet")
        judge_scores(rng, hostile.Files("holdout.parquet", {"": content}, hostile.COLUMNS))
        os.chdir(before)


def remember_predictions() -> None:
    """Thresholds are found by bisection, a hundred predictions each time, mostly of one and the same calibrator."""
    predict, known = Calibrator.predict, dict[bytes, Any]()

    def remembered(self: Calibrator, scores: Any) -> Any:
        asked = np.asarray(scores, dtype=np.float64)
        if len(known) > 50_000:
            known.clear()
        domain = np.array(self.settings.domain)
        key = b"|".join(part.tobytes() for part in (*self.knots, domain, asked))
        if key not in known:
            known[key] = predict(self, scores)
        return known[key].copy()

    Calibrator.predict = remembered  # type: ignore[method-assign]


def too_slow(_number: int, _frame: object) -> None:
    raise BrokenPromiseError(f"one input took more than {SECONDS} seconds of the processor or {PATIENCE} of the clock")


def limit_time() -> None:
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, too_slow)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _work(seed: int, numbers: list[int], place: Path, sending: int, lines: Lines | None) -> None:
    """A child's inputs one after another, each in a directory that is removed where no promise was broken."""
    limit_time()
    resource.setrlimit(resource.RLIMIT_DATA, (DATA, DATA))
    before = peak_megabytes()
    for number in numbers:
        if lines is not None:  # an input that exhausts the stack has ended the last watch
            sys.settrace(lines.watch)
            threading.settrace(lines.watch)  # files are read in another thread
        os.write(sending, f'{{"begins": {number}}}\n'.encode())
        here = place / str(number)
        here.mkdir()
        os.chdir(here)
        found = attempt(seed, number)
        if peak_megabytes() - before > MEGABYTES:
            found["problem"] = found["problem"] or f"more than {MEGABYTES} MB of memory"
        os.chdir(place)
        if found["problem"] is None:
            shutil.rmtree(here)
        os.write(sending, json.dumps(found).encode() + b"\n")


def batch(seed: int, numbers: list[int], place: Path, lines: Lines | None) -> list[dict[str, Any]]:
    """What came of some inputs, tried in a child; one on which the child dies is a finding, and the others go on."""
    receiving, sending = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receiving)
            _work(seed, numbers, place, sending, lines)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        reports = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    found = [line for line in reports if "kind" in line]
    if status == 0:
        return found
    begun = [line["begins"] for line in reports if "begins" in line][-1]
    kind = kind_of(random.Random(f"{seed} {begun}"))
    ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
    found.append({"number": begun, "kind": kind, "state": "crash", "problem": f"ended by {ended}", "took": 0.0})
    rest = numbers[numbers.index(begun) + 1 :]
    return found + (batch(seed, rest, place, lines) if rest else [])


def fuzz(inputs: int, seed: int, place: Path, most: int) -> tuple[list[dict[str, Any]], Lines]:
    """Try so many inputs in all, unless there are too many findings before."""
    lines = Lines([ROOT / "gate" / "rows", ROOT / "gate" / "inspection", ROOT / "gate" / "verification"])
    results: list[dict[str, Any]] = []
    gc.freeze()  # so that children share the memory of what was imported
    for start in range(0, inputs, BATCH):
        numbers = [*range(start, min(start + BATCH, inputs))]
        found = batch(seed, numbers, place, lines if start // BATCH % WATCHED == 0 else None)
        for broken in (result for result in found if result["problem"]):
            print(f"input {broken['number']} ({broken['kind']}): {broken['problem']}\n", flush=True)
        results += found
        if sum(result["problem"] is not None for result in results) >= most:
            print("too many findings; stopped")
            break
    return results, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=int, help="only this one, in this process")
    parser.add_argument("--findings", type=int, default=25, help="stop after so many")
    parser.add_argument("--missing", action="store_true", help="print the lines that were not reached")
    parser.add_argument("--columns", action="store_true", help="print which columns are compared in which format")
    options = parser.parse_args()
    if options.columns:
        suffixes = [suffix for suffix in hostile.FORMATS if suffix != ".npy"]
        print(json.dumps({suffix: notice_differences(suffix) for suffix in suffixes}), flush=True)
        os._exit(0)
    prepare()
    place = Path(tempfile.mkdtemp(prefix="gate-fuzz-"))
    if options.input is not None:
        os.chdir(place)
        limit_time()
        print(json.dumps(attempt(options.seed, options.input), indent=2), f"\n{place}")
        return
    results, lines = fuzz(options.inputs, options.seed, place, options.findings)
    print(f"{'kind':16} {'inputs':>8} {'taken':>8} {'refused':>8} {'findings':>8} {'slowest':>9}")
    for kind in KINDS:
        of_kind = [result for result in results if result["kind"] == kind]
        states = Counter(result["state"] for result in of_kind)
        findings = sum(result["problem"] is not None for result in of_kind)
        slowest = max((result["took"] for result in of_kind), default=0.0)
        print(f"{kind:16} {len(of_kind):8,} {states['taken']:8,} {states['refused']:8,} {findings:8,} {slowest:7.2f} s")
    for file, (seen, total, missed) in lines.reached().items():
        print(f"{file}: {seen} of {total} lines reached ({seen / total:.0%})")
        if options.missing:
            print(f"  not: {', '.join(map(str, missed))}")
    findings = sum(result["problem"] is not None for result in results)
    if findings:
        print(f"{len(results):,} inputs, seed {options.seed}: {findings} findings, kept in {place}")
    else:
        shutil.rmtree(place)
        print(f"{len(results):,} inputs, seed {options.seed}: no promise broken")
    sys.stdout.flush()
    os._exit(1 if findings else 0)  # DuckDB would list what it leaks


if __name__ == "__main__":
    main()
