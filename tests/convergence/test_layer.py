"""Thousands of problems at a time learn as the LoCA layer does on the samples of one."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import mse_loss

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, follow
from loca_theory.convergence import simulation
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import SAMPLES, ProblemFamily, draw, network
from loca_theory.convergence.state import Rates

from .cells import toy_cell

SEED, STEPS, MOVING = 11, 150, 75
# In all of these locations move, and no two components share one when they are frozen, where the
# layer alone would give one of them a location of its own. On the way they share one in all of the
# first of each rule.
NUMBERS = {"central": (4, 11), "forward": (13,), "backward": (13, 18), "eight-direction": (12,)}
CASES = [(rule, number) for rule, numbers in NUMBERS.items() for number in numbers]
ROUNDING = 1e-12
RATES = Rates(lr=0.02, location_lr=0.05)


def layer_run(rule, number):
    """Locations and coefficients at the start and after each step, and the losses."""
    w1, w3, x = (
        torch.from_numpy(m) for m in network(ProblemFamily(), Interpretation(), SEED, number)
    )
    batch = draw(
        ProblemFamily(), Interpretation(), SEED, range(number, number + 1), samples=SAMPLES
    )

    def spectrum(indices, schedule=None):
        options = {"location_search": rule, "location_lr": RATES.location_lr}
        layer = CosineSpectrum((6, 6), 3, schedule=schedule, **options).double()
        layer.set_indices(torch.stack([indices // 6, indices % 6], dim=1))
        return layer

    truth = spectrum(batch.indices[0])
    learned = spectrum(batch.start[0], AlternatingSchedule(10, 10, MOVING))
    with torch.no_grad():
        truth.coefficients.copy_(batch.coefficients[0])
    inputs = (w1 @ x).T
    with torch.no_grad():
        labels = inputs @ truth.increment().T @ w3.T
    optimizer = torch.optim.SGD(learned.parameters(), RATES.lr)
    follow(learned, optimizer)
    indices, coefficients, losses = [], [], []
    for step in range(STEPS + 1):
        loss = mse_loss(learned(inputs) @ w3.T, labels)
        indices.append(learned.indices.tolist())
        coefficients.append(learned.coefficients.tolist())
        losses.append(float(loss.detach()))
        if step < STEPS:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return indices, coefficients, losses


@pytest.mark.parametrize(("rule", "number"), CASES, ids=str)
def test_every_step_is_that_of_the_layer(rule, number):
    indices, coefficients, losses = layer_run(rule, number)
    cell = toy_cell(rule, STEPS, SEED, (number, number + 1), rates=RATES, is_traced=True)
    trace = simulation.evaluate_trace(cell)
    assert trace["steps"] == list(range(STEPS + 1))
    # The layer keeps locations as distances. They matter by their rounding alone: the locations are
    # the same ones unless a location comes within 1e-6 of the middle between two, and with the same
    # locations all the rest is the same float64 arithmetic in another order.
    assert [[entry[:2] for entry in entries] for entries in trace["components"]] == indices
    ours = torch.tensor(
        [[entry[2] for entry in entries] for entries in trace["components"]], dtype=torch.float64
    )
    theirs = torch.tensor(coefficients, dtype=torch.float64)
    # Coefficients are about 0.4; sums over 5000 samples lose two or three digits.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=ROUNDING)
    relative = torch.tensor(losses, dtype=torch.float64) / losses[0]
    ours = torch.tensor(trace["losses"], dtype=torch.float64)
    torch.testing.assert_close(ours, relative, rtol=ROUNDING, atol=0)
    moved = [before != after for before, after in pairwise(indices)]
    assert sum(moved) >= 3
    assert not any(moved[MOVING:])
    fractions = any(
        len({tuple(index) for index in indices_of_step}) < 3 for indices_of_step in indices
    )
    assert fractions or number != NUMBERS[rule][0]
