"""The Python API: the same verdict and the same bytes from arrays, Arrow and data frames as from files."""

from __future__ import annotations

import doctest
import inspect
import re
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.interchange
import pyarrow.parquet
import pytest

import gate
import gate.gating
from gate.checks import parse_policy
from gate.errors import GateError

pytestmark = pytest.mark.usefixtures("few_points")

RNG = np.random.default_rng(5)
FIT, HOLDOUT = RNG.beta(0.5, 8, 60_000), RNG.beta(0.5, 8, 60_000)
LABELS = RNG.integers(0, 2, 60_000)
CREATED = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = "version: 1\nname: api\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


class Stream:
    """Only the Arrow PyCapsule protocol, as any library may speak it."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.data.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, data: Any) -> None:
        self.data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.data.__arrow_c_array__(requested_schema)


class Interchange:
    """Only the DataFrame interchange protocol."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self.data.__dataframe__(nan_as_null, allow_copy)


def table(values: np.ndarray) -> pa.Table:
    return pa.table({"id": np.arange(len(values)), "score": values})


def pandas() -> Any:
    """Installed by `.ci/run` for these tests alone: scikit-learn imports it wherever it finds it, which takes time."""
    return pytest.importorskip("pandas", reason="pandas is not installed")


FORMS: dict[str, Any] = {
    "numpy": lambda values: values,
    "numpy column": lambda values: values.reshape(-1, 1),
    "list": lambda values: values.tolist(),
    "arrow array": pa.array,
    "arrow chunks": lambda values: pa.chunked_array([values[:7], values[7:]]),
    "arrow table": table,
    "arrow batch": lambda values: table(values).to_batches()[0],
    "arrow reader": lambda values: table(values).to_reader(),
    "stream of a table": lambda values: Stream(table(values)),
    "stream of an array": lambda values: Stream(pa.chunked_array([values])),
    "array by capsule": lambda values: Array(pa.array(values)),
    "interchange": lambda values: Interchange(table(values)),
    "pandas frame": lambda values: pandas().DataFrame({"id": np.arange(len(values)), "score": values}),
    "pandas series": lambda values: pandas().Series(values),
    "polars frame": lambda values: pl.from_arrow(table(values)),
    "polars series": pl.Series,
    "duckdb": lambda values: duckdb.from_arrow(table(values)),
}


def run(fit: Any, holdout: Any, policy: Any = None) -> gate.Release:
    return gate.run(fit, holdout, release="r", policy=policy, created=CREATED)


@cache
def plainly() -> gate.Release:
    """Make a release from NumPy arrays."""
    return run(FIT, HOLDOUT)


@pytest.mark.each_run(3)
@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_data_gives_the_same_release(form: str) -> None:
    """But for the names of columns that nobody reads, which an array has not."""
    judged, plain = run(FORMS[form](FIT), FORMS[form](HOLDOUT)), plainly()
    fit, holdout = (part.model_copy(update={"unread": ()}) for part in (judged.record.fit, judged.record.holdout))
    assert judged.record.model_copy(update={"fit": fit, "holdout": holdout}) == plain.record
    assert {**judged.files, "verdict.json": b""} == {**plain.files, "verdict.json": b""}


def test_files_and_arrays_give_the_same_verdict(tmp_path: Path) -> None:
    names = []
    for name, values in (("fit", FIT), ("holdout", HOLDOUT)):
        pa.parquet.write_table(table(values), tmp_path / f"{name}.parquet")
        names.append(tmp_path / f"{name}.parquet")
    from_files, from_arrays = run(names[0], [str(names[1])]).record, plainly().record
    assert from_files.findings == from_arrays.findings
    assert from_files.fit.sha256 == from_arrays.fit.sha256
    assert [source.path for source in from_arrays.fit.sources] == ["fit"]


def test_labels_choose_the_benign_rows(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY + "data: {label: label, benign_label: 0}\n")
    frames = [pl.DataFrame({"score": values, "label": LABELS}) for values in (FIT, HOLDOUT)]
    labelled, plain = run(frames[0], frames[1], policy), run(FIT[LABELS == 0], HOLDOUT[LABELS == 0])
    assert labelled.record.holdout.sha256 == plain.record.holdout.sha256
    assert labelled.record.holdout.sources[0].rows == 60_000
    with pytest.raises(GateError, match=r"^fit: must have a column 'label', got an array, which has none; give a"):
        gate.fit(FIT, policy=policy)


