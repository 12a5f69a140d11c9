"""Prepared tasks: disjoint splits, masked names, damage."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

from experiments import docstrings
from experiments.finetuning.settings import settings, task_names
from experiments.finetuning.tasks import load, prepare, registry
from experiments.finetuning.tasks.generation import _separated
from loca_theory.errors import InvalidArgumentError, ResourceError


def test_every_task_has_a_module():
    for task in task_names():
        assert callable(registry.module_of(task).make)
    with pytest.raises(InvalidArgumentError, match="unknown task 'nope'"):
        settings("nope")


def test_images_are_in_one_split_alone(vision):
    splits, weights = load(vision.folder, vision.digest)
    chosen = settings("vision", quick=True)
    assert len(splits["train"]["labels"]) == 3 * chosen["train"]
    assert len(splits["validation"]["labels"]) == chosen["validation"]
    rows = [{row.numpy().tobytes() for row in split["pixel_values"]} for split in splits.values()]
    assert not (rows[0] & rows[1])
    assert not (rows[0] & rows[2])
    assert not (rows[1] & rows[2])
    for split in splits.values():
        assert set(split["labels"].tolist()) == set(range(5))
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_what_is_there_is_not_made_again(vision, tasks_folder, monkeypatch):
    monkeypatch.setattr(registry, "module_of", None)
    assert prepare("vision", tasks_folder, quick=True).digest == vision.digest


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
    return prepare("vision", tmp_path, quick=True), made


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
    assert prepare("vision", tmp_path, quick=True).digest == prepared.digest
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
    other = prepare("vision", tmp_path)
    assert other.folder != prepared.folder
    assert len(made) == 2
    about = json.loads((other.folder / "about.json").read_text())
    assert about["key"]["train"] == settings("vision")["train"]


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    class Module:
        @staticmethod
        def make(_):
            import_module("no_such_package")

    monkeypatch.setattr(registry, "module_of", lambda _: Module)
    with pytest.raises(ResourceError, match=r"no_such_package.*pip install"):
        prepare("vision", tmp_path, quick=True)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Packages of made-up files with docstrings that name their file."""
    for label, name in enumerate(docstrings.PACKAGES):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").touch()
        for number in range(20):
            text = (
                f"The {label}th: file {number} holds what is told at some length, with numpy in it."
            )
            (folder / f"m{number}.py").write_text(f'class A:\n    """{text}"""\n')

    class Spec:
        def __init__(self, name):
            self.origin = str(tmp_path / name / "__init__.py")

    monkeypatch.setattr(docstrings.importlib.util, "find_spec", Spec)
    # The folder's own name would be taken for one of tests.
    monkeypatch.setattr(Path, "as_posix", lambda self: self.name)


def test_texts_are_split_by_file(package):
    parts = docstrings.splits(0, (0.1, 0.2))
    files = [{(re.findall(r"file (\d+)", text)[0], label) for text, label in p} for p in parts]
    assert [len(part) for part in files] == [6 * 14, 6 * 2, 6 * 4]
    assert not (files[0] & files[1])
    assert not (files[0] & files[2])
    assert not (files[1] & files[2])


def test_no_text_names_a_package(package):
    names = re.compile("|".join(docstrings.PACKAGES), re.IGNORECASE)
    texts = [text for part in docstrings.splits(0, (0.1, 0.2)) for text, _ in part]
    assert texts
    assert not any(names.search(text) for text in texts)


@pytest.mark.parametrize("word", ["to_numpy", "numpy_kwargs", "torchscript", "sympy_code"])
def test_names_inside_of_words_are_masked(word):
    assert not re.search("|".join(docstrings.PACKAGES), docstrings._MASKED.sub("library", word))


def test_docstrings_are_taken_out_of_the_source(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""Of the module."""\nx = 1\n\ndef f():\n    """One.\n\n    Two."""\n    return x\n'
    )
    source, found = _separated(path)
    assert found == ["Of the module.", "One.\n\nTwo."]
    assert "One" not in source
    assert "module" not in source
    assert "x = 1" in source
    assert "return x" in source


def test_a_form_feed_shifts_nothing(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('x = 1\n\f\ndef f():\n    """Secret."""\n    return x\n')
    source, _ = _separated(path)
    assert "Secret" not in source
    assert "return x" in source
