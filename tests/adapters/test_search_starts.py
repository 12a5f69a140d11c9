"""Where a search starts: at locations by gradient, or where a checkpoint left it."""

import errno
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, LoCALinear, LocationTraining
from loca_theory.adapters.search.files import SEARCH_FILE, load_search, save_search
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms import dct2

from .searching import (
    EXCHANGES,
    SEARCHES,
    adamw,
    all_indices,
    assert_distinct,
    batches,
    coefficients,
    everything,
    flat,
    same,
    same_state,
    small,
    spectra,
    train,
)

# --- a start by gradient ---

RECORDED = 3
STARTS = {
    "alternating": AlternatingSchedule(4, 4, 40, recorded_steps=RECORDED),
    "short phases": AlternatingSchedule(1, 1, 40, recorded_steps=RECORDED),
    "fixed after it": AlternatingSchedule(4, 4, 0, recorded_steps=RECORDED),
}


def found_by(search, z, h, count):
    """The locations of the largest Z²/h, or of the largest |Z|."""
    decrease = z.square() if search == "swap-raw" else z.square() / h
    return set(decrease.topk(count).indices.tolist())


def sums_of(model, steps):
    """α Z and α² h of both layers, with coefficients that do not move."""
    found = []
    for number in (0, 2):
        layer, z, of_g, of_x = model[number].spectrum, 0.0, 0.0, 0.0
        for x, y in batches(steps):
            inputs = x if number == 0 else model[1](model[0](x))
            output = model[number](inputs.detach())
            rest = model[2](model[1](output)) if number == 0 else output
            (g,) = torch.autograd.grad((rest - y).square().mean(), output)
            inputs = inputs.detach()
            z = z + dct2(g.T @ inputs)
            of_g = of_g + dct2(g.T @ g).diagonal()
            of_x = of_x + dct2(inputs.T @ inputs).diagonal()
        h = layer.scaling**2 * torch.outer(of_g, of_x).flatten()
        found.append((layer.scaling * z.flatten(), h))
    return found


# Along a gradient and by pruning and regrowing, with coefficients that start at zeros and at
# random.
BY = [("central", True), ("reselect", False), ("swap-raw", True), ("swap", False)]


@pytest.mark.parametrize(
    ("search", "zero_init", "start"),
    [(*by, start) for start in STARTS for by in BY[:2]] + [(*by, "alternating") for by in BY[2:]],
)
def test_a_start_by_gradient_has_the_largest_predicted_decreases(search, zero_init, start):
    model = small(zero_init=zero_init)
    sums = sums_of(model, RECORDED)
    random, a = all_indices(model), coefficients(model)
    training = LocationTraining(model, STARTS[start], search=search, init_locations="gradient")
    optimizer = adamw(model)
    for step in range(RECORDED):
        assert same(all_indices(model), random)
        train(model, optimizer, 1, start=step, set_to_none=False)  # a gradient of 0 would decay
        assert same(coefficients(model), a)
        assert training.steps_done == step + 1
    for layer, (z, h) in zip(spectra(model), sums, strict=True):
        assert set(flat(layer).tolist()) == found_by(search, z, h, layer.coefficients.shape[0])
        assert_distinct(layer)
    assert training.is_over == (start == "fixed after it")
    indices, a = all_indices(model), coefficients(model)
    train(model, optimizer, 8, start=RECORDED)
    assert not any(map(torch.equal, a, coefficients(model)))
    if training.is_over:
        assert same(all_indices(model), indices)


def test_a_start_by_gradient_that_records_none_warns():
    model = LoCALinear(nn.Linear(9, 6), 10)
    schedule = AlternatingSchedule(recorded_steps=1)
    training = LocationTraining(model, schedule, init_locations="gradient", automatic=False)
    before = model.spectrum.indices.clone()
    with pytest.warns(UserWarning, match="no gradient was recorded, so its locations stay random"):
        training.step()
    assert torch.equal(model.spectrum.indices, before)


# --- resuming ---

SCHEDULE = AlternatingSchedule(2, 3, 12, recorded_steps=2)
JOINT = AlternatingSchedule(2, 3, 12, joint=True)


def run_of(search="central", start="random", seed=0, schedule=SCHEDULE, dtype=torch.float64):
    """A model, its optimiser, and its search. The locations soon share places."""
    model = small(seed, dtype)
    options = {"search": search, "init_locations": start, "location_lr": 0.5}
    return model, adamw(model), LocationTraining(model, schedule, **options)


def by_torch(run, fresh, folder):
    torch.save([part.state_dict() for part in run], folder / "checkpoint.pt")
    for part, state in zip(fresh, torch.load(folder / "checkpoint.pt"), strict=True):
        part.load_state_dict(state)


