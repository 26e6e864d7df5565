"""`--set` in the commands: the record shows it, `gate verify` binds it, and the report's command takes it."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import several
from small import POLICY, contents, gate, log_lines

from gate.record import read_record, recorded_policy
from gate.report.page import LIMITS, command

SEED = 20
NAMES = ("a", "b")
GIVEN = ("data.label=is_fraud", "data.benign_label=[0, no]", "calibration.domain=[0,100]", "data.id=null")
SET = [word for text in GIVEN for word in ("--set", text)]
FILES = ["--fit", "fit.parquet", "--holdout", "holdout.parquet"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Two labelled files, and a policy that reads them otherwise."""
    rng = np.random.default_rng(SEED)
    for name in ("fit", "holdout"):
        labels = rng.choice(["0", "no", "1"], 20_000, p=[0.5, 0.4, 0.1])
        scores = 100 * rng.beta(0.5, 8, 20_000)
        pa.parquet.write_table(pa.table({"score": scores, "is_fraud": labels}), tmp_path / f"{name}.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY + "data: {id: request}\n")
    return tmp_path


def run(here: Path, *more: str) -> Any:
    result = gate("run", "--release", "v1", "--policy", "policy.yaml", *FILES, *more, cwd=here)
    assert result.returncode in (0, 1, 3), result.stderr
    return json.loads((here / "releases" / "v1" / "verdict.json").read_text())


def test_the_record_shows_what_was_set(here: Path) -> None:
    record = run(here, *SET)
    assert (record["policy"]["set"], record["policy"]["content"]) == ([*GIVEN], (here / "policy.yaml").read_text())
    assert (record["data"]["label"], record["data"]["benign_label"], record["data"]["id"]) == (
        "is_fraud",
        ["0", "no"],
        None,
    )
    labels = pa.parquet.read_table(here / "holdout.parquet")["is_fraud"].to_pylist()
    assert record["holdout"]["n"] == len(labels) - labels.count("1")
    plain = recorded_policy(read_record(here / "releases" / "v1").policy)
    assert plain.sha256 == record["policy"]["sha256"] != plain.override(["data.id=request"]).sha256


def test_a_release_verifies_with_the_same_keys_and_not_with_others(here: Path) -> None:
    run(here, *SET)
    verify = ["verify", "releases/v1"]
    assert gate(*verify, "--complete", cwd=here).returncode == 2  # the data are not given
    pinned = [*verify, *FILES, "--policy", "policy.yaml"]
    turned = [word for text in GIVEN[::-1] for word in ("--set", text)]
    whole = gate(*pinned, *turned, "--complete", cwd=here)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for others in ([], SET[2:], [*SET, "--set", "rule=observed"], [*SET[:-1], "data.id=other"]):
        result = gate(*pinned, *others, cwd=here)
        assert (result.returncode, "does not hold: policy: " in result.stdout) == (1, True)
    alone = gate(*verify, "--set", "rule=observed", cwd=here)
    assert (alone.returncode, "--set needs --policy" in alone.stderr) == (2, True)


def test_a_forged_list_of_keys_does_not_hold(here: Path) -> None:
    record = run(here, *SET)
    place = here / "releases" / "v1" / "verdict.json"
    for forged in ([], [*GIVEN, "rule=observed"], ["nonsense"], [GIVEN[0], GIVEN[0]]):
        place.write_text(json.dumps(record | {"policy": record["policy"] | {"set": forged}}))
        result = gate("verify", "releases/v1", cwd=here)
        assert (result.returncode, "does not hold: policy: " in result.stdout) == (1, True), result.stdout


def test_the_command_of_the_report_sets_the_same_keys(here: Path) -> None:
    run(here, *SET)
    record = read_record(here / "releases" / "v1")
    moment, _, *words = shlex.split(" ".join(command(record, LIMITS[0])))
    assert [text for option, text in pairwise(words) if option == "--set"] == [*GIVEN]
    before = contents(here / "releases" / "v1")
    key, value = moment.split("=")
    assert gate(*words, "--force", cwd=here, env={key: value}).returncode in (0, 1, 3)
    assert contents(here / "releases" / "v1")["verdict.json"] == before["verdict.json"]


def test_a_check_begins_with_the_keys_of_the_release(here: Path) -> None:
    run(here, *SET)
    check = ["check", "releases/v1", "--holdout", "holdout.parquet", "--json", "--dry-run"]
    assert json.loads(gate(*check, cwd=here).stdout)["policy"]["set"] == [*GIVEN]
    other = gate(*check, "--set", "data.label=null", cwd=here)
    assert json.loads(other.stdout)["policy"]["set"] == [*GIVEN[1:], "data.label=null"]
    assert json.loads(other.stdout)["holdout"]["n"] == 20_000


def test_the_ledger_counts_another_question_where_another_key_is_set(here: Path) -> None:
    ledger = ["--ledger", "uses.jsonl", "--force"]
    uses = [
        run(here, *SET, *ledger, *more)["checks"]["reuse"]["holdout"]["number"]
        for more in ([], ["--set", "targets[0].min_n=7"], [])
    ]
    assert uses == [1, 2, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", ""], "Invalid value for '--set': must not be empty (see `gate run --help`)"),
        (["--set", "data.labl=x"], "--set data.labl=x: data.labl: must be a known key; did you mean `label`?"),
        (["--set", "data.id=a", "--set", "data.id=b"], "--set data.id=b: must be the only --set of this key, got "),
        (["--set", "rule=[a"], "--set rule=[a: must be YAML, got an error: "),
    ],
)
def test_a_wrong_key_is_one_line_and_exit_code_2(here: Path, options: list[str], said: str) -> None:
    result = gate("run", "--release", "v1", "--policy", "policy.yaml", *FILES, *options, cwd=here)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = log_lines(result)
    assert line.startswith(said)
    assert not (here / "releases").exists()


