"""Which way ΔW is applied."""

import pytest
import torch

from loca_theory.adapters.costs import fastest, one_sided_pays, sampling_pays

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("device", "size", "components", "tokens", "foldable", "expected"),
    [
        (CPU, 4096, 150_000, 512, True, "implicit"),
        (CPU, 4096, 150_000, 512, False, "implicit"),
        (CPU, 768, 1000, 4096, True, "materialised"),
        (CPU, 768, 20_000, 4096, True, "materialised"),
        (CPU, 768, 1000, 4096, False, "implicit"),
        (CPU, 768, 1000, 1, True, "implicit"),
        (CUDA, 768, 1000, 1024, False, "materialised"),
        (CUDA, 2048, 1000, 1024, True, "materialised"),
        (CUDA, 2048, 1000, 1024, False, "implicit"),
        (CUDA, 4096, 1000, 1024, True, "implicit"),
    ],
)
def test_large_matrices_are_never_formed_and_many_tokens_share_one(
    device, size, components, tokens, foldable, expected
):
    settings = {"trains": True, "foldable": foldable, "is_half": False, "device": device}
    assert fastest((size, size), components, tokens, **settings) == expected


@pytest.mark.parametrize(
    ("tokens", "is_half", "expected"),
    [
        (4096, True, "materialised"),
        (4095, True, "implicit"),
        (4096, False, "implicit"),
    ],
)
def test_many_tokens_in_half_precision_share_a_large_matrix_on_a_gpu(tokens, is_half, expected):
    shape, settings = (4096, 4096), {"is_half": is_half, "device": CUDA}
    assert fastest(shape, 1000, tokens, trains=True, foldable=False, **settings) == expected
    assert sampling_pays(shape, tokens, 1000, **settings) == (expected == "implicit")


def test_entries_are_sampled_while_they_are_few():
    single = {"is_half": False}
    assert sampling_pays((4096, 4096), 512, 150_000, device=CPU, **single)
    assert not sampling_pays((64, 64), 4096, 64 * 64, device=CPU, **single)
    assert sampling_pays((2048, 2048), 1024, 1000, device=CUDA, **single)
    assert not sampling_pays((768, 768), 1024, 1000, device=CUDA, **single)


@pytest.mark.parametrize(
    ("shape", "components", "expected"),
    [
        ((768, 3072), 5000, True),
        ((768, 768), 768 * 768, False),
        ((4096, 4096), 1000, False),  # its DCT matrix is large
    ],
)
def test_few_components_need_a_transform_along_one_side_only(shape, components, expected):
    assert one_sided_pays(shape, components, CPU) is expected
    assert one_sided_pays(shape[::-1], components, CPU) is expected
    assert not one_sided_pays(shape, components, CUDA)
