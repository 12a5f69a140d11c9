"""The settings and shared tables behind the three paths."""

import sys

import pytest
import scipy.fft
import torch

from loca_theory.transforms import dct, dct2, idct, idct2, precision

CUDA = torch.device("cuda")
ALL = [dct, idct, dct2, idct2]


@pytest.fixture
def tf32_switch():
    """Read and write torch's TF32 switch (it exists without CUDA too), put back afterwards."""
    switch = torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(switch, "fp32_precision") else "allow_tf32"
    off, on = ("ieee", "tf32") if name == "fp32_precision" else (False, True)
    before = getattr(switch, name)

    class Switch:
        OFF, ON = off, on

        @property
        def state(self):
            return getattr(switch, name)

        @state.setter
        def state(self, value):
            setattr(switch, name, value)

    yield Switch()
    setattr(switch, name, before)


@pytest.mark.parametrize("session", ["OFF", "ON"], ids=["session off", "session on"])
def test_tf32_is_off_inside_and_as_before_outside(tf32_switch, session):
    """The last of several threads puts it back: each GPU has one in a backward pass."""
    before = tf32_switch.state = getattr(tf32_switch, session)
    first, second = (precision.float32_products(CUDA) for _ in range(2))
    first.__enter__()
    assert tf32_switch.state == tf32_switch.OFF
    second.__enter__()
    first.__exit__(None, None, None)
    assert tf32_switch.state == tf32_switch.OFF
    second.__exit__(None, None, None)
    assert tf32_switch.state == before
    with precision.float32_products(torch.device("cpu")):
        assert tf32_switch.state == before, "not CUDA"
    message = "out of memory"
    with pytest.raises(RuntimeError, match=message), precision.float32_products(CUDA):
        raise RuntimeError(message)
    assert tf32_switch.state == before


def test_tf32_set_by_the_older_name_is_respected(tf32_switch):
    # Once set by one name and read by the other, torch raises where the two disagree.
    torch.backends.cuda.matmul.allow_tf32 = True
    with precision.float32_products(CUDA):
        pass
    assert torch.backends.cuda.matmul.allow_tf32 is True


def test_autocast_is_off_inside_and_as_before_outside():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with precision.float32_products(torch.device("cpu")):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("name", ["dctn", "idctn"])
def test_scipy_gets_as_many_workers_as_torch_has_threads(monkeypatch, name):
    original, seen = getattr(scipy.fft, name), []

    def recording(*arguments, **options):
        seen.append(options["workers"])
        return original(*arguments, **options)

    monkeypatch.setattr(scipy.fft, name, recording)
    (dct2 if name == "dctn" else idct2)(torch.ones(4, 4), method="scipy")
    assert seen == [torch.get_num_threads()]


@pytest.fixture
def no_tables():
    """No shared table is there: an earlier test may have made them."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("loca_theory.transforms"):
            for value in [*vars(module).values()]:
                getattr(value, "cache_clear", lambda: None)()


def everything(x, method):
    return sum(f(x, method=method).square().sum() for f in ALL)


@pytest.mark.parametrize("method", ["scipy", "fft", "matmul"])
def test_tables_first_made_in_inference_mode_serve_a_graph_later(no_tables, method):
    with torch.inference_mode():
        everything(torch.ones(5, 6), method)
    x = torch.ones(5, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(everything(x, method), x, create_graph=True)
    gradient.square().sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.cuda
def test_cuda_matmul_keeps_tf32_off_and_puts_the_switch_back(tf32_switch):
    x = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    tf32_switch.state = tf32_switch.ON
    actual = dct2(x.cuda(), method="matmul").cpu()
    error = float((actual - dct2(x.double())).norm()) / float(x.norm())
    assert tf32_switch.state == tf32_switch.ON
    # Two products of 512 terms in float32: 2·(4·11 + 23) = 134 eps; TF32 rounds to 2**-11.
    assert error <= 134 * 2**-23
