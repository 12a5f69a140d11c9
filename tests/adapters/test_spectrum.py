"""A spectrum and the layer around it: start, casts, checkpoints, phases, freezing, merging."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from loca_theory.adapters import CosineSpectrum, LoCALinear
from loca_theory.adapters.linear import features, foldable_weight
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2, idct2

IMPLEMENTATIONS = ["auto", "implicit", "dense", "fft", "sparse"]
by_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
CASTS = [torch.float16, torch.bfloat16, torch.float64]
by_cast = pytest.mark.parametrize("dtype", CASTS, ids=str)
HALVES = [torch.float16, torch.bfloat16]
by_half = pytest.mark.parametrize("dtype", HALVES, ids=str)

# A few hundred float32 operations of unit-sized values, each of 6e-8.
ROUNDING = 2e-5


def normal(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def linear(p=6, q=9, bias=True, seed=0):
    base = nn.Linear(q, p, bias=bias)
    with torch.no_grad():
        base.weight.copy_(normal(p, q, seed=seed))
        if bias:
            base.bias.copy_(normal(p, seed=seed + 1))
    return base


def layer(p=6, q=9, n_components=7, **options):
    return LoCALinear(linear(p, q), n_components, **{"zero_init": False, **options})


def definition(spectrum):
    """ΔW from what the spectrum holds, in float64."""
    s = torch.zeros(spectrum.shape.tolist(), dtype=torch.float64)
    rows, columns = spectrum.indices.T
    s.index_put_((rows, columns), spectrum.coefficients.detach().double(), accumulate=True)
    return spectrum.scaling * idct2(s)


def assert_close(actual, expected, tolerance=ROUNDING):
    assert actual.shape == expected.shape
    difference = (actual.detach().double() - expected.detach().double()).norm()
    assert float(difference) <= tolerance * max(1.0, float(expected.detach().double().norm()))


def collide(spectrum):
    """Move the first three components to one location."""
    with torch.no_grad():
        spectrum.locations[:3] = spectrum.locations[3]
    spectrum.refresh()
    assert torch.unique(spectrum.indices, dim=0).shape[0] == len(spectrum.indices) - 3


# --- start ---


def test_it_starts_as_the_base_layer():
    x, base = normal(4, 9), linear()
    adapted = LoCALinear(base, 7)
    assert not adapted.increment().any()
    assert_close(adapted(x), torch.nn.functional.linear(x, base.weight, base.bias))


def test_a_random_start_has_variance_one_over_the_longer_side():
    p, q, count = 300, 400, 20_000
    a = CosineSpectrum((p, q), count, zero_init=False).coefficients.detach().double()
    # z-scores of the mean and of the mean square, which has variance 2/B relative to σ⁴.
    assert abs(float(a.mean())) * math.sqrt(q * count) < 4.5
    assert abs(float(a.square().mean()) * q - 1) < 4.5 * math.sqrt(2 / count)


@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (8, 1), (13, 7), (64, 48)], ids=str)
def test_locations_start_distinct_and_in_range_for_any_count(shape):
    p, q = shape
    for count in {1, p * q // 2 or 1, p * q}:
        indices = CosineSpectrum(shape, count).indices
        assert indices.dtype == torch.int64
        assert torch.unique(indices, dim=0).shape == (count, 2)
        assert bool(((indices >= 0) & (indices < torch.tensor(shape))).all())


def test_locations_are_uniform():
    # Counts of 3000 locations over 4×4 equal bins: χ² of 15 degrees, at most 1e-5 above 50.
    indices = CosineSpectrum((400, 400), 3000).indices // 100
    counts = torch.bincount(indices[:, 0] * 4 + indices[:, 1], minlength=16).double()
    assert float(((counts - 187.5) ** 2 / 187.5).sum()) < 50


def test_the_seed_decides_and_nothing_else():
    torch.manual_seed(0)
    first = CosineSpectrum((20, 30), 9, zero_init=False, seed=5)
    before = torch.get_rng_state()
    second = CosineSpectrum((20, 30), 9, zero_init=False, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    other = CosineSpectrum((20, 30), 9, zero_init=False, seed=(5, 1))
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.coefficients, second.coefficients)
    assert not torch.equal(first.indices, other.indices)


def test_the_start_of_locations_does_not_depend_on_how_coefficients_start():
    zeros, random = (CosineSpectrum((20, 30), 9, zero_init=z) for z in (True, False))
    assert torch.equal(zeros.indices, random.indices)
    assert not zeros.coefficients.any()
    assert bool(random.coefficients.ne(0).all())


@by_implementation
@pytest.mark.parametrize("scaling", [1.0, 0.25, 3])
def test_increment_and_output_are_the_definition(implementation, scaling):
    adapted = layer(implementation=implementation, scaling=scaling)
    x, base = normal(4, 9), adapted.base
    delta = definition(adapted.spectrum)
    assert_close(adapted.increment(), delta)
    expected = x.double() @ (base.weight.double() + delta).T + base.bias.double()
    assert_close(adapted(x), expected)
    assert_close(adapted.spectrum(x), x.double() @ delta.T)


# --- errors ---

BAD = {
    "no component": ({"n_components": 0}, "q_proj: n_components must be a positive"),
    "negative": ({"n_components": -3}, "q_proj: n_components must be a positive"),
    "a truth value": ({"n_components": True}, "q_proj: n_components .*not True"),
    "a fraction": ({"n_components": 2.0}, "q_proj: n_components .*not 2.0"),
    "too many": ({"n_components": 55}, "q_proj: 55 components do not fit into 6×9 = 54 locations"),
    "scaling 0": ({"scaling": 0}, "q_proj: scaling must be positive and finite, not 0"),
    "negative scaling": ({"scaling": -1.0}, "q_proj: scaling must be positive .*not -1.0"),
    "scaling nan": ({"scaling": math.nan}, "q_proj: scaling must be positive .*not nan"),
    "scaling inf": ({"scaling": math.inf}, "q_proj: scaling must be positive .*not inf"),
    "scaling text": ({"scaling": "1"}, "q_proj: scaling must be positive .*not '1'"),
    "implementation": (
        {"implementation": "slow"},
        "q_proj: unknown implementation 'slow'; choose one of auto, dense, fft, sparse, implicit",
    ),
    "rule": (
        {"location_search": "sideways"},
        "q_proj: unknown location_search 'sideways'; choose one of central, forward, backward",
    ),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_mistakes_are_refused_with_the_name_of_the_layer(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        LoCALinear(linear(), **{"n_components": 3, "name": "q_proj", **options})


@pytest.mark.parametrize("base", [nn.LayerNorm(4), nn.Conv1d(3, 3, 1), nn.Embedding(3, 4)], ids=str)
def test_only_linear_layers_are_adapted(base):
    with pytest.raises(InvalidArgumentError, match=f"block.fc: LoCA.*not {type(base).__name__}"):
        LoCALinear(base, 2, name="block.fc")


# --- casts ---


@by_cast
def test_casts_leave_locations_and_locations_as_they_are(dtype):
    spectrum = CosineSpectrum((2048, 2048), 500)
    indices, locations = spectrum.indices.clone(), spectrum.locations.detach().clone()
    parameter = spectrum.locations
    model = nn.Sequential(spectrum).to(dtype)
    assert model[0].coefficients.dtype == dtype
    assert spectrum.locations.dtype == torch.float32
    assert spectrum.locations is parameter
    spectrum.refresh()
    assert torch.equal(spectrum.locations, locations)
    assert torch.equal(spectrum.indices, indices)
    assert spectrum.indices.dtype == spectrum.shape.dtype == torch.int64


@by_half
def test_half_precision_there_and_back_leaves_locations_as_they_are(dtype):
    spectrum = CosineSpectrum((2048, 2048), 500)
    indices = spectrum.indices.clone()
    spectrum.to(dtype).float().refresh()
    assert torch.equal(spectrum.indices, indices)


def test_the_gradient_of_locations_is_float32_in_half_precision():
    adapted = layer().bfloat16()
    adapted.spectrum.set_phase("both")
    adapted(normal(4, 9, dtype=torch.bfloat16)).float().square().sum().backward()
    assert adapted.spectrum.coefficients.grad.dtype == torch.bfloat16
    assert adapted.spectrum.locations.grad.dtype == torch.float32


@by_half
@by_implementation
def test_half_precision_is_close_to_single(dtype, implementation):
    adapted = layer(24, 40, 30, implementation=implementation).to(dtype)
    exact = copy.deepcopy(adapted).double()
    x = normal(8, 40, dtype=dtype)
    y = adapted(x)
    assert y.dtype == dtype
    # W xᵀ, ΔW xᵀ and their sum are each rounded once to the dtype, from float32 sums.
    assert_close(y, exact(x.double()), 4 * torch.finfo(dtype).eps)


@by_half
def test_a_small_increment_is_not_rounded_away_in_half_precision(dtype):
    adapted = layer(24, 40, 30).to(dtype)
    with torch.no_grad():
        adapted.base.weight.fill_(1.0)
        adapted.base.bias.zero_()
        adapted.spectrum.coefficients.mul_(1e-3)
    x = normal(1, 40, dtype=torch.float32)
    x -= x.mean()  # in the null space of W
    delta = adapted.spectrum(x.to(dtype))
    expected = x.to(dtype).double() @ definition(adapted.spectrum).T
    assert_close(delta / expected.norm(), expected / expected.norm(), 4 * torch.finfo(dtype).eps)


@by_implementation
def test_autocast_is_close_to_single_precision(implementation):
    adapted = layer(24, 40, 30, implementation=implementation)
    adapted.spectrum.set_phase("both")
    x = normal(8, 40).requires_grad_()
    exact = adapted(x)
    g = normal(8, 24, seed=1, dtype=torch.bfloat16)
    wanted = torch.autograd.grad(exact, [x, *adapted.spectrum.parameters()], g.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = adapted(x)
    found = torch.autograd.grad(y, [x, *adapted.spectrum.parameters()], g)
    eps = torch.finfo(torch.bfloat16).eps
    assert y.dtype == torch.bfloat16
    assert_close(y, exact, 6 * eps)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == torch.float32
        assert_close(mine / theirs.norm(), theirs / theirs.norm(), 6 * eps)


# --- checkpoints ---


def test_a_checkpoint_made_while_learning_restores_everything():
    saved = layer(seed=1)
    saved.spectrum.set_phase("both")
    with torch.no_grad():
        saved.spectrum.locations.add_(0.04 * normal(7, 2))
    collide(saved.spectrum)
    state = saved.state_dict()
    assert {"spectrum.locations", "spectrum.indices", "spectrum.shape"} <= state.keys()
    loaded = layer(seed=2)
    assert not torch.equal(loaded.spectrum.indices, saved.spectrum.indices)
    loaded.load_state_dict(state)
    assert torch.equal(loaded.spectrum.indices, saved.spectrum.indices)
    assert torch.equal(loaded.spectrum.locations, saved.spectrum.locations)
    assert torch.equal(loaded(normal(3, 9)), saved(normal(3, 9)))


def test_a_checkpoint_has_the_locations_of_locations_that_have_just_moved():
    saved = layer()
    saved.spectrum.set_phase("locations")
    with torch.no_grad():
        saved.spectrum.locations.copy_(1 - saved.spectrum.locations)
    state = saved.state_dict()
    expected = torch.round(saved.spectrum.locations * torch.tensor([5.0, 8.0])).long()
    assert torch.equal(state["spectrum.indices"], expected)


@pytest.mark.parametrize("into", ["learning", "fixed"])
def test_a_checkpoint_made_after_freezing_restores_the_locations(into):
    saved = layer(seed=1)
    collide(saved.spectrum)
    saved.spectrum.freeze_locations()
    state = saved.state_dict()
    assert "spectrum.locations" not in state
    loaded = layer(seed=2, learn_locations=into == "learning")
    loaded.load_state_dict(state)
    assert torch.equal(loaded.spectrum.indices, saved.spectrum.indices)
    loaded.spectrum.refresh()
    assert torch.equal(loaded.spectrum.indices, saved.spectrum.indices)
    assert torch.equal(loaded(normal(3, 9)), saved(normal(3, 9)))


def test_a_checkpoint_made_while_learning_serves_a_layer_with_fixed_locations():
    saved = layer(seed=1)
    collide(saved.spectrum)
    loaded = layer(seed=2, learn_locations=False)
    loaded.load_state_dict(saved.state_dict())
    torch.testing.assert_close(loaded(normal(3, 9)), saved(normal(3, 9)))
    again = layer(seed=3, learn_locations=False)
    again.load_state_dict(loaded.state_dict())
    assert torch.equal(again.spectrum.indices, loaded.spectrum.indices)


def test_a_location_that_is_no_number_is_an_error_that_names_the_layer():
    saved = layer(name="encoder.q")
    with torch.no_grad():
        saved.spectrum.locations[0, 0] = float("nan")
    with pytest.raises(InvalidArgumentError, match=r"encoder\.q: its locations have become NaN"):
        saved(normal(3, 9))


def spoilt(name):
    state = layer(n_components=7, learn_locations=False).state_dict()
    indices = state["spectrum.indices"].clone()
    if name == "duplicates":
        indices[1] = indices[0]
    elif name == "too far down":
        indices[0, 0] = 6
    elif name == "too far along":
        indices[0, 1] = 9
    elif name == "negative":
        indices[0, 0] = -1
    elif name == "fractions":
        indices = indices.float()
    elif name == "too few locations":
        indices = indices[:5]
    elif name == "another shape":
        return layer(9, 6, n_components=7, learn_locations=False).spectrum.state_dict()
    elif name == "another count":
        return layer(n_components=8, learn_locations=False).spectrum.state_dict()
    state["spectrum.indices"] = indices
    return {key.removeprefix("spectrum."): v for key, v in state.items() if "spectrum" in key}


SPOILT = {
    "duplicates": "fc.spectrum: the checkpoint has duplicate locations",
    "too far down": "fc.spectrum: the checkpoint has locations outside 6×9",
    "too far along": "fc.spectrum: the checkpoint has locations outside 6×9",
    "negative": "fc.spectrum: the checkpoint has locations outside 6×9",
    "fractions": r"fc.spectrum: indices must be integers of shape \(7, 2\), not torch.float32",
    "too few locations": r"fc.spectrum: indices must be integers of shape \(7, 2\)",
    "another shape": "fc.spectrum: the checkpoint is for a 9×6 layer, this one is 6×9",
    "another count": "fc.spectrum: the checkpoint has 8 components, this layer has 7",
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_checkpoint_of_something_else_is_refused_with_the_name_of_the_layer(name):
    model = nn.ModuleDict({"fc": layer()})
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = {f"fc.spectrum.{key}": value for key, value in spoilt(name).items()}
    with pytest.raises(RuntimeError, match=SPOILT[name]):
        model.load_state_dict(state, strict=False)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@by_half
@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
def test_a_checkpoint_stored_in_half_precision_keeps_its_locations(dtype, assign):
    saved = CosineSpectrum((2048, 4096), 300, seed=1)
    indices = saved.indices.clone()
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in saved.state_dict().items()}
    loaded = CosineSpectrum((2048, 4096), 300, seed=2)
    loaded.load_state_dict(state, assign=assign)
    assert torch.equal(loaded.indices, indices)
    loaded.refresh()
    assert torch.equal(loaded.indices, indices)
    assert loaded.locations.dtype == torch.float32


@pytest.mark.parametrize("learning", [True, False], ids=["learning", "fixed"])
def test_a_layer_made_without_memory_is_filled_by_its_checkpoint(learning):
    saved = layer(seed=1, learn_locations=learning)
    made = layer(seed=2, learn_locations=learning).to("meta")
    made.load_state_dict(saved.state_dict(), assign=True)
    assert all(t.device.type == "cpu" for t in (*made.buffers(), *made.parameters()))
    x = normal(3, 9)
    assert_close(made(x), saved(x))


def test_a_missing_entry_is_reported():
    state = layer().state_dict()
    del state["spectrum.indices"], state["spectrum.locations"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"spectrum.locations"'):
        layer().load_state_dict(state)


def test_a_copy_is_independent():
    original = layer()
    original.spectrum.set_phase("locations")
    x = normal(3, 9)
    before = original(x).detach()
    twin = copy.deepcopy(original)
    assert torch.equal(twin(x), before)
    assert twin.spectrum.phase == "locations"
    with torch.no_grad():
        twin.spectrum.locations.copy_(1 - twin.spectrum.locations)
    assert not torch.equal(twin(x), before)
    assert torch.equal(original(x), before)


# --- locations ---


def test_an_input_of_another_width_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"must be 9 wide, not of shape \(3, 10\)"):
        layer().spectrum(normal(3, 10))


def test_locations_are_the_nearest_to_the_locations_halves_to_even():
    spectrum = CosineSpectrum((5, 9), 4)
    with torch.no_grad():
        spectrum.locations.copy_(
            torch.tensor([[1.5 / 4, 2.5 / 8], [2.5 / 4, 3.5 / 8], [0.3, 0.3], [-0.2, 1.7]])
        )
    spectrum.refresh()
    assert spectrum.indices.tolist() == [[2, 2], [2, 4], [1, 2], [0, 8]]
    assert spectrum.locations[3].tolist() == [0.0, 1.0]


@by_implementation
def test_a_moved_location_acts_at_once(implementation):
    adapted = layer(implementation=implementation)
    adapted.spectrum.set_phase("locations")
    x = normal(3, 9)
    adapted(x)
    with torch.no_grad():
        adapted.spectrum.locations.copy_(1 - adapted.spectrum.locations)
    y = adapted(x)
    delta = definition(adapted.spectrum)
    assert_close(y, x.double() @ (adapted.base.weight.double() + delta).T + adapted.base.bias)
    assert_close(adapted.increment(), delta)


def test_the_gradient_of_locations_is_that_of_locations_times_the_extent():
    adapted = layer(6, 9).double()
    adapted.spectrum.set_phase("both")
    x = normal(4, 9, dtype=torch.float64)
    y = adapted(x)
    y.square().sum().backward()
    g_w = (2 * y.detach()).T @ x
    z = torch.nn.functional.pad(dct2(g_w)[None], (1, 1, 1, 1), mode="replicate")[0]
    i, j = adapted.spectrum.indices.T + 1
    slopes = torch.stack([z[i + 1, j] - z[i - 1, j], z[i, j + 1] - z[i, j - 1]], dim=1) / 2
    of_indices = adapted.spectrum.coefficients.detach()[:, None] * slopes
    # Locations are float32, and so is the last product of their gradient.
    assert_close(adapted.spectrum.locations.grad, of_indices * torch.tensor([5.0, 8.0]), 1e-6)


@pytest.mark.parametrize("shape", [(6, 9), (1, 12), (12, 1), (2, 4)], ids=str)
def test_freezing_keeps_the_increment_and_gives_each_component_its_location(shape):
    spectrum = CosineSpectrum(shape, 8, zero_init=False).double()
    collide(spectrum)
    before = spectrum.increment()
    spectrum.freeze_locations()
    assert torch.unique(spectrum.indices, dim=0).shape == (8, 2)
    assert not spectrum.learns_locations
    assert spectrum.phase == "coefficients"
    assert int(spectrum.coefficients.eq(0).sum()) == 3
    # As for transforms: 4·(log2 n + 2) + √n eps a side, before and after, n up to 12: 1e-13 is
    # four times that.
    assert_close(spectrum.increment(), before, 1e-13)
    assert_close(spectrum(normal(3, shape[1], dtype=torch.float64)), torch.nn.functional.linear(
        normal(3, shape[1], dtype=torch.float64), before), 1e-13)  # fmt: skip


def test_freezing_without_collisions_changes_nothing():
    spectrum = CosineSpectrum((6, 9), 8, zero_init=False)
    indices, a = spectrum.indices.clone(), spectrum.coefficients.detach().clone()
    spectrum.freeze_locations()
    spectrum.freeze_locations()
    assert torch.equal(spectrum.indices, indices)
    assert torch.equal(spectrum.coefficients, a)


# --- phases ---


@by_implementation
@pytest.mark.parametrize("phase", ["coefficients", "locations", "both"])
def test_only_what_the_phase_learns_has_a_gradient(phase, implementation):
    adapted = layer(implementation=implementation)
    spectrum = adapted.spectrum
    spectrum.set_phase("both")
    adapted(normal(3, 9)).sum().backward()
    spectrum.set_phase(phase)
    stale = {"coefficients": spectrum.locations, "locations": spectrum.coefficients}
    if phase in stale:
        assert stale[phase].grad is None
    adapted(normal(3, 9)).sum().backward()
    assert (spectrum.coefficients.grad is not None) == (phase != "locations")
    assert (spectrum.locations.grad is not None) == (phase != "coefficients")
    assert adapted.base.weight.grad is None


@pytest.mark.parametrize("phase", ["locations", "both"])
@pytest.mark.parametrize("why", ["never learned", "frozen"])
def test_fixed_locations_have_no_such_phase(phase, why):
    spectrum = CosineSpectrum((6, 9), 3, learn_locations=why == "frozen", name="fc1")
    spectrum.freeze_locations()
    with pytest.raises(InvalidArgumentError, match="fc1: its locations are fixed"):
        spectrum.set_phase(phase)
    assert spectrum.phase == "coefficients"


def test_an_untrainable_spectrum_takes_its_phase_up_later():
    spectrum = CosineSpectrum((6, 9), 3)
    spectrum.set_trainable(False)
    spectrum.set_phase("locations")
    assert not any(p.requires_grad for p in spectrum.parameters())
    spectrum.set_trainable(True)
    assert spectrum.locations.requires_grad
    assert not spectrum.coefficients.requires_grad


# --- transformations of the model ---


@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
@pytest.mark.parametrize(
    "implementation", ["implicit", pytest.param("fft", marks=pytest.mark.deep)]
)
def test_the_compiled_layer_is_the_eager_one_in_every_phase(implementation):
    torch._dynamo.reset()
    eager = layer(implementation=implementation)
    other = copy.deepcopy(eager)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    x = normal(3, 9)
    for phase in ("coefficients", "locations", "both", "coefficients"):
        for adapted, run in ((eager, eager), (other, compiled)):
            adapted.spectrum.set_phase(phase)
            run(x).square().sum().backward()
            with torch.no_grad():
                for p in adapted.spectrum.parameters():
                    if p.grad is not None:
                        p.sub_(0.01 * p.grad.sign())
                        p.grad = None
        assert_close(compiled(x), eager(x))
        assert torch.equal(other.spectrum.indices, eager.spectrum.indices)
        for mine, theirs in zip(
            other.spectrum.parameters(), eager.spectrum.parameters(), strict=True
        ):
            assert_close(mine, theirs)
    for adapted in (eager, other):
        adapted.spectrum.freeze_locations()
    assert_close(compiled(x), eager(x))


@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_gradients_under_activation_checkpointing_are_the_same(reentrant):
    model = nn.Sequential(layer(), nn.Tanh(), layer(4, 6))
    for m in (model[0], model[2]):
        m.spectrum.set_phase("both")
    x = normal(3, 9).requires_grad_()
    leaves = [x, *(p for p in model.parameters() if p.requires_grad)]
    assert len(leaves) == 5
    model(x).square().sum().backward()
    wanted = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
    for leaf, grad in zip(leaves, wanted, strict=True):
        assert_close(leaf.grad, grad)


def test_merging_gives_the_adapted_layer():
    adapted = layer()
    x = normal(4, 9)
    expected = adapted(x)
    merged = adapted.merge()
    assert type(merged) is nn.Linear
    assert_close(merged(x), expected)


@by_half
def test_merging_rounds_once_in_half_precision(dtype):
    adapted = layer(24, 40, 30).to(dtype)
    expected = adapted.base.weight.double() + definition(adapted.spectrum)
    weight = adapted.merge().weight
    assert weight.dtype == dtype
    # ΔW and the sum are rounded once each.
    assert_close(weight, expected, torch.finfo(dtype).eps)


def test_the_transposed_layer_of_transformers():
    plain = layer()
    base = Conv1D(6, 9)
    with torch.no_grad():
        base.weight.copy_(plain.base.weight.T)
        base.bias.copy_(plain.base.bias)
    adapted = LoCALinear(base, 7, zero_init=False)
    assert features(base, "c_attn") == (6, 9)
    x = normal(2, 4, 9)
    expected = plain(x)
    assert_close(adapted(x), expected)
    assert adapted.increment().shape == base.weight.shape
    assert_close(adapted.merge()(x), expected)


# --- folding ---


def test_the_weight_of_a_plain_frozen_layer_is_folded():
    base = linear().requires_grad_(False)
    assert foldable_weight(base, normal(2, 9)) is base.weight


def test_a_weight_is_not_folded_where_that_would_change_anything():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    x = normal(2, 9)
    assert foldable_weight(linear(), x) is None  # it is trained
    frozen = linear().requires_grad_(False)
    assert foldable_weight(Scaled(9, 6).requires_grad_(False), x) is None
    assert foldable_weight(frozen, x.double()) is None
    assert foldable_weight(copy.deepcopy(frozen).bfloat16(), x.bfloat16()) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert foldable_weight(frozen, x) is None


@pytest.mark.parametrize("kind", ["forward", "before forward", "backward", "before backward"])
def test_hooks_of_the_base_layer_still_run(kind):
    adapted = layer()
    seen = []
    register = {
        "forward": adapted.base.register_forward_hook,
        "before forward": adapted.base.register_forward_pre_hook,
        "backward": adapted.base.register_full_backward_hook,
        "before backward": adapted.base.register_full_backward_pre_hook,
    }[kind]
    register(lambda *_: seen.append(kind))
    adapted(normal(3, 9).requires_grad_()).sum().backward()
    assert seen == [kind]


def test_what_a_forward_hook_returns_counts():
    adapted = layer()
    adapted.base.register_forward_hook(lambda module, x, y: 2 * y)
    x = normal(3, 9)
    expected = 2 * (x @ adapted.base.weight.T + adapted.base.bias) + adapted.spectrum(x)
    assert_close(adapted(x), expected)


def test_a_base_made_trainable_again_has_its_gradients():
    adapted = layer()
    adapted.base.requires_grad_(True)
    x = normal(3, 9)
    adapted(x).sum().backward()
    assert_close(adapted.base.weight.grad, x.sum(0).expand(6, 9))
    assert_close(adapted.base.bias.grad, torch.full((6,), 3.0))


def test_a_trainable_bias_on_a_frozen_weight_has_its_gradient():
    adapted = layer()
    adapted.base.bias.requires_grad_(True)
    adapted(normal(3, 9)).sum().backward()
    assert adapted.base.weight.grad is None
    assert_close(adapted.base.bias.grad, torch.full((6,), 3.0))


def test_a_layer_without_bias():
    adapted = LoCALinear(linear(bias=False), 5, zero_init=False)
    x = normal(3, 9)
    expected = x.double() @ (adapted.base.weight.double() + definition(adapted.spectrum)).T
    assert_close(adapted(x), expected)


def test_it_says_what_it_is():
    text = "7 components of 6×9, scaling=0.5"
    assert f"({text}, learns locations)" in str(layer(scaling=0.5).spectrum)
    assert f"({text})" in str(layer(scaling=0.5, learn_locations=False).spectrum)


def test_a_quantised_weight_takes_no_increment():
    adapted = LoCALinear(nn.Linear(9, 6), 7, zero_init=False, name="fc")
    adapted.base.weight = nn.Parameter(torch.ones(6, 9, dtype=torch.int8), requires_grad=False)
    with pytest.raises(InvalidArgumentError, match="fc: its weight is quantised"):
        adapted.merge()
    assert bool((adapted.base.weight == 1).all())


def test_a_merged_layer_adds_its_increment_once():
    adapted = LoCALinear(nn.Linear(9, 6), 7, zero_init=False)
    x = normal(3, 9).float()
    before = adapted(x)
    for _ in range(2):
        adapted.merge()
        torch.testing.assert_close(adapted(x), before)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("coefficients", math.nan, "coefficients that are not finite"),
        ("locations", 7.0, r"locations outside \[0, 1\]"),
    ],
)
def test_numbers_that_cannot_be_are_refused(name, value, message):
    saved = layer(seed=1).state_dict()
    saved[f"spectrum.{name}"] = torch.full_like(saved[f"spectrum.{name}"], value)
    with pytest.raises(RuntimeError, match=message):
        layer(seed=2).load_state_dict(saved)


def test_a_negative_seed_is_refused_with_the_name_of_the_layer():
    with pytest.raises(InvalidArgumentError, match="fc: seed must be an integer of at least 0"):
        CosineSpectrum((6, 9), 7, seed=-1, name="fc")
