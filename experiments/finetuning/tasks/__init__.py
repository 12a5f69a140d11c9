"""Real data and real pretrained models, small enough for two cores.

A task is prepared once, in a folder: its data and, where no package carries one, a pretrained
model, as safetensors. Nothing else is read afterwards, by however many workers.
"""

from experiments.finetuning.tasks.prepared import Prepared, Split, load
from experiments.finetuning.tasks.registry import prepare

__all__ = ["Prepared", "Split", "load", "prepare"]
