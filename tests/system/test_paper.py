"""The paper's evaluation: its splits, what its counts prove, its simulations and sizes, and the download."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from benchmarks import paper
from benchmarks.paper import PRINTED, RATES, Rows
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import read_tables
from scipy.special import expit
from scipy.stats import beta

pytestmark = pytest.mark.figures
TESTS = Path(__file__).parents[1]
GOLDEN = json.loads((TESTS / "golden" / "statistics.json").read_text())


def labelled(n: int, attacks: int, seed: int = 1, columns: int = 3) -> Rows:
    """Draw features, of which the first separates attacks from the rest."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(n, np.int64)
    labels[rng.choice(n, attacks, replace=False)] = 1
    features = rng.normal(size=(n, columns))
    features[:, 0] += 4 * labels
    return Rows("made", features, labels, scored=False)


# --- Table 3 ------------------------------------------------------------------------------------------------


def test_the_splits_have_the_sizes_that_the_paper_prints() -> None:
    samples = paper.split(labelled(284_807, 492, columns=1))
    assert [len(scores) for scores in (samples.fit, samples.held_out, samples.malicious)] == [59_706, 139_315, 241]


def test_scores_that_are_given_are_split_and_nothing_is_trained() -> None:
    rows = labelled(20_000, 200)
    scored = Rows("made", np.arange(20_000).reshape(-1, 1) / 20_000, rows.labels, scored=True)
    samples = paper.split(scored)
    assert [len(scores) for scores in (samples.fit, samples.held_out, samples.malicious)] == [5940, 13_860, 140]
    benign = np.concatenate([samples.fit, samples.held_out])
    assert sorted(benign) == sorted(scored.features[rows.labels == 0, 0])


@pytest.mark.parametrize(
    "case",
    [case for case in GOLDEN["clopper_pearson"] if case["confidence"] == 0.95 and case["n"] <= 10**7],
    ids=lambda case: f"{case['k']}/{case['n']}",
)
def test_intervals_equal_the_golden_ones(case: dict[str, float]) -> None:
    interval, _ = paper.prove(int(case["k"]), int(case["n"]), 0.5)
    assert interval == pytest.approx(case["interval"], rel=1e-8)


def test_the_papers_counts_prove_three_targets_and_leave_the_last_open() -> None:
    """The paper's printed rates and errors are those of the counts."""
    grades = [paper.prove(line.flagged, line.benign, RATES[percent])[1] for percent, line in PRINTED.items()]
    assert grades == ["proven", "proven", "proven", "open"]
    for percent, line in PRINTED.items():
        observed = line.flagged / line.benign
        for text, value in ((line.held_out, observed), (line.relative_error, (RATES[percent] - observed) / observed)):
            digits = len(text.split()[0].partition(".")[2])
            assert float(text.split()[0]) == pytest.approx(100 * value, abs=0.51 * 10**-digits), percent


@settings(max_examples=examples(60), deadline=None)
@given(n=st.integers(1, 10**6), data=st.data())
def test_grades_follow_the_interval(n: int, data: st.DataObject) -> None:
    flagged, rate = data.draw(st.integers(0, n)), data.draw(st.sampled_from(list(RATES.values())))
    (low, high), grade = paper.prove(flagged, n, rate)
    assert low <= flagged / n <= high
    assert (grade == "proven") == (rate / 2 <= low and high <= 1.5 * rate)
    assert (grade == "refuted") == (high < rate / 2 or low > 1.5 * rate)


@settings(max_examples=examples(100), deadline=None)
@given(bound=st.floats(0, 1))
def test_printed_bounds_are_never_narrower_than_the_true_ones(bound: float) -> None:
    low, high = (Fraction(paper.percentage(bound, up)) for up in (False, True))
    assert low <= 100 * Fraction(bound) <= high
    assert high - low <= Fraction(bound) * Fraction(1, 9)


