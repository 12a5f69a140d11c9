"""Following the steps of one optimiser."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from loca_theory.adapters.search.gradient import GradientSearch, move_all
from loca_theory.adapters.search.regrow import GradientStart, PruneAndRegrow
from loca_theory.adapters.search.sharding import is_distributed, shared_out
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
        raise InvalidArgumentError("the model has no LoCA layer")
    if all(spectrum.schedule is None for spectrum in spectra):
        msg = "no LoCA layer searches for locations, so there is nothing to follow; set "
        msg += "alternating_steps of LoCAConfig, or schedule of the layers"
        warnings.warn(msg, stacklevel=2)
    searching: list[Any] = [s for s in spectra if s.is_searching and s.coefficients.requires_grad]
    new = [s for s in searching if s.lacks_offset]
    if new and optimizer is not None and is_distributed():
        raise InvalidArgumentError(
            f"{new[0].name}: with several processes, call follow(model) before "
            "DistributedDataParallel or fully_shard wraps the model"
        )
    for spectrum in new:
        spectrum.add_offset()
    if optimizer is None:
        return None
    scaler = getattr(optimizer, "scaler", None) if scaler is None else scaler
    return Following(searching, getattr(optimizer, "optimizer", optimizer), scaler)  # accelerate's


class Following:
    """The searches of layers whose coefficients one optimiser steps.

    Args:
        spectra: The layers of the model that search.
        optimizer: The optimiser.
        scaler: The GradScaler of the loss, or None.
    """

    def __init__(self, spectra: list[Any], optimizer: Any, scaler: Any) -> None:
        _check(spectra, optimizer)
        self._optimizer, self._scaler = optimizer, scaler
        held = {p: n for n, group in enumerate(optimizer.param_groups) for p in group["params"]}
        # The number of each layer's parameter group.
        self._groups = {s: held[s.coefficients] for s in spectra if s.coefficients in held}
        if spectra and not self._groups:
            raise InvalidArgumentError(
                "the optimiser does not hold the coefficients of LoCA; build it from the model's "
                "parameters after the adapter was added"
            )
        self._add_offsets({s.coefficients: s.offset for s in self._groups if s.offset not in held})
        for number, spectrum in enumerate(spectra):
            if spectrum in self._groups:
                # Not all layers record at once.
                spectrum.ahead = number * spectrum.schedule.period // len(spectra)
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

    def release(self, offset: torch.Tensor | None) -> None:
        """Take an offset out of the optimiser."""
        for group in self._optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p is not offset]
        self._optimizer.state.pop(offset, None)

    def _add_offsets(self, new: dict[torch.Tensor, torch.Tensor | None]) -> None:
        """Put each offset behind its coefficients, where the model's parameters have it as well."""
        for group in self._optimizer.param_groups:
            group.setdefault(_RATE, float(group["lr"]))
            pairs = [(old, new.get(old)) for old in group["params"]]
            group["params"] = [p for pair in pairs for p in pair if p is not None]

    def _mine(self) -> list[Any]:
        """The layers that search and train, unless they follow another optimiser by now."""
        return [s for s in self._groups if s.following is self and s.coefficients.requires_grad]

    def begin(self, spectrum: Any) -> None:
        """Prepare the next step of a layer, or end its search."""
        step = spectrum.steps_done
        if step < spectrum.start_steps:
            kind: Any = GradientStart
        elif spectrum.schedule.is_over(step):
            spectrum.finish_search()
            return
        else:
            kind = GradientSearch if spectrum.is_along_gradient else PruneAndRegrow
        if type(spectrum.search) is not kind:
            spectrum.search = kind(spectrum)
        spectrum.search.begin()

    def _before(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._tell()
            return None

        def computed() -> Any:
            """Gradients of a closure exist only after it was called."""
            loss = closure()
            self._tell()
            return loss

        return args[:1], {"closure": computed}

    def _tell(self) -> None:
        for spectrum in self._mine():
            spectrum.search.before_step()

    def _after(self, *_: Any) -> None:
        spectra = self._mine()
        if bool(getattr(self._optimizer, "found_inf", None) or False):
            for spectrum in spectra:  # a fused optimiser has skipped this step itself
                spectrum.search.restore()
            return
        move_all([(s.search, self._rate(s)) for s in spectra if s.search.start is not None])
        for spectrum in spectra:
            if spectrum.search.is_due():
                scale = 1.0 if self._scaler is None else self._scaler.get_scale()
                self._forget_momentum(spectrum, spectrum.search.prune_and_regrow(scale))
            spectrum.steps_done += 1
            spectrum.steps.fill_(spectrum.steps_done)
            self.begin(spectrum)
        ended = [spectrum for spectrum in spectra if not spectrum.is_searching]
        if ended and not any(bool(spectrum.has_moved) for spectrum in ended):
            msg = "the search for locations is over, and none of them has left its index; raise "
            warnings.warn(msg + "location_lr or alternating_steps", stacklevel=3)

    def _rate(self, spectrum: Any) -> float:
        """By what a step of the offset is multiplied: schedulers may begin at a low rate."""
        group = self._optimizer.param_groups[self._groups[spectrum]]
        lr = float(group["lr"])
        largest = max(lr, float(group.get("initial_lr") or group.setdefault(_RATE, lr)))
        return spectrum.location_lr / largest if largest > 0 else 0.0

    def _forget_momentum(self, spectrum: Any, moved: torch.Tensor) -> None:
        """Let components that moved start without the momentum of their old locations.

        Adam scales by the mean square of their old gradients, which stays: it is the best guess at
        hand of the new one.
        """
        for name, value in self._optimizer.state.get(spectrum.coefficients, {}).items():
            if name in ("exp_avg", "momentum_buffer") and isinstance(value, torch.Tensor):
                value.masked_fill_(shared_out(moved, value), 0.0)


def _check(spectra: list[Any], optimizer: Any) -> None:
    zero = any(hasattr(s.coefficients, n) for s in spectra for n in ("ds_id", "_hp_mapping"))
    if zero or not isinstance(optimizer, torch.optim.Optimizer):
        kind = "DeepSpeed's ZeRO" if zero else type(optimizer).__name__
        raise InvalidArgumentError(
            f"{kind} does not step the parameters of the model by an optimiser of torch, so "
            "LoCA's search cannot follow it; set alternating_steps=0"
        )
    # A schedule-free optimiser has train() and eval().
    if spectra and (isinstance(optimizer, torch.optim.LBFGS) or hasattr(optimizer, "train")):
        raise InvalidArgumentError(
            f"{type(optimizer).__name__} keeps former parameters, which a search invalidates; "
            "use another optimiser, such as AdamW, or set alternating_steps=0"
        )
