"""Whatever may hold rows is read or refused; what is left out is counted and named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.errors import GateError
from gate.policy import Columns
from gate.scores import read

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

    @settings(max_examples=20, deadline=None)
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
            assert refusal(lambda columns=columns: read([str(tmp_path)], columns, DOMAIN)) == (
                f"{file}: must hold a score of its own in every row, got 'score' as a key of its path; "
                "name another column with data.score or --score-column, or rename the folder"
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
