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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class LayerStatistics:
    """What a layer of the pretrained model sees of a task, in float64."""

    weight: torch.Tensor  # W, (p, q)
    gradient: torch.Tensor  # ∂L/∂W of the mean loss, (p, q)
    outputs: torch.Tensor  # G, (p, p)
    inputs: torch.Tensor  # A, (q, q)


def record_statistics(
    model: nn.Module, targets: Sequence[str], batches: Sequence[Mapping[str, torch.Tensor]]
) -> dict[str, LayerStatistics]:
    """Record gradients and factors of trained linear layers over batches, without a step."""
    weights = {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in targets and isinstance(module, nn.Linear)
    }
    name_of = {id(weight): name for name, weight in weights.items()}
    sums: dict[str, list[Any]] = {name: [0.0, 0.0, 0.0] for name in weights}
    for batch in batches:
        with _Recorder() as recorder:
            loss = model(**batch).loss
        applied = [(name_of[id(one)], x, y) for one, x, y in recorder.calls if id(one) in name_of]
        found = torch.autograd.grad(loss, [*weights.values(), *(y for *_, y in applied)])
        for own, gradient in zip(sums.values(), found, strict=False):
            own[0] += gradient.double()
        for (name, x, _), g in zip(applied, found[len(weights) :], strict=True):
            x, g = (one.detach().flatten(0, -2).double() for one in (x, g))
            # The loss is a mean: the gradient of an example's own loss is N times larger.
            sums[name][1] += len(batch["labels"]) * g.T @ g
            sums[name][2] += x.T @ x / len(x)
    return {
        name: LayerStatistics(
            weight.detach().double().cpu(), *(one.cpu() / len(batches) for one in own)
        )
        for (name, weight), own in zip(weights.items(), sums.values(), strict=True)
    }


class _Recorder(TorchFunctionMode):
    """Keeps weight, input and output wherever a linear layer is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        y = func(*args, **(kwargs or {}))
        if func is nn.functional.linear:
            self.calls.append((args[1], args[0], y))
        return y
