"""Fine-tune a language model on prompts and completions with LoCA and TRL's SFTTrainer.

Run: python examples/trl_sft.py
Needs: pip install ".[adapters]" trl
"""

import sys
from tempfile import mkdtemp

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from loca_theory.adapters import LoCAConfig

try:
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    sys.exit(f"{error}; pip install trl")

STEPS = 30
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
rows = [
    {"prompt": f"{WORDS[i]} plus {WORDS[j]} is", "completion": f" {WORDS[i + j]}"}
    for i in range(5)
    for j in range(5)
]
vocabulary = {word: n for n, word in enumerate(["<pad>", "<eos>", *WORDS, "plus", "is"])}
words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # or AutoTokenizer
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
torch.manual_seed(0)
model = LlamaForCausalLM(  # or AutoModelForCausalLM.from_pretrained(...)
    LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )
)
arguments = SFTConfig(
    output_dir=mkdtemp(),
    max_steps=STEPS,
    per_device_train_batch_size=25,
    learning_rate=2e-2,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
    bf16=False,
    gradient_checkpointing=False,
    use_cpu=not torch.cuda.is_available(),
)
trainer = SFTTrainer(
    model,
    arguments,
    train_dataset=Dataset.from_list(rows),
    processing_class=tokenizer,
    peft_config=LoCAConfig(n_frequency=500, target_modules="all-linear"),
)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
