"""Sweeps on clusters: the same table as without, whoever dies."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import types

import distributed
import numpy as np
import pytest

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Backend, Cluster, Point, Runner, backends, generator

# Guards against hanging for ever, generous enough for any machine.
WAIT_S = 600


def make_compute(*, dies_at=None, trace=None):
    """Work that travels to workers by value; at one point it kills its worker, the first time."""

    def compute(point):
        i = point.parameters["i"]
        if i == dies_at and not trace.exists():
            trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        rng = generator(0, "test", i)
        return {"i": i, "values": np.linalg.svd(rng.normal(size=(9, 9)))[1].tolist()}

    return compute


def where(point):
    return {"thread": threading.current_thread().name}


POINTS = [Point("test", {"i": i}) for i in range(12)]


@pytest.fixture(scope="module")
def undisturbed():
    return Runner(jobs=1).run(POINTS, make_compute())


def test_a_sweep_on_a_cluster_gives_the_results_of_a_serial_one(undisturbed, store):
    """Over TCP, with a scheduler and a worker of dask as threads of this process."""
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
    ) as local:
        cluster = Cluster(Backend.DASK, local.scheduler_address)
        assert Runner(store, cluster=cluster).run(POINTS, make_compute()) == undisturbed
        # Short work runs there as well: nobody names a cluster for nothing.
        (alone,) = Runner(cluster=cluster).run(POINTS[:1], where)
        assert "Dask" in alone["thread"]
    assert [store.load(point) for point in POINTS] == undisturbed


# --- addresses ---


@pytest.fixture
def deaf(monkeypatch):
    """An address of this machine that refuses connections, as long as the test holds it."""
    monkeypatch.setattr(backends, "_TIMEOUT_S", 1)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("backend", "scheme"), [(Backend.DASK, "tcp://"), (Backend.RAY, "")], ids=["dask", "ray"]
)
def test_an_unreachable_scheduler_is_named(deaf, backend, scheme):
    nobody = Cluster(backend, scheme + deaf)
    with (
        pytest.raises(ResourceError, match=f"no {backend} scheduler answered at {scheme}{deaf}"),
        nobody.connected(1),
    ):
        pass


@pytest.mark.parametrize(
    ("cluster", "error", "message"),
    [
        (
            Cluster(Backend.RAY, "nowhere"),
            InvalidArgumentError,
            "is not an address of a ray scheduler",
        ),
        (Cluster(Backend.RAY, "localhost:99999"), ResourceError, "answered at localhost:99999"),
        (
            Cluster(Backend.DASK, "odd://x"),
            InvalidArgumentError,
            "is not an address of a dask scheduler",
        ),
    ],
    ids=["ray, no port", "ray, no such port", "dask, no such protocol"],
)
def test_what_is_no_address_is_found_at_once(cluster, error, message):
    with pytest.raises(error, match=message), cluster.connected(1):
        pass


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = pytest.raises(ResourceError, match=r"pip install 'loca-theory\[ray\]'")
    with missing, Cluster(Backend.RAY).connected(1):
        pass


def test_a_ray_cluster_on_which_joblib_would_not_compute_is_refused(monkeypatch):
    ended = []
    ray = types.SimpleNamespace(
        init=lambda **_: None,
        shutdown=lambda: ended.append(True),
        cluster_resources=lambda: {"CPU": 1.0},
    )
    monkeypatch.setattr(backends, "_installed", lambda *_: ray)
    monkeypatch.setattr(Cluster, "_probe", lambda *_: None)
    with (
        pytest.raises(ResourceError, match="Ray cluster at host:6379 has a single CPU"),
        Cluster(Backend.RAY, "host:6379").connected(1),
    ):
        pass
    assert ended


def test_a_scheduler_needs_a_backend_that_has_one():
    with pytest.raises(InvalidArgumentError, match=r'^scheduler="..." needs backend="dask"'):
        Cluster(Backend.LOKY, "tcp://127.0.0.1:9")
    with pytest.raises(InvalidArgumentError, match="'' is not an address of a dask scheduler"):
        Cluster(Backend.DASK, "")


# --- processes that die ---

deep = pytest.mark.deep
posix = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")


def start(*command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a scheduler of dask with two workers, in processes of their own."""
    folder = tmp_path_factory.mktemp("dask")
    file = str(folder / "scheduler.json")
    at = ("--host", "127.0.0.1", "--scheduler-file", file, "--no-dashboard")
    at += ("--dashboard-address", "127.0.0.1:0")
    module = "distributed.cli.dask_"
    scheduler = start(sys.executable, "-m", f"{module}scheduler", "--port", "0", *at)
    # Without a nanny a killed worker stays dead. All wait for the scheduler's file.
    options = ("--nthreads", "1", "--local-directory", str(folder), "--no-nanny")
    worker = (sys.executable, "-m", f"{module}worker", *at, *options)
    workers = [start(*worker) for _ in range(2)]
    try:
        with distributed.Client(scheduler_file=file, timeout=WAIT_S) as client:
            client.wait_for_workers(2, timeout=WAIT_S)
            address = client.scheduler.address
        yield address
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@deep
def test_workers_of_dask_on_this_machine_take_no_port_that_another_has(undisturbed):
    """Its web pages are at port 8787 by default; the test or somebody else holds that."""
    with socket.socket() as held:
        with contextlib.suppress(OSError):
            held.bind(("127.0.0.1", 8787))
            held.listen()
        assert (
            Runner(jobs=1, cluster=Cluster(Backend.DASK)).run(POINTS, make_compute()) == undisturbed
        )


