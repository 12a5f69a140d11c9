"""Configuration of an adapter that suits an analysis: an object of PEFT, and its source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pprint import pformat
from textwrap import indent
from typing import TYPE_CHECKING, Any

from loca_theory._lookup import find, unknown_name
from loca_theory.checkpoints.change.adapter.peft import peft_package
from loca_theory.checkpoints.form.config import target_modules, usual_size
from loca_theory.checkpoints.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.summary import Totals
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods.names import display_name, key_of

if TYPE_CHECKING:
    from peft import PeftConfig

# For each method, what a layer must be able to have, and PEFT's configuration of it.
_CLASSES = {
    "R": ("lora", "peft", "LoraConfig"),
    "D": ("loca", "loca_theory.adapters", "LoCAConfig"),
    "FourierFT": ("loca", "peft", "FourierFTConfig"),
    "S": ("entries", "peft", "ShiraConfig"),
}
_REMARK = '# The entries are random; extract(..., "entries") stores the largest of a fine-tune.'
# LoRA's α in units of its rank.
_ALPHA = 2
_WIDTH = 88


@dataclass(frozen=True)
class ProposedConfig:
    """A configuration of PEFT.

    Attributes:
        method: Key of the method.
        settings: Arguments of the class.
    """

    method: str
    settings: Mapping[str, Any]

    def make(self) -> PeftConfig:
        """The configuration.

        Raises:
            ResourceError: PEFT is not installed.
        """
        _, package, name = _CLASSES[self.method]
        peft_package()
        return getattr(import_module(package), name)(**self.settings)

    @property
    def source(self) -> str:
        """Its Python source, ready to paste."""
        _, package, name = _CLASSES[self.method]
        lines = "\n".join(f"{key}={_value(value)}," for key, value in self.settings.items())
        remark = f"{_REMARK}\n" if self.method == "S" else ""
        lines = indent(lines, "    ")
        return f"from {package} import {name}\n\n{remark}config = {name}(\n{lines}\n)"


def proposed_config(
    found: Any, method: str | None = None, rank: int | None = None
) -> ProposedConfig:
    """The configuration, for an analysis, of an adapter of all layers that can have it.

    The arguments are those of ``Analysis.config``.
    """
    if len(found.tuned) > 1:
        msg = "several fine-tunes need not have the same best adapter; analyse one of them"
        raise InvalidArgumentError(msg)
    key = None if method is None else key_of(method)
    if key is not None and key not in _CLASSES:
        raise unknown_name("method", method, map(display_name, _CLASSES))  # noqa: EM101
    if found.allocation and rank is None:
        key, sizes = _allocated(found.matrices, found.allocation, key)
    else:
        r = found.first_rank if rank is None else rank
        names = {one.name for one in found.errors if one.r == r}
        matrices = [one for one in found.matrices if one.name in names]
        accounting = found.manifest["grid"]["accounting"]
        key, sizes = _uniform(matrices, found.summary.all, key, r, accounting)
    known = {matrix.module for matrix in found.matrices}
    modules = [name for name in sizes if name in known]
    is_ambiguous = found.manifest["grid"]["ambiguous_names"]
    settings = _settings(key, sizes)
    settings["target_modules"] = target_modules(modules, is_ambiguous=is_ambiguous)
    # What is not the weight of a module are experts in one parameter.
    if parameters := [name for name in sizes if name not in known]:
        settings["target_parameters"] = parameters
    return ProposedConfig(key, settings)


def _uniform(
    matrices: Sequence[Matrix], total: Totals, method: str | None, rank: int, accounting: Accounting
) -> tuple[str, dict[str, int]]:
    """The method, and one size for all modules."""
    errors = total.by_rank
    if errors:
        find("rank", str(rank), {str(one): one for one in errors})
    fitting = {
        key: [one for one in matrices if adapter in one.adapters]
        for key, (adapter, *_) in _CLASSES.items()
    }
    possible = [key for key in _CLASSES if fitting[key] and method in {None, key}]
    if not (errors and possible):
        msg = "no analysed layer can have this adapter at this budget; choose another method or "
        raise InvalidArgumentError(msg + "rank")
    best = min(possible, key=lambda key: errors[rank][key].error)
    # LoCA and FourierFT take one number for all modules: the budget of the smallest module.
    smallest = min((one.shape for one in fitting[best]), key=sum)
    budget = Budget(*smallest, rank, accounting)
    chosen = budget.chosen_coefficients
    sizes = {"R": rank, "D": chosen, "FourierFT": budget.random_coefficients,
             "S": max(chosen // sum(smallest), 1)}  # fmt: skip
    return best, {one.module: sizes[best] for one in fitting[best]}


def _allocated(
    matrices: Sequence[Matrix], allocation: Sequence[AllocatedMatrix], method: str | None
) -> tuple[str, dict[str, int]]:
    """The method, and the size of each module that gets something of the total."""
    retained: defaultdict[str, float] = defaultdict(float)
    for one in allocation:
        if method in {None, one.method}:
            retained[one.method] += one.energy * one.retained
    if not retained:
        msg = "the total is not split by this method; choose another method, or a rank"
        raise InvalidArgumentError(msg)
    best = max(retained, key=lambda key: retained[key])
    modules = {one.name: one.module for one in matrices}
    sizes = {one.name: one.size for one in allocation if one.method == best and one.size}
    return best, {modules.get(name, name): size for name, size in sizes.items()}


def _settings(method: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arguments of a configuration with a size for each module."""
    usual, others = usual_size(sizes)
    if method == "R":
        alphas = {module: _ALPHA * rank for module, rank in others.items()}
        size = {"r": usual, "lora_alpha": _ALPHA * usual}
        patterns = {"rank_pattern": others, "alpha_pattern": alphas}
    elif method == "S":
        size, patterns = {"r": usual}, {}
    else:
        size, patterns = {"n_frequency": usual}, {"n_frequency_pattern": others}
    return {**size, **(patterns if others else {})}


def _value(value: Any) -> str:
    """Source of a value; a long regular expression is joined from its alternatives."""
    if isinstance(value, str) and len(value) > _WIDTH:
        return f'"|".join({_value(value.split("|"))})'
    text = pformat(value, width=_WIDTH, compact=True, sort_dicts=False)
    if "\n" not in text:
        return text
    # pformat aligns the lines below the first by one space.
    return f"{text[0]}\n{indent(' ' + text[1:-1], '   ')},\n{text[-1]}"
