"""What comes after a release was written, exports and checks, lies in its directory, is verified, and is never lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small import contents, gate, log_lines, write_inputs

pytestmark = pytest.mark.figures
NAMES = {"onnx": "calibrator.onnx", "sql": "thresholds.sql"}
RUN = ("run", "--policy", "policy.yaml", "--release", "v1", "--fit", "fit.npy", "--holdout", "pass.npy")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a release with both exports and a check below it, and another release without them."""
    directory = tmp_path_factory.mktemp("beside")
    write_inputs(directory)
    assert gate(*RUN, cwd=directory).returncode == 0
    assert gate(*RUN[:4], "v2", *RUN[5:-1], "fail.npy", cwd=directory).returncode == 1
    for format_, name in NAMES.items():
        assert (
            gate("export", "releases/v1", "--to", format_, "-o", f"releases/v1/{name}", cwd=directory).returncode == 0
        )
    assert gate("check", "releases/v1", "--holdout", "fail.npy", cwd=directory).returncode == 1
    return directory


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own"


def verified(place: Path, directory: str = "releases/v1", **more: str) -> tuple[int, dict[str, str]]:
    """Return the exit code of `gate verify`, and each line of its answer by name."""
    result = gate("verify", directory, "--json", cwd=place)
    answers = json.loads(result.stdout)["checks"]
    return result.returncode, {one["name"]: f"{one['state']}: {one['message']}" for one in answers}


def only_check(place: Path) -> Path:
    (check,) = (place / "releases" / "v1" / "checks").iterdir()
    return check


def test_exports_and_checks_are_no_strangers(place: Path) -> None:
    """The manifest stays as it was written, and words say what was found beside what it lists."""
    before = json.loads((place / "releases/v1/manifest.json").read_text())["sha256"]
    assert not {*NAMES.values(), "checks"} & before.keys()
    code, said = verified(place)
    assert code == 0
    unlisted = "calibrator.onnx, thresholds.sql, checks/ unlisted, as what comes later is"
    assert said["manifest"] == f"holds: 7 files with the digests listed, none missing, {unlisted}"
    assert said["exports"] == "holds: calibrator.onnx, thresholds.sql are what calibrator.json gives, byte for byte"
    assert said["checks"] == "holds: checks/ holds 1 check of this release, to verify by itself"
    check = only_check(place).relative_to(place)
    code, said = verified(place, str(check))
    assert code == 0
    assert said["kind"] == "holds: a check of 'v1', not a release: nothing in it may be deployed"
    code, said = verified(place, "releases/v2")
    assert code == 0
    assert not {"exports", "checks"} & said.keys()


@pytest.mark.each_run(1)
@pytest.mark.parametrize("name", NAMES.values())
def test_an_export_of_other_bytes_or_of_another_release_does_not_hold(place: Path, name: str) -> None:
    path = place / "releases/v1" / name
    format_ = next(format_ for format_, each in NAMES.items() if each == name)
    gate("export", "releases/v2", "--to", format_, "-o", "foreign", cwd=place)
    for content in (path.read_bytes() + b"\n", b"", (place / "foreign").read_bytes()):
        path.write_bytes(content)
        code, said = verified(place)
        assert code == 1
        wrong = f"{name} is not what calibrator.json gives; do not serve it, and export it again"
        assert said["exports"] == f"does not hold: {wrong}"
        assert said["manifest"].startswith("holds: ")


def test_without_onnx_its_export_cannot_be_checked(place: Path) -> None:
    """What cannot be checked is no pass; what is wrong with the other export is still said."""
    absent = "import sys\nsys.modules['onnx'] = None"
    result = gate("verify", "releases/v1", cwd=place, before=absent)
    assert result.returncode == 2
    (line,) = [line for line in result.stdout.splitlines() if "exports" in line]
    assert line == (
        "cannot be checked: exports: calibrator.onnx is to be compared where the package onnx is installed: "
        "pip install 'fpr-gate[onnx]'"
    )
    (place / "releases/v1/thresholds.sql").write_text("CASE WHEN true THEN 1 END")
    assert gate("verify", "releases/v1", cwd=place, before=absent).returncode == 1


