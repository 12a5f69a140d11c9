"""Result of an extraction: adapters that PEFT can load, and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from loca_theory import _arguments
from loca_theory.checkpoints.extraction.outputs import OutputRow, check_requantise
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix, card_of
from loca_theory.checkpoints.extraction.totals import ExtractionTotals
from loca_theory.checkpoints.extraction.verification import verified
from loca_theory.checkpoints.form.folder import (
    Adapter,
    check_folder,
    read_adapter,
    remove_adapter,
    write_adapter,
)
from loca_theory.checkpoints.form.forms import FORMS
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.checkpoints.source.open import Source
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Result
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.results import rows

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel

# The weights of the model and the sum W + ΔW are rounded to float32.
_AGREES = 1e-4
_TOTALS = (
    *("error", "distance", "nearest_error", "nearest_distance", "identical"),
    *("uniform_error", "equal_error", "least_error", "saved_numbers", "output_error"),
)


@dataclass(frozen=True, repr=False)
class Extraction(ExtractionTotals, Result):
    """Adapters, ready to be saved.

    Attributes:
        matrices: Size and error of the adapter, by matrix.
        skipped: Tensors that are not part of the adapter.
        adapters: The adapter by its method: one; with ``best``, ``lora`` and ``loca`` of disjoint
            layers.
        sources: ``base`` and ``finetuned`` as they were passed; empty if the result was loaded.
        outputs: How the outputs of the base, and of the base with the adapter, differ from those of
            the fine-tune; empty before :meth:`verify` with inputs.
    """

    matrices: tuple[ExtractedMatrix, ...] = rows(ExtractedMatrix)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    outputs: tuple[OutputRow, ...] = rows(OutputRow)
    adapters: Mapping[str, Adapter] = field(default_factory=dict, compare=False)
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    command: ClassVar[str] = "extract"
    names: ClassVar[tuple[str, ...]] = ("name",)

    @property
    def method(self) -> str:
        """``loca``, ``lora``, ``entries`` or ``best``."""
        return self.manifest["grid"]["method"]

    @property
    def saved_numbers(self) -> int:
        """Numbers in the modules that are stored whole."""
        return sum(
            tensor.numel()
            for key, adapter in self.adapters.items()
            for name, tensor in adapter.tensors.items()
            if not FORMS[key].has_parameter(name)
        )

    @property
    def output_error(self) -> float | None:
        """The ``error`` of the adapter among the outputs; None if there are none."""
        return self.outputs[-1].error if self.outputs else None

    @property
    def config(self) -> PeftConfig:
        """The adapter's configuration, an object of PEFT.

        Raises:
            InvalidArgumentError: there are two adapters; take one of ``adapters``.
            ResourceError: PEFT is not installed.
        """
        return self._only().peft_config()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The adapter's parameters, under the names that PEFT gives them.

        Raises:
            InvalidArgumentError: there are two adapters; take one of ``adapters``.
        """
        return dict(self._only().tensors)

    def apply(self, model: torch.nn.Module) -> PeftModel:
        """Put the adapter into a model of the base, in place, and return it as a model of PEFT.

        Raises:
            InvalidArgumentError: there are two adapters; take one of ``adapters``.
            ResourceError: PEFT is not installed, or the adapter does not fit the model.
        """
        return self._only().apply(model)

    def _only(self) -> Adapter:
        if len(self.adapters) > 1:
            names = " and ".join(self.adapters)
            raise InvalidArgumentError(
                f"there are two adapters, {names}; take one, such as adapters[...]"
            )
        return next(iter(self.adapters.values()))

    def verify(
        self,
        model: torch.nn.Module | None = None,
        inputs: Any = None,
        requantise: int | None = None,
    ) -> Extraction:
        """Load the adapter with PEFT into the model of the base, merge it, and measure its errors.

        Args:
            model: The model with the weights of the base; by default it is loaded from the base.
                It is not changed.
            inputs: Inputs on which to compare the outputs of the adapter, of the base and of the
                fine-tune: a tensor, a tuple or a dictionary of arguments, a list of several of
                these, or the path of a file. A safetensors or PyTorch file holds tensors by the
                names of the arguments; another file holds one text per line, for the tokenizer in
                the folder of the base or of the fine-tune.
            requantise: 8 or 4: what of the adapter is left if the base, and then the sum, are
                rounded to LLM.int8 (8 bits, a scale per row) or NF4 (4 bits, a scale per 64
                entries).

        Returns:
            The same result with ``loaded_error`` in its matrices and, given inputs, ``outputs``.

        Raises:
            InvalidArgumentError: the model is not known, is another one, does not run on the
                inputs, a checkpoint lacks some of its weights, or ``requantise`` is not 8 or 4.
            ResourceError: PEFT is not installed, or cannot load the adapter.
        """
        check_requantise(requantise)
        matrices, outputs = verified(self, model, inputs, requantise)
        return replace(self, matrices=matrices, outputs=outputs)

    @property
    def disagreements(self) -> list[str]:
        """Matrices whose error in the loaded model is not the one that was computed."""
        return [
            row.name
            for row in self.matrices
            if row.loaded_error is not None and abs(row.loaded_error - row.error) > _AGREES
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per matrix, the total errors, skipped tensors, manifest."""
        return {
            "rows": self._plain("matrices"),
            **{name: getattr(self, name) for name in _TOTALS},
            "outputs": self._plain("outputs"),
            "skipped": [{"name": row.name, "reason": row.reason} for row in self.skipped],
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write each adapter in PEFT's format to a folder with its method's name, tables beside it.

        The adapter's folder holds nothing else than the adapter and its card.

        Raises:
            ResourceError: the folder cannot be written to, or the folder of an adapter holds a file
                that no extraction wrote.
        """
        folder = _arguments.path("folder", folder)
        writable_folder(check_folder(folder, self.method))
        for method in FORMS:
            remove_adapter(folder / method)
        paths = []
        for method, adapter in self.adapters.items():
            path = writable_folder(folder / method)
            paths += write_adapter(path, adapter, card_of(self, method))
        return paths + super().save(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the adapters and the tables that :meth:`save` wrote.

        Raises:
            ResourceError: a file is missing, or another version of the package wrote it.
        """
        tables, folder = super().load(folder), Path(folder)
        methods = dict.fromkeys(row.method for row in tables.matrices if row.numbers)
        adapters = {method: read_adapter(folder / method) for method in methods}
        return replace(tables, adapters=adapters)

    @property
    def changed_outside(self) -> list[str]:
        """Tensors that the fine-tune changed and the adapter does not have, the largest first."""
        return self.manifest["grid"]["changed_outside"]

    @property
    def note(self) -> str:
        """What of the names is not checked, and why; "" if everything is."""
        grid = self.manifest["grid"]
        if grid["unchecked"] is None:
            return ""
        if grid["model"] is not None:
            return f"Not checked: {grid['unchecked']}."
        return f"Names are those of the file; not checked against a model: {grid['unchecked']}."
