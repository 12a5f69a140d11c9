"""LoCA layers outside PEFT in the Trainer of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from loca_theory.adapters.search.files import SEARCH_FILE, load_search, save_search
from loca_theory.adapters.search.training import LocationTraining
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError


class LoCACallback(TrainerCallback):
    """Writes the state of a search into the Trainer's checkpoints, and resumes from it.

    A :class:`peft.PeftModel` does so by itself. Layers that were put into the model by hand
    (:class:`~loca_theory.adapters.LoCALinear`), and adapters by ``add_adapter`` of transformers and
    sentence-transformers, need it.

    Args:
        training: The search; None for that of the Trainer's model.
    """

    def __init__(self, training: LocationTraining | None = None) -> None:
        self._training = training

    def _search_of(self, model: Any) -> LocationTraining:
        if self._training is not None:
            return self._training
        spectra = (module for module in model.modules() if isinstance(module, CosineSpectrum))
        found = {s.location_training for s in spectra} - {None}
        if len(found) != 1:
            msg = (
                f"the model has {len(found)} searches; use LoCACallback(training) with one of them"
            )
            raise InvalidArgumentError(msg)
        return found.pop()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the state beside the model's.

        Raises:
            InvalidArgumentError: the model has no search, or several.
        """
        if state.is_world_process_zero:
            save_search(self._search_of(kwargs["model"]), _checkpoint(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue where the checkpoint stood.

        Raises:
            InvalidArgumentError: the state belongs to another model, the model has no search or
                several, or a hyperparameter search does not name its trials.
        """
        if state.is_hyper_param_search and state.trial_name is None:
            msg = "hyperparameter_search() does not tell LoCACallback the folder of a trial; pass "
            msg += 'hp_name=lambda trial: f"run-{trial.number}" to it'
            raise InvalidArgumentError(msg)
        if state.global_step:
            path = _checkpoint(args, state) / SEARCH_FILE
            if not path.parent.is_dir():
                msg = f"{path.parent} is missing: resume from a checkpoint in output_dir"
                raise InvalidArgumentError(msg)
            training = self._search_of(kwargs["model"])
            if path.is_file():
                load_search(training, path)
            else:
                training.finish()


def _checkpoint(args: Any, state: Any) -> Path:
    folder = Path(args.output_dir)
    if state.is_hyper_param_search:
        folder /= state.trial_name
    return folder / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
