"""How far an approximation of a stored difference is moved into rounding cells."""

import numpy as np
import pytest
import torch

from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding import (
    FORMATS,
    CosineFamily,
    LowRankFamily,
    RoundingCells,
    choose,
    fit_low_rank,
    rounding_cells,
)
from loca_theory.rounding.fit.choice import _best_of_shown
from loca_theory.sweeps import generator
from loca_theory.transforms import idct2

SHAPE = (192, 256)
FORM = FORMATS["bfloat16"]


def normal(*shape, seed=0):
    return torch.from_numpy(generator(seed, "choice", *shape).standard_normal(shape))


def scattered(count):
    """An increment of this number of cosine components."""
    source = generator(0, "components", count)
    spectrum = torch.zeros(SHAPE, dtype=torch.float64)
    chosen = torch.from_numpy(source.choice(spectrum.numel(), count, replace=False))
    spectrum.view(-1)[chosen] = torch.from_numpy(source.standard_normal(count))
    return idct2(spectrum)


CHANGES = {
    "low rank": lambda: normal(SHAPE[0], 4) @ normal(4, SHAPE[1]),
    "cosines": lambda: scattered(400),
    "independent": lambda: normal(*SHAPE, seed=1),
}


def rounded(change, steps):
    """A change of this median in median steps of the weights, as it is stored, and its cells."""
    base = FORM.round(0.02 * normal(*SHAPE, seed=2))
    change = change * steps * FORM.steps(base).median() / change.abs().median()
    tuned = FORM.round(base + change)
    return change, (tuned - base).float(), rounding_cells(base, tuned, FORM)


def relative(matrix, change):
    return float((matrix.double() - change).square().sum() / change.square().sum())


def dense(family, point):
    """All entries of an approximation."""
    if isinstance(family, LowRankFamily):
        return point[0] @ point[1]
    spectrum = torch.zeros(SHAPE)
    spectrum.view(-1)[point[1]] = point[0]
    return idct2(spectrum)


FAMILIES = {"low rank": LowRankFamily(4), "cosines": CosineFamily(400, SHAPE)}


def started(family, change):
    """The best approximation; of low rank as exact as an adapter's."""
    if not isinstance(family, LowRankFamily):
        return family.best(change)
    svd = truncated_svd(change, family.rank)
    return svd.u * svd.s.sqrt(), svd.s.sqrt()[:, None] * svd.vh


@pytest.mark.parametrize("steps", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("form", FAMILIES)
def test_a_change_of_the_form_is_found_inside_its_cells(form, steps):
    change, d, cells = rounded(CHANGES[form](), steps)
    family = FAMILIES[form]
    start = started(family, d)
    before, copies = relative(dense(family, start), change), (d.clone(), cells.low.clone())
    choice = choose(family, d, cells, start)
    assert choice.steps == 40
    # 0.25 and fewer unknowns per changed entry: a twentieth in the median, a third at most.
    assert relative(dense(family, choice.point), change) < before / 3
    assert torch.equal(d, copies[0])
    assert torch.equal(cells.low, copies[1]), "held-out cells are restored"


@pytest.mark.parametrize("form", FAMILIES)
def test_of_another_change_the_best_approximation_stays(form):
    _, d, cells = rounded(CHANGES["independent"](), 1.0)
    family = FAMILIES[form]
    start = started(family, d)
    choice = choose(family, d, cells, start)
    assert choice.steps == 0
    assert all(part is other for part, other in zip(choice.point, start, strict=True))


@pytest.mark.parametrize("form", FAMILIES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_choice_is_that_of_dense_matrices(form, change):
    """Masks, whole increments, and every number of steps, whether it can win or not."""
    _, d, cells = rounded(CHANGES[change](), 0.3)
    family = FAMILIES[form]
    held = generator(0, "held-out cells").random(SHAPE, dtype=np.float32) < 0.05
    held = torch.from_numpy(held)
    rows, columns = held.nonzero(as_tuple=True)
    shown = RoundingCells(
        torch.where(held, -torch.inf, cells.low), torch.where(held, torch.inf, cells.high)
    )
    point = _best_of_shown(family, d, rows, columns)
    fine = held & (cells.high - cells.low <= 2 * d.square().mean().sqrt())
    distances, held_out = [], []
    for moved in [point, *family.path(point, shown, (1, 40))]:
        increment = dense(family, moved)
        gap = torch.relu(cells.low - increment) + torch.relu(increment - cells.high)
        distances.append(gap[held].double().square().numpy())
        held_out.append(float((increment - d)[fine].double().square().sum()))
    best = 0
    for index in (1, 2):
        better = distances[0] - distances[index]
        z = better.sum() / (better.std() * np.sqrt(len(better)))
        if z > 2 and held_out[index] < held_out[best]:
            best = index
    choice = choose(family, d, cells, started(family, d))
    assert choice.steps == (0, 1, 40)[best]
    expected = distances[best].mean() / float(d.double().square().mean())
    # Products of float32 in another order, of entries that almost touch their cells.
    assert choice.held_out == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_held_out_entries_have_no_influence():
    change, d, _ = rounded(CHANGES["low rank"](), 1.0)
    del change
    family, rows = FAMILIES["low rank"], torch.tensor([3, 50])
    other = d.clone()
    other[rows, rows] += 1.0
    points = [_best_of_shown(family, matrix, rows, rows) for matrix in (d, other)]
    assert all(torch.equal(part, same) for part, same in zip(*points, strict=True))
    filled = d.clone()
    filled[rows, rows] = family.at(points[0], rows, rows)
    # Filled in by what it predicts: a decomposition of it again is the same up to the passes.
    decomposed = family.best(filled)
    assert relative(dense(family, decomposed), dense(family, points[0]).double()) < 1e-4


def test_the_path_is_that_of_a_fit_and_its_entries_those_of_the_product():
    _, d, cells = rounded(CHANGES["low rank"](), 1.0)
    family = LowRankFamily(4)
    (point,) = family.path(family.best(d), cells, (1,))
    fit = fit_low_rank(d, cells, 4, steps=1)
    torch.testing.assert_close(point[0] @ point[1], fit.increment(), rtol=1e-4, atol=1e-9)
    rows, columns = torch.ones(SHAPE).nonzero(as_tuple=True)
    entries = family.at(point, rows, columns).reshape(SHAPE)
    torch.testing.assert_close(entries, point[0] @ point[1], rtol=1e-4, atol=1e-9)


def test_nothing_is_made_of_no_change():
    cells = RoundingCells(-torch.ones(SHAPE), torch.ones(SHAPE))
    for family in FAMILIES.values():
        zero = torch.zeros(SHAPE)
        choice = choose(family, zero, cells, family.best(zero))
        assert (choice.steps, choice.held_out) == (0, 0.0)
        assert not dense(family, choice.point).any()
