"""Tiny models with random weights; for RoBERTa also batches, and LoCA in it by PEFT."""

import pytest
import torch
from peft import get_peft_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from loca_theory.adapters import LoCAConfig

# PEFT calls it by the name that transformers 5 has replaced.
of_peft = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


COMMON = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def llama(hidden_size=16, **options):
    torch.manual_seed(1)
    settings = {
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 32,
        "initializer_range": 0.3,
    }
    config = LlamaConfig(hidden_size=hidden_size, **COMMON | settings | options)
    return LlamaForCausalLM(config).eval()


def opt():
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "ffn_dim": 24, "word_embed_proj_dim": 16, "num_hidden_layers": 2}
    positions = {"num_attention_heads": 2, "max_position_embeddings": 32}
    return OPTForCausalLM(OPTConfig(init_std=0.3, **sizes, **positions, **COMMON)).eval()


def gpt2():
    torch.manual_seed(1)
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(initializer_range=0.3, **sizes, **COMMON)).eval()


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
