"""Following the steps of one optimiser."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from loca_theory.adapters.search.gradient import GradientSearch, move_all
from loca_theory.adapters.search.regrow import GradientStart, PruneAndRegrow
from loca_theory.adapters.search.settings import is_prune_and_regrow
from loca_theory.adapters.search.sharding import fill_with_zeros, is_distributed
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError

# Key of a parameter group: its learning rate when the search began, if no scheduler has noted it.
_RATE = "rate_at_start"


def follow(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, scaler: Any = None
) -> Following | None:
    """Let a search for locations follow the steps of an optimiser.

    It adds the layers' ``offset`` to the optimiser, beside the coefficients in their group, and two
    hooks to this optimiser: one before a step, which drops the gradient of what rests, and one
    after it, which moves the locations and counts. A step is one of the optimiser, so gradient
    accumulation, steps that a GradScaler skips, and repeated forward passes of checkpointing do not
    count. When the search is over, ``offset`` is removed again.

    The optimiser steps the locations by its own rule, at ``location_lr`` times its learning rate as
    a fraction of the initial one (at most 1), without weight decay. To resume, load the states of
    model and optimiser, before or after this call.

    Args:
        model: A model with layers that have a schedule.
        optimizer: The optimiser, of torch. None only adds the parameters: call it so before
            DistributedDataParallel or ``fully_shard`` wraps the model, and again with the
            optimiser.
        scaler: The GradScaler of the loss, if any; ``swap`` needs its scale.

    Returns:
        What ends it by its method ``remove``; None without an optimiser.

    Raises:
        InvalidArgumentError: the model has no LoCA layer, the optimiser does not hold their
            coefficients or cannot be followed, or parameters were not added in time. The step of
            the optimiser raises it if a location has become NaN.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    if not spectra:
        msg = "the model has no LoCA layer"
        raise InvalidArgumentError(msg)
    if all(spectrum.schedule is None for spectrum in spectra):
        msg = "no LoCA layer searches for locations, so there is nothing to follow; set "
        msg += "alternating_steps of LoCAConfig, or schedule of the layers"
        warnings.warn(msg, stacklevel=2)
    searching = [s for s in spectra if s.is_searching and s.coefficients.requires_grad]
    missing = [s for s in searching if s.needs_offset and s.offset is None]
    if missing and optimizer is not None and is_distributed():
        msg = f"{missing[0].name}: with several processes, call follow(model) before "
        msg += "DistributedDataParallel or fully_shard wraps the model"
        raise InvalidArgumentError(msg)
    for spectrum in missing:
        spectrum.add_offset()
    if optimizer is None:
        return None
    scaler = getattr(optimizer, "scaler", None) if scaler is None else scaler
    inner: Any = getattr(optimizer, "optimizer", optimizer)  # of accelerate
    return Following(searching, inner, scaler)


