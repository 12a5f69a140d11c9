"""Devices by name, and what is said where one cannot do what is asked of it."""

import warnings

import pytest
import torch

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms.devices import device_memory, resolve_device
from loca_theory.transforms.matrices import dct_matrix

OLD_DRIVER = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 10010). "
    "Please update your GPU driver. (Triggered internally at CUDAFunctions.cpp:109.)"
)
OLD_CARD = (
    "CUDA error: no kernel image is available for execution on the device\n"
    "CUDA kernel errors might be asynchronously reported at some other API call."
)
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
    "which 1.20 GiB is free. Including non-PyTorch memory, this process has 77 GiB in use."
)


FULL_FROM_THE_START = (
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
)
BUSY = (
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
    "CUDA kernel errors might be asynchronously reported at some other API call."
)


@pytest.fixture
def cards(monkeypatch):
    """Pretend that torch sees so many GPUs, and does or does not compute on them."""

    def sees(count, *, says=None, fails=None):
        def available():
            if says:
                warnings.warn(says, UserWarning, stacklevel=2)
            return count > 0

        def zeros(*size, device):
            if fails:
                kind = torch.OutOfMemoryError if fails is FULL else RuntimeError
                raise kind(fails)
            return original(*size)

        original = torch.zeros
        monkeypatch.setattr(torch.cuda, "is_available", available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch, "zeros", zeros)

    return sees


def test_a_device_that_computes_is_taken_by_its_name(cards):
    cards(2)
    names = {"auto": "cuda", "cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda:1"}
    assert {name: resolve_device(name) for name in names} == names


OF_AN_OLD_DRIVER = (
    r"^no CUDA device is available to torch \(CUDA initialization: The NVIDIA driver on your "
    r'system is too old \(found version 10010\)\); choose device="cpu"$'
)
OF_AN_OLD_CARD = (
    r"^torch cannot compute on cuda \(CUDA error: no kernel image is available for execution on "
    r'the device\); install a build of torch that supports it, or choose device="cpu"$'
)


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"count": 0}, r'^no CUDA device is available to torch; choose device="cpu"$'),
        ({"count": 0, "says": OLD_DRIVER}, OF_AN_OLD_DRIVER),
    ],
    ids=["none", "old driver"],
)
def test_where_no_device_is_the_cpu_is_taken_unless_one_is_asked_for(cards, seen, message):
    cards(**seen)
    with pytest.raises(ResourceError, match=message):
        resolve_device("cuda")
    assert resolve_device("auto") == "cpu"


NO_ROOM = (
    r"^cuda has no memory left \(it needs 2.00 GiB more, and 1.20 GiB are free\); end other "
    r'processes that use it, or choose device="cpu"$'
)
NO_ROOM_AT_ALL = (
    r"^cuda has no memory left \(CUDA error: out of memory\); end other processes that use it, or "
    r'choose device="cpu"$'
)
IN_USE = (
    r"^cuda is in use \(CUDA error: CUDA-capable device\(s\) is/are busy or unavailable\); end "
    r'other processes that use it, or choose device="cpu"$'
)


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        (OLD_CARD, OF_AN_OLD_CARD),
        (FULL, NO_ROOM),
        (FULL_FROM_THE_START, NO_ROOM_AT_ALL),
        (BUSY, IN_USE),
    ],
    ids=["old card", "full", "full from the start", "busy"],
)
def test_a_device_that_does_not_compute_is_refused_with_the_reason(cards, fails, message):
    cards(1, fails=fails)
    with pytest.raises(ResourceError, match=message):
        resolve_device("cuda")
    reason = message.partition(";")[0]
    with pytest.warns(UserWarning, match=f"{reason}; the CPU is used instead$"):
        assert resolve_device("auto") == "cpu"


def test_a_device_of_too_high_a_number_is_refused(cards):
    cards(2)
    with pytest.raises(ResourceError, match=r"^there is no cuda:2: this machine has 2 CUDA"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "CUDA", ""])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(InvalidArgumentError, match=f"^unknown device '{name}'; choose auto, cpu"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("error", "sizes"),
    [
        (torch.OutOfMemoryError(FULL), ": it needs 2.00 GiB more, and 1.20 GiB are free"),
        (torch.OutOfMemoryError("out of memory"), ""),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), ""),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), ""),
        (RuntimeError(FULL_FROM_THE_START), ""),
    ],
    ids=["with sizes", "without", "cuFFT", "cuBLAS", "driver"],
)
def test_a_device_without_memory_is_one_line_with_a_way_out(error, sizes):
    message = f"^a thing does not fit into the memory of cuda:0{sizes}; take less$"
    with (
        pytest.raises(ResourceError, match=message),
        device_memory("a thing", "cuda:0", "take less"),
    ):
        raise error


def test_other_errors_are_passed_on():
    with (
        pytest.raises(RuntimeError, match=r"^CUFFT_INVALID_SIZE$"),
        device_memory("a thing", "cuda:0", "take less"),
    ):
        raise RuntimeError("CUFFT_INVALID_SIZE")  # noqa: EM101


@pytest.mark.cuda
def test_the_current_device_has_one_matrix_under_both_of_its_names():
    current = torch.cuda.current_device()
    assert dct_matrix(6, device="cuda") is dct_matrix(6, device=f"cuda:{current}")
