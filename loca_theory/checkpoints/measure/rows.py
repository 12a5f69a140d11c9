"""Rows of the tables of an analysis."""

from __future__ import annotations

from dataclasses import dataclass

FAR_FROM_LAW = 0.1
"""Kolmogorov distance beyond which a spectrum has no Marchenko–Pastur bulk.

The spectrum of independent entries is within this distance if p and q are at least about 30.
"""


@dataclass(frozen=True)
class IncrementRow:
    """What each row about one increment begins with.

    Attributes:
        name: Name of the weight, as the base calls it.
        tuned: Label of the fine-tune.
    """

    name: str
    tuned: str


@dataclass(frozen=True)
class Matrix(IncrementRow):
    """Statistics of one increment; a statistic is None if it does not exist.

    Attributes:
        shape: (p, q).
        dtype: Element type of the fine-tuned side, as it is stored.
        kind: ``query``, ``MLP in``, …, from the name; ``other`` if the name is not recognised.
        layer: Number of the layer, from the name.
        module: Its module in the model with a head; "" if PEFT has no layer for it.
        adapters: What PEFT can adapt the module with: ``lora``, ``loca``, ``entries``.
        sigma: Standard deviation of the entries.
        mean: Mean of the entries.
        energy: Sum of the squared entries; None if it does not fit float64.
        relative_norm: ‖ΔW‖/‖W₀‖, Frobenius norms; None without a base, or if float64 lacks it.
        weights_cosine: Cosine of the angle between W₀ and W′ as vectors, near 1 for a fine-tune;
            None without a base, or if one of them is 0.
        zero_fraction: Proportion of entries that are exactly 0.
        excess_kurtosis: 0 for a normal law.
        row_mean_energy: Fraction of the energy in the rows' means, which are constant over inputs.
        column_mean_energy: The same for the columns and the outputs.
        tv: Total variation from a normal law, with the counting noise removed.
        tv_low: Lower end of its 95% confidence interval.
        tv_high: Upper end of that interval.
        tv_p_value: p-value of the hypothesis that ``tv`` is at most epsilon.
        tv_p_value_as_printed: p-value of the paper's test; None if its loop does not end.
        mp_sigma: σ of the Marchenko–Pastur law that fits the bulk; None without a bulk.
        mp_distance: Kolmogorov distance of the spectrum from that law.
        mp_wasserstein: Wasserstein distance of the spectrum from that law.
        outlier_mass: Fraction of the energy outside the law's support; 1 without a bulk.
        spikes: Number of eigenvalues above the law's edge; without a bulk, of all above rounding.
        T: The paper's spectral statistic.
        stable_rank: Energy in units of the largest eigenvalue.
        effective_rank: Exponential of the entropy of the singular values.
        rank_50: Smallest rank whose truncated SVD retains 50% of the energy.
        rank_90: The same for 90%.
        rank_99: The same for 99%.
        tail_exponent: Exponent of a power law for the largest eigenvalues.
        left_alignment: Mean squared cosine between the span of the k leading left singular vectors
            of ΔW and that of W₀, between 0 and 1; k/p for unrelated ones. None unless subspaces
            were asked for.
        right_alignment: The same for right singular vectors; k/q for unrelated ones.
        intruders: Number of the k leading left singular vectors of W′ whose cosine with each of the
            4k leading ones of W₀ is below 0.5.
        subspace_error: Estimate of the energy that the computed spans of these singular vectors
            miss, as a fraction of the energy of their matrix.
        note: Remarks on this matrix, such as why a statistic is missing.
        format: The narrowest format that holds the values of the fine-tuned side, whatever type
            stores them: bfloat16 numbers in a float32 file are ``bfloat16``. "" without a base.
        changed: Fraction of the entries that changed, of a base rounded to this format; None if it
            has as many bits as float32, as for ``rounding``.
        rounding: Energy of the errors of rounding, in units of that of the stored change, if
            weights and changes were independent and normal and as many entries changed.
    """

    shape: tuple[int, int]
    dtype: str
    kind: str
    layer: int | None
    module: str
    adapters: tuple[str, ...]
    sigma: float
    mean: float
    energy: float | None
    relative_norm: float | None
    weights_cosine: float | None
    zero_fraction: float
    excess_kurtosis: float
    row_mean_energy: float | None
    column_mean_energy: float | None
    tv: float
    tv_low: float
    tv_high: float
    tv_p_value: float
    tv_p_value_as_printed: float | None
    mp_sigma: float | None
    mp_distance: float | None
    mp_wasserstein: float | None
    outlier_mass: float
    spikes: int
    T: float
    stable_rank: float
    effective_rank: float
    rank_50: int
    rank_90: int
    rank_99: int
    tail_exponent: float | None
    left_alignment: float | None = None
    right_alignment: float | None = None
    intruders: int | None = None
    subspace_error: float | None = None
    note: str = ""
    format: str = ""
    changed: float | None = None
    rounding: float | None = None

    @property
    def follows_law(self) -> bool:
        """Whether the bulk of the spectrum is close to the Marchenko–Pastur law."""
        return self.mp_distance is not None and self.mp_distance <= FAR_FROM_LAW


