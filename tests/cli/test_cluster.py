"""The options --backend and --scheduler: the same table as without, whoever dies."""

import os
import socket
import sys

import distributed
import pytest

from loca_theory.cli import cluster as module
from loca_theory.errors import InvalidArgumentError, ResourceError

from .test_surroundings import assert_finished, results


def enter(backend, scheduler=None):
    with module.cluster(1, backend, scheduler):
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


# --- a cluster of this machine ---

STUDY = (
    "correlate",
    "--K",
    "24",
    "--r",
    "2,4",
    "--draws",
    "100",
    "--structures",
    "spiked",
    "--fraction",
    "0..0.4..0.1",
    "--quiet",
)
DASK = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}


@pytest.fixture
def serial(cli):
    """The study without a cluster."""
    assert cli(*STUDY, "--jobs", 1, "--out", "undisturbed").code == 0


@pytest.mark.deep
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_a_driver_that_is_killed_resumes(serial, cwd, killed):
    with distributed.LocalCluster(**DASK, scheduler_kwargs={"dashboard": False}) as cluster:
        at = ("--backend", "dask", "--scheduler", cluster.scheduler_address)
        kills = [(number, "again") for number in (3, 9, 25, 60)]
        outcome = killed([*kills, (0, "again")], *STUDY, *at)
    assert_finished(cwd, "again", outcome, minimum=3)


@pytest.mark.deep
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_workers_started_for_it_give_the_table_of_a_serial_run(serial, cwd, process, backend):
    done = process(*STUDY, "--backend", backend, "--jobs", 2, "--out", "cluster")
    assert done.code == 0, done.err
    assert results(cwd / "cluster") == results(cwd / "undisturbed")
