"""Exchanging components across the spectrum, against loops over one problem at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.locations import exchange
from loca_theory.locations.exchange import fading, gains, largest

SEED = 5
# A handful of float64 products and one dense 36×36 product.
ROUNDING = 1e-12


def here(places, h):
    return None if h is None else h.gather(-1, places)


def losses(a, places, h):
    return exchange.losses(a, here(places, h))


def swap(a, places, z, h, count):
    return exchange.swap(a, places, gains(z, h), here(places, h), count)


def reselect(places, vacated, z, h):
    return exchange.reselect(places, vacated, gains(z, h))


problems = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def random(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def scene(entries, components, batch, seed, *, weighs):
    """Distinct places, continuous values without ties, positive curvatures or none."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [torch.randperm(entries, generator=generator) for _ in range(batch)]
    places = torch.stack(shuffled)[:, :components]
    a, z = random(batch, components, seed=seed + 1), random(batch, entries, seed=seed + 2)
    h = random(batch, entries, seed=seed + 3).exp() if weighs else None
    return a, places, z, h


def row(tensor, n):
    return None if tensor is None else tensor[n]


# --- the same by loops over lists ---


def naive_gain(z, h, place):
    if h is None:
        return float(z[place]) * float(z[place])
    return float(z[place]) * float(z[place]) / float(h[place]) if h[place] > 0 else 0.0


def naive_loss(a, places, h, n):
    return float(a[n]) * float(a[n]) * (1.0 if h is None else float(h[places[n]]))


def naive_swap(a, places, z, h, count):
    places = places.tolist()
    free = sorted(
        set(range(len(z))) - set(places), key=lambda place: naive_gain(z, h, place), reverse=True
    )
    weakest = sorted(range(len(places)), key=lambda n: naive_loss(a, places, h, n))
    new = list(places)
    for place, n in list(zip(free, weakest, strict=False))[:count]:
        if h is None or naive_gain(z, h, place) > naive_loss(a, places, h, n):
            new[n] = place
    return new


def naive_reselect(places, vacated, z, h):
    """The places of the vacated ones as a set, and who of them stays."""
    places, vacated = places.tolist(), vacated.tolist()
    kept = {place for n, place in enumerate(places) if n not in vacated}
    open_places = [place for place in range(len(z)) if place not in kept]
    open_places.sort(key=lambda place: naive_gain(z, h, place), reverse=True)
    best = set(open_places[: len(vacated)])
    return kept | best, {n for n in vacated if places[n] in best}


spectra = st.tuples(
    st.integers(1, 40), st.floats(0, 1), st.integers(1, 5), st.integers(0, 2**30), st.booleans()
)


def drawn(values):
    entries, share, batch, seed, weighs = values
    components = 1 + round(share * (entries - 1))
    return scene(entries, components, batch, seed, weighs=weighs)


@problems
@given(spectra)
def test_gains_and_losses_are_their_formulas(values):
    a, places, z, h = drawn(values)
    for n in range(len(z)):
        gain, loss = gains(z, h)[n], losses(a, places, h)[n]
        for place in range(z.shape[1]):
            assert float(gain[place]) == naive_gain(z[n], row(h, n), place)
        for k in range(a.shape[1]):
            assert float(loss[k]) == naive_loss(a[n], places[n], row(h, n), k)


@problems
@given(spectra, st.floats(0, 1))
def test_swap_is_the_loop(values, share):
    a, places, z, h = drawn(values)
    # May be more than there are free places, and none.
    count = round(share * places.shape[1])
    new = swap(a, places, z, h, count)
    for n in range(len(places)):
        assert new[n].tolist() == naive_swap(a[n], places[n], z[n], row(h, n), count)
        assert new[n].unique().numel() == places.shape[1]


@problems
@given(spectra, st.floats(0, 1))
def test_a_swap_gains_by_every_component_it_moves(values, share):
    a, places, z, h = drawn((*values[:4], True))
    new = swap(a, places, z, h, round(share * places.shape[1]))
    moved = new != places
    gain, loss = gains(z, h).gather(-1, new), losses(a, places, h)
    assert bool((gain > loss)[moved].all())
    assert bool((~moved).sum(-1).ge(places.shape[1] - round(share * places.shape[1])).all())


