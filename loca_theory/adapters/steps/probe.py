"""The increment that the first steps of Adam make, measured on PEFT's own layers.

A layer is linear in its input, so its weight with the adapter, W + ΔW, is read off the outputs
for the unit vectors. That holds for every type that changes a weight: those that add, those that
rotate W, and those that scale inputs or outputs.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import nn

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import generator

# Without ε, which a gradient may be smaller than, the first step of Adam moves every number by the
# learning rate.
_EPSILON = 1e-40
_PREFIX = "base_model.model."  # of the names in a model of PEFT
# Types whose layers in PEFT compute in float32 alone.
_IN_SINGLE = ("ADAMSS",)
# Seeds of random locations and projections, which each draw gets of its own.
_SEEDS = ("random_loc_seed", "random_seed", "projection_prng_key")


class Steps(NamedTuple):
    """What some steps do to one weight.

    Attributes:
        increment: W + ΔW after the steps, less that before, (p, q).
        weight: W + ΔW before the steps, (p, q).
        decrease: First-order decrease of the loss: −Σ g·Δθ over the trained numbers θ, g the
            gradients before the steps.
        numbers: How many numbers are trained.
    """

    increment: torch.Tensor
    weight: torch.Tensor
    decrease: float
    numbers: int


class OneLayer(nn.Module):
    """A model that is one linear layer of p outputs and q inputs, as torch initialises it."""

    config: ClassVar = {"model_type": "custom"}  # PEFT asks for it
    name = "layer"

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[1], shape[0], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        return self.layer(x)


def draws_of_steps(
    config: Any,
    make_model: Callable[[], nn.Module],
    loss: Callable[[nn.Module], torch.Tensor] | None,
    *,
    lr: float,
    steps: int,
    draws: int,
    seed: int,
) -> Iterator[dict[str, Steps]]:
    """Yield what steps of Adam do to each adapted layer, for random initial values and locations.

    Without a loss, it is the sum over layers of ⟨G, W + ΔW⟩, with one G of independent N(0, 1)
    entries for each layer in each draw.

    Raises:
        InvalidArgumentError: PEFT cannot adapt the model so, or the adapter changes no weight.
        ResourceError: PEFT is not installed.
    """
    _check(config)
    for draw in range(draws):
        rng = generator(seed, "first-step", draw)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
            # PEFT draws initial values from the global generator, which is put back afterwards.
            torch.manual_seed(int(rng.integers(2**62)))
            model = _adapted(config, make_model(), int(rng.integers(2**31)))
            stepped = _stepped(model, loss, lr, steps)
        yield stepped


def _check(config: Any) -> None:
    """Check that a configuration is that of a tuner of PEFT that may change a weight."""
    try:
        import peft
    except ImportError:
        raise ResourceError(
            "the steps of an adapter need PEFT: pip install 'loca-theory[adapters]'"
        ) from None
    if not isinstance(config, peft.PeftConfig) or type(config) is peft.PeftConfig:
        raise InvalidArgumentError(
            f"config must be a configuration of PEFT such as LoraConfig(r=8), not {config!r}"
        )
    if config.is_prompt_learning:
        raise InvalidArgumentError(
            f"{type(config).__name__} learns a prompt, and changes no weight of a layer; choose "
            "another tuner"
        )


def copy_of(model: Any) -> nn.Module:
    """A copy of a model to be adapted and trained.

    Raises:
        InvalidArgumentError: it is not a module, or a weight is quantised or on the meta device.
    """
    from loca_theory.adapters.tuner.quantised import backend_of

    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(f"model must be a torch module, not {type(model).__name__}")
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        is_packed = isinstance(weight, torch.Tensor) and not weight.is_floating_point()
        is_packed |= ".quantized." in type(module).__module__  # torch's own
        if is_packed or backend_of(module, {}) is not None:
            raise InvalidArgumentError(
                f"{name}: its weight is quantised ({type(module).__name__}), and steps are taken "
                "in float64; load the model in full precision"
            )
        if isinstance(weight, torch.Tensor) and weight.is_meta:
            raise InvalidArgumentError(
                f"{name}: its weight is on the meta device and has no values; load the model"
            )
    return copy.deepcopy(model)


def _adapted(config: Any, model: nn.Module, seed: int) -> nn.Module:
    """The model with a new adapter, in float64 and as for inference."""
    import peft

    config = copy.deepcopy(config)
    fields: dict[str, Any] = vars(config)
    fields |= {name: seed for name in _SEEDS if isinstance(fields.get(name), int)}
    fields["inference_mode"] = False
    if isinstance(model, OneLayer):
        fields["target_modules"] = [OneLayer.name]
    if fields.get("feedforward_modules", ()) is None:  # of IA3
        fields["feedforward_modules"] = []
    try:
        adapted: Any = peft.get_peft_model(cast("Any", model), config)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InvalidArgumentError(
            f"PEFT does not adapt this layer or model with {type(config).__name__}: {reason}"
        ) from error
    kind = getattr(config.peft_type, "value", config.peft_type)
    return (adapted.float() if kind in _IN_SINGLE else adapted.double()).eval()


def _stepped(
    model: nn.Module, loss: Callable[[nn.Module], torch.Tensor] | None, lr: float, steps: int
) -> dict[str, Steps]:
    layers = _layers(model)
    before = {name: _weight(layer).detach() for name, layer in layers.items()}
    gradients = {name: torch.randn_like(weight) for name, weight in before.items()}
    trained = {
        name.removeprefix(_PREFIX): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    start = {name: parameter.detach().clone() for name, parameter in trained.items()}
    slopes: dict[str, torch.Tensor] = {}
    optimizer = torch.optim.Adam(trained.values(), lr=lr, eps=_EPSILON)
    for _ in range(steps):
        optimizer.zero_grad()
        if loss is None:
            products = [(g * _weight(layers[name])).sum() for name, g in gradients.items()]
            value = torch.stack(products).sum()
        else:
            value = loss(model)
        if not isinstance(value, torch.Tensor) or value.ndim:
            raise InvalidArgumentError(
                f"loss must return a tensor of one number, not {type(value).__name__}; "
                "pass a function such as lambda model: model(x).mean()"
            )
        if not value.requires_grad:
            break
        value.backward()
        slopes = slopes or {
            name: parameter.grad.clone()
            for name, parameter in trained.items()
            if parameter.grad is not None
        }
        optimizer.step()
    results = {}
    for name, layer in layers.items():
        with torch.no_grad():
            increment = _weight(layer) - before[name]
        # What layers share counts for a model of one layer.
        own_keys = [key for key in trained if len(layers) == 1 or key.startswith(f"{name}.")]
        decrease = -sum(
            float((slopes[key] * (trained[key].detach() - start[key])).sum())
            for key in own_keys
            if key in slopes
        )
        count = sum(start[key].numel() for key in own_keys)
        if increment.any():
            results[name] = Steps(increment, before[name], decrease, count)
    if not results:
        raise InvalidArgumentError(
            "this adapter changes no weight of a linear layer by training: it adds to the input, "
            "or changes other parameters"
        )
    return results


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """The adapted linear layers, by their names in the model that was adapted."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers: dict[str, Any] = {}
    for name, module in model.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in layers)
        if isinstance(module, BaseTunerLayer) and not is_inside and _is_linear(module):
            layers[name] = module
    if not layers:
        raise InvalidArgumentError(
            "this adapter adapts no layer of the model that is linear; choose other target_modules"
        )
    return {name.removeprefix(_PREFIX): layer for name, layer in layers.items()}


def _is_linear(layer: Any) -> bool:
    base = layer.get_base_layer()
    return isinstance(base, nn.Linear) or type(base).__name__ == "Conv1D"


def _weight(layer: Any) -> torch.Tensor:
    """The weight (p, q) with the adapter, from the outputs for the unit vectors."""
    base = layer.get_base_layer()
    width = getattr(base, "in_features", None) or base.weight.shape[0]  # of Conv1D
    dtype = next(parameter.dtype for parameter in layer.parameters())
    units, zero = torch.eye(width, dtype=dtype), torch.zeros(1, width, dtype=dtype)
    try:
        return (layer(units) - layer(zero)).T
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"this adapter does not act on the input of a linear layer alone: {error}"
        ) from error
