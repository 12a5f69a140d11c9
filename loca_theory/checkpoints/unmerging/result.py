"""Result of an unmerge: what each layer's change is, and the adapter that PEFT loads."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, ClassVar

from loca_theory import _arguments
from loca_theory.checkpoints.form.folder import Adapter, check_folder, remove_adapter, write_adapter
from loca_theory.checkpoints.model.names import layer_of
from loca_theory.checkpoints.source.checkpoint import Skipped
from loca_theory.checkpoints.unmerging.rows import UnmergedLayer
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import Result
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.results import rows

_FOLDER = "lora"
_NAMED = 4
_CARD = """---
library_name: peft
---

# LoRA recovered from a merged checkpoint

{verdict}

Its factors are those of a change that rounds to the stored weights, found by `loca-theory unmerge`.
A product BA does not tell its factors apart, so B and A are balanced, and α is the rank.
"""


@dataclass(frozen=True, repr=False)
class Unmerged(Result):
    """What was merged into a checkpoint.

    Attributes:
        layers: The changed layers, with the rank of each change if it was found.
        skipped: Tensors that were not looked at.
        adapter: The LoRA of the layers whose rank was found, as PEFT stores it; None if none was.
    """

    layers: tuple[UnmergedLayer, ...] = rows(UnmergedLayer)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    adapter: Adapter | None = field(default=None, compare=False)
    command: ClassVar[str] = "unmerge"
    names: ClassVar[tuple[str, ...]] = ("name",)

    @property
    def found(self) -> tuple[UnmergedLayer, ...]:
        """The layers whose rank was found."""
        return tuple(row for row in self.layers if row.rank is not None)

    @property
    def identical(self) -> float | None:
        """Fraction of the entries of these layers that a merge gives back to the bit."""
        return _mean(self.found, "identical")

    @property
    def identical_svd(self) -> float | None:
        """The same for the truncated singular value decompositions of these ranks."""
        return _mean(self.found, "identical_svd")

    @property
    def changed_outside(self) -> list[str]:
        """Tensors that the fine-tune changed and the adapter does not have, the largest first."""
        return self.manifest["grid"]["changed_outside"]

    @property
    def verdict(self) -> str:
        """What was merged, in one sentence, and then what was not found."""
        if not self.layers and self.changed_outside:
            return "No linear layer changed that could be looked at, but other tensors did."
        if not self.layers:
            return "No layer changed."
        others = Counter(row.outcome for row in self.layers if row.rank is None)
        total = _counted(len(self.layers), "layer")
        missing = [f"{count} of {total}: {why}." for why, count in others.items()]
        return " ".join([*([self._what()] if self.found else []), *missing])

    def _what(self) -> str:
        ranks = sorted({row.rank for row in self.found if row.rank is not None})
        rank = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        modules = list(dict.fromkeys(_kind(row.name) for row in self.found))
        named = " and ".join(modules) if len(modules) <= _NAMED else f"{len(self.found)} modules"
        blocks = {layer_of(row.name) for row in self.found}
        count = "" if None in blocks else f" of {_counted(len(blocks), 'layer')}"
        recipes = Counter(row.recipe for row in self.found)
        how = ", ".join(f"{recipe} in {n}" for recipe, n in recipes.most_common())
        how = f" ({how if len(recipes) > 1 else next(iter(recipes))})"
        grid = self.manifest["grid"]
        count += " of those that were chosen" if grid["include"] or grid["exclude"] else ""
        return (
            f"The base and LoRA of {rank} in {named}{count}{how}; merged again, "
            f"{self.identical:.2%} of the entries are the same to the bit, by a truncated SVD "
            f"{self.identical_svd:.2%}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per layer, the sentence, skipped tensors, manifest."""
        return {
            "rows": self._plain("layers"),
            "verdict": self.verdict,
            "identical": self.identical,
            "identical_svd": self.identical_svd,
            "changed_outside": self.changed_outside,
            "skipped": [{"name": row.name, "reason": row.reason} for row in self.skipped],
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write the adapter in PEFT's format to ``lora`` in a folder, and the tables beside it.

        Raises:
            InvalidArgumentError: the path is not a text or a path.
            ResourceError: the folder cannot be written to, or ``lora`` in it holds other files.
        """
        folder = _arguments.path("folder", folder)
        writable_folder(check_folder(folder, _FOLDER))
        remove_adapter(folder / _FOLDER)
        paths = []
        if self.adapter is None:
            with suppress(OSError):  # it holds something else, or is not there
                (folder / _FOLDER).rmdir()
        if self.adapter is not None:
            card = _CARD.format(verdict=self.verdict)
            paths += write_adapter(writable_folder(folder / _FOLDER), self.adapter, card)
        return paths + super().save(folder)

    def _text(self) -> str:
        return fill(self.verdict, get_terminal_size().columns)

    def state_dict(self) -> dict[str, Any]:
        """The adapter's parameters, under the names that PEFT gives them.

        Raises:
            InvalidArgumentError: no layer's rank was found.
        """
        if self.adapter is None:
            msg = f"there is no adapter: {self.verdict}"
            raise InvalidArgumentError(msg + " extract makes one that is not exact")
        return dict(self.adapter.tensors)


def _counted(count: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _kind(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _mean(layers: tuple[UnmergedLayer, ...], field_name: str) -> float | None:
    """The mean over all entries of some layers; None without layers."""
    sizes = [row.shape[0] * row.shape[1] for row in layers]
    values = [getattr(row, field_name) for row in layers]
    weighted = sum(size * value for size, value in zip(sizes, values, strict=True))
    return weighted / sum(sizes) if sizes else None
