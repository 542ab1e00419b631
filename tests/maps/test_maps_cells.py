"""Maps in objects of AnnData: coordinates, and neighbours as scanpy asks for them."""

from __future__ import annotations

from types import SimpleNamespace

import h5py
import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.stats import norm

from cell_files import CELLS, counts, describe, write_h5ad
from curvae.errors import CurvaeError
from curvae.maps.cells import add_map, geodesic_neighbours, log_overlap, transfer_labels, write_map
from curvae.maps.embedding import Embedding, PlacedFactor


def made(rows: int = 60, c: float = 1.3) -> Embedding:
    random = np.random.default_rng(0)
    tangent = random.normal(size=(rows, 2)) * random.uniform(0.1, 3.0, (rows, 1))
    return Embedding.from_tangent(tangent, random.uniform(0.1, 1.0, rows), (PlacedFactor("h1", 2, c),))


def ball_distances(ball: np.ndarray, c: float) -> np.ndarray:
    """Distances in the ball of curvature −c, each in 30 digits."""
    found = np.zeros((len(ball), len(ball)))
    with mpmath.workdps(30):
        points = [[mpmath.mpf(float(x)) for x in point] for point in ball]
        for i, a in enumerate(points):
            for j, b in enumerate(points[:i]):
                squares = [sum(v * v for v in w) for w in (a, b, [x - y for x, y in zip(a, b, strict=True)])]
                ratio = 1 + 2 * c * squares[2] / ((1 - c * squares[0]) * (1 - c * squares[1]))
                found[i, j] = found[j, i] = float(mpmath.acosh(ratio) / mpmath.sqrt(c))
    return found


def anndata_like(rows: int) -> SimpleNamespace:
    return SimpleNamespace(n_obs=rows, obs={}, obsm={}, obsp={}, uns={})


@pytest.mark.parametrize("block", [1 << 24, 600])
def test_geodesic_neighbours(block, monkeypatch):
    monkeypatch.setattr("curvae.maps.cells._DISTANCES", block)
    embedding = made()
    index, distances = geodesic_neighbours(embedding, 7)
    far = ball_distances(embedding.ball, 1.3)
    np.fill_diagonal(far, np.inf)
    np.testing.assert_array_equal(index, np.argsort(far, 1)[:, :7])
    np.testing.assert_allclose(distances, np.sort(far, 1)[:, :7], rtol=1e-8)


def test_what_is_added_to_an_object():
    embedding, adata = made(), anndata_like(60)
    add_map(adata, embedding, 7)
    np.testing.assert_array_equal(adata.obsm["X_curvae"], embedding.tangent)
    np.testing.assert_array_equal(adata.obsm["X_curvae_ball"], embedding.ball)
    radius = np.linalg.norm(embedding.tangent, axis=1)
    np.testing.assert_allclose(adata.obs["curvae_radius"], radius, rtol=1e-12)
    np.testing.assert_array_equal(adata.obs["curvae_sigma"], embedding.sigma)
    far = ball_distances(embedding.ball, 1.3)
    np.fill_diagonal(far, np.inf)
    near = np.argsort(far, 1)[:, :7]
    rows = np.arange(60)[:, None]
    lengths, chances = np.zeros((60, 60)), np.zeros((60, 60))
    lengths[rows, near] = far[rows, near]
    further = far[rows, near] - far[rows, near].min(1, keepdims=True)
    chances[rows, near] = np.exp(-further / further.mean(1, keepdims=True))
    keys = adata.uns["curvae"]
    np.testing.assert_allclose(adata.obsp[keys["distances_key"]].toarray(), lengths, rtol=1e-8)
    weights = adata.obsp[keys["connectivities_key"]]
    np.testing.assert_allclose(weights.toarray(), 1 - (1 - chances) * (1 - chances.T), rtol=1e-8)
    assert abs(weights - weights.T).max() == 0 and weights.data.min() > 0 and weights.data.max() <= 1
    assert keys["params"] == {"n_neighbors": 7, "method": "umap", "metric": "geodesic", "use_rep": "X_curvae"}


def test_cells_in_the_same_place_and_few_cells():
    place = Embedding(np.zeros((5, 2)), np.ones(5), 1.0)
    adata = anndata_like(5)
    add_map(adata, place)
    assert (adata.obsp["curvae_connectivities"].data == 1).all() and adata.obsp["curvae_distances"].nnz == 20
    assert adata.uns["curvae"]["params"]["n_neighbors"] == 4
    with pytest.raises(CurvaeError, match="a single cell has no neighbours"):
        add_map(anndata_like(1), place.take([0]))
    with pytest.raises(CurvaeError, match="the map has 5 rows and the AnnData object 4"):
        add_map(anndata_like(4), place)


def test_a_product_has_a_deviation_for_each_factor():
    random = np.random.default_rng(0)
    factors = (PlacedFactor("h1", 2, 1.0, 0.5), PlacedFactor("e2", 1, 0.0, 2.0))
    embedding = Embedding.from_tangent(random.normal(size=(9, 3)), random.uniform(0.1, 1, (9, 2)), factors)
    adata = anndata_like(9)
    add_map(adata, embedding, 3)
    assert list(adata.obs) == ["curvae_radius", "curvae_sigma_h1", "curvae_sigma_e2"]
    np.testing.assert_array_equal(adata.obs["curvae_sigma_e2"], embedding.sigma[:, 1])
    assert adata.obsm["X_curvae"].shape == (9, 3)


