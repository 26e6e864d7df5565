"""The whole job on drawn sizes, shapes, policies and options: no case may crash, and what was written must verify.

    python tests/drawn_runs.py --cases 5000 --seed 3     # many, at the desk
    python tests/drawn_runs.py --case 17 --seed 0        # one again, with all that it prints

A case follows from its seed and number alone. Held-out rows are also counted here, by NumPy and without gate.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from calls import Result, call
from numpy.typing import NDArray

from gate.checks import fpr
from gate.cli import EXIT_CODES
from gate.contract import PAPER_ANCHORS
from gate.report import figures

CASES, SEED = 200, 0
SECONDS = 120  # of processor time, for one case
LARGEST = 100_000
MOMENT = 1_790_000_000  # seconds since 1970: no row is newer

Floats = NDArray[np.float64]
Rng = np.random.Generator


# --- shapes of samples --------------------------------------------------------------------------------------


def steps(start: float, count: NDArray[np.int64]) -> Floats:
    """The floats so many places above a start, denormal ones too."""
    away = np.nextafter(start, math.inf) - start
    return start + count * away


def atoms(rng: Rng, n: int, low: float, high: float) -> Floats:
    places = low + (high - low) * rng.random(int(rng.integers(1, 12)))
    weights = 1 / np.arange(1, len(places) + 1) ** 2
    return rng.choice(places, n, p=weights / weights.sum())


def smooth(rng: Rng, n: int, low: float, high: float) -> Floats:
    return low + (high - low) * rng.beta(0.5, 8, n)


def mixed(rng: Rng, n: int, low: float, high: float) -> Floats:
    """Mostly smooth, with rows at both ends, in one atom, and zeros of both signs."""
    values = smooth(rng, n, low, high)
    for place in (low, high, low + (high - low) / 3, 0.0, -0.0):
        values[rng.random(n) < rng.choice([0.0, 0.02, 0.3])] = place
    return values


SHAPES: dict[str, Callable[[Rng, int, float, float], Floats]] = {
    "smooth": smooth,
    "uniform": lambda rng, n, low, high: low + (high - low) * rng.random(n),
    "logistic": lambda rng, n, low, high: rng.logistic((low + high) / 2, (high - low) / 40, n),
    "single precision": lambda rng, n, low, high: (
        low + (high - low) * rng.beta(0.5, 8, n).astype(np.float32).astype(np.float64)
    ),
    "tied": lambda rng, n, low, high: low + (high - low) * rng.beta(0.5, 8, n).round(int(rng.integers(1, 4))),
    "atoms": atoms,
    "mixed": mixed,
    "constant": lambda rng, n, low, high: np.full(n, rng.choice([low, high, low + (high - low) / 2])),
    "two-valued": lambda rng, n, low, high: rng.choice(low + (high - low) * rng.random(2), n),
    "at the ends": lambda rng, n, low, high: rng.choice([low, high], n, p=[0.9, 0.1]),
    "denormal": lambda rng, n, low, high: steps(low, rng.integers(0, 1 + int(10 ** rng.uniform(0, 6)), n)),
    "neighbours": lambda rng, n, low, high: steps(low + (high - low) / 2, rng.integers(0, 2 + n // 3, n)),
    "no two alike": lambda rng, n, low, high: np.linspace(low, high, n)[rng.permutation(n)],
}


def domain(rng: Rng) -> tuple[float, float]:
    """The domain of scores: mostly [0, 1], else logits, bytes, or so few floats that scores use each of them."""
    places = int(rng.integers(1, 40))
    others = [(-30.0, 30.0), (0.0, 255.0), (-1e39, 1e39), (0.0, 1e-39), (1.0, 1.0 + places * 2**-52), (-2.0, -1.0)]
    return (0.0, 1.0) if rng.random() < 0.6 else others[int(rng.integers(len(others)))]


def size(rng: Rng, largest: int = LARGEST) -> int:
    return int(math.exp(rng.uniform(math.log(2), math.log(largest + 1))))


# --- one case -----------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """Rows to be written: columns by name, and the scores among them that gate should take."""

    shape: str
    columns: dict[str, Any]
    taken: Floats
    file: str = ""


@dataclass
class Case:
    """Everything that one run is given."""

    seed: int
    number: int
    policy: dict[str, Any] | None  # None: the built-in one
    samples: dict[str, Sample]
    arguments: list[str] = field(default_factory=list)
    whole: bool = False  # with figures and the planner's advice, which take longer than all else
    follows: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"case {self.number} of seed {self.seed}; again: python tests/drawn_runs.py {self.again}"]
        lines += [f"  {name}: {len(s.taken):,} rows, {s.shape}, {s.file}" for name, s in self.samples.items()]
        lines += [f"  gate run {' '.join(self.arguments)}; then {', '.join(self.follows) or 'nothing'}"]
        return "\n".join([*lines, f"  policy: {json.dumps(self.policy)}"])

    @property
    def again(self) -> str:
        return f"--case {self.number} --seed {self.seed}"


def draw(seed: int, number: int) -> Case:
    rng = np.random.default_rng([seed, number])
    names = {name: rng.random() < share for name, share in SHARES.items()}
    names["count"] &= not (names["id"] or names["group"] or names["split"])  # rows that stand for many have no names
    bounds = domain(rng)
    built_in = bounds == (0.0, 1.0) and rng.random() < 0.2
    columns = columns_of(rng, names)
    policy = None if built_in else policy_of(rng, names, bounds, columns)
    shape = pick(rng, [*SHAPES])
    kinds = ["benign"] if names["split"] else ["fit", "holdout"]
    kinds += ["malicious"] if names["malicious"] else []
    samples = {}
    for kind in kinds:
        own = pick(rng, [*SHAPES]) if kind == "malicious" or rng.random() < 0.15 else shape
        samples[kind] = sample(rng, kind, own, bounds, columns, names)
    case = Case(seed, number, policy, samples, whole=number % 10 == 0)
    case.arguments = arguments_of(rng, case, columns, names, in_policy=not built_in and rng.random() < 0.5)
    follows = [name for name, share in FOLLOWS.items() if rng.random() < share]
    case.follows = () if names["dry run"] else tuple(follows)
    return case


SHARES = {
    "label": 0.25, "segment": 0.25, "group": 0.25, "id": 0.3, "timestamp": 0.2, "split": 0.25, "malicious": 0.3,
    "reuse": 0.1, "ledger": 0.1, "dry run": 0.15, "json": 0.3, "out": 0.5, "count": 0.25,
}  # fmt: skip
FOLLOWS = {"verify": 0.4, "check": 0.2, "baseline": 0.2, "report": 0.2, "compare": 0.1, "history": 0.1, "repeat": 0.1}


def pick(rng: Rng, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def columns_of(rng: Rng, names: dict[str, bool]) -> dict[str, Any]:
    """The `data:` of the policy: names of columns, which need not be ordinary words."""
    columns: dict[str, Any] = {"score": pick(rng, ["score", "score", "p(x)", "Ä b"])}
    for name in ("label", "segment", "group", "id", "timestamp"):
        if names[name]:
            columns[name] = pick(rng, [name, name, f"the {name}", f"{name}=x"])
    if names["count"]:
        columns["count"] = pick(rng, ["count", "n"])
    if names["label"]:
        columns["benign_label"] = pick(rng, [0, 1, "benign", "false"])
    return columns


def policy_of(rng: Rng, names: dict[str, bool], bounds: tuple[float, float], columns: dict[str, Any]) -> dict[str, Any]:
    contract = [{"fpr": float(a.fpr), "score": float(a.score)} for a in PAPER_ANCHORS]
    policy: dict[str, Any] = {"version": 1, "name": f"drawn {pick(rng, ['policy', 'Übung', '<b>', '::x', '##[x]'])}"}
    if rng.random() < 0.4:
        points = int(rng.integers(1, 9))
        rates = sorted({float(f"{10 ** rng.uniform(-6, -0.01):.3g}") for _ in range(points)}, reverse=True)
        scores = np.linspace(0.01, 0.98, len(rates) + 2)[1:-1].round(4)
        contract = [{"fpr": rate, "score": float(score)} for rate, score in zip(rates, scores, strict=True)]
        policy["contract"] = contract
    anchors = [point["fpr"] for point in contract]
    policy["rule"] = pick(rng, ["proven", "observed", "not-refuted"])
    policy["confidence"] = pick(rng, [0.5, 0.8, 0.95, 0.99, 0.999999])
    policy["calibration"] = {
        "knots": int(10 ** rng.uniform(math.log10(11.01), 4.0)),
        "plotting_position": pick(rng, ["filliben", "mean", "median", "conformal", {"np": 0.9}, {"np": 0.5}]),
        "ties": pick(rng, ["conservative", "average"]),
        "domain": list(bounds),
    }
    some = rng.permutation(len(anchors))[: int(rng.integers(1, 5))]
    policy["targets"] = [target(rng, anchors[i]) for i in some]
    if len(anchors) > 1 and rng.random() < 0.3:
        ends = sorted(anchors, reverse=True)
        first = int(rng.integers(len(ends) - 1))
        judged = target(rng, ends[first])
        policy["ranges"] = [{"from": judged.pop("fpr"), "to": ends[int(rng.integers(first + 1, len(ends)))], **judged}]
    if not names["group"] and rng.random() < 0.15:
        policy["interval"] = "sequential"
    policy["checks"] = checks_of(rng, names, anchors)
    policy["waivers"] = waivers_of(rng, policy)
    if names["reuse"]:
        policy["reuse"] = {"max_uses": int(rng.integers(1, 4))}
    if "benign_label" in columns:
        policy["data"] = {"benign_label": columns["benign_label"]}
    return policy


def target(rng: Rng, rate: float) -> dict[str, Any]:
    return {
        "fpr": rate,
        "min_n": pick(rng, [1, 10, 1000, 100_000]),
        "max_relative_error": tolerance(rng),
        "required": bool(rng.random() < 0.8),
    }


def tolerance(rng: Rng) -> Any:
    two = {"above": pick(rng, [0.05, 0.5, 1, 1000]), "below": pick(rng, [0.05, 0.5, 1, 1000])}
    return pick(rng, [0.1, 0.5, 0.9, {"above": 0.5, "below": 1}, two])


def checks_of(rng: Rng, names: dict[str, bool], anchors: list[float]) -> dict[str, Any]:
    required = lambda: bool(rng.random() < 0.5)  # noqa: E731
    some = [anchors[i] for i in rng.permutation(len(anchors))[:2]]
    checks: dict[str, Any] = {
        "overlap": {"max_share": pick(rng, [0, 0.001, 0.5]), "required": required()},
        "duplicates": {"max_share": pick(rng, [0, 0.001, 0.5]), "required": required()},
        "direction": {"required": required()},
        "exchangeability": {"alpha": pick(rng, [0.0001, 0.01, 0.2]), "required": required()},
        "granularity": {"required": required()},
        "floor": {"required": required()},
    }
    checks = {name: settings for name, settings in checks.items() if rng.random() < 0.5}
    if names["timestamp"] and rng.random() < 0.7:
        checks["freshness"] = {"max_age_days": pick(rng, [1, 30, 36_500]), "required": required()}
    if names["segment"] and rng.random() < 0.8:
        expect = pick(rng, [[], ["de", "en"], ["none of them"]])
        checks["segments"] = {
            "targets": some,
            "min_n": pick(rng, [1, 50, 5000]),
            "max_relative_error": tolerance(rng),
            "required": required(),
            "expect": expect,
        }
    if rng.random() < (0.6 if names["malicious"] else 0.05):
        targets = [{"fpr": rate, "min_tpr": pick(rng, [0.01, 0.5, 0.999])} for rate in some]
        checks["detection"] = {"targets": targets, "required": required()}
        if rng.random() < 0.5:
            checks["detection"]["max_drop"] = pick(rng, [0.001, 0.02, 0.5])
    return checks


def waivers_of(rng: Rng, policy: dict[str, Any]) -> list[dict[str, str]]:
    listed = [f"fpr@{entry['fpr']:.12f}" for entry in policy["targets"]]
    listed += ["overlap", "duplicates", "direction", "exchangeability", "floor", "segments", "freshness"]
    listed += ["granularity@0.1%", "tpr@1%"]
    chosen = [listed[i] for i in rng.permutation(len(listed))[: int(rng.integers(0, 3))]]
    days = ["2020-01-01", "2099-12-31"]
    return [{"check": name, "reason": "r", "owner": "@o", "expires": pick(rng, days)} for name in chosen]


def sample(
    rng: Rng, kind: str, shape: str, bounds: tuple[float, float], columns: dict[str, Any], names: dict[str, bool]
) -> Sample:
    """Rows of one kind with all columns; if there are labels, rows with other labels stand between them."""
    n = size(rng)
    low, high = bounds
    values = np.clip(SHAPES[shape](rng, n, low, high), low, high)
    held: dict[str, Any] = {columns["score"]: values}
    taken, taken_rows = values, np.ones(n, dtype=bool)
    if "label" in columns:
        own, others = labels_of(columns["benign_label"], rng)
        own, others = (others, own) if kind == "malicious" else (own, others)
        taken_rows = rng.random(n) < 0.8
        taken_rows[:2] = True
        held[columns["label"]] = [own if row else others for row in taken_rows]
        taken = values[taken_rows]
    if "id" in columns:
        held[columns["id"]] = ids_of(rng, kind, n)
    if "group" in columns:
        held[columns["group"]] = [f"g{i}" for i in rng.integers(0, max(1, n // pick(rng, [1, 3, 50])), n)]
    if "segment" in columns:
        spoken = ["de", "en", "a/b", "ü ö", "0"][: int(rng.integers(1, 6))]
        held[columns["segment"]] = [spoken[i] for i in rng.integers(0, len(spoken), n)]
    if "timestamp" in columns:
        held[columns["timestamp"]] = (MOMENT - rng.integers(0, 10**7, n)).tolist()
    if "count" in columns:
        counts = rng.integers(0, pick(rng, [2, 4, 20]), n)
        counts[:2] = rng.integers(1, pick(rng, [2, 30_000]), 2)
        held[columns["count"]] = counts
        taken = np.repeat(taken, counts[taken_rows])
    one = len(held) == 1
    text = n <= 5000
    known = [".parquet", ".arrow", *([".npy"] if one else [".npz"]), *([".csv", ".jsonl"] if text else [])]
    return Sample(shape, held, taken, kind + pick(rng, known))


def labels_of(benign: Any, rng: Rng) -> tuple[Any, Any]:
    """A label for the benign rows and another for the rest, in a type that the policy's word can be read as."""
    if benign in (0, 1):
        return benign, pick(rng, [2, 7])
    return (False, True) if benign == "false" else (benign, "malicious")


