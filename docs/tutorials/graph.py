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
# # A graph
#
# A place for every node, such that nodes near each other are likely to be joined. The
# graph is that of the characters of *Les Misérables*, who are joined if they meet in a
# chapter; it comes with networkx.

# %%
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from curvae import PoincareBall, PoincareGraphVAE, diagnose
from curvae.data import load_graph
from curvae.hierarchy import graph_faithfulness
from curvae.plotting import graph_map

miserables = nx.les_miserables_graph()
graph = load_graph(miserables)
print(graph.n_nodes, "nodes,", graph.n_edges, "edges")

# %% [markdown]
# ## Is there a hierarchy?
#
# Before any training, a test against graphs with the same degrees ([what it can and
# cannot say](../guide-diagnose.md)):

# %%
found = diagnose(graph)
print(f"{found.outcome}; p-value of there being no hierarchy: {found.p_value:.2g}")

# %% [markdown]
# ## Train
#
# In the shell: `curvae graph edges.csv`. The estimator takes a networkx graph, pairs of
# nodes, a sparse matrix, the name of a file, or a graph of torch-geometric.

# %%
model = PoincareGraphVAE(epochs=400, random_state=0).fit(graph)
figure, ax = plt.subplots(figsize=(6, 6))
drawn = graph_map(
    ax,
    PoincareBall(2, model.curvature_),
    model.embedding_,
    graph.edges,
    names=graph.names,
    hubs=10,
)

# %% [markdown]
# ## Ask the map
#
# Who is near Valjean, and which pair that is not joined is the likeliest to be?

# %%
distance, near = model.kneighbors(["Valjean"], k=5)
print("near Valjean:", ", ".join(model.nodes_[near[0]]))
apart = list(nx.non_edges(miserables))
chance = model.link_probability(apart)
print("likeliest to meet:", *apart[int(np.argmax(chance))])

# %% [markdown]
# ## How good is it?
#
# The map was fitted to all edges. How well hidden edges are predicted is measured with
# other models, which do not see them, and compared with rules that need no model.
# Scores are areas under the ROC curve: 1 is best, ½ is chance.

# %%
links = model.link_prediction(miserables, n_splits=3)
for name in ("auc", "degree product", "common neighbours", "singular vectors"):
    print(f"{name:>20}: {links[name].mean():.2f}")

# %% [markdown]
# On so small a graph common neighbours do as well as a model in two dimensions, or
# better. Scores on [twenty graphs](../graphs.md) show where a model gains. How much the
# map keeps of the steps between nodes, compared with a spectral embedding:

# %%
print(graph_faithfulness(graph, model.embedding_, distance="poincare").verdict)

# %% [markdown]
# ## Flat, for comparison
#
# The same model with curvature 0. In two dimensions the curved one is usually level or
# ahead, in many dimensions there is room in flat space too: measure it on your graph,
# with `curvae compare --graph` or as here.

# %%
flat = PoincareGraphVAE(curvature=0, epochs=400, random_state=0)
auc = flat.link_prediction(miserables, n_splits=3)["auc"]
print(f"AUC in flat space {auc.mean():.2f}")

# %% [markdown]
# Next: [the guide to graphs](../guide-graph.md) with directions, weights, features and
# nodes that were never seen.