def test_a_calibrator_can_be_judged_without_its_fit_sample() -> None:
    calibrator = gate.fit(FIT)
    alone, both = gate.evaluate(calibrator, HOLDOUT), gate.evaluate(calibrator, HOLDOUT, fit=FIT)
    names = [{str(finding.check) for finding in verdict.findings} for verdict in (both, alone)]
    assert names[0] - names[1] >= {"exchangeability"}
    counts = [[f.rate.tally for f in v.findings if f.rate] for v in (alone, both)]
    assert counts[0] == counts[1]


def test_a_calibrator_is_judged_on_what_a_run_would_judge_it_on(tmp_path: Path) -> None:
    """The rows that it was fitted on are refused in the same words, as objects and as files."""
    policy = parse_policy(POLICY, "policy.yaml")
    calibrator, paths = gate.fit(FIT, policy=policy), [tmp_path / "fit.npy", tmp_path / "copy.npy"]
    for path in paths:
        np.save(path, FIT)
    for fit, holdout in ((FIT, FIT.copy()), paths):
        said = []
        for judge in (
            lambda: gate.evaluate(calibrator, holdout, fit=fit, policy=policy),  # noqa: B023, it is called here
            lambda: gate.run(fit, holdout, release="v1", policy=policy),  # noqa: B023
        ):
            with pytest.raises(GateError, match=r"must hold other rows than the fit sample, got the same") as refused:
                judge()
            said.append(str(refused.value))
        assert said[0] == said[1]


@pytest.mark.parametrize(
    ("own", "key"),
    [("calibration: {domain: [0, 2]}\n", "calibration.domain"), ("contract: [{fpr: 1%, score: 0.5}]\n", "contract")],
)
def test_a_calibrator_is_judged_by_its_own_contract_and_domain(own: str, key: str) -> None:
    other = parse_policy(POLICY + own, "policy.yaml")
    with pytest.raises(GateError, match=f"^policy.yaml: {key}: must be the one that the calibrator was fitted to"):
        gate.evaluate(gate.fit(FIT), HOLDOUT, policy=other)
    assert gate.evaluate(gate.fit(FIT, policy=other), HOLDOUT, policy=other).outcome == "pass"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a", "b"], r"^a: must end in one of "),
        (np.array(["a", "b"]), r"^fit: column 'score' must hold numbers, got "),
        (np.array([0.1, np.nan]), r"^fit: column 'score' must hold numbers, got NaN in row 2; "),
        (np.array([0.1, 2.0]), r"^fit: column 'score' must lie in the domain \[0, 1\], got 2\.0 in row 2; "),
        (np.array([0.1]), r"^fit: must hold at least 2 benign scores, got 1; "),
        (np.zeros((2, 2)), r"^fit: must be a list of scores, got an array of shape \(2, 2\); "),
        (np.array(0.5), r"^fit: must be a list of scores, got an array of shape \(\); "),
        (object(), r"^fit: must be an array, an Arrow table or a data frame, got object; give one of these"),
        (
            Stream(None),
            r"^fit: must be readable, got: 'NoneType' object .*; give an array, an Arrow table or a data frame",
        ),
        (pa.table({"scores": [0.1, 0.2]}), r"^fit: must have a column 'score', got 'scores'; did you mean 'scores'\?"),
        (pl.Series([0.1, None]), r"^fit: column 'score' must hold a score in every row, got none in row 2; "),
    ],
)
def test_what_is_no_sample_is_refused(data: Any, message: str) -> None:
    with pytest.raises(GateError, match=message):
        gate.fit(data)


def test_the_examples_in_the_documentation_run() -> None:
    assert doctest.testmod(gate.gating).failed == 0


