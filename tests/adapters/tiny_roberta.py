"""A tiny RoBERTa with random weights, its batches, and LoCA in it by PEFT."""

import pytest
import torch
from peft import get_peft_model
from transformers import RobertaConfig, RobertaForSequenceClassification

from loca_theory.adapters import LoCAConfig

# PEFT calls it by the name that transformers 5 has replaced.
of_peft = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


def roberta(dtype=torch.float32, dropout=0.0):
    torch.manual_seed(1)
    config = RobertaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        num_labels=2,
        initializer_range=0.3,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return RobertaForSequenceClassification(config).to(dtype)


def in_peft(base, **options):
    return get_peft_model(base, LoCAConfig(task_type="SEQ_CLS", **{"n_frequency": 12} | options))


def tokens(step=0, count=8):
    """A batch whose class is whether more than half of its tokens are above the middle."""
    ids = torch.randint(4, 40, (count, 6), generator=torch.Generator().manual_seed(step))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
            "labels": (ids > 21).float().mean(1).gt(0.5).long()}  # fmt: skip


def logits(model):
    with torch.no_grad():
        return model.eval()(**tokens()).logits
