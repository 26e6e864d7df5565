"""A release directory appears whole or not at all, and a record reads back or is refused in one line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml

from gate import policy, release
from gate.calibration.fit import fit_sorted
from gate.errors import GateError
from gate.evidence import measure
from gate.policy import load_default, parse
from gate.release import Record, compose, read_record, refuse_existing, schema, write, write_file
from gate.scores import Scores, Source
from gate.verdict import judge

FILES = {"verdict.json": b"{}\n", "report.html": b"<p>\n", "calibrator.joblib": bytes(range(256))}
NEWER = {name: content + b"newer" for name, content in FILES.items()}

POLICY = """\
version: 1
name: small
targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]
waivers: [{check: fpr@0.1, reason: until relabelled, owner: "@detections", expires: 2026-12-31}]
"""


def make_record(path: str = "fit.npy") -> Record:
    rng = np.random.default_rng(7)
    document = parse(POLICY, "policy.yaml")
    fit = Scores(rng.beta(0.5, 8, 2000), (Source(path, 2000, 2000),))
    holdout = Scores(rng.beta(0.5, 8, 2000), (Source("holdout.npy", 2000, 2000),))
    calibrator = fit_sorted(fit.ordered, document.policy.calibration, document.policy.anchors)
    created = datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    verdict = judge(document.policy, measure(document.policy, calibrator, fit, holdout), created.date())
    return compose(
        release="v1",
        created=created,
        version="1.2.3",
        document=document,
        fit=fit,
        holdout=holdout,
        calibrator=calibrator,
        verdict=verdict,
    )


@pytest.fixture(scope="module")
def record() -> Record:
    return make_record()


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, with hidden ones, so that no leftover goes unseen."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def refused() -> Iterator[Callable[[], str]]:
    """The block must raise a GateError of one line; the value gives the line."""
    lines: list[str] = []
    with pytest.raises(GateError) as caught:
        yield lambda: lines[0]
    lines.extend(str(caught.value).splitlines())
    assert len(lines) == 1
    assert lines[0]


# --- the directory ------------------------------------------------------------------------------------------


def test_a_release_holds_its_files_and_a_manifest_of_their_digests(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "v1", FILES, force=False)
    found = snapshot(tmp_path / "deep" / "v1")
    manifest = json.loads(found.pop("manifest.json"))
    assert found == FILES
    assert manifest["sha256"] == {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    assert list(manifest["sha256"]) == sorted(FILES)
    assert entries(tmp_path / "deep") == ["v1"]


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    write(tmp_path / "v1", FILES, force=False)
    assert snapshot(tmp_path / "v1").keys() == FILES.keys() | {"manifest.json"}
    assert entries(tmp_path) == ["v1"]


def test_an_existing_release_is_refused_without_force(tmp_path: Path) -> None:
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=False)
    assert "must not exist yet" in line()
    assert "--force" in line()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("at_once", [True, False])
def test_force_replaces_a_release_and_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """In one step, and where the file system cannot exchange two directories, in two."""
    if not at_once:
        monkeypatch.setattr(release, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", {**FILES, "old-report.md": b"old"}, force=False)
    write(tmp_path / "v1", NEWER, force=True)
    found = snapshot(tmp_path / "v1")
    assert found.keys() == NEWER.keys() | {"manifest.json"}
    assert found["verdict.json"] == NEWER["verdict.json"]
    assert entries(tmp_path) == ["v1"]


OTHER_MANIFESTS = [b"", b"{}", b"[]", b"null", b'{"sha256": {}}', b'{"name": "app"}', b"\xff", b"[" * 10**5]


@pytest.mark.parametrize("manifest", [None, *OTHER_MANIFESTS], ids=lambda content: repr(content)[:20])
def test_force_never_deletes_what_is_no_release(tmp_path: Path, manifest: bytes | None) -> None:
    """A web application has a manifest.json too."""
    target = tmp_path / "site"
    target.mkdir()
    (target / "index.html").write_text("precious")
    if manifest is not None:
        (target / "manifest.json").write_bytes(manifest)
    before = snapshot(tmp_path)
    with refused() as line:
        write(target, FILES, force=True)
    assert "manifest.json" in line()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_a_link_or_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path, force: bool) -> None:
    write(tmp_path / "real", FILES, force=False)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("precious")
    before = snapshot(tmp_path)
    for name in ("link", "dangling", "file"):
        with refused() as line:
            write(tmp_path / name, FILES, force=force)
        assert "must be a new directory" in line()
    assert snapshot(tmp_path) == before
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["file/v1", "file/deep/v1", "x" * 300, "\u00fc" * 200])
def test_an_impossible_place_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    with refused() as line:
        refuse_existing(tmp_path / name, force=False)
    assert "must be" in line()
    assert entries(tmp_path) == ["file"]


def test_a_long_but_possible_name_is_written(tmp_path: Path) -> None:
    """The directory's own name may use up what the file system allows."""
    write(tmp_path / ("x" * 255), FILES, force=False)
    write_file(tmp_path / ("y" * 255), b"text")
    assert entries(tmp_path) == ["x" * 255, "y" * 255]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "v1", FILES, force=False)
        write_file(tmp_path / "report.md", b"text")
    finally:
        assert os.umask(before) == umask
    assert stat.S_IMODE((tmp_path / "v1").stat().st_mode) == 0o777 & ~umask
    for path in [*(tmp_path / "v1").iterdir(), tmp_path / "report.md"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


# --- what happens when the disk does not play along ---------------------------------------------------------


def fail_on_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int, error: BaseException) -> None:
    """Let the nth call of a function raise; earlier and later calls do their work."""
    real, calls = getattr(owner, name), iter(range(1, 10**6))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, force: bool
) -> None:
    """At the first, a middle or the last file: no directory, no leftover, and an old release untouched."""
    if force:
        write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    fail_on_call(monkeypatch, os, "fsync", nth, disk_full())
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=force)
    assert line() == f"{tmp_path / 'v1'}: must be writable, got No space left on device; nothing was written"
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == (["v1"] if force else [])


