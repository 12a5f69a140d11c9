"""Real data and real pretrained models, small enough for two cores.

A task is prepared once: its data and, unless an installed package contains one, a pretrained model
are written to a folder as safetensors. All workers then read these files only.
"""

from experiments.finetuning.tasks.prepared import Prepared, Split, load, random_batches
from experiments.finetuning.tasks.registry import base_model, opened, prepare, prepare_by, quiet

__all__ = ["Prepared", "Split", "base_model", "load", "opened", "prepare", "prepare_by", "quiet",
           "random_batches"]  # fmt: skip
