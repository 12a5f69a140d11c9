"""Exchanging components across the spectrum, against loops over one problem at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.locations import prune_and_regrow
from loca_theory.locations.prune_and_regrow import largest, predicted_decreases

SEED = 5


def here(indices, h):
    return None if h is None else h.gather(-1, indices)


def swap(a, indices, z, h, count):
    return prune_and_regrow.swap(a, indices, predicted_decreases(z, h), here(indices, h), count)


def reselect(indices, dropped, z, h):
    return prune_and_regrow.reselect(indices, dropped, predicted_decreases(z, h))


problems = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def random(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def scene(entries, components, batch, seed, *, use_curvature):
    """Distinct locations, continuous values without ties, and positive curvatures if asked for."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [torch.randperm(entries, generator=generator) for _ in range(batch)]
    indices = torch.stack(shuffled)[:, :components]
    a, z = random(batch, components, seed=seed + 1), random(batch, entries, seed=seed + 2)
    h = random(batch, entries, seed=seed + 3).exp() if use_curvature else None
    return a, indices, z, h


def row(tensor, n):
    return None if tensor is None else tensor[n]


# --- the same by loops over lists ---


def naive_decrease(z, h, location):
    if h is None:
        return float(z[location]) ** 2
    return float(z[location]) ** 2 / float(h[location])


def naive_saliency(a, indices, h, n):
    return float(a[n]) ** 2 * (1.0 if h is None else float(h[indices[n]]))


def best_first(locations, z, h):
    return sorted(locations, key=lambda location: -naive_decrease(z, h, location))


def naive_swap(a, indices, z, h, count):
    indices = indices.tolist()
    free = best_first(set(range(len(z))) - set(indices), z, h)
    weakest = sorted(range(len(indices)), key=lambda n: naive_saliency(a, indices, h, n))
    new = list(indices)
    for location, n in list(zip(free, weakest, strict=False))[:count]:
        if h is None or naive_decrease(z, h, location) > naive_saliency(a, indices, h, n):
            new[n] = location
    return new


def naive_reselect(indices, dropped, z, h):
    """The locations of the vacated ones as a set, and who of them stays."""
    indices, dropped = indices.tolist(), dropped.tolist()
    saved = {location for n, location in enumerate(indices) if n not in dropped}
    best = set(best_first(set(range(len(z))) - saved, z, h)[: len(dropped)])
    return saved | best, {n for n in dropped if indices[n] in best}


spectra = st.tuples(
    st.integers(1, 40), st.floats(0, 1), st.integers(1, 5), st.integers(0, 2**30), st.booleans()
)


def drawn(values):
    entries, fraction, batch, seed, use_curvature = values
    components = 1 + round(fraction * (entries - 1))
    return scene(entries, components, batch, seed, use_curvature=use_curvature)


@problems
@given(spectra, st.floats(0, 1))
def test_swap_is_the_loop(values, fraction):
    a, indices, z, h = drawn(values)
    # May be more than there are free locations, and none.
    count = round(fraction * indices.shape[1])
    new = swap(a, indices, z, h, count)
    for n in range(len(indices)):
        assert new[n].tolist() == naive_swap(a[n], indices[n], z[n], row(h, n), count)
        assert new[n].unique().numel() == indices.shape[1]


@problems
@given(spectra, st.floats(0, 1))
def test_reselection_is_the_loop(values, fraction):
    _, indices, z, h = drawn(values)
    count = 1 + round(fraction * (indices.shape[1] - 1))
    generator = torch.Generator().manual_seed(values[3])
    dropped = torch.stack(
        [torch.randperm(indices.shape[1], generator=generator)[:count] for _ in range(len(indices))]
    )
    new = reselect(indices, dropped, z, h)
    for n in range(len(indices)):
        taken, staying = naive_reselect(indices[n], dropped[n], z[n], row(h, n))
        assert set(new[n].tolist()) == taken
        assert new[n].unique().numel() == indices.shape[1]
        moving = set(dropped[n].tolist()) - staying
        for k in range(indices.shape[1]):
            assert (int(new[n, k]) != int(indices[n, k])) == (k in moving)


def test_an_equal_predicted_decrease_moves_nothing():
    a, indices = torch.tensor([2.0]), torch.tensor([0])
    assert swap(a, indices, torch.tensor([0.0, 2.0]), torch.ones(2), 1).tolist() == [0]


# --- how many, and which ---


by_components = pytest.mark.parametrize("components", [1, 3, 10, 1000], ids="B={}".format)


@by_components
def test_those_left_out_are_the_weakest_ever_fewer_of_them(components):
    a = random(4, components, seed=SEED)
    for step in range(21):
        progress = step / 20
        count = max(1, round(0.4 * components * (1 + math.cos(math.pi * progress)) / 2))
        chosen = prune_and_regrow.components_to_drop(a, progress, 2 * step)
        for n in range(4):
            weakest = sorted(range(components), key=lambda k: abs(float(a[n, k])))
            assert chosen[n].tolist() == weakest[:count]


@by_components
def test_in_the_end_every_component_has_its_turn(components):
    a = random(4, components, seed=SEED)
    turns = [
        prune_and_regrow.components_to_drop(a, 1.0, turn) for turn in range(1, 2 * components, 2)
    ]
    together = torch.cat(turns, dim=1)
    assert torch.equal(together.sort(1).values, torch.arange(components).expand(4, components))


@pytest.mark.parametrize("count", [1, 50, 40_000], ids="{} wanted".format)
@pytest.mark.parametrize("kind", ["normal", "few", "sorted"])
def test_the_largest_of_a_long_vector_are_those_of_a_full_search(kind, count):
    """Also where the sample misleads: few values that are not zero, or the largest at the end."""
    values = torch.randn(2**20 + 77, generator=torch.Generator().manual_seed(SEED)).square()
    if kind == "few":
        values[100:] = 0.0
    if kind == "sorted":
        values = values.sort().values
    indices = largest(values, count)
    assert torch.equal(values[indices], values.topk(count).values)
    assert indices.unique().shape == (count,)
