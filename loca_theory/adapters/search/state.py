"""What a layer keeps of its search: parameter, buffers and settings."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from loca_theory.adapters.search.schedule import AlternatingSchedule, Phase
from loca_theory.adapters.search.settings import (
    InitialLocations,
    LocationSearch,
    check_search,
    is_prune_and_regrow,
)
from loca_theory.adapters.search.sharding import is_distributed, is_sharded
from loca_theory.adapters.search.statistics import GradientStatistics
from loca_theory.errors import InvalidArgumentError
from loca_theory.locations.gradient import LocationGradient

_LOWEST = torch.float32
HOW_TO_FOLLOW = (
    "nobody follows the search of LoCA, so its locations rest; call follow(model, optimizer) of "
    "loca_theory.adapters before training, or give the Trainer callbacks=[LoCACallback()]"
)


class SearchState(nn.Module):
    """Base of :class:`~loca_theory.adapters.CosineSpectrum`, which explains the state."""

    coefficients: nn.Parameter
    indices: torch.Tensor
    name: str
    scaling: float
    _size: tuple[int, int]
    steps: torch.Tensor | None
    dropped: torch.Tensor | None
    offset: nn.Parameter | None
    recorded: GradientStatistics | None  # while a search records
    _is_replica = False  # nn.DataParallel sets it
    _was_told = False  # of any layer, that nobody follows

    def _begin_search(
        self,
        schedule: AlternatingSchedule | None,
        location_search: LocationSearch,
        init_locations: InitialLocations,
        location_lr: float,
    ) -> None:
        check_search(
            schedule or AlternatingSchedule(), location_search, init_locations, location_lr
        )
        self.schedule, self.location_search = schedule, location_search
        self.init_locations, self.location_lr = init_locations, location_lr
        self.steps_done = 0
        self.has_moved: Any = False
        self.following: Any = None  # the Following whose optimiser moves the locations
        self.search: Any = None  # of loca_theory.adapters.search, while it is followed
        self._released: tuple[torch.Tensor, ...] = ()  # the offset of a search that is over
        self._trained: int | None = None
        self.is_shared = False  # whether several processes train it
        self.register_parameter("offset", None)
        ends_at_once = schedule is None or (self.start_steps == 0 and schedule.is_over(0))
        steps = None if ends_at_once else torch.zeros((), dtype=torch.long)
        self.register_buffer("steps", steps)
        self.register_buffer("dropped", None)
        self.recorded = None

    @property
    def is_searching(self) -> bool:
        """Whether the indices are not final yet."""
        return self.steps is not None

    @property
    def phase(self) -> Phase | None:
        """What the next step learns; None if nobody follows, or the search is over."""
        return None if self.search is None else self.search.phase

    @property
    def start_steps(self) -> int:
        """The number of steps before the search, whose gradients choose the first locations."""
        starts = self.schedule is not None and self.init_locations == "gradient"
        return self.schedule.recorded_steps if self.schedule and starts else 0

    @property
    def needs_offset(self) -> bool:
        """Whether locations are learned as parameters."""
        schedule = self.schedule
        along = not is_prune_and_regrow(self.location_search)
        return along and schedule is not None and not schedule.is_over(self.start_steps)

    def add_offset(self) -> None:
        """Make the parameter of the locations, in single precision at least."""
        a, self.is_shared = self.coefficients, is_distributed()
        dtype = torch.promote_types(a.dtype, _LOWEST)
        zeros = torch.zeros(self.indices.shape, dtype=dtype, device=a.device)
        self.offset = nn.Parameter(zeros, requires_grad=a.requires_grad)

    def start_recording(self) -> None:
        """Record gradients from the next step on."""
        dtype = torch.promote_types(self.coefficients.dtype, _LOWEST)
        device = self.indices.device
        self.recorded = GradientStatistics(self._size, self.scaling, dtype, device)

    def count_step(self) -> None:
        """Count a step of the optimiser."""
        self.steps_done += 1
        if self.steps is not None:
            self.steps.fill_(self.steps_done)

    def finish_search(self) -> None:
        """End the search: the indices are distinct and final."""
        if self.search is not None:
            self.search.finish()
        self._drop_search()
        if self.following is not None:
            self.following.end(self)

    def _drop_search(self) -> None:
        self.steps = self.dropped = self.recorded = None
        offset = self.offset
        if offset is None or is_sharded(offset):  # FSDP2 would put it back
            return
        self.offset, self._released = None, (offset,) if self.is_shared else ()

    def _warn_if_nobody_follows(self) -> None:
        """Warn, once, that an optimiser has stepped and nobody follows."""
        trains = torch.is_grad_enabled() and self.coefficients.requires_grad and self.training
        if self.steps is None or not trains or torch.compiler.is_compiling():
            return
        version = self.coefficients._version
        was_trained = self._trained is not None and self._trained != version
        self._trained = version
        if was_trained and not self._was_told:
            type(self)._was_told = True
            warnings.warn(HOW_TO_FOLLOW, stacklevel=2)

    def records(self, y: torch.Tensor) -> bool:
        """Whether a search records the gradient of the output y in this step.

        Compiled code is the same in all steps of a search, and asks the search when it runs.

        Raises:
            InvalidArgumentError: nn.DataParallel runs a search that records.
        """
        if self.search is None or not y.requires_grad:
            return False
        if self._is_replica and self.search.may_record:
            msg = f"{self.name}: a search that records gradients cannot follow nn.DataParallel; "
            msg += "start the script by torchrun (DistributedDataParallel), make one GPU visible, "
            msg += "or set alternating_steps=0"
            raise InvalidArgumentError(msg)
        is_compiling = torch.compiler.is_compiling()
        return self.search.may_record if is_compiling else self.search.is_recording

    def _without_dropped(self, a: torch.Tensor) -> torch.Tensor:
        trains = self.coefficients.requires_grad and (self.training or torch.is_grad_enabled())
        if self.search is None or self.dropped is None or not trains:
            return a
        return a.masked_fill(self.dropped, 0.0)

    @property
    def _rule(self) -> LocationGradient:
        rule: Any = self.location_search
        return "central" if is_prune_and_regrow(rule) else rule

    def _prepare_search(self, saved: dict[str, Any], records: bool) -> None:
        """Make the parts of a saved search, which is over if its ``steps`` are not there."""
        if not self.indices.is_meta:
            self.has_moved = not torch.equal(saved["indices"].to(self.indices), self.indices)
        if self.schedule is None or saved["steps"] is None:
            self._drop_search()
            return
        self.steps = torch.zeros_like(saved["steps"], device=self.indices.device)
        self.dropped = None if saved["dropped"] is None else torch.zeros_like(saved["dropped"])
        self.recorded = None
        if records:
            self.start_recording()
        if self.offset is None and saved["offset"] is not None:
            self.add_offset()
