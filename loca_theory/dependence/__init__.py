"""Reconstruction and detection when the entries of a weight change are not independent.

:func:`correlate` needs torch, which is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports
from loca_theory.dependence.closed_forms import (
    energy_retained_with_spike,
    limit_boundary,
    low_rank_loss_with_shared_mean,
    low_rank_loss_with_spike,
    selection_loss_with_shared_mean,
    selection_loss_with_spike,
)
from loca_theory.dependence.crossings import Crossing, find_crossings
from loca_theory.dependence.design import Design
from loca_theory.dependence.detection import STATISTICS
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.protocols import Protocol, find_protocols
from loca_theory.dependence.results import CorrelationResult, CrossingRow, LossRow, PowerRow
from loca_theory.dependence.separable import cosine_variances, selection_loss_of_separable
from loca_theory.dependence.structures import STRUCTURES, Structure, ar1, blocks, spiked

if TYPE_CHECKING:
    from loca_theory.dependence.study import Study, correlate

__all__ = [
    "STATISTICS",
    "STRUCTURES",
    "CorrelationResult",
    "Crossing",
    "CrossingRow",
    "Design",
    "LossRow",
    "PowerRow",
    "Prediction",
    "Protocol",
    "Structure",
    "Study",
    "ar1",
    "blocks",
    "correlate",
    "cosine_variances",
    "energy_retained_with_spike",
    "find_crossings",
    "find_protocols",
    "limit_boundary",
    "low_rank_loss_with_shared_mean",
    "low_rank_loss_with_spike",
    "selection_loss_of_separable",
    "selection_loss_with_shared_mean",
    "selection_loss_with_spike",
    "spiked",
]

__getattr__ = lazy_exports(__name__, {"Study": "study", "correlate": "study"})
