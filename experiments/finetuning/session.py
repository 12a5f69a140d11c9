"""A sitting: runs that are missing are made, those that are there are not made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from experiments.finetuning.methods import Budget, check, find_method, peft
from experiments.finetuning.protocol import (
    Configuration,
    Row,
    best_rate,
    curve_rows,
    loca_of,
    point,
    row,
    version,
)
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks import Prepared, prepare
from experiments.finetuning.training import compute, layer_shape
from loca_theory.cli.progress import progress_bar
from loca_theory.plotting import find_figure, save_figure
from loca_theory.sweeps import Point, ResultStore, Runner, manifest, store_rows
from loca_theory.sweeps.files import writable_folder
from loca_theory.transforms import resolve_device


@dataclass(frozen=True)
class Finished:
    """A run and what came out."""

    configuration: Configuration
    run: Point
    result: Mapping[str, Any]

    @property
    def row(self) -> Row:
        """The run as a line of a table."""
        return row(self.configuration, self.run, self.result)

    @property
    def curve(self) -> list[Row]:
        """Its looks at the validation set."""
        return curve_rows(self.configuration, self.run, self.result)


@dataclass(frozen=True)
class Session:
    """Where and how much.

    Attributes:
        out: Folder of tables and figures.
        quick: Small enough to show in seconds that it works; its numbers mean nothing.
        full: Everything, not the default choice only.
        jobs: Worker processes; −1 for one per core.
        device: ``auto``, ``cpu`` or ``cuda[:N]``.
        seeds: How many seeds; None for the protocol's.
        quiet: No progress.
    """

    out: Path
    quick: bool = False
    full: bool = False
    jobs: int = -1
    device: str = "auto"
    seeds: int | None = None
    quiet: bool = False

    @property
    def folder(self) -> Path:
        """Where tables and figures go; a quick run never stands in the place of a real one."""
        return self.out / "quick" if self.quick else self.out

    @property
    def where(self) -> str:
        """The device, of those that there are.

        Raises:
            InvalidArgumentError: the name is none of a device.
            ResourceError: there is no such device.
        """
        return resolve_device(self.device)

    def settings(self, task: str) -> dict[str, Any]:
        """The numbers of a task."""
        return settings(task, quick=self.quick)

    def say(self, text: str) -> None:
        """A line on stderr."""
        if not self.quiet:
            click.echo(text, err=True)

    def prepared(self, task: str) -> Prepared:
        """Its data and model."""
        return prepare(task, self.out / "tasks", quick=self.quick, say=self.say)

    def seeds_of(self, task: str) -> list[int]:
        """Seeds of the results."""
        listed = self.settings(task)["seeds"]
        return list(range(self.seeds)) if self.seeds else listed

    def tuned(
        self, configurations: Sequence[Configuration], title: str
    ) -> dict[Configuration, float]:
        """The best rate of each cell, by the validation set and the tuning seeds."""
        wanted = [
            (configuration, rate, seed)
            for configuration in configurations
            for rate in self._rates(configuration)
            for seed in self.settings(configuration.task)["tuning_seeds"]
        ]
        done = self._run(wanted, f"{title}: learning rates", tunes=True)
        found: dict[Configuration, dict[float, list[float | None]]] = {}
        for (configuration, rate, _), one in zip(wanted, done, strict=True):
            found.setdefault(configuration, {}).setdefault(rate, []).append(
                one.result["validation"]
            )
        best = {
            configuration: best_rate(
                list(by_rate), by_rate, self.settings(configuration.task)["metric"]
            )
            for configuration, by_rate in found.items()
        }
        at_end = [
            f"{configuration.method} r={configuration.r} ({rate:g})"
            for configuration, rate in best.items()
            if not self.quick
            and rate in (self._rates(configuration)[0], self._rates(configuration)[-1])
        ]
        if at_end:
            self.say(f"note: the best rate is the first or last of four for {', '.join(at_end)}")
        return best

    def _rates(self, configuration: Configuration) -> tuple[float, ...]:
        """Four; all a rung lower from twice the task's own budget on, for any method alike.

        With more numbers that each move by its rate, an increment grows faster.
        """
        method, own = find_method(configuration.method), self.settings(configuration.task)["r"]
        rates = method.rates(configuration.task)
        if method.has_budget and configuration.r >= 2 * own:
            rates = method.rates(configuration.task, beyond=1)[: len(rates)]
        return rates[1:2] if self.quick else rates

    def repeated(
        self,
        rated: Iterable[tuple[Configuration, float]],
        title: str,
        analyse: Callable[[Configuration, int], Mapping[str, Any] | None] | None = None,
    ) -> list[Finished]:
        """Every cell at its rate over all seeds, in the order of the cells, then of the seeds.

        Args:
            rated: Cells, each with its learning rate.
            title: What the bar says.
            analyse: What to describe of the increments of a cell and seed.
        """
        wanted = [
            (configuration, rate, seed)
            for configuration, rate in rated
            for seed in self.seeds_of(configuration.task)
        ]
        return self._run(wanted, title, analyse)

    def _run(
        self,
        wanted: Sequence[tuple[Configuration, float, int]],
        title: str,
        analyse: Callable[[Configuration, int], Mapping[str, Any] | None] | None = None,
        *,
        tunes: bool = False,
    ) -> list[Finished]:
        prepared = self._checked([configuration for configuration, _, _ in wanted])
        points = [
            point(
                configuration,
                self.settings(configuration.task),
                prepared[configuration.task],
                rate=rate,
                seed=seed,
                device=self.where,
                tunes=tunes,
                analyse=analyse(configuration, seed) if analyse else None,
            )
            for configuration, rate, seed in wanted
        ]
        # Settings that are swept one at a time meet where all are at their usual values.
        distinct = list({one.key(""): one for one in points}.values())
        store = ResultStore(self.out / "runs", version())
        self.say(title)
        with progress_bar(title, "runs", quiet=self.quiet) as bar:
            jobs = 1 if self.where.startswith("cuda") else self.jobs
            results = Runner(store, jobs, progress=bar).run(
                distinct,
                partial(compute, folder=self.out / "tasks"),
                bar and (lambda *one: bar.title(_in_words(*one))),
            )
        for line in store.rejected:
            self.say(f"note: {line}")
        of_key = {one.key(""): result for one, result in zip(distinct, results, strict=True)}
        return [
            Finished(configuration, one, of_key[one.key("")])
            for (configuration, _, _), one in zip(wanted, points, strict=True)
        ]

    def _checked(self, configurations: Sequence[Configuration]) -> dict[str, Prepared]:
        """Prepared tasks; every cell is one that can be run, before anything takes time."""
        peft()
        resolve_device(self.device)
        writable_folder(self.out)
        prepared: dict[str, Prepared] = {}
        shapes: dict[str, tuple[int, int]] = {}
        for configuration in dict.fromkeys(configurations):
            method, chosen = find_method(configuration.method), self.settings(configuration.task)
            if configuration.task not in prepared:
                prepared[configuration.task] = self.prepared(configuration.task)
                shapes[configuration.task] = layer_shape(prepared[configuration.task], chosen)
            check(
                method,
                Budget(configuration.r, chosen["steps"]),
                shapes[configuration.task],
                loca_of(configuration, chosen),
            )
        return prepared

    def store(self, name: str, tables: Mapping[str, Sequence[Row]]) -> None:
        """Write tables as ``name`` or ``name-TABLE``, each with a manifest."""
        tasks = sorted(
            {entry["task"] for rows in tables.values() for entry in rows if "task" in entry}
        )
        origin = manifest(
            grid={task: self.settings(task) for task in tasks},
            seed=0,
            device=self.where,
            dtype="float32",
        )
        for table, rows in tables.items():
            self.wrote(store_rows(rows, origin, self.folder, f"{name}-{table}" if table else name))

    def draw(self, label: str, rows: Sequence[Row], own: str = "") -> None:
        """Save a figure as ``loca-theory figures`` draws it from its table.

        Args:
            label: Which.
            rows: Its table.
            own: What is added to the label for the name of the files.
        """
        draw, table = find_figure(label).draw, pd.DataFrame(list(rows))
        self.wrote(save_figure(draw(table), self.folder, label + own))

    def wrote(self, paths: Sequence[Path]) -> None:
        """Say what was written."""
        for path in paths:
            self.say(f"wrote {path}")


def _in_words(run: Point, result: Mapping[str, Any]) -> str:
    p = run.parameters
    if result["diverged"]:
        return f"{p['method']} diverged"
    metric = result["validation" if p["tunes"] else "metric"]
    name = p["settings"]["metric"]
    return f"{p['method']}: loss {result['loss']:.2f}, {name} {metric:.3f}"
