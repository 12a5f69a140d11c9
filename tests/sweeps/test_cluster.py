"""Sweeps on a dask cluster of separate processes over TCP: the same table, whatever dies."""

import random
import signal
import socket
import subprocess
import sys
import time

import pandas as pd
import pytest

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Backend, Cluster, backends

pytest.importorskip("distributed", reason="needs the extra 'dask'")

RUN = [sys.executable, "-c", "from loca_theory.cli import main; main()", "simulate"]
GRID = ["--K", "200", "--r", "4,8", "--draws", "1500", "--curves", "R,F1", "--quiet"]


def start(*command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers on the loopback interface; (address, workers)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    folder = tmp_path_factory.mktemp("dask")
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler = start(*dask, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    options = ("--nthreads", "1", "--no-dashboard", "--local-directory", str(folder))
    # Without a nanny a killed worker stays dead.
    workers = [start(*worker, *options, "--no-nanny") for _ in range(2)]
    try:
        wait_for_workers(address, 2)
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def wait_for_workers(address, count):
    import distributed

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with distributed.Client(address, timeout=5) as client:
                client.wait_for_workers(count, timeout=30)
                return
        except OSError:
            time.sleep(0.3)
    pytest.fail("the dask cluster did not start")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    subprocess.run([*RUN, *GRID, "--jobs", "1", "--out", folder], check=True, capture_output=True)
    return (folder / "simulate.parquet").read_bytes()


def test_the_table_is_that_of_a_serial_run(cluster, undisturbed, tmp_path):
    address, _ = cluster
    on_cluster = ["--backend", "dask", "--scheduler", address, "--out", tmp_path]
    subprocess.run([*RUN, *GRID, *on_cluster], check=True, capture_output=True)
    assert (tmp_path / "simulate.parquet").read_bytes() == undisturbed


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, id="3 kills"),
        pytest.param(20, id="20 kills", marks=pytest.mark.deep),
    ],
)
def test_a_killed_driver_resumes(cluster, undisturbed, tmp_path, kills):
    address, _ = cluster
    command = [*RUN, *GRID, "--backend", "dask", "--scheduler", address, "--out", tmp_path]
    moments = random.Random(kills)
    for _ in range(kills):
        driver = start(*command)
        time.sleep(moments.uniform(0.5, 4.0))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "simulate.parquet").read_bytes() == undisturbed


def test_a_killed_worker_is_replaced_by_the_other(cluster, undisturbed, tmp_path):
    address, workers = cluster
    command = [*RUN, *GRID, "--backend", "dask", "--scheduler", address, "--out", tmp_path]
    driver = start(*command)
    points = tmp_path / "points"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(points.glob("*.json"))) < 3:
        time.sleep(0.02)
    workers[0].send_signal(signal.SIGKILL)
    assert driver.wait(timeout=120) == 0
    assert (tmp_path / "simulate.parquet").read_bytes() == undisturbed
    assert len(pd.read_parquet(tmp_path / "simulate.parquet")) > 0


def test_an_unreachable_scheduler_is_named(monkeypatch):
    monkeypatch.setattr(backends, "_TIMEOUT_S", 1)
    nobody = Cluster(Backend.DASK, "tcp://127.0.0.1:9")
    with (
        pytest.raises(ResourceError, match=r"answered at tcp://127\.0\.0\.1:9"),
        nobody.connected(1),
    ):
        pass


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = pytest.raises(ResourceError, match=r"pip install 'loca-theory\[ray\]'")
    with missing, Cluster(Backend.RAY).connected(1):
        pass


def test_a_scheduler_needs_a_backend_that_has_one():
    with pytest.raises(InvalidArgumentError, match="needs --backend dask"):
        Cluster(Backend.LOKY, "tcp://127.0.0.1:9")
