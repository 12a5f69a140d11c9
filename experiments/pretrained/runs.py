"""Runs of the ablation, whose rows are stored as they come, and ``design.toml``, fixed before.

The probe was tuned first, whose rate is that of the new head in all other runs; then the rates of
the methods; then, at its rate, the location rate of LoCA. Each setting was tuned by itself, except
for those that take the rates of another. At commit 63bc2d1c, the last with the search over rates,
the design asked for the runs that are stored.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from experiments.finetuning.metrics import METRICS, constant_score
from experiments.finetuning.protocol import Configuration, Finished, point
from experiments.finetuning.tasks.prepared import Prepared, load, prepare_by
from experiments.finetuning.tasks.published import check_files
from experiments.finetuning.training import TRAINING_CODE, SeedGroup, compute, training_runs
from experiments.tables import Row, stored_rows
from loca_theory.errors import ResourceError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.store import Point
from loca_theory.sweeps.tables import store_rows
from loca_theory.sweeps.threads import one_thread
from loca_theory.sweeps.version import code_version, library_version
from loca_theory.transforms import dct2

STORED = Path(__file__).parents[2] / "figures" / "pretrained"
TABLE, RETAINED = "runs", "retained"
FULL = "full"
MEASURED = ("metric", "loss", "parts", "diverged")
"""The part of a row that a run of the same settings repeats to the bit."""

# Columns of the line that is printed when a run is done.
_SHOWN = ("setting", "task", "method", "rate", "location_rate", "seed", "metric", "loss", "seconds")

Design = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """A run: a method with its rates on a task, in a setting, with one seed."""

    setting: str
    task: str
    method: str
    rate: float
    location_rate: float
    head_rate: float
    seed: int
    tunes: bool


Rows = Mapping[Trial, Row]
"""The rows of trials."""


FIRST: dict[str, Any] = tomllib.loads(Path(__file__).with_name("design.toml").read_text("utf-8"))
"""The design of the first study: everything that was fixed before its runs."""


def tasks_of_kinds(design: Design) -> list[str]:
    """The tasks of all kinds, in their order."""
    return [task for tasks in design["kinds"].values() for task in tasks]


def score_of(row: Row) -> float:
    """The score of a run; of one that diverged, the trivial one."""
    return row["trivial"] if row["metric"] is None else row["metric"]


def tasks_in(setting: str, design: Design = FIRST) -> list[str]:
    """The tasks of a setting."""
    return list(design["settings"][setting].get("tasks", design["tasks"]))


def trial_settings(task: str, setting: str = "main", design: Design = FIRST) -> dict[str, Any]:
    """All settings of a task."""
    return {**design["protocol"], **design["tasks"][task], **design["settings"][setting]}


def prepare_all(data: Path, folder: Path, design: Design = FIRST) -> dict[str, Prepared]:
    """Prepare all tasks from the files in ``data``."""
    for name, expected in design["versions"].items():
        installed = library_version(name)
        if (installed or "").partition("+")[0] != expected:
            raise ResourceError(
                f"the design has {name} {expected}, and {installed or 'none'} is installed; "
                f"pip install {name}=={expected}"
            )
    check_files(design["tasks"], data)
    prepared = {}
    for task in design["tasks"]:
        chosen = {**design["protocol"], **design["tasks"][task]}
        prepared[task] = prepare_by(task, {**chosen, "data": str(data)}, chosen, folder)
        if prepared[task].digest != design["digests"].get(task, prepared[task].digest):
            raise ResourceError(
                f"the texts of {task} differ from those of the design, whose source is "
                + chosen["source"]
            )
    return prepared


def train(trial: Trial, prepared: Prepared, design: Design = FIRST) -> Row:
    """Run a trial, and return its row."""
    configuration, run = point_of(trial, prepared, design)
    with one_thread():
        (result,) = compute(run, prepared.folder.parent, _located(trial, prepared, design))["runs"]
    # A run that tunes is measured on the validation set.
    measured = {"metric": result["validation"]} if trial.tunes else {}
    row = Finished(configuration, run, trial.seed, {**result, **measured}).row
    labels = load(*prepared)[0]["validation" if trial.tunes else "test"]["labels"]
    row["trivial"] = constant_score(labels, METRICS[row["measure"]])
    about = {"machine": machine(run.parameters["device"]), "code": code_of(design)}
    return {**row, **asdict(trial), "parts": result["parts"], **about}


def _located(
    trial: Trial, prepared: Prepared, design: Design = FIRST
) -> Callable[[SeedGroup], None] | None:
    """Where the setting asks for it: put components where another run's increment is largest."""
    other = trial_settings(trial.task, trial.setting, design).get("located_by")
    if not other:
        return None
    energies = spectra(replace(trial, **other), prepared)

    def put(group: SeedGroup) -> None:
        for spectrum, energy in zip(group.runs[0].spectra, energies, strict=True):
            best = energy.flatten().topk(len(spectrum.indices)).indices
            spectrum.set_indices(torch.stack(torch.unravel_index(best, energy.shape), dim=1))
        group.runs[0].first_indices = [
            spectrum.indices.clone() for spectrum in group.runs[0].spectra
        ]

    return put