def by_files(run, fresh, folder):
    """As an adapter of PEFT is saved and loaded."""
    save_file(run[0].state_dict(), folder / "model.safetensors")
    save_search(run[2], folder)
    fresh[0].load_state_dict(load_file(folder / "model.safetensors"))
    fresh[1].load_state_dict(run[1].state_dict())
    path = folder / SEARCH_FILE
    assert path.exists() != run[2].is_over
    if path.exists():
        load_search(fresh[2], path)
    else:
        fresh[2].finish()


@pytest.mark.parametrize("resume", [by_torch, by_files])
@pytest.mark.parametrize(
    ("search", "start", "schedule"),
    [(search, start, SCHEDULE) for search in SEARCHES for start in ("random", "gradient")]
    + [("central", start, JOINT) for start in ("random", "gradient")],
    ids=lambda value: value if isinstance(value, str) else ("jointly" if value.joint else ""),
)
def test_training_resumed_after_every_step_is_the_uninterrupted_one(
    search, start, schedule, resume, tmp_path
):
    run, other = (run_of(search, start, schedule=schedule) for _ in range(2))
    kinds = set()
    for step in range(15):
        fresh = run_of(search, start, seed=step + 1, schedule=schedule)
        resume(other, fresh, tmp_path)
        other = fresh
        for model, optimizer, _ in (run, other):
            train(model, optimizer, 1, start=step)
        assert same_state(everything(other[0]), everything(run[0])), step
        assert same_state(other[1].state_dict(), run[1].state_dict()), step
        layers, again = (parts[2].state_dict()["layers"] for parts in (run, other))
        assert same_state(again, layers), step
        kinds |= {name for layer in layers for name in layer}
        kinds |= {"shared" for s in spectra(run[0]) if len(flat(s).unique()) < len(flat(s))}
    assert run[2].is_over
    assert other[2].is_over
    # A state within a recording, with moments, and with shared locations has been met.
    along_gradient = search not in EXCHANGES
    assert ("recorded_0" in kinds) == (start == "gradient" or not along_gradient)
    assert ("exp_avg" in kinds, "shared" in kinds) == (along_gradient, along_gradient)


@pytest.mark.parametrize("search", ["central", "reselect"])
def test_a_search_that_is_over_can_go_back_to_an_earlier_checkpoint(search, tmp_path):
    run = run_of(search)
    train(*run[:2], 7)
    torch.save([part.state_dict() for part in run], tmp_path / "checkpoint.pt")
    train(*run[:2], 7, start=7)
    found = everything(run[0])
    for part, state in zip(run, torch.load(tmp_path / "checkpoint.pt"), strict=True):
        part.load_state_dict(state)
    assert run[2].steps_done == 7
    train(*run[:2], 7, start=7)
    assert same_state(everything(run[0]), found)


@pytest.mark.parametrize("steps", [0, 8, 14])
@pytest.mark.parametrize(("first", "second"), [("central", "swap"), ("reselect", "central")])
def test_a_model_without_the_state_of_its_search_is_finished(first, second, steps):
    model, optimizer, _ = run_of(first)
    train(model, optimizer, steps)
    loaded, another, training = run_of(second, seed=4)
    keys = {name.rpartition(".")[2] for name in model[0].spectrum.state_dict()}
    assert keys == {"coefficients", "indices", "shape"}
    loaded.load_state_dict(model.state_dict())
    assert same(all_indices(loaded), all_indices(model))
    with torch.no_grad():
        for layer, original in zip(spectra(loaded), spectra(model), strict=True):
            assert torch.equal(layer.increment(), original.increment())
    assert training.is_over
    torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()  # of nobody's concern
    with pytest.warns(UserWarning, match="the search is over; .* load LocationTraining") as seen:
        train(loaded, another, 12)
    assert len(seen) == 1
    assert same(all_indices(loaded), all_indices(model))
    assert not any(map(torch.equal, coefficients(loaded), coefficients(model)))


@pytest.mark.parametrize(
    ("search", "dtype"),
    [("reselect", torch.float16), ("swap", torch.bfloat16), ("central", torch.bfloat16)],
    ids=str,
)
def test_half_precision_layers_keep_their_locations_through_a_file(search, dtype, tmp_path):
    def sgd(model):
        return torch.optim.SGD([s.coefficients for s in spectra(model)], lr=0.02)

    run = run_of(search, dtype=dtype)
    before = all_indices(run[0])
    run = run[0], sgd(run[0]), run[2]
    train(*run[:2], 9)
    assert not any(map(torch.equal, before, all_indices(run[0])))
    model, _, training = run_of(search, seed=4, dtype=dtype)
    fresh = model, sgd(model), training
    by_files(run, fresh, tmp_path)
    for model, optimizer, _ in (run, fresh):
        train(model, optimizer, 6, start=9)
    assert same_state(everything(model), everything(run[0]))
    for layer in spectra(model):
        assert layer.coefficients.dtype == dtype
        assert_distinct(layer)