@deep
@posix
def test_a_killed_worker_is_replaced_by_the_other(cluster, undisturbed, tmp_path):
    compute = make_compute(dies_at=5, trace=tmp_path / "trace")
    assert Runner(cluster=Cluster(Backend.DASK, cluster)).run(POINTS, compute) == undisturbed
    assert (tmp_path / "trace").exists()


# The command line, in a process that kills itself after so many results (-1: never).
COMMAND = """
import os, signal, sys
from loca_theory.cli import main
from loca_theory.sweeps import ResultStore

left, save = int(sys.argv.pop(1)), ResultStore.save

def counted(*arguments):
    global left
    save(*arguments)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

ResultStore.save = counted
main()
"""
SIMULATE = ("simulate", "--K", "200", "--r", "4,8", "--draws", "1500", "--methods", "R,F1",
            "--engine", "monte-carlo")  # fmt: skip
CORRELATE = ("correlate", "--K", "64", "--r", "4,8", "--draws", "600", "--structures", "spiked",
             "--fraction", "0..0.4..0.1", "--null-draws", "1000")  # fmt: skip
TABLES = {
    SIMULATE: ["simulate.parquet"],
    CORRELATE: [f"correlate-{name}.parquet" for name in ("rows", "crossings", "detection")],
}


def command(study, folder, *more, results=-1):
    """Exit status of a study that ends itself after so many new results."""
    given = [*study, "--quiet", "--out", folder, *more]
    line = [sys.executable, "-c", COMMAND, str(results), *map(str, given)]
    return subprocess.run(line, check=False, stdout=subprocess.DEVNULL, timeout=WAIT_S).returncode


def tables(study, folder):
    return [(folder / name).read_bytes() for name in TABLES[study]]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """Tables and number of stored results of each study without a cluster."""
    found = {}
    for study in TABLES:
        folder = tmp_path_factory.mktemp("serial")
        assert command(study, folder, "--jobs", 1) == 0
        found[study] = tables(study, folder), len(list((folder / "points").glob("*.json")))
    return found


@deep
@posix
@pytest.mark.parametrize(
    ("study", "kills"),
    [pytest.param(SIMULATE, 20, id="simulate"), pytest.param(CORRELATE, 5, id="correlate")],
)
def test_a_killed_driver_resumes(cluster, serial, tmp_path, study, kills):
    """Killed when so many results are there, from the first of the grid to the last of a search."""
    expected, count = serial[study]
    on_cluster = ("--backend", "dask", "--scheduler", cluster)
    stored = 0
    for until in sorted(random.Random(kills).sample(range(1, count), kills)):
        status = command(study, tmp_path, *on_cluster, results=until - stored)
        assert status == -signal.SIGKILL
        stored = len(list((tmp_path / "points").glob("*.json")))
        assert stored == until
    assert command(study, tmp_path, *on_cluster) == 0
    assert tables(study, tmp_path) == expected


@deep
def test_ray_gives_the_table_of_a_serial_run(serial, tmp_path):
    expected, _ = serial[CORRELATE]
    assert command(CORRELATE, tmp_path, "--backend", "ray", "--jobs", 2) == 0
    assert tables(CORRELATE, tmp_path) == expected
