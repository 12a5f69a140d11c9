"""The configuration of LoCA in PEFT."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

from peft.config import PeftConfig
from peft.utils import PeftType

from loca_theory._arguments import expression, instance
from loca_theory.adapters.checks import check_choice, check_scaling, check_whole
from loca_theory.adapters.costs import IMPLEMENTATIONS, Implementation
from loca_theory.adapters.search.schedule import AlternatingSchedule
from loca_theory.adapters.search.settings import (
    InitialLocations,
    LocationSearch,
    check_search,
    uses_curvature,
)
from loca_theory.errors import InvalidArgumentError


@dataclass
class LoCAConfig(PeftConfig):
    """Configuration of a :class:`LoCAModel`.

    Attributes:
        n_frequency: B, the number of learned components per target layer.
        scaling: α. The paper finds 1 to 2 best.
        target_modules: Names of the layers to adapt (linear, ``nn.Embedding``, ``nn.Conv2d``), a
            regular expression, or ``all-linear``; None for PEFT's query and value layers of the
            architecture.
        target_parameters: Names of parameters to adapt, such as ``mlp.experts.down_proj``; a list.
            They are matrices, or stacks of matrices (experts, rows, columns), which are adapted as
            the one matrix (experts · rows, columns). Of the searches that record gradients only
            ``swap-raw`` works: the others need the input of each matrix.
        exclude_modules: Names of layers not to adapt, or a regular expression.
        n_frequency_pattern: B of individual layers, by the end of their name or a regular
            expression. Of several keys, the one that fits the longest end of a name counts.
        init_weights: True for ΔW = 0 at the start, False for random coefficients.
        random_loc_seed: Seed of the random locations. Each layer draws its own.
        fan_in_fan_out: Whether target layers store their weight transposed. For information only:
            it is detected and set automatically for ``Conv1D`` of transformers.
        bias: ``none``, ``all`` or ``loca_only``: which biases are trained.
        modules_to_save: Further modules to train and save, such as a new head.
        layers_to_transform: Indices of the layers to adapt.
        layers_pattern: Name of the module list that ``layers_to_transform`` indexes.
        alternating_steps: B_s, the number of steps in which locations are searched for. 0, the
            default, keeps them fixed and random (V1 of the ablation): no search was more accurate
            in the project's experiments. Otherwise call :func:`~loca_theory.adapters.follow`, or
            give the Trainer a :class:`~loca_theory.adapters.LoCACallback`. The paper uses 120 to
            3000; None never stops (V2).
        coefficient_steps: B_a, the steps of a phase that learns coefficients.
        location_steps: B_l, the steps of a phase that learns locations.
        joint: Learn coefficients and locations in every step (V3).
        location_lr: Learning rate of the locations on their scale of [0, 1], for the optimiser of
            the coefficients. A scheduler scales it as well. The paper uses 1e-4.
        location_search: How locations are searched for: ``central``, ``forward`` (V4), ``backward``
            (V5) or ``eight-direction`` differences, or pruning and regrowing across the spectrum:
            ``reselect``, ``swap`` or ``swap-raw``, which move components once every B_a + B_l
            steps and do not use ``location_lr``. The moves of ``swap`` depend on the scale of the
            loss; that of a GradScaler is divided out.
        init_locations: ``random``, or ``gradient`` for the locations with the largest predicted
            decrease of the loss in the first batches. Coefficients are not learned until these
            locations are found.
        recorded_steps: Number of steps whose gradients are summed before pruning and regrowing, and
            at the start for ``init_locations="gradient"``.
        implementation: ``materialised`` forms ΔW, ``implicit`` never does; ``auto`` takes what is
            expected to be faster.

    Raises:
        InvalidArgumentError: a value is out of range, or settings exclude each other.
    """

    n_frequency: int = 1000
    scaling: float = 1.0
    target_modules: list[str] | str | None = None
    target_parameters: list[str] | None = None
    exclude_modules: list[str] | str | None = None
    n_frequency_pattern: dict[str, int] = field(default_factory=dict)
    init_weights: bool = True
    random_loc_seed: int = 777
    fan_in_fan_out: bool = False
    bias: str = "none"
    modules_to_save: list[str] | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    alternating_steps: int | None = 0
    coefficient_steps: int = 10
    location_steps: int = 20
    joint: bool = False
    location_lr: float = 1e-4
    location_search: LocationSearch = "central"
    init_locations: InitialLocations = "random"
    recorded_steps: int = 4
    implementation: Implementation = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType["LOCA"]
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list):
                setattr(self, name, set(getattr(self, name)))
        check_whole("n_frequency", self.n_frequency, 1)
        patterns = instance("n_frequency_pattern", self.n_frequency_pattern or {}, dict)
        for pattern, count in patterns.items():
            expression("n_frequency_pattern", pattern)
            check_whole(f"n_frequency_pattern[{pattern!r}]", count, 1)
        check_scaling("scaling", self.scaling)
        check_whole("random_loc_seed", self.random_loc_seed, 0)
        for name in ("init_weights", "joint", "fan_in_fan_out"):
            check_choice(name, getattr(self, name), (True, False))
        check_search(self.schedule(), self.location_search, self.init_locations, self.location_lr)
        check_choice("implementation", self.implementation, IMPLEMENTATIONS)
        check_choice("bias", self.bias, ("none", "all", "loca_only"))
        self._check_targets()

    def _check_targets(self) -> None:
        names = self.target_parameters or []
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InvalidArgumentError(f"target_parameters must be a list of names, not {names!r}")
        if names and uses_curvature(self.location_search, self.init_locations):
            raise InvalidArgumentError(
                "target_parameters: the curvature needs the input of each matrix, which LoCA "
                "does not see; use location_search='central' with init_locations='random', or "
                "location_search='swap-raw'"
            )
        is_expression = isinstance(self.target_modules, str) and self.target_modules != "all-linear"
        for name in ("layers_to_transform", "layers_pattern") if is_expression else ():
            if getattr(self, name) is not None:
                raise InvalidArgumentError(
                    f"{name} cannot be used when target_modules is a regular expression"
                )
        if self.layers_pattern and self.layers_to_transform is None:
            raise InvalidArgumentError("layers_pattern needs layers_to_transform")

    def components_of(self, layer: str) -> int:
        """B of a layer, whatever the order of the patterns: PEFT sorts them when it saves.

        Args:
            layer: Its full name.

        Raises:
            InvalidArgumentError: patterns that fit the same end of the name differ.
        """
        patterns = self.n_frequency_pattern or {}
        # PEFT's rule for a single pattern.
        fits = {key: re.match(rf"(.*\.)?({key})$", layer) for key in patterns}
        ends = {key: len(match[2]) for key, match in fits.items() if match}
        best = [key for key in ends if ends[key] == max(ends.values())]
        if len({patterns[key] for key in best}) > 1:
            raise InvalidArgumentError(
                f"{layer}: {' and '.join(map(repr, best))} of n_frequency_pattern fit the same "
                "end of its name; keep only one, or let one name more of the layer"
            )
        return patterns[best[0]] if best else self.n_frequency

    def search_schedule(self) -> AlternatingSchedule | None:
        """The schedule of a layer that is trained and whose locations are not fixed, else None."""
        is_fixed = self.alternating_steps == 0 and self.init_locations == "random"
        return None if self.inference_mode or is_fixed else self.schedule()

    def schedule(self) -> AlternatingSchedule:
        """The schedule of the phases in which coefficients and locations are learned."""
        names = [field.name for field in fields(AlternatingSchedule)]
        return AlternatingSchedule(**{name: getattr(self, name) for name in names})
