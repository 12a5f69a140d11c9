"""Tiny models of many architectures, with fine-tunes of them, as folders."""

import peft
import torch
import transformers

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 61,
    "max_position_embeddings": 40,
}
_IMAGE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": 5,
}
_T5 = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 32,
    "vocab_size": 61,
    "decoder_start_token_id": 0,
}
_WHISPER = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 61,
    "max_source_positions": 16,
    "max_target_positions": 40,
    "num_mel_bins": 8,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 61, "n_positions": 40}
_DEEPSEEK = {
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 2,
}
_MAMBA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 4,
    "vocab_size": 61,
    "num_heads": 4,
    "head_dim": 16,
    "n_groups": 2,
}
TOKENS = {"input_ids": torch.arange(3, 19).reshape(2, 8)}
_PIXELS = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)}
_BOTH = {**TOKENS, "decoder_input_ids": TOKENS["input_ids"].flip(1)}
_SOUND = {
    "input_features": torch.linspace(-1, 1, 8 * 32).reshape(1, 8, 32),
    "decoder_input_ids": TOKENS["input_ids"][:1],
}

# The class of a model, its settings, and inputs that it runs on.
MODELS = {
    "ViT": ("ViTForImageClassification", _IMAGE, _PIXELS),
    "DINOv2-SwiGLU": ("Dinov2ForImageClassification", {**_IMAGE, "use_swiglu_ffn": True}, _PIXELS),
    "BERT": ("BertForSequenceClassification", _TEXT, TOKENS),
    "BERT-MLM": ("BertForMaskedLM", _TEXT, TOKENS),
    "T5": ("T5ForConditionalGeneration", _T5, _BOTH),
    "Whisper": ("WhisperForConditionalGeneration", _WHISPER, _SOUND),
    "GPT-2": ("GPT2LMHeadModel", _GPT2, TOKENS),
    "GPT-2 with a head": ("GPT2LMHeadModel", {**_GPT2, "tie_word_embeddings": False}, TOKENS),
    "Llama": ("LlamaForCausalLM", _TEXT, TOKENS),
    "Qwen2-MoE": (
        "Qwen2MoeForCausalLM",
        {
            **_TEXT,
            "num_key_value_heads": 2,
            "moe_intermediate_size": 24,
            "num_experts": 4,
            "shared_expert_intermediate_size": 40,
            "num_experts_per_tok": 2,
        },
        TOKENS,
    ),
    "Mixtral": (
        "MixtralForCausalLM",
        {**_TEXT, "num_key_value_heads": 2, "num_local_experts": 4},
        TOKENS,
    ),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", {**_TEXT, **_DEEPSEEK}, TOKENS),
    "Mamba2": ("Mamba2ForCausalLM", _MAMBA, TOKENS),
}


def make(name):
    """A model with random weights."""
    kind, settings, _ = MODELS[name]
    kind = getattr(transformers, kind)
    torch.manual_seed(0)
    return kind(kind.config_class(**settings)).eval()


def fine_tuned(model, *, biases=True):
    """Change a model's parameters in place: matrices by rank 3 and some noise."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = 0.01 * torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 2:
                left = torch.randn(parameter.shape[0], 3, generator=generator)
                right = torch.randn(3, parameter.shape[1], generator=generator)
                noise = 0.1 * noise + 0.02 * left @ right
            if parameter.ndim != 1 or biases:
                parameter.add_(noise)
    return model


def pair(name, folder):
    """Folders of a base and a fine-tune of its matrices as ``save_pretrained`` writes them."""
    base, tuned = folder / "base", folder / "tuned"
    make(name).save_pretrained(base)
    fine_tuned(make(name), biases=False).save_pretrained(tuned)
    return base, tuned


def merged(folder, original, dtype=torch.float32):
    """The differences of all weights that PEFT itself merges into a model."""
    before = {name: tensor.to(dtype).clone() for name, tensor in original.state_dict().items()}
    tuned = peft.PeftModel.from_pretrained(original.to(dtype), folder)
    after = tuned.merge_and_unload().state_dict()
    return {name: after[name] - tensor for name, tensor in before.items() if name in after}
