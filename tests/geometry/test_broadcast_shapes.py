"""Shapes broadcast as PyTorch says, without what it imports to say so."""

import subprocess
import sys
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


def test_a_distribution_imports_no_computer_algebra():
    code = (
        "import sys, torch, curvae; q = curvae.RiemannianNormal(torch.zeros(3, 2), 1.0, curvae.Lorentz(2)); "
        "q.log_prob(q.sample((4,))); sys.exit('sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
