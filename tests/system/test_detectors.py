"""Several detectors in one release, as commands and in Python: one verdict on all, each as in a run of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import several
from drawing import often
from small import RELEASE_FILES, gate

import gate as api
from gate.checks import parse_policy
from gate.errors import GateError
from gate.policy import Document
from gate.report import explain
from gate.report.formats import rendered
from gate.storage import manifest_of
from gate.systems import read_past
from gate.systems.verdict import judge_together

NAMES = ("injection", "jailbreak", "..leak-age_1")
TOP = ["detectors", "junit.xml", "manifest.json", "predicate.json", "report.html", "report.md", "verdict.json"]
CREATED = {"SOURCE_DATE_EPOCH": "1790000000"}


def document(*arguments: object, **named: object) -> Document:
    return parse_policy(several.policy(*arguments, **named), "several.yaml")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of three detectors that are somewhat alike, one row in 2,000 without one of its scores, and a release."""
    directory = tmp_path_factory.mktemp("several")
    for name, n, seed, shift in (
        ("fit", 12_000, 1, {}),
        ("holdout", 12_000, 2, {}),
        ("malicious", 500, 3, {"injection": 2.5, "jailbreak": 1.5}),
    ):
        table = several.simulate(n, NAMES, seed, 0.4, shift)
        if name == "holdout":
            gaps = np.arange(n) % 2000 == 7
            table = table.set_column(2, "jailbreak_score", pa.array(table["jailbreak_score"].to_numpy(), mask=gaps))
        pq.write_table(table, directory / f"{name}.parquet")
    (directory / "several.yaml").write_text(several.policy(NAMES))
    ran = run(directory, "release")
    assert ran.returncode == 0, ran.stderr
    return directory


def run(directory: Path, out: str, *more: str, policy: str = "several.yaml"):  # type: ignore[no-untyped-def]  # noqa: ANN201
    files = [item for name in ("fit", "holdout", "malicious") for item in (f"--{name}", f"{name}.parquet")]
    options = ("--policy", policy, *files, "--out", out, *more)
    return gate("run", "--release", "v1", *options, cwd=directory, env=CREATED)


# --- the directory ------------------------------------------------------------------------------------------


