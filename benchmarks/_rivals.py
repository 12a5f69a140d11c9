"""Build layers and models, each with an adapter (LoCA or a method of PEFT), and training steps.

PEFT and transformers are imported inside functions, so that benchmarks that need neither run
without them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks._measure import Step
from loca_theory.adapters import CosineSpectrum, follow

TARGETS = ["query", "value", "q_proj", "v_proj"]
LOCA = ("LoCA", "LoCA locations", "LoCA implicit", "LoCA materialised")
"""LoCA with default settings, LoCA in a phase of locations, and each implementation of LoCA."""

OTHERS = ("FourierFT", "WaveFT", "C3A", "SHiRA")
"""Methods of PEFT besides LoRA."""


def _in_words(dtype: str) -> str:
    return "" if dtype == "float32" else f", {dtype}"


@dataclass(frozen=True)
class LayerCase:
    """A linear layer to measure: its side, tokens, and the budgets of the adapters."""

    size: int
    components: int
    tokens: int
    r: int
    dtype: str = "float32"

    def __str__(self) -> str:
        size = f"{self.size}x{self.size}, B = {self.components}"
        return f"{size}, {self.tokens} tokens{_in_words(self.dtype)}"


@dataclass(frozen=True)
class ModelCase:
    """A model to measure: its load (batch, tokens) and the budgets of the paper's experiments."""

    name: str
    load: tuple[int, int]
    components: int
    r: int
    dtype: str = "float32"

    def __str__(self) -> str:
        load = f"{self.name}, {' x '.join(map(str, self.load))}"
        return f"{load}, B = {self.components}, r = {self.r}{_in_words(self.dtype)}"


Case = LayerCase | ModelCase


