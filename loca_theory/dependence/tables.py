"""Build the tables of a study: losses, crossings and power."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from loca_theory._types import Array
from loca_theory.dependence.crossings import Crossing, Gap, find_crossings
from loca_theory.dependence.design import Design, Protocol
from loca_theory.dependence.detection import (
    STATISTICS,
    low_frequency_critical_value,
    upper_critical_value,
)
from loca_theory.dependence.draws import Blocks
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.results import CrossingRow, LossRow, PowerRow
from loca_theory.dependence.structure import Structure
from loca_theory.expressivity import exact_error

Configuration: TypeAlias = tuple[Structure, float]
Drawn: TypeAlias = Mapping[Configuration, Blocks]


def loss_rows(study: Design, blocks: Drawn, predictions: Sequence[Prediction]) -> Iterator[LossRow]:
    """Errors of every method at every value, rank and protocol of each structure."""
    expected = {
        method.name: method.expected_errors(study.budgets)
        for protocol in study.protocols
        for method in study.methods_under(protocol)
        if not protocol.draws(method)
    }
    size = study.p if study.p == study.q else None
    for structure in study.structures:
        for value in study.grid(structure):
            block = blocks[structure, value]
            losses = {method.name: block.losses(method.name) for method in study.drawn}
            for protocol, (i, prediction) in product(study.protocols, enumerate(predictions)):
                for method in study.methods_under(protocol):
                    drawn = protocol.draws(method)
                    if drawn:
                        error, standard_error = (float(values[i]) for values in losses[method.name])
                        closed_form = prediction.error(structure, method.name, value)
                    else:
                        error, standard_error = float(expected[method.name][i]), 0.0
                        closed_form = error
                    yield LossRow(
                        structure=structure.name,
                        protocol=protocol,
                        parameter=structure.parameter,
                        value=value,
                        K=size,
                        p=study.p,
                        q=study.q,
                        r=prediction.budget.r,
                        method=method.name,
                        error=error,
                        standard_error=standard_error,
                        draws=study.draws if drawn else None,
                        closed_form=closed_form,
                    )


def crossing_rows(
    study: Design,
    blocks: Drawn,
    predictions: Sequence[Prediction],
    compute: Callable[[Sequence[Configuration]], Drawn],
) -> list[CrossingRow]:
    """Where R's error passes below D's, for every structure, protocol and rank."""
    computed = dict(blocks)
    searches = list(product(study.structures, study.protocols, range(len(study.ranks))))

    def gap(search: int, value: float) -> Gap:
        structure, protocol, i = searches[search]
        block = computed[structure, value]
        if protocol is Protocol.SAME_DRAW:
            mean, error = block.gap()
            return float(mean[i]), float(error[i])
        mean, error = block.losses("LoRA")
        return float(mean[i]) - exact_error("LoCA", study.budgets[i]), float(error[i])

    def gaps(points: Sequence[tuple[int, float]]) -> list[Gap]:
        configurations = dict.fromkeys((searches[search][0], value) for search, value in points)
        computed.update(compute([pair for pair in configurations if pair not in computed]))
        return [gap(search, value) for search, value in points]

    grids = [
        (grid := study.grid(structure), [gap(search, value) for value in grid])
        for search, (structure, _, _) in enumerate(searches)
    ]
    return [
        CrossingRow(
            structure=structure.name,
            protocol=protocol,
            parameter=structure.parameter,
            r=study.ranks[i],
            **crossing._asdict(),
            closed_form=predictions[i].crossing(structure, protocol, values[0], values[-1]),
            finding=_finding(crossing, curve),
            searched_from=values[0],
            searched_to=values[-1],
        )
        for (structure, protocol, i), crossing, (values, curve) in zip(
            searches, find_crossings(grids, gaps), grids, strict=True
        )
    ]


def detection_rows(
    study: Design, blocks: Drawn, nulls: Mapping[bool, Mapping[str, Array]]
) -> Iterator[PowerRow]:
    """Power of every statistic, preceded by its law under independence."""
    for is_centred in (False, True):
        null = nulls[is_centred]
        critical = {
            name: upper_critical_value(values, study.level) for name, values in null.items()
        }
        critical["low-frequency"] = low_frequency_critical_value(
            study.p, study.q, study.level, is_centred=is_centred
        )
        for statistic in STATISTICS:
            samples: list[tuple[str, str | None, float | None, Array]] = [
                (
                    structure.name,
                    structure.parameter,
                    value,
                    blocks[structure, value].statistic(statistic, is_centred=is_centred),
                )
                for structure in study.structures
                for value in study.detection_values(structure)
            ]
            if statistic in null:
                samples.insert(0, ("independent", None, None, null[statistic]))
            for structure, parameter, value, observed in samples:
                yield PowerRow(
                    structure=structure,
                    parameter=parameter,
                    value=value,
                    statistic=statistic,
                    centred=is_centred,
                    mean=float(observed.mean()),
                    sd=float(observed.std(ddof=1)),
                    at_zero=float((observed == 0).mean()),
                    critical_value=critical[statistic],
                    level=study.level,
                    power=float((observed > critical[statistic]).mean()),
                    draws=len(observed),
                )


def _finding(crossing: Crossing, gaps: Sequence[Gap]) -> str:
    """The field ``finding`` of :class:`CrossingRow`."""
    if crossing.crossing is not None:
        return "crossing"
    if all(mean > 0 for mean, _ in gaps):
        return "LoCA throughout"
    return "LoRA throughout" if all(mean <= 0 for mean, _ in gaps) else "LoRA at the start"
