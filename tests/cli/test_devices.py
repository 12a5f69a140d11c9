"""What the commands say of a device: the flags, where the library names arguments."""

import pytest
import torch
from safetensors.torch import save_file

DENSE = ("simulate", "--K", 16, "--r", 1, "--sampler", "dense", "--draws", 2, "--jobs", 1)
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 4 GiB of which 1.20 GiB is free."


@pytest.fixture
def full(monkeypatch):
    """A device whose memory does not suffice."""

    def fail(*_, **__):
        raise torch.cuda.OutOfMemoryError(FULL)

    for name in (
        "expressivity.matrices.retained_energies",
        "checkpoints.statistics.matrix.squared_singular_values",
    ):
        monkeypatch.setattr(f"loca_theory.{name}", fail)


@pytest.fixture
def pair(here):
    for name, seed in (("base", 0), ("tuned", 1)):
        w = torch.randn(20, 20, generator=torch.Generator().manual_seed(seed))
        save_file({"layers.0.q_proj.weight": w}, here / f"{name}.safetensors")
    return "base.safetensors", "tuned.safetensors"


def test_a_simulation_without_memory_names_the_flags(cli, full):
    done = cli(*DENSE, "--methods", "D", "--device", "cpu", "--quiet")
    assert done.err == (
        "loca-theory: LoCA of a dense 16x16 matrix does not fit into the memory of cpu: it needs "
        "2.00 GiB more, and 1.20 GiB are free; use --sampler reduced, a smaller matrix or "
        "--device cpu\n"
    )
    assert (done.code, done.out) == (1, "")


def test_an_analysis_without_memory_names_the_flags(cli, full, pair):
    done = cli("analyze", *pair, "--r", 2, "--device", "cpu", "--quiet")
    assert done.err == (
        "loca-theory: the analysis of layers.0.q_proj.weight (20x20) does not fit into the memory "
        "of cpu: it needs 2.00 GiB more, and 1.20 GiB are free; leave it out with --max-size 399, "
        "or use --device cpu\n"
    )
    assert (done.code, done.out) == (1, "")


def test_a_card_that_torch_cannot_use_names_the_flag(cli, monkeypatch):
    def zeros(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available\nand more")  # noqa: EM101

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch, "zeros", zeros)
    done = cli(*DENSE, "--device", "cuda:0")
    assert done.err == (
        "loca-theory: torch cannot compute on cuda:0 (CUDA error: no kernel image is available); "
        "install a build of torch that supports it, or choose --device cpu\n"
    )
    assert (done.code, done.out) == (1, "")
