"""No label silently counts as malicious: each is benign, malicious, or refused, and shown with its rows."""

from __future__ import annotations

from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

# --- a column of labels that nobody read --------------------------------------------------------------------


def test_the_log_line_names_labels_and_what_was_skipped(tmp_path: Path) -> None:
    """The command line gives several benign labels one by one."""
    (tmp_path / "in").mkdir()
    scores = np.random.default_rng(4).random(300)
    labels = ["0"] * 150 + ["0.0"] * 100 + ["attack"] * 50
    pa.parquet.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / ".a.crc").touch()
    sample = ["--benign", "in", "--split", "0.5", "--release", "r", "--dry-run", "--set", "data.label=label"]
    refused = commands.gate("run", *sample, cwd=tmp_path)
    assert refused.returncode == 2
    assert "must write a label in one way, got '0.0' in row 151 and 99 more" in refused.stderr
    taken_both = commands.gate("run", *sample, "--set", "data.benign_label=[0, '0.0']", cwd=tmp_path)
    assert taken_both.returncode in (0, 1, 3)
    assert (
        "benign: 300 rows from in: 250 benign, 50 of other labels, none refused; 3 labels ('0' 150 benign, "
        "'0.0' 100 benign, 'attack' 50 malicious); skipped 2: hidden: '.a.crc'; a marker: '_SUCCESS'; 125 to fit"
    ) in taken_both.stderr
