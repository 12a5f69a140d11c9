"""Parameters of which each process holds a part: DTensors of FSDP2, and those in DeepSpeed's ZeRO.

The functions take ordinary parameters as well.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, ref

import torch

from loca_theory.adapters.search.zero import get_values, is_in_zero, set_values


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph; gathered from all processes if they share it out."""
    if is_in_zero(tensor):
        return get_values(tensor)
    found: Any = tensor.detach()
    return found.full_tensor() if is_sharded(found) else found


def fill_with_zeros(tensor: torch.Tensor, mask: torch.Tensor) -> None:
    """Set the entries of a mask to zero, in place.

    Args:
        tensor: May be sharded.
        mask: The whole mask, the same in all processes.
    """
    if is_in_zero(tensor):
        set_values(tensor, get_values(tensor).masked_fill(mask, 0.0))
        return
    mask = mask.to(tensor.device)
    local(tensor).masked_fill_(part(mask, tensor), 0.0)


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Set all entries, in place.

    Args:
        tensor: May be sharded.
        values: All values, the same in all processes.
    """
    if is_in_zero(tensor):
        set_values(tensor, values)
        return
    local(tensor).copy_(part(values, tensor))


def local(tensor: Any) -> torch.Tensor:
    """What this process holds of a tensor, sharing its memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def part(values: torch.Tensor, like: Any) -> torch.Tensor:
    """What a process holds of values that are sharded as another tensor, without communication."""
    if not is_sharded(like):
        return values
    from torch.distributed.tensor import distribute_tensor

    shards = distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)
    return shards.to_local()


def has_gradient(spectrum: Any) -> bool | torch.Tensor:
    """Whether the coefficients have a gradient; false after ``zero_grad()``.

    Args:
        spectrum: Within a backward pass, which has not yet added to the gradient.

    Returns:
        A tensor if only the values tell, so that nothing waits for a GPU.
    """
    if keeps_gradients_elsewhere(spectrum):
        return True
    of_a = spectrum.held_coefficients.grad
    if of_a is None:
        return False
    mine = local(of_a)
    return mine.any() if mine.numel() else True


def keeps_gradients_elsewhere(spectrum: Any) -> bool:
    """Whether the gradient of earlier backward passes is not in the parameter that is stepped.

    ZeRO takes gradients away after each backward pass. FSDP2 shares them out after the last one if
    gradients accumulate without synchronisation: until then, the tensor of all shards has them, or
    FSDP2 itself if it reduces them in another dtype.

    Args:
        spectrum: Within a forward or backward pass.
    """
    held, in_use = spectrum.held_coefficients, spectrum.coefficients
    if is_in_zero(held):
        return True
    return held is not in_use and (in_use.grad is not None or _is_in_fsdp(spectrum))


_in_fsdp: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _is_in_fsdp(spectrum: Any) -> bool:
    """Whether FSDP2 has put a gradient aside in another dtype, of which torch tells nobody."""
    if torch.compiler.is_compiling():
        return False
    if spectrum not in _in_fsdp:
        _in_fsdp[spectrum] = _find_in_fsdp(spectrum)
    found = _in_fsdp[spectrum]()
    return getattr(found, "unsharded_accumulated_grad", None) is not None


def _find_in_fsdp(spectrum: Any) -> Any:
    """A weak reference to what FSDP2 knows of the coefficients."""
    from torch.distributed._composable_state import _module_state_mapping

    for state in (found() for found in list(_module_state_mapping.values())):
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # an earlier version of torch
            groups = [getattr(state, "_fsdp_param_group", None)]
        for parameter in (p for group in groups if group is not None for p in group.fsdp_params):
            info = parameter._module_info
            if info.module is spectrum and info.param_name == "coefficients":
                return ref(parameter)
    return lambda: None
