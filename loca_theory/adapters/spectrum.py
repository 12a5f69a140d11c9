"""The learnable sparse spectrum S(a, l) of an increment."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from loca_theory.adapters.checks import check_scaling, check_whole
from loca_theory.adapters.costs import Implementation, check_implementation, fastest
from loca_theory.adapters.location_gradient import LocationGradient, check_rule
from loca_theory.adapters.operators import Materialised, Way, increment, increment_linear
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.adapters.places import (
    continuous,
    extent,
    mistake,
    random_places,
    rounded,
    spread_out,
)
from loca_theory.errors import InvalidArgumentError

Phase = Literal["coefficients", "locations", "both"]

_PATTERN = SparsityPattern._fields


class CosineSpectrum(nn.Module):
    r"""B components of a p×q increment: :math:`\Delta W = \alpha\,C^\top \mathcal S(a, l)\,D`.

    - ``coefficients`` a, a parameter of shape (B,), zeros at the start (or normal with variance
      1/max(p, q), so that :math:`\lVert\Delta W\rVert_F^2 \approx \alpha^2 B / \max(p, q)`).
    - ``places`` l̂, an integer buffer of shape (B, 2): the places in use. Distinct and uniformly
      random at the start. Being integers, no cast of the model changes them.
    - ``locations`` u ∈ [0, 1], a float32 parameter of shape (B, 2), or None where places are not
      learned: the continuous copy, with :math:`\hat l = \mathrm{round}(u\,(p - 1, q - 1))`
      (halves to even). It stays float32 through every cast of the model, and asks for a gradient
      in location phases alone. Its gradient is that of the place times (p − 1, q − 1). Updates
      that leave [0, 1] are clamped to it.
    - ``shape``, an integer buffer (p, q), with which a checkpoint from another shape is refused.

    Components that share a place add up. When learning ends
    (:meth:`freeze_locations`) each shared place keeps one component with the sum, and the others
    move to free places with coefficient 0, which leaves ΔW as it is.

    Args:
        shape: (p, q) of the increment: outputs, inputs.
        n_components: B, from 1 to p·q.
        scaling: α, positive and finite. The paper uses 1.
        zero_init: Start at ΔW = 0.
        learn_locations: Whether places will be learned.
        location_gradient: The difference that stands for the gradient; see
            :func:`~loca_theory.adapters.location_gradient.location_gradient`.
        implementation: How ΔW is applied; ``auto`` takes what is expected to be fastest.
        seed: Of the random places and coefficients: an integer, or integers.
        name: What errors call the layer.

    Raises:
        InvalidArgumentError: a value outside these ranges.

    Source: equation (original_dct) and section "Estimating location gradient" of the paper.
    """

    places: torch.Tensor
    shape: torch.Tensor

    def __init__(
        self,
        shape: tuple[int, int],
        n_components: int,
        *,
        scaling: float = 1.0,
        zero_init: bool = True,
        learn_locations: bool = True,
        location_gradient: LocationGradient = "central",
        implementation: Implementation = "auto",
        seed: int | tuple[int, ...] = 777,
        name: str = "LoCA layer",
    ) -> None:
        super().__init__()
        _check(shape, n_components, scaling, seed, name)
        try:
            check_rule(location_gradient)
            check_implementation(implementation)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None  # noqa: EM102
        self.name, self.scaling = name, float(scaling)
        self.location_gradient: LocationGradient = location_gradient
        self.implementation: Implementation = implementation
        self.training_schedule: Any = None
        self._idle_until = None
        self._phase: Phase = "coefficients"
        self._keeps_all_in_graph = False
        self._is_settled = not learn_locations
        self._refreshed = -1

        p, q = shape
        generator = np.random.default_rng(seed)
        a = generator.normal(0.0, 0.0 if zero_init else max(p, q) ** -0.5, n_components)
        self.coefficients = nn.Parameter(torch.tensor(a, dtype=torch.get_default_dtype()))
        self.register_buffer("places", random_places(shape, n_components, generator))
        self.register_buffer("shape", torch.tensor(shape))
        for field, part in zip(_PATTERN, SparsityPattern.of(self.places, shape), strict=True):
            self.register_buffer(f"_{field}", part, persistent=False)
        self._size = (p, q)
        self.locations: nn.Parameter | None = None
        if learn_locations:
            self.locations = nn.Parameter(continuous(self.places, self._size), requires_grad=False)

    # --- phases ---

    @property
    def phase(self) -> Phase:
        """What is being learned."""
        return self._phase

    @property
    def learns_locations(self) -> bool:
        """Whether the places may still move, now or later."""
        return not self._is_settled

    def set_phase(self, phase: Phase) -> None:
        """Learn this from now on; what is not learned asks for no gradient and has none.

        A spectrum that was not trainable (frozen, or of an inactive adapter) stays so, and takes
        the phase up when it is made trainable.

        Raises:
            InvalidArgumentError: locations are wanted, and were never to be learned or are frozen.
        """
        if phase != "coefficients" and self._is_settled:
            msg = f"{self.name}: its locations are fixed; make it with learn_locations=True"
            raise InvalidArgumentError(msg)
        trainable = self.coefficients.requires_grad or _asks(self.locations)
        self._phase = phase
        self.set_trainable(trainable)

    def set_trainable(self, trainable: bool) -> None:
        """Ask for the gradients of the phase, or for none."""
        for parameter, learned in self._parameters_learned():
            parameter.requires_grad_(trainable and (learned or self._keeps_all_in_graph))
            if not (trainable and learned):
                parameter.grad = None

    def keep_all_in_graph(self) -> None:
        """Let what is not learned ask for gradients all the same, and get zeros.

        Distributed data parallelism fixes at its start which parameters take part. The zeros must
        be removed before a step (:meth:`drop_idle_gradients`), or decay and momentum would act.
        """
        trainable = self.coefficients.requires_grad or _asks(self.locations)
        self._keeps_all_in_graph = True
        self.set_trainable(trainable)

    def drop_idle_gradients(self) -> None:
        """Remove the gradients of what is not being learned."""
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
        """End the learning of places, and give components that share one places of their own."""
        if self._is_settled:
            return
        self.refresh()
        self._spread_out()
        self._settle()

    def _settle(self) -> None:
        """The places are final."""
        if self.locations is None:
            return
        trainable = self.coefficients.requires_grad or _asks(self.locations)
        self._phase, self._is_settled = "coefficients", True
        if not self._keeps_all_in_graph:
            self.locations = None
        elif not self.locations.is_meta:
            # It belongs to the reducer by now, and goes on with zero gradients.
            self.locations.copy_(continuous(self.places, self._size))
            self._refreshed = self.locations._version
        self.set_trainable(trainable)

    def _spread_out(self) -> None:
        places, a = spread_out(self.places, self.coefficients.detach(), self._size)
        self.coefficients.copy_(a)
        self._use(places)

    # --- places ---

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the places up to date with the continuous locations.

        Raises:
            InvalidArgumentError: a location is NaN.
        """
        if self.locations is None:
            return
        if not torch.compiler.is_compiling() and bool(self.locations.isnan().any()):
            msg = f"{self.name}: its locations have become NaN; lower their learning rate"
            raise InvalidArgumentError(msg)
        self.locations.clamp_(0.0, 1.0)
        self._refreshed = self.locations._version
        self._use(rounded(self.locations, self._size))

    def _use(self, places: torch.Tensor, *, in_place: bool = True) -> None:
        pattern = SparsityPattern.of(places, self._size)
        names = ("places", *(f"_{field}" for field in _PATTERN))
        for name, value in zip(names, (places, *pattern), strict=True):
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
        """The places in use, for sparse products."""
        return SparsityPattern(*(getattr(self, f"_{field}") for field in _PATTERN))

    # --- ΔW ---

    def increment(self) -> torch.Tensor:
        """ΔW, (p, q), in the dtype of the coefficients (computed in float32 at least)."""
        a, l = self._arguments(self.coefficients.dtype)  # noqa: E741
        how: Materialised = "fft"
        if self.implementation in ("dense", "sparse", "fft"):
            how = self.implementation
        delta = increment(
            a,
            l,
            self.places,
            self.pattern(),
            shape=self._size,
            scaling=self.scaling,
            rule=self.location_gradient,
            how=how,
        )
        return delta.to(self.coefficients.dtype)

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        r""":math:`x\,\Delta W^\top`, or :math:`x\,(W + \Delta W)^\top + b` for a frozen W.

        Args:
            x: (..., q), floating. float16 and bfloat16 are computed in float32 and cast back.
            weight: W (p, q) in the dtype of x, float32 or float64, or None.
            bias: b (p,), only with W.

        Returns:
            (..., p) in the dtype of x.

        Raises:
            InvalidArgumentError: x is not q wide.
        """
        if x.ndim == 0 or x.shape[-1] != self._size[1]:
            have = f"not of shape {tuple(x.shape)}"
            msg = f"{self.name}: its input must be {self._size[1]} wide, {have}"
            raise InvalidArgumentError(msg)
        a, l = self._arguments(x.dtype)  # noqa: E741
        implementation = self.implementation
        how: Way = (
            implementation
            if implementation != "auto"
            else fastest(
                self._size,
                a.shape[0],
                x.numel() // max(x.shape[-1], 1),
                trains=torch.is_grad_enabled()
                and (x.requires_grad or a.requires_grad or l is not None),
                foldable=weight is not None,
                device=x.device,
            )
        )
        y = increment_linear(
            x.to(a.dtype),
            weight,
            bias,
            a,
            l,
            self.places,
            self.pattern(),
            rows=self._size[0],
            scaling=self.scaling,
            rule=self.location_gradient,
            how=how,
        )
        return y.to(x.dtype)

    def _arguments(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A and l as the operators take them: float32 at least, in places, idle ones cut off."""
        if self._moved():
            self.refresh()
        self._warn_if_idle()
        working = torch.promote_types(torch.promote_types(dtype, self.coefficients.dtype), _LOWEST)
        a = self.coefficients.to(working)
        if _asks(self.locations) and self.locations is not None:
            l = (self.locations * extent(self._size, a.device)).to(working)  # noqa: E741
        else:
            l = None  # noqa: E741
        if not self._keeps_all_in_graph or l is None:
            return a, l
        if self._phase == "coefficients":
            # Zero gradients, not none: the reducer waits for them.
            return a + 0.0 * l.sum(), None
        if self._phase == "locations":
            return a.detach(), l + 0.0 * a.sum()
        return a, l

    def _warn_if_idle(self) -> None:
        """Say once that nobody learns the locations, after some steps of the coefficients."""
        if self.locations is None or self.training_schedule is not None or self._idle_until == -1:
            return
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if self._phase != "coefficients":
            self._idle_until = -1
        elif self._idle_until is None:
            self._idle_until = self.coefficients._version + _IDLE_CHANGES
        elif self.coefficients._version > self._idle_until:
            self._idle_until = -1
            warnings.warn(
                f"{self.name}: its locations are not being learned; make a LocationTraining(model, "
                "AlternatingSchedule()), or set learn_locations=False",
                stacklevel=4,
            )

    # --- casts and checkpoints ---

    def _apply(self, fn: Any, recurse: bool = True) -> CosineSpectrum:
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
        keys = {name: prefix + name for name in ("places", "locations", "shape", "coefficients")}
        layer = self.name if prefix in ("", "spectrum.") else prefix.rstrip(".")
        wrong = mistake(
            {name: state_dict.get(key) for name, key in keys.items()},
            self._size,
            self.coefficients.shape[0],
        )
        if wrong:
            error_msgs.append(f"{layer}: {wrong}")
            return
        was_learning = keys["locations"] in state_dict
        if self.locations is None:
            state_dict.pop(keys["locations"], None)
        found = keys["places"] in state_dict
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if not found:
            return
        with torch.no_grad():
            # What was on the meta device, or is the caller's own tensor, is not written to.
            self._use(self.places.clone(), in_place=False)
            if self.locations is None:
                if was_learning:
                    # Shared places would make what is saved from here look damaged.
                    self._spread_out()
                return
            if keys["locations"] not in state_dict:
                # The checkpoint was made after learning had ended.
                if keys["locations"] in missing_keys:
                    missing_keys.remove(keys["locations"])
                self._settle()
                return
            self._make_consistent()

    @torch.no_grad()
    def _make_consistent(self) -> None:
        """After loading: float32, and where rounding of a narrow file lost the place, the place."""
        if self.locations is None:
            return
        if self.locations.dtype != torch.float32:
            self.locations.data = self.locations.data.float()
        off = rounded(self.locations, self._size) != self.places
        self.locations.copy_(torch.where(off, continuous(self.places, self._size), self.locations))
        self.refresh()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self._moved():
            self.refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def extra_repr(self) -> str:
        """What print shows."""
        learned = ", learns locations" if self.learns_locations else ""
        b = self.coefficients.shape[0]
        return f"{b} components of {self._size[0]}×{self._size[1]}, scaling={self.scaling}{learned}"


_LOWEST = torch.float32
# So many changes of the coefficients in place are some steps of an optimiser.
_IDLE_CHANGES = 30


def _asks(parameter: torch.Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _check(shape: tuple[int, int], n_components: int, scaling: float, seed: Any, name: str) -> None:
    p, q = shape
    check_whole(f"{name}: the number of components", n_components, 1)
    if n_components > p * q:
        msg = f"{name}: {n_components} components do not fit into {p}×{q} = {p * q} places"
        raise InvalidArgumentError(msg)
    check_scaling(f"{name}: the scaling", scaling)
    for one in seed if isinstance(seed, tuple) else (seed,):
        check_whole(f"{name}: the seed", one, 0)
