# ---
# jupytext:
#   text_representation:
#     extension: .py
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # A Bayesian model in Pyro
#
# Distributions of Curvae can be latent variables of [Pyro](https://pyro.ai). Here items
# are to be placed from noisy measurements of how different they are, multidimensional
# scaling as a Bayesian model: every place has a posterior, and the noise is inferred
# too. Install it with `pip install pyro-ppl`.

# %%
import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

from curvae import PoincareBall, RiemannianNormal
from curvae.distributions import to_pyro
from curvae.plotting import disc as draw_disc, geodesics, regular_tree

pyro.set_rng_seed(0)

# %% [markdown]
# ## Data
#
# Ten items at the nodes of a tree, in which the root has three children and each of
# these two. Distances are numbers of steps in the tree, measured with an error of 0.2.

# %%
_, edges = regular_tree(degree=3, depth=2)
n = 1 + max(max(edge) for edge in edges)
steps = torch.full((n, n), float("inf")).fill_diagonal_(0.0)
for a, b in edges:
    steps[a, b] = steps[b, a] = 1.0
for k in range(n):
    steps = torch.minimum(steps, steps[:, k, None] + steps[None, k])
i, j = torch.triu_indices(n, n, offset=1)
measured = steps[i, j] + 0.2 * torch.randn(len(i))
print(n, "items,", len(i), "measured distances")

# %% [markdown]
# ## The model
#
# `to_pyro` gives a distribution the methods that Pyro needs. Points are in the Poincaré
# disc; `dist` of the disc is the geodesic distance.

# %%
disc = PoincareBall(2, c=4.0)  # curvature −4: room for edges of length 1
prior = to_pyro(RiemannianNormal(torch.zeros(n, 2), 1.0, disc))


def model():
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("items", n):
        z = pyro.sample("z", prior)
    pyro.sample(
        "measured", dist.Normal(disc.dist(z[i], z[j]), noise).to_event(1), obs=measured
    )


# %% [markdown]
# ## Variational inference
#
# Autoguides work in unconstrained coordinates, which `biject_to(support)` provides: the
# exponential map at the origin.

# %%
guide = AutoNormal(model, init_scale=0.05)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
losses = [svi.step() for _ in range(600)]
places = guide.median()["z"].detach()
print(f"loss {losses[0]:.0f} → {losses[-1]:.0f}; noise {guide.median()['noise']:.2f}")

# %%
figure, ax = plt.subplots(figsize=(5, 5))
draw_disc(ax, disc)
pairs = torch.tensor(edges)
geodesics(ax, disc, places[pairs[:, 0]], places[pairs[:, 1]], color="0.6")
points = ax.scatter(*places.T, zorder=3)

# %% [markdown]
# Lines join the items that are neighbours in the tree. Turning the disc changes no
# distance, so the data say nothing about how it is turned. The noise that is found is
# above the 0.2 that was added: the search ends in a local optimum, where some leaves
# may lie too near each other. Another seed gives another one; keep the lowest loss.
#
# ## Where does a new item belong?
#
# A new item has been measured against four others. Its posterior, with these places
# held fixed, comes from NUTS, which needs no guide:

# %%
known = torch.tensor([0, 1, 4, 5])
seen = torch.tensor([2.1, 0.9, 2.2, 1.8])


def placing():
    z = pyro.sample("z", to_pyro(RiemannianNormal(torch.zeros(2), 1.0, disc)))
    pyro.sample(
        "seen", dist.Normal(disc.dist(z, places[known]), 0.3).to_event(1), obs=seen
    )


mcmc = MCMC(NUTS(placing), num_samples=150, warmup_steps=100, disable_progbar=True)
mcmc.run()
z = mcmc.get_samples()["z"]
for item in (1, 2, 9):
    distance = disc.dist(z, places[item])
    print(f"distance from item {item}: {distance.mean():.1f} ± {distance.std():.1f}")

# %%
figure, ax = plt.subplots(figsize=(5, 5))
draw_disc(ax, disc)
geodesics(ax, disc, places[pairs[:, 0]], places[pairs[:, 1]], color="0.6")
ax.scatter(*places.T, zorder=3)
points = ax.scatter(*z.T, s=6, zorder=2, label="the new item")
legend = ax.legend(loc="upper right", frameon=False)

# %% [markdown]
# Next: [densities and Jacobians](../guide-pyro.md#densities-and-jacobians), what a
# density of your own needs to be combined with these.
