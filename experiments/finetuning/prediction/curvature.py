r"""Gradients and Kronecker factors of the curvature of linear layers, recorded on batches.

For a layer :math:`y_t = W x_t + b` at the tokens t of an example, the gradient of the example's
loss is :math:`\sum_t g_t x_t^\top` with :math:`g_t = \partial\ell/\partial y_t`. The empirical
Fisher matrix, the mean over examples of its outer product with itself, is approximated by
:math:`F = A \otimes G`, which acts on a p×q matrix as :math:`F[W] = G W A`, with

.. math:: A = E_t[x_t x_t^\top], \qquad G = E\Big[\sum_t g_t g_t^\top\Big],

where the outer mean is over examples: inputs and gradients count as independent, also between
tokens.

Source: Martens and Grosse, "Optimizing neural networks with Kronecker-factored approximate
curvature", 2015; the form for layers applied to several tokens is "expand" of Eschenhagen et al.,
arXiv:2311.00636.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_SUMMED = ("gradient", "outputs", "inputs")


@dataclass(frozen=True)
class LayerStatistics:
    """What a layer of the pretrained model sees of a task, in float64."""

    weight: torch.Tensor  # W, (p, q)
    gradient: torch.Tensor  # ∂L/∂W of the mean loss, (p, q)
    outputs: torch.Tensor  # G, (p, p)
    inputs: torch.Tensor  # A, (q, q)


def record_statistics(
    model: nn.Module, targets: Sequence[str], batches: Iterable[Mapping[str, torch.Tensor]]
) -> dict[str, LayerStatistics]:
    """Record gradients and factors of trained linear layers over batches, without a step."""
    weights = {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in targets and isinstance(module, nn.Linear)
    }
    recorder, count = _Recorder(weights.values()), 0
    for batch in batches:
        count += 1
        recorder.examples = len(batch["labels"])
        with recorder:
            loss = model(**batch).loss
        found = torch.autograd.grad(loss, list(weights.values()))
        for weight, gradient in zip(weights.values(), found, strict=True):
            recorder.sums[id(weight)].gradient.add_(gradient)
    return {
        name: LayerStatistics(
            weight.detach().double().cpu(),
            *(getattr(recorder.sums[id(weight)], one).cpu() / count for one in _SUMMED),
        )
        for name, weight in weights.items()
    }


class _Recorder(TorchFunctionMode):
    """Sums inputs and gradients of the outputs wherever one of the weights is applied."""

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.examples = 0
        self.sums: dict[int, LayerStatistics] = {}
        for weight in weights:
            p, q = weight.shape
            zeros = (
                torch.zeros(shape, dtype=torch.float64, device=weight.device)
                for shape in ((p, q), (p, p), (q, q))
            )
            self.sums[id(weight)] = LayerStatistics(weight, *zeros)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        y = func(*args, **(kwargs or {}))
        if func is nn.functional.linear and id(args[1]) in self.sums:
            one, examples = self.sums[id(args[1])], self.examples
            x = args[0].detach().reshape(-1, args[0].shape[-1]).double()
            one.inputs.add_(x.T @ x / len(x))

            def add(g: torch.Tensor) -> None:
                # The loss is a mean: the gradient of an example's own loss is N times larger.
                flat = g.reshape(-1, g.shape[-1]).double()
                one.outputs.add_(examples * flat.T @ flat)

            y.register_hook(add)
        return y
