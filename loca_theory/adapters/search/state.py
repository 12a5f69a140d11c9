"""The state of a layer's search: parameter, buffers and settings, and their loading."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch
from torch import nn

from loca_theory.adapters.indices import mistake
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

LOWEST = torch.float32
_RECORDED = "recorded.gradient_sum"
HOW_TO_FOLLOW = (
    "nobody follows the search of LoCA, so its locations rest; call follow(model, optimizer) of "
    "loca_theory.adapters before training, or give the Trainer callbacks=[LoCACallback()]"
)


class SearchState(nn.Module):
    """Base of :class:`~loca_theory.adapters.CosineSpectrum`, which explains the state."""

    name: str
    scaling: float
    indices: torch.Tensor
    shape: torch.Tensor
    _arrange: Any
    steps: torch.Tensor | None
    dropped: torch.Tensor | None
    offset: nn.Parameter | None
    recorded: GradientStatistics | None  # while a search records
    following: Any = None  # the Following whose optimiser moves the locations
    search: Any = None  # of loca_theory.adapters.search, while it is followed
    ahead = 0  # steps by which a followed search is ahead of its schedule
    steps_done = 0
    has_moved: Any = False
    is_shared = False  # whether several processes train it
    _released: tuple[torch.Tensor | None] = (None,)  # the offset of a search that is over
    _watched: Any = None  # a weak reference to the coefficients whose gradients are watched
    _trained: torch.Tensor | None = None  # a copy of them at an earlier gradient
    _is_replica = False  # nn.DataParallel sets it
    _is_loading = False
    _was_told = False  # of any layer, that nobody follows

    def __init__(
        self,
        coefficients: torch.Tensor,
        indices: torch.Tensor,
        shape: tuple[int, int],
        schedule: AlternatingSchedule | None,
        search: LocationSearch,
        start: InitialLocations,
        location_lr: float,
    ) -> None:
        check_search(schedule or AlternatingSchedule(), search, start, location_lr)
        super().__init__()
        self.schedule, self.location_search, self.location_lr = schedule, search, location_lr
        self.is_along_gradient = not is_prune_and_regrow(search)
        self.rule: Any = search if self.is_along_gradient else "central"
        # Whose gradients choose the first locations.
        self.start_steps = schedule.recorded_steps if schedule and start == "gradient" else 0
        is_over = schedule is None or (self.start_steps == 0 and schedule.is_over(0))
        self._size = shape
        self.coefficients = nn.Parameter(coefficients)
        self.register_buffer("indices", indices)
        self.register_buffer("shape", torch.tensor(shape))
        self.register_buffer("steps", None if is_over else torch.zeros((), dtype=torch.long))
        self.register_buffer("dropped", None)
        self.register_parameter("offset", None)
        self.recorded = None
        self._watch_gradients()

    @property
    def is_searching(self) -> bool:
        """Whether the indices are not final yet."""
        return self.steps is not None

    @property
    def phase(self) -> Phase | None:
        """The phase of the next step; None if nobody follows, or the search is over."""
        return None if self.search is None else self.search.phase

    @property
    def lacks_offset(self) -> bool:
        """Whether the search is along a gradient and has no parameter of the locations yet."""
        is_over = self.schedule is None or self.schedule.is_over(self.start_steps)
        return self.is_along_gradient and self.offset is None and not is_over

    def add_offset(self) -> None:
        """Make the parameter of the locations, in single precision at least."""
        a, self.is_shared = self.coefficients, is_distributed()
        dtype = torch.promote_types(a.dtype, LOWEST)
        zeros = torch.zeros(self.indices.shape, dtype=dtype, device=a.device)
        self.offset = nn.Parameter(zeros, requires_grad=a.requires_grad)

    def start_recording(self) -> None:
        """Record gradients from the next step on."""
        dtype = torch.promote_types(self.coefficients.dtype, LOWEST)
        self.recorded = GradientStatistics(self._size, self.scaling, dtype, self.indices.device)

    def finish_search(self) -> None:
        """End the search: the indices are distinct and final."""
        if self.search is not None:
            self.search.finish()
        self._drop_search()

    def _drop_search(self) -> None:
        offset = self.offset
        if self.following is not None:
            self.following.release(offset)
        self.following = self.search = self.steps = self.dropped = self.recorded = None
        if not (offset is None or is_sharded(offset)):  # FSDP2 would put it back
            # In a tuple, or torch would register it again.
            self.offset, self._released = None, (offset if self.is_shared else None,)

    def _watch_gradients(self) -> None:
        """Let each gradient of the coefficients ask whether they train while nobody follows.

        Compiled code calls hooks that were set before, as by the constructor. Casts and moves keep
        them; a copy, or coefficients loaded by assignment, get theirs from the next eager pass.
        """
        a = self.coefficients
        if torch.compiler.is_compiling() or (self._watched is not None and self._watched() is a):
            return
        if self.is_searching and a.is_leaf and a.requires_grad:
            layer = weakref.ref(self)  # a reference would keep the layer alive in a cycle

            def ask(a: torch.Tensor) -> None:
                if (spectrum := layer()) is not None:
                    spectrum._warn_if_nobody_follows(a)

            a.register_post_accumulate_grad_hook(ask)
            self._watched, self._trained = weakref.ref(a), None

    def _warn_if_nobody_follows(self, a: torch.Tensor) -> None:
        """Warn, once, that the coefficients have changed between two gradients.

        Their values tell: fused optimisers do not count as writing in place.
        """
        before, self._trained = self._trained, None
        if self.search is not None or not self.is_searching or self._was_told:
            return
        if before is None or torch.equal(before.to(a), a):
            self._trained = a.detach().clone()
            return
        type(self)._was_told = True
        warnings.warn(HOW_TO_FOLLOW, stacklevel=2)

    def records(self, y: torch.Tensor) -> bool:
        """Whether a search records the gradient of the output y in this step.

        Compiled code is the same in all steps of a search, and asks the search when it runs.
        """
        if self.search is None or not y.requires_grad:
            return False
        if self._is_replica and self.search.may_record:
            raise InvalidArgumentError(
                f"{self.name}: a search that records gradients cannot follow nn.DataParallel; "
                "start the script by torchrun, make one GPU visible, or set alternating_steps=0"
            )
        is_compiling = torch.compiler.is_compiling()
        return self.search.may_record if is_compiling else self.recorded is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "following": None, "search": None, "_watched": None}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # transformers loads an adapter by assignment, without the state of its search. Casts and
        # moves of a module do not assign.
        if name == "indices" and not (self._is_loading or self._is_replica):
            self._drop_search()

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        missing_keys, unexpected_keys, error_msgs = arguments[-3:]
        names = ("coefficients", "indices", "shape", "offset", "steps", "dropped", _RECORDED)
        saved = {name: state_dict.get(prefix + name) for name in names}
        wrong = mistake(saved, self._size, self.coefficients.shape[0])
        if wrong:
            error_msgs.append(f"{prefix.rstrip('.') or self.name}: {wrong}")
            return
        if saved["indices"] is not None:
            self._prepare_search(saved)
        self._is_loading = True
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self._is_loading, self._trained = False, None
        prefixes = tuple(f"{prefix}{name}" for name in ("offset", "steps", "dropped", "recorded."))
        for keys in (missing_keys, unexpected_keys):
            keys[:] = [key for key in keys if not key.startswith(prefixes)]
        if saved["indices"] is not None:
            self._arrange()
            if self.steps is not None:
                self.steps_done = int(self.steps)
            if self.following is not None:
                self.following.begin(self)

    def _prepare_search(self, saved: dict[str, Any]) -> None:
        """Make the parts of a saved search, which is over if its ``steps`` are not there."""
        if not self.indices.is_meta:
            self.has_moved = not torch.equal(saved["indices"].to(self.indices), self.indices)
        if self.schedule is None or saved["steps"] is None:
            self._drop_search()
            return
        for name in ("steps", "dropped"):
            counts = saved[name]
            empty = None if counts is None else torch.zeros_like(counts, device=self.indices.device)
            setattr(self, name, empty)
        self.recorded = None
        if saved[_RECORDED] is not None:
            self.start_recording()
        if self.offset is None and saved["offset"] is not None:
            self.add_offset()
