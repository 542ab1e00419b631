"""The page on objectives: its examples, and the table of measured variances."""

from __future__ import annotations

import json
import re

import numpy as np

from paths import ROOT


def test_the_examples_of_the_page_train(capsys):
    page = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    mixed, exposure, cells, counts, convolutional = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict = {}
    exec(mixed, names)
    assert "```text\n" + capsys.readouterr().out in page
    exec(exposure, names)
    assert names["fitted"].layout.size and names["fitted"].model.likelihood.unit > 1
    exec(cells, names)
    assert names["theta"].shape == (30,)
    exec(counts, names)
    assert all(parameter.grad.isfinite().all() for parameter in names["model"].parameters())
    names = {}
    exec(convolutional, names)
    losses, held_out = names["losses"], names["held_out"]
    assert np.mean(losses[-20:]) < 0.6 * losses[0]
    assert held_out.log_prob.mean() > -np.mean(losses[-20:]) - 2 and held_out.error.median() < 0.2
    assert names["points"].shape == (512, 2)


def test_the_table_of_the_page_comes_from_its_file(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import tables

    result = json.loads((ROOT / "results" / "entropy_variance.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    assert tables.fill("objectives", page) == page and tables.entropy_variance(result) in page
    # What the text says of it.
    assert all(case["interval"][0] > 1 and case["time_ratio"] > 1.5 for case in result["results"])
