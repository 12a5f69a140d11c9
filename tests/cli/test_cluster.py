"""The options --backend and --scheduler: the same table as without, whoever dies."""

import os
import random
import signal
import socket
import subprocess
import sys

import distributed
import pytest

from loca_theory.cli import cluster as module
from loca_theory.errors import InvalidArgumentError, ResourceError

# Guards against hanging for ever, generous enough for any machine.
WAIT_S = 600


def enter(backend, scheduler=None):
    with module.cluster(backend, scheduler, 1):
        pytest.fail("there is no such cluster")


@pytest.mark.parametrize(
    ("backend", "scheme"), [("dask", "tcp://"), ("ray", "")], ids=["dask", "ray"]
)
def test_an_unreachable_scheduler_is_named(monkeypatch, backend, scheme):
    """An address of this machine that refuses connections, as long as the test holds it."""
    monkeypatch.setattr(module, "_TIMEOUT_S", 1)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(
            ResourceError, match=f"no {backend} scheduler with workers answered at {address}"
        ):
            enter(backend, address)


@pytest.mark.parametrize(
    ("backend", "scheduler", "error", "message"),
    [
        ("ray", "nowhere", InvalidArgumentError, "'nowhere' is not an address of a ray scheduler"),
        ("ray", "localhost:99999", ResourceError, "answered at localhost:99999"),
        ("dask", "odd://x", InvalidArgumentError, "is not an address of a dask scheduler; write t"),
        ("dask", "", InvalidArgumentError, "'' is not an address of a dask scheduler"),
        ("loky", "tcp://127.0.0.1:9", InvalidArgumentError, r'^scheduler="..." needs backend="da'),
    ],
    ids=["ray, no port", "ray, no such port", "dask, no such protocol", "empty", "no cluster"],
)
def test_what_is_no_address_is_found_at_once(backend, scheduler, error, message):
    with pytest.raises(error, match=message):
        enter(backend, scheduler)


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ResourceError, match=r"pip install 'loca-theory\[ray\]'"):
        enter("ray")


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
SIMULATE = ("simulate", "--K", "64", "--r", "4,8", "--draws", "1500", "--methods", "R,F1",
            "--engine", "monte-carlo")  # fmt: skip
CORRELATE = ("correlate", "--K", "24", "--r", "2,4", "--draws", "200", "--structures", "spiked",
             "--fraction", "0..0.4..0.1")  # fmt: skip


def command(study, folder, *more, results=-1):
    """Exit status of a study that ends itself after so many new results."""
    given = [*study, "--quiet", "--out", folder, *more]
    line = [sys.executable, "-c", COMMAND, str(results), *map(str, given)]
    return subprocess.run(line, check=False, stdout=subprocess.DEVNULL, timeout=WAIT_S).returncode


def table(study, folder):
    return (folder / f"{study[0]}.parquet").read_bytes()


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """Tables and number of stored results of each study without a cluster."""
    found = {}
    for study in (SIMULATE, CORRELATE):
        folder = tmp_path_factory.mktemp("serial")
        assert command(study, folder, "--jobs", 1) == 0
        found[study] = table(study, folder), len(list((folder / "points").glob("*.json")))
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
    assert table(study, tmp_path) == expected


@deep
def test_ray_gives_the_table_of_a_serial_run(serial, tmp_path):
    expected, _ = serial[CORRELATE]
    assert command(CORRELATE, tmp_path, "--backend", "ray", "--jobs", 2) == 0
    assert table(CORRELATE, tmp_path) == expected
