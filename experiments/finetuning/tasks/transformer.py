r"""A small transformer, and the forward pass of several copies of it at once.

The copies are runs with different seeds. Weights that they share are applied to the tokens of all
runs in one product; weights of their own, in one product of stacks. An adapter of PEFT in place of
a linear layer takes part by its increment: the layer's weight in run r is :math:`W + \Delta W_r`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from loca_theory.adapters import LoCALayer
from loca_theory.transforms import idct2

# Width of the hidden layer of a block, in widths of the model.
_EXPANSION = 2


class Block(nn.Module):
    """A pre-norm block: attention, then two linear layers with GELU, each added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = _EXPANSION * width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, hidden), nn.Linear(hidden, width)


class SmallTransformer(nn.Module):
    """A pre-norm transformer without dropout: a classifier, or a causal language model.

    A causal model predicts at each position the token after it, from this and earlier positions.
    Otherwise a learned class token is prepended, and its final state classified.
    """

    def __init__(
        self,
        *,
        width: int,
        layers: int,
        heads: int,
        length: int,  # number T of positions of an input
        classes: int,
        patch: int | None = None,  # numbers in a position of an input of shape (N, T, patch)
        vocabulary: int | None = None,  # of inputs that are tokens, integers of shape (N, T)
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        if patch is not None:
            self.embed: nn.Module = nn.Linear(patch, width)
        else:
            self.embed = nn.Embedding(vocabulary or 0, width)
            nn.init.normal_(self.embed.weight, std=width**-0.5)
        # The class token; stored models have it under this name.
        self.start = nn.Parameter(0.02 * torch.randn(0 if causal else 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(length + len(self.start), width))
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        """Mean loss over examples (and positions), and logits (N, classes) or (N, T, classes)."""
        losses, logits = group_losses([self], inputs[None], labels[None])
        return SimpleNamespace(loss=losses[0], logits=logits[0])


def small_transformer(chosen: Mapping[str, Any], classes: int, **kind: Any) -> SmallTransformer:
    """A :class:`SmallTransformer` of the size in a task's settings."""
    size = {name: chosen[name] for name in ("width", "layers", "heads", "length")}
    return SmallTransformer(**size, classes=classes, **kind)


def group_losses(
    models: Sequence[nn.Module], inputs: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses (R,) and logits of R models, each on examples of its own."""
    logits = group_logits(models, inputs)
    cores: list[Any] = list(models)
    if cores[0].causal:
        shown, labels = logits[:, :, :-1], labels[:, :, 1:]
    else:
        shown = logits
    losses = functional.cross_entropy(shown.flatten(0, -2), labels.flatten(), reduction="none")
    return losses.view(len(models), -1).mean(1), logits


def group_logits(models: Sequence[nn.Module], inputs: torch.Tensor) -> torch.Tensor:
    """Logits (R, N, classes) of R models, for a causal model (R, N, T, classes)."""
    cores: list[Any] = list(models)
    first = cores[0]
    runs, count = inputs.shape[:2]
    h = _embedded([core.embed for core in cores], inputs)
    class_token = _shared_or_stacked([core.start for core in cores])
    if not first.causal:
        class_token = class_token.expand(runs, 1, -1)[:, None].expand(-1, count, -1, -1)
        h = torch.cat([class_token, h], dim=2)
    positions = _shared_or_stacked([core.positions for core in cores])
    h = h + (positions if positions.ndim == 2 else positions[:, None])
    last = len(first.blocks) - 1
    for n in range(last + 1):
        h = _block([core.blocks[n] for core in cores], h, first, only_class_token=n == last)
    h = _normed([core.norm for core in cores], h)
    logits = _linear([core.head for core in cores], h)
    return logits if first.causal else logits[:, :, 0]


def _block(
    blocks: Sequence[Any], h: torch.Tensor, core: Any, *, only_class_token: bool
) -> torch.Tensor:
    """Apply a block to (R, N, T, width), and return all states.

    ``only_class_token`` returns that of the class token alone; a causal model has none and ignores
    it.
    """
    normed = _normed([block.norm1 for block in blocks], h)
    asking = normed
    if only_class_token and not core.causal:
        asking, h = normed[:, :, :1], h[:, :, :1]
    query, key, value = (
        _linear([getattr(block, name) for block in blocks], x)
        .unflatten(-1, (core.heads, -1))
        .transpose(2, 3)
        .flatten(0, 1)
        for name, x in (("query", asking), ("key", normed), ("value", normed))
    )
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=core.causal)
    mixed = mixed.transpose(1, 2).reshape(h.shape)
    h = h + _linear([block.output for block in blocks], mixed)
    normed = _normed([block.norm2 for block in blocks], h)
    hidden = functional.gelu(_linear([block.expand for block in blocks], normed))
    return h + _linear([block.contract for block in blocks], hidden)


def _linear(layers: Sequence[Any], x: torch.Tensor) -> torch.Tensor:
    """Apply one linear layer of each run to (R, N, T, q): (R, N, T, p)."""
    tokens = x.flatten(1, 2)
    layers = [_trained_copy(layer) for layer in layers]
    if isinstance(layers[0], nn.Linear):
        y = _affine(tokens, _shared_or_stacked([layer.weight for layer in layers]), layers)
    elif adds_matrix(layers[0]):
        bases = [layer.get_base_layer() for layer in layers]
        y = _affine(
            tokens, _shared_or_stacked([base.weight for base in bases]) + increments(layers), bases
        )
    else:
        y = torch.stack([layer(part) for layer, part in zip(layers, tokens, strict=True)])
    return y.unflatten(1, x.shape[1:3])


def _affine(x: torch.Tensor, weight: torch.Tensor, layers: Sequence[nn.Linear]) -> torch.Tensor:
    bias = _shared_or_stacked([layer.bias for layer in layers])
    if weight.ndim == 2:  # then all runs share the bias as well
        return functional.linear(x, weight, bias)
    return torch.baddbmm(bias if bias.ndim == 1 else bias[:, None], x, weight.mT)


def adds_matrix(layer: Any) -> bool:
    """Whether an adapted layer is :math:`x \\mapsto x (W + \\Delta W)^\\top + b` and no more."""
    name = layer.active_adapters[0]
    if getattr(layer, "use_dora", {}).get(name, False):
        return False
    spectrum = getattr(layer, "spectrum", None)
    return spectrum is None or spectrum(name).recorded is None


def increments(layers: Sequence[Any]) -> torch.Tensor:
    """ΔW of one adapted layer in each run, (R, p, q)."""
    name = layers[0].active_adapters[0]
    spectra: list[Any] = [layer.spectrum(name) for layer in layers if isinstance(layer, LoCALayer)]
    if not spectra or spectra[0].phase in ("locations", "both"):
        # Not LoCA, or locations are learned: each layer's own ΔW (SHiRA's is sparse).
        return torch.stack([layer.get_delta_weight(name).to_dense() for layer in layers])
    p, q = spectra[0]._size
    a = torch.stack([spectrum.coefficients for spectrum in spectra])
    flat = torch.stack([s.indices[:, 0] * q + s.indices[:, 1] for s in spectra])
    spectrum = a.new_zeros(len(a), p * q).scatter_add(1, flat, a).view(-1, p, q)
    return spectra[0].scaling * idct2(spectrum)


def _normed(norms: Sequence[Any], x: torch.Tensor) -> torch.Tensor:
    weight, bias = (
        _shared_or_stacked([getattr(norm, name) for norm in norms]) for name in ("weight", "bias")
    )
    size, eps = norms[0].normalized_shape, norms[0].eps
    if weight.ndim == 1:
        return functional.layer_norm(x, size, weight, bias, eps)
    scale, shift = weight[:, None, None], bias[:, None, None]
    return torch.addcmul(shift, functional.layer_norm(x, size, eps=eps), scale)


def _embedded(embeddings: Sequence[Any], inputs: torch.Tensor) -> torch.Tensor:
    if isinstance(embeddings[0], nn.Linear):
        return _linear(embeddings, inputs)
    table = _shared_or_stacked([embedding.weight for embedding in embeddings])
    if table.ndim == 3:
        steps = torch.arange(len(table), device=inputs.device) * table.shape[1]
        inputs, table = inputs + steps[:, None, None], table.flatten(0, 1)
    return functional.embedding(inputs, table)


def _shared_or_stacked(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor that all runs share, or the stack of their own."""
    first = tensors[0]
    if len(tensors) > 1 and all(tensor is first for tensor in tensors):
        return first
    return torch.stack(list(tensors)) if len(tensors) > 1 else first


def _trained_copy(layer: Any) -> Any:
    """The layer that PEFT trains whole in place of another one, if it does."""
    trained = getattr(layer, "modules_to_save", None)
    return layer if trained is None else trained[layer.active_adapters[0]]


def use_parameters(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], is_own: Callable[[str], bool]
) -> None:
    """Let the model use these parameters, except those for which ``is_own`` is true."""
    for name, parameter in parameters.items():
        if not is_own(name):
            path, _, last = name.rpartition(".")
            setattr(model.get_submodule(path), last, parameter)