@problems
@given(spectra, st.floats(0, 1))
def test_reselection_is_the_loop(values, share):
    _, places, z, h = drawn(values)
    count = 1 + round(share * (places.shape[1] - 1))
    generator = torch.Generator().manual_seed(values[3])
    vacated = torch.stack(
        [torch.randperm(places.shape[1], generator=generator)[:count] for _ in range(len(places))]
    )
    new = reselect(places, vacated, z, h)
    for n in range(len(places)):
        taken, staying = naive_reselect(places[n], vacated[n], z[n], row(h, n))
        assert set(new[n].tolist()) == taken
        assert new[n].unique().numel() == places.shape[1]
        moving = set(vacated[n].tolist()) - staying
        for k in range(places.shape[1]):
            assert (int(new[n, k]) != int(places[n, k])) == (k in moving)


@problems
@given(spectra)
def test_a_reselection_asks_only_for_ratios_of_curvatures(values):
    _, places, z, h = drawn((*values[:4], True))
    vacated = torch.zeros_like(places[:, :1])
    # A power of two, which rounds nothing.
    assert torch.equal(reselect(places, vacated, z, h), reselect(places, vacated, z, 2.0**7 * h))


@problems
@given(spectra)
def test_a_batch_is_its_problems_one_by_one(values):
    a, places, z, h = drawn(values)
    count = max(1, places.shape[1] // 2)
    vacated = losses(a, places, h).topk(count).indices
    together = swap(a, places, z, h, count), reselect(places, vacated, z, h)
    for n in range(len(places)):
        alone = (
            swap(a[n], places[n], z[n], row(h, n), count),
            reselect(places[n], vacated[n], z[n], row(h, n)),
        )
        assert torch.equal(alone[0], together[0][n])
        assert torch.equal(alone[1], together[1][n])


def test_any_leading_dimensions_are_taken():
    a, places, z, h = scene(12, 4, 6, SEED, weighs=True)
    vacated = torch.tensor([[1, 2]]).expand(6, 2)
    folded = [tensor.view(2, 3, -1) for tensor in (a, places, z, h)]
    assert torch.equal(swap(*folded, 2), swap(a, places, z, h, 2).view(2, 3, 4))
    assert torch.equal(
        reselect(folded[1], vacated.reshape(2, 3, 2), *folded[2:]),
        reselect(places, vacated, z, h).view(2, 3, 4),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_arguments_are_left_as_they_are(dtype):
    a, places, z, h = scene(12, 4, 3, SEED, weighs=True)
    arguments = [a.to(dtype), places, z.to(dtype), h.to(dtype)]
    copies = [tensor.clone() for tensor in arguments]
    swap(*arguments, 4)
    reselect(places, torch.zeros(3, 1, dtype=torch.long), *arguments[2:])
    assert all(torch.equal(*pair) for pair in zip(arguments, copies, strict=True))


# --- by hand ---


def test_a_swap_by_hand():
    a = torch.tensor([3.0, 0.5, -2.0])
    places = torch.tensor([0, 2, 4])
    z = torch.tensor([9.0, 1.0, 9.0, -4.0, 9.0, 2.0])
    # Raw: |a| is least at component 1, then 2; |Z| of free places is largest at 3, then 5.
    assert swap(a, places, z, None, 1).tolist() == [0, 3, 4]
    assert swap(a, places, z, None, 2).tolist() == [0, 3, 5]
    h = torch.tensor([1.0, 0.1, 100.0, 100.0, 0.01, 1.0])
    # a²h: 9, 25, 0.04. Z²/h of the free places 1, 3, 5: 10, 0.16, 4.
    assert swap(a, places, z, h, 1).tolist() == [0, 2, 1]
    # The second pair would give up 9 for 4.
    assert swap(a, places, z, h, 2).tolist() == [0, 2, 1]


def test_the_second_pair_is_exchanged_as_long_as_it_gains():
    a, places = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([0, 1, 2])
    z, h = torch.tensor([0.0, 0.0, 0.0, 3.0, 5.0]), torch.ones(5)
    # Least loss 1 with largest gain 25; loss 4 with gain 9.
    assert swap(a, places, z, h, 2).tolist() == [4, 3, 2]


def test_an_equal_gain_exchanges_nothing():
    a, places = torch.tensor([2.0]), torch.tensor([0])
    assert swap(a, places, torch.tensor([0.0, 2.0]), torch.ones(2), 1).tolist() == [0]


def test_a_component_of_no_use_moves_without_curvature_even_to_no_use():
    # As in dynamic sparse training: so many are exchanged, whatever comes of it.
    a, places = torch.tensor([5.0, 1.0]), torch.tensor([0, 1])
    assert swap(a, places, torch.tensor([9.0, 9.0, 0.0]), None, 1).tolist() == [0, 2]


@pytest.mark.parametrize("count", [0, 1, 2, 3], ids="count {}".format)
@pytest.mark.parametrize("weighs", [True, False], ids=["weighed", "raw"])
def test_a_full_spectrum_has_nowhere_to_go(weighs, count):
    a, places, z, h = scene(9, 9, 4, SEED, weighs=weighs)
    assert torch.equal(swap(a, places, z, h, count), places)
    one = torch.full((4, 1), count)
    assert torch.equal(reselect(places, one, z, h), places)


def test_a_full_spectrum_keeps_all_that_are_reselected_together():
    _, places, z, h = scene(9, 9, 4, SEED, weighs=True)
    assert torch.equal(reselect(places, torch.arange(9).expand(4, 9), z, h), places)


@pytest.mark.parametrize("count", [3, 4, 6], ids="count {}".format)
def test_more_than_the_free_places_cannot_move(count):
    a, places, z, _ = scene(9, 6, 4, SEED, weighs=False)
    new = swap(a, places, z, None, count)
    # Raw exchanges always happen: as many as there are free places.
    assert bool(((new != places).sum(1) == 3).all())
    for old, now in zip(places.tolist(), new.tolist(), strict=True):
        assert set(range(9)) - set(old) <= set(now)


def test_places_the_loss_does_not_depend_on_gain_nothing():
    z = random(1, 6, seed=SEED)
    h = torch.tensor([[1.0, 0.0, 2.0, 0.0, 0.5, 0.0]], dtype=torch.float64)
    gain = gains(z, h)
    assert torch.equal(gain[h == 0], torch.zeros(3, dtype=torch.float64))
    assert bool((gain[h > 0] > 0).all())
    a, places = torch.tensor([[0.0]], dtype=torch.float64), torch.tensor([[0]])
    nowhere = h.where(torch.arange(6) == 0, 0.0)
    # Not even a component that is worth nothing moves to them.
    assert torch.equal(swap(a, places, z, nowhere, 1), places)


@pytest.mark.parametrize("own", [0, 4, 8], ids="place {}".format)
@pytest.mark.parametrize("cause", ["no gradient", "no curvature"])
def test_a_component_stays_where_no_place_is_better_than_its_own(cause, own):
    z, h = random(1, 9, seed=SEED), torch.ones(1, 9, dtype=torch.float64)
    if cause == "no gradient":
        z = torch.zeros_like(z)
    else:
        h = torch.zeros_like(h)
    places = torch.tensor([[own, 2]])
    assert torch.equal(reselect(places, torch.tensor([[0]]), z, h), places)


def test_of_equal_places_a_component_keeps_its_own():
    z = torch.tensor([[1.0, -3.0, 3.0, 3.0, -3.0, 0.0]])
    for own in (1, 2, 3, 4):
        places = torch.tensor([[own, 5]])
        assert torch.equal(reselect(places, torch.tensor([[0]]), z, None), places)


# --- how many, and which ---


@pytest.mark.parametrize("components", [1, 2, 3, 10, 1000], ids="B={}".format)
@pytest.mark.parametrize("first", [0.2, 0.4, 1.0], ids="share {}".format)
def test_the_number_to_move_falls_from_a_share_to_one(first, components):
    counts = [fading(first, components, step / 50) for step in range(51)]
    assert counts[0] == max(1, round(first * components))
    assert counts[25] == max(1, round(first * components / 2))
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)
    assert max(counts) <= components


# --- on the quadratic loss that the numbers are of ---


class Quadratic:
    """L(F) = ½ (F − F*)ᵀ H (F − F*) of a small problem with the given fixed weights."""

    def __init__(self, condition, number=0):
        from loca_theory.convergence import Family, Reading, draw

        family = Family(size=5, components=4, condition=condition)
        self.batch = draw(family, Reading(), SEED, range(number, number + 1), samples=100)
        self.hessian = torch.kron(self.batch.rows[0], self.batch.columns[0])
        self.truth = self.dense(self.batch.places[0], self.batch.coefficients[0])
        self.curvature = self.hessian.diagonal()

    def dense(self, places, coefficients):
        return torch.zeros(25, dtype=torch.float64).scatter(0, places, coefficients)

    def loss(self, f):
        return float((f - self.truth) @ self.hessian @ (f - self.truth) / 2)

    def z(self, f):
        return self.hessian @ (f - self.truth)

    def best_at(self, places):
        """Coefficients whose own gradients vanish."""
        own = self.hessian[places][:, places]
        return torch.linalg.solve(own, (self.hessian @ self.truth)[places])


by_condition = pytest.mark.parametrize("condition", [1.0, None], ids=["orthogonal", "gaussian"])


@by_condition
def test_a_new_component_gains_what_was_promised(condition):
    loss = Quadratic(condition)
    places = loss.batch.start[0]
    f = loss.dense(places, loss.best_at(places))
    promised, start = gains(loss.z(f), loss.curvature) / 2, loss.loss(f)
    for place in set(range(25)) - set(places.tolist()):
        new = f.clone()
        new[place] = -loss.z(f)[place] / loss.curvature[place]
        # Both losses are of the size of the start.
        assert start - loss.loss(new) == pytest.approx(float(promised[place]), abs=ROUNDING * start)


@by_condition
def test_removing_a_component_costs_what_was_said(condition):
    loss = Quadratic(condition)
    places = loss.batch.start[0]
    a = loss.best_at(places)
    f = loss.dense(places, a)
    said, start = losses(a, places, loss.curvature) / 2, loss.loss(f)
    for n, place in enumerate(places.tolist()):
        new = f.clone()
        new[place] = 0.0
        assert loss.loss(new) - start == pytest.approx(float(said[n]), abs=ROUNDING * start)


def test_a_swap_between_rows_changes_the_loss_by_the_difference_on_orthogonal_weights():
    """Γ is diagonal then, so that components of different rows do not act on each other."""
    checked = 0
    for number in range(12):
        loss = Quadratic(1.0, number)
        places = loss.batch.start[0]
        a = loss.best_at(places)
        f = loss.dense(places, a)
        new = swap(a, places, loss.z(f), loss.curvature, 1)
        for n in (new != places).nonzero().flatten().tolist():
            if int(new[n]) // 5 == int(places[n]) // 5:
                continue
            after = f.clone()
            after[places[n]] = 0.0
            after[new[n]] = -loss.z(f)[new[n]] / loss.curvature[new[n]]
            gain = gains(loss.z(f), loss.curvature)[new[n]]
            predicted = losses(a, places, loss.curvature)[n] - gain
            start = loss.loss(f)
            change = loss.loss(after) - start
            assert change == pytest.approx(float(predicted) / 2, abs=ROUNDING * start)
            assert change < 0
            checked += 1
    assert checked >= 6


@by_condition
def test_a_reselected_component_has_the_best_place_there_is_for_it(condition):
    loss = Quadratic(condition)
    places = loss.batch.start[0]
    a = loss.best_at(places)
    for n in range(4):
        others = loss.dense(places, a.where(torch.arange(4) != n, 0.0))
        new = reselect(places, torch.tensor([n]), loss.z(others), loss.curvature)

        def with_it_at(place, others=others):
            f = others.clone()
            f[place] = f[place] - loss.z(others)[place] / loss.curvature[place]
            return loss.loss(f)

        kept = {int(place) for k, place in enumerate(places) if k != n}
        best = min((place for place in range(25) if place not in kept), key=with_it_at)
        assert int(new[n]) == best
        assert torch.equal(new[torch.arange(4) != n], places[torch.arange(4) != n])


# --- who is left out ---

by_components = pytest.mark.parametrize("components", [1, 3, 10], ids="B={}".format)


@by_components
def test_those_left_out_are_the_weakest_ever_fewer_of_them(components):
    a = random(4, components, seed=SEED)
    for step in range(21):
        progress = step / 20
        count = max(1, round(0.4 * components * (1 + math.cos(math.pi * progress)) / 2))
        chosen = exchange.left_out(a, progress, 2 * step)
        for n in range(4):
            weakest = sorted(range(components), key=lambda k: abs(float(a[n, k])))
            assert chosen[n].tolist() == weakest[:count]


@by_components
def test_in_the_end_every_component_has_its_turn(components):
    a = random(4, components, seed=SEED)
    turns = [exchange.left_out(a, 1.0, turn) for turn in range(1, 2 * components, 2)]
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
    found = largest(values, count)
    assert torch.equal(values[found], values.topk(count).values)
    assert found.unique().shape == (count,)
