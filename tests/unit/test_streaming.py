"""Files that cannot be divided give the same rows, or the same refusal, read some at a time as read as a whole."""

from __future__ import annotations

import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats import File, delimited, json_lines, list_wanted, read_file
from gate.scores.shards import Shard, stream
from gate.scores.taking import take
from gate.scores.wording import count_rows_from

ROWS = 500


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delimited, json_lines):
        monkeypatch.setattr(module, "BLOCK", 1 << 12)


def read_both(path: Path, columns: Columns) -> list[object]:
    """Scores, counts of labels and what was left unread, or what was said of the file."""
    file = File(path.name, str(path))
    found: list[object] = []
    for at_a_time in (True, False):
        try:
            tables = stream(Shard(file), columns, ROWS) if at_a_time else [read_file(file, columns, ByteBudget())]
            values, rows, parts = [np.empty(0)], 0, 0
            labels: list[Any] = []
            unread: frozenset[str] = frozenset()
            for table in tables:
                with count_rows_from(rows):
                    part = take(file, table, columns, (0.0, 1.0), "benign", alone=False)
                values, rows, parts = [*values, *part.chunks], rows + part.rows, parts + 1
                labels += [] if part.labels is None else part.labels.to_pylist()
                unread |= part.unread
            totals: dict[object, int] = {}
            for each in labels:
                totals[each["label"]] = totals.get(each["label"], 0) + each["rows"]
            assert parts > 1 or not at_a_time or path.stat().st_size < 8 * ROWS or "whole" in path.name
            found.append((np.concatenate(values).tolist(), rows, totals, unread))
        except GateError as error:
            found.append(str(error))
    return found


def text_of(last: str, label: str | None = None, quoted: bool = False, n: int = 3_000) -> str:
    rng = np.random.default_rng(n)
    quote = '"' if quoted else ""
    rows = [f"{value!r},{quote}{i % 3}{quote}" for i, value in enumerate(rng.random(n).tolist())]
    head = "score,label" if label is None else f"score,{label}"
    return "\n".join([head, *rows, last]) + "\n"


@pytest.mark.each_run(20)
@pytest.mark.parametrize("label", [None, "label"])
@pytest.mark.parametrize(
    "text",
    [
        text_of("0.5,0"),
        text_of("1,0"),
        text_of("0.5,0", quoted=True),
        text_of("oops,0"),
        text_of(",0"),
        text_of("1.5,0"),
        text_of("nan,0"),
        text_of("0.5,0,7"),
        text_of('0.5,"0'),
        text_of("0.5,2.50"),
        text_of("0.5,"),
        text_of("0.5,0", label="y"),
        text_of("0.5,0").replace("score", "point"),
        "\n".join(["score,label", *("1,0" for _ in range(3_000))]) + "\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_csv(tmp_path: Path, text: str, label: str | None, packed: bool) -> None:
    path = tmp_path / ("whole.csv.gz" if packed else "whole.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    one, other = read_both(path, Columns(label=label))
    assert one == other


@pytest.mark.parametrize(
    "last",
    ['{"score": 0.5}', '{"score": 1}', '{"score": null}', '{"x": 1}', '{"score": "a"}', "null", "{", '{"score": 7}'],
)
def test_json_lines(tmp_path: Path, last: str) -> None:
    path = tmp_path / "whole.jsonl"
    values = np.random.default_rng(1).random(3_000).tolist()
    path.write_text("".join(f'{{"score": {value!r}, "label": 0, "x": [1]}}\n' for value in values) + last + "\n")
    one, other = read_both(path, Columns())
    assert one == other


def test_arrow_and_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    table = pa.table({"score": rng.random(3_000), "label": rng.integers(0, 3, 3_000)})
    pa.feather.write_feather(table, tmp_path / "a.feather", chunksize=400)
    np.savez(tmp_path / "whole.npz", **{name: table[name].to_numpy() for name in table.column_names})
    np.savez_compressed(tmp_path / "whole2.npz", score=table["score"].to_numpy().astype(np.float32))
    np.savez(tmp_path / "whole3.npz", score=np.ones((3_000, 1)), label=np.array(["0"] * 3_000))
    np.savez(tmp_path / "whole4.npz", score=np.ones(3_000), label=np.zeros(7))
    for name in ("a.feather", "whole.npz", "whole2.npz", "whole3.npz", "whole4.npz"):
        for columns in (Columns(), Columns(label="label")):
            one, other = read_both(tmp_path / name, columns)
            assert one == other, (name, list_wanted(columns))


def packed(suffix: str) -> bytes:
    scores = np.random.default_rng(3).random(2_000)
    if suffix == ".npz":
        np.savez_compressed(held := io.BytesIO(), score=scores)
        return held.getvalue()
    lines = [f'{{"score": {score}}}\n' if suffix == ".jsonl.gz" else f"{score}\n" for score in scores.tolist()]
    return gzip.compress(("score\n" * (suffix == ".csv.gz") + "".join(lines)).encode())


SOUND = {suffix: packed(suffix) for suffix in (".csv.gz", ".jsonl.gz", ".npz")}


@given(st.sampled_from([*SOUND]), st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=examples(150), deadline=None)
def test_files_with_a_wrong_byte(suffix: str, place: int, byte: int) -> None:
    whole = bytearray(SOUND[suffix])
    whole[place % len(whole)] = byte
    for content in (whole, whole[: place % len(whole)]):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, f"whole{suffix}")
            path.write_bytes(content)
            one, other = read_both(path, Columns())
        assert one == other