def contents(path) -> dict[str, str]:
    """All that is in a file, by its place."""
    found = {}

    def add(name, item):
        found[name] = repr(item[...].tolist()) if isinstance(item, h5py.Dataset) else ""
        found.update({f"{name}@{key}": repr(np.asarray(value).tolist()) for key, value in item.attrs.items()})

    with h5py.File(path) as file:
        file.visititems(add)
    return found


def test_a_file_is_only_added_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_h5ad(CELLS, csr_array(counts()), describe())
    with h5py.File(CELLS, "r+") as file:
        del file["obsp"]  # which older files lack
    before, embedding = contents(CELLS), made()
    write_map(CELLS, embedding, 7)
    after, adata = contents(CELLS), anndata_like(60)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"obs@column-order"}
    added = {name.split("@")[0] for name in after.keys() - before.keys()}
    known = ("obs/curvae_", "obsm/X_curvae", "obsp", "uns/curvae")
    assert added and all(name.startswith(known) for name in added)
    add_map(adata, embedding, 7)
    with h5py.File(CELLS) as file:
        assert list(file["obs"].attrs["column-order"]) == [*describe(), "curvae_radius", "curvae_sigma"]
        np.testing.assert_array_equal(file["obsm/X_curvae_ball"], embedding.ball)
        group = file["obsp/curvae_connectivities"]
        stored = csr_array((group["data"][:], group["indices"][:], group["indptr"][:]), group.attrs["shape"])
        assert abs(stored - adata.obsp["curvae_connectivities"]).max() == 0
        assert file["uns/curvae/params/use_rep"].asstr()[()] == "X_curvae"
    write_map(CELLS, embedding.take(np.arange(60)[::-1]), 7)  # again
    assert contents(CELLS).keys() == after.keys()


# Labels of a reference.


def test_overlaps_are_integrals():
    places, sigma = np.array([0.3, -1.1, 2.0]), np.array([0.2, 0.7, 1.5])
    pairs = np.array([[0, 1], [1, 2], [2, 0], [1, 1]])

    def integral(p, q):
        return quad(lambda x: np.sqrt(p.pdf(x) * q.pdf(x)), -12, 12)[0]

    posteriors = [norm(*one) for one in zip(places, sigma, strict=True)]
    expected = [integral(posteriors[i], posteriors[j]) for i, j in pairs]
    line = Embedding(places[:, None], sigma, 0.0)
    np.testing.assert_allclose(np.exp(log_overlap(line, pairs)), expected, rtol=1e-7)
    # In a product it is the product of those in the factors, whose distances are in their own units here.
    factors = (PlacedFactor("e1", 1, 0.0, 3.0), PlacedFactor("e2", 1, 0.0, 0.5))
    plane = Embedding(np.stack([places, -2 * places], 1), np.stack([sigma, 2 * sigma], 1), factors)
    np.testing.assert_allclose(log_overlap(plane, pairs), 2 * np.log(expected), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("c", [0.0, 1.3])
def test_labels_by_hand(c):
    random = np.random.default_rng(0)
    made = Embedding(random.normal(size=(30, 2)), random.uniform(0.2, 1.0, 30), c)
    reference, query, labels = made.take(np.arange(22)), made.take(np.arange(22, 30)), random.choice(list("abc"), 22)
    names, probability = transfer_labels(query, reference, labels, 5)
    far = query.distances(reference)
    for row in range(8):
        near = np.argsort(far[row])[:5]
        squares = query.sigma[row] ** 2 + reference.sigma[near] ** 2
        weight = 2 * query.sigma[row] * reference.sigma[near] / squares * np.exp(-(far[row, near] ** 2) / (4 * squares))
        shares = {name: weight[labels[near] == name].sum() / weight.sum() for name in "abc"}
        assert names[row] == max(shares, key=shares.get)
        assert probability[row] == pytest.approx(shares[names[row]], rel=1e-9)


@pytest.mark.parametrize("sure", [0.9, 0.6])
def test_probabilities_hold_where_overlaps_are_too_sharp(sure):
    """Labels are drawn, so that no place tells more than `sure`; posteriors are so narrow that a single row counts."""
    random = np.random.default_rng(1)
    place = random.uniform(-1, 1, 1500)
    chance = np.where(place > 0, sure, 1 - sure)
    labels = np.where(random.random(1500) < chance, "b", "a")
    line = Embedding(place[:, None], np.full(1500, 1e-4), 0.0)
    query = line.take(np.arange(1000, 1500))
    names, probability = transfer_labels(query, line.take(np.arange(1000)), labels[:1000])
    right = np.where(names == "b", chance[1000:], 1 - chance[1000:])  # the true probability of the label
    assert probability.mean() == pytest.approx(
        right.mean(), abs=0.06
    )  # the nearest row alone is sure, and wrong in 18 or 48 %
    assert right.mean() > sure - 0.1


def test_far_cells_have_labels_too():
    line = Embedding(np.array([[0.0], [1.0], [500.0]]), np.full(3, 0.01), 0.0)
    names, probability = transfer_labels(line.take([2]), line.take([0, 1]), np.array(["a", "b"]), 2)
    assert names == ["b"] and probability == [1.0]
    with pytest.raises(CurvaeError, match="`k` must lie between 1 and 2, the cells of the reference; got 3"):
        transfer_labels(line.take([2]), line.take([0, 1]), np.array(["a", "b"]), 3)
