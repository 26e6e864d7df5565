"""The paper's evaluation again, end to end through gate: Table 3, the simulations, artifact sizes and sample sizes.

    python tests/benchmarks/paper.py [FILE ...] [--score COLUMN] [--offline] [--figure label-error.svg]

Berlin, "Full-range Binary Classifier Calibration for Stable Model Updates in Production". Credit-card transactions come
from OpenML where there is a network; the same protocol runs on any labelled file (.parquet or .csv; its label is 0 on
benign rows): its numeric columns are the features of a detector, or with --score one column is the detector's score.
Prints Markdown and writes one figure. Splits, seeds and detector are those of the scripts that the paper's repository
(cisco-ai-defense/fpr-model-calibration) publishes.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from scipy.stats import beta

ROOT = Path(__file__).parents[2]
SEED = 42
SIMULATION_SEED = 20_260_507
REPEATS = 50_000
SIZES = (100, 1_000, 10_000)
TOLERANCE = 0.5  # the tolerance in policies/paper.yaml, by which both rows of a target are judged

PLANNED = ("10%", "1%", "0.1%", "0.01%", "0.001%", "0.0001%")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One row of Table 3: raw score, FPR of the fit rows, false positives among the held-out rows, relative error."""

    raw: str
    training: str
    held_out: str
    relative_error: str
    flagged: int
    benign: int


# What the paper printed; it gives the last count itself, the others follow from its rates and 139,315 rows.
PRINTED = {
    "10%": Line("0.0008", "9.999 %", "10.053 %", "-0.52 %", 14_005, 139_315),
    "1%": Line("0.0036", "0.9999 %", "1.023 %", "-2.24 %", 1_425, 139_315),
    "0.1%": Line("0.0207", "0.1005 %", "0.1005 %", "-0.49 %", 140, 139_315),
    "0.01%": Line("0.9993", "0.0100 %", "0.0093 %", "+7.17 %", 13, 139_315),
}
RATES = {"10%": 0.1, "1%": 0.01, "0.1%": 0.001, "0.01%": 0.0001}
CALIBRATED = {"10%": 0.1, "1%": 0.3, "0.1%": 0.5, "0.01%": 0.7}


# --- Table 3 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A labelled data set: features for a detector to be trained on, or (scored) the scores of one."""

    name: str
    features: Floats
    labels: NDArray[np.int64]
    scored: bool


def download(home: str | None = None) -> Rows:
    """Credit-card transactions from OpenML; OSError where there is no network."""
    from sklearn.datasets import fetch_openml

    waited = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that it tries again
            data = fetch_openml(
                "creditcard", version=1, as_frame=False, parser="liac-arff", data_home=home, n_retries=1
            )
    finally:
        socket.setdefaulttimeout(waited)
    return Rows("creditcard", data.data.astype(np.float64), data.target.astype(np.int64), scored=False)


def read(path: Path, label: str, score: str | None) -> Rows:
    if not path.is_file():
        raise ValueError(f"{path}: must be a .parquet or .csv file, got none; name one that is there")
    table = (pyarrow.parquet.read_table if path.suffix == ".parquet" else pyarrow.csv.read_csv)(path)
    for wanted in (label, score):
        if wanted is not None and wanted not in table.column_names:
            raise ValueError(f"{path}: must have the column {wanted!r}, got {table.column_names}; name one of these")
    names = [score] if score else [name for name in table.column_names if name != label]
    columns = [table[name].to_numpy() for name in names]
    numeric = [column.astype(np.float64) for column in columns if column.dtype.kind in "fiu"]
    numeric = [column for column in numeric if np.all(np.isfinite(column))]
    if score and not all(np.all((column >= 0) & (column <= 1)) for column in numeric):
        raise ValueError(f"{path}: {score!r}: must be between 0 and 1, got others; leave --score out for features")
    labels = (table[label].to_numpy() != 0).astype(np.int64)
    attacks = int(labels.sum())
    if not numeric or attacks < 10 or len(labels) - attacks < 1000:
        raise ValueError(
            f"{path}: must have finite numeric columns, 1,000 rows with the {label} 0 and ten with another, got "
            f"{len(numeric)}, {len(labels) - attacks:,} and {attacks:,}; add rows"
        )
    name = path.stem if score is None else f"{path.stem}, {score}"
    return Rows(name, np.column_stack(numeric), labels, score is not None)


