"""Data by name, on disk and built in."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvae.data import branching_diffusion, flat, load
from paths import ROOT
from reading import refusal, write

# --- names ------------------------------------------------------------------------------------------------------------


def test_built_in_names() -> None:
    tree, schema = load("branching-diffusion")
    assert tree.fingerprint == branching_diffusion().dataset().fingerprint and schema.kind == "matrix"
    assert tree.warnings == () and load("branching-diffusion", schema=schema)[0].fingerprint == tree.fingerprint
    assert load("flat")[0].fingerprint == flat().fingerprint
    document = (ROOT / "docs" / "data.md").read_text()
    assert tree.fingerprint in document and flat().fingerprint in document


def test_what_lies_on_disk_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flat").mkdir()
    assert "contains no images" in refusal("flat")


def test_unknown_sources(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n1,2\n3,4\n", "cells.csv")
    message = refusal(tmp_path / "cell.csv", label="type")
    assert "there is no file" in message and "did you mean 'cells.csv'?" in message
    assert "branching-diffusion, flat, mnist" in message and ".parquet" in message
    assert "did you mean 'branching-diffusion'?" in refusal("branching_diffusion")
    assert "unknown file extension" in refusal(
        write(tmp_path, "x", "cells.xlsx")
    ) and "unknown file extension" in refusal(write(tmp_path, "x", "cells"))
    assert "there is no file" in refusal(tmp_path / "nowhere" / "cells.csv")
