"""The small ViT, prepared once in its quick form."""

import pytest
import torch


@pytest.fixture(scope="session")
def tasks_folder(tmp_path_factory):
    for name in ("mlxtend", "peft", "transformers"):
        pytest.importorskip(name)
    return tmp_path_factory.mktemp("finetuning") / "tasks"


@pytest.fixture(scope="session")
def vision(tasks_folder):
    from experiments.finetuning.tasks import prepare

    return prepare("vision", tasks_folder, quick=True)


@pytest.fixture(scope="session")
def begin(vision, tasks_folder):
    """A run of a method on its way, before its first step."""
    from experiments.finetuning.protocol import Cell, point
    from experiments.finetuning.settings import settings
    from experiments.finetuning.tasks import load
    from experiments.finetuning.tasks.registry import base_model
    from experiments.finetuning.training import _quiet, _Run
    from loca_theory.sweeps import generator

    def start(method, *, seed=0, rate=1e-2, r=2, **changed):
        chosen = {**settings("vision", quick=True), **changed}
        cell = Cell("vision", method, r)
        run = point(cell, chosen, vision, rate=rate, seed=seed, device="cpu")
        p = dict(run.parameters)
        splits, _ = load(vision.folder, vision.digest)
        with torch.random.fork_rng(devices=[]), _quiet():
            torch.manual_seed(int(generator(seed, "finetuning.model").integers(2**62)))
            return _Run(p, base_model(vision, p["settings"]), splits)

    return start


@pytest.fixture(scope="session")
def computed(vision, tasks_folder):
    """What a run of a method comes to."""
    from experiments.finetuning.protocol import Cell, point
    from experiments.finetuning.settings import settings
    from experiments.finetuning.training import compute

    def run(method, *, seed=0, rate=1e-2, r=2, analyse=None, **changed):
        chosen = {**settings("vision", quick=True), **changed}
        cell = Cell("vision", method, r)
        one = point(cell, chosen, vision, rate=rate, seed=seed, device="cpu", analyse=analyse)
        return compute(one, tasks_folder)

    return run


@pytest.fixture
def session(vision, tasks_folder):
    """A quick sitting beside the prepared task, with a store of its own."""
    import shutil

    from experiments.finetuning.session import Session

    out = tasks_folder.parent
    yield Session(out, quick=True, jobs=1, device="cpu", quiet=True)
    for name in ("runs", "quick"):
        shutil.rmtree(out / name, ignore_errors=True)