def check_table(text: str, name: str) -> None:
    (rows,) = read_tables(text)
    assert [row[1:3] for row in rows[1:]] == [
        [percent.replace("%", " %"), whose] for percent in RATES for whose in ("paper", name)
    ]
    for percent, row in zip(RATES, rows[1::2], strict=True):
        line = PRINTED[percent]
        assert row[3:8] == [
            line.raw,
            line.training,
            line.held_out,
            line.relative_error,
            f"{line.flagged:,} / {line.benign:,}",
        ]
    assert re.search(r"gate run by policies/paper.yaml: (pass|fail|inconclusive): .+\. Detected at 0.1 %: ", text)


@settings(max_examples=often(1, 3), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(5_000, 40_000), tied=st.booleans())
def test_the_table_says_what_gate_says(seed: int, n: int, tied: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The grade that the script gives to a count is gate's own, and the training FPR counts the fit rows."""
    scores = expit(np.random.default_rng(seed).normal(-4, 1.4, n))
    rows = labelled(n, n // 100, seed)
    scored = Rows("made", (np.round(scores, 3) if tied else scores).reshape(-1, 1), rows.labels, scored=True)
    samples = paper.split(scored)
    record = paper.run_gate("made", samples, tmp_path_factory.mktemp("release"))
    lines = paper.measure(record, samples.fit)
    findings = {f["rate"]["target"]: f for f in record["findings"] if f["check"].startswith("fpr@") and f["rate"]}
    for percent, line in lines.items():
        finding = findings[RATES[percent]]
        interval, grade = paper.prove(line.flagged, line.benign, RATES[percent])
        assert grade == finding["grade"]
        assert interval == pytest.approx(finding["rate"]["interval"], rel=1e-6)
        assert line.benign == len(samples.held_out)
        threshold = finding["rate"]["tally"]["threshold"]
        if threshold is not None:
            assert line.flagged == np.count_nonzero(samples.held_out >= threshold)
            expected = 100 * np.mean(samples.fit >= threshold)
            assert float(line.training.removesuffix(" %")) == pytest.approx(expected, abs=1e-4)


def test_a_run_that_cannot_judge_is_no_row(tmp_path: Path) -> None:
    scores = np.array([0.1, 2.0, 0.3])
    with pytest.raises(RuntimeError, match=r"^made: gate run must judge, got exit code 2; gate: .*must lie"):
        paper.run_gate("made", paper.Split(scores, scores, scores), tmp_path)


@pytest.mark.parametrize(
    ("columns", "score", "message"),
    [
        (None, None, "must be a .parquet or .csv file, got none"),
        ({"x": [0.5]}, None, "must have the column 'label', got ['x']"),
        ({"label": [0]}, "x", "must have the column 'x', got ['label']"),
        ({"label": [0, 1] * 1000, "x": ["a"] * 2000}, None, "got 0, 1,000 and 1,000; add rows"),
        ({"label": [0, 1] * 1000, "x": [math.nan] * 2000}, None, "got 0, 1,000 and 1,000; add rows"),
        ({"label": [0] * 2000, "x": [0.5] * 2000}, None, "got 1, 2,000 and 0; add rows"),
        ({"label": [0, 1] * 1000, "x": [1.5] * 2000}, "x", "'x': must be between 0 and 1, got others"),
    ],
)
def test_a_file_that_will_not_do_is_refused_in_words(
    columns: dict[str, list[object]] | None, score: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    if columns is not None:
        pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match=re.escape(f"{path}: ")) as refusal:
        paper.read(path, "label", score)
    assert message in str(refusal.value)


# --- the download -------------------------------------------------------------------------------------------


@contextmanager
def openml(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A stand-in for OpenML on loopback, asked by scikit-learn's own code; gives the paths that were asked for."""
    from sklearn.datasets import _openml

    names = [f"V{i}" for i in range(rows.features.shape[1])]
    lines = [f"@ATTRIBUTE {name} REAL" for name in names] + ["@ATTRIBUTE Class {0,1}", "@DATA"]
    cells = np.column_stack([rows.features, rows.labels])
    lines += [",".join([*map(repr, map(float, row[:-1])), f"{row[-1]:.0f}"]) for row in cells]
    arff = "\n".join(["@RELATION creditcard", *lines, ""]).encode()
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = answer(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"

    def answer(path: str) -> bytes:
        about = {"name": "creditcard", "version": "1", "status": "active", "format": "ARFF", "did": 1597}
        features = [
            {"name": name, "data_type": "numeric", "index": str(i), "is_target": "false", "is_ignore": "false"}
            | {"is_row_identifier": "false", "number_of_missing_values": "0"}
            for i, name in enumerate(names)
        ]
        target = features[0] | {"name": "Class", "data_type": "nominal", "is_target": "true", "index": str(len(names))}
        described = about | {"description": "made", "url": f"{address}/data/v1/download/1/creditcard.arff"}
        described |= {"md5_checksum": hashlib.md5(arff, usedforsecurity=False).hexdigest(), "id": "1597"}
        found: dict[str, object] = {
            "/list/data_name/creditcard/limit/2/data_version/1": {"data": {"dataset": [about]}},
            "/features/1597": {"data_features": {"feature": [*features, target]}},
            "/qualities/1597": {
                "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(len(cells))}]}
            },
            "/1597": {"data_set_description": described},
        }
        return arff if path.endswith(".arff") else json.dumps(found[path.removeprefix("/api/v1/json/data")]).encode()

    for name in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        monkeypatch.setattr(_openml, name, getattr(_openml, name).replace("https://www.openml.org", address))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.each_run(0)
def test_credit_cards_are_downloaded_trained_on_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    rows = labelled(8_000, 100)
    with openml(rows, monkeypatch) as asked:
        found = paper.download()
        text = paper.evaluate_credit_cards()
    assert found.features == pytest.approx(rows.features)
    assert found.labels.tolist() == rows.labels.tolist()
    assert not found.scored
    assert len(asked) == len(set(asked)) == 5, "the second time from the cache"
    check_table(text, "creditcard")
    assert "creditcard: 1,659 benign rows to fit, 3,871 held out, 49 attacks among those" in text


def test_without_a_network_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server listens any more at the address of the stand-in."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    with openml(labelled(2_000, 20), monkeypatch):
        pass
    text = paper.evaluate_credit_cards()
    assert text.startswith("creditcard: not downloaded (")
    assert text.endswith("; the same protocol runs on any labelled file.")
    assert "\n" not in text


# --- the simulations ----------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(n=st.integers(20, 5_000), seed=st.integers(0, 2**32 - 1))
def test_simulated_ranks_have_the_law_of_order_statistics(n: int, seed: int) -> None:
    """Medians of Beta(k, n - k + 1), within five errors of a simulated median."""
    errors = paper.simulate_labels(n, 4_000, seed)
    law = beta(errors.ranks, n - errors.ranks + 1)
    median = law.median()
    assert np.all(np.abs(errors.median - median) <= 5 / (2 * law.pdf(median) * math.sqrt(4_000)))
    assert errors.centred["mean k/(n+1)"] == pytest.approx(errors.ranks / (n + 1) / errors.median - 1)


def test_simulated_ranks_are_those_of_uniform_scores_drawn_one_by_one() -> None:
    n, repeats = 200, 5_000
    errors = paper.simulate_labels(n, repeats)
    scores = np.sort(np.random.default_rng(1).random((repeats, n)), axis=1)
    true = 1 - scores[:, n - errors.ranks]
    for rule, labels in (("sample k/n", errors.ranks / n), ("mean k/(n+1)", errors.ranks / (n + 1))):
        drawn = np.abs(labels - true).mean(axis=0) / np.median(true, axis=0)
        assert errors.absolute[rule] == pytest.approx(drawn, rel=0.1)


def test_filliben_removes_the_error_of_the_label_and_not_of_the_rank() -> None:
    """What the two figures of the appendix say."""
    errors = paper.simulate_labels(1_000)
    assert np.all(np.abs(errors.centred["Filliben"]) < 0.02)
    assert errors.centred["sample k/n"][0] == pytest.approx(1 / (1_000 * (1 - 0.5**0.001)) - 1, abs=0.03)
    assert errors.absolute["Filliben"] == pytest.approx(errors.absolute["sample k/n"], rel=0.1)


def test_the_figure_has_a_panel_for_each_size_and_error(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "label-error.svg"
    simulations = {n: paper.simulate_labels(n, 200) for n in paper.SIZES}
    paper.draw_labels(simulations, path)
    root = ElementTree.parse(path).getroot()
    ids = [element.get("id", "") for element in root.iter()]
    assert [name for name in ids if re.fullmatch(r"axes_\d", name)] == [f"axes_{i}" for i in range(1, 7)]
    words = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert {"n = 100", "n = 1,000", "n = 10,000", "Filliben"} <= set(words)
    before = path.read_bytes()
    paper.draw_labels(simulations, path)
    assert path.read_bytes() == before


# --- sizes --------------------------------------------------------------------------------------------------


def test_artifacts_stay_below_the_papers_200_kb() -> None:
    sizes = paper.measure_artifacts(100_000)
    assert [n for n, _ in sizes] == [1_000, 10_000, 100_000]
    assert all(10_000 < size < 200_000 for _, size in sizes)


@pytest.mark.parametrize("rule", ["observed", "proven"])
def test_sample_sizes_are_the_papers_and_the_golden_ones(rule: str) -> None:
    """The paper's Table 1 by its formula; gate's by independent computation."""
    planned = paper.plan("0.25", rule)
    assert [n for n, _ in planned] == [640, 6_400, 64_000, 640_000, 6_400_000, 64_000_000]
    cases = {c["fpr"]: c["holdout_n"] for c in GOLDEN["plan"] if (c["rule"], c["r"], c["power"]) == (rule, 0.25, 0.95)}
    assert len(cases) >= 2
    for (_, needed), rate in zip(planned, paper.PLANNED, strict=True):
        assert needed == cases.get(float(rate.rstrip("%")) / 100, needed)


# --- what is printed ----------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TESTS / "benchmarks" / "paper.py"), "--offline", *arguments]
    return subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)


def test_a_file_that_is_missing_ends_the_script_before_it_begins(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.csv"))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].endswith(
        "none.csv: must be a .parquet or .csv file, got none; name one that is there"
    )


def sections(text: str) -> dict[str, list[list[list[str]]]]:
    """The tables below each heading of the script's output, by what the heading begins with."""
    parts = re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]
    return {re.split(r"[:(,]", part)[0].strip(): read_tables(part) for part in parts}


SECTIONS = [
    "Table 3",
    "Label error by rule and rank",
    "Artifact size",
    "Benign rows to hold out",
]


def test_the_output_stands_in_the_tests_readme() -> None:
    shown = sections((TESTS / "README.md").read_text())
    assert [name for name in shown if name in SECTIONS] == SECTIONS
    for rows in shown["Table 3"]:
        assert [row[2] for row in rows[1::2]] == ["paper"] * 4
    assert [rows[1][0] for rows in shown["Label error by rule and rank"]] == [f"{n:,}" for n in paper.SIZES]
    (artifacts,) = shown["Artifact size"]
    assert [row[0] for row in artifacts[1:]] == [f"{10**i:,}" for i in range(3, 8)]
    (needed,) = shown["Benign rows to hold out"]
    assert [row[0] for row in needed[1:]] == list(paper.PLANNED)


DATA = Path(os.environ.get("GATE_DATA", TESTS.parents[1] / "shared" / "data"))


@pytest.mark.numbers
def test_the_numbers_of_the_tests_readme_are_the_scripts(tmp_path: Path) -> None:
    """Tables and the text below them agree; without the data set only those are compared that need none."""
    files = [path for name in ("kdd_http", "kdd_smtp") if (path := DATA / f"{name}.parquet").is_file()]
    result = run("--figure", str(tmp_path / "label-error.svg"), "--score", "logistic", *map(str, files))
    assert result.returncode == 0, result.stderr
    written = (TESTS / "README.md").read_text()
    shown, printed = sections(written), sections(result.stdout)
    for name in SECTIONS[0 if len(files) == 2 else 1 :]:
        assert printed[name] == shown[name], name
    said = [line for line in result.stdout.splitlines() if line and not line.startswith(("|", "#"))]
    assert len(said) == len(files)
    assert [line for line in said if line not in written.splitlines()] == []