class Single(nn.Module):
    """A model with one layer, so that PEFT can adapt it like any model."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        return self.query(x)


def targets_of(model: nn.Module) -> list[str]:
    """The names of the query and value layers of a model."""
    return [t for t in TARGETS if any(name.endswith(t) for name, _ in model.named_modules())]


def with_adapter(model: nn.Module, config: Any) -> Any:
    """Wrap a model with PEFT, without its warnings."""
    from peft import get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model, config)


def adapted(model: nn.Module, adapter: str, components: int, r: int) -> Any:
    """Add an adapter to the query and value layers of a model, or freeze it (``frozen``).

    LoRA has the rank r. SHiRA, whose size is set by a rank, and C3A, whose size is set by a block
    size, come as close as possible to the number of components.
    """
    if adapter == "frozen":
        return model.requires_grad_(requires_grad=False)
    targets = targets_of(model)
    shapes = {
        (layer.out_features, layer.in_features)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and any(name.endswith(t) for t in targets)
    }
    result = with_adapter(model, _config(adapter, targets, shapes, components, r))
    return _in_location_phase(result) if adapter == "LoCA locations" else result


def _config(
    adapter: str, targets: list[str], shapes: set[tuple[int, int]], components: int, r: int
) -> Any:
    import peft

    from loca_theory.adapters import LoCAConfig

    if adapter in LOCA:
        implementation: Any = adapter.removeprefix("LoCA").strip()
        # Stay in the phase that is measured.
        fixed: dict[str, Any] = {"alternating_steps": 0, "implementation": implementation or "auto"}
        if adapter == "LoCA locations":
            fixed = {"coefficient_steps": 1, "location_steps": 10**9, "alternating_steps": None}
        return LoCAConfig(n_frequency=components, target_modules=targets, **fixed)
    name, options = {
        "LoRA": ("LoraConfig", {"r": r, "lora_alpha": r}),
        "FourierFT": ("FourierFTConfig", {"n_frequency": components}),
        "WaveFT": ("WaveFTConfig", {"n_frequency": components}),
        "C3A": ("C3AConfig", {"block_size": _block_size(shapes, components)}),
        "SHiRA": ("ShiraConfig", {"r": _sparse_rank(shapes, components)}),
    }[adapter]
    return getattr(peft, name)(target_modules=targets, **options)


def _block_size(shapes: set[tuple[int, int]], components: int) -> int:
    """The block size b for which C3A, with pq/b numbers, is closest to the components."""
    common = math.gcd(*(side for shape in shapes for side in shape))
    divisors = [b for b in range(1, common + 1) if common % b == 0]
    p, q = max(shapes)
    return min(divisors, key=lambda b: abs(math.log(p * q / b / components)))


def _sparse_rank(shapes: set[tuple[int, int]], components: int) -> int:
    """The rank r for which SHiRA, with (p+q)r numbers, is closest to the components."""
    return max(1, round(components / sum(max(shapes))))


def _in_location_phase(model: Any) -> Any:
    """The model in its phase of locations; the optimiser that it follows is never stepped."""
    follow(model, torch.optim.SGD(trainable_parameters(model), 0.0))
    for spectrum in (m for m in model.modules() if isinstance(m, CosineSpectrum)):
        spectrum.search.phase = "locations"
    return model


def layer_step(layer: LayerCase, model: Any, device: str, optimizer: Any = None) -> Step:
    """Make a step of one layer, for tokens that require a gradient, like :func:`training_step`."""
    kind: Any = {"device": device, "dtype": getattr(torch, layer.dtype)}
    x = torch.randn(layer.tokens, layer.size, requires_grad=True, **kind)
    g = torch.randn(layer.tokens, layer.size, **kind)

    def step() -> None:
        x.grad = None
        model.zero_grad()
        model(x).backward(g)
        if optimizer is not None:
            optimizer.step()

    return step


def network(model: ModelCase) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor | None]:
    """Make a model with random weights, its inputs, and labels if it is a classifier.

    The global generator of torch gets the seed 0.
    """
    torch.manual_seed(0)
    model_of_load, inputs, labels = _network(model)
    dtype = getattr(torch, model.dtype)
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    return model_of_load.to(dtype), inputs, labels


def _network(model: ModelCase) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor | None]:
    import transformers as hf

    count, tokens = model.load
    if model.name.startswith("RoBERTa"):
        built: Any = hf.RobertaForSequenceClassification(hf.RobertaConfig(vocab_size=50265))
        inputs = {"input_ids": torch.randint(10, 50265, model.load)}
        return built, inputs, torch.randint(0, 2, (count,))
    if model.name.startswith("MiniLM"):
        shape = hf.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        inputs = {"input_ids": torch.randint(1000, 30522, model.load)}
        return hf.BertForSequenceClassification(shape), inputs, torch.randint(0, 2, (count,))
    if model.name.startswith("LLaMA"):
        # Two of the 32 decoder layers of the 7B model, with a small vocabulary.
        tiny = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
        size: dict[str, Any] = {} if "7B" in model.name else tiny
        config = hf.LlamaConfig(vocab_size=1000, num_hidden_layers=2, use_cache=False, **size)
        return hf.LlamaModel(config), {"input_ids": torch.randint(0, 1000, model.load)}, None
    labels = dict(enumerate("abcdefghij"))
    side = 16 * math.isqrt(tokens - 1)
    built = hf.ViTForImageClassification(hf.ViTConfig(id2label=labels, image_size=side))
    inputs = {"pixel_values": torch.randn(count, 3, side, side)}
    return built, inputs, torch.randint(0, len(labels), (count,))


def training_step(
    module: Any,
    inputs: dict[str, torch.Tensor],
    labels: torch.Tensor | None,
    optimizer: torch.optim.Optimizer | None,
    device: str,
) -> Step:
    """Make a training step: forward, backward and, with an optimiser, an update."""
    inputs = {name: value.to(device) for name, value in inputs.items()}
    labels = None if labels is None else labels.to(device)

    def step() -> None:
        if optimizer is not None:
            optimizer.zero_grad()
        output = module(**inputs)
        if labels is None:
            loss = output.last_hidden_state.float().square().mean()
        else:
            loss = nn.functional.cross_entropy(output.logits, labels)
        loss.backward()
        if optimizer is not None:
            optimizer.step()

    return step


def model_step(
    module: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor | None, device: str
) -> Step:
    """Make a training step of the parameters that are not frozen.

    If all are frozen, the gradient is propagated to the embeddings, as with any adapter.
    """
    parameters = trainable_parameters(module.train())
    if parameters:
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)
        return training_step(module, inputs, labels, optimizer, device)
    module.get_input_embeddings().register_forward_hook(
        lambda _, __, output: output.requires_grad_(requires_grad=True)
    )
    return training_step(module, inputs, labels, None, device)


def trainable_parameters(model: nn.Module) -> Sequence[nn.Parameter]:
    """The parameters that are not frozen."""
    return [p for p in model.parameters() if p.requires_grad]
