"""The configuration of LoCA in PEFT."""

from __future__ import annotations

from dataclasses import dataclass, field

from peft.config import PeftConfig
from peft.utils import PeftType

from loca_theory.adapters.checks import check_scaling, check_whole
from loca_theory.adapters.costs import Implementation, check_implementation
from loca_theory.adapters.location_search import (
    InitialLocations,
    LocationSearch,
    check_initial_locations,
    check_search,
    is_prune_and_regrow,
)
from loca_theory.adapters.schedule import AlternatingSchedule
from loca_theory.errors import InvalidArgumentError


@dataclass
class LoCAConfig(PeftConfig):
    """Configuration of a :class:`LoCAModel`.

    Attributes:
        n_frequency: B, the number of learned components per target layer.
        scaling: α. The paper finds 1 to 2 best.
        target_modules: Names of the linear layers to adapt, a regular expression, or
            ``all-linear``; None for PEFT's query and value layers of the architecture.
        exclude_modules: Names of layers not to adapt, or a regular expression.
        n_frequency_pattern: B of individual layers, by the end of their name or a regular
            expression.
        init_weights: True for ΔW = 0 at the start, False for random coefficients.
        random_loc_seed: Seed of the random locations. Each layer draws its own.
        fan_in_fan_out: Whether target layers store their weight transposed. For information only:
            it is detected and set automatically for ``Conv1D`` of transformers.
        bias: ``none``, ``all`` or ``loca_only``: which biases are trained.
        modules_to_save: Further modules to train and save, such as a new head.
        layers_to_transform: Indices of the layers to adapt.
        layers_pattern: Name of the module list that ``layers_to_transform`` indexes.
        alternating_steps: B_s, the number of steps after which the locations are frozen; 0 for
            fixed random locations (V1 of the ablation), None to freeze them never (V2). An adapter
            that is saved after these steps stays frozen if it is loaded for further training. An
            adapter that is saved earlier starts a new schedule, unless the Trainer resumes from it
            or ``LocationTraining.go_to`` sets the step.
        coefficient_steps: B_a.
        location_steps: B_l.
        joint: Learn coefficients and locations in every step (V3).
        as_printed: Count steps from 1 as Algorithm 1 does: its first phase is one step shorter.
        location_search: How locations are searched for: ``central``, ``forward`` (V4), ``backward``
            (V5) or ``eight-direction`` differences, or pruning and regrowing across the spectrum:
            ``reselect``, ``swap`` or ``swap-raw``, which do not use a learning rate of the
            locations and move components once every B_a + B_l steps. The moves of ``swap`` depend
            on the scale of the loss: with a GradScaler, which changes it, use ``reselect`` or
            bfloat16.
        init_locations: ``random``, or ``gradient`` for the locations with the largest predicted
            decrease of the loss in the first batches. Coefficients are not learned until these
            locations are found.
        recorded_steps: Number of steps whose gradients are summed before pruning and regrowing, and
            at the start for ``init_locations="gradient"``.
        implementation: ``auto``, ``dense``, ``fft``, ``sparse`` or ``implicit``.

    Raises:
        InvalidArgumentError: a value is out of range, or settings exclude each other.
    """

    n_frequency: int = field(default=1000, metadata={"help": "Learned components per layer."})
    scaling: float = field(default=1.0, metadata={"help": "Scale of the increment."})
    target_modules: list[str] | str | None = field(
        default=None, metadata={"help": "Names, or a regular expression, of the target layers."}
    )
    exclude_modules: list[str] | str | None = field(
        default=None, metadata={"help": "Names, or a regular expression, of layers not to adapt."}
    )
    n_frequency_pattern: dict[str, int] = field(
        default_factory=dict, metadata={"help": "Components of individual layers, by name."}
    )
    init_weights: bool = field(default=True, metadata={"help": "Start at an increment of 0."})
    random_loc_seed: int = field(default=777, metadata={"help": "Seed of the locations."})
    fan_in_fan_out: bool = field(
        default=False, metadata={"help": "Whether weights are stored transposed."}
    )
    bias: str = field(default="none", metadata={"help": "'none', 'all' or 'loca_only'."})
    modules_to_save: list[str] | None = field(
        default=None, metadata={"help": "Further modules to train and save."}
    )
    layers_to_transform: list[int] | int | None = field(
        default=None, metadata={"help": "Indices of the layers to adapt."}
    )
    layers_pattern: list[str] | str | None = field(
        default=None, metadata={"help": "Name of the list that layers_to_transform indexes."}
    )
    alternating_steps: int | None = field(
        default=600, metadata={"help": "Steps until locations are frozen."}
    )
    coefficient_steps: int = field(default=10, metadata={"help": "Steps of a coefficient phase."})
    location_steps: int = field(default=20, metadata={"help": "Steps of a location phase."})
    joint: bool = field(
        default=False, metadata={"help": "Learn coefficients and locations in every step."}
    )
    as_printed: bool = field(default=False, metadata={"help": "Count steps as Algorithm 1 does."})
    location_search: LocationSearch = field(
        default="central", metadata={"help": "How locations are searched for."}
    )
    init_locations: InitialLocations = field(
        default="random", metadata={"help": "Initial locations."}
    )
    recorded_steps: int = field(
        default=4,
        metadata={"help": "Steps whose gradients are summed before pruning and regrowing."},
    )
    implementation: Implementation = field(
        default="auto", metadata={"help": "How the increment is applied."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType["LOCA"]
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list):
                setattr(self, name, set(getattr(self, name)))
        self._check_numbers()
        self._check_search()
        check_implementation(self.implementation)
        self.schedule()
        if self.bias not in ("none", "all", "loca_only"):
            msg = f"bias must be none, all or loca_only, not {self.bias!r}"
            raise InvalidArgumentError(msg)
        if isinstance(self.target_modules, str) and self.target_modules != "all-linear":
            for name in ("layers_to_transform", "layers_pattern"):
                if getattr(self, name) is not None:
                    msg = f"{name} cannot be used when target_modules is a regular expression"
                    raise InvalidArgumentError(msg)
        if self.layers_pattern and self.layers_to_transform is None:
            msg = "layers_pattern needs layers_to_transform"
            raise InvalidArgumentError(msg)

    def _check_search(self) -> None:
        check_search(self.location_search)
        check_initial_locations(self.init_locations)
        if self.joint and is_prune_and_regrow(self.location_search):
            msg = "joint=True learns locations by a gradient, which location_search="
            msg += f"{self.location_search!r} does not use; set joint=False"
            raise InvalidArgumentError(msg)

    def _check_numbers(self) -> None:
        counts = {"n_frequency": self.n_frequency}
        for pattern, count in (self.n_frequency_pattern or {}).items():
            counts[f"n_frequency_pattern[{pattern!r}]"] = count
        for name, count in counts.items():
            check_whole(name, count, 1)
        check_scaling("scaling", self.scaling)
        check_whole("random_loc_seed", self.random_loc_seed, 0)
        for name in ("init_weights", "joint", "as_printed", "fan_in_fan_out"):
            if not isinstance(getattr(self, name), bool):
                msg = f"{name} must be True or False, not {getattr(self, name)!r}"
                raise InvalidArgumentError(msg)

    def schedule(self) -> AlternatingSchedule:
        """The schedule of the phases in which coefficients and locations are learned."""
        return AlternatingSchedule(
            coefficient_steps=self.coefficient_steps,
            location_steps=self.location_steps,
            alternating_steps=self.alternating_steps,
            joint=self.joint,
            as_printed=self.as_printed,
            recorded_steps=self.recorded_steps,
        )
