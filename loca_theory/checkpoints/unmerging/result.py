"""Result of an unmerge: what each layer's change is, and the adapter that PEFT loads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, ClassVar

from loca_theory import _arguments
from loca_theory._words import counted, first_of, listed
from loca_theory.checkpoints.change.comparable import reasons
from loca_theory.checkpoints.form.folder import Adapter, check_folder, remove_adapter, write_adapter
from loca_theory.checkpoints.form.forms import CHOICES, FORMS
from loca_theory.checkpoints.form.loading import loading_code
from loca_theory.checkpoints.model.names import layer_of
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.checkpoints.unmerging.rows import UnmergedLayer
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import Recipe
from loca_theory.sweeps import Result
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.results import rows

EITHER = "best"
"""Name of the choice of LoRA and LoCA, in whose folders adapters are written."""
_NAMED = 4
_NEARLY_ALL = 0.99
# Origins of such a change, by form and by whether it was rounded twice.
_MAKERS = {
    ("LoRA", False): "a merged LoRA",
    ("LoRA", True): "two merged LoRAs, a base that was cast after a merge, or steps of plain SGD",
    ("LoCA", False): "a merged LoCA",
    ("LoCA", True): "two merged LoCAs",
}
_FULL = "float32"
_CARD = Path(__file__).with_name("card.md.j2")


@dataclass(frozen=True, repr=False)
class Unmerged(Result):
    """The changes that were merged into a checkpoint, and the adapters that PEFT loads.

    Attributes:
        layers: The changed layers, with the form and size of each change if they were found.
        skipped: Tensors that were not looked at.
        adapters: What was found, by form: ``lora``, ``loca``, or both of disjoint layers, as PEFT
            stores them; empty if nothing was found.
    """

    layers: tuple[UnmergedLayer, ...] = rows(UnmergedLayer)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    adapters: Mapping[str, Adapter] = field(default_factory=dict, compare=False)
    command: ClassVar[str] = "unmerge"
    names: ClassVar[tuple[str, ...]] = ("name",)

    @property
    def found(self) -> tuple[UnmergedLayer, ...]:
        """The layers whose adapter was found."""
        return tuple(row for row in self.layers if row.form is not None)

    @property
    def identical(self) -> float | None:
        """Fraction of the entries of these layers that a merge gives back to the bit."""
        return _mean(self.found, "identical")

    @property
    def identical_svd(self) -> float | None:
        """The same for the best approximations of the differences, of these forms and sizes."""
        return _mean(self.found, "identical_svd")

    @property
    def identical_unrounded(self) -> float | None:
        """The same for the factors before they are rounded to the stored type."""
        return _mean(self.found, "identical_unrounded")

    @property
    def changed_outside(self) -> list[str]:
        """Tensors that the fine-tune changed and the adapter does not have, the largest first."""
        return self.manifest["grid"]["changed_outside"]

    @property
    def verdict(self) -> str:
        """The merged change in one sentence, and then what was not found."""
        if not self.layers and self.manifest["grid"]["is_identical"]:
            return "No layer changed: both checkpoints store the same tensors."
        if not self.layers:
            why = f"; left out: {reasons(self.skipped)}" if self.skipped else ""
            others = " that could be looked at, but other tensors did"
            return f"No linear layer changed{others if self.changed_outside else ''}{why}."
        others = Counter(row.outcome for row in self.layers if row.form is None)
        total = counted(len(self.layers), "layer")
        missing = [f"{count} of {total}: {why}." for why, count in others.items()]
        return " ".join([*([self._what()] if self.found else []), *missing])

    def _what(self) -> str:
        forms = dict.fromkeys(row.form for row in self.found)
        adapters = ", and ".join(self._of_form(form) for form in forms if form is not None)
        grid = self.manifest["grid"]
        adapters += " of those that were chosen" if grid["include"] or grid["exclude"] else ""
        dtype = self.manifest["dtype"]
        written = "" if dtype == _FULL else f" with its numbers in {dtype}"
        unrounded = "" if dtype == _FULL else f" (in float32 {self.identical_unrounded:.2%})"
        is_low_rank = FORMS["lora"].title in forms
        # Its last digits depend on the processor.
        digits = ".2%" if (self.identical_svd or 0.0) > _NEARLY_ALL else ".0%"
        svd = "a truncated SVD" if is_low_rank else "the largest coefficients of the difference"
        return (
            f"The base and {adapters}; merged again{written}, {self.identical:.2%} of the entries "
            f"are the same to the bit{unrounded}, by {svd} {self.identical_svd:{digits}}."
        )

    def _of_form(self, form: str) -> str:
        rows = [row for row in self.found if row.form == form]
        is_low_rank = form == FORMS["lora"].title
        sizes = sorted({row.rank or row.components or 0 for row in rows})
        if is_low_rank:
            size = f"rank {sizes[0]}" if len(sizes) == 1 else f"ranks {sizes[0]} to {sizes[-1]}"
        else:
            largest = f" to {sizes[-1]:,}" if len(sizes) > 1 else ""
            size = f"{sizes[0]:,}{largest} components"
        modules = list(dict.fromkeys(_kind(row.name) for row in rows))
        named = listed(modules) if len(modules) <= _NAMED else f"{len(rows)} modules"
        blocks = {layer_of(row.name) for row in rows}
        count = "" if None in blocks else f" of {counted(len(blocks), 'layer')}"
        usual, _ = Counter(row.recipe for row in rows).most_common(1)[0]
        makers = _MAKERS[form, usual == Recipe.ROUNDED_TWICE]
        return f"a change of {size} in {named}{count}, as of {makers} ({_recipes(rows)})"

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per layer, the sentence, skipped tensors, manifest."""
        return {
            "rows": self._plain("layers"),
            "verdict": self.verdict,
            "identical": self.identical,
            "identical_unrounded": self.identical_unrounded,
            "identical_svd": self.identical_svd,
            "changed_outside": self.changed_outside,
            "skipped": [{"name": row.name, "reason": row.reason} for row in self.skipped],
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write each adapter in PEFT's format to a folder with its form's key, tables beside it.

        Raises:
            InvalidArgumentError: the path is not a text or a path.
            ResourceError: the folder cannot be written to, or that of an adapter holds other files.
        """
        from jinja2 import Template

        folder, paths = _arguments.path("folder", folder), list[Path]()
        writable_folder(check_folder(folder, EITHER))
        for form in CHOICES[EITHER]:
            remove_adapter(folder / form.key)
            if form.key in self.adapters:
                template = Template(_CARD.read_text(encoding="utf-8"), keep_trailing_newline=True)
                card = template.render(
                    base=json.dumps(self.adapters[form.key].config["base_model_name_or_path"]),
                    form=form,
                    verdict=self.verdict,
                    loading=loading_code(self.adapters, self.manifest["grid"]["model"]),
                )
                path = writable_folder(folder / form.key)
                paths += write_adapter(path, self.adapters[form.key], card)
            else:
                with suppress(OSError):  # it holds something else, or is not there
                    (folder / form.key).rmdir()
        return paths + super().save(folder)

    def _text(self) -> str:
        return fill(self.verdict, get_terminal_size().columns)

    def state_dict(self) -> dict[str, Any]:
        """The adapter's parameters, under the names that PEFT gives them.

        Raises:
            InvalidArgumentError: no adapter was found, or two; then take one of ``adapters``.
        """
        if not self.adapters:
            raise InvalidArgumentError(
                f"there is no adapter: {self.verdict} extract makes one that is not exact"
            )
        if len(self.adapters) > 1:
            raise InvalidArgumentError(
                f"there are two adapters, {' and '.join(self.adapters)}; take one, such as "
                "adapters[...]"
            )
        return dict(next(iter(self.adapters.values())).tensors)


def _kind(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _recipes(rows: Sequence[UnmergedLayer]) -> str:
    """The recipe of most layers, and the names of those that it does not hold for."""
    counts = Counter(row.recipe for row in rows)
    (usual, _), *others = counts.most_common()
    parts = [str(usual)]
    for recipe, _ in others:
        names = [row.name.removesuffix(".weight") for row in rows if row.recipe == recipe]
        parts.append(f"{recipe} in {first_of(names, _NAMED)}")
    return ", but ".join(parts)


def _mean(layers: tuple[UnmergedLayer, ...], field_name: str) -> float | None:
    """The mean over all entries of some layers; None without layers."""
    sizes = [row.shape[0] * row.shape[1] for row in layers]
    values = [getattr(row, field_name) for row in layers]
    weighted = sum(size * value for size, value in zip(sizes, values, strict=True))
    return weighted / sum(sizes) if sizes else None
