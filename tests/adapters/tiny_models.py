"""Tiny models with random weights."""

import pytest
import torch
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

# PEFT calls it by the name that transformers 5 has replaced.
of_peft = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


COMMON = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def llama(hidden_size=16):
    torch.manual_seed(1)
    sizes = {"hidden_size": hidden_size, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(initializer_range=0.3, **sizes, **heads, **COMMON)).eval()


def opt():
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "ffn_dim": 24, "word_embed_proj_dim": 16, "num_hidden_layers": 2}
    positions = {"num_attention_heads": 2, "max_position_embeddings": 32}
    return OPTForCausalLM(OPTConfig(init_std=0.3, **sizes, **positions, **COMMON)).eval()


def gpt2():
    torch.manual_seed(1)
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(initializer_range=0.3, **sizes, **COMMON)).eval()


def roberta(dropout=0.0):
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_labels": 2}
    positions = {"num_attention_heads": 2, "max_position_embeddings": 32, "vocab_size": 40}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = RobertaConfig(initializer_range=0.3, **sizes, **positions, **dropouts)
    return RobertaForSequenceClassification(config)
