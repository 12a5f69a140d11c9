"""Results of the analysis of one weight increment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loca_theory.checkpoints.figure_rows import EigenvalueHistogram
from loca_theory.checkpoints.rows import CodedError, Matrix, MatrixError


@dataclass(frozen=True)
class MatrixAnalysis:
    """Results of the analysis of one increment.

    Attributes:
        matrix: Statistics of the increment.
        errors: Relative error of each method, rank by rank.
        entries: Fractions of the standardised entries in 128 equal cells from −8 to 8.
        eigenvalues: Squared singular values of ΔW, smallest first. If the largest entry, of about
            2ᵉ, lies beyond 2^±32, they are those of ΔW/2ᵉ, so that squares stay in range.
        spectrum: Histogram of these eigenvalues.
        components: Fractions of the energy in the largest DCT coefficients, at the counts of
            :func:`~loca_theory.checkpoints.statistics.energy_profile.unit_counts`; empty unless
            asked for.
        largest_entries: The same for the largest entries.
        coded: What coders leave of the increment; empty unless asked for.
    """

    matrix: Matrix
    errors: tuple[MatrixError, ...]
    entries: tuple[float, ...]
    eigenvalues: tuple[float, ...]
    spectrum: EigenvalueHistogram
    components: tuple[float, ...] = ()
    largest_entries: tuple[float, ...] = ()
    coded: tuple[CodedError, ...] = ()

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> MatrixAnalysis:
        """Restore the results from JSON of what :func:`dataclasses.asdict` returns."""
        kinds = {"matrix": Matrix, "spectrum": EigenvalueHistogram}
        rows = {key: kind(**_frozen(stored[key])) for key, kind in kinds.items()}
        keys = ("entries", "eigenvalues", "components", "largest_entries")
        lists = {key: _frozen(stored[key]) for key in keys}
        errors = tuple(MatrixError(**one) for one in stored["errors"])
        coded = tuple(CodedError(**one) for one in stored["coded"])
        return cls(**rows, **lists, errors=errors, coded=coded)


def _frozen(value: Any) -> Any:
    """Plain data with tuples for lists."""
    if isinstance(value, dict):
        return {key: _frozen(one) for key, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
