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
from loca_theory.sweeps import Backend, Cluster, Point, backends, run

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


def test_a_single_short_point_runs_there_as_well(cluster):
    address, workers = cluster

    def where(point):
        import os

        return {"pid": os.getpid()}

    (result,) = run([Point("test", {})], where, cluster=Cluster(Backend.DASK, address))
    assert result["pid"] in [worker.pid for worker in workers]


CORRELATE = [*RUN[:-1], "correlate", "--K", "64", "--r", "4,8", "--draws", "600", "--structures",
             "spiked", "--share", "0..0.4..0.1", "--null-draws", "1000", "--quiet"]  # fmt: skip
TABLES = [f"correlate-{name}.parquet" for name in ("rows", "crossings", "detection")]


@pytest.fixture(scope="module")
def undisturbed_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    subprocess.run([*CORRELATE, "--jobs", "1", "--out", folder], check=True, capture_output=True)
    return [(folder / name).read_bytes() for name in TABLES]


KILLS = pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, id="3 kills"),
        pytest.param(20, id="20 kills", marks=pytest.mark.deep),
    ],
)


def killed_and_resumed(command, folder, kills):
    """Run a command to its end after killing it so many times in mid-sweep.

    Each time it is given until it has added a result, and then a random moment.
    """
    moments = random.Random(kills)
    points = folder / "points"
    partial = 0
    for _ in range(kills):
        before = len(list(points.glob("*.json")))
        driver = start(*command)
        deadline = time.monotonic() + 60
        while (
            driver.poll() is None
            and time.monotonic() < deadline
            and len(list(points.glob("*.json"))) == before
        ):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        partial += driver.poll() is None
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    subprocess.run(command, check=True, capture_output=True)
    return partial


@KILLS
def test_a_killed_driver_resumes(cluster, undisturbed, tmp_path, kills):
    address, _ = cluster
    command = [*RUN, *GRID, "--backend", "dask", "--scheduler", address, "--out", tmp_path]
    assert killed_and_resumed(command, tmp_path, kills) > 0
    assert (tmp_path / "simulate.parquet").read_bytes() == undisturbed


@KILLS
def test_a_killed_study_resumes_its_search_as_well(cluster, undisturbed_study, tmp_path, kills):
    address, _ = cluster
    command = [*CORRELATE, "--backend", "dask", "--scheduler", address, "--out", tmp_path]
    assert killed_and_resumed(command, tmp_path, kills) > 0
    assert [(tmp_path / name).read_bytes() for name in TABLES] == undisturbed_study


@pytest.mark.deep
def test_ray_gives_the_table_of_a_serial_run(undisturbed_study, tmp_path):
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    command = [*CORRELATE, "--backend", "ray", "--jobs", "2", "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    assert [(tmp_path / name).read_bytes() for name in TABLES] == undisturbed_study


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


@pytest.mark.parametrize(
    ("cluster_at", "error", "message"),
    [
        (Cluster(Backend.RAY, "127.0.0.1:9"), ResourceError, r"answered at 127\.0\.0\.1:9"),
        (Cluster(Backend.RAY, "nowhere"), InvalidArgumentError, "no address of a ray scheduler"),
        (Cluster(Backend.DASK, "odd://x"), InvalidArgumentError, "no address of a dask scheduler"),
    ],
    ids=["ray, nobody there", "ray, no address", "dask, no address"],
)
def test_a_wrong_address_is_found_at_once(monkeypatch, cluster_at, error, message):
    monkeypatch.setattr(backends, "_TIMEOUT_S", 1)
    monkeypatch.setattr(backends, "_installed", lambda module, _: pytest.importorskip(module))
    with pytest.raises(error, match=message), cluster_at.connected(1):
        pass


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = pytest.raises(ResourceError, match=r"pip install 'loca-theory\[ray\]'")
    with missing, Cluster(Backend.RAY).connected(1):
        pass


def test_a_scheduler_needs_a_backend_that_has_one():
    with pytest.raises(InvalidArgumentError, match="needs --backend dask"):
        Cluster(Backend.LOKY, "tcp://127.0.0.1:9")
    with pytest.raises(InvalidArgumentError, match="'' is no address of a dask scheduler"):
        Cluster(Backend.DASK, "")
