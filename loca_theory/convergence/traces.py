"""Which problems and searches a run traces step by step, and the rows of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loca_theory.convergence.problems import ProblemFamily
from loca_theory.convergence.results import TraceRow

# Searches to trace if more than _MOST_TRACED were run; the baseline is always traced.
_TRACED = ("central", "reselect")
_BASELINE, _MOST_TRACED = "coefficients-only", 5


def traced_problems(outcomes: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Numbers of the first problem that a search recovers, and of the first that it does not."""
    exact, losses = outcomes["exact"], outcomes["loss"]
    is_missed = [not e and loss is not None for e, loss in zip(exact, losses, strict=True)]
    cases = {"recovered": list(exact), "not recovered": is_missed}
    first = {case: flags.index(True) for case, flags in cases.items() if any(flags)}
    return first or {"not recovered": 0}  # all diverged: trace the first


def traced_searches(searches: Sequence[str], chosen: str) -> tuple[str, ...]:
    """The searches to trace beside the one whose outcomes choose the problems."""
    searches_traced = searches if len(searches) <= _MOST_TRACED else _TRACED
    return tuple(dict.fromkeys((_BASELINE, *searches_traced, chosen)))


def trace_rows(
    case: str,
    chosen: str,
    search: str,
    number: int,
    family: ProblemFamily,
    trace: dict[str, list[Any]],
) -> Iterator[TraceRow]:
    """Yield the trace of one problem: true components, then learned ones at every recorded step."""
    steps = [("truth", 0, 0.0, trace["truth"])]
    for step, loss, components in zip(
        trace["steps"], trace["losses"], trace["components"], strict=True
    ):
        steps.append(("learned", step, loss, components))
    for kind, step, loss, components in steps:
        for n, (row, column, coefficient) in enumerate(components):
            yield TraceRow(
                case=case,
                chosen_by=chosen,
                search=search,
                problem=number,
                size=family.size,
                kind=kind,
                step=step,
                component=n,
                row=row,
                column=column,
                coefficient=coefficient,
                loss=loss,
            )
