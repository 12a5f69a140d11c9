"""A session computes the runs of an experiment that are not stored, and writes its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from experiments.finetuning.adaptation import require_peft
from experiments.finetuning.methods import Budget, check_runnable, find_method
from experiments.finetuning.metrics import DEFAULT_METRIC
from experiments.finetuning.protocol import Configuration, Finished, best_rate, loca_of, point
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.tasks.prepared import Prepared, prepare
from experiments.finetuning.training import compute, layer_shape
from experiments.tables import Row
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import save_figure
from loca_theory.plotting.catalogue import find_figure
from loca_theory.sweeps import ResultStore, Runner
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.progress import progress_bar
from loca_theory.sweeps.store import Point
from loca_theory.sweeps.tables import store_rows
from loca_theory.transforms.devices import resolve_device


@dataclass(frozen=True)
class Session:
    """The options of a command, and what it does with them: tune, run, store, draw."""

    out: Path  # folder of runs, tables and figures
    quick: bool = False  # tiny settings that only check that everything works
    full: bool = False  # everything, not only the default selection
    jobs: int = -1  # worker processes; −1 for one per core
    device: str = "auto"
    seeds: int | None = None  # None for those of the protocol
    quiet: bool = False

    @property
    def folder(self) -> Path:
        """Folder of tables and figures; those of quick runs go to a subfolder."""
        return self.out / "quick" if self.quick else self.out

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

    def tune(self, cases: Sequence[Configuration], title: str) -> dict[Configuration, float]:
        """Find the learning rate of each configuration with the best mean validation metric."""
        scores: dict[Configuration, dict[float, list[float | None]]] = {}
        runs = [(case, rate) for case in dict.fromkeys(cases) for rate in self._rates(case)]
        for done in self.run(runs, f"{title}: learning rates", tunes=True):
            of_rate = scores.setdefault(done.configuration, {})
            of_rate.setdefault(done.run.parameters["rate"], []).append(done.result["validation"])
        best = {case: best_rate(sorted(of_rate), of_rate) for case, of_rate in scores.items()}
        at_end = [
            f"{case.method} r={case.r} ({rate:g})"
            for case, rate in best.items()
            if not self.quick and rate in (min(scores[case]), max(scores[case]))
        ]
        if at_end:
            self.say(f"note: the lowest or highest rate tried is best for {', '.join(at_end)}")
        return best

    def _rates(self, configuration: Configuration) -> tuple[float, ...]:
        """Learning rates to try; one step lower if the rank is at least twice the task's."""
        method, chosen = find_method(configuration.method), self.settings(configuration.task)
        rates = method.rates(chosen["grid"])
        if method.has_budget and configuration.r >= 2 * chosen["r"]:
            rates = method.rates(chosen["grid"], beyond=1)[: len(rates)]
        return rates[1:2] if self.quick else rates

    def run(
        self, pairs: Iterable[tuple[Configuration, float]], title: str, *, tunes: bool = False
    ) -> list[Finished]:
        """Run configurations at their learning rates on all seeds, or on the tuning seeds."""
        pairs = list(pairs)
        prepared = self._checked([case for case, _ in pairs])
        runs: list[tuple[Configuration, Point]] = []
        options: dict[str, Any] = {"tunes": tunes, "device": self.resolved_device}
        for case, rate in pairs:
            chosen = self.settings(case.task)
            seeds = chosen["tuning_seeds"] if tunes else self.seeds_of(case.task)
            for start in range(0, len(seeds), chosen["block"]):
                block = seeds[start : start + chosen["block"]]
                run = point(case, chosen, prepared[case.task], rate=rate, seeds=block, **options)
                runs.append((case, run))
        # Points repeat: every sweep of a sensitivity study contains the run with default settings.
        distinct = list({run.key(): run for _, run in runs}.values())
        results = zip(distinct, self._compute(distinct, title), strict=True)
        of_key = {run.key(): result for run, result in results}
        return [
            Finished(case, run, seed, result)
            for case, run in runs
            for seed, result in zip(run.parameters["seeds"], of_key[run.key()]["runs"], strict=True)
        ]

    def _compute(self, points: Sequence[Point], title: str) -> list[dict[str, Any]]:
        """Compute every point whose result is not stored in the session's folder."""
        store = ResultStore(self.out / "runs")
        self.say(title)
        with progress_bar(title, "runs", is_shown=not self.quiet) as bar:
            jobs = 1 if self.resolved_device.startswith("cuda") else self.jobs
            results = Runner(store, jobs, bar).run(
                points,
                partial(compute, folder=self.out / "tasks"),
                (lambda *words: bar.title(_in_words(*words))) if bar else None,
            )
        for line in store.rejected:
            self.say(f"note: {line}")
        return results

    def _checked(self, cases: Sequence[Configuration]) -> dict[str, Prepared]:
        """Prepare the tasks, and check beforehand that every configuration can be run."""
        require_peft()
        resolve_device(self.device)
        writable_folder(self.out)
        prepared = {
            task: self.prepared(task) for task in dict.fromkeys(case.task for case in cases)
        }
        shapes = {task: layer_shape(data, self.settings(task)) for task, data in prepared.items()}
        for case in dict.fromkeys(cases):
            chosen = self.settings(case.task)
            method, budget = find_method(case.method), Budget(case.r, chosen["steps"])
            check_runnable(method, budget, shapes[case.task], loca_of(case, chosen))
        return prepared

    def store(self, name: str, tables: Mapping[str, Sequence[Row]]) -> None:
        """Write tables as ``name`` or ``name-TABLE``, each with a manifest."""
        tasks = sorted({row["task"] for rows in tables.values() for row in rows if "task" in row})
        grid = {task: self.settings(task) for task in tasks}
        about = manifest(grid=grid, seed=0, device=self.resolved_device, dtype="float32")
        for table, rows in tables.items():
            stored = f"{name}-{table}" if table else name
            self.report_written(store_rows(rows, about, self.folder, stored))

    def draw(self, label: str, rows: Sequence[Row], suffix: str = "") -> None:
        """Draw a figure of the paper from the rows of its table, and save it."""
        figure = find_figure(label).draw(pd.DataFrame(list(rows)))
        self.report_written(save_figure(figure, self.folder, label + suffix))

    def report_written(self, paths: Sequence[Path]) -> None:
        """Print the paths of written files on stderr unless the session is quiet."""
        for path in paths:
            self.say(f"wrote {path}")


