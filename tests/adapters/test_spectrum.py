"""A spectrum and the layer around it: start, casts, checkpoints, phases, torch.func, merging."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from transformers.pytorch_utils import Conv1D

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, LoCALinear, follow
from loca_theory.adapters.linear import features, foldable_weight
from loca_theory.errors import InvalidArgumentError

from . import searching
from .searching import dense, in_phase, same, same_state

IMPLEMENTATIONS = ["auto", "implicit", "materialised"]
by_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
PHASES = ["coefficients", "locations", "both"]
normal = partial(searching.normal, dtype=torch.float32)

# A few hundred float32 operations of unit-sized values, each of 6e-8.
ROUNDING = 2e-5


@pytest.fixture(autouse=True)
def _told(monkeypatch):
    """That nobody follows, of which most tests here know."""
    monkeypatch.setattr(CosineSpectrum, "_was_told", True)


def layer(p=6, q=9, n_components=7, seed=777, **options):
    torch.manual_seed(seed)
    options = {"scaling": 0.7, "schedule": AlternatingSchedule(), **options}
    return LoCALinear(nn.Linear(q, p), n_components, seed=seed, zero_init=False, **options)


def assert_close(actual, expected, tolerance=ROUNDING):
    assert actual.shape == expected.shape
    difference = (actual.detach().double() - expected.detach().double()).norm()
    assert float(difference) <= tolerance * max(1.0, float(expected.detach().double().norm()))


def other_indices(p=6, q=9, n_components=7):
    """The first three components share a location."""
    indices = CosineSpectrum((p, q), n_components, seed=31).indices
    indices[:3] = indices[3].clone()
    return indices


# --- start ---


def test_a_random_start_has_variance_one_over_the_longer_side():
    torch.manual_seed(0)
    p, q, count = 300, 400, 20_000
    a = CosineSpectrum((p, q), count, zero_init=False).coefficients.detach().double()
    # z-scores of the mean and of the mean square, which has variance 2/B relative to σ⁴.
    assert abs(float(a.mean())) * math.sqrt(q * count) < 4.5
    assert abs(float(a.square().mean()) * q - 1) < 4.5 * math.sqrt(2 / count)


@pytest.mark.parametrize("zero_init", [True, False])
def test_indices_come_from_the_seed_and_coefficients_from_torch(zero_init):
    torch.manual_seed(0)
    first = CosineSpectrum((20, 30), 9, zero_init=zero_init, seed=5)
    before = torch.get_rng_state()
    second = CosineSpectrum((20, 30), 9, zero_init=zero_init, seed=5)
    assert torch.equal(torch.get_rng_state(), before) == zero_init
    torch.manual_seed(0)
    other = CosineSpectrum((20, 30), 9, zero_init=False, seed=(5, 1))
    assert torch.equal(first.indices, second.indices)
    assert not torch.equal(first.indices, other.indices)
    assert torch.equal(first.coefficients, second.coefficients) == zero_init
    assert torch.equal(first.coefficients, other.coefficients) != zero_init


# --- casts ---


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_casts_leave_indices_and_locations_as_they_are(dtype):
    """There and back, at a width that half precision cannot count to."""
    spectrum = CosineSpectrum((2048, 2048), 500, schedule=AlternatingSchedule())
    follow(spectrum)
    with torch.no_grad():
        spectrum.offset.copy_(normal(500, 2) / 5000)
    indices, offset = spectrum.indices.clone(), spectrum.offset.detach().clone()
    for target in (dtype, torch.float32):
        nn.Sequential(spectrum).to(target)
        assert spectrum.coefficients.dtype == target
        assert spectrum.indices.dtype == spectrum.shape.dtype == torch.int64
        assert spectrum.offset.dtype == torch.promote_types(target, torch.float32)
        assert torch.equal(spectrum.indices, indices)
        assert_close(spectrum.offset, offset, 2 * torch.finfo(dtype).eps)


# --- checkpoints ---


SPOILT = [
    *(
        ({"indices": torch.tensor([wrong] * 7)}, "the checkpoint has locations outside 6×9")
        for wrong in ([6, 0], [0, 9], [-1, 0])
    ),
    ({"indices": torch.zeros(7, 2)}, r"indices must be integers of shape \(7, 2\), not .*float"),
    ({"indices": torch.zeros(5, 2).long()}, r"indices must be .*, not torch.int64 of shape \(5, 2"),
    ({"coefficients": torch.full((7,), math.nan)}, "the checkpoint has values of coefficients tha"),
    ({"offset": torch.full((7, 2), math.inf)}, "the checkpoint has values of offset that are not "),
    ({"shape": torch.tensor([9, 6])}, "the checkpoint is for a 9×6 layer, this one is 6×9"),
    ({"coefficients": torch.ones(8)}, "the checkpoint has 8 components, this layer has 7; load it"),
]


@pytest.mark.parametrize(("spoilt", "message"), SPOILT)
def test_a_checkpoint_of_something_else_is_refused_with_the_name_of_the_layer(spoilt, message):
    model = nn.ModuleDict({"fc": layer()})
    before = copy.deepcopy(model.state_dict())
    state = before | {f"fc.spectrum.{key}": tensor for key, tensor in spoilt.items()}
    with pytest.raises(RuntimeError, match=f"fc.spectrum: {message}"):
        model.load_state_dict(state, strict=False)
    assert same_state(dict(model.state_dict()), dict(before))


# --- locations ---


@by_implementation
@pytest.mark.parametrize("moves", ["copied", "assigned", "written", "written, then deep-copied"])
def test_moved_indices_act_at_once(implementation, moves):
    adapted = layer(implementation=implementation)
    x = normal(3, 9)
    adapted(x)
    if moves == "copied":
        adapted.spectrum.set_indices(other_indices())
    elif moves.startswith("written"):
        adapted.state_dict()["spectrum.indices"].copy_(other_indices())
        adapted = copy.deepcopy(adapted) if "deep" in moves else adapted
    else:
        state = adapted.state_dict() | {"spectrum.indices": other_indices()}
        adapted.load_state_dict(state, assign=True)
    y = adapted(x)
    delta = dense(adapted.spectrum)
    assert_close(y, x.double() @ (adapted.base.weight.double() + delta).T + adapted.base.bias)
    assert_close(adapted.increment(), delta)


# --- phases ---


def test_an_untrainable_layer_learns_no_locations_until_it_is_trainable_again():
    adapted = layer()
    in_phase(adapted)
    for trains in (False, True):
        adapted.spectrum.requires_grad_(trains)
        adapted(normal(3, 9).requires_grad_()).sum().backward()
        assert {p.grad is not None for p in adapted.spectrum.parameters()} == {trains}


# --- transformations of the model ---


DERIVATIVES = {
    "grad": grad,
    "of each sample": lambda loss: lambda a, x: vmap(grad(loss), (None, 0))(a, x).sum(0),
    "jacobian": jacrev,
}


@by_implementation
@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
@pytest.mark.parametrize("phase", [None, "locations"])
def test_torch_func_differentiates_the_coefficients(derivative, phase, implementation):
    adapted = layer(implementation=implementation).double()
    x, a = normal(4, 9, dtype=torch.float64), adapted.spectrum.coefficients
    adapted(x).square().sum().backward()
    expected, a.grad = a.grad, None
    if phase is not None:
        in_phase(adapted, phase)

    def loss(a, x):
        return functional_call(adapted, {"spectrum.coefficients": a}, (x,)).square().sum()

    assert_close(derivative(loss)(a.detach(), x), expected, 1e-10)
    assert a.grad is None


def replica(network):
    """A replica as ``nn.DataParallel`` makes it, on the CPU."""
    copies = {module: module._replicate_for_data_parallel() for module in network.modules()}
    for module, copied in copies.items():
        for name, child in module._modules.items():
            setattr(copied, name, copies[child])
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            setattr(copied, name, None if tensor is None else tensor.clone())
    return copies[network]


@pytest.mark.parametrize("phase", [None, *PHASES])
def test_replicas_train_coefficients_and_locations(phase):
    adapted, x = layer(), normal(3, 9)
    if phase is not None:
        in_phase(adapted, phase)
    gradients = []
    for run in (adapted, replica(adapted)):
        adapted.zero_grad()
        run(x).square().sum().backward()
        spectrum = adapted.spectrum
        of = [spectrum.coefficients, *([] if phase is None else [spectrum.offset])]
        gradients.append([p.grad for p in of if p.grad is not None])
    assert len(gradients[0]) == (2 if phase == "both" else 1)
    assert same(*gradients)


def test_replicas_refuse_a_search_that_records():
    adapted = layer(location_search="reselect")
    in_phase(adapted, "coefficients")
    with pytest.raises(InvalidArgumentError, match=r"cannot follow nn\.DataParallel; .* torchrun"):
        replica(adapted)(normal(3, 9))


@by_implementation
def test_a_functional_call_uses_other_indices_and_leaves_the_layer_as_it_was(implementation):
    adapted, x = layer(implementation=implementation), normal(3, 9)
    indices, other = other_indices(), copy.deepcopy(adapted)
    other.load_state_dict({**adapted.state_dict(), "spectrum.indices": indices})

    def outputs(run, a):
        y = run(x)
        return [y, *torch.autograd.grad(y.sum(), a)]

    a = adapted.spectrum.coefficients
    before = outputs(adapted, a)
    called = outputs(lambda x: functional_call(adapted, {"spectrum.indices": indices}, (x,)), a)
    assert same(called, outputs(other, other.spectrum.coefficients))
    assert not torch.equal(called[0], before[0])
    assert same(outputs(adapted, a), before)


@pytest.mark.parametrize("phase", [None, *PHASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_on_the_meta_device_gives_shapes(phase, dtype):
    adapted = layer().to(dtype)
    if phase is not None:
        in_phase(adapted, phase)
    adapted.to("meta")
    x = torch.empty(2, 3, 9, device="meta", dtype=dtype, requires_grad=True)
    y = adapted(x)
    y.sum().backward()
    for result, shape in ((y, (2, 3, 6)), (adapted.increment(), (6, 9)), (x.grad, (2, 3, 9))):
        assert result.is_meta
        assert result.dtype == dtype
        assert result.shape == shape


@by_implementation
def test_a_layer_that_was_made_and_used_in_inference_mode_computes_and_trains(implementation):
    with torch.inference_mode():
        from_inference = layer(implementation=implementation)
        first = from_inference(normal(3, 9))
    adapted = layer(implementation=implementation)
    with torch.no_grad():
        assert same([from_inference(normal(3, 9)), adapted(normal(3, 9))], [first, first])
        assert torch.equal(from_inference.increment(), adapted.increment())
    with torch.inference_mode():
        adapted.spectrum.set_indices(other_indices())
        adapted(normal(3, 9))
    in_phase(adapted)
    adapted(normal(3, 9)).sum().backward()
    assert adapted.spectrum.coefficients.grad.any()


@by_implementation
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_output_and_merged_weight_are_rounded_once(dtype, implementation):
    adapted = layer(24, 40, 30, implementation=implementation).to(dtype)
    x, bias = normal(4, 40, dtype=dtype), adapted.base.bias.double()
    expected = adapted.base.weight.double() + dense(adapted.spectrum)
    y, epsilon = adapted(x), torch.finfo(dtype).eps
    assert y.dtype == dtype
    # W xᵀ, ΔW xᵀ and their sum are each rounded once to the dtype, from float32 sums.
    assert_close(y, x.double() @ expected.T + bias, max(4 * epsilon, ROUNDING))
    merged = adapted.merge()
    assert adapted.merge() is merged
    assert type(merged) is nn.Linear
    assert merged.weight.dtype == dtype
    # ΔW and the sum are rounded once each.
    assert_close(merged.weight, expected, max(epsilon, ROUNDING))
    assert torch.equal(adapted(x), merged(x))


def test_the_transposed_layer_of_transformers():
    plain = layer()
    base = Conv1D(6, 9)
    with torch.no_grad():
        base.weight.copy_(plain.base.weight.T)
        base.bias.copy_(plain.base.bias)
    adapted = LoCALinear(base, 7, scaling=0.7)
    adapted.spectrum.load_state_dict(plain.spectrum.state_dict())
    assert features(base, "c_attn") == (6, 9)
    x = normal(2, 4, 9)
    expected = plain(x)
    assert_close(adapted(x), expected)
    assert adapted.increment().shape == base.weight.shape
    assert_close(adapted.merge()(x), expected)


# --- folding ---

HOOKS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


def test_a_weight_is_folded_unless_that_would_change_anything():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    x, frozen = normal(2, 9), nn.Linear(9, 6).requires_grad_(False)
    assert foldable_weight(frozen, x) is frozen.weight
    patched, hooked = copy.deepcopy(frozen), [copy.deepcopy(frozen) for _ in HOOKS]
    patched.forward = lambda x: 2 * frozen(x)
    for base, kind in zip(hooked, HOOKS, strict=True):
        getattr(base, f"register_{kind}")(lambda *_: None)
    for base in (nn.Linear(9, 6), Scaled(9, 6).requires_grad_(False), patched, *hooked):
        assert foldable_weight(base, x) is None
    assert foldable_weight(frozen, x.double()) is None
    assert foldable_weight(copy.deepcopy(frozen).bfloat16(), x.bfloat16()) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert foldable_weight(frozen, x) is None
