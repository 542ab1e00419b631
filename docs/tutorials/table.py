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
# # A table
#
# From a CSV file to a map, and everything one asks of a map: is it faithful, where do
# new rows lie, which columns make the difference, and is a curved space worth it. The
# table holds 178 wines of three cultivars with 13 chemical measurements. It comes with
# scikit-learn; here it is written to a file, as a table of yours would be.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from curvae import PoincareBall, PoincareVAE, compare
from curvae.hierarchy import faithfulness
from curvae.plotting import latent_map
from curvae.training import Config

wine = load_wine(as_frame=True)
table = wine.data.assign(cultivar=wine.target_names[wine.target])
table.to_csv("wine.csv", index=False)
table.iloc[::60, [0, 1, 5, 6, 13]]

# %% [markdown]
# ## Embed a CSV
#
# In the shell one command reads the file, trains, and writes a folder with the map, the
# model and a report:
#
# ```sh
# curvae fit wine.csv --label cultivar -o runs/wine
# ```
#
# In Python the estimator takes a data frame of numbers. Some rows are kept apart, to
# join the map later. Labels only give colours; the model does not see them.

# %%
table = pd.read_csv("wine.csv")
columns = [name for name in table.columns if name != "cultivar"]
train, new = train_test_split(
    table, test_size=0.2, stratify=table["cultivar"], random_state=0
)
model = PoincareVAE(random_state=0).fit(train[columns])
print("warnings:", model.warnings_)

# %% [markdown]
# `model.embedding_` has the coordinates of the rows in the Poincaré disc. `curvature`
# is c, and the space has curvature −c: at c = 0 it is flat and the model an ordinary
# VAE; the larger c, the faster the room grows with the distance from the centre. The
# default is c = 1. Near the rim everything is [larger than it
# looks](../guide-reading.md).

# %%
disc = PoincareBall(2, model.curvature_)
figure, ax = plt.subplots(figsize=(5, 4.5))
drawn = latent_map(
    ax, disc, model.embedding_, train["cultivar"], title=f"{len(train)} wines"
)

# %% [markdown]
# ## Is the map faithful?
#
# How many neighbours in the data are neighbours on the map, compared with PCA in two
# dimensions ([the scores](../guide-faithful.md)):

# %%
scaled = StandardScaler().fit_transform(train[columns])
found = faithfulness(
    scaled, model.embedding_, distance="poincare", labels=train["cultivar"]
)
print(found.verdict)

# %% [markdown]
# By default a map in two or three dimensions is trained to keep neighbours as well as
# to describe the data. Training for the likelihood alone keeps fewer of them:

# %%
alone = PoincareVAE(neighbours="off", random_state=0).fit(train[columns])
print(faithfulness(scaled, alone.embedding_, distance="poincare").verdict)

# %% [markdown]
# ## Place new rows
#
# The encoder places rows that it has never seen; nothing is trained again. `distances`
# and `kneighbors` measure along geodesics. In the shell: `curvae embed runs/wine
# new.csv`.

# %%
places = model.transform(new[columns])
distance, nearest = model.kneighbors(new[columns], k=5)
votes = train["cultivar"].to_numpy()[nearest]
guess = [max(set(row), key=list(row).count) for row in votes]
right = np.mean(guess == new["cultivar"])
print(f"5-NN accuracy of the cultivar of new wines: {right:.0%}")

figure, ax = plt.subplots(figsize=(5, 4.5))
drawn = latent_map(
    ax, disc, model.embedding_, train["cultivar"], title="new wines as crosses"
)
crosses = ax.scatter(*places.T, marker="x", s=30, c="black", linewidths=1, zorder=5)

# %% [markdown]
# ## Which columns make the difference?
#
# `explain` follows the geodesic between two groups of rows and says what the decoder
# expects along it, with intervals:

# %%
groups = {name: np.flatnonzero(train["cultivar"] == name) for name in wine.target_names}
way = model.explain(groups["class_2"], groups["class_0"], columns=5)
for k in range(len(way.features)):
    low, high = way.change_low[k], way.change_high[k]
    name = columns[way.features[k]]
    print(f"{name:>30}: {way.change[k]:+9.2f}  ({low:+.2f} to {high:+.2f})")

# %% [markdown]
# ## Is curvature worth it?
#
# `compare` trains flat and curved models on several splits and tests the difference on
# rows that took no part in any choice. Few repeats give a first impression, ten a
# result.

# %%
found = compare(Config(epochs=60), train[columns].to_numpy(), (1.0,), repeats=3)
print(found.verdict)

# %% [markdown]
# Wines of three kinds are not a hierarchy, so no gain is to be expected, and if none is
# found the flat model is the one to take: `PoincareVAE(curvature=0)`. When curvature
# does help, and by how much, is in [curvature and dimension](../guide-choosing.md).
#
# ## Keep it
#
# `save` writes JSON and safetensors. The command line reads the folder too, and loading
# it cannot run code.

# %%
model.save("wine-model")
again = PoincareVAE.load("wine-model")
print(np.abs(again.transform(new[columns]) - places).max() < 1e-6)

# %% [markdown]
# Next: [the guide to tables](../guide-table.md) with text columns, batches and
# refusals, [missing values](../guide-missing.md), and [the interactive
# map](../guide-view.md).
