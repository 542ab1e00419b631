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
# # Your own networks in PyTorch
#
# The estimators bring networks and a training loop. Here both are yours, and Curvae
# gives what is between them: a latent space with a curvature, posteriors on it, and a
# loss.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from curvae import PoincareBall
from curvae.models import VAE, Bernoulli, Posterior, marginal_likelihood
from curvae.nn import Gyroplane, Layers, Space
from curvae.plotting import latent_map

torch.manual_seed(0)
digits = load_digits()
images = torch.as_tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(
    1
)  # (n, 1, 8, 8)
train, test = images[:1500], images[1500:]

# %% [markdown]
# ## Four parts
#
# - The **encoder** is any module from rows to features.
# - The **space** holds the curvature, fixed or learned, and the prior. `"h2"` is the
#   hyperbolic plane with c = 1, `"h2:learn"` learns c, `"h2,e3"` is a product with
#   three flat dimensions, `"e2"` is flat: the ordinary VAE.
# - The **decoder** is any module from points to the outputs of the likelihood. Points
#   come as vectors of ℝᵈ, the space parts on the hyperboloid. A decoder that uses the
#   geometry begins with `Gyroplane`, signed distances to hyperplanes, and is built of
#   `Layers`, which the model hands the curvature.
# - The **likelihood** says how the data were measured.

# %%
space = Space("h2:learn")
encoder = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 128),
    nn.ReLU(),
)
decoder = Layers(
    Gyroplane(2, 128),
    nn.ReLU(),
    nn.Linear(128, 512),
    nn.ReLU(),
    nn.Unflatten(1, (32, 4, 4)),
    nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1),
)
model = VAE(encoder, decoder, Posterior(128, space), Bernoulli(64))
print(sum(p.numel() for p in model.parameters()), "parameters")

# %% [markdown]
# ## A loop
#
# `elbo` and `iwae` give one number a row. Everything is a module, so optimisers,
# schedulers, `torch.compile` and checkpoints work as they always do.

# %%
optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for _ in range(300):
    batch = train[torch.randint(len(train), (128,))]
    loss = -model.elbo(batch).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())

c = space.curvatures()[0].item()
print(f"negative ELBO {losses[0]:.1f} → {sum(losses[-20:]) / 20:.1f} nats")
print(f"learned c = {c:.2f} (curvature −{c:.2f})")

# %% [markdown]
# The likelihood of rows that were kept apart, by importance sampling, with its standard
# error:

# %%
found = marginal_likelihood(model, test, samples=200)
print(f"log p(x) = {found.log_prob.mean():.1f} nats an image")
print(f"standard error of one image {found.error.mean():.2f}")

# %% [markdown]
# ## Look at it
#
# `encode` gives the posteriors, as distributions. `loc` is on the hyperboloid, and
# `from_lorentz` brings it to the disc.

# %%
with torch.no_grad():
    posterior = model.encode(test)
disc = PoincareBall(2, c)
places = disc.from_lorentz(posterior.loc)
figure, ax = plt.subplots(figsize=(5, 4.5))
drawn = latent_map(ax, disc, places, digits.target[1500:], title="test images")

# %% [markdown]
# ## Only the geometry
#
# The pieces work by themselves. A `torch.nn.Module` of yours can use a manifold
# anywhere: distances, exponential maps and geodesics are differentiable in points and
# curvature. Here the Fréchet mean of each digit, and the distances between the first
# three:

# %%
means = torch.stack(
    [disc.frechet_mean(places[digits.target[1500:] == k]) for k in range(10)]
)
print(disc.dist(means[:3, None], means[None, :3]).round(decimals=2))

# %% [markdown]
# Next: [objectives](../objectives.md) with likelihoods, batches and covariates, [many
# models at once](../guide-many.md), and the [reference](../api/index.md).
