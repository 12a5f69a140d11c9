"""Of every study: workers change nothing, a stored run continues, damage is computed again."""

import pytest

import loca_theory as loca
from loca_theory.checkpoints import demo_pair
from loca_theory.checkpoints.change import task
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.sweeps import ResultStore, Runner, workers

ALONE = Runner(jobs=1)
STUDIES = {
    "simulate": lambda runner: loca.simulate(
        12, ranks=[1, 2], methods=["LoCA", "LoRA", "DoRA"], draws=30, engine="all", runner=runner
    ),
    "correlate": lambda runner: loca.correlate(
        12,
        ranks=1,
        structures=["ar1", "spiked"],
        rho=[0, 0.2],
        fraction=[0, 0.3],
        draws=30,
        detect=True,
        null_draws=400,
        runner=runner,
    ),
    "toy": lambda runner: loca.toy(
        ["swap", "jitter"], sizes=[2, 3], components=2, problems=4, steps=20, runner=runner
    ),
    "theorem1": lambda runner: Ordering((7, 8, 9)).run(runner),
    "verify": lambda runner: loca.verify(
        ["parseval.", "dora.expectation"], tier="quick", runner=runner
    ),
    "analyze": lambda runner: loca.analyze(
        *demo_pair(), include="attention", ranks=2, device="cpu", runner=runner
    ),
    "extract": lambda runner: loca.extract(
        *demo_pair(), "lora", allocate=2000, include="attention", device="cpu", runner=runner
    ),
}
each_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)


def tables(result):
    """The tables of a study without durations and dates, which differ between runs."""
    tables_of_study = {name: rows for name, rows in result.to_json().items() if name != "manifest"}
    for row in tables_of_study.get("claims", ()):
        del row["seconds"]
    return tables_of_study


@pytest.fixture(scope="module")
def alone():
    return {name: tables(study(ALONE)) for name, study in STUDIES.items()}


@pytest.fixture
def expected(request, alone, study):
    return alone[request.node.callspec.id]


@each_study
def test_workers_change_nothing(monkeypatch, study, expected):
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)
    monkeypatch.setattr(task, "_SMALL", 0)
    assert tables(study(Runner(jobs=2))) == expected


@each_study
def test_an_interrupted_run_continues_and_damage_is_computed_again(tmp_path, study, expected):
    def interrupt(done, total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(loca.LocaTheoryError, match=r"^interrupted: 1 of"):
        study(Runner(tmp_path, 1, interrupt))
    (first,) = tmp_path.iterdir()
    written = first.stat().st_mtime_ns
    assert tables(study(Runner(tmp_path, 1))) == expected
    assert first.stat().st_mtime_ns == written
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    first.write_bytes(files[first][:-40])
    store = ResultStore(tmp_path)
    assert tables(study(Runner(store, 1))) == expected
    assert [line.split()[0] for line in store.rejected] == [first.name]
    assert {path for path in tmp_path.iterdir() if path.read_bytes() != files[path]} <= {first}
