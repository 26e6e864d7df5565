"""Hostile input by mutation: policies, score files, records, manifests, calibrators, ledgers and whole releases.

    python tests/fuzz.py --inputs 100000

Every input must be taken or be refused in printable lines that name the file, within SECONDS and MEGABYTES, and no
file may appear that was not asked for. Prints how many of each kind were tried, taken and refused; exits 1 at the
first input that breaks a promise, and keeps that input.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from gate import api, ledger, verification
from gate import policy as policies
from gate.calibration.calibrator import from_json
from gate.errors import GateError
from gate.policy import Columns
from gate.release import manifest_of, parse_record
from gate.report import junit, markdown, terminal
from gate.scores import Scores, read

SECONDS = 20.0  # for one input, on a busy machine
MEGABYTES = 1000  # more than before, for all of a run
ADDRESS_SPACE = 8 << 30  # no header may make gate ask for more

TOKENS = [
    *(b"NaN Infinity -Infinity 1e999 -1 0 1e-400 null true {} [] .nan .inf 0x10 1_0 99% -0.0".split()),
    *(b"*a &a << ? | > - : , % @ ` ' \" # ! !!python/object:os.system --- ... \\ \\ud800 \\u202e".split()),
    *(b"../../etc/passwd /etc/passwd C:\\ . .. calibrator.joblib manifest.json $(touch_x) =1+1 @SUM(1)".split()),
    *(b"<script>alert(1)</script> ::error::x ##[error]x ]]> <!-- -->".split()),
    b"9" * 400,
    b"-" + b"9" * 25,
    b"[" * 3000,
    b'{"a":' * 1500,
    b"a" * 5000,
    b"\x00",
    b"\x1b[31m",
    b"\x9b2J",
    b"\r",
    b"\n\n",
    b"\t",
    "\u202e\u2066\u200b\ufeff".encode(),
    "\U0010ffff".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**63, 10**30, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), "", "x",
    "\u202e", "\x1b[2J", "\ud800", "../x", [], {}, [[]], [None], {"a": 1}, "9" * 300, "2026-02-30T00:00:00Z", "<b>",
    "pass", "fail",
]  # fmt: skip


class BrokenPromiseError(AssertionError):
    """An input that was neither taken nor refused as it should be."""


@dataclass(frozen=True)
class Kind:
    """One kind of input: sound examples, how many of a thousand inputs it gets, and what it goes through."""

    name: str
    examples: list[bytes]
    share: int
    take: Callable[[bytes], bool]


@dataclass
class Count:
    tried: int = 0
    taken: int = 0
    slowest: float = 0.0


# --- mutation -----------------------------------------------------------------------------------------------


def mutate(rng: random.Random, examples: list[bytes]) -> bytes:
    """A sound example with a few things wrong, or garbage."""
    content = bytearray(rng.choice(examples))
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(200))
    if content[:1] == b"{" and rng.random() < 0.6:
        changed = _mutate_json(rng, bytes(content))
        if changed is not None:
            return changed
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        place = rng.randrange(len(content) + 1)
        end = min(len(content), place + rng.choice([1, 1, 2, 8, 60]))
        match rng.randrange(8):
            case 0 if content:
                content[min(place, len(content) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                content[place:end] = b""
            case 2:
                content[place:place] = content[place:end] * rng.choice([1, 2, 50])
            case 3:
                content[place:place] = rng.choice(TOKENS)
            case 4:
                content[place:end] = rng.choice(TOKENS)
            case 5:
                del content[place:]
            case 6:
                content[place:end] = rng.randbytes(end - place)
            case _:
                other = rng.choice(examples)
                start = rng.randrange(len(other) + 1)
                content[place:end] = other[start : start + rng.choice([1, 8, 60, 400])]
    return bytes(content)


def _mutate_json(rng: random.Random, content: bytes) -> bytes | None:
    """The same document with another value, a missing key or a repeated entry somewhere."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    holder, key = rng.choice(list(_places(document)))
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([holder[key] + 1, -holder[key], holder[key] * 1000, str(holder[key])])
        case _:
            holder[key] = rng.choice(VALUES)
    return json.dumps(document, indent=rng.choice([None, 1, 2])).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items)[:30]:
        yield value, key
        yield from _places(part)


# --- what each kind goes through ----------------------------------------------------------------------------


def refused(act: Callable[[], Any], name: str) -> Any:
    """What the act gives, or None where it refuses in lines that name the input and that a terminal may be sent."""
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