# --- states and files that do not fit ---


def training_of(*shapes, search="central", seed=0):
    layers = [
        CosineSpectrum(shape, 5, seed=seed, name=f"layer {n}") for n, shape in enumerate(shapes)
    ]
    return LocationTraining(layers, SCHEDULE, search=search)


SHAPES = (8, 6), (8, 6)
OTHERS = {
    "fewer layers": ([(8, 6)], {}, "another adapter: it has 1 layers, and this model has 2"),
    "another shape": (
        [(8, 6), (7, 6)], {}, "another adapter: its layer layer 1 is 7×6, and layer 1 is 8×6"
    ),
    "other indices": (
        SHAPES, {"seed": 1},
        "the indices of layer 0 differ; load the model of the same checkpoint first",
    ),
} | {
    search: (SHAPES, {"search": search}, f"by the search '{search}', and this one is 'central'")
    for search in ("forward", "swap")
}  # fmt: skip


@pytest.mark.parametrize(("shapes", "options", "message"), OTHERS.values(), ids=OTHERS)
def test_the_state_of_another_adapter_is_refused(shapes, options, message, tmp_path):
    training, other = training_of(*SHAPES), training_of(*shapes, **options)
    before = training.state_dict()
    with pytest.raises(InvalidArgumentError, match=message):
        training.load_state_dict(other.state_dict())
    save_search(other, tmp_path)
    with pytest.raises(InvalidArgumentError, match=f"{SEARCH_FILE}: .*{message}"):
        load_search(training, tmp_path / SEARCH_FILE)
    assert same_state(training.state_dict(), before)
    assert not training.is_over


def test_the_state_of_another_search_across_the_spectrum_is_refused():
    training = training_of((8, 6), search="reselect")
    with pytest.raises(InvalidArgumentError, match="and this one is 'reselect'"):
        training.load_state_dict(training_of((8, 6), search="swap").state_dict())


def foreign(header, tensors=None):
    def spoil(path):
        save_file(tensors or {"a": torch.zeros(2)}, path, metadata=header)

    return spoil


DAMAGES = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "cut off in its header": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "empty": lambda path: path.write_bytes(b""),
    "a text": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n" * 4),
    "an adapter": foreign(None),
    "another header": foreign({"format": "pt"}),
    "no JSON": foreign({"loca_search": "{"}),
    "no layers": foreign({"loca_search": "{}"}, {"0.locations": torch.zeros(2)}),
    "empty layers": foreign(
        {"loca_search": '{"step": 0, "layers": [{}, {}]}'}, {"0.a": torch.ones(2)}
    ),
}


def test_a_full_disk_leaves_the_earlier_search_file_whole(tmp_path, monkeypatch):
    save_search(training_of(*SHAPES), tmp_path)
    before = (tmp_path / SEARCH_FILE).read_bytes()
    write = Path.write_bytes

    def write_half(path, data):
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(ResourceError, match=f"cannot write .*{SEARCH_FILE}: No space left"):
        save_search(training_of(*SHAPES, search="forward"), tmp_path)
    assert (tmp_path / SEARCH_FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [SEARCH_FILE]


@pytest.mark.parametrize("spoil", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_foreign_file_is_one_clear_message(spoil, tmp_path):
    training, path = training_of(*SHAPES), tmp_path / SEARCH_FILE
    save_search(training, tmp_path)
    spoil(path)
    message = f"{SEARCH_FILE} is not an intact search file .*; delete it to load the adapter as fin"
    with pytest.raises(InvalidArgumentError, match=message):
        load_search(training, path)
    assert not training.is_over


SPOILT = {
    "cut": lambda layer: layer | {"exp_avg": layer["exp_avg"][:-1]},
    "not finite": lambda layer: layer | {"locations": layer["locations"] * torch.nan},
    "incomplete": lambda layer: {name: v for name, v in layer.items() if name != "step"},
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_damaged_state_is_refused_by_the_name_of_its_layer(spoil):
    model = small()
    training = LocationTraining(model, AlternatingSchedule(joint=True))
    train(model, adamw(model), 2)
    state = training.state_dict()
    state["layers"][1] = spoil(state["layers"][1])
    with pytest.raises(InvalidArgumentError, match="state of the search is damaged at second"):
        training.load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="damaged: -5 steps"):
        training.load_state_dict(training.state_dict() | {"step": -5})
    assert training.steps_done == 2
