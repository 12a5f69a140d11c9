"""The same results from any number of workers, in any order, after any interruption."""

import io
import os
import signal
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import distributed
import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from rich.console import Console
from threadpoolctl import threadpool_info, threadpool_limits

from loca_theory import ResourceError
from loca_theory.sweeps import Runner, generator, runner, threads, workers
from loca_theory.sweeps.progress import LogLines, progress_bar
from loca_theory.sweeps.runner import SweepInterruptedError
from loca_theory.sweeps.store import Point, ResultStore

# Only a test that hangs waits this long.
HANGS_S = 600
posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def make_compute(*, fails_at=None, error=None):
    """Work whose last bits depend on the number of threads, as that of the package does.

    A function made inside another travels to workers by value; they need not find this file.
    """

    def compute(point):
        i = point.parameters["i"]
        if i == fails_at:
            raise error
        rng = generator(0, "test", i)
        matrix = rng.normal(size=(96, 96))
        values = np.linalg.svd(matrix @ matrix.T, compute_uv=False)
        return {"i": i, "values": values[:4].tolist()}

    return compute


def make_points(count=8):
    return [Point("test", {"i": i}) for i in range(count)]


@pytest.fixture
def at_once(monkeypatch):
    """Workers take over after the first point, however short the work is."""
    monkeypatch.setattr(workers, "_WORKER_START_S", 0.0)


@pytest.fixture(scope="module")
def undisturbed():
    """What every run below has to yield, to the bit."""
    return Runner(jobs=1).run(make_points(), make_compute())


@pytest.mark.parametrize("jobs", [2, -1])
def test_results_do_not_depend_on_the_number_of_workers(at_once, undisturbed, jobs):
    assert Runner(jobs=jobs).run(make_points(), make_compute()) == undisturbed


def test_long_points_are_not_computed_here_while_workers_could():
    def where(point):
        return {"process": os.getpid(), "i": point.parameters["i"]}

    results = Runner(jobs=2).run(make_points(4), where, is_long=True)
    assert [result["i"] for result in results] == [0, 1, 2, 3]
    assert os.getpid() not in {result["process"] for result in results}
    for parallel, count in ((Runner(jobs=1), 4), (Runner(jobs=2), 1)):
        results = parallel.run(make_points(count), where, is_long=True)
        assert {result["process"] for result in results} == {os.getpid()}


@pytest.mark.parametrize(
    ("seconds", "jobs", "warm", "left"),
    [
        # Of 8 points 7 are left after the first, and n workers save 1 − 1/n of their time.
        pytest.param(0.42, 2, False, 0, id="saves 1.47 s"),
        pytest.param(0.44, 2, False, 7, id="saves 1.54 s"),
        pytest.param(0.29, 4, False, 7, id="four workers save 1.52 s"),
        pytest.param(9.0, 1, False, 0, id="one worker saves nothing"),
        pytest.param(0.014, 2, True, 0, id="saves 0.049 s"),
        pytest.param(0.015, 2, True, 7, id="saves 0.053 s"),
    ],
)
def test_workers_take_over_where_they_save_more_than_their_start(
    monkeypatch, seconds, jobs, warm, left
):
    """Workers start in 1.5 s, those of an earlier sweep in 0.05 s; the clock is the test's own."""
    now = [100.0]
    clock = types.SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    for module in (runner, workers):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(workers, "_workers_ended", 90.0 if warm else -100.0)
    monkeypatch.setattr(joblib, "effective_n_jobs", lambda jobs: jobs)
    on_workers = {}

    def here(point):
        now[0] += seconds
        return point.parameters

    def there(cells, evaluate, jobs):
        on_workers.update(cells)
        yield from ((index, cell.parameters) for index, cell in cells.items())

    monkeypatch.setattr(runner, "on_workers", there)
    results = Runner(jobs=jobs).run(make_points(), here)
    assert [result["i"] for result in results] == list(range(8))
    assert list(on_workers) == list(range(8 - left, 8))