def take_policy(content: bytes) -> bool:
    def act() -> Any:
        place = Path("policy.yaml")
        place.write_bytes(content)
        return policies.load(place)

    document = refused(act, "policy.yaml")
    if document is not None and not document.policy.targets:
        raise BrokenPromiseError("a policy without targets was taken")
    return document is not None


def take_scores(name: str) -> Callable[[bytes], bool]:
    def take(content: bytes) -> bool:
        packed = name.endswith(".gz") and not content.startswith(b"\x1f\x8b")  # so that its inside is mutated too
        Path(name).write_bytes(gzip.compress(content) if packed else content)
        columns = Columns() if name.endswith(".npy") else Columns(label="label", id="id", group="id")
        scores = refused(lambda: read([name], columns, (0.0, 1.0)), name)
        if scores is None:
            return False
        if len(scores) < 2 or not ((scores.values >= 0) & (scores.values <= 1)).all():
            raise BrokenPromiseError("scores outside the domain were taken")
        if scores.ids is not None and len(scores.ids) != len(scores):
            raise BrokenPromiseError("rows and their ids differ in number")
        return True

    return take


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


def ledger_line() -> bytes:
    """One judgement of rows with ids, as the ledger keeps it."""
    ids = pa.array(["a", "b", "c"], pa.large_string())
    rows = ledger.rows_of(Scores(np.array([0.1, 0.2, 0.2]), ids=ids))
    Path("ledger.jsonl").unlink(missing_ok=True)
    ledger.claim("ledger.jsonl", rows, "b c", "v1", "2026-03-01T12:00:00Z")
    return Path("ledger.jsonl").read_bytes()


def take_manifest(files: dict[str, bytes]) -> Callable[[bytes], bool]:
    def take(content: bytes) -> bool:
        changed = {**files, "manifest.json": content}
        check = verification._checked("manifest", lambda: verification._check_manifest(changed, []))
        if check.state == "holds" and content != files["manifest.json"]:
            raise BrokenPromiseError("another manifest holds")
        return check.state == "holds"

    return take


def take_release(files: dict[str, bytes], name: str) -> Callable[[bytes], bool]:
    """One file changed, the manifest made to agree again: it holds only where the verdict is the same."""
    original = parse_record(files["verdict.json"], name)

    def take(content: bytes) -> bool:
        changed = {**files, name: content}
        place = Path("release")
        place.mkdir(exist_ok=True)
        for file, text in {**changed, "manifest.json": manifest_of(changed)}.items():
            (place / file).write_bytes(text)
        checks = refused(lambda: verification.verify(place), "release")
        if checks is None or verification.state_of(checks) != "holds":
            return False
        again = parse_record(changed["verdict.json"], name)
        same = (again.outcome, again.findings, again.policy.sha256) == (
            original.outcome,
            original.findings,
            original.policy.sha256,
        )
        if not same or (name != "verdict.json" and content != files[name]):
            raise BrokenPromiseError(f"a release with another {name} holds")
        return True

    return take


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
data: {score: score, label: kind, benign: 0, group: tenant, id: row}
checks: {exchangeability: {alpha: 0.01, required: true}}
reuse: {max_uses: 3}
waivers:
  - {check: fpr@0.01, reason: "known", owner: "@team", expires: 2026-12-31}