def test_a_failing_rename_of_a_new_release_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on_call(monkeypatch, Path, "rename", 1, disk_full())
    with refused():
        write(tmp_path / "v1", FILES, force=False)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("error", [disk_full(), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_failing_replacement_puts_the_old_release_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, error: BaseException
) -> None:
    """Whether setting the old one aside fails or putting the new one in its place, and also on Ctrl-C between."""
    monkeypatch.setattr(release, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path)
    fail_on_call(monkeypatch, Path, "rename", nth, error)
    with pytest.raises((GateError, KeyboardInterrupt)):
        write(tmp_path / "v1", NEWER, force=True)
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == ["v1"]


def test_an_old_release_that_cannot_be_put_back_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_exchanged", lambda one, other: False)
    write(tmp_path / "v1", FILES, force=False)
    before = snapshot(tmp_path / "v1")
    real, calls = Path.rename, iter(range(1, 10**6))

    def rename(self: Path, target: Path) -> Path:
        if next(calls) > 1:
            raise disk_full()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force=True)
    kept = Path(line().rpartition(" is in ")[2])
    assert snapshot(kept) == before


def test_nothing_half_written_is_ever_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While files are written the target does not exist; afterwards it is complete."""
    real, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        seen.append((tmp_path / "v1").exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "v1", FILES, force=False)
    assert seen == [False] * (len(FILES) + 2) + [True] * 2  # every file and their directory; then the two above


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_of_two_runs_at_once_the_first_to_write_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool, at_once: bool
) -> None:
    """Both began when the same release, or none, was there; the second says so and writes nothing."""
    if not at_once:
        monkeypatch.setattr(release, "_exchanged", lambda one, other: False)
    if force:
        write(tmp_path / "v1", {**FILES, "report.html": b"old"}, force=False)
    one, other = (refuse_existing(tmp_path / "v1", force) for _ in range(2))
    write(tmp_path / "v1", FILES, force, one)
    before = snapshot(tmp_path)
    with refused() as line:
        write(tmp_path / "v1", NEWER, force, other)
    assert line().endswith("another run has written meanwhile; that one stays, nothing else was written")
    assert snapshot(tmp_path) == before
    assert entries(tmp_path) == ["v1"]


# --- single files -------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    write_file(path, b"first")
    with monkeypatch.context() as patch:
        fail_on_call(patch, os, "fsync", 1, disk_full())
        with refused() as line:
            write_file(path, b"second")
    assert "report.md: must be writable, got No space left on device" in line()
    assert snapshot(tmp_path) == {"report.md": b"first"}
    write_file(path, b"third")
    assert snapshot(tmp_path) == {"report.md": b"third"}


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_bytes(b"old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_file(tmp_path / "link.md", b"new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_bytes() == b"new"


@pytest.mark.parametrize("name", [".", "missing/report.md", "directory", "file/report.md"])
def test_an_impossible_file_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("directory").mkdir()
    Path("file").write_text("precious")
    with refused() as line:
        write_file(Path(name), b"text")
    assert "must be writable" in line()
    assert entries(tmp_path) == ["directory", "file"]


# --- the record ---------------------------------------------------------------------------------------------

KEYS = {
    "": "schema_version tool release created outcome policy fit holdout calibrator findings",
    "tool": "name version",
    "policy": "name sha256 content",
    "fit": "sources sha256 n distinct lowest_label",
    "holdout": "sources sha256 n",
    "calibrator": "sha256 bytes knots plotting_position ties contract",
}
FINDING_KEYS = (
    "check outcome grade required waived reason message remedy target_fpr score threshold false_positives benign "
    "observed_fpr interval relative_error tolerance accepts"
)


def test_the_record_has_every_documented_key(record: Record) -> None:
    content = json.loads(record.to_json())
    assert content["schema_version"] == 1
    for section, keys in KEYS.items():
        assert set(keys.split()) <= (content[section] if section else content).keys(), section
    for finding in content["findings"]:
        assert set(FINDING_KEYS.split()) <= finding.keys()


def test_the_record_says_when_to_the_second_in_utc(record: Record) -> None:
    assert record.created == "2026-03-01T12:00:00Z"


def test_the_record_carries_the_policy_to_the_letter(record: Record) -> None:
    assert record.policy.content == POLICY
    assert record.policy.sha256 == hashlib.sha256(POLICY.encode()).hexdigest()


def test_the_record_reads_back_equal(tmp_path: Path, record: Record) -> None:
    (tmp_path / "verdict.json").write_text(record.to_json(), encoding="utf-8")
    again = read_record(tmp_path)
    assert again == record
    assert again.to_json() == record.to_json()


def test_the_record_follows_its_schema(record: Record) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(record.to_json()), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("holdout", "n", -1),
        ("holdout", "n", 10**400),
        ("fit", "lowest_label", 1.5),
        ("policy", "confidence", -0.5),
        ("finding", "false_positives", -1),
        ("finding", "target_fpr", 1e-320),
        ("finding", "observed_fpr", 2.0),
        ("finding", "interval", [0.1, 1.1]),
        ("finding", "effective_n", 1e300),
    ],
)
def test_numbers_that_no_sample_has_are_refused(
    tmp_path: Path, record: Record, section: str, key: str, value: Any
) -> None:
    """So that no report divides by them."""
    content = json.loads(record.to_json())
    (content["findings"][0] if section == "finding" else content[section])[key] = value
    (tmp_path / "verdict.json").write_text(json.dumps(content))
    with refused() as line:
        read_record(tmp_path)
    assert f"{key}" in line()
    assert "must follow `gate schema record`" in line()


def test_a_pipe_in_the_place_of_the_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "verdict.json")
    with refused() as line:
        read_record(tmp_path)
    assert "got something that is no file" in line()


def test_a_file_name_that_is_no_text_is_recorded_visibly(tmp_path: Path) -> None:
    """File names are bytes; a record is UTF-8."""
    name = os.fsdecode(b"fit-\xff.npy")
    record = make_record(name)
    assert record.fit.sources[0].path == "fit-\\udcff.npy"
    write_file(tmp_path / "verdict.json", record.to_json().encode())
    assert read_record(tmp_path) == record


def test_keys_added_by_a_later_gate_are_ignored(tmp_path: Path, record: Record) -> None:
    content = json.loads(record.to_json())
    content["added"] = {"deep": [1, None]}
    content["policy"]["added"] = 1
    content["findings"][0]["added"] = "x"
    (tmp_path / "verdict.json").write_text(json.dumps(content))
    assert read_record(tmp_path) == record


def edited(record: Record, edit: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(record.to_json())
    edit(content)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda r: r.update(schema_version=2), "schema_version must be at most 1, got 2; upgrade gate"),
        (lambda r: r.update(schema_version=0), "schema_version: must follow `gate schema record`"),
        (lambda r: r.update(outcome="maybe"), "outcome: must follow `gate schema record`"),
        (lambda r: r.pop("findings"), "findings: must follow `gate schema record`, got an error: Field required"),
        (lambda r: r["findings"][0].update(observed_fpr=float("nan")), "findings.0.observed_fpr: must follow"),
        (lambda r: r["findings"][0].update(interval=[0, float("inf")]), "findings.0.interval.1: must follow"),
        (lambda r: r["findings"][0].update(interval=[0.1]), "findings.0.interval.1: must follow"),
        (lambda r: r["findings"][0].update(benign="many"), "findings.0.benign: must follow"),
        (lambda r: r.update(release="\ud800"), "must be JSON, got an error: 'utf-8' codec can't encode"),
    ],
)
def test_a_record_that_is_none_is_refused(
    tmp_path: Path, record: Record, edit: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    (tmp_path / "verdict.json").write_bytes(edited(record, edit))
    with refused() as line:
        read_record(tmp_path)
    assert line().startswith(f"{tmp_path / 'verdict.json'}: ")
    assert sentence in line()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"nothing", b"\xff\xfe\xfd", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10_000],
    ids=["empty", "cut", "words", "bytes", "deep list", "deep mapping", "long number"],
)
def test_garbage_is_refused(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(garbage)
    with refused() as line:
        read_record(tmp_path)
    assert "verdict.json: must be JSON, got an error: " in line()


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b'"text"', b"NaN"])
def test_json_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(content)
    with refused() as line:
        read_record(tmp_path)
    assert "record: must follow `gate schema record`" in line()


@pytest.mark.parametrize("place", ["", "missing", "file"])
def test_a_directory_without_a_record_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with refused() as line:
        read_record(tmp_path / place)
    assert "must be the record of a release" in line()


def test_an_enormous_record_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "MAX_RECORD_BYTES", 1000)
    (tmp_path / "verdict.json").write_bytes(b" " * 1001)
    with refused() as line:
        read_record(tmp_path)
    assert "at most 1,000 bytes" in line()


def test_the_built_in_policy_follows_the_policy_schema() -> None:
    content = yaml.safe_load(load_default().text)
    jsonschema.validate(content, policy.schema(), cls=jsonschema.Draft202012Validator)
