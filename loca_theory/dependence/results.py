"""Types of the tables of a study of dependence."""

from __future__ import annotations

from dataclasses import dataclass

from loca_theory.dependence.design import Protocol
from loca_theory.sweeps import Result
from loca_theory.sweeps.results import rows as table


@dataclass(frozen=True)
class LossRow:
    """The error of one method under one structure, at one value of its parameter and one rank.

    Attributes:
        structure: Name of the structure.
        protocol: What the low-rank error is compared with.
        parameter: Name of the structure's parameter.
        value: Value of the parameter.
        K: Size of a square matrix; None otherwise.
        p: Rows.
        q: Columns.
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        error: Mean of ‖W − Ŵ‖² relative to E‖W‖².
        standard_error: Standard error of the mean; 0 for exact values.
        draws: Number of draws; None for exact values.
        closed_form: The error by a closed form; None if there is none.
    """

    structure: str
    protocol: Protocol
    parameter: str
    value: float
    K: int | None
    p: int
    q: int
    r: int
    method: str
    error: float
    standard_error: float
    draws: int | None
    closed_form: float | None


@dataclass(frozen=True)
class CrossingRow:
    """Where LoRA's error passes below that of DCT selection as dependence grows.

    Attributes:
        structure: Name of the structure.
        protocol: What the low-rank error is compared with.
        parameter: Name of the structure's parameter.
        r: LoRA's rank.
        crossing: Value of the parameter at the crossing; None if there is none.
        low: Lower end of its 95% interval.
        high: Upper end.
        closed_form: The crossing by a closed form; None if there is none.
        finding: ``crossing``, or without a crossing, which method has the smaller error:
            ``LoCA throughout``, ``LoRA throughout``, or ``LoRA at the start`` but not throughout.
        searched_from: First value of the parameter.
        searched_to: Last value of the parameter.
    """

    structure: str
    protocol: Protocol
    parameter: str
    r: int
    crossing: float | None
    low: float | None
    high: float | None
    closed_form: float | None
    finding: str
    searched_from: float
    searched_to: float


@dataclass(frozen=True)
class PowerRow:
    """How often one statistic rejects independence.

    Attributes:
        structure: Name of the structure; ``independent`` for the statistic's law under the null
            hypothesis.
        parameter: Name of its parameter; None for ``independent``.
        value: Value of the parameter; None for ``independent``.
        statistic: Name of the statistic, one of
            :data:`~loca_theory.dependence.detection.STATISTICS`.
        centred: Whether the columns were centred first.
        mean: Mean of the statistic.
        sd: Standard deviation of the statistic.
        at_zero: Fraction of draws in which it is exactly 0.
        critical_value: Value above which the test rejects.
        level: Size of the test.
        power: Fraction of draws that the test rejects.
        draws: Number of draws.
    """

    structure: str
    parameter: str | None
    value: float | None
    statistic: str
    centred: bool
    mean: float
    sd: float
    at_zero: float
    critical_value: float
    level: float
    power: float
    draws: int


@dataclass(frozen=True, repr=False)
class CorrelationResult(Result):
    """Reconstruction and detection when entries are not independent.

    Attributes:
        rows: Errors, in order of structure, value, protocol and rank.
        crossings: Where LoRA overtakes DCT selection, for every structure, protocol and rank.
        detection: Power of the tests of independence, without and with centred columns; empty
            unless they were asked for.
    """

    rows: tuple[LossRow, ...] = table(LossRow)
    crossings: tuple[CrossingRow, ...] = table(CrossingRow)
    detection: tuple[PowerRow, ...] = table(PowerRow)
    command = "correlate"