PUBLIC = [gate.fit, gate.evaluate, gate.run, gate.run_system, gate.Release.write, gate.SystemRelease.write]


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__qualname__)
def test_every_parameter_of_a_public_function_is_documented(function: Any) -> None:
    text = inspect.getdoc(function) or ""
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert re.findall(r"^(\w+)   +\S", text, flags=re.MULTILINE) == parameters
    assert "Raises `gate.errors.GateError`" in " ".join(text.split())
    assert function.__name__ == "write" or ("Returns a `" in text and ">>> " in text)


def test_every_public_name_is_a_documented_function_or_type() -> None:
    functions = {name for name in gate.__all__ if inspect.isfunction(getattr(gate, name))}
    assert functions == {function.__name__ for function in PUBLIC} - {"write"}
    assert all(inspect.getdoc(getattr(gate, name)) for name in gate.__all__)


def test_what_a_notebook_shows_is_short() -> None:
    release = gate.run(FIT, HOLDOUT, release="v<1>", created=CREATED)
    verdict = gate.evaluate(release.calibrator, HOLDOUT)
    for shown in (release, verdict, release.calibrator):
        assert len(repr(shown)) < 300
        assert len(shown._repr_html_()) < 5_000
    assert "v&lt;1&gt;" in release._repr_html_()
    blocking = [f for f in verdict.findings if f.blocks]
    assert verdict.outcome == blocking[0].outcome != "pass"
    assert repr(verdict).startswith(f"<Verdict {verdict.outcome}: {verdict.reason} ({blocking[0].check}: ")
    assert f"{blocking[0].message.partition('; ')[0]})>" in repr(verdict), "with its numbers"


def test_a_check_without_its_column_is_refused_rather_than_left_out(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY + "checks: {freshness: {max_age_days: 30}}\n")
    with pytest.raises(GateError, match=r"must have data\.timestamp name a column, got null"):
        gate.evaluate(gate.fit(FIT), HOLDOUT, policy=tmp_path / "policy.yaml")


@pytest.mark.parametrize("role", ["segment", "group", "id", "timestamp", "count", "label", "score"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_missing_column_points_at_the_option_that_fixes_it(role: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"fit.{ending}"
    write = {"parquet": pyarrow.parquet.write_table, "csv": pyarrow.csv.write_csv}[ending]
    write(pa.table({"score": FIT[:100]}), path)
    document = parse_policy(f"{POLICY}data: {{{role}: absent}}\n", "policy.yaml")
    with pytest.raises(
        GateError, match=r"must have a column 'absent', got 'score'; .* with --set, such as --set data\.score=NAME"
    ):
        gate.fit(str(path), policy=document)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("contract: [{fpr: 5%, score: 0.4}], targets: [{fpr: 5%, ", "contract"),
        ("calibration: {domain: [0, 100]}, targets: [{fpr: 10%, ", r"calibration\.domain"),
    ],
)
@pytest.mark.parametrize("fitted", [False, True])
def test_a_calibrator_of_another_contract_or_domain_is_not_evaluated(policy: str, said: str, fitted: bool) -> None:
    other = parse_policy(f"{{version: 1, name: other, {policy}min_n: 100, max_relative_error: 0.5}}]}}", "other.yaml")
    with pytest.raises(GateError, match=rf"^other\.yaml: {said}: must be the one that the calibrator was fitted to"):
        gate.evaluate(gate.fit(FIT[:2000]), HOLDOUT[:2000], fit=FIT[:2000] if fitted else None, policy=other)


@pytest.mark.parametrize("several", [False, True])
def test_the_record_has_the_time_of_utc_whatever_the_zone_of_created(several: bool) -> None:
    created = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    more = "data: {id: id}\ndetectors: [{name: a, score: a}, {name: b, score: b}]\n" if several else ""
    policy = parse_policy(POLICY + more, "policy.yaml")
    tables = [
        pa.table({"id": [f"{name} {i}" for i in range(2000)], "score": rows, "a": rows, "b": rows[::-1]})
        for name, rows in (("fit", FIT[:2000]), ("held out", HOLDOUT[:2000]))
    ]
    run: Any = gate.run_system if several else gate.run
    assert run(*tables, release="v1", policy=policy, created=created).record.created == "2026-01-01T07:00:00Z"
