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
# # Lineages, and cells of a new batch
#
# From counts of genes to a tree of cell types: a map, how far along the tree every cell
# is and how sure that is, the genes that change on the way, and cells of a new batch on
# the same map. Install with `pip install "curvae[cells]"`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from anndata import AnnData

from curvae import CellVAE, PoincareBall
from curvae.data import branching_counts
from curvae.plotting import bands, latent_map

# %% [markdown]
# ## Cells
#
# The counts are simulated, so that the answers are known. A root divides into two
# branches, and each of these into two, measured in three batches that shift genes. Two
# batches are the reference; the third is kept for the end.

# %%
size = {"genes": 300, "depth": 2, "per_node": 100, "batches": 3, "total": 3000}
data = branching_counts(**size, programs=40, seed=5)
obs = pd.DataFrame({"type": data.labels}, index=data.ids)
obs["batch"] = data.context.argmax(1).astype(str)
cells = AnnData(data.x, obs=obs, var=pd.DataFrame(index=data.names))
new = obs["batch"] == "2"
reference = cells[~new].copy()
reference.obs.groupby("type", observed=True).size()

# %% [markdown]
# ## A map
#
# The model knows the batches and takes them out; labels only give colours. Two
# dimensions can be drawn as they are, but have room for few directions: of many
# branches the tree is [found more often](../cells.md#lineages) in ten.

# %%
CellVAE.setup_anndata(reference, batch_key="batch", labels_key="type")
model = CellVAE(reference, n_latent=2, n_hidden=64, random_state=0)
model.train(max_epochs=60, batch_size=32)
places = model.get_latent_representation(coordinates="ball")

# %% [markdown]
# ## The tree of the types
#
# `lineage` joins the Fréchet means of the types to the shortest tree of geodesics.
# Support is the share of trees with the same edge when cells are drawn again, each at a
# draw of its posterior.

# %%
found = model.lineage("root")
print(found.edges.round(2).to_string(index=False))

# %% [markdown]
# Seen from the root, which a translation of the disc brings to its centre: edges are
# geodesics, colours the pseudotime, the length of the way along the tree.

# %%
disc = PoincareBall(2)
root = torch.from_numpy(found.nodes.ball[:1])


def from_root(points):
    """Translate the disc so that the root is at its centre."""
    return disc.mobius_add(-root, torch.as_tensor(points))


nodes = from_root(found.nodes.ball)
edges = [(above, node) for node, above in enumerate(found.tree.parent) if node]
figure, axes = plt.subplots(1, 2, figsize=(10, 4))
colours = {"type": reference.obs["type"], "pseudotime": found.pseudotime}
for ax, (name, values) in zip(axes, colours.items(), strict=True):
    points = from_root(places)
    latent_map(ax, disc, points, values, hierarchy=(nodes, edges), title=name)

# %% [markdown]
# ## How sure is that?
#
# Intervals of 90 % come from the posterior of each cell, calibrated on cells whose
# counts were split in two. Below, some cells of one branch in their order, and the mean
# pseudotime of every type.

# %%
end = found.leaves[0]
branch = reference[reference.obs["curvae_branch"] == end].obs
branch = branch.sort_values("curvae_pseudotime").iloc[::3]
time = branch["curvae_pseudotime"]
errors = time - branch["curvae_pseudotime_low"], branch["curvae_pseudotime_high"] - time
figure, ax = plt.subplots(figsize=(6, 3))
ax.errorbar(np.arange(len(branch)), time, yerr=errors, fmt="o", ms=3, lw=0.8)
ax.set(xlabel=f"cells on the branch to {end}, in order", ylabel="pseudotime")
times = reference.obs.groupby("type", observed=True)["curvae_pseudotime"]
print(times.mean().round(2).sort_values().to_string())

# %% [markdown]
# ## Genes along a branch
#
# What the decoder expects on the way from the root, averaged over batches, of the genes
# that change most. Bands tell how well the way is known.

# %%
genes = model.expression_along(found, end, count=4)
curves = {
    gene: tuple(part[name].to_numpy() for name in ("mean", "low", "high"))
    for gene, part in genes.groupby("gene", sort=False)
}
figure, ax = plt.subplots(figsize=(5, 3.2))
drawn = bands(ax, genes["pseudotime"].unique(), curves)

# %% [markdown]
# ## Cells of a new batch
#
# Only what is told the new batch is trained; the known cells stay where they are. Every
# cell gets the label of its neighbours with a probability, which is calibrated on the
# reference, and the probability that it belongs to nothing known: low here, as it
# should be.

# %%
query = cells[new].copy()
mapped = CellVAE.load_query_data(query, model)
mapped.train(max_epochs=30)
moved = mapped.get_latent_representation(reference, coordinates="ball") - places
labels = mapped.transfer_labels("type")
right = labels["curvae_label"] == query.obs["type"]
print(f"known cells moved by {np.abs(moved).max():g}; right labels: {right.mean():.0%}")
probability, unknown = labels["curvae_label_probability"], labels["curvae_unknown"]
print(f"mean probability of a label: {probability.mean():.0%}")
print(f"cells that are probably unknown: {(unknown > 0.5).mean():.0%}")

# %%
new_places = mapped.get_latent_representation(coordinates="ball")
points = from_root(np.concatenate([places, new_places]))
blank = [None] * len(places)
figure, axes = plt.subplots(1, 2, figsize=(10, 4))
colours = {
    "transferred label": np.array([*blank, *labels["curvae_label"]], dtype=object),
    "probability of the label": np.array([*blank, *probability], dtype=float),
}
for ax, (name, values) in zip(axes, colours.items(), strict=True):
    latent_map(ax, disc, points, values, hierarchy=(nodes, edges), title=name)

# %% [markdown]
# Grey cells are those of the reference. In the shell, `curvae lineage`, `curvae view
# --lineage` and `curvae map` do the same with files, and write reports.
#
# Next: [lineages](../guide-lineages.md), [new cells](../guide-new-cells.md), and
# [models of cells](../guide-cells.md), measured on [data of others](../cells.md).
