"""Base class of the methods that approximate a matrix within a budget."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods.engine import Engine

if TYPE_CHECKING:
    from torch import Tensor

    from loca_theory.expressivity.laws.first_step import StepSize

Budgets: TypeAlias = Sequence[Budget]
OptionalRng: TypeAlias = np.random.Generator | None  # of choices that do not depend on the matrix


class Method:
    r"""A method that approximates a matrix W by Ŵ within a budget.

    A subclass with a ``name`` and :meth:`approximate` is enough for Monte Carlo errors, errors on a
    real matrix and a line in the figure. Override :meth:`expected_errors` to add the exact engine,
    :meth:`limit` the asymptotic one, and :meth:`sample` to draw errors without a matrix. Errors
    are relative, :math:`\|W-\hat W\|^2/\|W\|^2` in Frobenius norm; expectations are for independent
    N(0, 1) entries. Matrices are finite floating-point tensors of the budget's shape.

    Attributes:
        name: Name in files, tables and figures.
        title: Title in a few words.
        reference: Publication.
        is_oracle: Whether the method uses W to choose what it retains. Training, which does not
            know W, can at best reach its error; that of any other method, at the least loss.

    >>> import torch
    >>> from loca_theory.expressivity import Budget, Method, retained_energies
    >>> class TopLeft(Method):
    ...     name, title = "top-left", "the first rows, as they are"
    ...     def approximate(self, matrix, budget, rng=None):
    ...         found = torch.zeros_like(matrix)
    ...         rows = budget.numbers // budget.q
    ...         found[:rows] = matrix[:rows]
    ...         return found
    >>> retained_energies(torch.ones(8, 8), TopLeft(), [Budget(8, 8, 1), Budget(8, 8, 2)])
    array([16., 32.])
    """

    name: str
    title: str = ""
    reference: str = ""
    is_oracle: bool = False

    def approximate(self, matrix: Tensor, budget: Budget, rng: OptionalRng = None) -> Tensor:
        """Approximate W by Ŵ, of the same shape.

        Args:
            matrix: W.
            budget: The budget.
            rng: Source of the method's random choices, if it makes any.

        Raises:
            InvalidArgumentError: this method does not approximate matrices.
        """
        raise InvalidArgumentError(
            f"{self.name} is only a formula for the error and cannot approximate a "
            "matrix; use another method, or define approximate(matrix, budget, rng) in your own"
        )

    def retained_energies(self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None) -> Array:
        """‖W‖² − ‖W − Ŵ‖² for several budgets, with one draw of the random choices for each."""
        approximations = (checked_approximation(self, matrix, budget, rng) for budget in budgets)
        lost = [squared_norm(matrix - approximation) for approximation in approximations]
        return squared_norm(matrix) - np.array(lost)

    def mean_retained_energies(
        self, matrix: Tensor, budgets: Budgets, rng: OptionalRng = None
    ) -> Array:
        """Mean of :meth:`retained_energies` over the random choices; one draw if it is unknown."""
        return self.retained_energies(matrix, budgets, rng)

    def expected_errors(self, budgets: Sequence[Budget]) -> Array:
        """Exact expected errors, for budgets that share p and q.

        Raises:
            InvalidArgumentError: the method has no exact value at this shape.
        """
        raise self._engine_error(Engine.EXACT, budgets[0])

    def limit(self, budget: Budget) -> float:
        """The limit of the error as p, q → ∞ with q/p and r/p fixed.

        Raises:
            InvalidArgumentError: the limit is not known.
        """
        raise self._engine_error(Engine.ASYMPTOTIC, budget)

    def sample(self, budgets: Sequence[Budget], rng: np.random.Generator) -> Array:
        """Draw the errors from their law, without drawing a matrix, for budgets that share p and q.

        The random numbers of a smaller budget are the first ones of a larger budget.

        Raises:
            InvalidArgumentError: the law is not known.
        """
        raise InvalidArgumentError(f'{self.name} has no reduced sampler; use sampler="dense"')

    def check_budget(self, budget: Budget) -> None:
        """Check that the method exists at this shape and budget.

        Raises:
            InvalidArgumentError: it does not; the message says at which it does.
        """

    def exists(self, budget: Budget) -> bool:
        """Whether the method exists at this shape and budget; :meth:`check_budget` says why not."""
        with suppress(InvalidArgumentError):
            self.check_budget(budget)
            return True
        return False

    def parameters(self, budget: Budget) -> int | None:
        """Count the trained numbers, as the code of the method does; None if it is not known.

        Raises:
            InvalidArgumentError: the method does not exist at this budget.
        """
        return None

    def stored_bits(self, budget: Budget) -> float | None:
        """Bits of the stored adapter: its numbers, and log2 of the candidates for each index.

        An index that follows from a seed or from the pretrained weights is not stored.

        Raises:
            InvalidArgumentError: the method does not exist at this budget.
        """
        count = self.parameters(budget)
        return None if count is None else float(budget.value_bits * count)

    def indices(self, budget: Budget) -> int:
        """Count the indices of what is chosen with knowledge of W."""
        return 0

    def first_step(self, budget: Budget) -> StepSize | None:
        """How far Adam's first step moves W, in units of the learning rate; None if not known.

        That of the adapter with PEFT's default scaling and initial values; LoRA with α = 2r.

        Raises:
            InvalidArgumentError: the method does not exist at this budget.
        """
        return None

    def engines(self, budget: Budget) -> frozenset[Engine]:
        """The engines that can evaluate this method at a budget; none where it does not exist."""
        if not self.exists(budget):
            return frozenset()
        has = {
            Engine.EXACT: self.defines("expected_errors"),
            Engine.ASYMPTOTIC: self.defines("limit"),
            Engine.MONTE_CARLO: self.defines("sample") or self.can_approximate,
        }
        return frozenset(engine for engine, is_known in has.items() if is_known)

    @property
    def can_approximate(self) -> bool:
        """Whether the method can approximate a given matrix."""
        return self.defines("approximate") or self.defines("retained_energies")

    def defines(self, function: str) -> bool:
        """Whether this method overrides a function of :class:`Method`."""
        return getattr(type(self), function) is not getattr(Method, function)

    def _engine_error(self, engine: Engine, budget: Budget) -> InvalidArgumentError:
        missing = "exact value" if engine is Engine.EXACT else "known limit"
        engines = sorted(self.engines(budget), reverse=True)
        way_out = " or ".join(f'engine="{other}"' for other in engines) or "another method"
        return InvalidArgumentError(
            f"{self.name} has no {missing} at {budget.p}x{budget.q}, rank {budget.r}; use {way_out}"
        )


def checked_approximation(
    method: Method, matrix: Tensor, budget: Budget, rng: OptionalRng
) -> Tensor:
    """Call :meth:`Method.approximate`, and return Ŵ in the matrix's type, on its device."""
    import torch

    answer = called(method, "approximate", matrix, budget, rng)
    requirement, description = f"a tensor of shape {tuple(matrix.shape)}", ""
    if not isinstance(answer, torch.Tensor):
        is_array = isinstance(answer, np.ndarray)
        description = "an ndarray; use torch.from_numpy" if is_array else type(answer).__name__
    elif answer.shape != matrix.shape:
        description = str(tuple(answer.shape))
    elif answer.is_complex() or not answer.isfinite().all():
        requirement = "real, finite entries"
        description = "complex numbers" if answer.is_complex() else "NaN or infinite entries"
    if description:
        raise InvalidArgumentError(
            f"{method.name}.approximate must return {requirement}, not {description}"
        )
    return answer.to(matrix)


def called(method: Method, function: str, *arguments: Any) -> Any:
    """Call a function of a method; turn an exception into a one-line error with its name."""
    try:
        return getattr(method, function)(*arguments)
    except (LocaTheoryError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, RuntimeError):
            from loca_theory.transforms.devices import is_out_of_memory

            if is_out_of_memory(error):
                raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        is_of_call = error.__traceback__ and not error.__traceback__.tb_next
        fault = f"failed ({reason})"
        if is_of_call and isinstance(error, TypeError):
            names = list(inspect.signature(getattr(Method, function)).parameters)[1:]
            fault = f"must take ({', '.join(names)}): {reason}"
        raise InvalidArgumentError(f"{method.name}.{function} {fault}") from error


@dataclass(frozen=True)
class NamedMethod(Method):
    """Base class of methods that get their name, title and reference as arguments."""

    name: str
    title: str = ""
    reference: str = ""

    def check_budget(self, budget: Budget) -> None:
        """See :class:`Method`: the trained numbers can be counted where the method exists."""
        self.parameters(budget)


def squared_norm(matrix: Tensor) -> float:
    """‖W‖², summed in double precision."""
    return float(matrix.double().square().sum())
