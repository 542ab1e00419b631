"""Shared settings: one thread a worker, since tests run side by side, and fixed seeds."""

from __future__ import annotations

import os

# Read when scipy is first imported; without it scikit-learn skips its check of array API inputs.
os.environ["SCIPY_ARRAY_API"] = "1"

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    # torch.compile switches validation off for the whole process when it meets a distribution.
    torch.distributions.Distribution.set_default_validate_args(True)
