"""Parameter groups for an optimiser."""

from __future__ import annotations

from typing import Any

from torch import nn

from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError


def parameter_groups(
    model: nn.Module, *, lr: float, location_lr: float = 1e-4, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Group the trainable parameters for an optimiser, with a group for the locations alone.

    Args:
        model: A model with LoCA layers. The locations are in the groups from the start, although
            they require gradients only in their phases.
        lr: Learning rate of all other parameters.
        location_lr: Learning rate of the locations, on their scale of [0, 1]. The paper uses 1e-4
            with AdamW, which moves a location of a 768-wide layer by at most 0.08 locations per
            step.
        weight_decay: Weight decay of all other parameters. Locations, and vectors that are not
            coefficients (biases, normalisation), are not decayed.

    Raises:
        InvalidArgumentError: the model has no trainable parameter.

    Source: appendix "Hyperparameters" of the paper, which does not decay locations.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    locations = [s.locations for s in spectra if s.locations is not None and _in_use(s)]
    # In a phase of the locations, the coefficients do not require gradients either.
    coefficients = {id(s.coefficients): s.coefficients for s in spectra if _in_use(s)}
    apart = {id(p) for p in locations}
    decayed, plain = list(coefficients.values()), []
    for p in model.parameters():
        if p.requires_grad and id(p) not in apart and id(p) not in coefficients:
            (decayed if p.ndim > 1 else plain).append(p)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "lr": lr, "weight_decay": weight_decay},
        {"params": plain, "lr": lr, "weight_decay": 0.0},
        {"params": locations, "lr": location_lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        msg = "the model has no trainable parameter; was its adapter loaded for inference?"
        raise InvalidArgumentError(msg)
    return groups


def _in_use(spectrum: CosineSpectrum) -> bool:
    return any(p.requires_grad for p in spectrum.parameters())
