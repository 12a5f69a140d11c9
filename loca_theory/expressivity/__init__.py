"""What low-rank, Fourier and cosine adapters can reconstruct of a Gaussian matrix.

The exact and asymptotic curves and the reduced sampler rest on numpy and scipy alone; what needs
torch (:func:`approximate`, :func:`kept_energies`, :func:`dense_errors`) is imported on first use.
"""

from typing import TYPE_CHECKING

from loca_theory._lazy import lazy_exports
from loca_theory.expressivity.asymptotic import asymptotic_error
from loca_theory.expressivity.bidiagonal import leading_rows, sample_leading_eigenvalues
from loca_theory.expressivity.budgets import Accounting, Budget
from loca_theory.expressivity.curves import CURVES, DEFAULT_CURVES, Curve, Engine, Selection
from loca_theory.expressivity.exact import exact_error, has_exact_value
from loca_theory.expressivity.limits import (
    Crossing,
    coefficient_share,
    limit_crossings,
    location_share,
    low_rank_share,
)
from loca_theory.expressivity.low_rank_exact import LARGEST_EXACT, expected_leading_energy
from loca_theory.expressivity.monte_carlo import Estimate, MonteCarlo, Sampler, Series
from loca_theory.expressivity.order_statistics import (
    expected_location_sum,
    expected_top_sum,
    expected_top_sum_with_outlier,
)
from loca_theory.expressivity.ordering import (
    THEOREM_1_ORDER,
    Violation,
    theorem_1_violations,
)
from loca_theory.expressivity.reduced import reduced_errors
from loca_theory.expressivity.simulation import Simulation, squares

if TYPE_CHECKING:
    from loca_theory.expressivity.approximators import (
        approximate,
        kept_energies,
    )
    from loca_theory.expressivity.dense import dense_errors
    from loca_theory.expressivity.kept import expected_kept_energies

__all__ = [
    "CURVES",
    "DEFAULT_CURVES",
    "LARGEST_EXACT",
    "THEOREM_1_ORDER",
    "Accounting",
    "Budget",
    "Crossing",
    "Curve",
    "Engine",
    "Estimate",
    "MonteCarlo",
    "Sampler",
    "Selection",
    "Series",
    "Simulation",
    "Violation",
    "approximate",
    "asymptotic_error",
    "coefficient_share",
    "dense_errors",
    "exact_error",
    "expected_kept_energies",
    "expected_leading_energy",
    "expected_location_sum",
    "expected_top_sum",
    "expected_top_sum_with_outlier",
    "has_exact_value",
    "kept_energies",
    "leading_rows",
    "limit_crossings",
    "location_share",
    "low_rank_share",
    "reduced_errors",
    "sample_leading_eigenvalues",
    "squares",
    "theorem_1_violations",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "approximate": "approximators",
        "kept_energies": "approximators",
        "expected_kept_energies": "kept",
        "dense_errors": "dense",
    },
)
