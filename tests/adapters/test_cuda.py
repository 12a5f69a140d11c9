"""The layer on CUDA gives what it gives on the CPU."""

import pytest
import torch

from loca_theory.adapters import LoCALinear

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("how", ["auto", "dense", "fft", "sparse", "implicit"])
@pytest.mark.parametrize("phase", ["coefficients", "locations", "both"])
@pytest.mark.parametrize("size", [(20, 33), (300, 128)], ids=str)
def test_output_and_gradients_agree(how, phase, size):
    torch.manual_seed(0)
    p, q = size
    base = torch.nn.Linear(q, p, dtype=torch.float64)
    layer = LoCALinear(base, 50, zero_init=False, implementation=how)
    layer.spectrum.set_phase(phase)
    x, g = torch.randn(40, q, dtype=torch.float64), torch.randn(40, p, dtype=torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        layer.zero_grad()
        layer.to(device)
        tokens = x.to(device).requires_grad_()
        y = layer(tokens)
        y.backward(g.to(device))
        grads = [parameter.grad for parameter in layer.spectrum.parameters()]
        found.append([y, tokens.grad, *grads])
    for cpu, cuda in zip(*found, strict=True):
        assert (cpu is None) == (cuda is None)
        if cpu is not None:
            torch.testing.assert_close(cuda.cpu(), cpu, rtol=1e-9, atol=1e-9)


def test_half_precision_autocast_stays_close():
    torch.manual_seed(0)
    layer = LoCALinear(torch.nn.Linear(64, 48), 100, zero_init=False).cuda()
    x = torch.randn(10, 64, device="cuda")
    exact = layer(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        narrow = layer(x)
    torch.testing.assert_close(narrow.float(), exact, rtol=0.05, atol=0.05)
    assert layer.spectrum.locations.dtype == torch.float32


def test_training_moves_what_its_phase_says():
    torch.manual_seed(0)
    layer = LoCALinear(torch.nn.Linear(64, 48), 100, zero_init=False).cuda()
    layer.spectrum.set_phase("locations")
    optimizer = torch.optim.Adam([layer.spectrum.locations], lr=0.05)
    before = layer.spectrum.places.clone()
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(10, 64, device="cuda")).square().sum().backward()
        optimizer.step()
    layer(torch.randn(1, 64, device="cuda"))
    assert not torch.equal(layer.spectrum.places, before)


@pytest.mark.parametrize("search", ["swap-raw", "swap", "reselect"])
@pytest.mark.parametrize("size", [(20, 33), (1100, 1000)], ids=str)
def test_exchanges_find_the_same_places(search, size):
    """The larger size is beyond the length from which the best places are found by a sample."""
    torch.manual_seed(0)
    p, q = size
    base = torch.nn.Linear(q, p, dtype=torch.float64)
    x, g = torch.randn(60, q, dtype=torch.float64), torch.randn(60, p, dtype=torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        layer = LoCALinear(base, 50, zero_init=False, location_search=search).to(device)
        layer.spectrum.observe(0.0, 0)
        layer(x.to(device)).backward(g.to(device))
        moved = layer.spectrum.exchange()
        assert moved.any()
        found.append(layer.spectrum.places.cpu())
    assert torch.equal(*found)
