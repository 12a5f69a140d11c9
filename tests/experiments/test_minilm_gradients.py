"""The numbers of one layer are those of its matrices, and the bounds hold."""

import numpy as np
import pytest
import torch

from experiments.minilm_gradients import row


def test_fractions_are_those_of_an_svd_and_bounds_hold():
    generator = torch.Generator().manual_seed(0)
    x, g = (
        torch.randn(40, n, generator=generator, dtype=torch.float64)
        * 0.5 ** torch.arange(n, dtype=torch.float64)
        for n in (12, 9)
    )
    found = row(x, g, torch.sign(g.T @ x), 3)
    for name, matrix in (("inputs", x), ("outputs", g), ("gradient", g.T @ x)):
        energies = np.square(np.linalg.svd(matrix.numpy(), compute_uv=False))
        assert found[name] == pytest.approx(energies[3:].sum() / energies.sum(), rel=1e-6)
    assert found["gradient"] <= found["bound"]
    assert found["adam"] <= found["adam_bound"] + 1e-12
