"""Poincaré maps, written from the paper, as a method to compare with.

A neighbour graph of the rows, with Gaussian weights w_ij = exp(−d²/2σ²) and the Laplacian L, gives the similarities
P = (I + L)⁻¹, the relative forest accessibilities, whose rows add up to 1. Points of the hyperbolic plane are placed
such that Q_ij ∝ exp(−γ·d_ij) is near to P: the symmetric divergence Σ_i KL(P_i ‖ Q_i) + KL(Q_i ‖ P_i) is minimised by
Riemannian gradient descent. Neighbours, γ, batches, rates and the end of the descent are the defaults of the authors'
program, with two exceptions. Its σ = 1 suits data of their scales, and in many columns with standard deviation 1 it
leaves all weights 0; here σ is the median distance to the last of the neighbours. And there are at most 500 epochs, the
first 20 at a tenth of the rate, instead of 5,000.

References:
    Klimovskaia et al. (2020), Poincaré maps for analyzing complex hierarchies in single-cell data.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components, laplacian
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from curvae.geometry import Lorentz

__all__ = ["accessibilities", "poincare_map"]

NEIGHBOURS = 15
GAMMA = 2.0
EPOCHS, BURN_IN = 500, 20
RATE = 0.1  # of a batch of 16
BATCH = 512  # at most, and a tenth of the rows
STALLED, PATIENCE = 1e-4, 50  # epochs that change the loss by less count as stalled; so many end the descent


def accessibilities(x: NDArray[np.float64], neighbours: int = NEIGHBOURS) -> NDArray[np.float64]:
    """Relative forest accessibilities of the rows, (rows, rows).

    Example:
        >>> P = accessibilities(np.array([[0.0], [1.0], [2.0], [9.0]]), neighbours=1)
        >>> P.sum(1).round(6).tolist(), bool(P[0, 1] > P[0, 2] > P[0, 3] > 0)
        ([1.0, 1.0, 1.0, 1.0], True)
    """
    near = kneighbors_graph(x, neighbours, mode="distance")
    scale = float(np.median(near.max(axis=1).toarray()))
    near = _connected(near.maximum(near.T).tocsr(), x)
    weights = near.copy()
    weights.data = np.exp(-(near.data**2) / (2.0 * scale**2))
    return np.linalg.inv(np.eye(len(x)) + laplacian(weights).toarray())


def _connected(near: csr_matrix, x: NDArray[np.float64]) -> csr_matrix:
    """Add to the graph the shortest edge from the first component to another, until there is one."""
    parts, part = connected_components(near, directed=False)
    while parts > 1:
        inside, outside = np.flatnonzero(part == 0), np.flatnonzero(part != 0)
        between = cdist(x[inside], x[outside])
        place = np.unravel_index(between.argmin(), between.shape)
        ends = np.array([inside[place[0]], outside[place[1]]])
        edge = coo_matrix((np.repeat(between[place], 2), (ends, ends[::-1])), shape=near.shape)
        near = (near + edge).tocsr()
        parts, part = connected_components(near, directed=False)
    return near


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Distances by one matrix product, which is exact enough here and several times faster than `Lorentz.dist`."""
    one, two = (torch.cat([S, (1.0 + S.square().sum(1, keepdim=True)).sqrt()], 1) for S in (x, y))
    return torch.acosh((one @ (two * two.new_tensor([-1.0, -1.0, 1.0])).T).clamp_min(1.0 + 1e-12))


def poincare_map(x: NDArray[np.float64], seed: int = 0, epochs: int = EPOCHS) -> NDArray[np.float64]:
    """Coordinates of the rows: space parts on the hyperboloid of curvature −1, (rows, 2)."""
    target = torch.from_numpy(accessibilities(x)).clamp_min(1e-12)
    log_target = target.log()
    plane, random = Lorentz(2), torch.Generator().manual_seed(seed)
    points = (1e-3 * torch.randn(len(x), 2, generator=random, dtype=torch.float64)).requires_grad_()
    batch = max(4, min(BATCH, len(x) // 10))
    last, stalled = float("inf"), 0
    for epoch in range(epochs):
        rate = RATE * batch / 16 * (0.1 if epoch < BURN_IN else 1.0)
        losses = []
        for rows in torch.randperm(len(x), generator=random).split(batch):
            log_q = torch.log_softmax(-GAMMA * _distances(points[rows], points), 1)
            loss = ((target[rows] - log_q.exp()) * (log_target[rows] - log_q)).sum(1).mean()
            (slope,) = torch.autograd.grad(loss, points)
            with torch.no_grad():
                points.copy_(plane.expmap(points, -rate * plane.egrad2rgrad(points, slope)))
            losses.append(float(loss.detach()))
        mean = float(np.mean(losses))
        stalled += epoch > BURN_IN and abs(mean - last) < STALLED
        if stalled > PATIENCE:
            break
        last = mean
    return points.detach().numpy()