def test_anything_else_stays_foreign(place: Path) -> None:
    release, check = place / "releases/v1", only_check(place)
    for path, name, said in (
        (release / "notes.txt", "manifest", "notes.txt is added after the release was written"),
        (release / "calibrator.onnx.bak", "manifest", "calibrator.onnx.bak is added after the release was written"),
        (release / "checks" / "notes.txt", "checks", "checks/notes.txt is foreign among the checks of a release"),
        (check / "calibrator.onnx", "kind", "calibrator.onnx is foreign in a check, which has no calibrator; do not"),
    ):
        path.write_bytes(b"anything")
        directory = check if path.parent == check else release
        code, answers = verified(place, str(directory.relative_to(place)))
        assert code == 1, path
        assert answers[name].startswith(f"does not hold: {said}"), answers[name]
        path.unlink()
    (check / "checks").mkdir()
    code, answers = verified(place, str(check.relative_to(place)))
    assert (code, answers["kind"]) == (1, "does not hold: checks/ is foreign in a check, which is not checked again")
    (check / "checks").rmdir()
    check.rename(place / "elsewhere")
    (release / "checks").rmdir()
    (release / "checks").symlink_to(place / "elsewhere")
    code, answers = verified(place)
    assert (code, answers["manifest"]) == (1, "does not hold: checks is not a plain file of a release's size")


def test_an_export_is_never_listed(place: Path) -> None:
    """A manifest that lists one was sealed by something else than gate."""
    path = place / "releases/v1/manifest.json"
    path.write_text(path.read_text().replace('"verdict.json"', '"thresholds.sql": "0",\n    "verdict.json"'))
    code, said = verified(place)
    assert (code, said["manifest"]) == (1, "does not hold: thresholds.sql is listed, where an export never is")


# --- checks are not lost ------------------------------------------------------------------------------------


def test_force_replaces_no_release_that_has_checks(place: Path) -> None:
    """Nor one that has exports: neither is part of it. Without them it can."""
    before = contents(place)
    result = gate(*RUN, "--force", cwd=place)
    assert (result.returncode, result.stdout) == (2, "")
    must = "releases/v1: must hold no checks for --force to replace it, got 1 check in checks/"
    assert log_lines(result)[-1] == f"{must}; move that directory away, or choose another --out"
    assert contents(place) == before
    (place / "releases/v1/checks").rename(place / "kept")
    (place / "releases/v1/checks").mkdir()
    for name in sorted(NAMES.values()):
        refused = gate(*RUN, "--force", cwd=place)
        assert refused.returncode == 2
        assert f"must hold nothing but a release for --force to replace it, got {name}; " in refused.stderr
        (place / "releases/v1" / name).unlink()
    assert gate(*RUN, "--force", cwd=place).returncode == 0
    assert not (place / "releases/v1/checks").exists()
    (place / "kept").rename(place / "releases/v1/checks")
    assert verified(place)[0] == 0


def test_a_check_goes_below_its_release_by_its_time(place: Path) -> None:
    """It is written whole or not at all; a second one in the same second is refused; the history shows it."""
    known = only_check(place).name
    env = {"SOURCE_DATE_EPOCH": "1767225600"}
    result = gate("check", "releases/v1/", "--holdout", "pass.npy", cwd=place, env=env)
    assert result.returncode == 0
    assert log_lines(result)[-1] == "report: releases/v1/checks/20260101T000000Z/report.html"
    assert sorted(path.name for path in (place / "releases/v1/checks").iterdir()) == ["20260101T000000Z", known]
    again = gate("check", "releases/v1", "--holdout", "pass.npy", cwd=place, env=env)
    assert again.returncode == 2
    assert log_lines(again)[-1].startswith("releases/v1/checks/20260101T000000Z: must not exist yet; choose another")
    assert gate("check", "releases/v1", "--holdout", "pass.npy", "--force", cwd=place, env=env).returncode == 0
    history = gate("history", "releases", cwd=place)
    assert history.returncode == 0
    assert "2 releases and 2 checks " in history.stdout


def test_what_a_killed_check_left_is_neither_a_check_nor_foreign(place: Path) -> None:
    (place / "releases/v1/checks/.gate-0123456789abcdef.partial").mkdir()
    code, said = verified(place)
    assert (code, said["checks"].partition(" of ")[0]) == (0, "holds: checks/ holds 1 check")
