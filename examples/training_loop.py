"""Train a causal language model with LoCA in a plain PyTorch loop, then save, load and merge it.

Run: python examples/training_loop.py
Needs: pip install ".[adapters]"
"""

from tempfile import mkdtemp

import torch
from peft import PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from loca_theory.adapters import LoCAConfig, follow

TEXT = b"LoCA learns cosine coefficients of the weight change, and where they are. " * 2
STEPS = 30


def base_model() -> LlamaForCausalLM:
    """A small model with random weights; yours is ``AutoModelForCausalLM.from_pretrained(...)``."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


config = LoCAConfig(
    n_frequency=500,  # learned coefficients per layer
    target_modules="all-linear",
    alternating_steps=STEPS // 2,  # locations are searched for in this many steps; by default none
    location_lr=5e-3,
    task_type="CAUSAL_LM",
)
model = get_peft_model(base_model(), config)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
follow(model, optimizer)  # the search follows the steps of this optimiser
tokens = torch.tensor([list(TEXT)])
losses = []
for _ in range(STEPS):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} at last")

folder = mkdtemp()
model.save_pretrained(folder)
merged = PeftModel.from_pretrained(base_model(), folder).merge_and_unload()
print(f"saved in {folder}; loss merged: {merged(input_ids=tokens, labels=tokens).loss.item():.4f}")
