"""A session computes the runs of an experiment that are not stored, and writes its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from experiments.finetuning.methods import Budget, check, find_method, peft, rates_beyond
from experiments.finetuning.protocol import (
    Configuration,
    Row,
    best_rate,
    curve_rows,
    loca_of,
    point,
    row,
)
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks import Prepared, prepare
from experiments.finetuning.training import METRIC, compute, layer_shape
from loca_theory.cli.progress import progress_bar
from loca_theory.plotting.canvas import save_figure
from loca_theory.plotting.catalogue import find_figure
from loca_theory.sweeps import ResultStore, Runner
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import store_rows
from loca_theory.sweeps.store import Point
from loca_theory.transforms.devices import resolve_device

Analysis = Callable[[Configuration, tuple[int, ...]], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Finished:
    """A finished run and its result.

    Attributes:
        configuration: The configuration.
        run: The point that it was trained in, with other seeds.
        seed: Its seed.
        result: Its result.
    """

    configuration: Configuration
    run: Point
    seed: int
    result: Mapping[str, Any]

    @property
    def row(self) -> Row:
        """The table row of the run."""
        return row(self.configuration, self.run, self.seed, self.result)

    @property
    def curve(self) -> list[Row]:
        """The table rows of the evaluations on the validation set during the run."""
        return curve_rows(self.configuration, self.seed, self.result)


@dataclass(frozen=True)
class Session:
    """Options of the experiments: which runs to do, on which device, and where to write results.

    Attributes:
        out: Folder of runs, tables and figures.
        quick: Use tiny settings that only check that everything works; the numbers are meaningless.
        full: Run everything, not only the default selection.
        jobs: Worker processes; −1 for one per core.
        device: ``auto``, ``cpu`` or ``cuda[:N]``.
        seeds: Number of seeds; None for those of the protocol.
        quiet: Print neither progress nor notes.
        beyond_grid: Where the lowest or highest learning rate tried is best, also try those beyond
            it. The designs fix the rates that are tried, so this is for checks.
    """

    out: Path
    quick: bool = False
    full: bool = False
    jobs: int = -1
    device: str = "auto"
    seeds: int | None = None
    quiet: bool = False
    beyond_grid: bool = False

    @property
    def folder(self) -> Path:
        """Folder of tables and figures; those of quick runs go to a subfolder."""
        return self.out / "quick" if self.quick else self.out

    def options(self) -> list[str]:
        """The options of the command line that make the same session."""
        given = {"out": self.out, "jobs": self.jobs, "device": self.device, "seeds": self.seeds}
        flags = ("quick", "full", "beyond_grid", "quiet")
        return [
            *(f"--{name}={value}" for name, value in given.items() if value is not None),
            *(f"--{name.replace('_', '-')}" for name in flags if getattr(self, name)),
        ]

    @property
    def resolved_device(self) -> str:
        """The device that ``device`` stands for; ``auto`` stands for a GPU if there is one."""
        return resolve_device(self.device)

    def settings(self, task: str) -> dict[str, Any]:
        """The settings of a task."""
        return settings(task, quick=self.quick)

    def say(self, text: str) -> None:
        """Print a line on stderr unless the session is quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    def prepared(self, task: str) -> Prepared:
        """Data and pretrained model of a task."""
        return prepare(task, self.out / "tasks", quick=self.quick, say=self.say)

    def seeds_of(self, task: str) -> list[int]:
        """The seeds with which every configuration of a task is run."""
        return list(range(self.seeds or self.settings(task)["seeds"]))

    def tune(
        self, configurations: Sequence[Configuration], title: str
    ) -> dict[Configuration, float]:
        """Find the learning rate of each configuration with the best mean validation metric.

        The mean is over the tuning seeds; a rate with fewer diverged runs is preferred.
        """
        found: dict[Configuration, dict[float, list[float | None]]] = {}
        best: dict[Configuration, float] = {}
        untried = {one: self._rates(one) for one in configurations}
        while untried:
            wanted = [
                (one, rate, seeds)
                for one, rates in untried.items()
                for rate in rates
                for seeds in self._blocks(one.task, self.settings(one.task)["tuning_seeds"])
            ]
            for one in self._run(wanted, f"{title}: learning rates", tunes=True):
                of_rate = found.setdefault(one.configuration, {})
                of_rate.setdefault(one.run.parameters["rate"], []).append(one.result["validation"])
            best |= {one: best_rate(sorted(found[one]), found[one]) for one in untried}
            untried = {}
            if self.beyond_grid and not self.quick:
                further = {one: rates_beyond(found[one], rate) for one, rate in best.items()}
                untried = {one: rates for one, rates in further.items() if rates}
        at_end = [
            f"{one.method} r={one.r} ({rate:g})"
            for one, rate in best.items()
            if not self.quick and rate in (min(found[one]), max(found[one]))
        ]
        if at_end:
            self.say(f"note: the lowest or highest rate tried is best for {', '.join(at_end)}")
        return best

    def _blocks(self, task: str, seeds: Sequence[int]) -> list[tuple[int, ...]]:
        """The seeds in the blocks whose runs are trained together."""
        size = self.settings(task)["block"]
        return [tuple(seeds[start : start + size]) for start in range(0, len(seeds), size)]

    def _rates(self, configuration: Configuration) -> tuple[float, ...]:
        """The learning rates to try; one grid step lower from twice the task's default rank on.

        The more numbers are trained, the faster the increment grows at the same rate.
        """
        method, chosen = find_method(configuration.method), self.settings(configuration.task)
        rates = method.rates(chosen["grid"])
        if method.has_budget and configuration.r >= 2 * chosen["r"]:
            rates = method.rates(chosen["grid"], beyond=1)[: len(rates)]
        return rates[1:2] if self.quick else rates

    def run_on_all_seeds(
        self,
        rates: Iterable[tuple[Configuration, float]],
        title: str,
        analyse: Analysis | None = None,
    ) -> list[Finished]:
        """Run every configuration at its learning rate on all seeds."""
        wanted = [
            (configuration, rate, seeds)
            for configuration, rate in rates
            for seeds in self._blocks(configuration.task, self.seeds_of(configuration.task))
        ]
        return self._run(wanted, title, analyse)

    def _run(
        self,
        wanted: Sequence[tuple[Configuration, float, tuple[int, ...]]],
        title: str,
        analyse: Analysis | None = None,
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
                seeds=seeds,
                device=self.resolved_device,
                tunes=tunes,
                analyse=analyse(configuration, seeds) if analyse else None,
            )
            for configuration, rate, seeds in wanted
        ]
        # Points repeat: every sweep of a sensitivity study contains the run with default settings.
        distinct = list({one.key(): one for one in points}.values())
        results = self.compute(distinct, compute, title, in_words=_in_words)
        of_key = {one.key(): result for one, result in zip(distinct, results, strict=True)}
        return [
            Finished(configuration, one, seed, result)
            for (configuration, _, seeds), one in zip(wanted, points, strict=True)
            for seed, result in zip(seeds, of_key[one.key()]["runs"], strict=True)
        ]

    def compute(
        self,
        points: Sequence[Point],
        work: Callable[..., dict[str, Any]],
        title: str,
        *,
        unit: str = "runs",
        in_words: Callable[[Point, Mapping[str, Any]], str] | None = None,
        is_long: bool = False,
    ) -> list[dict[str, Any]]:
        """Compute every point whose result is not stored in the session's folder."""
        store = ResultStore(self.out / "runs")
        self.say(title)
        with progress_bar(title, unit, quiet=self.quiet) as bar:
            jobs = 1 if self.resolved_device.startswith("cuda") else self.jobs
            results = Runner(store, jobs, bar).run(
                points,
                partial(work, folder=self.out / "tasks"),
                (lambda *one: bar.title(in_words(*one))) if bar and in_words else None,
                is_long=is_long,
            )
        for line in store.rejected:
            self.say(f"note: {line}")
        return results

    def _checked(self, configurations: Sequence[Configuration]) -> dict[str, Prepared]:
        """Prepare the tasks, and check beforehand that every configuration can be run."""
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
        about = manifest(
            grid={task: self.settings(task) for task in tasks},
            seed=0,
            device=self.resolved_device,
            dtype="float32",
        )
        for table, rows in tables.items():
            self.report_written(
                store_rows(rows, about, self.folder, f"{name}-{table}" if table else name)
            )

    def draw(self, label: str, rows: Sequence[Row], suffix: str = "") -> None:
        """Draw a figure of the paper from the rows of its table, and save it."""
        draw, table = find_figure(label).draw, pd.DataFrame(list(rows))
        self.report_written(save_figure(draw(table), self.folder, label + suffix))

    def report_written(self, paths: Sequence[Path]) -> None:
        """Print the paths of written files on stderr unless the session is quiet."""
        for path in paths:
            self.say(f"wrote {path}")


def _in_words(run: Point, result: Mapping[str, Any]) -> str:
    p = run.parameters
    found = [one["validation" if p["tunes"] else "metric"] for one in result["runs"]]
    good = [value for value in found if value is not None]
    if not good:
        return f"{p['task']}, {p['method']}: diverged"
    return f"{p['task']}, {p['method']}: {METRIC} {sum(good) / len(good):.3f}"
