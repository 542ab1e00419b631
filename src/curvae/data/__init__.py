"""Data: tables, matrices, images, MNIST and synthetic trees, each as one `Dataset`."""

from .dataset import Dataset, from_arrays
from .mnist import mnist
from .schema import Column, Schema
from .sources import load
from .synthetic import Tree, branching_diffusion, flat

__all__ = ["Column", "Dataset", "Schema", "Tree", "branching_diffusion", "flat", "from_arrays", "load", "mnist"]
