"""Whatever may hold rows is read or refused; what is left out is counted and named."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet
import pytest
from drawing import examples, often
from gate.scores import files, read
from hypothesis import given, settings
from hypothesis import strategies as st

import gate
from gate.checks import parse_policy
from gate.checks.overlap import refuse_identical
from gate.errors import GateError
from gate.policy import Columns

DOMAIN = (0.0, 1.0)


def write_scores(path: Path, rows: int, seed: int = 0, **columns: object) -> Path:
    """Distinct scores, with more columns where asked, in the format that the name ends in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scores = np.random.default_rng([seed, rows]).random(rows)
    table = pa.table({"score": scores} | {name: pa.repeat(value, rows) for name, value in columns.items()})
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, str(path))
    elif path.suffix == ".npy":
        np.save(path, scores)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{row}\n".replace("'", '"') for row in table.to_pylist()))
    else:
        pa.parquet.write_table(table, path)
    return path


def refusal(read_it: Callable[[], object]) -> str:
    with pytest.raises(GateError) as caught:
        read_it()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestKeysOfAPath:
    """`label=0/part.parquet`: the folder says what every row of the file has."""

    @settings(max_examples=examples(20), deadline=None)
    @given(
        suffix=st.sampled_from(["parquet", "pq", "csv", "feather", "jsonl"]),
        key=st.sampled_from(["label", "group", "id", "segment", "timestamp"]),
        rows=st.integers(2, 40),
        said=st.integers(0, 1),
        held=st.integers(0, 1),
    )
    def test_a_key_beside_a_column_of_its_name_is_refused(
        self, suffix: str, key: str, rows: int, said: int, held: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("keys")
        file = write_scores(folder / f"k={said}" / f"part.{suffix}", rows, k=held)
        said_twice = refusal(lambda: read([str(folder)], Columns(**{key: "k"}), DOMAIN))
        assert said_twice == (
            f"{file}: must have 'k' in its path or as a column, got both; remove the column or rename the folder"
        )
        assert len(read([str(folder)], Columns(), DOMAIN)) == rows  # nobody asked for it

    def test_a_key_named_like_the_scores_is_refused(self, tmp_path: Path) -> None:
        file = write_scores(tmp_path / "score=0.5" / "part.parquet", 10)
        for columns in (Columns(), Columns(label="label")):
            assert refusal(partial(read, [str(tmp_path)], columns, DOMAIN)) == (
                f"{file}: must hold a score of its own in every row, got 'score' as a key of its path; "
                "name another column with data.score, or rename the folder"
            )

    def test_the_word_of_hive_for_a_missing_key_is_a_missing_label(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "label=0" / "part.parquet", 10)
        file = write_scores(tmp_path / "label=__HIVE_DEFAULT_PARTITION__" / "part.parquet", 5)
        said = refusal(lambda: read([str(tmp_path)], Columns(label="label"), DOMAIN))
        assert said.startswith(f"{file}: column 'label' must label every row, got none in row 1 and 4 more")


@pytest.mark.parametrize("suffix", [".pq", ".PQ", ".pq.gz"])
def test_pq_is_parquet(suffix: str, tmp_path: Path) -> None:
    content = write_scores(tmp_path / "scores.parquet", 30).read_bytes()
    file = tmp_path / "in" / f"scores{suffix}"
    file.parent.mkdir()
    file.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    whole = read([str(tmp_path / "scores.parquet")], Columns(), DOMAIN).sha256
    assert read([str(file)], Columns(), DOMAIN).sha256 == whole
    assert read([str(file.parent)], Columns(), DOMAIN).sha256 == whole


FATES = {  # of an entry below a directory, by its name
    "part.parquet": "read",
    "part.pq": "read",
    "scores.csv": "read",
    "k=1/part.parquet": "read",
    "_k=1/part.parquet": "read",
    "deep/er/part.feather": "read",
    "table.parquet/part.parquet": "read",
    "_SUCCESS": "skipped",
    "_metadata": "skipped",
    "_common_metadata": "skipped",
    "_committed_123": "skipped",
    ".hidden.parquet": "skipped",
    ".checkpoints/part.parquet": "skipped",
    "part.parquet.crc": "skipped",
    "deep/README.md": "skipped",
    "_folder/_SUCCESS": "skipped",
    "scores.txt": "refused",
    "scores": "refused",
    "scores.csv.zst": "refused",
    "scores.json": "refused",
    "_part.parquet": "refused",
    "_committed_1.parquet": "refused",
    "_temporary/0/part.parquet": "refused",
    "deep/_old/part.csv": "refused",
}


class TestDirectories:
    @settings(max_examples=examples(60), deadline=None)
    @given(names=st.sets(st.sampled_from(sorted(FATES)), max_size=6), rows=st.integers(2, 30))
    def test_whatever_may_hold_rows_is_read_or_refused(
        self, names: set[str], rows: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("drawn") / "in"
        write_scores(folder / "always.parquet", rows)
        for seed, name in enumerate(sorted(names), 1):
            write_scores(folder / name, rows, seed)
        by_fate = {fate: {n for n in names if FATES[n] == fate} for fate in ("read", "skipped", "refused")}
        if by_fate["refused"]:
            said = refusal(lambda: read([str(folder)], Columns(), DOMAIN))
            assert said.split(": must ")[0] in {str(folder / name) for name in by_fate["refused"]}
            return
        scores = read([str(folder)], Columns(), DOMAIN)
        assert len(scores) == rows * (1 + len(by_fate["read"]))
        hidden = {".checkpoints/part.parquet": ".checkpoints"}
        assert {name for name, _ in scores.skipped} == {hidden.get(name, name) for name in by_fate["skipped"]}
        said = scores.summary
        assert all(repr(hidden.get(name, name)) in said for name in list(by_fate["skipped"])[:5])
        assert ("skipped" in said) == bool(by_fate["skipped"])
        assert f"skipped {len(by_fate['skipped'])}: " in said or not by_fate["skipped"]

    def test_an_empty_file_of_another_kind_holds_no_rows(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "part.parquet", 10)
        (tmp_path / "done").touch()
        assert read([str(tmp_path)], Columns(), DOMAIN).skipped == (("done", "empty"),)
        (tmp_path / "empty.csv").touch()
        assert "empty.csv: must hold scores, got an empty file" in refusal(
            lambda: read([str(tmp_path)], Columns(), DOMAIN)
        )

    def test_a_folder_that_cannot_be_listed_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever runs the test: root may list every folder."""
        write_scores(tmp_path / "part.parquet", 10)
        write_scores(tmp_path / "closed" / "part.parquet", 10, 1)
        listed = os.scandir

        def scandir(folder: str) -> Any:
            if str(folder).rstrip("/").endswith("closed"):
                raise PermissionError(13, "Permission denied")
            return listed(folder)

        monkeypatch.setattr(os, "scandir", scandir)
        for argument in (tmp_path, tmp_path / "*", tmp_path / "**" / "*.parquet", tmp_path / "*" / "*.parquet"):
            assert refusal(partial(read, [str(argument)], Columns(), DOMAIN)) == (
                f"{tmp_path / 'closed'}: must be a folder that can be listed, got: Permission denied; "
                "allow this user to read it or move it elsewhere"
            )

    def test_linked_folders_are_read_and_circles_refused(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "in" / "a.parquet", 10)
        write_scores(tmp_path / "elsewhere" / "b.parquet", 20)
        (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
        assert len(read([str(tmp_path / "in")], Columns(), DOMAIN)) == 30
        (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "in")
        said = refusal(lambda: read([str(tmp_path / "in")], Columns(), DOMAIN))
        assert said.startswith(f"{tmp_path}/in/linked/back: must be read once, got the same folder again as ")

    def test_links_to_nothing_and_pipes_are_refused(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "a.parquet", 10)
        (tmp_path / "b.parquet").symlink_to("nowhere")
        assert "b.parquet: must be a file, got a broken link" in refusal(
            lambda: read([str(tmp_path)], Columns(), DOMAIN)
        )
        (tmp_path / "b.parquet").unlink()
        os.mkfifo(tmp_path / "c.csv")
        assert "c.csv: must be a file, got a pipe" in refusal(lambda: read([str(tmp_path)], Columns(), DOMAIN))

    @pytest.mark.parametrize("name", ["pipe.npy", "pipe.csv.gz", "pipe.parquet", "pipe*"])
    def test_pipes_are_refused_and_not_waited_for(self, name: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / name.replace("*", ".npz"))
        said = refusal(lambda: read([str(tmp_path / name)], Columns(), DOMAIN))
        assert "must be a file, got a pipe or a device; write its rows to a file, or give numbers on stdin" in said

    def test_a_path_cannot_say_two_things(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "label=0" / "label=1" / "a.parquet", 10)
        assert "must have one 'label' in its path, got '0' and '1'" in refusal(
            lambda: read([str(tmp_path)], Columns(label="label"), DOMAIN)
        )

    @pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
    @pytest.mark.parametrize("argument", ["", "k=1", "k=1/a.parquet", "*/*.parquet", "k=1/*"])
    def test_tables_that_keep_deleted_rows_are_refused(self, mark: str, argument: str, tmp_path: Path) -> None:
        write_scores(tmp_path / "table" / "k=1" / "a.parquet", 10)
        (tmp_path / "table" / mark).parent.mkdir()
        (tmp_path / "table" / mark).write_text("{}")
        kind = {"_": "Delta", ".": "Hudi", "m": "Iceberg"}[mark[0]]
        given_ = f"{tmp_path}/table/{argument}"
        said = refusal(lambda: read([given_], Columns(), DOMAIN))
        assert said.startswith(f"{given_}: must hold the rows that count and no others, got the files of a table in ")
        assert f"in {kind} format, which keeps deleted rows; " in said


class TestPatterns:
    def test_a_file_named_like_a_pattern_beside_others_is_refused(self, tmp_path: Path) -> None:
        pattern = write_scores(tmp_path / "holdout-*.parquet", 10)
        assert len(read([str(pattern)], Columns(), DOMAIN)) == 10
        write_scores(tmp_path / "holdout-1.parquet", 20)
        said = refusal(lambda: read([str(pattern)], Columns(), DOMAIN))
        assert said.startswith(f"{pattern}: must be a file or a pattern, got a file of this name and 1 other that")

    def test_folders_that_match_are_read_whole_and_keys_are_columns(self, tmp_path: Path) -> None:
        for label in (0, 1):
            write_scores(tmp_path / f"label={label}" / "deep" / "a.parquet", 10 + label)
        for pattern in ("*", "label=*", "**", "**/*", "*/deep/*.parquet", "**/a.parquet"):
            scores = read([f"{tmp_path}/{pattern}"], Columns(label="label"), DOMAIN)
            assert (len(scores), scores.sources[0].rows) == (10, 21)

    def test_what_a_pattern_passes_over_is_named(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "holdout-1.parquet", 10)
        for name in ("holdout-2.pq", "fit.parquet", "more/part.parquet"):
            write_scores(tmp_path / name, 10)
        scores = read([f"{tmp_path}/holdout-*.parquet"], Columns(), DOMAIN)
        assert dict(scores.skipped) == {
            str(tmp_path / name): "not matched by the pattern" for name in ("fit.parquet", "holdout-2.pq", "more")
        }
        write_scores(tmp_path / "holdout-3.txt.parquet.txt", 10)
        assert "must end in one of" in refusal(lambda: read([f"{tmp_path}/holdout-*"], Columns(), DOMAIN))


class TestStores:
    """Other filesystems, stood in for by one below a directory."""

    def store(self, below: Path, names: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        below.mkdir()
        filesystem = pa.fs.SubTreeFileSystem(str(below), pa.fs.LocalFileSystem())
        for name, path in names.items():
            filesystem.create_dir(f"bucket/{name}".rpartition("/")[0])
            with filesystem.open_output_stream(f"bucket/{name}", compression=None) as sink:
                sink.write(path.read_bytes())

        class Uris:
            @staticmethod
            def from_uri(uri: str) -> tuple[object, str]:
                return filesystem, uri.removeprefix("s3://")

        monkeypatch.setattr(pa.fs, "FileSystem", Uris)

    @pytest.mark.parametrize("name", sorted(FATES))
    def test_the_same_names_have_the_same_fate(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        always = write_scores(tmp_path / "always.parquet", 10)
        self.store(tmp_path / "store", {"always.parquet": always, name: write_scores(tmp_path / name, 20)}, monkeypatch)
        if FATES[name] == "refused":
            said = refusal(lambda: read(["s3://bucket/"], Columns(), DOMAIN))
            assert said.startswith(f"s3://bucket/{name}: must ")
            return
        scores = read(["s3://bucket/"], Columns(), DOMAIN)
        assert len(scores) == (30 if FATES[name] == "read" else 10)
        assert len(scores.skipped) == (FATES[name] == "skipped")

    @pytest.mark.parametrize("mark", ["t/_delta_log/0.json", "t/.hoodie/x", "t/metadata/v1.metadata.json"])
    def test_tables(self, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = write_scores(tmp_path / "a.parquet", 10)
        names = {"t/a.parquet": file, "t/k=1/b.parquet": file, mark: file}
        self.store(tmp_path / "store", names, monkeypatch)
        for uri in (
            "s3://bucket",
            "s3://bucket/t",
            "s3://bucket/t/a.parquet",
            "s3://bucket/t/k=1/",
            "s3://bucket/t/k=1",
        ):
            assert "which keeps deleted rows" in refusal(partial(read, [uri], Columns(), DOMAIN))

    def test_copies(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = write_scores(tmp_path / "a.parquet", 10)
        self.store(tmp_path / "store", {"a.parquet": file, "b.parquet": file}, monkeypatch)
        assert refusal(lambda: read(["s3://bucket"], Columns(), DOMAIN)) == (
            "s3://bucket/b.parquet: must be read once, got the same bytes as in s3://bucket/a.parquet; "
            "name one of the two"
        )


class TestCopies:
    """Rows that are read twice count twice."""

    @settings(max_examples=often(5, 15), deadline=None)
    @given(
        rows=st.integers(1, 20_000),
        others=st.integers(0, 3),
        suffix=st.sampled_from(["parquet", "npy", "csv"]),
        link=st.sampled_from(["hard", "symbolic", "copy"]),
    )
    def test_links_and_copies_are_refused_within_a_sample_and_between_two(
        self, rows: int, others: int, suffix: str, link: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("copies")
        paths = [write_scores(folder / f"{i}.{suffix}", rows, i) for i in range(1 + others)]
        other = write_scores(folder / f"other.{suffix}", rows + 1)
        twice = folder / f"twice.{suffix}"
        if link == "hard":
            twice.hardlink_to(paths[-1])
        elif link == "symbolic":
            twice.symlink_to(paths[-1])
        else:
            twice.write_bytes(paths[-1].read_bytes())
        same = "bytes as in" if link == "copy" else "file again as"
        said = refusal(lambda: read([str(path) for path in (*paths, twice, other)], Columns(), DOMAIN))
        assert said.startswith(f"{twice}: must be read once, got the same {same} {paths[-1]}; name ")
        one = read([str(path) for path in (*paths, other)], Columns(), DOMAIN)
        two = read(
            [str(path) for path in (twice, write_scores(folder / f"more.{suffix}", rows + 2))], Columns(), DOMAIN
        )
        assert refusal(lambda: refuse_identical(one, two)) == (
            f"{twice}: must hold other rows than the fit sample, got the same bytes as in {paths[-1]}; "
            "hold out rows that the calibrator is not fitted on"
        )

    def test_names_that_are_no_text(self, tmp_path: Path) -> None:
        paths = [tmp_path / os.fsdecode(b"%d-\xff.npy" % i) for i in range(2)]
        for path in paths:
            np.save(path, np.linspace(0.1, 0.2, 10))
        said = refusal(lambda: read([str(path) for path in paths], Columns(), DOMAIN))
        assert "must be read once, got the same bytes as in" in said

    def test_files_without_rows_may_be_alike(self, tmp_path: Path) -> None:
        paths = [write_scores(tmp_path / f"{i}.csv", 10 * (i == 2)) for i in range(3)]
        assert len(read([str(path) for path in paths], Columns(), DOMAIN)) == 10

    def test_the_same_attacks_may_stand_beside_both_samples(self, tmp_path: Path) -> None:
        samples = []
        for seed in (1, 2):
            write_scores(tmp_path / str(seed) / "attacks.parquet", 10, label=1)
            write_scores(tmp_path / str(seed) / "benign.parquet", 10, seed, label=0)
            samples.append(read([str(tmp_path / str(seed))], Columns(label="label"), DOMAIN))
        refuse_identical(*samples)

    def test_a_file_is_not_benign_and_malicious_without_labels(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "both" / "attacks.parquet", 10, label=1)
        write_scores(tmp_path / "both" / "benign.parquet", 20, label=0)
        write_scores(tmp_path / "fit" / "benign.parquet", 30, 3, label=0)
        text = "version: 1\nname: x\ntargets: [{fpr: 10%, min_n: 10, max_relative_error: 0.5}]\n"
        both = tmp_path / "both"

        def run(policy: str) -> Any:
            document = parse_policy(policy, "p.yaml")
            return gate.run(tmp_path / "fit", both, release="v1", malicious=both, policy=document)

        assert run(text + "data: {label: label}\n").record.holdout.n == 20
        assert "attacks.parquet: must hold malicious rows alone, got the same bytes as in" in refusal(lambda: run(text))

    def test_only_files_alike_in_size_and_at_their_ends_are_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hashed = []
        monkeypatch.setattr(files, "_digest", lambda file: hashed.append(file.name))
        paths = [write_scores(tmp_path / f"{i}.npy", 100, i) for i in range(5)]
        read([str(path) for path in paths], Columns(), DOMAIN)
        assert hashed == []
