"""Whatever may hold rows is read or refused; what is left out is counted and named."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.rows import sources
from gate.rows.engine import Duck, using
from gate.rows.formats import open_table
from gate.rows.sources import digest, find, find_copy, find_each, refuse_copies
from gate.rows.table import File


@pytest.fixture(scope="module")
def engine() -> Iterator[Duck]:
    with using(memory=1 << 30) as one:
        yield one


def write(path: Path, rows: int = 2, seed: int = 0) -> Path:
    """A file of distinct scores; only what ends in .csv can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scores = np.random.default_rng([seed, rows]).random(rows)
    path.write_text("score\n" + "".join(f"{score!r}\n" for score in scores.tolist()))
    return path


def read(*arguments: str) -> list[File]:
    """The files of all arguments, each once, whatever it holds."""
    files = [file for _, found in find_each(arguments) for file in found.files]
    refuse_copies(files)
    return files


def names(*arguments: str) -> list[str]:
    return [file.name for file in read(*arguments)]


def refusal(read_it: Callable[[], object]) -> str:
    with pytest.raises(GateError) as caught:
        read_it()
    assert "\n" not in str(caught.value)
    return str(caught.value)


FATES = {  # of an entry below a directory, by its name
    "part.parquet": "read",
    "part.pq": "read",
    "scores.csv": "read",
    "scores.csv.gz": "read",
    "PART.NPY": "read",
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
HIDDEN = {".checkpoints/part.parquet": ".checkpoints"}


class TestDirectories:
    @settings(max_examples=examples(100), deadline=None)
    @given(drawn=st.sets(st.sampled_from(sorted(FATES)), max_size=6))
    def test_whatever_may_hold_rows_is_read_or_refused(
        self, drawn: set[str], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("drawn") / "in"
        write(folder / "always.parquet")
        for seed, name in enumerate(sorted(drawn), 1):
            write(folder / name, seed=seed)
        by_fate = {fate: {n for n in drawn if FATES[n] == fate} for fate in ("read", "skipped", "refused")}
        if by_fate["refused"]:
            said = refusal(lambda: read(str(folder)))
            assert said.split(": must ")[0] in {str(folder / name) for name in by_fate["refused"]}
            return
        assert {*names(str(folder))} == {str(folder / name) for name in {"always.parquet", *by_fate["read"]}}
        assert {name for name, _ in find(str(folder)).skipped} == {
            HIDDEN.get(name, name) for name in by_fate["skipped"]
        }

    def test_an_empty_file_of_another_kind_holds_no_rows(self, tmp_path: Path) -> None:
        write(tmp_path / "part.csv")
        (tmp_path / "done").touch()
        assert find(str(tmp_path)).skipped == (("done", "empty"),)

    def test_a_directory_without_files_is_refused(self, tmp_path: Path) -> None:
        said = refusal(lambda: read(str(tmp_path)))
        assert said.startswith(f"{tmp_path}: must hold score files (.parquet, .pq, .csv, .tsv, .feather, ")

    def test_a_folder_that_cannot_be_listed_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever runs the test: root may list every folder."""
        write(tmp_path / "part.parquet")
        write(tmp_path / "closed" / "part.parquet", seed=1)
        listed = os.scandir

        def scandir(folder: str) -> Any:
            if str(folder).rstrip("/").endswith("closed"):
                raise PermissionError(13, "Permission denied")
            return listed(folder)

        monkeypatch.setattr(os, "scandir", scandir)
        for argument in (tmp_path, tmp_path / "*", tmp_path / "**" / "*.parquet", tmp_path / "*" / "*.parquet"):
            assert refusal(partial(read, str(argument))) == (
                f"{tmp_path / 'closed'}: must be a folder that can be listed, got: Permission denied; "
                "allow this user to read it or move it elsewhere"
            )

    def test_linked_folders_are_read_and_circles_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "in" / "a.parquet")
        write(tmp_path / "elsewhere" / "b.parquet", 3)
        (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
        assert len(read(str(tmp_path / "in"))) == 2
        (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "in")
        said = refusal(lambda: read(str(tmp_path / "in")))
        assert said.startswith(f"{tmp_path}/in/linked/back: must be read once, got the same folder again as ")

    def test_links_to_nothing_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "a.parquet")
        (tmp_path / "b.parquet").symlink_to("nowhere")
        assert "b.parquet: must be a file, got a broken link" in refusal(lambda: read(str(tmp_path)))

    @pytest.mark.parametrize("name", ["pipe.npy", "pipe.csv.gz", "pipe.parquet", "pipe*", ""])
    def test_pipes_are_refused_and_not_waited_for(self, name: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / (name.replace("*", ".npz") or "pipe.csv"))
        said = refusal(lambda: read(str(tmp_path / name)))
        assert "must be a file, got a pipe or a device; write its rows to a file, or give numbers on stdin" in said

    @pytest.mark.parametrize("name", ["zero", "null", "random"])
    def test_devices_are_refused(self, name: str, tmp_path: Path) -> None:
        assert "got a pipe or a device" in refusal(lambda: read(f"/dev/{name}"))
        (tmp_path / "a.csv").symlink_to(f"/dev/{name}")
        assert "got a pipe or a device" in refusal(lambda: read(str(tmp_path)))

    def test_a_file_of_holes_is_refused_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        with path.open("wb") as opened:
            opened.write(b"score\n0.1\n")
            opened.truncate(1 << 40)
        start = time.monotonic()
        for argument in (path, tmp_path):
            assert refusal(partial(read, str(argument))) == (
                f"{path}: must hold the {1 << 40:,} bytes that it claims, got a file that is nearly all holes; "
                "write it again"
            )
        assert time.monotonic() - start < 5

    def test_files_with_some_holes_are_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "SPARSE", 1 << 16)
        with (tmp_path / "a.npy").open("wb") as opened:
            opened.write(b"x" * (1 << 16))
            opened.truncate(1 << 20)
        assert len(read(str(tmp_path))) == 1

    def test_a_path_cannot_say_two_things(self, tmp_path: Path) -> None:
        write(tmp_path / "label=0" / "label=1" / "a.parquet")
        assert "must have one 'label' in its path, got '0' and '1'" in refusal(lambda: read(str(tmp_path)))

    def test_keys_are_texts(self, tmp_path: Path) -> None:
        write(tmp_path / "label=007" / "tenant=a%2Fb%20c" / "a.parquet")
        (file,) = read(str(tmp_path))
        assert file.keys == {"label": "007", "tenant": "a/b c"}

    @pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
    @pytest.mark.parametrize("argument", ["", "k=1", "k=1/a.parquet", "*/*.parquet", "k=1/*"])
    def test_tables_that_keep_deleted_rows_are_refused(self, mark: str, argument: str, tmp_path: Path) -> None:
        write(tmp_path / "table" / "k=1" / "a.parquet")
        (tmp_path / "table" / mark).parent.mkdir()
        (tmp_path / "table" / mark).write_text("{}")
        kind = {"_": "Delta", ".": "Hudi", "m": "Iceberg"}[mark[0]]
        given_ = f"{tmp_path}/table/{argument}"
        said = refusal(lambda: read(given_))
        assert said.startswith(f"{given_}: must hold the rows that count and no others, got the files of a table in ")
        assert f"in {kind} format, which keeps deleted rows; " in said


class TestPatterns:
    def test_a_file_named_like_a_pattern_beside_others_is_refused(self, tmp_path: Path) -> None:
        pattern = write(tmp_path / "holdout-*.parquet")
        assert names(str(pattern)) == [str(pattern)]
        write(tmp_path / "holdout-1.parquet", 3)
        said = refusal(lambda: read(str(pattern)))
        assert said.startswith(f"{pattern}: must be a file or a pattern, got a file of this name and 1 other that")

    def test_a_pattern_without_files_is_refused(self, tmp_path: Path) -> None:
        said = refusal(lambda: read(f"{tmp_path}/none/*.csv"))
        assert said == f"{tmp_path}/none/*.csv: must match at least one file, got none; check the pattern"

    def test_folders_that_match_are_read_whole_and_keys_are_columns(self, tmp_path: Path) -> None:
        for label in (0, 1):
            write(tmp_path / f"label={label}" / "deep" / "a.parquet", 10 + label)
        for pattern in ("*", "label=*", "**", "**/*", "*/deep/*.parquet", "**/a.parquet"):
            assert [file.keys for file in read(f"{tmp_path}/{pattern}")] == [{"label": "0"}, {"label": "1"}]

    def test_what_a_pattern_passes_over_is_named(self, tmp_path: Path) -> None:
        for name in ("holdout-1.parquet", "holdout-2.pq", "fit.parquet", "more/part.parquet", ".holdout-3.parquet"):
            write(tmp_path / name)
        found = find(f"{tmp_path}/holdout-*.parquet")
        assert [file.name for file in found.files] == [str(tmp_path / "holdout-1.parquet")]
        passed = ("fit.parquet", "holdout-2.pq", "more", ".holdout-3.parquet")
        assert dict(found.skipped) == {str(tmp_path / name): "not matched by the pattern" for name in passed}

    @pytest.mark.parametrize("name", ["a.csv", "a b.csv", "ü.csv", "a#b.csv"])
    def test_a_file_uri_is_the_file(self, name: str, tmp_path: Path) -> None:
        path = write(tmp_path / name)
        (file,) = read(path.as_uri())
        assert (file.path, file.name) == (str(path), path.as_uri())
        assert len(read(tmp_path.as_uri())) == 1


class TestCopies:
    """Rows that are read twice count twice."""

    @settings(max_examples=often(5, 25), deadline=None)
    @given(
        rows=st.integers(1, 20_000),
        others=st.integers(0, 3),
        suffix=st.sampled_from(["parquet", "npy", "csv"]),
        link=st.sampled_from(["hard", "symbolic", "copy", "name"]),
    )
    def test_links_and_copies_are_refused(
        self, rows: int, others: int, suffix: str, link: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("copies")
        paths = [write(folder / f"{i}.{suffix}", rows, i) for i in range(1 + others)]
        other = write(folder / f"other.{suffix}", rows + 1)
        assert len(read(*map(str, (*paths, other)))) == len(paths) + 1
        twice = folder / f"twice.{suffix}"
        match link:
            case "hard":
                twice.hardlink_to(paths[-1])
            case "symbolic":
                twice.symlink_to(paths[-1])
            case "copy":
                twice.write_bytes(paths[-1].read_bytes())
            case _:
                twice = folder / ".." / folder.name / paths[-1].name
        same = "bytes as in" if link == "copy" else "file again as"
        said = refusal(lambda: read(*map(str, (*paths, twice, other))))
        assert said.startswith(f"{twice}: must be read once, got the same {same} {paths[-1]}; name ")

    def test_stdin_is_read_once(self) -> None:
        assert "must be read once" in refusal(lambda: read("-", "-"))

    def test_only_files_alike_in_size_and_at_their_ends_are_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "END", 16)
        hashed: list[str] = []
        monkeypatch.setattr(sources, "digest", lambda file: hashed.append(file.name) or file.name)
        for i, text in enumerate([b"a" * 99, b"b" * 99, b"b" * 98 + b"c", b"d" * 50 + b"x" + b"d" * 48, b"d" * 99]):
            (tmp_path / f"{i}.npy").write_bytes(text)
        assert find_copy(find(str(tmp_path)).files) is None
        assert hashed == [str(tmp_path / f"{i}.npy") for i in (3, 4)]

    def test_a_digest_is_what_sha256sum_prints(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", 100_000)
        assert digest(File("a", str(path))) == hashlib.sha256(path.read_bytes()).hexdigest()
        assert refusal(lambda: digest(File("b.csv", str(tmp_path / "b.csv")))).startswith("b.csv: must exist")


# --- stores -------------------------------------------------------------------------------------------------


class Store:
    """What gate asks of a store, in memory."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content

    def find(self, base: str, detail: bool) -> dict[str, Any]:
        below = {path: each for path, each in self.content.items() if path == base or path.startswith(f"{base}/")}
        return {path: {"name": path, "size": len(each), "type": "file"} for path, each in below.items()}

    def isdir(self, path: str) -> bool:
        return any(each.startswith(f"{path}/") for each in self.content)

    def ls(self, path: str, detail: bool) -> list[str]:
        return sorted(
            {f"{path}/{each[len(path) + 1 :].split('/')[0]}" for each in self.content if each.startswith(path)}
        )

    def open(self, path: str, mode: str) -> Any:
        return io.BytesIO(self.content[path.partition("://")[2]])


class TestStores:
    @pytest.fixture
    def store(self, monkeypatch: pytest.MonkeyPatch) -> Store:
        one = Store({})
        monkeypatch.setattr(sources, "_filesystem", lambda scheme, uri: one)
        return one

    @pytest.mark.parametrize("name", sorted(FATES))
    @pytest.mark.parametrize("scheme", ["s3", "gs"])
    def test_the_same_names_have_the_same_fate(self, name: str, scheme: str, store: Store) -> None:
        store.content = {"bucket/always.csv": b"1", f"bucket/{name}": b"2", "bucketeer/other.csv": b"3"}
        if FATES[name] == "refused":
            assert refusal(lambda: read(f"{scheme}://bucket/")).startswith(f"{scheme}://bucket/{name}: must ")
            return
        found = find(f"{scheme}://bucket/")
        assert len(found.files) == 1 + (FATES[name] == "read")
        assert [each for each, _ in found.skipped] == [HIDDEN.get(name, name)] * (FATES[name] == "skipped")

    def test_a_file_and_patterns(self, store: Store) -> None:
        paths = ["b/d/day=1/a.csv", "b/d/day=1/b.csv", "b/d/day=2/a.csv", "b/d/day=2/.c.csv", "b/e.csv", "b/x[1].csv"]
        store.content = {path: path.encode() for path in paths}
        assert names("s3://b/d/day=1/a.csv") == ["s3://b/d/day=1/a.csv"]
        assert names("s3://b/x[1].csv") == ["s3://b/x[1].csv"]
        for pattern in ("s3://b/d/*/a.csv", "s3://b/**/a.csv", "s3://b/d/day=?/a*"):
            found = read(pattern)
            assert [file.name for file in found] == ["s3://b/d/day=1/a.csv", "s3://b/d/day=2/a.csv"]
            assert [dict(file.keys) for file in found] == [{"day": "1"}, {"day": "2"}]
        assert names("s3://b/d/*") == [f"s3://{path}" for path in paths[:3]]
        assert ("s3://b/d/day=1/b.csv", "not matched by the pattern") in find("s3://b/d/*/a.csv").skipped
        assert "must match at least one file, got none" in refusal(lambda: read("s3://b/*.tsv"))
        assert (
            refusal(lambda: read("s3://b/none.csv")) == "s3://b/none.csv: must exist, got no such file; check the name"
        )

    @pytest.mark.parametrize("mark", ["t/_delta_log/0.json", "t/.hoodie/x", "t/metadata/v1.metadata.json"])
    def test_tables(self, mark: str, store: Store) -> None:
        store.content = {f"bucket/{name}": b"x" for name in ("t/a.parquet", "t/k=1/b.parquet", mark)}
        for place in ("", "/t", "/t/a.parquet", "/t/k=1/", "/t/k=1", "/t/*.parquet"):
            assert "which keeps deleted rows" in refusal(partial(read, f"s3://bucket{place}"))

    def test_copies(self, store: Store) -> None:
        store.content = {"bucket/a.csv": b"score\n0.1\n", "bucket/b.csv": b"score\n0.1\n"}
        assert refusal(lambda: read("s3://bucket")) == (
            "s3://bucket/b.csv: must be read once, got the same bytes as in s3://bucket/a.csv; name one of the two"
        )
        assert digest(find("s3://bucket/a.csv").files[0]) == hashlib.sha256(b"score\n0.1\n").hexdigest()

    @pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl"])
    def test_text_is_copied_and_read(self, name: str, store: Store, engine: Duck) -> None:
        text = b'{"score": 0.25}\n' if name == "a.jsonl" else b"score\n0.25\n"
        store.content = {f"bucket/{name}": gzip.compress(text) if name.endswith(".gz") else text, "bucket/b.csv": b""}
        table = open_table(engine, find(f"s3://bucket/{name}").files[0], ["score"])
        assert [str(each) for each in engine.ask(f"SELECT {table.columns[0].sql} AS v FROM {table.rows}")["v"]] == [
            "0.25"
        ]
        empty = find("s3://bucket/b.csv").files[0]
        assert "got an empty file" in refusal(lambda: open_table(engine, empty, ["score"]))

    def test_a_store_that_does_not_answer(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "PATIENCE", 0.1)
        monkeypatch.setattr(store, "find", lambda base, detail: time.sleep(2))
        start = time.monotonic()
        assert "got: no answer in 0.1 seconds; check the name and the network" in refusal(lambda: read("gs://bucket"))
        assert time.monotonic() - start < 1.5

    def test_a_store_that_refuses(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def forbidden(base: str, detail: bool) -> None:
            raise PermissionError("Access Denied\nwith more lines")

        monkeypatch.setattr(store, "find", forbidden)
        assert "s3://bucket: must be a file or directory that can be read, got: Access Denied; " in refusal(
            lambda: read("s3://bucket")
        )

    def test_packages_that_are_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for scheme, package in sources.STORES.items():
            monkeypatch.setitem(__import__("sys").modules, package, None)
            said = refusal(partial(read, f"{scheme}://bucket"))
            assert said.endswith(f"must be read with {package}, got no package {package}; install fpr-gate[cloud]")
        assert "got the scheme ftp://; use file://, s3://, gs://" in refusal(lambda: read("ftp://x/y.csv"))


def test_parquet_stays_in_its_store(engine: Duck) -> None:
    """DuckDB asks the store itself, also for a file whose name looks like a pattern."""
    memory = pytest.importorskip("fsspec.implementations.memory")
    import pyarrow as pa
    import pyarrow.parquet

    class Bucket(memory.MemoryFileSystem):  # type: ignore[misc, name-defined]
        protocol = "s3"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.removeprefix("s3://").strip("/")

    bucket = Bucket(skip_instance_cache=True)
    for i, name in enumerate(["a.parquet", "k=1/[a].parquet", "*.parquet"]):
        pa.parquet.write_table(pa.table({"score": [float(i)]}), sink := io.BytesIO())
        bucket.pipe(f"b/{name}", sink.getvalue())
    for i, name in enumerate(["a.parquet", "k=1/[a].parquet", "*.parquet"]):
        file = File(f"s3://b/{name}", f"s3://b/{name}", filesystem=bucket, listed=100)
        table = open_table(engine, file, ["score"])
        assert engine.ask(f"SELECT c0, nr FROM {table.rows}")["c0"].tolist() == [float(i)]
        assert table.count == 1