@pytest.mark.parametrize("progress", [True, False, None])
def test_a_terminal_shows_progress_unless_it_is_off(monkeypatch, capfd, progress):
    assert Runner().progress is True
    Runner(jobs=1).run(make_points(), make_compute())
    assert capfd.readouterr().err == "", "not a terminal"
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    Runner(jobs=1, progress=progress).run(make_points(), make_compute())
    assert ("8 of 8" in capfd.readouterr().err) == bool(progress)


def test_a_log_file_gets_a_line_a_minute():
    seconds, text = iter([0, 10, 59, 60, 119, 121, 180]), io.StringIO()
    lines = LogLines("checking", "claims", Console(file=text), clock=lambda: next(seconds))
    for done in (1, 2, 300, 301, 900, 1200):
        lines(done, 1200)
    assert text.getvalue().splitlines() == [
        "checking: 300 of 1,200 claims in 1 minute, about 3 minutes left",
        "checking: 900 of 1,200 claims in 2 minutes, about 1 minute left",
    ]
    assert isinstance(progress_bar("checking", "claims", is_shown=False), nullcontext)


def test_a_notebook_shows_a_line_that_is_empty_at_the_end(monkeypatch):
    lines = []

    class ZMQInteractiveShell:
        pass

    def shown(data, **_):
        lines.append(data["text/plain"])
        return types.SimpleNamespace(update=shown)

    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("IPython.display.display", shown)
    Runner(jobs=1).run(make_points(), make_compute())
    assert lines[-2].endswith(": 8 of 8")
    assert lines[-1] == ""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_keeps_what_was_finished(at_once, store, undisturbed, jobs):
    failing = make_compute(fails_at=5, error=ZeroDivisionError("at point 5"))
    with pytest.raises(ZeroDivisionError, match="at point 5"):
        Runner(store, jobs=jobs).run(make_points(), failing)
    stored = [store.load(point) for point in make_points()]
    assert (stored[0], stored[5]) == (undisturbed[0], None)
    assert all(
        result in (None, expected) for result, expected in zip(stored, undisturbed, strict=True)
    )
    assert jobs > 1 or stored[:5] == undisturbed[:5]
    calls = []
    second = Runner(store, jobs=jobs, progress=lambda *done: calls.append(done))
    assert second.run(make_points(), make_compute()) == undisturbed
    assert calls == [(done, 8) for done in range(8 - stored.count(None), 9)]
    assert store.rejected == []


def test_a_store_can_be_opened_when_the_first_points_are_run(tmp_path, undisturbed):
    lazy = Runner(lambda: ResultStore(tmp_path / "late"), 1)
    assert lazy.run([], make_compute()) == []
    assert list(tmp_path.iterdir()) == []
    assert lazy.run(make_points(), make_compute()) == undisturbed
    assert len(list((tmp_path / "late").iterdir())) == len(undisturbed)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("after", [0, 4])
def test_an_interruption_keeps_what_was_finished(at_once, store, undisturbed, jobs, after):
    def progress(done, total):
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterruptedError, match=f"^interrupted: {after} of 8 points are"):
        Runner(store, jobs=jobs, progress=progress).run(make_points(), make_compute())
    assert len(list(store.folder.iterdir())) == after
    assert Runner(store, jobs=jobs).run(make_points(), make_compute()) == undisturbed
    message = f"^interrupted after {after} of 8 points; without a store, no result is saved"
    with pytest.raises(SweepInterruptedError, match=message):
        Runner(jobs=jobs, progress=progress).run(make_points(), make_compute())