@dataclass(frozen=True)
class Split:
    """The scores of the paper's three kinds of rows: to fit on, held out, and attacks among the latter."""

    fit: Floats
    held_out: Floats
    malicious: Floats


def split(rows: Rows) -> Split:
    """30 % train the detector; of the rest, 30 % fit the calibrator and 70 % are held out, stratified both times."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scores, labels = rows.features[:, 0], rows.labels
    if not rows.scored:
        train, rest, train_labels, labels = train_test_split(
            rows.features, rows.labels, test_size=0.7, stratify=rows.labels, random_state=SEED
        )
        detector = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=SEED))
        scores = detector.fit(train, train_labels).predict_proba(rest)[:, 1]
    fit, held_out = train_test_split(np.arange(len(labels)), test_size=0.7, stratify=labels, random_state=SEED + 1)
    benign, attack = labels == 0, labels != 0
    return Split(scores[fit][benign[fit]], scores[held_out][benign[held_out]], scores[held_out][attack[held_out]])


def run_gate(name: str, samples: Split, directory: Path) -> dict[str, Any]:
    """The record of `gate run` by the paper's policy; its verdict may be any, but it must be one."""
    paths = {kind: directory / f"{kind}.parquet" for kind in ("fit", "holdout", "malicious")}
    for path, scores in zip(paths.values(), (samples.fit, samples.held_out, samples.malicious), strict=True):
        pa.parquet.write_table(pa.table({"score": scores}), path)
    files = [word for kind, path in paths.items() for word in (f"--{kind}", str(path))]
    policy = str(ROOT / "policies" / "paper.yaml")
    command = ["run", "--policy", policy, "--release", "paper", *files, "--out", str(directory / "release")]
    result = subprocess.run([sys.executable, "-m", "gate", *command], capture_output=True, text=True)
    if result.returncode not in (0, 1, 3):
        *_, said = result.stderr.strip().splitlines()
        raise RuntimeError(f"{name}: gate run must judge, got exit code {result.returncode}; {said}")
    record: dict[str, Any] = json.loads((directory / "release" / "verdict.json").read_text())
    return record


def prove(flagged: int, benign: int, rate: float) -> tuple[tuple[float, float], str]:
    """The exact 95 % interval (Clopper and Pearson 1934), and what it says of half to one and a half times the rate."""
    low = beta.ppf(0.025, flagged, benign - flagged + 1) if flagged else 0.0
    high = beta.ppf(0.975, flagged + 1, benign - flagged) if flagged < benign else 1.0
    edges = rate * (1 - TOLERANCE), rate * (1 + TOLERANCE)
    inside, outside = edges[0] <= low and high <= edges[1], high < edges[0] or low > edges[1]
    return (float(low), float(high)), "proven" if inside else "refuted" if outside else "open"


def measure(record: dict[str, Any], fit: Floats) -> dict[str, Line]:
    """The rows of Table 3 from a record, in the paper's own terms: (target - observed) / observed."""
    counted = {anchor["fpr"]: anchor["tally"] for anchor in record["checks"]["fpr"]["anchors"]}
    lines = {}
    for percent, rate in RATES.items():
        found = counted[rate]
        flagged, benign, raw = found["flagged"], found["rows"], found["threshold"]
        training = 0.0 if raw is None else float(np.mean(fit >= raw))
        lines[percent] = Line(
            "none" if raw is None else f"{raw:.4g}",
            f"{training:.4%}".replace("%", " %"),
            f"{flagged / benign:.4%}".replace("%", " %"),
            f"{(rate - flagged / benign) / (flagged / benign):+.2%}".replace("%", " %") if flagged else "undefined",
            flagged,
            benign,
        )
    return lines


def percentage(bound: float, up: bool) -> str:
    """Four digits that count, rounded away from the estimate, so that what is printed cannot contradict the grade."""
    if bound == 0:
        return "0"
    exact = 100 * Decimal(bound)
    step = Decimal(1).scaleb(exact.adjusted() - 3)
    return f"{exact.quantize(step, ROUND_CEILING if up else ROUND_FLOOR).normalize():f}"


def describe(percent: str, whose: str, line: Line) -> list[str]:
    (low, high), grade = prove(line.flagged, line.benign, RATES[percent])
    counts = [f"{line.flagged:,} / {line.benign:,}", f"{percentage(low, False)}–{percentage(high, True)} %", grade]
    target = percent.replace("%", " %")
    return [
        f"{CALIBRATED[percent]}",
        target,
        whose,
        line.raw,
        line.training,
        line.held_out,
        line.relative_error,
        *counts,
    ]