def ids_of(rng: Rng, kind: str, n: int) -> list[str]:
    """An id for every row; now and then held-out rows have ids of fit rows."""
    own = [f"{kind}-{i}" for i in range(n)]
    shared = int(n * pick(rng, [0, 0, 0, 0.0005, 0.3])) if kind == "holdout" else 0
    return [f"fit-{i}" for i in range(shared)] + own[shared:]


def arguments_of(rng: Rng, case: Case, columns: dict[str, Any], names: dict[str, bool], in_policy: bool) -> list[str]:
    arguments = ["--release", f"v{case.number}"]
    if case.policy is not None:
        arguments += ["--policy", "policy.yaml"]
    for kind, drawn in case.samples.items():
        arguments += [f"--{kind}", drawn.file]
    if names["split"]:
        arguments += ["--split", str(pick(rng, [0.1, 0.3, 0.5, 0.9])), "--seed", str(int(rng.integers(0, 2**31)))]
    if case.policy is not None and in_policy:
        case.policy["data"] = columns
    else:
        for name, value in columns.items():
            arguments += ["--set", f"data.{name}={json.dumps(value, ensure_ascii=False)}"]
    for name, option in (("dry run", "--dry-run"), ("json", "--json")):
        arguments += [option] if names[name] else []
    if names["ledger"] or names["reuse"]:
        arguments += ["--ledger", "ledger.jsonl"]
    return [*arguments, "--out", "one"]


