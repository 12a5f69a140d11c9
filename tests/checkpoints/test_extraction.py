"""A full fine-tune as an adapter: the best of its kind, and PEFT loads it."""

import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import extract
from loca_theory.checkpoints.sizing import adapter_folder
from loca_theory.checkpoints.sizing.adapter_folder import check_folder
from loca_theory.errors import ResourceError
from loca_theory.transforms.matrices import dct_matrix
from tests.checkpoints.files import normal


def adapter_of(found):
    """The only adapter of an extraction."""
    (adapter,) = found.adapters.values()
    return adapter


LAYERS = {"a.0.q.weight": (24, 20), "a.0.up.weight": (48, 20)}


def checkpoints(layers=LAYERS):
    base = {name: normal(*shape) for name, shape in layers.items()}
    return base, {name: one + 0.1 * normal(*one.shape, seed=1) for name, one in base.items()}


def test_a_rank_buys_loca_the_budget_of_the_paper():
    def sizes(method, **size):
        found = extract(*checkpoints(), method, **size).matrices
        return [(one.r, one.components, one.numbers) for one in found]

    assert sizes("loca", rank=4) == [(None, 88, 88), (None, 136, 136)]
    assert sizes("loca", components=500) == [(None, 480, 480), (None, 500, 500)]
    assert sizes("lora", rank=4) == [(4, None, 176), (4, None, 272)]
    assert sizes("lora", rank=20) == [(20, None, 880), (20, None, 1360)]


def written(folder, size=10):
    """A folder with an adapter that was extracted to it."""
    found = extract(*checkpoints(), "loca", components=size)
    found.save(folder / "adapter")
    return found, folder / "adapter"


def test_an_extracted_adapter_can_be_replaced_by_another(tmp_path):
    _, folder = written(tmp_path)
    weights = folder / "loca" / "adapter_model.safetensors"
    first = weights.read_bytes()
    assert check_folder(folder, "loca") == folder
    for name in (".gitattributes", "README.0.md.partial"):
        (folder / "loca" / name).write_text("not of an adapter")
    written(tmp_path, size=20)
    assert weights.read_bytes() != first
    assert {one.name for one in (folder / "loca").iterdir()} == {
        "README.md", "adapter_config.json", "adapter_model.safetensors", ".gitattributes",
        "README.0.md.partial",
    }  # fmt: skip
    assert (folder / "extract.parquet").is_file()
    assert "import loca_theory.adapters" in (folder / "loca" / "README.md").read_text()


def test_one_that_was_cut_short_can_be_written_again(tmp_path, monkeypatch):
    """Whatever file it was at, and whether or not an adapter was there before."""
    found, folder = written(tmp_path)
    write = adapter_folder.write_atomically
    for last in range(3):
        left = iter(range(last))

        def breaks_off(path, content, left=left):
            if next(left, None) is None:
                raise RuntimeError("cut short")  # noqa: EM101
            write(path, content)

        monkeypatch.setattr(adapter_folder, "write_atomically", breaks_off)
        other = replace(adapter_of(found), config={**adapter_of(found).config, "n_frequency": last})
        found = replace(found, adapters={"loca": other})
        with pytest.raises(RuntimeError, match="cut short"):
            found.save(folder)
        monkeypatch.setattr(adapter_folder, "write_atomically", write)
        assert check_folder(folder, "loca") == folder
        found.save(folder)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "README.md", "adapter_model.bin", "notes.txt"]
)
def test_what_no_extraction_wrote_is_neither_replaced_nor_joined(tmp_path, name):
    folder = tmp_path / "adapter" / "loca"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"not ours")
    with pytest.raises(
        ResourceError, match=rf"loca holds {re.escape(name)}, which no extraction wrote"
    ):
        written(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: b"not ours"}


def test_an_adapter_that_was_trained_since_is_not_replaced(tmp_path):
    found, folder = written(tmp_path)
    weights = folder / "loca" / "adapter_model.safetensors"
    save_file(adapter_of(found).tensors, weights, {"format": "pt"})  # as PEFT does after training
    with pytest.raises(ResourceError, match=r"loca holds \w.*; choose a new folder"):
        check_folder(folder, "best")
    assert check_folder(folder, "lora") == folder