@dataclass(frozen=True)
class MatrixError(IncrementRow):
    """Error of one method on one increment.

    Attributes:
        kind: Kind of the weight, as in :class:`Matrix`.
        layer: Number of its layer.
        energy: Energy of the increment; None if it does not fit float64.
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        error: Relative squared error.
        iid_error: Expected error for independent normal entries; None if only simulation gives it.
        shuffled_error: Error on the same entries in random order, which removes their dependence
            but not their distribution; None but for one matrix per kind, unless all were asked for.
        spectral_error: Expected error on a matrix with the same singular values, whose singular
            vectors are random and so unrelated to the method's basis. This minus ``error`` is what
            the basis is worth on the matrix. None if only simulation can give it.
        inputs_shuffled_error: Error of D (LoCA) with the columns in random order, which takes away
            what is smooth along the inputs. None for others, and where D's basis is worth < 0.03.
        outputs_shuffled_error: The same with the rows in random order.
        axes_shuffled_error: The same with both. What D is still worth then comes from the vectors
            that are constant along an axis.
    """

    kind: str
    layer: int | None
    energy: float | None
    r: int
    method: str
    error: float
    iid_error: float | None = None
    shuffled_error: float | None = None
    spectral_error: float | None = None
    inputs_shuffled_error: float | None = None
    outputs_shuffled_error: float | None = None
    axes_shuffled_error: float | None = None


@dataclass(frozen=True)
class CodedError(IncrementRow):
    """What one coder leaves of one increment at some bits per entry.

    Attributes:
        method: Name of the coder, such as ``BitDelta``.
        transform: What is coded: the entries (``none``), or their coordinates in another basis; see
            :class:`~loca_theory.expressivity.coders.coder.Transform`.
        bits: Bits per entry that may be spent.
        stored_bits: Bits per entry that are spent, all overhead included.
        error: Relative squared error.
        iid_error: Its expectation for independent normal entries of that shape, in any basis.
        gain: Error of this coder on the entries less this error: what the transform is worth.
        excess_gain: Error of this coder after the random transform less this error: what cosines
            are worth beyond the mixing of entries. Both are None for a coder without transforms.
    """

    method: str
    transform: str
    bits: float
    stored_bits: float
    error: float
    iid_error: float | None
    gain: float | None
    excess_gain: float | None


@dataclass(frozen=True)
class AllocatedMatrix(IncrementRow):
    """Size of one matrix's adapter if a total is split so that it retains the most energy.

    Attributes:
        method: ``LoRA``, or ``LoCA`` with the best locations.
        size: Rank, or number of coefficients.
        uniform: The largest size that the total pays for if all matrices get the same, or all that
            this matrix can have.
        numbers: Trainable numbers of the allocated size.
        energy: Energy of the increment as a fraction of that of all layers that PEFT can adapt.
        retained: Fraction of the increment's energy that the allocated size retains.
        uniform_retained: The same for the uniform size.
        equal_retained: Fraction of the energy of all layers of the method that the best split of
            what the uniform sizes cost retains; the same in every row of a method.
        bound: Upper bound of this fraction for any split of the total; one per method.
    """

    method: str
    size: int
    uniform: int
    numbers: int
    energy: float
    retained: float
    uniform_retained: float
    equal_retained: float
    bound: float


@dataclass(frozen=True)
class Comparison:
    """Two fine-tunes of one base, compared on one weight.

    Attributes:
        name: Name of the weight.
        kind: Kind of the weight, as in :class:`Matrix`.
        layer: Number of its layer.
        first: Label of one fine-tune.
        second: Label of the other.
        cosine: Cosine of the angle between the two increments as vectors.
        sign_conflict: Proportion of the entries that both fine-tunes change to which they give
            opposite signs; one half for unrelated increments. None if no entry is changed by both.
        left_overlap: Mean squared cosine between the spans of the k leading left singular vectors
            of the two increments; k/p for unrelated ones. None unless subspaces were asked for.
        right_overlap: The same for right singular vectors; k/q for unrelated ones.
    """

    name: str
    kind: str
    layer: int | None
    first: str
    second: str
    cosine: float
    sign_conflict: float | None
    left_overlap: float | None
    right_overlap: float | None
