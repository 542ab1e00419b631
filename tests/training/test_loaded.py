"""Training on batches that others make: a torch DataLoader, and what a source may not do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from curvae.data import open_batches
from curvae.data.missing import MissingValuesError
from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.training import Config, Scaling, fit, stacks
from curvae.training.loaded import LoadedRows
from curvae.training.sources import EpochGenerator
from streaming import numbered
from trainings import assert_same, state

ROWS, COLUMNS = 300, 5
X = numbered(ROWS, COLUMNS)
CONFIG = Config(
    hidden=(8,), posterior="wrapped", epochs=6, batch_size=20, epoch_steps=7, cooldown=0.0, patience=None, seed=3
)


class Loader:
    """A torch DataLoader; batches of another size than those of the training."""

    def __init__(self, x=X, size=32, **how):
        self.rows, self.size, self.how, self.asked = TensorDataset(torch.as_tensor(x)), size, how, []

    def batches(self, epoch, seed, rank, world):
        self.asked.append((epoch, seed, rank, world))
        order = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        return DataLoader(self.rows, self.size, shuffle=True, generator=order, **self.how)

    def state_dict(self):
        return {"rows": len(self.rows)}


def generator(seed, epoch):
    made = EpochGenerator()
    made.origin = seed, epoch
    return made


def order_of(batches):
    return [int(number) for batch in batches for number in batch.x[:, 0]]


def source(loader=None):
    return LoadedRows(open_batches(loader or Loader()), Scaling.identity(COLUMNS), Layout(COLUMNS))


def test_batches_of_the_size_asked_for_hold_every_row_once():
    rows = source()
    found = list(rows.batches(generator(3, 1), 50))
    assert [len(batch) for batch in found] == [50] * 6
    assert sorted(order_of(found)) == list(range(ROWS))
    assert order_of(found) == [int(n) for batch in Loader().batches(1, 3, 0, 1) for n in batch[0][:, 0]]
    parts = [order_of(rows.batches(generator(3, 1), 50, slice(a, a + 100))) for a in (0, 100, 200)]
    assert parts[0] + parts[1] + parts[2] == order_of(found)
    assert order_of(source().batches(generator(3, 1), 50, slice(200, 300))) == parts[2]


def test_a_training_asks_for_every_pass_once():
    loader = Loader()
    fitted = fit(CONFIG, open_batches(loader, held_out=X[:30]))
    # Fifteen steps a pass, in epochs of 7, 7 and 1: two passes. The first of all counted the rows.
    assert loader.asked == [(0, 0, 0, 1), (0, 3, 0, 1), (1, 3, 0, 1)]
    assert len(fitted.history) == 6 and "validation_elbo" in fitted.last
    np.testing.assert_allclose(fitted.scaling.shift, X.mean(0, dtype=np.float64), rtol=1e-9)
    assert fitted.split.counts == (0, 30)


def test_an_interrupted_training_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    whole = state(fit(CONFIG, open_batches(Loader())))

    def stop(record, epochs):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(CONFIG, open_batches(Loader()), folder=tmp_path, progress=stop)
    with pytest.raises(CurvaeError, match="other data"):
        fit(CONFIG, open_batches(Loader(X[::-1].copy())), folder=tmp_path, resume=True)
    assert_same(state(fit(CONFIG, open_batches(Loader()), folder=tmp_path, resume=True)), whole)


class Growing(Loader):
    """Gives more or fewer rows in epochs after the first."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def batches(self, epoch, seed, rank, world):
        found = list(super().batches(epoch, seed, rank, world))
        if seed == 0:
            return found
        return [*found, found[0]] if self.more else found[:-2]


@pytest.mark.parametrize(("more", "says"), [(True, "at least 332 rows"), (False, "only 256 rows")])
def test_every_epoch_must_have_all_rows(more, says):
    with pytest.raises(CurvaeError, match=f"epoch 1 hold {says}, and there were 300 when they were counted"):
        fit(replace(CONFIG, epoch_steps=None, epochs=2), open_batches(Growing(more)))


def test_what_is_wrong_with_batches():
    gaps = X.copy()
    gaps[7, 2] = np.nan
    with pytest.raises(MissingValuesError, match=r"in a batch, counted by column: 'x3' \(1\)"):
        open_batches(Loader(gaps))
    assert open_batches(Loader(gaps), missing="model").known.present.tolist() == [300, 300, 299, 300, 300]
    assert math.isfinite(fit(CONFIG, open_batches(Loader(gaps), missing="model")).last["elbo"])
    with pytest.raises(CurvaeError, match='of batches it is "error" or "model"'):
        open_batches(Loader(), missing="mean")
    with pytest.raises(CurvaeError, match="held_out has 4 columns, and batches have 5"):
        open_batches(Loader(), held_out=X[:, :4])
    with pytest.raises(CurvaeError, match="has fewer than 2 rows"):
        open_batches(Loader(X[:1]))
