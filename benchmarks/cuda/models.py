"""Steps per second and memory of models with LoCA and rivals: the paper's complexity table."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks._measure import Timing
from benchmarks._rivals import LOCA, Model, adapted, model_step, network, sharing_weights
from benchmarks.cuda.comparison import Build, compare, judge_adapters
from benchmarks.cuda.layers import facts_of
from benchmarks.cuda.session import Row, Session

RIVALS = ("LoRA", "LoCA", "FourierFT", "frozen", "LoCA locations", "WaveFT", "C3A", "SHiRA",
          *LOCA[2:])  # fmt: skip
MODELS = (
    Model("RoBERTa-base", (32, 128), 1000, 8),
    Model("LLaMA-7B, two layers", (4, 512), 150_000, 64, "bfloat16"),
    Model("ViT-base", (32, 197), 3000, 16),
    Model("RoBERTa-base", (32, 128), 1000, 8, "bfloat16"),
    Model("ViT-base", (32, 197), 3000, 16, "bfloat16"),
)
_TINY = (Model("LLaMA, two small layers", (2, 4), 20, 2, "bfloat16"),)


def check(session: Session) -> None:
    """Measure the models as far as time allows."""
    for model in _TINY if session.tiny else MODELS:
        compare(session, str(model), partial(_rivals, session.device, model), judge=_judge)


def _rivals(device: str, model: Model) -> tuple[dict[str, Build], int]:
    made, inputs, labels = network(model)
    made = made.to(device)

    def build(rival: str) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        copy = adapted(sharing_weights(made), rival, model.components, model.r).to(device)
        return model_step(copy, inputs, labels, device), facts_of(copy)

    held = sum(t.numel() * t.element_size() for t in (*made.parameters(), *made.buffers()))
    return {rival: partial(build, rival) for rival in RIVALS}, held


def _judge(rows: dict[str, Row], times: dict[str, Timing]) -> None:
    judge_adapters(rows, times, is_model=True)
    for row in rows.values():
        row["steps_per_s"] = 1e3 / row["ms"]
