"""Training on mixed tables, covariates, exposure and groups that are read in pieces: as on the same rows in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from curvae.data import load, open_stream
from curvae.errors import CurvaeError
from curvae.training import Config, Split, fit, random_split, stacks
from curvae.training import streamed as stream_problem
from curvae.training.rows import hold_out_groups
from curvae.training.rows_problem import plan_rows
from curvae.training.streamed import StreamedRows, held_out_rows, plan_stream
from streaming import MEMORY, mixed_table, write_parts
from trainings import assert_same, state

ROWS = 600
CONFIG = Config(
    hidden=(8,), posterior="wrapped", epochs=3, batch_size=100, patience=None, seed=3, validation=0.05, neighbours="off"
)


class InMemoryOrder(StreamedRows):
    """The rows as they are read in pieces, in the order that rows in memory have."""

    def batches(self, generator, size, own=slice(None)):
        (rows,) = super().batches(None, len(self))
        order = torch.randperm(len(self), generator=generator)
        return (rows.map(lambda part, places=places: part[places]) for places in order[own].split(size))


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stream_problem, "StreamedRows", InMemoryOrder)


def counts():
    table = mixed_table(ROWS)
    random = np.random.default_rng(1)
    drawn = {f"n{i}": random.poisson(table["time"] * (1 + (table["batch"] == "x") * i)) for i in range(5)}
    return table.assign(**drawn)[[*drawn, "time", "batch"]]


MIXED = {"label": "kind", "id": "cell", "categorical": ["colour", "grade"], "covariates": ["batch", "age"]}
CASES = {
    "mixed": (lambda: mixed_table(ROWS).drop(columns=["patient", "time"]), MIXED, {}),
    "encoded": (lambda: mixed_table(ROWS).drop(columns=["patient", "time"]), MIXED, {"encode_covariates": True}),
    "categorical": (lambda: mixed_table(ROWS)[["colour", "grade"]], {"categorical": ["colour", "grade"]}, {}),
    "poisson": (counts, {"exposure": "time", "covariates": ["batch"]}, {"likelihood": "poisson"}),
    "missing": (
        lambda: mixed_table(ROWS).drop(columns=["patient", "time"]).assign(b=lambda t: t["b"].where(t.index % 9 > 0)),
        MIXED | {"missing": "model"},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_rows_in_memory(case):
    make, roles, settings = CASES[case]
    table, config = make(), replace(CONFIG, **settings)
    table.to_parquet("whole.parquet", index=False)
    data, _ = load("whole.parquet", **roles)
    stream = open_stream(write_parts("parts", table), memory=MEMORY, **roles)
    held = held_out_rows(config, stream)
    split = Split(np.setdiff1d(np.arange(ROWS), held.validation), held.validation)
    problem, (task,) = plan_stream([config], stream, held)
    other, (expected,) = plan_rows([config], data, splits=[split])
    assert task.config == expected.config and task.layout == expected.layout and task.reason == expected.reason
    np.testing.assert_allclose(task.scaling.shift, expected.scaling.shift, rtol=1e-12)
    np.testing.assert_allclose(task.scaling.scale, expected.scaling.scale, rtol=1e-9)
    (mean, effects), (known, slopes) = problem._start(task), other._start(expected)
    np.testing.assert_allclose(mean, known, rtol=1e-11)
    if roles.get("covariates"):
        np.testing.assert_allclose(effects.slopes, slopes.slopes, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(effects.centre, slopes.centre, atol=1e-12)
    found, whole = fit(config, stream, split=held), fit(config, data, split=split)
    for one, two in zip(found.history, whole.history, strict=True):
        for figure in ("elbo", "reconstruction", "kl"):
            assert one[figure] == pytest.approx(two[figure], rel=1e-4), figure


def test_groups_stay_together_as_in_memory():
    table = mixed_table(ROWS).drop(columns=["time"])
    roles = MIXED | {"group": "patient"}
    table.to_parquet("whole.parquet", index=False)
    data, _ = load("whole.parquet", **roles)
    stream = open_stream(write_parts("parts", table), memory="10MB", **roles)
    config = replace(CONFIG, validation=0.2)
    held = held_out_rows(config, stream)
    expected = random_split(ROWS, 0.2, seed=config.seed, groups=data.groups)
    np.testing.assert_array_equal(held.validation, expected.validation)
    assert 0 < len(held.validation) < ROWS / 2
    few = held_out_rows(config, replace(stream, memory=8 * 8 * stream.features * 60))
    inside = np.isin(data.groups, np.unique(data.groups[few.validation]))
    np.testing.assert_array_equal(np.flatnonzero(inside), few.validation)
    assert 0 < len(few.validation) <= 60
    assert not len(held_out_rows(replace(config, validation=0.0), stream).all)
    tested = held_out_rows(config, stream, test=0.1)
    parts = [set(data.groups[part]) for part in (tested.validation, tested.test)]
    assert all(parts) and parts[0].isdisjoint(parts[1]) and len(tested.test) < len(tested.validation)
    np.testing.assert_array_equal(tested.all, np.flatnonzero(np.isin(data.groups, list(set.union(*parts)))))
    with pytest.raises(CurvaeError, match="no group is small enough to be held out: 3 rows may be"):
        hold_out_groups({"a": 50, "b": 60}, 0.5, 3)


def test_a_file_that_is_damaged_in_the_middle_of_a_training(monkeypatch, tmp_path):
    monkeypatch.setattr(stream_problem, "StreamedRows", StreamedRows)
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    table = mixed_table(ROWS).drop(columns=["time", "patient"])
    folder = write_parts("parts", table)
    config = replace(CONFIG, epochs=8, epoch_steps=3)
    how = {"memory": MEMORY, **MIXED}
    whole, path = state(fit(config, open_stream(folder, **how))), folder / "1.parquet"
    content = path.read_bytes()

    def damage(record, total):
        if record["epoch"] == 3:
            path.write_bytes(content[:-200])

    with pytest.raises(CurvaeError, match=r"1.parquet was changed while it was being read; restore it") as error:
        fit(config, open_stream(folder, **how), folder=tmp_path / "run", progress=damage)
    assert "\n" not in str(error.value)
    path.write_bytes(content)
    assert_same(state(fit(config, open_stream(folder, **how), folder=tmp_path / "run", resume=True)), whole)
