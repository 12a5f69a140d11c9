"""The learned parameters of a sparse spectrum, coefficients and locations, and their phases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from loca_theory.adapters.checks import check_scaling, check_whole
from loca_theory.adapters.indices import (
    continuous,
    mistake,
    random_indices,
    rounded,
    spread_out,
)
from loca_theory.adapters.location_search import (
    InitialLocations,
    LocationSearch,
    check_initial_locations,
    check_search,
    is_prune_and_regrow,
)
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.errors import InvalidArgumentError

Phase = Literal["coefficients", "locations", "both"]

_PATTERN = SparsityPattern._fields
# Keys of a checkpoint. Until the locations are frozen, it also has `locations` (gradient searches)
# or `searching` (prune-and-regrow searches).
_SAVED = ("coefficients", "indices", "shape", "locations", "searching")


class SpectrumParameters(nn.Module):
    """Coefficients and locations of a p×q spectrum, their phases, casts and checkpoints.

    The base class of :class:`~loca_theory.adapters.CosineSpectrum`, which documents the arguments.

    Raises:
        InvalidArgumentError: a value is out of range.
    """

    indices: torch.Tensor
    shape: torch.Tensor
    searching: torch.Tensor | None

    def __init__(
        self,
        shape: tuple[int, int],
        n_components: int,
        *,
        scaling: float,
        zero_init: bool,
        learn_locations: bool,
        location_search: LocationSearch,
        init_locations: InitialLocations,
        seed: int | tuple[int, ...],
        name: str,
    ) -> None:
        super().__init__()
        _check(shape, n_components, scaling, seed, name)
        try:
            check_search(location_search)
            check_initial_locations(init_locations)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None  # noqa: EM102
        self.name, self.scaling, self.zero_init = name, float(scaling), zero_init
        self.location_search: LocationSearch = location_search
        self.training_schedule: Any = None
        self.needs_initialisation = init_locations == "gradient"
        self._phase: Phase = "coefficients"
        self._keeps_all_in_graph = False
        self._is_final = not learn_locations
        self._refreshed = -1

        p, q = shape
        generator = np.random.default_rng(seed)
        a = generator.normal(0.0, 0.0 if zero_init else max(p, q) ** -0.5, n_components)
        self.coefficients = nn.Parameter(torch.tensor(a, dtype=torch.get_default_dtype()))
        self.register_buffer("indices", random_indices(shape, n_components, generator))
        self.register_buffer("shape", torch.tensor(shape))
        for field, part in zip(_PATTERN, SparsityPattern.of(self.indices, shape), strict=True):
            self.register_buffer(f"_{field}", part, persistent=False)
        self._size = (p, q)
        self.locations: nn.Parameter | None = None
        if learn_locations and not self.prunes_and_regrows:
            self.locations = nn.Parameter(continuous(self.indices, self._size), requires_grad=False)
        # In a checkpoint, the buffer records whether the search is over.
        is_searching = learn_locations and self.prunes_and_regrows
        self.register_buffer("searching", torch.tensor(data=True) if is_searching else None)

    # --- phases ---

    @property
    def phase(self) -> Phase:
        """Which parameters are being learned."""
        return self._phase

    @property
    def learns_locations(self) -> bool:
        """Whether the locations can still move, in this phase or a later one."""
        return not self._is_final

    @property
    def prunes_and_regrows(self) -> bool:
        """Whether the search moves components across the spectrum, not along a gradient."""
        return is_prune_and_regrow(self.location_search)

    def set_phase(self, phase: Phase) -> None:
        """Start a phase: only its parameters require gradients; other gradients are removed.

        A spectrum that is not trainable (frozen, or of an inactive adapter) stays so, and uses the
        phase when it is made trainable.

        Raises:
            InvalidArgumentError: the phase learns locations, but they are fixed or frozen, or the
                search prunes and regrows and so has no parameter for them.
        """
        if phase != "coefficients" and self.prunes_and_regrows:
            msg = f"{self.name}: location_search={self.location_search!r} has no phase {phase!r}; "
            msg += "keep the phase 'coefficients'"
            raise InvalidArgumentError(msg)
        if phase != "coefficients" and self._is_final:
            msg = f"{self.name}: its locations are fixed; create it with learn_locations=True"
            raise InvalidArgumentError(msg)
        trainable = self.coefficients.requires_grad or requires_grad(self.locations)
        self._phase = phase
        self.set_trainable(trainable)

    def set_trainable(self, trainable: bool) -> None:
        """Turn the gradients of the parameters of the phase on or off."""
        for parameter, learned in self._parameters_learned():
            parameter.requires_grad_(trainable and (learned or self._keeps_all_in_graph))
            if not (trainable and learned):
                parameter.grad = None

    def keep_all_in_graph(self) -> None:
        """Require gradients of all parameters; those that are not learned get zero gradients.

        Distributed data parallelism fixes at its start which parameters it synchronises. The zero
        gradients must be removed before a step (:meth:`drop_idle_gradients`), because weight decay
        and momentum would otherwise change the parameters.
        """
        trainable = self.coefficients.requires_grad or requires_grad(self.locations)
        self._keeps_all_in_graph = True
        self.set_trainable(trainable)

    def drop_idle_gradients(self) -> None:
        """Remove the gradients of parameters that are not being learned."""
        if self.needs_initialisation:
            self.coefficients.grad = None
        for parameter, learned in self._parameters_learned():
            if not learned:
                parameter.grad = None

    def _parameters_learned(self) -> list[tuple[nn.Parameter, bool]]:
        pairs = [(self.coefficients, self._phase != "locations")]
        if self.locations is not None:
            pairs.append((self.locations, self._phase != "coefficients"))
        return pairs

    @torch.no_grad()
    def freeze_locations(self) -> None:
        """Make the locations final; components that share a location are separated first."""
        if self._is_final:
            return
        self.refresh()
        self._spread_out()
        self._mark_frozen()

    def _mark_frozen(self) -> None:
        """Stop learning the locations, which stay as they are."""
        if self.locations is None:
            self._is_final = True
            if self.searching is not None:
                # Not in place: the buffer may be the caller's own tensor.
                self.searching = torch.zeros_like(self.searching)
            return
        trainable = self.coefficients.requires_grad or requires_grad(self.locations)
        self._phase, self._is_final = "coefficients", True
        if not self._keeps_all_in_graph:
            self.locations = None
        elif not self.locations.is_meta:
            # The reducer already holds the parameter, so it stays and gets zero gradients.
            self._align_locations()
        self.set_trainable(trainable)

    def _spread_out(self) -> None:
        indices, a = spread_out(self.indices, self.coefficients.detach(), self._size)
        self.coefficients.copy_(a)
        self._use(indices)

    # --- locations ---

    @torch.no_grad()
    def refresh(self, *, is_checked: bool = False) -> None:
        """Set ``indices`` to the rounded continuous locations.

        Args:
            is_checked: Whether :func:`check_locations` has already been called.

        Raises:
            InvalidArgumentError: a location is NaN.
        """
        if self.locations is None:
            return
        if not is_checked and not torch.compiler.is_compiling():
            check_locations([self])
        self.locations.clamp_(0.0, 1.0)
        self._refreshed = self.locations._version
        self._use(rounded(self.locations, self._size))

    def set_indices(self, indices: torch.Tensor) -> None:
        """Move the components to these locations, integers (B, 2)."""
        self._use(indices)
        self._align_locations()

    def _align_locations(self) -> None:
        """Set the continuous locations, if any, to ``indices``, also if on the meta device."""
        if self.locations is None:
            return
        values = continuous(self.indices, self._size)
        if self.locations.is_meta:
            self.locations = nn.Parameter(values, requires_grad=False)
        else:
            self.locations.copy_(values)
        self._refreshed = self.locations._version

    def _use(self, indices: torch.Tensor, *, in_place: bool = True) -> None:
        pattern = SparsityPattern.of(indices, self._size)
        names = ("indices", *(f"_{field}" for field in _PATTERN))
        for name, value in zip(names, (indices, *pattern), strict=True):
            if in_place:
                getattr(self, name).copy_(value)
            else:
                setattr(self, name, value)

    def _moved(self) -> bool:
        if self.locations is None or self.locations.is_meta:
            return False
        if torch.compiler.is_compiling():
            return self._phase != "coefficients"
        return self.locations._version != self._refreshed

    def pattern(self) -> SparsityPattern:
        """The locations in use, for sparse products."""
        return SparsityPattern(*(getattr(self, f"_{field}") for field in _PATTERN))

    # --- casts and checkpoints ---

    def _apply(self, fn: Any, recurse: bool = True) -> SpectrumParameters:
        before = None if self.locations is None else self.locations.data
        super()._apply(fn, recurse)
        if (
            self.locations is not None
            and before is not None
            and self.locations.dtype != before.dtype
        ):
            self.locations.data = before.to(self.locations.device)
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        keys = {name: prefix + name for name in _SAVED}
        layer = self.name if prefix in ("", "spectrum.") else prefix.rstrip(".")
        wrong = mistake(
            {name: state_dict.get(key) for name, key in keys.items()},
            self._size,
            self.coefficients.shape[0],
        )
        if wrong:
            error_msgs.append(f"{layer}: {wrong}")
            return
        was_searching = state_dict.get(keys["searching"])
        had_locations = keys["locations"] in state_dict
        is_unfinished = had_locations or (was_searching is not None and bool(was_searching))
        found = keys["indices"] in state_dict
        for name in ("locations", "searching"):
            if getattr(self, name) is None:
                state_dict.pop(keys[name], None)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if not found:
            return
        for name in ("locations", "searching"):
            # A checkpoint of another search, or of frozen locations, does not have them.
            if keys[name] in missing_keys:
                missing_keys.remove(keys[name])
        a = self.coefficients
        if a.is_meta or bool(a.any()):
            self.needs_initialisation = False  # coefficients were learned at these locations
        with torch.no_grad():
            # Not in place: buffers may be on the meta device, or be the caller's own tensors.
            self._use(self.indices.clone(), in_place=False)
            if self.locations is None and had_locations:
                # With shared locations, a checkpoint saved from here would be refused.
                self._spread_out()
            if not is_unfinished:
                self._mark_frozen()
            elif self.locations is not None:
                if not had_locations:
                    self._align_locations()
                self._make_consistent()

    @torch.no_grad()
    def _make_consistent(self) -> None:
        """Make loaded locations float32, and reset those that no longer round to ``indices``.

        A checkpoint in a narrow dtype has rounded them.
        """
        if self.locations is None:
            return
        if self.locations.dtype != torch.float32:
            self.locations.data = self.locations.data.float()
        off = rounded(self.locations, self._size) != self.indices
        self.locations.copy_(torch.where(off, continuous(self.indices, self._size), self.locations))
        self.refresh()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self._moved():
            self.refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)


def check_locations(spectra: Iterable[SpectrumParameters]) -> None:
    """Check that no location is NaN, with one synchronisation of a GPU for all spectra.

    Raises:
        InvalidArgumentError: a location is NaN.
    """
    found = [(s, s.locations.isnan().any()) for s in spectra if s.locations is not None]
    if not found or not bool(torch.stack([bad.to(found[0][1].device) for _, bad in found]).any()):
        return
    name = next(s.name for s, bad in found if bool(bad))
    msg = f"{name}: its locations have become NaN; lower their learning rate"
    raise InvalidArgumentError(msg)


def requires_grad(parameter: torch.Tensor | None) -> bool:
    """Whether the parameter exists and requires a gradient."""
    return parameter is not None and parameter.requires_grad


def _check(shape: tuple[int, int], n_components: int, scaling: float, seed: Any, name: str) -> None:
    p, q = shape
    check_whole(f"{name}: n_components", n_components, 1)
    if n_components > p * q:
        msg = f"{name}: {n_components} components do not fit into {p}×{q} = {p * q} locations"
        raise InvalidArgumentError(msg)
    check_scaling(f"{name}: scaling", scaling)
    for one in seed if isinstance(seed, tuple) else (seed,):
        check_whole(f"{name}: seed", one, 0)
