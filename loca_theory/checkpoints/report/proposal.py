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
from loca_theory.checkpoints.form.config import target_modules
from loca_theory.checkpoints.form.form import AdapterType
from loca_theory.checkpoints.form.forms import TYPES
from loca_theory.checkpoints.measure.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.report.summary import Totals
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods.names import known_name

if TYPE_CHECKING:
    from peft import PeftConfig

_WIDTH = 88


@dataclass(frozen=True)
class ProposedConfig:
    """A configuration of PEFT.

    Attributes:
        kind: The type of adapter.
        settings: Arguments of the class.
    """

    kind: AdapterType
    settings: Mapping[str, Any]

    def make(self) -> PeftConfig:
        """The configuration.

        Raises:
            ResourceError: PEFT is not installed.
        """
        peft_package()
        package, name = self.kind.config_class
        return getattr(import_module(package), name)(**self.settings)

    @property
    def source(self) -> str:
        """Its Python source, ready to paste."""
        package, name = self.kind.config_class
        lines = "\n".join(f"{key}={_value(value)}," for key, value in self.settings.items())
        remark = f"{self.kind.remark}\n" if self.kind.remark else ""
        lines = indent(lines, "    ")
        return f"from {package} import {name}\n\n{remark}config = {name}(\n{lines}\n)"


def proposed_config(
    analysis: Any, method: str | None = None, rank: int | None = None
) -> ProposedConfig:
    """The configuration, for an analysis, of an adapter of all layers that can have it.

    The arguments are those of ``Analysis.config``.
    """
    if len(analysis.tuned) > 1:
        raise InvalidArgumentError(
            "several fine-tunes need not have the same best adapter; analyse one of them"
        )
    key = None if method is None else known_name(method)
    if key is not None and key not in TYPES:
        raise unknown_name("method", method, TYPES)
    if analysis.allocation and rank is None:
        kind, sizes = _allocated(analysis.matrices, analysis.allocation, key)
    else:
        r = analysis.first_rank if rank is None else rank
        names = {error.name for error in analysis.errors if error.r == r}
        matrices = [matrix for matrix in analysis.matrices if matrix.name in names]
        accounting = analysis.manifest["grid"]["accounting"]
        kind, sizes = _uniform(matrices, analysis.summary.all, key, r, accounting)
    known_modules = {matrix.module for matrix in analysis.matrices}
    modules = [name for name in sizes if name in known_modules]
    is_ambiguous = analysis.manifest["grid"]["ambiguous_names"]
    settings = kind.proposed_settings(sizes)
    settings = {name: value for name, value in settings.items() if value != {}}
    settings["target_modules"] = target_modules(modules, is_ambiguous=is_ambiguous)
    # The others are parameters that hold experts.
    if parameters := [name for name in sizes if name not in known_modules]:
        settings["target_parameters"] = parameters
    return ProposedConfig(kind, settings)


def _uniform(
    matrices: Sequence[Matrix], total: Totals, method: str | None, rank: int, accounting: Accounting
) -> tuple[AdapterType, dict[str, int]]:
    """The type, and one size for all modules."""
    errors = total.by_rank
    if errors:
        find("rank", str(rank), {str(r): r for r in errors})
    fitting = {
        key: [matrix for matrix in matrices if kind.key in matrix.adapters]
        for key, kind in TYPES.items()
        if method in {None, key}
    }
    of_methods = errors.get(rank, {})
    possible = [key for key, layers in fitting.items() if layers and key in of_methods]
    if not possible:
        raise InvalidArgumentError(
            "no analysed layer can have this adapter at this budget; choose another method or rank"
        )
    best = min(possible, key=lambda key: of_methods[key].error)
    # LoCA and FourierFT take one number for all modules: the budget of the smallest module.
    p, q = min((matrix.shape for matrix in fitting[best]), key=sum)
    size = TYPES[best].size_of_budget(Budget(p, q, rank, accounting))
    return TYPES[best], {matrix.module: size for matrix in fitting[best]}


def _allocated(
    matrices: Sequence[Matrix], allocation: Sequence[AllocatedMatrix], method: str | None
) -> tuple[AdapterType, dict[str, int]]:
    """The type, and the size of each module that gets something of the total."""
    retained: defaultdict[str, float] = defaultdict(float)
    for row in allocation:
        if method in {None, row.method}:
            retained[row.method] += row.energy * row.retained
    if not retained:
        raise InvalidArgumentError(
            "the total is not split by this method; choose another method, or a rank"
        )
    best = max(retained, key=lambda key: retained[key])
    modules = {matrix.name: matrix.module for matrix in matrices}
    sizes = {row.name: row.size for row in allocation if row.method == best and row.size}
    return TYPES[best], {modules.get(name) or name: size for name, size in sizes.items()}


def _value(value: Any) -> str:
    """Source of a value; a long regular expression is joined from its alternatives."""
    if isinstance(value, str) and len(value) > _WIDTH:
        return f'"|".join({_value(value.split("|"))})'
    text = pformat(value, width=_WIDTH, compact=True, sort_dicts=False)
    if "\n" not in text:
        return text
    # pformat aligns the lines below the first by one space.
    return f"{text[0]}\n{indent(' ' + text[1:-1], '   ')},\n{text[-1]}"
