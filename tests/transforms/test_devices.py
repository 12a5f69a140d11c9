"""Devices by name, and what is said where one cannot do what is asked of it."""

import warnings

import pytest
import torch

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms.devices import device_memory, resolve_device

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
    """Pretend that torch sees a number of GPUs, and does or does not compute on them."""

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


REFUSED = [
    ({"count": 0}, "cuda", r'no CUDA device is available to torch; choose device="cpu"'),
    (
        {"count": 0, "says": OLD_DRIVER},
        "cuda",
        (
            r"no CUDA device is available to torch \(CUDA initialization: The NVIDIA driver .*is "
            r'too old \(found version 10010\)\); choose device="cpu"'
        ),
    ),
    ({"count": 2}, "cuda:2", r"there is no cuda:2: this machine has 2 CUDA device.*"),
    (
        {"count": 1, "fails": OLD_CARD},
        "cuda",
        (
            r"torch cannot compute on cuda \(CUDA error: no kernel image is available for "
            r'execution on the device\); install a build of torch .*, or choose device="cpu"'
        ),
    ),
    (
        {"count": 1, "fails": FULL},
        "cuda",
        (
            r"cuda is in use \(it needs 2.00 GiB more, and 1.20 GiB are free\); end other "
            r'processes that use it, or choose device="cpu"'
        ),
    ),
    (
        {"count": 1, "fails": FULL_FROM_THE_START},
        "cuda:0",
        r"cuda:0 is in use \(CUDA error: out of memory\); end other processes that use it, or .*",
    ),
    ({"count": 1, "fails": BUSY}, "cuda", r"cuda is in use \(CUDA error: CUDA-capable .*; end .*"),
]


@pytest.mark.parametrize(("seen", "name", "message"), REFUSED)
def test_a_device_that_does_not_compute_is_refused_with_the_reason(cards, seen, name, message):
    cards(**seen)
    with pytest.raises(ResourceError, match=f"^{message}$"):
        resolve_device(name)
    if not seen["count"]:
        assert resolve_device("auto") == "cpu"
    elif "fails" in seen:
        reason = message.replace("cuda:0", "cuda").partition(";")[0]
        with pytest.warns(UserWarning, match=f"^{reason}; .*; the CPU is used instead$"):
            assert resolve_device("auto") == "cpu"


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "CUDA", "", None])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(InvalidArgumentError, match=f"^unknown device {name!r}; choose auto, cpu"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("error", "sizes"),
    [
        (torch.OutOfMemoryError(FULL), ": it needs 2.00 GiB more, and 1.20 GiB are free"),
        (torch.OutOfMemoryError("no memory"), ""),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), ""),
        (RuntimeError(FULL_FROM_THE_START), ""),
    ],
    ids=["with sizes", "without", "cuFFT", "driver"],
)
def test_a_device_without_memory_is_one_line_with_a_way_out(error, sizes):
    message = f"^a thing does not fit into the memory of cuda:0{sizes}; take less$"
    memory = device_memory("a thing", "cuda:0", "take less")
    with pytest.raises(ResourceError, match=message), memory:
        raise error


def test_other_errors_are_passed_on():
    memory, message = device_memory("a thing", "cuda:0", "take less"), "CUFFT_INVALID_SIZE"
    with pytest.raises(RuntimeError, match=f"^{message}$"), memory:
        raise RuntimeError(message)
