"""What nobody measured is no pass: a first release is declared, and a check says what it did not ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import UsageError

import gate
from gate.checks.baseline import Comparison
from gate.cli import cli
from gate.errors import GateError
from gate.record import read_record

POLICY = """\
version: 1
name: small
calibration: {knots: 50}
targets:
  - {fpr: 10%, min_n: 500, max_relative_error: 0.5}
checks: {detection: {targets: [{fpr: 10%, min_tpr: 0.5}, {fpr: 1%, min_tpr: 0.3}], max_drop: 0.1, required: REQUIRED}}
"""
SAMPLES = {"fit": (0, 0.5), "holdout": (1, 0.5), "later": (2, 0.5), "malicious": (3, 30.0)}
RUN = ["run", "--policy", "policy.yaml", "--release", "v1", "--fit", "fit.npy", "--holdout", "holdout.npy"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, (seed, shape) in SAMPLES.items():
        np.save(f"{name}.npy", np.random.default_rng(seed).beta(shape, 8, 2_000))
    Path("policy.yaml").write_text(POLICY.replace("REQUIRED", "true"))
    return tmp_path


def call(*args: str) -> Any:
    return cli.main([*args], standalone_mode=False)


def findings(directory: str) -> dict[str, tuple[str, str, bool]]:
    return {str(f.check): (f.outcome, f.reason, f.blocks) for f in read_record(directory).findings}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("required", ["true", "false"])
def test_a_drop_that_is_asked_for_and_not_measured_is_no_pass(required: str) -> None:
    """Leaving `--baseline` out must not be a way around `max_drop`."""
    Path("policy.yaml").write_text(POLICY.replace("REQUIRED", required))
    code = call(*RUN, "--malicious", "malicious.npy")
    assert code == (3 if required == "true" else 0)
    found = findings("releases/v1")
    for check in ("tpr-drop@10%", "tpr-drop@1%"):
        assert found[check] == ("inconclusive", "not-measured", required == "true")
    assert found["tpr@10%"][0] == "pass"
    assert "baseline" not in found


@pytest.mark.usefixtures("place")
def test_a_first_release_is_declared_and_the_record_says_so() -> None:
    assert call(*RUN, "--malicious", "malicious.npy", "--baseline", "none") == 0
    record = read_record("releases/v1")
    assert record.of(Comparison) == Comparison(reference=None)
    found = findings("releases/v1")
    assert found["baseline"] == ("pass", "first-release", False)
    assert not any(check.startswith("tpr-drop") for check in found)
    for name in ("report.md", "report.html", "junit.xml"):
        assert "eclared to be the first release" in Path("releases/v1", name).read_text()
    assert "--baseline none" in Path("releases/v1/report.md").read_text()
    judged = gate.run(
        "fit.npy", "holdout.npy", release="v1", policy="policy.yaml", malicious="malicious.npy", baseline="none"
    )
    assert judged.record.findings == record.findings
    assert judged.record.of(Comparison) == Comparison(reference=None)


@pytest.mark.usefixtures("place")
def test_a_first_release_has_no_scores_of_an_earlier_one() -> None:
    with pytest.raises(UsageError, match="--baseline-holdout needs --baseline"):
        call(*RUN, "--baseline", "none", "--baseline-holdout", "holdout.npy")
    with pytest.raises(GateError, match=r"^none/manifest\.json: must be"):
        call(*RUN, "--baseline", "./none")  # a directory of that name


@pytest.mark.usefixtures("place")
def test_a_check_says_what_it_did_not_ask(capsys: pytest.CaptureFixture[str]) -> None:
    """Without malicious rows it is about the contract alone: neither inconclusive for want of them nor silent."""
    assert call(*RUN, "--malicious", "malicious.npy", "--baseline", "none") == 0
    capsys.readouterr()
    assert call("check", "releases/v1", "--holdout", "later.npy", "--out", "c1") == 0
    assert "not asked in a check: overlap, exchangeability" in " ".join(capsys.readouterr().out.split())
    needs = {str(entry.check): entry.needs for entry in read_record("c1").not_asked}
    assert needs == {
        "overlap": "fit rows",
        "exchangeability": "fit rows",
        "granularity@10%": "fit rows",
        "floor": "fit rows",
        "direction": "malicious rows",
        "tpr@10%": "malicious rows",
        "tpr@1%": "malicious rows",
        "tpr-drop@10%": "another release",
        "tpr-drop@1%": "another release",
    }
    assert not needs.keys() & findings("c1").keys()
    for name in ("report.md", "report.html"):
        assert "Not asked in a check: overlap" in Path("c1", name).read_text()
    assert call("check", "releases/v1", "--holdout", "later.npy", "--malicious", "malicious.npy", "--out", "c2") == 0
    assert findings("c2")["tpr@10%"][:2] == ("pass", "proven")
    assert "tpr@10%" not in {str(entry.check) for entry in read_record("c2").not_asked}
    assert json.loads(Path("releases/v1/verdict.json").read_bytes())["not_asked"] == []
