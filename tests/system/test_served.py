"""The scores really served, through `gate check --calibrated`: the contract is judged where it is kept or broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from calls import Result, call
from small import POLICY

from gate.calibration.calibrator import Calibrator, from_json
from gate.checks.served import REMEDIES

ROWS = 20_000
BOTH = ("--calibrated", "--set", "data.calibrated=served")


def draw(seed: int, rows: int = ROWS, shift: float = 0.0) -> np.ndarray:
    return 1 / (1 + np.exp(-np.random.default_rng(seed).normal(-5 + shift, 1.4, rows)))


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, and another one of a detector that was trained again."""
    place = tmp_path_factory.mktemp("served")
    (place / "policy.yaml").write_text(POLICY)
    for name, seed, shift in (("v1", 1, 0.0), ("v2", 3, 0.3)):
        for kind, more in (("fit", 0), ("holdout", 1)):
            np.save(place / f"{kind}.npy", draw(seed + more, shift=shift))
        files = ("--fit", str(place / "fit.npy"), "--holdout", str(place / "holdout.npy"))
        options = ("--policy", str(place / "policy.yaml"), "--out", str(place / name))
        assert call("run", "--release", name, *files, *options).code == 0
    return place


@pytest.fixture
def place(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, where `releases/` holds copies of both."""
    for name in ("v1", "v2"):
        shutil.copytree(releases / name, tmp_path / "releases" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def calibrator_of(place: Path, name: str = "v1") -> Calibrator:
    return from_json((place / "releases" / name / "calibrator.json").read_text())


def write(name: str, **columns: Any) -> str:
    pyarrow.parquet.write_table(pa.table(columns), name)
    return name


def check(*options: str) -> tuple[Result, dict[str, Any], dict[str, dict[str, Any]]]:
    """`gate check releases/v1` with its record, and its findings by name."""
    result = call("check", "releases/v1", *options, "--out", "found", "--force", "--json")
    record = json.loads(result.stdout)
    assert json.loads(Path("found/verdict.json").read_text()) == record
    return result, record, {finding["check"]: finding for finding in record["findings"]}


def narrowed(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64)


# --- the contract as served ---------------------------------------------------------------------------------


@pytest.mark.each_run(1)
@pytest.mark.parametrize("seed", range(3))
def test_calibrated_scores_are_counted_as_the_raw_ones_they_come_from(place: Path, seed: int) -> None:
    """At every anchor, in every segment and group, counts and findings agree, at the contract's own scores."""
    raw, rng = draw(10 + seed), np.random.default_rng(seed)
    extra = {
        "language": rng.choice(["de", "en", "pt"], ROWS).tolist(),
        "tenant": rng.integers(0, 4_000, ROWS).tolist(),
        "request": [f"r{i}" for i in range(ROWS)],
    }
    named = ("--set", "data.segment=language", "--set", "data.group=tenant", "--set", "data.id=request")
    served = calibrator_of(place).predict(raw)
    write("raw.parquet", score=raw, **extra)
    order = rng.permutation(ROWS)
    columns = {"score": served, **extra}
    write("served.parquet", **{name: np.asarray(column)[order] for name, column in columns.items()})
    _, then, expected = check("--holdout", "raw.parquet", *named)
    _, now, found = check("--holdout", "served.parquet", "--calibrated", *named)
    assert (then["kind"], then["calibrated"], now["kind"], now["calibrated"]) == ("check", False, "check", True)
    anchors = {anchor["fpr"]: anchor["score"] for anchor in now["calibrator"]["anchors"]}
    for one, other in zip(then["checks"]["fpr"]["anchors"], now["checks"]["fpr"]["anchors"], strict=True):
        assert other["tally"]["threshold"] == anchors[other["fpr"]]
        assert {**other["tally"], "threshold": None} == {**one["tally"], "threshold": None}
    assert {name: (f["outcome"], f["message"]) for name, f in found.items()} == {
        name: (f["outcome"], f["message"]) for name, f in expected.items()
    }
    assert now["calibrator"] == then["calibrator"]
    assert [entry["check"] for entry in now["not_asked"] if entry["check"] == "served"] == ["served"]


def test_a_drift_is_found_on_calibrated_scores_alone(place: Path) -> None:
    served = calibrator_of(place).predict(draw(20, shift=1))
    result, _, found = check("--holdout", write("log.parquet", score=served), "--calibrated")
    assert result.code == 1
    assert found["fpr@1%"]["reason"] == "too-many"
    text = call("report", "found").stdout
    assert text.startswith("FAIL: v1 no longer keeps its contract as served\n")


def test_what_is_no_calibrated_score_is_refused_where_nothing_explains_it(place: Path) -> None:
    served = calibrator_of(place).predict(draw(21)) * 100
    result = call("check", "releases/v1", "--holdout", write("log.parquet", score=served), "--calibrated")
    assert result.code == 2
    assert "log.parquet: column 'score' must lie in the domain [0, 1], got " in result.stderr
    assert result.stderr.endswith("; give calibrated scores, or leave out --calibrated\n")
    lacking = call("check", "releases/v1", "--holdout", "log.parquet", *BOTH)
    assert lacking.code == 2
    assert "log.parquet: must have a column 'served', got 'score'; name those that it has in " in lacking.stderr
    assert "--set data.score=NAME" in lacking.stderr


# --- what was done to a score on its way --------------------------------------------------------------------

OTHER = "another score was served, which neither float32 nor one factor gives"
WRONG: dict[str, tuple[Callable[[Path, np.ndarray], np.ndarray], str, str]] = {
    "clipped": (lambda place, raw: np.minimum(calibrator_of(place).predict(raw), 0.25), OTHER, "other"),
    "scaled": (
        lambda place, raw: 100 * calibrator_of(place).predict(raw),
        "the calibrated score was multiplied by 100 (20,000 rows)",
        "scaled",
    ),
    "not calibrated": (lambda place, raw: raw, f"{OTHER} (20,000 rows)", "other"),
    "wrong column": (lambda place, raw: calibrator_of(place).predict(draw(99)), f"{OTHER} (20,000 rows)", "other"),
    "another release in float32": (
        lambda place, raw: narrowed(calibrator_of(place, "v2").predict(raw)),
        OTHER,
        "other",
    ),
    "not served": (
        lambda place, raw: np.where(np.arange(len(raw)) % 400 == 0, np.nan, calibrator_of(place).predict(raw)),
        "no calibrated score was served (50 rows)",
        "missing",
    ),
}


@pytest.mark.each_run(3)
@pytest.mark.parametrize("name", WRONG)
def test_what_was_served_otherwise_is_counted_and_named(place: Path, name: str) -> None:
    """The finding blocks, names the cause and the remedy that helps; whoever has the data finds the same."""
    change, words, kind = WRONG[name]
    raw = draw(30)
    served, expected = change(place, raw), calibrator_of(place).predict(raw)
    result, record, found = check("--holdout", write("log.parquet", score=raw, served=served), *BOTH)
    finding = found["served"]
    assert (result.code, finding["outcome"], finding["reason"]) == (1, "fail", "served-otherwise")
    assert finding["required"]
    assert finding["blocks"]
    assert words in finding["message"]
    assert finding["remedy"] == REMEDIES[kind]
    evidence = record["checks"]["served"]["benign"]
    assert evidence["rows"] - evidence["equal"] == np.count_nonzero(~(served == expected))
    assert f"{evidence['rows'] - evidence['equal']:,} of 20,000 rows were served otherwise" in finding["message"]
    assert evidence["lowest"] == expected[~(served == expected)].min()
    assert "scores were served otherwise than the release gives them" in record["reason"]
    data = ("--holdout", "log.parquet", "--baseline", "releases/v1")
    pinned = ("--policy", "policy.yaml", "--set", "data.calibrated=served")
    Path("policy.yaml").write_text(POLICY)
    assert call("verify", "found", *data, *pinned).code == 0
    assert call("verify", "found", *data, "--policy", "policy.yaml").code == 1
    unlike = write("other.parquet", score=raw, served=expected)
    assert call("verify", "found", "--holdout", unlike, *data[2:], *pinned).code == 1


def test_a_count_that_serving_broke_is_told_from_one_that_drift_broke(place: Path) -> None:
    """The finding of the target says what the release itself would flag, and asks for the service to be mended."""
    raw, calibrator = draw(31), calibrator_of(place)
    write("log.parquet", score=raw, served=np.minimum(calibrator.predict(raw), 0.25))
    _, _, found = check("--holdout", "log.parquet", *BOTH)
    flagged = np.count_nonzero(calibrator.predict(raw) >= 0.3)
    assert found["fpr@1%"]["outcome"] == "fail"
    said = f"as the release scores these rows, {flagged:,} would be flagged, which passes"
    assert found["fpr@1%"]["message"].endswith(said)
    assert found["fpr@1%"]["remedy"] == REMEDIES["other"]
    drifted = draw(32, shift=1)
    write("log.parquet", score=drifted, served=calibrator.predict(drifted))
    result, _, found = check("--holdout", "log.parquet", *BOTH)
    assert (result.code, found["served"]["outcome"], found["fpr@1%"]["outcome"]) == (1, "pass", "fail")
    assert "as the release scores" not in found["fpr@1%"]["message"]


@pytest.mark.parametrize(
    "way",
    [
        lambda c, x: narrowed(c.predict(x)),
        lambda c, x: c.predict(narrowed(x)),
        lambda c, x: c.pipeline.predict(x.astype(np.float32).reshape(-1, 1)).astype(np.float64),
    ],
    ids=["calibrated", "raw", "computed"],
)
def test_float32_is_recognised_and_does_not_block(place: Path, way: Any) -> None:
    raw, calibrator = draw(33), calibrator_of(place)
    thresholds = [t for t in calibrator.thresholds.values() if t is not None]
    raw[: len(thresholds)] = thresholds  # rows at an anchor, which float32 may put on its other side
    result, record, found = check("--holdout", write("log.parquet", score=raw, served=way(calibrator, raw)), *BOTH)
    finding = found["served"]
    assert (result.code, finding["outcome"], finding["required"]) == (0, "fail", False)
    assert "rounding to float32 explains what was served" in finding["message"]
    assert "float32" not in record["reason"]


def test_rows_stay_paired_whatever_the_format_and_the_order(place: Path) -> None:
    """Ids, repeated rows and labels leave each served score beside its own raw one."""
    calibrator, rng = calibrator_of(place), np.random.default_rng(1)
    raw, label = draw(34, 30_000), rng.integers(0, 2, 30_000)
    ids = np.arange(30_000)
    ids[-10:] = ids[:10]
    raw[-10:] = raw[:10]
    label[-10:] = label[:10]
    order = rng.permutation(30_000)
    served = calibrator.predict(raw)
    table = pa.table({"served": served, "id": ids, "kind": label, "score": raw}).take(pa.array(order))
    pyarrow.csv.write_csv(table, "log.csv")
    named = ("--set", "data.id=id", "--set", "data.label=kind", "--set", "data.benign_label=0")
    result, record, found = check("--holdout", "log.csv", "--malicious", "log.csv", *BOTH, *named)
    assert (result.code, found["served"]["outcome"]) == (0, "pass")
    kept = [np.count_nonzero(label[:29_990] == kind) for kind in (0, 1)]
    evidence = record["checks"]["served"]
    assert [evidence[kind]["rows"] for kind in ("benign", "malicious")] == kept
    assert [evidence[kind]["equal"] for kind in ("benign", "malicious")] == kept


def test_rows_that_stand_for_many_are_counted_as_often(place: Path) -> None:
    """The record is that of the rows one by one, and `verify` takes it."""
    raw, times = draw(39), np.random.default_rng(39).integers(1, 4, ROWS)
    served = calibrator_of(place).predict(raw) / np.where(np.arange(ROWS) % 50 == 0, 2, 1)
    write("each.parquet", score=raw.repeat(times), served=served.repeat(times))
    write("counted.parquet", score=raw, served=served, n=times)
    _, one, _ = check("--holdout", "each.parquet", *BOTH)
    _, other, _ = check("--holdout", "counted.parquet", *BOTH, "--set", "data.count=n")
    assert other["checks"]["served"] == one["checks"]["served"]
    assert other["checks"]["served"]["benign"]["rows"] == times.sum()
    assert "does not hold" not in call("verify", "found").stdout


def test_what_only_attacks_show_is_found_on_malicious_rows(place: Path) -> None:
    calibrator, attacks = calibrator_of(place), draw(36, 2_000, shift=6)
    threshold: Any = [*calibrator.thresholds.values()][2]
    raw = np.minimum(draw(35), threshold)  # no benign row scores above 0.5
    limit = 0.6
    write("benign.parquet", score=raw, served=calibrator.predict(raw))
    write("attacks.parquet", score=attacks, served=np.minimum(calibrator.predict(attacks), limit))
    result, _, found = check("--holdout", "benign.parquet", "--malicious", "attacks.parquet", *BOTH)
    assert result.code == 1
    said = found["served"]["message"]
    assert said.startswith(
        "benign: all 20,000 rows were served the calibrated score that the release gives; malicious: "
    )
    assert OTHER in said


def test_the_policy_names_the_column_and_says_whether_it_blocks(place: Path) -> None:
    raw = draw(37)
    served = np.minimum(calibrator_of(place).predict(raw), 0.9 * calibrator_of(place).predict(raw).max())
    write("log.parquet", score=raw, served=served)
    text = POLICY + "data: {calibrated: served}\nchecks: {served: {required: false}}\n"
    Path("policy.yaml").write_text(text)
    result, record, found = check("--holdout", "log.parquet", "--calibrated", "--policy", "policy.yaml")
    assert (result.code, found["served"]["outcome"], found["served"]["blocks"]) == (0, "fail", False)
    assert record["data"]["calibrated"] == "served"
    result, _, found = check("--holdout", "log.parquet", "--policy", "policy.yaml")
    assert result.code == 0
    assert "served" not in found
    files = ("--fit", "log.parquet", "--benign", "log.parquet", "--split", "50%")
    assert call("run", "--release", "v3", "--policy", "policy.yaml", *files[2:], "--dry-run").code == 0
    waived = text.replace("required: false", "required: true")
    waived += 'waivers: [{check: served, reason: "until the service is mended", owner: "@x", expires: 2999-01-01}]\n'
    Path("policy.yaml").write_text(waived)
    result, _, found = check("--holdout", "log.parquet", "--calibrated", "--policy", "policy.yaml")
    assert (result.code, found["served"]["waived"]) == (0, True)


def test_no_record_can_say_otherwise_than_its_evidence(place: Path) -> None:
    """What the finding says is judged again, and rows that have both scores are never left out."""
    raw = draw(38)
    write("log.parquet", score=raw, served=np.minimum(calibrator_of(place).predict(raw), 0.25))
    check("--holdout", "log.parquet", *BOTH)
    original = Path("found/verdict.json").read_text()

    def forged(change: Callable[[dict[str, Any]], Any]) -> str:
        content = json.loads(original)
        change(content)
        Path("found/verdict.json").write_text(json.dumps(content))
        result = call("verify", "found")
        assert result.code == 1
        (line,) = [line for line in result.stdout.splitlines() if ": verdict: " in line]
        return line.partition(": verdict: ")[2]

    def evidence(content: dict[str, Any]) -> dict[str, Any]:
        return content["checks"]["served"]["benign"]

    assert "scores were served otherwise" in forged(lambda c: evidence(c).update(cause=None))
    assert "findings" in forged(lambda c: evidence(c)["crossings"][0].update(fpr=0.02))
    assert "scores were served otherwise" in forged(lambda c: c["checks"].update(served=None))
    assert "malicious rows where there are any" in forged(lambda c: c["checks"]["served"].update(malicious=evidence(c)))
