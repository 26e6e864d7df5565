"""Files are put where they were named: through no link of a checkout, and so that a power cut loses none."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import gate, write_inputs


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and beside it one that nobody may reach through a link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    return tmp_path / "checkout"


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path.cwd().parent / "elsewhere")


@pytest.mark.parametrize("linked", ["releases", "releases/v1", "demo", "demo/releases", "demo/benign-fit.parquet"])
def test_commands_write_through_no_link(checkout: Path, linked: str) -> None:
    write_inputs(checkout)
    link(Path(linked))
    if linked.startswith("releases"):
        result = gate(
            *("run", "--policy", "policy.yaml", "--fit", "fit.npy", "--holdout", "pass.npy", "--release", "v1"),
            cwd=checkout,
        )
    else:
        result = gate("demo", "--out", "demo", "--force", cwd=checkout)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert linked in result.stderr
    assert list((checkout.parent / "elsewhere").iterdir()) == []