def evaluate(rows: Rows) -> str:
    """Table 3 of one data set, each row of the paper above the one measured here, and the sentences around it."""
    samples = split(rows)
    with tempfile.TemporaryDirectory() as name:
        record = run_gate(rows.name, samples, Path(name))
    measured = measure(record, samples.fit)
    header = ["score", "target", "whose", "raw score", "training FPR", "held-out FPR", "rel. error", "held out"]
    header += ["95 % interval", f"at ±{TOLERANCE:.0%}"]
    lines = [
        describe(percent, whose, line)
        for percent in RATES
        for whose, line in (("paper", PRINTED[percent]), (rows.name, measured[percent]))
    ]
    anchors = {anchor["fpr"]: anchor["tally"] for anchor in record["checks"]["detection"]["anchors"]}
    detected = anchors[RATES["0.1%"]]
    tied = int(np.count_nonzero(samples.fit == samples.fit.max()))
    sizes = [f"{len(scores):,}" for scores in (samples.fit, samples.held_out, samples.malicious)]
    return (
        f"{table(header, lines)}\n\n"
        f"{rows.name}: {sizes[0]} benign rows to fit, {sizes[1]} held out, {sizes[2]} attacks among those (paper: "
        f"59,706, 139,315 and 241). gate run by policies/paper.yaml: {record['outcome']}: {record['reason']}. Detected "
        f"at 0.1 %: {detected['flagged']:,} of {detected['rows']:,} (paper: 83 %). Fit rows that share the "
        f"highest score: {tied:,} (paper: 24)."
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


# --- the simulations of the appendix ------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelErrors:
    """For each rule, by rank: (label - median FPR) / median, and mean |label - FPR| / median."""

    ranks: NDArray[np.int64]
    median: Floats
    centred: dict[str, Floats]
    absolute: dict[str, Floats]


def simulate_labels(n: int, repeats: int = REPEATS, seed: int = SIMULATION_SEED) -> LabelErrors:
    """The FPR that the k-th largest of n uniform scores really has, against what each rule calls it.

    The spacings of n uniform scores are those of n + 1 exponential ones over their sum (Renyi 1953), and a sum of
    exponential spacings is gamma: so only the ranks that are shown need be drawn, with the law of all n.
    """
    ranks = np.unique(np.geomspace(1, n // 2, 40).round().astype(np.int64))
    steps = np.diff(np.concatenate([[0], ranks, [n + 1]]))
    sums = np.cumsum(np.random.default_rng(seed).gamma(steps, size=(repeats, len(steps))), axis=1)
    true = sums[:, :-1] / sums[:, -1:]
    filliben = (ranks - 0.3175) / (n + 0.365)
    filliben[ranks == 1] = 1 - 0.5 ** (1 / n)
    labels = {"sample k/n": ranks / n, "mean k/(n+1)": ranks / (n + 1), "Filliben": filliben}
    median = np.median(true, axis=0)
    return LabelErrors(
        ranks,
        median,
        {rule: (label - median) / median for rule, label in labels.items()},
        {rule: np.abs(label - true).mean(axis=0) / median for rule, label in labels.items()},
    )


def draw_labels(simulations: dict[int, LabelErrors], path: Path) -> None:
    """The two figures of the appendix, one above the other, for each number of rows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    colours = {"sample k/n": ("#0072b2", "--"), "mean k/(n+1)": ("#009e73", ":"), "Filliben": ("#d55e00", "-")}
    with rc_context({"svg.hashsalt": "gate", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(10, 5.5), layout="constrained")
        axes = figure.subplots(2, len(simulations), sharex="col", sharey="row")
        for column, (n, errors) in enumerate(simulations.items()):
            for row, found in enumerate((errors.centred, errors.absolute)):
                for rule, values in found.items():
                    colour, line = colours[rule]
                    axes[row][column].semilogx(errors.median, 100 * values, line, color=colour, label=rule)
            axes[0][column].minorticks_off()
            axes[1][column].minorticks_off()
            axes[0][column].set_title(f"n = {n:,}")
            axes[1][column].set_xlabel("median FPR of the rank")
        axes[0][0].set_ylabel("label error (%)")
        axes[1][0].set_ylabel("mean absolute error (%)")
        axes[0][0].legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def label_table(n: int, errors: LabelErrors) -> str:
    """The ranks nearest to 1, 2, 5, 10 and so on."""
    shown = sorted({int(np.argmin(np.abs(errors.ranks - k))) for k in (1, 2, 5, 10, 50, n // 2)})
    rows = [
        [
            f"{n:,}",
            f"{errors.ranks[i]:,}",
            *(f"{100 * values[i]:+.2f} %" for values in errors.centred.values()),
            *(f"{100 * values[i]:.1f} %" for values in errors.absolute.values()),
        ]
        for i in shown
    ]
    header = ["n", "rank", *errors.centred, *(f"absolute, {rule}" for rule in errors.absolute)]
    return table(header, rows)


# --- sizes --------------------------------------------------------------------------------------------------


def measure_artifacts(largest: int) -> list[tuple[int, int]]:
    """Bytes of `calibrator.joblib` by the number of benign scores, from 1 K in decades."""
    import gate

    rng = np.random.default_rng(SEED)
    sizes = [10**i for i in range(3, 8) if 10**i <= largest]
    return [(n, len(gate.fit(rng.random(n), policy=ROOT / "policies" / "paper.yaml").artifact)) for n in sizes]


def plan(tolerance: str, rule: str) -> list[tuple[int, int]]:
    """For each rate the paper's 4 / (r^2 p), and what `gate plan` needs to pass a sound release 95 % of the time."""
    targets = "".join(f"  - {{fpr: {p}, min_n: 2, max_relative_error: {tolerance}}}\n" for p in PLANNED)
    with tempfile.TemporaryDirectory() as name:
        policy = Path(name) / "policy.yaml"
        policy.write_text(f"version: 1\nname: plan\nrule: {rule}\ntargets:\n{targets}")
        command = [sys.executable, "-m", "gate", "plan", "--policy", str(policy), "--json"]
        printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [(target["paper_n"], target["holdout_needed"]) for target in printed["targets"]]


def plan_table() -> str:
    columns: dict[str, list[int]] = {}
    for tolerance in ("0.5", "0.25", "0.1"):
        name = f"{float(tolerance):.0%}".replace("%", " %")
        for rule in ("observed", "proven"):
            planned = plan(tolerance, rule)
            columns[f"{name}, paper"] = [paper for paper, _ in planned]
            columns[f"{name}, {rule}"] = [needed for _, needed in planned]
    rows = [[rate, *(f"{sizes[i]:,}" for sizes in columns.values())] for i, rate in enumerate(PLANNED)]
    return table(["FPR", *columns], rows)


# --- all of it ----------------------------------------------------------------------------------------------


def evaluate_credit_cards() -> str:
    try:
        return evaluate(download())
    except OSError as error:  # an error of the network: URLError is one
        return f"creditcard: not downloaded ({error}); the same protocol runs on any labelled file."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="labelled rows, .parquet or .csv")
    parser.add_argument("--label", default="label", help="the column that is 0 on benign rows")
    parser.add_argument("--score", metavar="COLUMN", help="the column that is a detector's score")
    parser.add_argument("--offline", action="store_true", help="do not download credit-card transactions")
    parser.add_argument("--figure", type=Path, default=Path(".benchmarks/label-error.svg"), help="where to draw")
    parser.add_argument("--largest", type=int, default=10_000_000, help="benign scores of the largest artifact")
    options = parser.parse_args()
    try:
        given = [read(path, options.label, options.score) for path in options.files]
    except ValueError as error:
        parser.error(str(error))
    print("### Table 3: FPR at the calibrated anchors\n")
    if not options.offline:
        print(f"{evaluate_credit_cards()}\n", flush=True)
    for rows in given:
        print(f"{evaluate(rows)}\n", flush=True)
    simulations = {n: simulate_labels(n) for n in SIZES}
    draw_labels(simulations, options.figure)
    print(f"### Label error by rule and rank ({REPEATS:,} samples; figure: {options.figure})\n")
    for n, errors in simulations.items():
        print(f"{label_table(n, errors)}\n", flush=True)
    print("### Artifact size (paper: 54–161 KB from 1 K to 10 M)\n")
    sizes = [[f"{n:,}", f"{size / 1000:.0f} KB"] for n, size in measure_artifacts(options.largest)]
    print(f"{table(['benign scores', 'calibrator.joblib'], sizes)}\n", flush=True)
    print("### Benign rows to hold out, and as many to fit: the paper's rule, and what gate plan says\n")
    print(plan_table())


if __name__ == "__main__":
    sys.exit(main())