def _in_words(run: Point, result: Mapping[str, Any]) -> str:
    p = run.parameters
    scores = [outcome["validation" if p["tunes"] else "metric"] for outcome in result["runs"]]
    good = [value for value in scores if value is not None]
    mean = f"{DEFAULT_METRIC} {sum(good) / len(good):.3f}" if good else "diverged"
    return f"{p['task']}, {p['method']}: {mean}"


def tasks_of(session: Session, task: str | None) -> list[str]:
    """The given task; without one all small tasks, or in a quick session one of each kind."""
    if task:
        return [task]
    small = [name for name in task_names() if session.settings(name)["grid"] == "small"]
    if not session.quick:
        return small
    return list({session.settings(name)["module"]: name for name in reversed(small)}.values())[::-1]


def configurations(
    session: Session, task: str, names: Sequence[str], r: int | None = None
) -> list[Configuration]:
    """One configuration per method, at the budget ``r`` or, if it is None, at that of the task."""
    chosen = session.settings(task)
    run = [name for name in names if chosen["grid"] in find_method(name).lowest]
    if len(run) < len(names):
        msg = f"{', '.join(name for name in names if name not in run)} cannot be run on {task}"
        if not run:
            raise InvalidArgumentError(msg + "; choose another method or task")
        session.say(f"note: {msg}")
    return [Configuration(task, name, r or chosen["r"]) for name in run]
