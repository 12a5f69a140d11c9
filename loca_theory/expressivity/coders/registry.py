"""The coders by name, in the order of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.coders.coder import (
    Coded,
    Coder,
    ScalarCoder,
    Transform,
    checked_bits,
)
from loca_theory.expressivity.coders.laws import entries
from loca_theory.expressivity.coders.low_rank import SingularVectors
from loca_theory.expressivity.coders.patches import Patches
from loca_theory.expressivity.coders.scalar import (
    RateDistortion,
    Signs,
    best_codes,
    best_step,
    entropy_coded,
    largest_at_best_width,
    mean_magnitude,
)
from loca_theory.expressivity.coders.widths import upper_half

CODERS: dict[str, Coder] = {
    coder.name: coder
    for coder in (
        RateDistortion("rate–distortion", "the bound of independent normal entries"),
        ScalarCoder(
            "entropy-coded",
            "equal cells, ideal entropy coding",
            "doi:10.1109/TIT.1968.1054193",
            quantiser=entropy_coded,
        ),
        ScalarCoder(
            "Lloyd–Max",
            "best codes of whole bits",
            "doi:10.1109/TIT.1982.1056489",
            quantiser=best_codes,
        ),
        ScalarCoder(
            "uniform",
            "equidistant codes of whole bits",
            "doi:10.1109/TIT.1960.1057548",
            quantiser=best_step,
        ),
        Signs("BitDelta", "signs and one scale", "arXiv:2402.10193", quantiser=mean_magnitude),
        ScalarCoder("largest", "largest entries, quantised", quantiser=largest_at_best_width),
        SingularVectors("Delta-CoMe", "singular vectors of mixed widths", "arXiv:2406.08903"),
        Patches("Delta-DCT", "patches of mixed widths", "arXiv:2503.06676"),
        Patches(
            "Delta-DCT by rank",
            "patches, 2 bits for half of them",
            "arXiv:2503.06676",
            rule=upper_half,
        ),
        Patches(
            "positions", "positions in patches, as in JPEG", "doi:10.1109/30.125072", by="positions"
        ),
    )
}


def measure_all(
    matrix: NDArray[np.floating], bits: Sequence[float], rng: np.random.Generator
) -> Iterator[tuple[str, Transform, float, Coded]]:
    """Error and size of a matrix for every coder, with each of its transforms and numbers of bits.

    Coders without a code this small, or for this shape, are left out.

    Raises:
        InvalidArgumentError: the matrix is 0, or has entries that are not finite, or ``bits`` are
            not between 0 and 16.
    """
    wide = np.asarray(matrix, dtype=np.float64)
    if not (np.isfinite(wide).all() and wide.any()):
        raise InvalidArgumentError(
            "the matrix is 0, or has entries that are not finite, so it has no relative error; "
            "code another one"
        )
    bits = [checked_bits(size) for size in bits]
    for transform in Transform:
        law = entries(transform.basis(wide.shape, rng).coordinates(wide))
        for name, coder in CODERS.items():
            if transform not in coder.transforms:
                continue
            if isinstance(coder, ScalarCoder):
                results = coder.coded(law, wide.size, bits)
            else:
                basis = transform.basis(coder.block(wide.shape), rng)
                try:
                    results = coder.measure(wide, bits, basis)
                except InvalidArgumentError:  # patches that do not divide
                    continue
            for size, coding in zip(bits, results, strict=True):
                if coding is not None:
                    yield name, transform, size, coding