def test_modules_in_memory_are_taken_and_named_where_they_have_a_name(tmp_path):
    base, tuned = (torch.nn.Sequential(torch.nn.Linear(20, 24)) for _ in range(2))
    assert adapter_of(extract(base, tuned, rank=2)).config["base_model_name_or_path"] is None
    base.name_or_path = "org/model"
    found = extract(base, tuned.state_dict(), rank=2)
    assert adapter_of(found).config["base_model_name_or_path"] == "org/model"
    assert [one.name for one in found.matrices] == ["0.weight"]
    found.save(tmp_path / "adapter")
    assert 'base_model: "org/model"' in (tmp_path / "adapter" / "loca" / "README.md").read_text()


@pytest.mark.parametrize("method", ["loca", "lora"])
@pytest.mark.parametrize("scale", [1, 1e30, 1e-30, 1e-40, 3e-44], ids=str)
def test_the_best_adapter_is_stored_also_if_squares_overflow_or_vanish(method, scale):
    """The largest coefficients, or the truncated decomposition, against dense ones."""
    w = (normal(24, 20).double() * scale).float()
    found = extract({"q.weight": torch.zeros(24, 20)}, {"q.weight": w}, method, rank=3)
    (row,) = found.matrices
    delta = w.double() / scale
    stored = {name.split(".", 3)[-1]: one for name, one in adapter_of(found).tensors.items()}
    if method == "lora":
        assert stored["lora_A.weight"].shape == (3, 20)
        rebuilt = stored["lora_B.weight"].double() @ stored["lora_A.weight"].double() / scale
        units, kept = torch.linalg.svdvals(delta), 3
    else:
        spectrum = torch.zeros(24, 20, dtype=torch.float64)
        coefficients = stored["loca_spectrum.coefficients"].double() / scale
        spectrum[tuple(stored["loca_spectrum.indices"].T)] = coefficients
        rebuilt = dct_matrix(24).T @ spectrum @ dct_matrix(20)
        units, kept = dct_matrix(24) @ delta @ dct_matrix(20).T, 3 * 44 // 2
    energy = delta.square().sum()
    error = float((delta - rebuilt).square().sum() / energy)
    assert found.error == pytest.approx(row.error)
    assert row.error == pytest.approx(error, rel=1e-5)
    least = units.square().flatten().sort(descending=True).values[kept:].sum() / energy
    # The smallest positive float32 numbers have few digits.
    assert error == pytest.approx(float(least), rel=1e-4 if scale > 1e-39 else 1)
    assert row.energy == pytest.approx(float(energy) * scale**2, rel=1e-5)


@pytest.mark.parametrize("method", ["loca", "lora"])
@pytest.mark.parametrize("scale", [1e300, 1e-300], ids=str)
def test_what_an_adapter_cannot_hold_is_named(method, scale):
    _, tuned = checkpoints()
    name = "a.0.q.weight"
    base = {key: torch.zeros_like(value) for key, value in tuned.items()}
    found = extract(base, tuned | {name: tuned[name].double() * scale}, method, rank=2)
    assert [row.name for row in found.matrices] == ["a.0.up.weight"]
    (left,) = found.skipped
    assert left.name == name
    assert left.reason.startswith("too large or too small: an adapter holds float32")


def test_a_matrix_that_is_not_finite_is_damaged_and_an_unchanged_one_has_no_adapter():
    base, tuned = checkpoints({**LAYERS, "a.0.v.weight": (20, 24)})
    tuned["a.0.q.weight"][0, 0] = float("nan")
    tuned["a.0.up.weight"] = base["a.0.up.weight"]
    found = extract(base, tuned, "loca", components=5)
    assert [row.name for row in found.matrices] == ["a.0.v.weight"]
    assert {one.name: (one.damaged, one.reason) for one in found.skipped} == {
        "a.0.q.weight": (True, "not finite: 1 of 480 entries are NaN or infinite"),
        "a.0.up.weight": (False, "unchanged by the fine-tune"),
    }
