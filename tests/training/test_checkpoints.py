"""Lists of models that go on: in the stacks they were begun in, on the data they were begun with, counted once."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.training import Scaling, fit, fit_many, random_split, stacks, workers
from curvae.training.fitted import Fitted
from curvae.training.rows_problem import plan_rows
from curvae.training.stacks import begun, seen
from curvae.training.storage import read_tensors, write_tensors
from curvae.training.workers import stacks as partition
from trainings import SMALL as WIDE
from trainings import assert_all_same, interrupted, rows, seeds, small_memory, spoiling

SMALL = replace(WIDE, hidden=(6,))


def resumed(configs, data, folder, **how):
    """The models, and the epochs that were told of."""
    told = []
    return fit_many(configs, data, folder=folder, resume=True, progress=lambda *t: told.append(t), **how), told


def refuses(pattern, configs, data, folder, **how):
    with pytest.raises(CurvaeError, match=pattern) as caught:
        fit_many(configs, data, folder=folder, resume=True, **how)
    assert "\n" not in str(caught.value)


def files(folder):
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


def in_pieces(shares):
    """Stacks as for so many processes, in this one."""
    return mock.patch.object(workers, "stacks", lambda tasks, _=1, begun=(): partition(tasks, shares, begun))


# --- progress -------------------------------------------------------------------------------------------------------


def assert_never_back(told, total):
    done = [part for part, whole in told]
    assert {whole for _, whole in told} == {total}
    assert done == sorted(done) and done[-1] == total and done[0] > 0


def test_epochs_that_are_trained_again_count_once():
    """Memory that ends in the second epoch: the halves begin at the first."""
    plain, told = stacks._train, []

    def short(problem, tasks, listener, checkpoint):
        def tick(place, record):
            listener.record(place, record)
            if len(tasks) > 2 and record["epoch"] == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")

        return plain(problem, tasks, replace(listener, record=tick), checkpoint)

    with mock.patch.object(stacks, "_train", short):
        fit_many(seeds(4, SMALL), rows(), progress=lambda *t: told.append(t))
    assert_never_back(told, 12)
    assert len(told) == 1 + 5 + 12  # and yet every epoch was told of
    assert [done for done, _ in told[:5]] == [1, 2, 3, 4, 5]


def test_a_worker_that_begins_again_does_not_count_back(tmp_path):
    path = tmp_path / "epochs"
    counts = np.memmap(path, np.int64, "w+", shape=(3,))
    seen = []

    def work(tasks, listener):
        for epoch in tasks:
            listener.record(1, {"epoch": epoch})
            seen.append(int(counts[1]))
        return []

    for epochs in (range(1, 6), range(1, 8)):  # the first dies after five
        workers._apart(work, epochs, str(path), owner=None)
    assert seen == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7] and counts.tolist() == [0, 7, 0]


# --- the same data --------------------------------------------------------------------------------------------------


def test_other_data_of_the_same_shape_are_refused(tmp_path):
    configs, x = seeds(3, SMALL), rows()
    splits, scalings = [random_split(40, 0.1, 0.1, seed) for seed in range(3)], [Scaling.standard(x)] * 3
    plain = {"splits": splits, "scalings": scalings}
    expected = fit_many(configs, x, folder=tmp_path, **plain)

    changed = x.copy()
    changed[17, 2] += 1e-9
    message = (
        r"does not fit this run .other data: not the {} that model {} of 3 .seed {}, c = 1. was begun with.; start"
    )
    refuses(message.format("rows", 1, 0), configs, changed, tmp_path, **plain)
    refuses(message.format("rows", 2, 1), configs, [x, changed, x], tmp_path, **plain)
    refuses(message.format("rows", 1, 0), configs, x[::-1], tmp_path, **plain)
    other = [*splits[:2], random_split(40, 0.1, 0.1, 9)]
    refuses(message.format("split", 3, 2), configs, x, tmp_path, splits=other, scalings=scalings)
    other = [scalings[0], Scaling(scalings[0].shift, scalings[0].scale * 1.01), scalings[0]]
    refuses(message.format("scaling", 2, 1), configs, x, tmp_path, splits=splits, scalings=other)

    # The same values are the same data, however they are held; and a mean may be rounded otherwise.
    rounded = [Scaling(s.shift * (1 + 1e-15) + 1e-16, s.scale * (1 - 1e-15)) for s in scalings]
    for data, how in ((x.copy(), plain), (sparse.csr_array(x), {**plain, "scalings": rounded})):
        found, told = resumed(configs, data, tmp_path, **how)
        assert_all_same(found, expected)
        assert told == [(9, 9)]


def test_one_model_on_other_data_is_refused(tmp_path):
    fit(SMALL, rows(), folder=tmp_path)
    with pytest.raises(CurvaeError, match="other data: not the rows that model 1 of 1"):
        fit(SMALL, rows(seed=1), folder=tmp_path, resume=True)


def test_other_blocks_are_other_data():
    """They have the same weights, and would go unnoticed."""
    x = np.eye(4)[np.random.default_rng(0).integers(4, size=40)]
    problem, tasks = plan_rows([replace(SMALL, likelihood="categorical")], x)
    (task,), (other,) = (
        problem.fingerprinted([replace(tasks[0], layout=Layout(4, blocks))]) for blocks in ((1, 3), (2, 2))
    )
    assert task.data["rows"] != other.data["rows"] and task.data["split"] == other.data["split"]


def test_data_are_looked_at_once_and_only_for_a_folder(tmp_path):
    with mock.patch("curvae.training.rows_problem.hash_rows") as looks:
        fit_many(seeds(3, SMALL), rows())
        assert not looks.called
        fit_many(seeds(3, SMALL), rows(), folder=tmp_path)
        assert looks.call_count == 1


# --- the same stacks ------------------------------------------------------------------------------------------------


def test_a_longer_list_goes_on_with_what_there_is(tmp_path, often):
    configs = seeds(5, SMALL)
    first = fit_many(configs[:3], rows(), folder=tmp_path)
    found, told = resumed(configs, rows(), tmp_path)
    assert_all_same(found[:3], first)
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6, 15]  # two models of three epochs, and the end
    assert_all_same(found[3:], fit_many(configs[3:], rows()))
    assert files(tmp_path) == ["state-0-3.safetensors", "state-3-2.safetensors"]
    # Also in the middle of the first three.
    interrupted(4, configs[:3], rows(), folder=tmp_path / "half")
    assert_all_same(resumed(configs, rows(), tmp_path / "half")[0], found)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_another_number_of_processes_goes_on_with_the_same_stacks(tmp_path, often, before, after):
    configs = seeds(6, replace(SMALL, patience=2, epochs=4))
    with in_pieces(before):
        whole = fit_many(configs, rows())
        interrupted(9, configs, rows(), folder=tmp_path)
    kept = files(tmp_path)
    with in_pieces(after):
        found, _ = resumed(configs, rows(), tmp_path)
    assert set(kept) <= set(files(tmp_path))
    if before == 1:
        assert_all_same(found, whole)
    # What had begun goes on bit by bit; the rest is in other stacks, and so the same to rounding.
    for name in kept:
        first, count = (int(part) for part in name.removesuffix(".safetensors").split("-")[1:])
        assert_all_same(found[first : first + count], whole[first : first + count])
    for a, b in zip(found, whole, strict=True):
        assert a.last["elbo"] == pytest.approx(b.last["elbo"], rel=1e-4)


def test_stacks_that_have_not_begun_are_those_they_would_have_been(tmp_path, often):
    _, tasks = plan_rows(seeds(6, SMALL), rows())
    whole = partition(tasks, 4)
    assert [len(stack) for stack in whole] == [1, 2, 1, 2]  # the rest alone would make 1, 2 and 2
    for i, stack in enumerate(whole):
        found = partition(tasks, 4, [[task.place for task in stack]])
        assert found == [stack, *whole[:i], *whole[i + 1 :]]
    configs = seeds(4, SMALL)
    with in_pieces(2):
        expected = fit_many(configs, rows())
        interrupted(1, configs, rows(), folder=tmp_path)
        assert files(tmp_path) == ["state-0-2.safetensors"]
        assert_all_same(resumed(configs, rows(), tmp_path)[0], expected)


def test_halves_go_on_as_halves(tmp_path, often):
    configs = seeds(4, SMALL)
    with small_memory(2):
        expected = fit_many(configs, rows(), folder=tmp_path)
    found, told = resumed(configs, rows(), tmp_path)  # where there is room for all
    assert_all_same(found, expected)
    assert told == [(12, 12)]


def test_the_checkpoint_of_a_stack_that_is_halved_is_gone(tmp_path, often):
    """Memory may end after some epochs; no model is then in two files."""
    plain = stacks._train

    def short(problem, tasks, listener, checkpoint):
        found = plain(problem, tasks, listener, checkpoint)
        if len(tasks) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    configs = seeds(4, SMALL)
    with mock.patch.object(stacks, "_train", short):
        fit_many(configs, rows(), folder=tmp_path)
    assert files(tmp_path) == ["state-0-2.safetensors", "state-2-2.safetensors"]
    assert resumed(configs, rows(), tmp_path)[1] == [(12, 12)]


def test_a_shorter_list_is_refused(tmp_path):
    configs = seeds(3, SMALL)
    fit_many(configs, rows(), folder=tmp_path)
    refuses("of a list of 3 models or more, not of 2; give that list", configs[:2], rows(), tmp_path)
    with pytest.raises(CurvaeError, match="of a list of 3 models or more, not of 1"):
        fit(configs[0], rows(), folder=tmp_path, resume=True)


def test_a_list_may_begin_with_a_model_alone(tmp_path):
    configs = seeds(3, SMALL)
    first = fit(configs[0], rows(), folder=tmp_path)
    found, _ = resumed(configs, rows(), tmp_path)
    assert_all_same(found[:1], [first])
    assert files(tmp_path) == ["state-1-2.safetensors", "state.safetensors"]


def test_other_epochs_for_a_part_of_a_stack_are_refused(tmp_path):
    configs = seeds(3, SMALL)
    fit_many(configs, rows(), folder=tmp_path)
    refuses("must be given the same epochs", [*configs[:2], replace(configs[2], epochs=9)], rows(), tmp_path)


def test_what_is_not_resumed_leaves_nothing_of_what_was_before(tmp_path):
    fit_many(seeds(4, SMALL), rows(), folder=tmp_path)
    found = fit_many(seeds(2, SMALL), rows(seed=1), folder=tmp_path)
    assert files(tmp_path) == ["state-0-2.safetensors"]
    assert_all_same(resumed(seeds(2, SMALL), rows(seed=1), tmp_path)[0], found)
    # Before the first checkpoint there is none, not the one of another training.
    interrupted(1, seeds(2, SMALL), rows(seed=2), folder=tmp_path)
    assert files(tmp_path) == []


def test_files_that_do_not_fit_together(tmp_path):
    fit_many(seeds(2, SMALL), rows(), folder=tmp_path)
    path = tmp_path / "checkpoint" / "state-0-2.safetensors"
    tensors, metadata = read_tensors(path)
    copy = path.with_name("state-1-2.safetensors")
    copy.write_bytes(path.read_bytes())
    refuses("a model is in two files", seeds(2, SMALL), rows(), tmp_path)
    for places in ("[]", "[-1]", '["0"]', "[0.5]", "7", "null"):
        write_tensors(copy, tensors, {"state": metadata["state"].replace('"places": [0, 1]', f'"places": {places}')})
        refuses("does not fit this run", seeds(2, SMALL), rows(), tmp_path)
    copy.write_bytes(b"nothing")
    refuses("state-1-2.safetensors is damaged", seeds(2, SMALL), rows(), tmp_path)


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CurvaeError, match="cannot write .*file/run"):
        begun(tmp_path / "file" / "run", False, 1)


def test_a_worker_elsewhere_keeps_no_checkpoints(tmp_path):
    said = []
    assert seen(None, said.append) is None and seen(tmp_path, said.append) == tmp_path and not said
    assert seen(tmp_path / "elsewhere", said.append) is None
    assert len(said) == 1 and "keeps no checkpoints; choose a folder that all machines share" in said[0]


# --- the epoch of the weights ---------------------------------------------------------------------------------------


def test_a_model_that_failed_tells_of_its_last_good_epoch():
    """With patience too, where others tell of the best."""
    configs = seeds(3, replace(SMALL, validation=0.3, patience=9, epochs=9, learning_rate=0.1, learn_curvature=True))
    with spoiling([1], 17):  # of two steps an epoch
        found: list[Fitted] = fit_many(configs, rows(30))
    failed = found[1]
    best = max(failed.history, key=lambda record: record["validation_elbo"])
    assert failed.failure is not None and len(failed.history) == 8 and best["epoch"] < 8
    assert failed.last is failed.history[-1]
    for one in found:
        assert one.last["c"] == pytest.approx(float(one.model.space.curvatures()[0].detach()), rel=1e-6)
