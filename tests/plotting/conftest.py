"""Small simulations, as tables read back from disk: what every figure is drawn from."""

import pytest

from loca_theory.expressivity import DEFAULT_NAMES, METHODS, Engine, Simulation, squares
from loca_theory.sweeps import Runner, load_rows, store_rows

EXACT, LIMIT, DRAWN = Engine.EXACT, Engine.ASYMPTOTIC, Engine.MONTE_CARLO
SIMULATIONS = {
    "sizes": Simulation(squares((16, 24, 32, 48)), (2, 3), ("R", "U", "D"), draws=6),
    "ranks": Simulation(squares((32, 64)), (1, 2, 3), ("R", "M1", "M2", "D"), draws=6),
    "one shape": Simulation(squares((48,)), (1, 2, 3, 4), ("R", "D"), draws=6),
    "one point": Simulation(squares((64,)), (2,), ("R", "D"), draws=6),
    "one exact point": Simulation(squares((16,)), (1,), ("D",), (EXACT,)),
    "rectangles": Simulation(((16, 48), (48, 16), (20, 20)), (1, 2), ("R", "F2"), draws=6),
    "one rectangle": Simulation(((8, 24),), (1, 2, 3), ("D", "R"), (EXACT,)),
    "exact alone": Simulation(squares((64,)), (1, 2), DEFAULT_NAMES, (EXACT,)),
    "limits alone": Simulation(squares((64,)), (1, 2), DEFAULT_NAMES, (LIMIT,)),
    "draws alone": Simulation(squares((16,)), (1, 2), ("D", "F3", "S"), (DRAWN,), draws=6),
    "one draw": Simulation(squares((16,)), (1, 2), ("D", "F1"), (DRAWN,), draws=1),
    "every method": Simulation(squares((16,)), (1, 2), tuple(METHODS), draws=3),
    "every engine": Simulation(squares((24, 48)), (1, 2), ("R", "D"), tuple(Engine), draws=4),
}


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """The stored table of each simulation, computed once."""
    folder = tmp_path_factory.mktemp("tables")
    known = {}

    def table(name):
        if name not in known:
            store_rows(SIMULATIONS[name].run(Runner(jobs=1)), {}, folder, name.replace(" ", "_"))
            known[name], _ = load_rows(folder, name.replace(" ", "_"))
        return known[name].copy()

    return table
