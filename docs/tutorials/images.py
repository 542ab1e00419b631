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
# # Images
#
# Handwritten digits of 8 × 8 pixels, which come with scikit-learn: a map of images,
# what the decoder makes of its places, and images that the model makes up. Files work
# the same way: `curvae fit` takes a folder of pictures or an array `.npy`
# ([how](../data.md)).

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from curvae import PoincareBall, PoincareVAE
from curvae.plotting import decoded_mosaic, latent_map, mosaic, sample_grid

digits = load_digits()
x = digits.data / 16.0  # grey levels from 0 to 1
train, test, labels, test_labels = train_test_split(x, digits.target, random_state=0)
print(train.shape)

# %% [markdown]
# ## Train
#
# A row holds the pixels of an image, line by line. Grey levels between 0 and 1 suit the
# Bernoulli likelihood, and `network="conv"` takes convolutions in place of dense
# layers.

# %%
model = PoincareVAE(
    network="conv", likelihood="bernoulli", epochs=50, random_state=0
).fit(train)
print(f"log-likelihood of test images: {model.score(test):.1f} nats")
print("warnings:", model.warnings_)

# %%
disc = PoincareBall(2, model.curvature_)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.6))
latent_map(axes[0], disc, model.embedding_, labels, title="coloured by digit")
drawn = mosaic(
    axes[1], disc, model.embedding_, train.reshape(-1, 8, 8), size=0.05, cmap="gray_r"
)

# %% [markdown]
# The model has not seen the labels. Kinds of digits fill sectors, and those that are
# hard to tell apart lie near the middle. Digits are groups without an order, so there
# is no reason to expect a gain from curvature.
#
# ## What the decoder makes of a place
#
# `inverse_transform` gives the expected image at any point of the disc:

# %%
figure, ax = plt.subplots(figsize=(5, 5))
drawn = decoded_mosaic(
    ax,
    disc,
    lambda z: torch.as_tensor(model.inverse_transform(z.numpy())),
    (8, 8),
    n=18,
    cmap="gray_r",
)

# %% [markdown]
# ## New images, and made-up ones
#
# Top: test images. Middle: what the decoder expects at the places to which the encoder
# brings them; two numbers an image are all that is left in between. Bottom: draws from
# the model.

# %%
back = model.inverse_transform(model.transform(test[:10]))
made = model.sample(10, random_state=0)
figure, ax = plt.subplots(figsize=(8, 2.6))
drawn = sample_grid(
    ax,
    np.concatenate([test[:10], back, made]).reshape(-1, 8, 8),
    columns=10,
    cmap="gray_r",
)

# %% [markdown]
# ## Walk along a geodesic
#
# The shortest path between two images bends towards the centre, where the room is
# small:

# %%
ends = torch.as_tensor(model.transform(test[[0, 5]]))
path = disc.geodesic(torch.linspace(0, 1, 10, dtype=ends.dtype), ends[0], ends[1])
figure, ax = plt.subplots(figsize=(8, 1))
drawn = sample_grid(
    ax,
    model.inverse_transform(path.numpy()).reshape(-1, 8, 8),
    columns=10,
    cmap="gray_r",
)

# %% [markdown]
# Next: [what you may and may not read from the disc](../guide-reading.md), and [your
# own networks](networks.py) for images that deserve better ones.
