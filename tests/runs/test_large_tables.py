"""Tables of maps with very many rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from curvae.runs import folders
from running import SMALL, curvae, write_table


def test_a_long_table_is_a_parquet_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("t.csv", rows=30)
    curvae("fit", "t.csv", *SMALL, "-o", "plain")
    monkeypatch.setattr(folders, "PARQUET_ROWS", 30)
    answer = curvae("fit", "t.csv", *SMALL, "-o", "run")
    assert "run/embedding.parquet" in answer.out + answer.err
    assert not (tmp_path / "run/embedding.csv").exists()
    found, expected = pd.read_parquet("run/embedding.parquet"), pd.read_csv("plain/embedding.csv")
    assert list(found) == list(expected)
    np.testing.assert_allclose(found["tangent_1"], expected["tangent_1"], rtol=1e-12)
    curvae("view", "run", "-o", "map.html")
    pd.testing.assert_frame_equal(
        folders.read_embedding(folders.embedding_path(tmp_path / "run")),
        folders.read_embedding(folders.embedding_path(tmp_path / "plain")),
    )
    curvae("fit", "t.csv", *SMALL, "-o", "run", "--force")
    assert not list((tmp_path / "run").glob("embedding.csv*"))