def spectra(trial: Trial, prepared: Prepared) -> list[torch.Tensor]:
    """Train, and return the squares of the DCT of each layer's increment."""
    _, run = point_of(trial, prepared)
    with training_runs(run, prepared.folder.parent) as (group, _, _):
        return [dct2(change.double()).square() for change in group.runs[0].increments().values()]


def point_of(
    trial: Trial, prepared: Prepared, design: Design = FIRST
) -> tuple[Configuration, Point]:
    """The configuration that a trial trains, and all that its result depends on."""
    chosen = trial_settings(trial.task, trial.setting, design) | {"head_rate": trial.head_rate}
    configuration = Configuration(
        trial.task, trial.method, int(chosen["r"]), location_rate=trial.location_rate
    )
    options: dict[str, Any] = {"device": str(chosen["device"]), "tunes": trial.tunes}
    seeds = [trial.seed]
    run = point(configuration, chosen, prepared, rate=trial.rate, seeds=seeds, **options)
    return configuration, run


def code_of(design: Design) -> str:
    """Hash of a design and of the code that trains."""
    content = code_version(*TRAINING_CODE) + json.dumps(design, sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def machine(device: str) -> str:
    """The card, or CPU, and the libraries that train on it."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    names = ("torch", "transformers", "peft")
    libraries = [f"{key} {(library_version(key) or '').partition('+')[0]}" for key in names]
    return ", ".join([name, *libraries])


def stored(folder: Path) -> dict[Trial, Row]:
    """The rows that are stored, by what was run."""
    return {trial_of(row): row for row in stored_rows(folder, TABLE)}


def trial_of(row: Mapping[str, Any]) -> Trial:
    """The trial of a row."""
    return Trial(**{field.name: row[field.name] for field in fields(Trial)})


def continue_runs(
    trials: Iterable[Trial],
    prepared: Mapping[str, Prepared],
    folder: Path,
    design: Design = FIRST,
    *,
    stops: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the trials that the folder lacks, until ``stops``, if its rows are of the same code.

    Raises:
        ResourceError: a stored row is of another code or design.
    """
    done, code = stored(folder), code_of(design)
    missing = [trial for trial in trials if trial not in done]
    other_codes = sorted({row["code"] for row in done.values()} - {code})
    if missing and other_codes:
        raise ResourceError(
            f"{folder} has rows of the code {', '.join(other_codes)}, and this is {code}; "
            "run the commit that they are of, or name another folder"
        )
    about = manifest(grid={"versions": design["versions"]}, seed=0, dtype="float32")
    for trial in missing:
        if stops():
            return
        row = train(trial, prepared[trial.task], design)
        done[trial_of(row)] = row
        store_rows(list(done.values()), about, folder, TABLE)
        say(f"{len(done)}: " + ", ".join(f"{row[name]}" for name in _SHOWN))
