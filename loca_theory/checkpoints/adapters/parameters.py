"""Parameters that an adapter targets by their names, such as those of all experts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from loca_theory.checkpoints.adapters.file import UNTOLD, AdapterFile, of_another_model
from loca_theory.checkpoints.adapters.kinds import LOCA
from loca_theory.checkpoints.adapters.layers import AdaptedLayer, depth, without_wrappers
from loca_theory.checkpoints.adapters.lora import lora_rank
from loca_theory.checkpoints.adapters.weight_names import parameter_patterns, targeted_parameters
from loca_theory.checkpoints.weights.checkpoint import LeftOutError

_STACK_DIMENSIONS = 3
_GATE_UP = "gate_up_proj"


def parameters_of(file: AdapterFile) -> dict[str, str]:
    """Name of the parameter of each layer that PEFT targets by the parameter's name.

    PEFT wraps a module once for each of its parameters and does not store their names. The
    parameter that the module has first is innermost. A wrapper gets the first that fits.
    """
    patterns = parameter_patterns(file.config)
    found: dict[str, str] = {}
    for raw in sorted(file.layers, key=depth, reverse=True) if patterns else ():
        module = without_wrappers(raw)
        free = [one for one in targeted_parameters(module, patterns) if one not in found.values()]
        fitting = [name for name in free if _fits(file, name, file.layers[raw])]
        if not fitting and file.names.any(f"{module}.weight") is None:
            fitting = free
        if fitting:
            found[raw] = fitting[0]
    return found


def _fits(file: AdapterFile, name: str, keys: Mapping[str, str]) -> bool:
    try:
        return file.base is None or _own(file, name, keys) is not None
    except (LeftOutError, KeyError):
        return False


def _own(file: AdapterFile, name: str, keys: Mapping[str, str]) -> str | None:
    """The base's name of a parameter of this name that the tensors of a layer fit."""
    if file.kind.name != LOCA:
        return file.names.find(name, file.factors(keys).fits_parameter)
    flat = file.own_shape(keys)
    return file.names.find(name, lambda weight: flattened(weight.shape) == flat)


def adapted_parameter(
    file: AdapterFile, module: str, name: str, keys: Mapping[str, str]
) -> AdaptedLayer:
    """The parameter that some tensors of LoRA or LoCA change."""
    targeted = targeted_parameters(module, parameter_patterns(file.config))
    if file.kind.name == LOCA:
        return _of_loca(file, module, name, keys, targeted)
    if file.kind.by_peft:
        raise LeftOutError("only plain LoRA and LoCA have target_parameters")  # noqa: EM101
    if file.base is None and len(targeted) > 1:
        # The file says neither which of them a tensor belongs to, nor their order.
        msg = "one of several parameters of a module, and only the base tells which: pass the "
        raise LeftOutError(msg + "base as well")
    factors, rank = file.factors(keys), lora_rank(file.config, name)
    experts, odd = divmod(factors.rank, rank)
    shape = factors.shape if experts == 1 else (experts, *factors.shape)
    own = name if file.base is None else _own(file, name, keys)
    if own is None:
        raise of_another_model(name, shape)
    shape = file.weights[own].shape if file.base is not None else shape
    is_stack = len(shape) == _STACK_DIMENSIONS
    if odd or experts != (shape[0] if is_stack else 1):
        msg = f"the factors have rank {factors.rank}, and the configuration says {rank} for each "
        raise LeftOutError(msg + "expert", damaged=True)
    turned = file.base is not None and is_stack and _are_transposed(file, own, factors.shape)
    return AdaptedLayer(own, module, keys, shape, turned, experts if is_stack else None, name)


def _of_loca(
    file: AdapterFile, module: str, name: str, keys: Mapping[str, str], targeted: list[str]
) -> AdaptedLayer:
    if file.base is None:
        raise LeftOutError(UNTOLD)
    own = _own(file, name, keys)
    if own is None:
        raise of_another_model(name, file.own_shape(keys))
    if sum(_fits(file, one, keys) for one in targeted) > 1:
        msg = "one of several parameters of this shape in a module, and the file does not tell "
        raise LeftOutError(msg + "which; merge the adapter and analyse the merged checkpoint")
    return AdaptedLayer(own, module, keys, file.weights[own].shape, parameter=name)


def _are_transposed(file: AdapterFile, own: str, product: tuple[int, ...]) -> bool:
    """Whether the base stores each expert's weight as q×p."""
    shape = file.weights[own].shape[1:]
    if shape != shape[::-1]:
        return shape != product
    # A square weight is stored like the one beside it, which has 2m rows (or columns) for m.
    beside = file.weights.get(f"{own.rpartition('.')[0]}.{_GATE_UP}")
    return beside is not None and beside.shape[2:] == (2 * beside.shape[1],)


def flattened(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the matrices of a stack, one below the other, as LoCA adapts a parameter."""
    return (math.prod(shape[:-1]), *shape[-1:])
