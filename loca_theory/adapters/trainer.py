"""LoCA layers outside PEFT in the Trainer of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from loca_theory.adapters.search.files import SEARCH_FILE, load_search, save_search
from loca_theory.adapters.search.training import LocationTraining
from loca_theory.errors import InvalidArgumentError


class LoCACallback(TrainerCallback):
    """Writes the state of a search into the Trainer's checkpoints, and resumes from it.

    Only layers that were put into the model by hand (:class:`~loca_theory.adapters.LoCALinear`)
    need it. An adapter of PEFT saves and loads the state of its search by itself.

    Args:
        training: The search.
    """

    def __init__(self, training: LocationTraining) -> None:
        self._training = training

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the state beside the model's."""
        if state.is_world_process_zero:
            save_search(self._training, _checkpoint(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue where the checkpoint stood.

        Raises:
            InvalidArgumentError: the state belongs to another model.
        """
        if state.global_step:
            path = _checkpoint(args, state) / SEARCH_FILE
            if not path.parent.is_dir():
                msg = f"{path.parent} is missing: resume from a checkpoint in output_dir"
                raise InvalidArgumentError(msg)
            if path.is_file():
                load_search(self._training, path)
            else:
                self._training.finish()


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