"""
SMALL = b"""\
version: 1
name: small
calibration: {knots: 40}
targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]
waivers: [{check: fpr@0.1, reason: until relabelled, owner: "@detections", expires: 2026-12-31}]
"""


def score_files() -> dict[str, bytes]:
    """The same forty rows in every format."""
    rng = np.random.default_rng(3)
    scores, labels = rng.random(40).round(3), np.arange(40) % 2
    ids = [f"r{i % 37}" for i in range(40)]
    table = pa.table({"score": scores, "label": labels, "id": ids})
    files: dict[str, bytes] = {}

    def keep(name: str, write: Callable[[io.BytesIO], Any]) -> None:
        buffer = io.BytesIO()
        write(buffer)
        files[name] = buffer.getvalue()

    keep("scores.parquet", lambda out: pa.parquet.write_table(table, out))
    keep("plain.parquet", lambda out: pa.parquet.write_table(table, out, compression="none", use_dictionary=False))
    keep("scores.csv", lambda out: pa.csv.write_csv(table, out))
    files["scores.tsv"] = files["scores.csv"].replace(b",", b"\t")
    keep("scores.feather", lambda out: pa.feather.write_feather(table, out))
    keep("scores.arrow", lambda out: pa.feather.write_feather(table, out, compression="uncompressed"))
    lines = [json.dumps(row) for row in table.to_pylist()]
    files["scores.jsonl"] = "\n".join(lines).encode()
    keep("scores.npy", lambda out: np.save(out, scores))
    keep("scores.npz", lambda out: np.savez(out, score=scores, label=labels, id=np.array(ids)))
    files["scores.csv.gz"] = gzip.compress(files["scores.csv"])
    files["scores.jsonl.gz"] = gzip.compress(files["scores.jsonl"])
    return files


def release_files(text: bytes = SMALL) -> dict[str, bytes]:
    rng = np.random.default_rng(5)
    document = policies.parse(text.decode(), "policy.yaml")
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    judged = api.run(rng.beta(0.5, 8, 3000), rng.beta(0.5, 8, 3000), release="v1", policy=document, created=noon)
    return {**judged.files, "manifest.json": manifest_of(judged.files)}


def kinds() -> list[Kind]:
    files = release_files()
    record = json.loads(files["verdict.json"])
    short = {**record, "curve": None}
    line = ledger_line()
    formats = score_files()
    default = policies.load_default().text.encode()
    found = [
        Kind("policy", [POLICY, SMALL, POLICY, SMALL, default], 130, take_policy),
        Kind("record", [json.dumps(short).encode()] * 4 + [files["verdict.json"]], 100, take_record),
        Kind("calibrator.json", [files["calibrator.json"]], 80, take_calibrator),
        Kind("manifest.json", [files["manifest.json"]], 140, take_manifest(files)),
        Kind("ledger", [line * 3], 41, take_ledger),
    ]
    for name, content in formats.items():
        inside = [gzip.decompress(content)] if name.endswith(".gz") else []
        found.append(Kind(name, [content, *inside], 46, take_scores(name)))
    own = {name: content for name, content in files.items() if name != "manifest.json"}
    alone = {name: own[name] for name in ("verdict.json", "calibrator.json", "calibrator.joblib")}
    found += [Kind(f"release: {name}", [alone[name]], 1, take_release(alone, name)) for name in alone]
    return found


# --- the run ------------------------------------------------------------------------------------------------


def fuzz(inputs: int, seed: int, place: Path) -> dict[str, Count]:
    """Try so many inputs in all, in the current directory's stead in `place`; raise at the first broken promise."""
    os.chdir(place)
    # The reports of a release follow from its record; that they are compared is tested elsewhere.
    verification.rendered = lambda record: {"verdict.json": record.to_json().encode()}
    counts: dict[str, Count] = {}
    before = peak_megabytes()
    for kind in kinds():
        rng = random.Random(f"{seed} {kind.name}")
        for example in kind.examples:
            if not kind.take(example):
                raise BrokenPromiseError(f"{kind.name}: a sound example must be taken")
        count = counts.setdefault(kind.name, Count())
        for _ in range(max(1, inputs * kind.share // 1000)):
            content = mutate(rng, kind.examples)
            began = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                count.taken += kind.take(content)
            except BaseException:
                Path("broken-input").write_bytes(content)
                print(f"{kind.name}: {place / 'broken-input'} breaks a promise", file=sys.stderr)
                raise
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            count.tried += 1
            count.slowest = max(count.slowest, time.perf_counter() - began)
        if peak_megabytes() - before > MEGABYTES:
            raise BrokenPromiseError(f"{kind.name}: more than {MEGABYTES} MB of memory")
    expected = {"policy.yaml", "ledger.jsonl", "release", *score_files()}
    strangers = {path.name for path in place.iterdir()} - expected
    if strangers:
        raise BrokenPromiseError(f"files appeared that nobody asked for: {sorted(strangers)}")
    return counts


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def too_slow(_number: int, _frame: object) -> None:
    raise BrokenPromiseError(f"one input took more than {SECONDS:g} seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    before = peak_megabytes()
    place = Path(tempfile.mkdtemp(prefix="gate-fuzz-"))
    counts = fuzz(options.inputs, options.seed, place)
    print(f"{'kind':28} {'inputs':>8} {'taken':>8} {'refused':>8} {'slowest':>9}")
    for name, count in counts.items():
        refusals = count.tried - count.taken
        print(f"{name:28} {count.tried:8,} {count.taken:8,} {refusals:8,} {count.slowest:7.2f} s")
    total = sum(count.tried for count in counts.values())
    print(f"{total:,} inputs, seed {options.seed}: no promise broken, {peak_megabytes() - before:,.0f} MB at most")


if __name__ == "__main__":
    main()
