"""One layer, forward and backward, under LoCA's implementations and its rivals of PEFT."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks._rivals import LOCA, Layer, Single, adapted, layer_step, sharing_weights, trained
from benchmarks.cuda.comparison import Build, compare, judge_adapters
from benchmarks.cuda.session import Session

RIVALS = ("frozen", "LoRA", "FourierFT", "LoCA", "WaveFT", "C3A", "SHiRA", *LOCA[1:])
LAYERS = (
    Layer(768, 1000, 4096, 8),
    Layer(4096, 150_000, 4096, 64, "bfloat16"),
    Layer(4096, 150_000, 512, 64),
    Layer(768, 1000, 512, 8),
    Layer(768, 1000, 4096, 8, "bfloat16"),
    Layer(768, 10_000, 1024, 16),
)
# For the model of costs, LoCA alone: one thing differs from the loads above.
ALONE = ("frozen", *LOCA)
OTHERS = (
    Layer(768, 1000, 64, 8),
    Layer(768, 1000, 16_384, 8),
    Layer(768, 100, 4096, 8),
    Layer(768, 100_000, 4096, 8),
    Layer(2048, 10_000, 4096, 16),
    Layer(2048, 10_000, 512, 16, "bfloat16"),
    Layer(4096, 10_000, 512, 16),
    Layer(4096, 150_000, 64, 64, "bfloat16"),
)
_TINY = (Layer(16, 20, 8, 2), Layer(16, 20, 8, 2, "bfloat16"))
_TINY_OTHERS = (Layer(16, 5, 8, 2),)


def check(session: Session) -> None:
    """Every load, and a trace of the first two."""
    loads = [(layer, RIVALS) for layer in (_TINY if session.tiny else LAYERS)]
    loads += [(layer, ALONE) for layer in (_TINY_OTHERS if session.tiny else OTHERS)]
    judge = partial(judge_adapters, is_model=False)
    for index, (layer, names) in enumerate(loads):
        rivals = partial(_rivals, session.device, layer, names)
        compare(session, str(layer), rivals, judge=judge)
        if index < 2:
            name = f"layer-{layer.size}-{layer.dtype}"
            session.trace(name, lambda rivals=rivals: rivals()[0]["LoCA"]()[0])


def _rivals(
    device: str, layer: Layer, names: Sequence[str] = RIVALS
) -> tuple[dict[str, Build], int]:
    base = Single(layer.size).to(device, getattr(torch, layer.dtype))

    def build(rival: str) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        model = adapted(sharing_weights(base), rival, layer.components, layer.r).to(device)
        return layer_step(layer, model, device), facts_of(model)

    held = sum(p.numel() * p.element_size() for p in base.parameters())
    return {rival: partial(build, rival) for rival in names}, held


def facts_of(model: torch.nn.Module) -> dict[str, Any]:
    """How many parameters are trained, in which precision."""
    parameters = trained(model)
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
    return {"trained": sum(p.numel() for p in parameters), "in": ", ".join(dtypes)}