def test_the_directory_has_one_release_for_each_and_files_for_all(place: Path) -> None:
    """`detectors/NAME/` is as for one detector, and the manifest at the top covers every file."""
    release = place / "release"
    assert sorted(path.name for path in release.iterdir()) == TOP
    assert sorted(path.name for path in (release / "detectors").iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert sorted(path.name for path in (release / "detectors" / name).iterdir()) == RELEASE_FILES
    listed = json.loads((release / "manifest.json").read_text())["sha256"]
    present = {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()} - {"manifest.json"}
    assert {*listed} == present


def test_every_single_release_is_that_of_a_run_of_its_own(place: Path) -> None:
    """They agree to the byte if the detector has scored every row; the policy of one is `FILE#NAME`."""
    for name in (NAMES[0], NAMES[2]):
        ran = run(place, f"alone-{name}", policy=f"several.yaml#{name}")
        assert ran.returncode == 0, ran.stderr
        for file in RELEASE_FILES:
            own = (place / f"alone-{name}" / file).read_bytes()
            assert own == (place / "release" / "detectors" / name / file).read_bytes(), file


def test_rows_without_a_score_are_counted(place: Path) -> None:
    """The count is in the detector's own record, in the record of all, and on stderr."""
    record = json.loads((place / "release" / "verdict.json").read_text())
    own = json.loads((place / "release" / "detectors" / "jailbreak" / "verdict.json").read_text())
    assert own["holdout"]["unscored"] == 6
    assert own["holdout"]["n"] == 12_000 - 6
    together = record["system"]["benign"][0]
    assert together["tally"]["rows"] == 12_000
    assert together["unscored"] == 6
    assert [member["unscored"] for member in together["detectors"]] == [0, 6, 0]
    again = run(place, "unused", "--dry-run")
    assert "holdout: 3 detectors, 12,000 rows" in again.stderr
    assert "not scored: jailbreak 6" in again.stderr
    assert "not read" not in again.stderr


def test_the_system_is_counted_as_the_rows_show(place: Path) -> None:
    """Calibrated by each detector's own calibrator, the rows that any flags are those of the record."""
    from gate.calibration.calibrator import from_json

    for sample, key in (("holdout", "benign"), ("malicious", "malicious")):
        table = pq.read_table(place / f"{sample}.parquet")
        flags = []
        for name in NAMES:
            calibrator = from_json((place / "release" / "detectors" / name / "calibrator.json").read_text())
            scores = np.nan_to_num(table[f"{name}_score"].to_numpy(), nan=0.0)
            flags.append(calibrator.predict(scores) >= 0.3)
        found = json.loads((place / "release" / "verdict.json").read_text())["system"][key][0]
        assert found["tally"]["flagged"] == int(np.any(flags, axis=0).sum())
        alone = [int((flag & (np.sum(flags, axis=0) == 1)).sum()) for flag in flags]
        assert [member["alone"] for member in found["detectors"]] == alone


def test_a_run_is_repeated_to_the_byte(place: Path) -> None:
    """No order in which files or detectors are asked shows."""
    assert run(place, "again").returncode == 0
    for path in sorted((place / "release").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (place / "again" / path.relative_to(place / "release")).read_bytes(), path


def test_a_small_memory_gives_the_same_release(place: Path) -> None:
    """Samples stay where they are then, and the release is the same to the byte."""
    ran = run(place, "asked", "--memory", "256KB")
    assert ran.returncode == 0, ran.stderr
    for path in sorted((place / "release").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (place / "asked" / path.relative_to(place / "release")).read_bytes(), path


# --- verification -------------------------------------------------------------------------------------------


def test_verify_holds_with_and_without_the_data(place: Path) -> None:
    """All that is said of all detectors follows from their own records, and those from the data."""
    assert gate("verify", "release", cwd=place).returncode == 0
    data = [item for name in ("fit", "holdout", "malicious") for item in (f"--{name}", f"{name}.parquet")]
    found = gate("verify", "release", "--policy", "several.yaml", *data, cwd=place)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "holds: data: all records" in found.stdout
    swapped = ["--fit", "holdout.parquet", "--holdout", "fit.parquet", "--malicious", "malicious.parquet"]
    assert gate("verify", "release", "--policy", "several.yaml", *swapped, cwd=place).returncode == 1


def test_verify_finds_any_change_in_any_directory(place: Path, tmp_path: Path) -> None:
    """The changes: one byte of any file, a file or directory too many or too few, a link."""
    files = sorted(path.relative_to(place / "release") for path in (place / "release").rglob("*") if path.is_file())
    chosen = [path for path in files if path.parts[0] != "detectors" or path.parts[1] == NAMES[1]]
    for path in chosen[:: often(2, 1)]:
        copy = tmp_path / "copy"
        shutil.copytree(place / "release", copy)
        content = bytearray((copy / path).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / path).write_bytes(bytes(content))
        assert gate("verify", "copy", cwd=tmp_path).returncode in (1, 2), path
        shutil.rmtree(copy)
    for change in ("rm verdict", "extra file", "extra detector", "lost detector", "link"):
        copy = tmp_path / "copy"
        shutil.copytree(place / "release", copy)
        own = copy / "detectors" / NAMES[0]
        if change == "rm verdict":
            (own / "verdict.json").unlink()
        elif change == "extra file":
            (own / "notes.txt").write_text("x")
        elif change == "extra detector":
            shutil.copytree(own, copy / "detectors" / "other")
        elif change == "lost detector":
            shutil.rmtree(own)
        else:
            shutil.move(own, tmp_path / "moved")
            own.symlink_to(tmp_path / "moved")
        assert gate("verify", "copy", cwd=tmp_path).returncode == 1, change
        shutil.rmtree(copy)


def seal(directory: Path) -> None:
    files = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path != directory / "manifest.json"
    }
    (directory / "manifest.json").write_bytes(manifest_of(files))


def test_verify_finds_what_was_sealed_anew(place: Path, tmp_path: Path) -> None:
    """A manifest can be written by anyone: a verdict of all that the detectors' records do not give is found."""
    changes = {
        "outcome": lambda record: record.update(outcome="fail"),
        "flagged": lambda record: record["system"]["benign"][0]["tally"].update(flagged=700),
        "required": lambda record: record["detectors"][1].update(required=False),
        "unscored": lambda record: record["system"]["benign"][0].update(unscored=0, undecided=0),
        "dropped": lambda record: record["detectors"].pop(),
    }
    for what, change in changes.items():
        copy = tmp_path / what
        shutil.copytree(place / "release", copy)
        record = json.loads((copy / "verdict.json").read_text())
        change(record)
        (copy / "verdict.json").write_text(json.dumps(record))
        seal(copy)
        found = gate("verify", what, cwd=tmp_path)
        assert found.returncode == 1, found.stdout
        assert "does not hold" in found.stdout


def test_the_record_of_all_says_which_version_wrote_the_others(place: Path, tmp_path: Path) -> None:
    """A detector's record that claims another version by itself is none that this release has: the data tell."""
    copy = tmp_path / "release"
    shutil.copytree(place / "release", copy)
    own = copy / "detectors" / NAMES[0] / "verdict.json"
    own.write_text(own.read_text().replace(f'"version": "{version("fpr-gate")}"', '"version": "0.0.1"'))
    record = json.loads((copy / "verdict.json").read_text())
    record["detectors"][0]["verdict_sha256"] = hashlib.sha256(own.read_bytes()).hexdigest()
    (copy / "verdict.json").write_text(json.dumps(record))
    seal(copy)
    data = [item for name in ("fit", "holdout", "malicious") for item in (f"--{name}", f"{name}.parquet")]
    found = gate("verify", str(copy), *data, cwd=place)
    assert found.returncode == 1, found.stdout
    assert f"does not hold: data: {NAMES[0]}.tool.version is '0.0.1' in the record" in found.stdout


# --- other commands -----------------------------------------------------------------------------------------


def test_a_check_judges_every_detector_again(place: Path) -> None:
    """It uses the calibrators of the release on new rows, and what it writes can be verified."""
    found = gate("check", "release", "--holdout", "holdout.parquet", "--out", "checked", cwd=place, env=CREATED)
    assert found.returncode == 0, found.stderr
    assert "still keeps its contract" in found.stdout
    assert gate("verify", "checked", cwd=place).returncode == 0
    data = ("--holdout", "holdout.parquet", "--baseline", "release", "--policy", "several.yaml")
    assert gate("verify", "checked", *data, cwd=place).returncode == 0


def test_a_baseline_is_held_against_detector_by_detector(place: Path) -> None:
    """Each is compared with its own earlier release; a new detector is a first release."""
    names = (*NAMES[:2], "newer")
    text = several.policy(names).replace("newer_score", f"{NAMES[2]}_score")
    (place / "newer.yaml").write_text(text)
    ran = run(place, "second", "--baseline", "release", policy="newer.yaml")
    assert ran.returncode == 0, ran.stderr
    for name, expected in ((NAMES[0], "v1"), ("newer", None)):
        record = json.loads((place / "second" / "detectors" / name / "verdict.json").read_text())
        reference = record["checks"]["baseline"]["reference"]
        assert (reference and reference["release"]) == expected


def test_reports_can_be_rendered_again(place: Path) -> None:
    """Every format comes from the record alone; JUnit has a suite for each detector and one for the system."""
    for format_, file in (
        ("html", "report.html"),
        ("md", "report.md"),
        ("junit", "junit.xml"),
        ("json", "verdict.json"),
    ):
        printed = gate("report", "release", "--format", format_, cwd=place)
        assert printed.stdout == (place / "release" / file).read_text()
    suites = ElementTree.fromstring((place / "release" / "junit.xml").read_text())
    assert [suite.get("name") for suite in suites] == [*NAMES, "system"]
    text = gate("report", "release", cwd=place).stdout
    assert all(name in text for name in NAMES)


def test_github_is_told_once_for_each_detector_that_blocks(place: Path, tmp_path: Path) -> None:
    """The annotation stands at the detector's line of the policy."""
    table = several.simulate(12_000, NAMES, 5, 0.4, {NAMES[0]: 1.0, NAMES[1]: 1.0})
    pq.write_table(table, place / "drifted.parquet")
    files = ("--fit", "fit.parquet", "--holdout", "drifted.parquet")
    env = {**CREATED, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    env |= {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_WORKSPACE": str(place)}
    policy = ("--policy", "several.yaml")
    ran = gate("run", "--release", "v1", *policy, *files, "--out", "failed", cwd=place, env=env)
    assert ran.returncode == 1
    errors = [line for line in ran.stderr.splitlines() if line.startswith("::error ")]
    lines = several.policy(NAMES).splitlines()
    assert len(errors) == 3  # two detectors, and the system
    for error, name in zip(errors, NAMES[:2], strict=False):
        line = next(i for i, text in enumerate(lines, 1) if f'"{name}"' in text)
        assert f"title={name}%3A fail,file=several.yaml,line={line}::" in error
    assert "FAIL: v1 must not ship" in (tmp_path / "summary").read_text()


def test_plans_comparisons_and_histories_take_several(place: Path) -> None:
    """A plan says what limits on all take, a comparison and a history go detector by detector."""
    plan = json.loads(gate("plan", "--policy", "several.yaml", "--json", cwd=place).stdout)
    assert [*plan["detectors"]] == [*NAMES]
    (system,) = plan["system"]
    promised = 0.01
    assert system["independent"]["rate"] == pytest.approx(1 - (1 - promised) ** len(NAMES))
    assert system["sum"]["rate"] == pytest.approx(promised * len(NAMES))
    assert system["independent"]["passes"] >= system["sum"]["passes"] > 0.99
    compared = json.loads(gate("compare", "release", "release", "--format", "json", cwd=place).stdout)
    assert [*compared["detectors"]] == [*NAMES]
    history = json.loads(gate("history", "release", "--json", cwd=place).stdout)
    assert len(history["releases"]) == 1
    text = gate("history", "release", cwd=place).stdout
    assert all(f"{name} 1 %" in text for name in NAMES)


# --- input --------------------------------------------------------------------------------------------------


def test_files_of_their_own_give_the_same_verdict(place: Path) -> None:
    """One file with a column each, and a file each joined by id, in another order."""
    rng = np.random.default_rng(8)
    more = {}
    for name in NAMES:
        for sample in ("fit", "holdout"):
            table = pq.read_table(place / f"{sample}.parquet").select(["id", f"{name}_score"])
            pq.write_table(table.take(pa.array(rng.permutation(len(table)))), place / f"{name}-{sample}.parquet")
        more[name] = f'fit: "{name}-fit.parquet", holdout: "{name}-holdout.parquet"'
    (place / "own.yaml").write_text(several.policy(NAMES, more=more))
    options = ("--malicious", "malicious.parquet", "--policy", "own.yaml", "--out", "own")
    ran = gate("run", "--release", "v1", *options, cwd=place, env=CREATED)
    assert ran.returncode == 0, ran.stderr
    own, shared = (json.loads((place / name / "verdict.json").read_text()) for name in ("own", "release"))
    assert own["system"] == shared["system"]
    assert own["findings"] == shared["findings"]
    assert gate("verify", "own", "--policy", "own.yaml", "--malicious", "malicious.parquet", cwd=place).returncode == 0


def test_one_sample_is_split_alike_for_all(place: Path) -> None:
    """Rows that any detector is fitted on are held out for none."""
    options = ("--benign", "fit.parquet", "--split", "50%", "--policy", "several.yaml", "--out", "split")
    ran = gate("run", "--release", "v1", *options, cwd=place, env=CREATED)
    assert ran.returncode in (0, 1, 3), ran.stderr
    record = json.loads((place / "split" / "verdict.json").read_text())
    held = [facts["holdout_n"] for facts in record["detectors"]]
    assert record["system"]["benign"][0]["tally"]["rows"] == held[0] == held[1] == held[2]
    assert gate("verify", "split", "--policy", "several.yaml", "--benign", "fit.parquet", cwd=place).returncode == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("jailbreak_score", "jailbrake_score"), "jailbrake_score"),
        (("data: {id: id}", "data: {id: name}"), "name"),
    ],
)
def test_an_unknown_column_is_an_error(place: Path, change: tuple[str, str], said: str) -> None:
    """The exit code is 2, and the message names the file and the column."""
    (place / "wrong.yaml").write_text(several.policy(NAMES).replace(*change))
    ran = run(place, "wrong", policy="wrong.yaml")
    assert ran.returncode == 2
    assert said in ran.stderr
    assert not (place / "wrong").exists()


def test_detectors_without_files_are_named(place: Path) -> None:
    ran = gate("run", "--release", "v1", "--policy", "several.yaml", "--fit", "fit.parquet", "--dry-run", cwd=place)
    assert ran.returncode == 2
    said = f"must each have files to judge on, got none for {', '.join(NAMES)}; give --holdout FILE, or holdout: FILE"
    assert said in ran.stderr


def test_the_ledger_counts_one_use_of_the_rows_for_all_detectors(place: Path) -> None:
    """The number of detectors does not matter; the next release is the second use of all rows."""
    (place / "reuse.yaml").write_text(several.policy(NAMES, end="reuse: {max_uses: 5}\n"))
    (place / "reuse2.yaml").write_text(several.policy(NAMES, end="reuse: {max_uses: 6}\n"))
    for number, policy in ((1, "reuse.yaml"), (2, "reuse2.yaml"), (1, "reuse.yaml")):
        ran = run(place, "used", "--force", "--ledger", "ledger.jsonl", policy=policy)
        assert ran.returncode in (0, 3), ran.stderr
        record = json.loads((place / "used" / "verdict.json").read_text())
        assert record["system"]["use"] == number
        for name in NAMES:
            own = json.loads((place / "used" / "detectors" / name / "verdict.json").read_text())
            assert own["checks"]["reuse"]["holdout"]["number"] == number
    data = [item for name in ("fit", "holdout", "malicious") for item in (f"--{name}", f"{name}.parquet")]
    data += ["--policy", "reuse.yaml", "--ledger", "ledger.jsonl"]
    found = gate("verify", "used", *data, cwd=place)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("together_first", [False, True])
def test_malicious_rows_are_used_again_by_one_detector_and_by_several(tmp_path: Path, together_first: bool) -> None:
    """Either may come first; the held-out rows are different each time."""
    end = "reuse: {max_uses: 5}\n"
    alone = document(NAMES, end=end).detectors[NAMES[0]]
    of_all, ledger = document(NAMES, end=end), str(tmp_path / "ledger.jsonl")
    malicious = several.simulate(300, NAMES, 9, shift=dict.fromkeys(NAMES, 2.0))
    runs: list[Any] = [(api.run, alone), (api.run_system, of_all)]
    for i, (run_one, policy) in enumerate(reversed(runs) if together_first else runs):
        rows = [several.simulate(1_000, NAMES, 20 + 2 * i + j) for j in range(2)]
        release = run_one(*rows, release=f"v{i}", policy=policy, ledger=ledger, malicious=malicious)
        record = release.record
        found = record.system if policy is of_all else record.checks.reuse
        used = (found.use, found.malicious_use) if policy is of_all else (found.holdout.number, found.malicious.number)
        assert used == (1, i + 1)


def test_many_detectors_are_one_release() -> None:
    """Independent rates add up: the rate of all is near the sum, and each detector has its line in every report."""
    names = [f"detector-{i:02}" for i in range(often(20, 50))]
    fit, holdout = several.simulate(6000, names, 1), several.simulate(6000, names, 2)
    release = api.run_system(fit, holdout, release="v1", policy=document(names, "90%"))
    found = release.record.system
    assert found is not None
    together = found.benign[0]
    assert together.tally.rate == pytest.approx(together.independent, rel=0.05)
    assert together.largest < together.tally.rate < together.sum
    files = rendered(release.record)
    page, text = files["report.html"].decode(), files["report.md"].decode()
    assert all(f"detectors/{name}/report.html" in page and name in text for name in names)
    assert len(page) < 1_500_000


# --- the verdict on all -------------------------------------------------------------------------------------


def released(
    end: str = "", more: dict[str, str] | None = None, limit: str = "20%", **shift: float
) -> api.SystemRelease:
    names = ("a", "b", "c")
    fit, holdout = several.simulate(12_000, names, 1, 0.3), several.simulate(12_000, names, 2, 0.3, shift)
    return api.run_system(fit, holdout, release="v1", policy=document(names, limit, more, end))


def test_a_detector_that_fails_fails_the_release_and_is_named_first() -> None:
    """The reason and the report begin with what blocks."""
    release = released(b=1.0, limit="90%")
    assert release.outcome == "fail"
    assert release.record.reason.startswith("b: ")
    page = rendered(release.record)["report.html"].decode()
    assert page.index("detectors/b/report.html") < page.index("detectors/a/report.html")
    assert {name: own.outcome for name, own in release.releases.items()} == {"a": "pass", "b": "fail", "c": "pass"}


def test_a_detector_that_is_not_required_blocks_nothing() -> None:
    """It is judged, shown, and said in the reason."""
    release = released(b=1.0, limit="90%", more={"b": "required: false"})
    assert release.outcome == "pass"
    assert "b, not required, did not pass" in release.record.reason


def test_a_waiver_covers_one_detector_and_no_other() -> None:
    """Both fail alike; what is waived of one still blocks by the other."""

    def waived(*names: str) -> str:
        checks = [f"{name}:fpr@{rate}" for name in names for rate in ("10%", "1%")]
        entries = [f'  - {{check: "{check}", reason: known, owner: me, expires: 2099-12-31}}\n' for check in checks]
        return "waivers:\n" + "".join(entries)

    both: dict[str, Any] = {"b": 1.0, "c": 1.0}
    for name, other in (("b", "c"), ("c", "b")):
        release = released(waived(name), limit="90%", **both)
        assert release.outcome == "fail"
        blocking = {str(finding.check) for finding in release.record.findings if finding.blocks}
        assert blocking == {f"{other}:fpr@10%", f"{other}:fpr@1%"}
        assert release.releases[name].outcome == "pass"
    assert released(waived("b", "c"), limit="90%", **both).outcome == "pass"


def test_the_system_can_fail_where_every_detector_passes_and_be_waived(tmp_path: Path) -> None:
    """Detectors that each keep their promise may break it together; then none of them is a reference for others."""
    release = released(limit="1%")
    assert {own.outcome for own in release.releases.values()} == {"pass"}
    assert release.outcome == "fail"
    assert "together the detectors flag too many benign rows at a score of 0.3" in release.record.reason
    for name in ("system", "system@0.3"):
        said = explain.render(name, release.record, width=200)
        assert "\n  system@0.3: fail (" in said
    release.write(tmp_path / "v1")
    documents = document(("a", "b", "c"), "1%").detectors
    assert {one.outcome for one in read_past(tmp_path / "v1", documents).references.values()} == {"fail"}
    top = tmp_path / "v1" / "verdict.json"
    forged = json.loads(top.read_text()) | {"outcome": "pass", "reason": "3 required detectors pass"}
    top.write_text(json.dumps(forged))
    seal(tmp_path / "v1")
    with pytest.raises(GateError, match=r"v1: must be a release whose verdict follows from its detectors and policy"):
        read_past(tmp_path / "v1", documents)
    waiver = "waivers:\n  - {check: system@0.3, reason: known, owner: me, expires: 2099-12-31}\n"
    assert released(waiver, limit="1%").outcome == "pass"


def test_the_verdict_follows_from_the_records_alone() -> None:
    """Judging again what the records say gives the same verdict."""
    release = released(b=0.2)
    records = {name: own.record for name, own in release.releases.items()}
    policy = parse_policy(release.record.policy.content, "p.yaml").policy
    again = judge_together(policy, records, release.record.system, release.record.day)
    assert (again.outcome, again.reason, again.findings) == (
        release.outcome,
        release.record.reason,
        release.record.findings,
    )
