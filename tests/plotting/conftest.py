"""Small simulations, whose tables the figures are drawn from."""

from functools import cache

import pytest

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.simulation import Simulation, squares
from loca_theory.sweeps import Runner

LIMIT, DRAWN = Engine.ASYMPTOTIC, Engine.MONTE_CARLO


def methods(*names):
    return find_methods(names)


SIMULATIONS = {
    "sizes": Simulation(
        squares((16, 24, 32, 48)), (2, 3), methods("LoRA", "printed line", "LoCA"), draws=6
    ),
    "three ranks": Simulation(
        squares((16, 24, 32, 48)), (2, 3, 4), methods("LoRA", "LoCA"), draws=6
    ),
    "one shape": Simulation(squares((48,)), (1, 2, 3, 4), methods("DoRA", "LoCA"), draws=6),
    "one point": Simulation(squares((64,)), (2,), methods("LoRA", "LoCA"), draws=6),
    "rectangles": Simulation(
        ((16, 48), (48, 16), (20, 20)),
        (1, 2),
        methods("LoRA", "Fourier pairs"),
        tuple(Engine),
        draws=4,
    ),
    "limits alone": Simulation(
        squares((64,)), (1, 2), methods("LoRA", "Fourier", "LoCA", "entries"), (LIMIT,)
    ),
    "one draw": Simulation(
        squares((16,)), (1, 2), methods("LoCA", "random Fourier"), (DRAWN,), draws=1
    ),
    "every method": Simulation(squares((16,)), (2, 4), tuple(METHODS.values()), draws=3),
}


@pytest.fixture(scope="session")
def tables():
    """The table of each simulation, computed once."""
    return cache(lambda name: SIMULATIONS[name].run(Runner(jobs=1)).to_frame())