def test_workers_end_in_silence_while_a_task_is_handed_in(at_once, monkeypatch):
    """A result came, joblib handed in the next task, and loky's thread has not seen it yet."""
    is_handed_in, failures = threading.Event(), []
    monkeypatch.setattr(threading, "excepthook", lambda args: failures.append(args.exc_type))
    submit = joblib.parallel.LokyBackend.submit

    def submit_slowly(backend, *args, **options):
        job = submit(backend, *args, **options)
        if threading.current_thread() is not threading.main_thread():
            is_handed_in.set()
            threading.Event().wait(0.5)  # the end comes now
        return job

    monkeypatch.setattr(joblib.parallel.LokyBackend, "submit", submit_slowly)
    results = workers.on_workers(dict(enumerate(make_points(100))), make_compute(), 2)
    next(results)
    is_handed_in.wait()
    results.close()
    assert failures == []


@posix
def test_a_killed_worker_is_one_error_and_not_the_end(at_once, store, undisturbed):
    parent, original = os.getpid(), make_compute()

    def compute(point):
        import os
        import signal

        if point.parameters["i"] == 4 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(point)

    message = r"a worker process was killed.*use fewer workers, such as jobs=1"
    with pytest.raises(ResourceError, match=message):
        Runner(store, jobs=2).run(make_points(), compute)
    assert store.load(make_points()[0]) == undisturbed[0]
    assert Runner(store, jobs=2).run(make_points(), original) == undisturbed


