"""The layer and its searches on the device that they are given."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from loca_theory.adapters import AlternatingSchedule, LoCALinear, follow, linear_operator
from loca_theory.transforms import dct2

from .searching import (
    EXCHANGES,
    SEARCHES,
    SHORT,
    all_indices,
    batches,
    close,
    in_phase,
    move,
    normal,
    recording,
    same,
    small,
    spectra,
)

by_search = pytest.mark.parametrize("search", SEARCHES)
IMPLEMENTATIONS = ["auto", "implicit", "materialised"]
by_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
by_phase = pytest.mark.parametrize("phase", ["coefficients", "locations", "both"])

SEARCHED = {"zero_init": False, "schedule": AlternatingSchedule()}
LAST = AlternatingSchedule().period - 1  # before the last step of a period


def step(model, optimizer, number=0):
    parameter = next(model.parameters())
    (x, y), *_ = batches(1, number)
    optimizer.zero_grad()
    (model(x.to(parameter)) - y.to(parameter)).square().mean().backward()
    optimizer.step()


def trained(model, device, moves_after):
    """Train; move the model after ``moves_after`` steps, perhaps within a phase or a recording."""
    for number in range(12):
        if number == moves_after:
            model.to(device)
        if number in (0, moves_after):  # torch may make new parameters when it moves a model
            optimizer = torch.optim.SGD([s.coefficients for s in spectra(model)], lr=0.05)
            follow(model, optimizer)
        step(model, optimizer, number)


@by_search
@pytest.mark.parametrize(
    ("start", "moves_after"), [("random", 0), ("random", 5), ("gradient", 1)], ids=str
)
def test_a_search_finds_on_the_device_what_it_finds_on_the_cpu(
    search, start, moves_after, accelerator
):
    options = {"location_search": search, "init_locations": start, "location_lr": 5.0}
    on_cpu = small(schedule=SHORT, **options)
    on_device, before = copy.deepcopy(on_cpu), all_indices(on_cpu)
    trained(on_cpu, "cpu", moves_after)
    trained(on_device, accelerator, moves_after)
    assert not same(all_indices(on_cpu), before)
    assert same(all_indices(on_device.cpu()), all_indices(on_cpu))
    for ours, theirs in zip(spectra(on_device), spectra(on_cpu), strict=True):
        # Twelve steps, each of some hundred float64 operations of values of order one.
        close(ours.coefficients, theirs.coefficients, tolerance=1e-9)


@pytest.mark.parametrize("size", [1100, 20], ids=["long", "short"])
@pytest.mark.parametrize("search", EXCHANGES)
def test_regrowth_of_a_large_layer_finds_the_same_locations(search, size, accelerator):
    """The longer side is beyond the length from which the CPU searches a sample first."""
    on_cpu = LoCALinear(nn.Linear(1000, size), 50, location_search=search, **SEARCHED).double()
    on_device = copy.deepcopy(on_cpu).to(accelerator)
    for layer, device in ((on_cpu, "cpu"), (on_device, accelerator)):
        recording(layer.spectrum, LAST)
        layer(normal(60, 1000).to(device)).backward(normal(60, size, seed=1).to(device))
        assert move(layer.spectrum, LAST).any()
    assert torch.equal(on_cpu.spectrum.indices, on_device.spectrum.indices.cpu())


def test_a_search_that_is_loaded_from_the_cpu_is_on_the_device(accelerator):
    saved, loaded = (
        LoCALinear(nn.Linear(9, 6), 7, location_search="reselect", **SEARCHED) for _ in range(2)
    )
    recording(saved.spectrum, LAST)
    loaded.to(accelerator).load_state_dict(saved.state_dict())
    buffers = dict(loaded.spectrum.named_buffers())
    assert buffers.keys() > {"steps", "dropped", "recorded.gradient_sum"}
    assert {buffer.device.type for buffer in buffers.values()} == {accelerator.type}


@by_implementation
@pytest.mark.parametrize(
    ("shape", "count", "tokens"),
    # The second has more than the 2²¹ entries up to which a device forms ΔW and Z.
    [((6, 9), 20, 50), ((1100, 2048), 5000, 64)],
)
def test_two_passes_give_the_same_bits(implementation, shape, count, tokens, device):
    p, q = shape
    layer = LoCALinear(nn.Linear(q, p), count, implementation=implementation, **SEARCHED)
    in_phase(layer.to(device), "both")
    x, results = normal(tokens, q, dtype=torch.float32).to(device), []
    for _ in range(2):
        layer.zero_grad()
        y = layer(x)
        y.square().sum().backward()
        results.append([y, layer.spectrum.coefficients.grad, layer.spectrum.offset.grad])
    assert same(*results)


# --- waiting ---


@by_implementation
@by_phase
def test_a_step_of_the_layer_waits_for_nothing(implementation, phase, accelerator, no_waiting):
    layer = LoCALinear(nn.Linear(9, 6), 7, implementation=implementation, **SEARCHED)
    in_phase(layer.to(accelerator), phase)
    x = normal(5, 9, dtype=torch.float32).to(accelerator).requires_grad_()
    layer(x).sum().backward()  # makes the tables that are shared
    with no_waiting():
        layer(x).sum().backward()


@pytest.mark.parametrize("search", EXCHANGES)
def test_a_step_that_records_statistics_waits_for_nothing(search, accelerator, no_waiting):
    layer = LoCALinear(nn.Linear(9, 6), 7, location_search=search, **SEARCHED).to(accelerator)
    x = normal(5, 9, dtype=torch.float32).to(accelerator)
    recording(layer.spectrum, LAST)
    layer(x).sum().backward()
    assert move(layer.spectrum, LAST).any()  # makes the tables that are shared as well
    recording(layer.spectrum, LAST)
    with no_waiting():
        layer(x).sum().backward()
    # Is there a gradient? And which components were dropped?
    with no_waiting(but=2 if search == "reselect" else 1):
        move(layer.spectrum, LAST)


def test_all_layers_wait_once_together_in_a_step_of_the_locations(accelerator, no_waiting):
    model = small(schedule=AlternatingSchedule(2, 9, 20)).to(accelerator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    follow(model, optimizer)
    for allowed in (0, 0, 1, 1):  # two steps of the coefficients, then two of the locations
        x, y = (part.to(accelerator) for part in batches(1)[0])
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        with no_waiting(but=allowed):
            optimizer.step()


@pytest.mark.cuda
@pytest.mark.parametrize("function", ["dct2", *IMPLEMENTATIONS])
def test_a_forward_pass_can_be_captured_in_a_graph(function):
    """After a pass that makes the tables; each replay reads what the input holds by then."""
    if function == "dct2":
        forward = dct2
    else:
        forward = LoCALinear(
            nn.Linear(64, 48), 100, zero_init=False, implementation=function
        ).cuda()
    first, second = (normal(10, 64, dtype=torch.float32, seed=n).cuda() for n in (0, 1))
    x, graph, aside = first.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            forward(x)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph):
            y = forward(x)
        for tokens in (first, second):
            x.copy_(tokens)
            graph.replay()
            expected = forward(tokens)
            # The same sums of 64 terms in another order, along each of two dimensions and once
            # with the weight: 3·64 roundings. Both outputs are of order one, and nothing alike.
            assert float((y - expected).norm()) <= 192 * 2**-23 * float(expected.norm())


# --- memory, precision ---


@by_implementation
def test_a_forward_pass_keeps_one_copy_of_the_tokens_or_of_the_weight(implementation, device):
    p, q, tokens = 40, 30, 20
    layer = LoCALinear(nn.Linear(q, p), 7, implementation=implementation).to(device)
    x = normal(tokens, q, dtype=torch.float32).to(device)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
        layer(x)
    tensors_of_layer = [
        x,
        layer.base.weight,
        *layer.spectrum.parameters(),
        *layer.spectrum.buffers(),
    ]
    tensors_of_layer += layer.spectrum.pattern()
    storages = {t.untyped_storage().data_ptr() for t in tensors_of_layer}
    sizes = [t.numel() for t in saved if t.untyped_storage().data_ptr() not in storages]
    # ΔW is formed nowhere, and what remains are the spectra; or W + ΔW is.
    assert sum(sizes) in ({q * tokens} if implementation == "implicit" else {p * q, q * tokens})


@pytest.fixture(params=["ieee", "tf32"])
def session(request):
    """The precision of the products of other layers; the switch exists without CUDA too."""
    switch = torch.backends.cuda.matmul
    before, switch.fp32_precision = switch.fp32_precision, request.param
    yield request.param
    switch.fp32_precision = before


def test_products_with_the_weight_are_as_precise_as_those_of_other_layers(session, monkeypatch):
    """In shapes alone, which need no GPU."""
    product, precisions = functional.linear, []

    def noted(*inputs):
        precisions.append(torch.backends.cuda.matmul.fp32_precision)
        return product(*inputs)

    monkeypatch.setattr(functional, "linear", noted)
    monkeypatch.setattr(linear_operator, "form", lambda a, _s, p, q: a.new_empty(p, q))
    with FakeTensorMode(), torch.no_grad():
        x, weight, a = (torch.empty(size, device="cuda") for size in ((5, 8), (6, 8), (3,)))
        pattern = [torch.empty(3, device="cuda")] * 7
        settings = (6, 1.0, "central", "materialised", True)
        linear_operator._linear(x, weight, None, a, None, pattern[0], pattern, *settings)
    assert precisions == [session]


@by_phase
def test_autocast_to_bfloat16_stays_close(phase, device):
    layer = LoCALinear(nn.Linear(64, 48), 100, **SEARCHED).to(device)
    in_phase(layer, phase)
    x = normal(10, 64, dtype=torch.float32).to(device)
    gradients = []
    for enabled in (False, True):
        layer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
            y = layer(x)
        y.float().sum().backward()
        of = (layer.spectrum.coefficients.grad, layer.spectrum.offset.grad)
        gradients += [y.detach().float(), *(grad for grad in of if grad is not None)]
    half = len(gradients) // 2
    for exact, narrow in zip(gradients[:half], gradients[half:], strict=True):
        assert narrow.dtype == torch.float32
        # Products of 64 terms, in which each factor is rounded by 2⁻⁹, and the result once.
        assert float((narrow - exact).norm()) <= 2**-6 * float(exact.norm())
