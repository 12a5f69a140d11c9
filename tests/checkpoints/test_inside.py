"""Adapters of fine-tunes in few bits: inside the rounding cells, or nearest to what is stored."""

import copy
import math
import sys

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
from loca_theory.checkpoints import Extraction, extract
from loca_theory.checkpoints.extraction import extractor
from loca_theory.checkpoints.extraction.extractor import Task
from loca_theory.checkpoints.form.cells import compute_adapter
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import FORMATS, rounding_cells
from loca_theory.sweeps import Runner, workers
from loca_theory.sweeps.runner import SweepInterruptedError
from loca_theory.transforms import idct2
from tests.checkpoints.files import folder_of, normal
from tests.checkpoints.zoo import make

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to:UserWarning"),
    pytest.mark.filterwarnings("ignore:Unsupported layer type:UserWarning"),
]
SHAPE = (160, 192)
FORM = FORMATS["bfloat16"]


def changes():
    """Of rank 3, of 300 cosines, and of independent entries: about half a step of the weights."""
    spectrum = torch.zeros(SHAPE)
    spectrum.view(-1)[:: SHAPE[0] * SHAPE[1] // 300] = 1.0
    kinds = {
        "low": normal(SHAPE[0], 3) @ normal(3, SHAPE[1], seed=1),
        "cosines": idct2(spectrum * normal(*SHAPE, seed=2)),
        "full": normal(*SHAPE, seed=3),
    }
    return {f"{kind}.weight": 4e-5 * change / change.std() for kind, change in kinds.items()}


def stored(dtype=torch.bfloat16):
    """The pair as a type stores it, in bfloat16 numbers."""
    base = {name: (0.02 * normal(*SHAPE, seed=4)).bfloat16() for name in changes()}
    tuned = {name: (base[name].float() + change).bfloat16() for name, change in changes().items()}
    return tuple({name: w.to(dtype) for name, w in side.items()} for side in (base, tuned))


def made(extraction, name):
    """The increment of an adapter, of its tensors as they are stored."""
    method = next(row.method for row in extraction.matrices if row.name == name)
    prefix = f"base_model.model.{name.removesuffix('.weight')}."
    tensors = {
        key.removeprefix(prefix): value
        for key, value in extraction.adapters[method].tensors.items()
        if key.startswith(prefix)
    }
    if method == "lora":
        config = extraction.adapters[method].config
        r = len(tensors["lora_A.weight"])
        return (
            config["lora_alpha"]
            / r
            * (tensors["lora_B.weight"].double() @ tensors["lora_A.weight"].double())
        )
    values, indices, shape = tensors.values()
    spectrum = torch.zeros(shape.tolist(), dtype=torch.float64)
    spectrum[tuple(indices.T)] = values.double()
    return idct2(spectrum)


def relative(matrix, change):
    return float((matrix - change.double()).square().sum() / change.double().square().sum())


SIZES = [
    ("lora", {"rank": 3}),
    ("lora", {"allocate": 3500}),
    ("lora", {"energy": 0.3}),
    ("lora", {"rank": 3, "serve": "vllm"}),
    ("lora", {"rank": 3, "dtype": "float16"}),
    ("loca", {"components": 300}),
    ("loca", {"allocate": 900}),
    ("best", {"rank": 3}),
    ("best", {"allocate": 3500}),
]


@pytest.mark.parametrize(("method", "size"), SIZES, ids=str)
def test_sizes_are_priced_by_the_stored_difference_and_adapters_are_nearer_to_the_change(
    method, size
):
    base, tuned = stored()
    inside = extract(base, tuned, method, **size)
    ignored = extract(base, tuned, method, rounding="ignore", **size)
    for row, other in zip(inside.matrices, ignored.matrices, strict=True):
        assert (row.r, row.components, row.numbers) == (other.r, other.components, other.numbers)
        assert other.format is other.steps is other.distance is None
        if not row.numbers:
            continue
        assert row.method == other.method
        # The same decomposition, computed again.
        assert row.nearest_error == pytest.approx(other.error, rel=1e-9)
        assert row.error >= row.nearest_error
        change = changes()[row.name]
        errors = [relative(made(extraction, row.name), change) for extraction in (inside, ignored)]
        if row.steps:
            assert row.distance < row.nearest_distance
        else:
            assert row.distance == row.nearest_distance
        is_exact = (row.method, row.r, row.components) in {("lora", 3, None), ("loca", None, 300)}
        if is_exact and row.name != "full.weight" and row.held_out < 0.01:
            assert row.steps == 40
            assert errors[0] < errors[1] / 3
    total = sum(row.energy for row in inside.matrices)
    retained = sum(row.energy * (1 - row.nearest_error) for row in inside.matrices if row.numbers)
    assert inside.split_error == pytest.approx(1 - retained / total)
    if "energy" in size:
        assert inside.split_error <= 1 - size["energy"]
    if "rank" in size:
        names = {row.name: row for row in inside.matrices}
        assert names["low.weight"].steps == 40
        assert names["full.weight"].steps == 0
        # Of 528 coefficients, the best of both forms finds the 300 cosines as well.
        count = 2 if method == "best" else 1
        assert f"{count} of 3 adapters were moved" in inside.rounding_note
        assert "their error against the stored difference" in inside.rounding_note


@pytest.mark.parametrize(("method", "rank"), [("lora", 3), ("loca", 2)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_distances_are_those_of_the_stored_numbers(method, rank, dtype):
    """Against cells in float64, and with the energy of the stored difference as the unit."""
    base, tuned = stored()
    result = extract(base, tuned, method, rank=rank, dtype=dtype)
    for row in result.matrices:
        before, after = base[row.name].double(), tuned[row.name].double()
        cells = rounding_cells(before, after, FORM, dtype=torch.float64)
        increment = made(result, row.name)
        gap = torch.relu(cells.low - increment) + torch.relu(increment - cells.high)
        d = after - before
        # The product is one of float32 numbers.
        expected = float(gap.square().sum() / d.square().sum())
        assert row.distance == pytest.approx(expected, rel=1e-3, abs=1e-9)
        assert row.error == pytest.approx(relative(increment, d), rel=1e-5)
        assert (row.format, row.gap >= 0) == ("bfloat16", True)


def test_the_values_decide_and_not_their_type(tmp_path):
    narrow, wide = (
        extract(*stored(dtype), "lora", rank=3) for dtype in (torch.bfloat16, torch.float32)
    )
    assert narrow.matrices == wide.matrices
    for name, tensor in narrow.state_dict().items():
        assert torch.equal(tensor, wide.state_dict()[name])
    # Computed again, and loaded, it is the same.
    loaded = extract(*stored(), "lora", rank=3)
    loaded.save(tmp_path)
    assert Extraction.load(tmp_path).matrices == narrow.matrices


def test_changes_in_24_bits_have_no_cells():
    base, _ = stored(torch.float32)
    tuned = {name: w + changes()[name] for name, w in base.items()}
    results = [extract(base, tuned, "best", rank=3, rounding=how) for how in ("cells", "ignore")]
    assert results[0].matrices == results[1].matrices
    assert results[0].rounding_note == ""
    assert results[0].distance is results[0].nearest_error is results[0].identical is None


def test_entries_say_nothing_of_each_other():
    results = [extract(*stored(), "entries", rank=3, rounding=how) for how in ("cells", "ignore")]
    assert results[0].matrices == results[1].matrices
    for name, tensor in results[0].state_dict().items():
        assert torch.equal(tensor, results[1].state_dict()[name])


def test_an_adapter_as_a_source_is_exact(tmp_path):
    base, tuned = stored()
    extract(base, tuned, "lora", rank=3, dtype="bfloat16").save(tmp_path)
    resized = extract(base, tmp_path / "lora", "lora", rank=2)
    assert all(row.format is None for row in resized.matrices)


def test_an_unknown_interpretation_is_refused():
    with pytest.raises(InvalidArgumentError, match="unknown rounding 'cell'; did you mean cells"):
        extract(*stored(), "lora", rank=3, rounding="cell")


# --- in models ---


def moved(model, dtype, names="", size=2.0**-7):
    """A fine-tune of a model in a type, by low-rank changes relative to its weights."""
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if parameter.ndim < 2 or names not in name:
                continue
            *_, p, q = parameter.shape
            stack = parameter.float().reshape(-1, p, q)
            low = torch.stack(
                [normal(p, 1, seed=i) @ normal(1, q, seed=9) for i in range(len(stack))]
            )
            change = size * stack.std() * low
            parameter.copy_((stack + change).reshape(parameter.shape).to(dtype))
    return tuned


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral", "ViT"])
@pytest.mark.parametrize("method", ["lora", "loca"])
def test_in_the_model_distances_are_those_of_the_loaded_weights(name, method, tmp_path):
    """Transposed layers, experts in one parameter, and kernels of convolutions."""
    base = make(name).bfloat16()
    base.save_pretrained(tmp_path / "base")
    moved(base, torch.bfloat16).save_pretrained(tmp_path / "tuned")
    sides = [type(base).from_pretrained(tmp_path / side).state_dict() for side in ("base", "tuned")]
    result = extract(tmp_path / "base", tmp_path / "tuned", method, rank=1, check=True)
    result.save(tmp_path / "out")
    wide = type(base).from_pretrained(tmp_path / "base", dtype=torch.float32)
    before = {name: w.clone() for name, w in wide.state_dict().items()}
    adapted = peft.PeftModel.from_pretrained(wide, tmp_path / "out" / method)
    after = adapted.merge_and_unload().state_dict()
    assert result.moved if method == "lora" else result.matrices
    for row in result.matrices:
        w, image = (side[row.name].double() for side in sides)
        cells = rounding_cells(w, image, FORM, dtype=torch.float64)
        increment = (after[row.name] - before[row.name]).double()
        gap = torch.relu(cells.low - increment) + torch.relu(increment - cells.high)
        energy = float((image - w).square().sum())
        # The sum in the model is one of float32, whose rounding is 2^-24 of the weights.
        noise = 2 * float(w.square().sum()) * 2.0**-48 / energy
        expected = float(gap.square().sum()) / energy
        assert math.sqrt(row.distance) == pytest.approx(
            math.sqrt(expected), rel=1e-2, abs=4 * math.sqrt(noise)
        )
        assert 0 <= row.identical_safe <= 1
        assert row.loaded_error == pytest.approx(row.error, abs=1e-4)


LLAMA = LlamaConfig(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=192,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
)


@pytest.mark.parametrize("base_dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("method", ["lora", "loca"])
def test_identical_entries_are_counted_in_merges_by_peft(method, base_dtype, tmp_path):
    """A base of more bits is merged as it is, and the sum is cast."""
    torch.manual_seed(0)
    base = LlamaForCausalLM(LLAMA).to(base_dtype)
    base.save_pretrained(tmp_path / "base")
    moved(base, torch.bfloat16, "q_proj").bfloat16().save_pretrained(tmp_path / "tuned")
    goal = load_file(tmp_path / "tuned" / "model.safetensors")
    result = extract(
        tmp_path / "base", tmp_path / "tuned", method, rank=1, include="q_proj", check=True
    )
    (row,) = result.matrices
    result.save(tmp_path / "out")
    counted = {}
    for field, wide, safe in (
        ("identical", True, False),
        ("identical_half", False, False),
        ("identical_safe", True, True),
        ("identical_half_safe", False, True),
    ):
        model = LlamaForCausalLM.from_pretrained(tmp_path / "base", dtype=base_dtype)
        adapted = peft.PeftModel.from_pretrained(
            model, tmp_path / "out" / method, autocast_adapter_dtype=wide
        )
        merged = adapted.merge_and_unload(safe_merge=safe).state_dict()[row.name].bfloat16()
        counted[field] = float((merged == goal[row.name]).double().mean())
    assert {field: getattr(row, field) for field in counted} == counted
    assert result.identical == row.identical
    if method == "lora":
        ignored = extract(
            tmp_path / "base",
            tmp_path / "tuned",
            method,
            rank=1,
            include="q_proj",
            rounding="ignore",
        )
        assert row.identical > 0.999
        assert ignored.matrices[0].identical is None
        if base_dtype is torch.bfloat16:
            assert row.identical_half < row.identical


def test_an_adapter_of_a_change_below_the_steps_is_larger_than_what_is_stored(tmp_path):
    """Its error against the stored difference is above 1, in the loaded model as well."""
    torch.manual_seed(0)
    base = LlamaForCausalLM(LLAMA).bfloat16()
    base.save_pretrained(tmp_path / "base")
    moved(base, torch.bfloat16, "q_proj", 3e-4).save_pretrained(tmp_path / "tuned")
    result = extract(
        tmp_path / "base", tmp_path / "tuned", "lora", rank=1, include="q_proj", check=True
    )
    (row,) = result.matrices
    assert row.error > 1 > row.nearest_error
    assert row.loaded_error == pytest.approx(row.error, abs=1e-4)
    assert (row.steps, result.disagreements) == (40, [])
    assert result.error == row.error


def test_results_do_not_depend_on_workers(tmp_path, monkeypatch):
    base, tuned = (dict(sorted(side.items())) for side in stored())
    files = [folder_of(tmp_path / key, side) for key, side in (("base", base), ("tuned", tuned))]
    alone = extract(*files, "best", rank=3, runner=Runner(jobs=1))
    in_memory = extract(base, tuned, "best", rank=3)
    # These matrices are worth no worker otherwise.
    monkeypatch.setattr(sys.modules[Task.__module__], "_SMALL", 0)
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    two = extract(*files, "best", rank=3, runner=Runner(jobs=2))
    for result in (in_memory, two):
        assert result.matrices == alone.matrices
        for method, adapter in alone.adapters.items():
            for name, tensor in adapter.tensors.items():
                assert torch.equal(tensor, result.adapters[method].tensors[name])


def test_a_killed_run_continues_with_the_adapters_that_were_finished(tmp_path, monkeypatch):
    files = [folder_of(tmp_path / str(i), side) for i, side in enumerate(stored())]
    runner, fitted = Runner(tmp_path / "points", 1), []

    def recorded(cell, pairs, device):
        if len(fitted) == 2:
            raise KeyboardInterrupt
        fitted.append(cell.name)
        return compute_adapter(cell, pairs, device)

    monkeypatch.setattr(extractor, "compute_adapter", recorded)
    with pytest.raises(SweepInterruptedError, match="are stored; run again"):
        extract(*files, "best", rank=3, runner=runner)
    monkeypatch.setattr(extractor, "compute_adapter", compute_adapter)
    expected = extract(*files, "best", rank=3, runner=Runner(jobs=1))
    names = set(fitted)
    fitted.clear()
    monkeypatch.setattr(extractor, "compute_adapter", recorded)
    result = extract(*files, "best", rank=3, runner=runner)
    assert len(fitted) == 1
    assert names | set(fitted) == set(changes())
    assert result.matrices == expected.matrices
    for method, adapter in expected.adapters.items():
        for name, tensor in adapter.tensors.items():
            assert torch.equal(tensor, result.adapters[method].tensors[name])
    # Other numbers are another result.
    monkeypatch.setattr(extractor, "compute_adapter", compute_adapter)
    half = extract(*files, "best", rank=3, dtype="bfloat16", runner=Runner(jobs=1))
    resumed = extract(*files, "best", rank=3, dtype="bfloat16", runner=runner)
    assert resumed.matrices == half.matrices