class Following:
    """The searches of layers whose coefficients one optimiser steps.

    Args:
        spectra: The layers of the model that search.
        optimizer: The optimiser.
        scaler: The GradScaler of the loss, or None.
    """

    def __init__(
        self, spectra: list[CosineSpectrum], optimizer: torch.optim.Optimizer, scaler: Any
    ) -> None:
        self._optimizer, self._scaler = optimizer, scaler
        self._check(spectra)
        numbered = [(n, s, self._group_of(s.coefficients)) for n, s in enumerate(spectra)]
        held = [(n, s, group) for n, s, group in numbered if group is not None]
        self._groups = {spectrum: group for _, spectrum, group in held}
        # By how many steps each layer is ahead, so that not all record at once.
        periods = {s: s.schedule.period if s.schedule else 1 for s in spectra}
        self._ahead = {s: n * periods[s] // len(spectra) for n, s, _ in held}
        self._offsets = {s: s.offset for _, s, _ in held if s.offset is not None}
        self._add_offsets()
        for spectrum in self._ahead:
            spectrum.following = self
            self.begin(spectrum)
        before = optimizer.register_step_pre_hook(self._before)
        self._handles = before, optimizer.register_step_post_hook(self._after)

    def remove(self) -> None:
        """Stop following; locations rest from now on."""
        for handle in self._handles:
            handle.remove()
        for spectrum in self._mine():
            spectrum.following = spectrum.search = None

    def _check(self, spectra: list[CosineSpectrum]) -> None:
        optimizer: Any = self._optimizer
        zero = any(hasattr(s.coefficients, n) for s in spectra for n in ("ds_id", "_hp_mapping"))
        if zero or not isinstance(optimizer, torch.optim.Optimizer):
            kind = "DeepSpeed's ZeRO" if zero else type(optimizer).__name__
            msg = f"{kind} does not step the parameters of the model by an optimiser of torch, so "
            msg += "LoCA's search cannot follow it; set alternating_steps=0"
            raise InvalidArgumentError(msg)
        # A schedule-free optimiser has train() and eval().
        if spectra and (isinstance(optimizer, torch.optim.LBFGS) or hasattr(optimizer, "train")):
            msg = f"{type(optimizer).__name__} keeps former parameters, which a search invalidates;"
            msg += " use another optimiser, such as AdamW, or set alternating_steps=0"
            raise InvalidArgumentError(msg)
        if spectra and all(self._group_of(s.coefficients) is None for s in spectra):
            msg = "the optimiser does not hold the coefficients of LoCA; build it from the model's "
            msg += "parameters after the adapter was added"
            raise InvalidArgumentError(msg)

    def _group_of(self, parameter: torch.Tensor) -> int | None:
        groups = enumerate(self._optimizer.param_groups)
        return next((n for n, g in groups if any(p is parameter for p in g["params"])), None)

    def _add_offsets(self) -> None:
        """Put each offset behind its coefficients, where the model's parameters have it as well."""
        new = {
            id(spectrum.coefficients): offset
            for spectrum, offset in self._offsets.items()
            if self._group_of(offset) is None
        }
        for group in self._optimizer.param_groups:
            group.setdefault(_RATE, float(group["lr"]))
            pairs = [(p, new.get(id(p))) for p in group["params"]]
            group["params"] = [p for pair in pairs for p in pair if p is not None]

    def _mine(self) -> list[CosineSpectrum]:
        """The layers that search and train, unless they follow another optimiser by now."""
        return [
            spectrum
            for spectrum in self._ahead
            if spectrum.following is self and spectrum.coefficients.requires_grad
        ]

    def begin(self, spectrum: CosineSpectrum) -> None:
        """Prepare the next step of a layer, or end its search."""
        step, schedule = spectrum.steps_done, spectrum.schedule
        if not spectrum.is_searching or schedule is None:
            self.end(spectrum)
            return
        if step < spectrum.start_steps:
            kind: Any = GradientStart
        elif schedule.is_over(step):
            spectrum.finish_search()
            return
        else:
            along = not is_prune_and_regrow(spectrum.location_search)
            kind = GradientSearch if along else PruneAndRegrow
        if type(spectrum.search) is not kind:
            spectrum.search = kind(spectrum)
        spectrum.search.begin(step, self._ahead[spectrum])

    def end(self, spectrum: CosineSpectrum) -> None:
        """Take the layer's offset out of the optimiser."""
        spectrum.following = spectrum.search = None
        offset = self._offsets.pop(spectrum, None)
        if offset is not None:
            group = self._optimizer.param_groups[self._groups[spectrum]]
            group["params"] = [p for p in group["params"] if p is not offset]
            self._optimizer.state.pop(offset, None)

    def _before(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        searches = [spectrum.search for spectrum in self._mine()]
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)

        def tell() -> None:
            for search in searches:
                search.before_step()

        if closure is None:
            tell()
            return None

        def computed() -> Any:
            """Gradients of a closure exist only after it was called."""
            loss = closure()
            tell()
            return loss

        return args[:1], {"closure": computed}

    def _after(self, *_: Any) -> None:
        mine = self._mine()
        if bool(getattr(self._optimizer, "found_inf", None) or False):
            for spectrum in mine:  # a fused optimiser has skipped this step itself
                spectrum.search.restore()
            return
        move_all([(s.search, self._rate(s)) for s in mine if s.search.has_started])
        for spectrum in mine:
            step, search = spectrum.steps_done, spectrum.search
            if search.is_due(step, self._ahead[spectrum]):
                scale = 1.0 if self._scaler is None else self._scaler.get_scale()
                self._forget_momentum(spectrum.coefficients, search.prune_and_regrow(step, scale))
            spectrum.count_step()
            self.begin(spectrum)
        ended = [spectrum for spectrum in mine if not spectrum.is_searching]
        if ended and not any(bool(spectrum.has_moved) for spectrum in ended):
            msg = "the search for locations is over, and none of them has left its index; raise "
            warnings.warn(msg + "location_lr or alternating_steps", stacklevel=3)

    def _rate(self, spectrum: CosineSpectrum) -> float:
        """By what a step of the offset is multiplied: schedulers may begin at a low rate."""
        group = self._optimizer.param_groups[self._groups[spectrum]]
        lr, first = (float(group.get(n, 0.0)) for n in ("lr", "initial_lr"))
        largest = max(lr, first or float(group.setdefault(_RATE, lr)))
        return spectrum.location_lr / largest if largest > 0 else 0.0

    def _forget_momentum(self, parameter: torch.Tensor, moved: torch.Tensor) -> None:
        """Let components that moved start without the momentum of their old locations.

        Adam scales by the mean square of their old gradients, which stays: it is the best guess at
        hand of the new one.
        """
        for name, value in self._optimizer.state.get(parameter, {}).items():
            if name in ("exp_avg", "momentum_buffer") and isinstance(value, torch.Tensor):
                fill_with_zeros(value, moved)
