"""Check the machine: the card, its driver, the libraries, and missing modules."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks._measure import environment
from benchmarks.cuda.session import Row, Session, is_out_of_memory

WITHOUT = {
    "pytest": "the tests",
    "hypothesis": "the property-based tests",
    "torch_dct": "the comparison of dct2 with torch-dct",
    "cupy": "the comparison of dct2 with CuPy's DCT",
    "peft": "LoRA, FourierFT, WaveFT, C3A and SHiRA",
    "transformers": "the models",
    "safetensors": "the analysis of checkpoints",
    "psutil": "the adapters of PEFT, the models, the simulation and the analysis",
    **dict.fromkeys(("numpy", "scipy"), "nearly everything: install it"),
    **dict.fromkeys(("click", "rich"), "the tests of the command line"),
}
"""What cannot be run if a module is missing."""

_LIBRARIES = ("torch", "triton", *WITHOUT)


def check(session: Session) -> None:
    """Report the machine, or why nothing can be measured on it."""
    row: Row = {"key": "device"}
    session.starts("device")
    row |= {"environment": environment(()), **_libraries()}
    if session.is_cuda:
        refused = refusal()
        if refused:
            row["refused"] = refused
        else:
            row |= _card()
    else:
        row |= {"rehearsal": True, "card": f"no card: a rehearsal on {platform.machine()}"}
    session.finish(row)


def refusal() -> str | None:
    """Why nothing can be computed on the device, in one line; None if it works."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            there = torch.cuda.is_available()
        except Exception as error:
            return f"CUDA does not start: {_first_line(error)}"
    if not there:
        return _absence([str(one.message) for one in heard])
    try:
        x = torch.ones(64, 64, device="cuda")
        found = float(torch.fft.rfft2(x @ x)[0, 0].real)
    except Exception as error:
        return _failure(error)
    return None if found == 64.0**3 else f"the card computes {found} instead of {64.0**3}"


def _absence(heard: list[str]) -> str:
    if torch.version.cuda is None:
        return f"no CUDA: torch {torch.__version__} is built without it; install a build with it"
    reason = next((text for text in heard if "CUDA" in text or "driver" in text), "")
    if not reason:
        try:
            torch.cuda.init()
        except Exception as error:
            reason = str(error)
    reason = _first_line(reason) or "torch sees no card"
    return f"no CUDA device for torch {torch.__version__}: {reason}"


def _failure(error: Exception) -> str:
    if is_out_of_memory(error):
        free, total = (f"{count / 2**30:.1f} GiB" for count in torch.cuda.mem_get_info())
        return f"the card has no memory left: {free} free of {total}; end other processes on it"
    try:
        major, minor = torch.cuda.get_device_capability()
        built = ", ".join(torch.cuda.get_arch_list())
    except Exception:
        return f"the card fails at its first product: {_first_line(error)}"
    if "no kernel image" in str(error):
        return (
            f"the card is too old or too new for this torch: it has compute capability "
            f"{major}.{minor}, and torch {torch.__version__} was built for {built}"
        )
    return f"the card fails at its first product: {_first_line(error)}"


def _first_line(text: object) -> str:
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "")[:300]


def _card() -> Row:
    found = torch.cuda.get_device_properties(0)
    return {
        "card": found.name,
        "capability": f"{found.major}.{found.minor}",
        "memory_gib": round(found.total_memory / 2**30, 1),
        "multiprocessors": found.multi_processor_count,
        "cards": torch.cuda.device_count(),
        "driver": _driver(),
        "cuda": torch.version.cuda,
    }


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    try:
        done = subprocess.run(
            [command, "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _first_line(done.stdout) or None


def _libraries() -> dict[str, Any]:
    distributions = importlib.metadata.packages_distributions()
    versions = {name: _version(name, distributions.get(name, [])) for name in _LIBRARIES}
    missing = {name: what for name, what in WITHOUT.items() if versions[name] is None}
    return {"python": sys.version.split()[0], "libraries": versions, "missing": missing}


def _version(module: str, distributions: Sequence[str]) -> str | None:
    """Version of a module, ``?`` if it is unknown; None if the module is not installed."""
    try:
        if importlib.util.find_spec(module) is None:
            return None
        return importlib.metadata.version(distributions[0])
    except (ImportError, ValueError):
        return None
    except IndexError:
        return "?"
