"""Maps: points of a latent space with their uncertainty, how they are turned, and how faithful they are."""
