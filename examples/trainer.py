"""Train a text classifier with LoCA and the Trainer of transformers.

The callback lets the search for locations follow the Trainer's optimiser; a checkpoint has all that
is needed to resume.

Run: python examples/trainer.py
Needs: pip install ".[adapters]" accelerate
"""

import sys
from tempfile import mkdtemp

import torch
from peft import get_peft_model
from transformers import RobertaConfig, RobertaForSequenceClassification

from loca_theory.adapters import LoCACallback, LoCAConfig

try:
    import accelerate  # noqa: F401
    from transformers import Trainer, TrainingArguments
except ImportError as error:
    sys.exit(f"{error}; pip install accelerate")

STEPS = 30
torch.manual_seed(0)
base = RobertaForSequenceClassification(  # or .from_pretrained(...)
    RobertaConfig(vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
)
# The class of a sequence is whether most of its tokens are from the upper half of the vocabulary.
tokens = torch.randint(5, 50, (256, 16))
labels = (tokens > 27).float().mean(1).gt(0.5).long()
data = [{"input_ids": one, "labels": label} for one, label in zip(tokens, labels, strict=True)]

# With a task type, PEFT trains the new classification head as well.
config = LoCAConfig(
    n_frequency=500, alternating_steps=STEPS // 2, location_lr=5e-3, task_type="SEQ_CLS"
)
arguments = TrainingArguments(
    output_dir=mkdtemp(),
    max_steps=STEPS,
    per_device_train_batch_size=32,
    learning_rate=3e-2,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(),
)
trainer = Trainer(
    get_peft_model(base, config), arguments, train_dataset=data, callbacks=[LoCACallback()]
)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