# --- several detectors --------------------------------------------------------------------------------------


def test_keys_are_set_for_several_detectors(tmp_path: Path) -> None:
    for seed, name in enumerate(("fit", "holdout")):
        table = several.simulate(12_000, NAMES, seed)
        table = table.append_column("label", pa.array(["bad" if i % 9 == 0 else "ok" for i in range(12_000)]))
        pa.parquet.write_table(table.rename_columns(["id", "a_score", "other", "label"]), tmp_path / f"{name}.parquet")
    (tmp_path / "policy.yaml").write_text(several.policy(NAMES))
    set_ = ["--set", "detectors[1].score=other", "--set", "data.label=label", "--set", "data.benign_label=ok"]
    policy = ["--policy", "policy.yaml", *set_]
    result = gate("run", "--release", "v1", *policy, *FILES, cwd=tmp_path)
    assert result.returncode in (0, 1, 3), result.stderr
    record = json.loads((tmp_path / "releases" / "v1" / "verdict.json").read_text())
    assert record["policy"]["set"] == set_[1::2]
    assert [facts["score"] for facts in record["detectors"]] == ["a_score", "other"]
    verified = gate("verify", "releases/v1", *policy, *FILES, cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert gate("verify", "releases/v1", "--policy", "policy.yaml", *FILES, cwd=tmp_path).returncode == 1
    for name in NAMES:  # the command in a detector's own report judges it alone, by the same policy
        own = tmp_path / "releases" / "v1" / "detectors" / name
        moment, _, *words = shlex.split(" ".join(command(read_record(own), LIMITS[0])))
        key, value = moment.split("=")
        again = gate(*words, "--out", f"alone-{name}", cwd=tmp_path, env={key: value})
        assert again.returncode in (0, 1, 3), again.stderr
        assert read_record(tmp_path / f"alone-{name}").findings == read_record(own).findings
        assert read_record(tmp_path / f"alone-{name}").policy == read_record(own).policy


# --- one sample that the policy divides ---------------------------------------------------------------------


def test_the_policy_may_name_one_sample_and_how_to_divide_it(here: Path) -> None:
    scale = "calibration: {domain: [0, 100]}\n"
    (here / "policy.yaml").write_text(POLICY + scale + "data: {benign: fit.parquet, split: 50%}\n")
    first = ["run", "--release", "v1", "--policy", "policy.yaml", "--dry-run", "--json"]
    own = gate(*first, cwd=here)
    named = gate(*first, "--benign", "fit.parquet", "--split", "0.5", cwd=here, env={"SOURCE_DATE_EPOCH": "1772366400"})
    assert log_lines(own)[0] == "policy policy.yaml; benign fit.parquet (from the policy)"
    assert json.loads(own.stdout)["split"] == json.loads(named.stdout)["split"]
    assert json.loads(own.stdout)["holdout"]["sha256"] == json.loads(named.stdout)["holdout"]["sha256"]
    other = json.loads(gate(*first, "--split", "30%", "--seed", "7", cwd=here).stdout)
    assert (other["split"]["fraction"], other["split"]["seed"]) == (0.3, 7)
    assert json.loads(gate(*first, "--benign", "holdout.parquet", cwd=here).stdout)["split"]["fraction"] == 0.5
    apart = json.loads(gate(*first, *FILES, cwd=here).stdout)
    assert (apart["split"], apart["holdout"]["n"]) == (None, 20_000)
    for wrong in (["--set", "data.split=null"], ["--set", "data.fit=fit.parquet"], ["--fit", "fit.parquet"]):
        refused = gate(*first, *wrong, cwd=here)
        assert refused.returncode == 2
        assert "give either --fit and --holdout (or name them in the policy" in refused.stderr
    assert gate("run", "--release", "v1", "--policy", "policy.yaml", cwd=here).returncode in (0, 1, 3)
    verified = gate("verify", "releases/v1", "--policy", "policy.yaml", "--benign", "fit.parquet", cwd=here)
    assert verified.returncode == 0, verified.stdout


def test_no_label_is_said_or_not_told(here: Path) -> None:
    """Both count every row; the record keeps which it was."""
    scale = ["--set", "calibration.domain=[0,100]", "--set", "data.id=null", "--force"]
    for value, kept in (("null", None), ("false", False)):
        record = run(here, *scale, "--set", f"data.label={value}")
        assert record["data"]["label"] is kept
        assert record["holdout"]["n"] == 20_000
        verified = gate("verify", "releases/v1", *FILES, cwd=here)
        assert verified.returncode == 2, verified.stdout  # the policy is not pinned, all else holds
        assert "does not hold" not in verified.stdout