WORKS_ENDLESSLY = """
import os, sys
from loca_theory.sweeps import Runner
from loca_theory.sweeps.store import Point

def compute(point):
    import os
    os.write(os.open(point.parameters["began"], os.O_WRONLY), b".")
    open(point.parameters["never"]).read()

points = [Point("test", {"began": sys.argv[1], "never": sys.argv[2], "i": i}) for i in range(2)]
Runner(jobs=2).run(points, compute, is_long=True)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a file that tells when a process ends")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    """The output that a parent and its workers share is closed when the last of them has ended."""
    fifos = [tmp_path / "began", tmp_path / "never"]
    for path in fifos:
        os.mkfifo(path)
    words = [sys.executable, "-c", WORKS_ENDLESSLY, *fifos]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            with fifos[0].open("rb") as began:
                assert began.read(1) == b"."
            parent.kill()
            assert parent.communicate(timeout=HANGS_S)[0] == b""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Elsewhere(Point):
    """A point for which another process has other code."""

    @property
    def version(self):
        return str(os.getpid())


def test_a_worker_with_other_code_is_an_error_and_never_a_number(at_once, store):
    points = [Elsewhere("test", {"i": i}) for i in range(8)]
    message = r"the worker on \S+ runs another version of loca-theory or of a lib"
    with pytest.raises(ResourceError, match=message):
        Runner(store, jobs=2).run(points, make_compute())
    assert [path.name for path in store.folder.iterdir()] == [store.path(points[0]).name]


# --- contexts of joblib ---


def where(point):
    return {"thread": threading.current_thread().name, **make_compute()(point)}


class ListBackend(joblib.parallel.ThreadingBackend):
    """A backend that returns all results of a call at once, as that of Ray does."""

    supports_return_generator = False


@pytest.mark.parametrize("backend", ["threading", "lists"])
def test_a_context_chooses_the_workers(undisturbed, store, backend):
    joblib.register_parallel_backend("lists", ListBackend)
    with joblib.parallel_config(backend, n_jobs=2):
        results = Runner(store).run(make_points(), where)
        alone = Runner(jobs=1).run(make_points(2), where)
    main = threading.current_thread().name
    assert main not in {result["thread"] for result in results}
    assert {result["thread"] for result in alone} == {main}, "1 is this process"
    assert [
        {**result, **expected} for result, expected in zip(results, undisturbed, strict=True)
    ] == results
    assert Runner(store).run(make_points(), None) == results


def test_the_workers_of_dask_give_the_results_of_a_serial_sweep(undisturbed):
    """Over TCP, with a scheduler and a worker of dask as threads of this process."""
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        ) as local,
        distributed.Client(local),
        joblib.parallel_config("dask"),
    ):
        results = Runner().run(make_points(), where)
    assert all("Dask" in result.pop("thread") for result in results)
    assert results == undisturbed


# --- threads and signals ---


@posix
def test_workers_have_one_thread_each_and_leave_ctrl_c_to_their_parent(at_once, monkeypatch):
    """Whatever the environment says; on a single core OpenBLAS has but one in any case."""
    for name in threads._THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")

    def state(point):
        import os
        import signal

        import numpy as np
        from threadpoolctl import threadpool_info

        del np  # loads OpenBLAS
        return {
            "threads": [pool["num_threads"] for pool in threadpool_info()],
            "pid": os.getpid(),
            "blocked": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
        }

    # Workers of earlier runs may be older than this environment; these are new.
    get_reusable_executor().shutdown(wait=True)
    results = Runner(jobs=2).run(make_points(), state)
    assert {count for result in results for count in result["threads"]} == {1}
    assert {result["blocked"] for result in results if result["pid"] != os.getpid()} == {True}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def threads_now():
    return {pool["num_threads"] for pool in threadpool_info()} | {torch.get_num_threads()}


@pytest.fixture
def three_threads():
    """Three threads everywhere, on a machine of any size."""
    before = torch.get_num_threads()
    with threadpool_limits(limits=3):
        torch.set_num_threads(3)
        yield
    torch.set_num_threads(before)


def test_a_point_runs_with_one_thread_and_the_former_number_comes_back(three_threads):
    seen = []

    def compute(point):
        seen.append(threads_now())
        return {"quotient": 1 / point.parameters["i"]}

    with pytest.raises(ZeroDivisionError, match="division by zero"):
        Runner(jobs=1).run(make_points(3)[::-1], compute)
    assert seen == [{1}] * 3
    assert threads_now() == {3}


def test_sweeps_of_two_threads_restore_what_the_first_found(three_threads, monkeypatch):
    """The sweep that begins first ends first, while the other computes."""
    for name in threads._THREAD_VARIABLES:
        monkeypatch.setenv(name, "3")
    first_began, second_began, first_ended = (threading.Event() for _ in range(3))

    def first(point):
        first_began.set()
        second_began.wait(HANGS_S)
        return {"threads": list(threads_now())}

    def second(point):
        second_began.set()
        first_ended.wait(HANGS_S)
        return {"threads": list(threads_now())}

    def sweep(compute, begin):
        begin.wait(HANGS_S)
        ((result,),) = (results.values() for results in Runner(jobs=1).run(make_points(1), compute))
        return result, torch.get_num_threads()

    at_once = threading.Event()
    at_once.set()
    with ThreadPoolExecutor() as pool:
        sweeps = [pool.submit(sweep, first, at_once), pool.submit(sweep, second, first_began)]
        sweeps[0].add_done_callback(lambda _: first_ended.set())
    assert [sweep_of_thread.result() for sweep_of_thread in sweeps] == [([1], 3), ([1], 3)]
    assert threads_now() == {3}
    assert {os.environ[name] for name in threads._THREAD_VARIABLES} == {"3"}


IMPORTS_TORCH_INSIDE = """
import os, sys
from loca_theory.sweeps import Runner
from loca_theory.sweeps.store import Point
assert "torch" not in sys.modules
before = dict(os.environ)

def compute(point):
    import torch
    from threadpoolctl import threadpool_info
    return {"torch": torch.get_num_threads(), "all": [p["num_threads"] for p in threadpool_info()]}

for result in Runner(jobs=1).run([Point("e", {"i": i}) for i in range(2)], compute):
    assert result["torch"] == 1 and set(result["all"]) == {1}, result
assert dict(os.environ) == before

import joblib, torch
assert torch.get_num_threads() == joblib.cpu_count(), torch.get_num_threads()
"""


def test_one_thread_holds_for_a_library_that_the_work_imports():
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    # The user's setting for one library comes back; the others get none.
    environment["MKL_NUM_THREADS"] = "7"
    command = [sys.executable, "-c", IMPORTS_TORCH_INSIDE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
