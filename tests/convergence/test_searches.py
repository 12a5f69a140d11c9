"""Each search: how it moves, against loops, and what a problem depends on."""

import numpy as np
import pytest
import torch

from loca_theory.convergence import simulation
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import ProblemFamily, draw
from loca_theory.convergence.searches import SEARCHES, find_search
from loca_theory.convergence.state import Rates, State

from .cells import toy_cell

SEED = 7
STOCHASTIC = ("jitter", "annealed-pursuit")


def no_noise(count):
    message = "no randomness was asked for"
    raise AssertionError(message)


def begin(search, interpretation=None, rates=None, noise=no_noise, family=None, problems=4):
    interpretation = interpretation or Interpretation()
    batch = draw(family or ProblemFamily(), interpretation, SEED, range(problems), samples=40)
    state = State(batch, interpretation, rates or Rates())
    return state, find_search(search).make(state, noise)


def learn(state, steps=200):
    for _ in range(steps):
        state.descend()


# --- locations by gradient, against a loop over one component at a time ---


class Follower:
    """Central differences with clamped neighbours, one number after the other."""

    def __init__(self, state, momentum=0.0, jitter=0.0, reach=0.0):
        self.state, self.momentum, self.jitter, self.reach = state, momentum, jitter, reach
        size = state.problems.size
        self.u = [
            [[index // size / (size - 1), index % size / (size - 1)] for index in indices]
            for indices in state.indices.tolist()
        ]
        self.velocity = [[[0.0, 0.0] for _ in locations] for locations in self.u]

    def move(self, progress, noise=None):
        size = self.state.problems.size
        z = self.state.gradient().view(-1, size, size).tolist()
        distance = max(1, min((size - 1) // 2, round(self.reach * size * (1 - progress))))
        new = []
        for n, indices in enumerate(self.state.indices.tolist()):
            new.append([])
            for k, index in enumerate(indices):
                at = divmod(index, size)
                for axis in range(2):
                    ends = []
                    for sign in (1, -1):
                        beside = list(at)
                        beside[axis] = min(max(at[axis] + sign * distance, 0), size - 1)
                        ends.append(z[n][beside[0]][beside[1]])
                    slope = float(self.state.coefficients[n, k]) * (ends[0] - ends[1]) / 2
                    v = self.momentum * self.velocity[n][k][axis] + slope / distance * (size - 1)
                    self.velocity[n][k][axis] = v
                    update = -self.state.rates.location_lr * v
                    if noise is not None:
                        update += self.jitter * (1 - progress) / (size - 1) * noise[n][k][axis]
                    self.u[n][k][axis] = min(max(self.u[n][k][axis] + update, 0.0), 1.0)
                row, column = (round(u * (size - 1)) for u in self.u[n][k])
                new[n].append(row * size + column)
        return new


@pytest.mark.parametrize(
    ("search", "options"),
    [("central", {}), ("momentum", {"momentum": 0.9}), ("shrinking", {"reach": 0.5})],
    ids=["central", "momentum", "shrinking"],
)
@pytest.mark.parametrize("size", [6, 9], ids="K={}".format)
def test_locations_descend_as_in_a_loop(search, options, size):
    state, running = begin(search, family=ProblemFamily(size, 4), problems=6)
    follower = Follower(state, **options)
    changed = 0
    for step in range(120):
        if running.moves_at(step):
            before = state.indices.tolist()
            expected = follower.move(step / 120)
            running.move(step / 120)
            assert state.indices.tolist() == expected
            changed += before != expected
        else:
            state.descend()
    assert changed >= 10


def test_jitter_is_laplace_noise_in_locations_that_fades():
    drawn = np.random.default_rng(0).standard_exponential((4, 2 * 3 * 2 * 12))
    calls = iter(torch.from_numpy(drawn).view(4, 12, -1).unbind(1))
    state, running = begin("jitter", noise=lambda count: next(calls)[:, :count])
    pairs = drawn.reshape(4, 12, 2, 3, 2)
    noise = (pairs[:, :, 0] - pairs[:, :, 1]).swapaxes(0, 1)
    follower = Follower(state, jitter=1.0)
    moved = 0
    for step in range(12):
        before = state.indices.tolist()
        expected = follower.move(step / 12, noise[step])
        running.move(step / 12)
        assert state.indices.tolist() == expected
        moved += before != expected
    # Without coefficients there is nothing else to move them.
    assert moved >= 6


# --- prune-and-regrow searches ---


def test_a_swap_is_the_best_regrowth_by_gain_and_loss():
    state, running = begin("swap", problems=20)
    learn(state)
    before, a = state.indices.clone(), state.coefficients.clone()
    z, h = state.gradient(), state.curvature
    running.move(0.0)
    moved = 0
    for n in range(20):
        indices = before[n].tolist()
        cost = [float(a[n, k] ** 2 * h[n, index]) for k, index in enumerate(indices)]
        decrease = z[n] ** 2 / h[n]
        predicted_decrease = [-1.0 if p in indices else float(decrease[p]) for p in range(36)]
        expected = list(indices)
        if max(predicted_decrease) > min(cost):
            expected[int(np.argmin(cost))] = int(np.argmax(predicted_decrease))
        assert state.indices[n].tolist() == expected
        stays = state.indices[n] == before[n]
        # What has moved starts from zero, the others go on.
        assert torch.equal(state.coefficients[n], a[n].where(stays, 0.0))
        moved += not stays.all()
    assert 0 < moved <= 20


def test_annealing_puts_fading_noise_on_the_logarithm_of_each_gain():
    noise = torch.rand(4, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    state, running = begin("annealed-pursuit", noise=lambda count: noise[:, :count])
    learn(state)
    before, a = state.indices.clone(), state.coefficients.clone()
    without_first = a.clone()
    without_first[:, 0] = 0.0
    z = state.gradient(without_first)
    running.move(0.5)
    for n in range(4):
        score = 2 * z[n].abs().log() - state.curvature[n].log() - 0.15 * noise[n].log()
        score[before[n, 1:]] = -np.inf
        assert int(state.indices[n, 0]) == int(score.argmax())


# --- orthogonal matching pursuit ---


@pytest.mark.parametrize("condition", [None, 1.0], ids=["gaussian", "orthogonal"])
@pytest.mark.parametrize("interpretation", ["add", "overwrite"])
def test_pursuit_takes_the_location_of_the_least_loss_and_solves(interpretation, condition):
    """By trying every location; no two components share one, so that collisions do not count."""
    problems = 60
    family, collisions = ProblemFamily(5, 3, condition), Interpretation(collisions=interpretation)
    state, running = begin("pursuit", collisions, family=family, problems=problems)
    truth = torch.zeros(problems, 25, dtype=torch.float64)
    truth.scatter_(1, state.problems.indices, state.problems.coefficients)
    chosen = [[] for _ in range(problems)]
    for step in range(3):
        running.move(0.0)
        for n in range(problems):
            hessian = torch.kron(state.problems.rows[n], state.problems.columns[n])
            f = torch.zeros(25, dtype=torch.float64)
            if chosen[n]:
                square = hessian[chosen[n]][:, chosen[n]]
                f[chosen[n]] = torch.linalg.solve(square, (hessian @ truth[n])[chosen[n]])
            predicted_decrease = (hessian @ (f - truth[n])) ** 2 / hessian.diagonal()
            predicted_decrease[chosen[n]] = -1.0
            chosen[n].append(int(predicted_decrease.argmax()))
            assert state.indices[n].flip(0)[: step + 1].tolist() == chosen[n]
    for n in range(problems):
        # The best coefficients leave no gradient.
        scale = float(state.gradient(torch.zeros_like(state.coefficients))[n].norm())
        assert float(state.gradient()[n, chosen[n]].norm()) <= 1e-10 * scale


# --- what a problem's way depends on ---


@pytest.mark.parametrize("search", SEARCHES)
def test_a_problem_is_the_same_in_a_run_of_more(search):
    """To rounding: a library may multiply many matrices in another order than one."""

    def run(first, end):
        return simulation.evaluate(toy_cell(search, 240, SEED, (first, end)))

    outcomes = run(0, simulation.block(6))
    for first, end in ((0, 30), (17, 18)):
        subset = run(first, end)
        losses = zip(subset.pop("loss"), outcomes["loss"][first:end], strict=True)
        # 240 steps that contract, each off by some 100 u; losses are relative to that of nothing.
        assert all(ours == pytest.approx(other, rel=1e-10, abs=1e-20) for ours, other in losses)
        assert subset == {name: outcomes[name][first:end] for name in subset}


@pytest.mark.parametrize("search", STOCHASTIC)
def test_noise_differs_between_blocks_and_seeds(search):
    def noise(seed, first):
        return simulation._noise(toy_cell(search, 10, seed, (first, first + 5)))(8)

    assert torch.equal(noise(1, 0), noise(1, 0))
    for other in (noise(1, 500), noise(2, 0), noise(1, 5)):
        assert not torch.isclose(noise(1, 0), other).any()
    assert noise(1, 0).shape == (5, 8)
