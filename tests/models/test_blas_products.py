"""Matrix products on ARM processors go around oneDNN, and nothing else does."""

import pytest
import torch
from torch import nn

from curvae.models.stack import blas_products

linear, convolving = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Conv2d(1, 1, 3))


@pytest.fixture
def arm(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_acl_available", lambda: True)
    if not torch.backends.mkldnn.enabled:
        pytest.skip("this PyTorch has no oneDNN")


@pytest.mark.parametrize(("model", "inside"), [(linear, False), (convolving, True)])
def test_on_arm(arm, model, inside):
    with blas_products(model):
        assert torch.backends.mkldnn.enabled is inside
    assert torch.backends.mkldnn.enabled


def test_is_put_back_after_an_error(arm):
    with pytest.raises(ValueError, match="within"), blas_products(linear):
        raise ValueError("within")
    assert torch.backends.mkldnn.enabled


def test_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_acl_available", lambda: False)
    before = torch.backends.mkldnn.enabled
    with blas_products(linear):
        assert torch.backends.mkldnn.enabled is before


def test_what_was_off_stays_off(arm):
    torch.backends.mkldnn.enabled = False
    try:
        with blas_products(linear):
            pass
        assert not torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.enabled = True