# --- what is done with it -----------------------------------------------------------------------------------


class BrokenError(AssertionError):
    """A promise that a case breaks."""


def write(columns: dict[str, Any], file: str) -> None:
    name, path = next(iter(columns)), Path(file)
    match path.suffix:
        case ".npy":
            np.save(path, columns[name])
        case ".npz":
            named: dict[str, Any] = {key: np.asarray(column) for key, column in columns.items()}
            np.savez(path, **named)
        case ".parquet":
            pa.parquet.write_table(pa.table(columns), path, row_group_size=1 + len(columns[name]) // 2)
        case ".arrow":
            table = pa.table(columns)
            with pa.ipc.new_file(path, table.schema) as out:
                out.write_table(table, max_chunksize=1 + len(columns[name]) // 3)
        case ".jsonl":
            lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
            rows = (dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True))
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        case _:
            texts = {key: [str(float(v)) if key == name else str(v) for v in c] for key, c in columns.items()}
            pa.csv.write_csv(pa.table(texts), path, pa.csv.WriteOptions(quoting_style="none"))


def gate(*arguments: str, codes: tuple[int, ...] = (0, 1, 2, 3)) -> Result:
    result = call(*arguments)
    if result.code not in codes or "Traceback" in result.stderr:
        last = " | ".join(result.stderr.strip().splitlines()[-6:])
        raise BrokenError(f"gate {' '.join(arguments)}: exit {result.code}: {result.stdout[-400:]} {last}")
    return result


def judge(case: Case) -> int:
    """Run the case and what follows in the current directory; its exit code, or BrokenError."""
    for drawn in case.samples.values():
        write(drawn.columns, drawn.file)
    if case.policy is not None:
        Path("policy.yaml").write_text(json.dumps(case.policy, ensure_ascii=False), encoding="utf-8")
    result = gate("run", *case.arguments)
    if result.code == 2 or "--dry-run" in case.arguments:
        if Path("one").exists():
            raise BrokenError("a refused run or a dry one left a directory behind")
        return result.code
    record = json.loads(Path("one/verdict.json").read_text(encoding="utf-8"))
    if EXIT_CODES[record["outcome"]] != result.code:
        raise BrokenError(f"the record says {record['outcome']}, the exit code {result.code}")
    if "--json" in case.arguments and json.loads(result.stdout) != record:
        raise BrokenError("--json prints another record than verdict.json")
    recount(case, record)
    for name in case.follows:
        follow(name, case, result.code)
    return result.code


def given(case: Case) -> list[str]:
    """All inputs of the run that affect its record, as `gate verify` takes them."""
    named = [word for words in pairwise(case.arguments) if words[0].endswith(BEARING) for word in words]
    return named if case.policy is not None else [*named, *pinned_by(case)]


BEARING = ("--set", "--ledger", "--policy", "--fit", "--holdout", "--benign", "--malicious")


def pinned_by(case: Case) -> list[str]:
    return ["--policy", "built-in" if case.policy is None else "policy.yaml"]


def follow(name: str, case: Case, code: int) -> None:
    """Another command on what the run has written; its samples serve as those of the next release."""
    benign = next(case.samples[kind] for kind in ("holdout", "benign") if kind in case.samples)
    again = [word for word in case.arguments if word not in ("one", "--out", "--json")]
    match name:
        case "verify":
            gate("verify", "one", *given(case), codes=(0,))
        case "repeat":
            repeated = gate("run", *again, "--out", "one", "--force").code
            if repeated != code and "--ledger" not in again:
                raise BrokenError(f"the same run exits {code} and then {repeated}")
            gate("verify", "one", codes=(0,))
        case "check":
            named = [words for words in pairwise(again) if words[0] in ("--set", "--ledger")]
            columns = [word for words in named for word in words]
            checked = gate("check", "one", "--holdout", benign.file, "--out", "two", *columns)
            if checked.code != 2:
                pinned = pinned_by(case)
                gate("verify", "two", "--holdout", benign.file, "--baseline", "one", *columns, *pinned, codes=(0,))
        case "baseline":
            compared = gate("run", *again, "--baseline", "one", "--out", "three")
            if compared.code != 2:
                gate("verify", "three", *given(case), "--baseline", "one", codes=(0,))
        case "compare":
            gate("compare", "one", "one", codes=(0,))
        case "history":
            gate("history", "one", "--format", pick(np.random.default_rng(case.number), ["md", "json", "text"]))
        case "report":
            for format_ in ("text", "md", "junit", "json"):
                gate("report", "one", "--format", format_, codes=(0,))


def recount(case: Case, record: dict[str, Any]) -> None:
    """Check the record's counts against counts from the drawn arrays."""
    totals = {kind: len(drawn.taken) for kind, drawn in case.samples.items()}
    recorded = {"fit": record["fit"]["n"], "holdout": record["holdout"]["n"]}
    if "benign" in totals:
        if sum(recorded.values()) != totals["benign"]:
            raise BrokenError(f"{totals['benign']} benign rows were split into {recorded}")
    elif recorded != {kind: totals[kind] for kind in recorded}:
        raise BrokenError(f"the rows are {totals}, the record has {recorded}")
    counts: list[tuple[str, Any, int, str]] = []
    if "holdout" in totals:
        rates = [(f["check"], f["rate"]["tally"]) for f in record["findings"] if f["rate"]]
        rates = [(check, found) for check, found in rates if check.startswith("fpr@") and "/" not in check]
        rates += [(f"fpr at {a['fpr']}", a["tally"]) for a in record["checks"]["fpr"]["anchors"]]
        rates += [("curve", point["tally"]) for point in (record["curve"] or {"points": []})["points"]]
        counts += [(check, found["threshold"], found["flagged"], "holdout") for check, found in rates]
    if record["malicious"]:
        found_at = [a["tally"] for a in record["checks"]["detection"]["anchors"]]
        counts += [("detection", found["threshold"], found["flagged"], "malicious") for found in found_at]
    for name, threshold, count, kind in counts:
        flagged = 0 if threshold is None else int((case.samples[kind].taken >= threshold).sum())
        if flagged != count:
            raise BrokenError(f"{name}: {flagged} rows reach {threshold!r}, the record says {count}")


@contextmanager
def prepared(case: Case) -> Iterator[None]:
    """A directory of its own, a limit of time, and, unless the case is whole, empty figures and no advice."""
    before, draws, warnings = Path.cwd(), figures.to_svg, vars(fpr)["plan_warnings"]

    def stop(_number: int, _frame: object) -> None:
        raise BrokenError(f"more than {SECONDS} seconds")

    with tempfile.TemporaryDirectory(prefix="gate-drawn-") as place:
        os.chdir(place)
        handler = signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        if not case.whole:
            figures.to_svg = lambda display, name, *_, **__: f"<svg id='{name}'></svg>"
            vars(fpr)["plan_warnings"] = lambda *_, **__: ()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, handler)
            figures.to_svg, vars(fpr)["plan_warnings"] = draws, warnings
            os.chdir(before)


def attempt(seed: int, number: int) -> tuple[Case, int | str]:
    """A drawn case with its exit code, or with what it breaks."""
    case = draw(seed, number)
    with prepared(case):
        try:
            return case, judge(case)
        except BrokenError as broken:
            return case, f"{broken}\n{case}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--case", type=int, help="only this one")
    options = parser.parse_args()
    numbers = range(options.cases) if options.case is None else [options.case]
    codes: Counter[int] = Counter()
    broken = 0
    for number in numbers:
        began = time.perf_counter()
        case, found = attempt(options.seed, number)
        took = time.perf_counter() - began
        if isinstance(found, str):
            broken += 1
            print(f"BROKEN: {found}\n", flush=True)
        else:
            codes[found] += 1
        if took > 5:
            print(f"slow: {took:.1f} s: {case}", flush=True)
    print(f"{len(numbers):,} cases: exit codes {dict(sorted(codes.items()))}, {broken} broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
