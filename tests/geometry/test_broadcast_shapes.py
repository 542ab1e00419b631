"""Shapes broadcast as PyTorch says."""

from itertools import product

import pytest
import torch

from curvae.geometry.checks import broadcast_shapes

some = [(), (1,), (2,), (0,), (1, 2), (3, 1), (2, 2), (3, 1, 2)]


@pytest.mark.parametrize("shapes", [*product(some, some), [(2, 1), torch.Size([3]), [1, 1]], [(5,)]], ids=str)
def test_as_pytorch(shapes):
    try:
        expected = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            broadcast_shapes(*shapes)
    else:
        found = broadcast_shapes(*shapes)
        assert isinstance(found, torch.Size)
        assert found == expected
