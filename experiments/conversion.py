"""How large the error is when LoCA is converted to LoRA: the spectrum of random increments.

C and D are orthogonal, so ΔW = α Cᵀ S D has the singular values of α S, and no ΔW is formed. The
locations of S are random and its coefficients standard normal. ``--quick`` leaves out the matrices
of 4096 × 4096, which take a minute and 2 GB.
"""

from __future__ import annotations

import click
import numpy as np

from experiments.finetuning.printing import number, print_table
from loca_theory.cli.command import Command
from loca_theory.increments.ranks import energy_ranks

SIZES = ((768, (1000, 5000, 10_000), 5), (4096, (1000, 10_000, 150_000), 1))
"""K of K × K matrices, numbers of components, and draws."""

_RANKS = (8, 64)
_HEADINGS = ("p × q", "B", "occupied rows", "rank for 90%", "for 99%", "error at rank 8, %",
             "at rank 64, %")  # fmt: skip


def spectrum(k: int, components: int, seed: int) -> list[float]:
    """The numbers of one draw, from occupied rows on."""
    rng = np.random.default_rng(seed)
    s = np.zeros(k * k, np.float32)
    s[rng.choice(k * k, components, replace=False)] = rng.standard_normal(components)
    s = s.reshape(k, k)
    occupied = (s != 0).any(1)
    energy = np.linalg.svd(s[occupied][:, (s != 0).any(0)], compute_uv=False).astype(float) ** 2
    errors = [float(100 * energy[r:].sum() / energy.sum()) for r in _RANKS]
    return [int(occupied.sum()), *energy_ranks(energy, (0.9, 0.99)), *errors]


@click.command(cls=Command)
@click.option("--quick", is_flag=True, help="Only the smaller matrices.")
def main(quick: bool) -> None:
    """Print the rank that LoRA needs, and the error of usual ranks.

    Example: python -m experiments.conversion --quick
    """
    rows = []
    for k, counts, draws in SIZES[:1] if quick else SIZES:
        for components in counts:
            found = [spectrum(k, components, seed) for seed in range(draws)]
            cells = [number(float(mean), 0) for mean in np.mean(found, axis=0)]
            rows.append((f"{k} × {k}", f"{components:,}", *cells))
    note = "means over draws; error: of the energy of ΔW"
    print_table("LoCA converted to LoRA", (), _HEADINGS, rows, note)


if __name__ == "__main__":
    main(prog_name="python -m experiments.conversion")
