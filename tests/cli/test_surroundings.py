"""Odd paths, no home, another locale, two runs at once, and commands killed or without room."""

import errno
import itertools
import os
import random
import re
import resource
import shutil
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

from loca_theory import demo_pair
from loca_theory.expressivity.monte_carlo import ErrorCell

# Every command that writes results; {base} and {tuned} stand for a pair of checkpoints.
COMMANDS = {
    "simulate": "--K 16 --r 1,2 --methods D --engine monte-carlo --draws 100 --jobs 1",
    "correlate": "--K 16 --r 1 --structures spiked --draws 2 --jobs 1",
    "toy": "--problems 2 --steps 20 --jobs 1",
    "analyze": "{base} {tuned} --include 0.attention --r 1",
    "extract": "{base} {tuned} --components 50",
    "verify": "--quick parseval.unitary",
    "figures": "sim_2",
}


def line(name, folder=None):
    """The words of a command; the pair is the demonstration's, or a copy in a folder."""
    base, tuned = demo_pair()
    if folder:
        folder.mkdir()
        base, tuned = (shutil.copy(path, folder) for path in (base, tuned))
    words = (word.format(base=base, tuned=tuned) for word in COMMANDS[name].split())
    return (name, *words, "--quiet")


def results(folder):
    """Names and contents of the files of results."""
    suffixes = {".html", ".md", ".parquet", ".pdf", ".png", ".safetensors"}
    paths = (path for path in folder.rglob("*") if path.suffix in suffixes)
    return {str(path.relative_to(folder)): content(path) for path in paths}


def content(path):
    """The content of a file, as far as it is the same each time."""
    if path.stem.lower() == "claims" or path.suffix == ".html":  # these hold times
        return None
    if path.suffix == ".safetensors":  # its header has any order
        return {name: array.tobytes() for name, array in load_file(path).items()}
    return path.read_bytes()


def others_deep(*fast, without=()):
    """Every command, of which all but the first belong to the deep tier."""
    remaining = [name for name in COMMANDS if name not in (*fast, *without)]
    deep = (pytest.param(name, marks=pytest.mark.deep) for name in remaining)
    return pytest.mark.parametrize("name", [*fast, *deep])


@others_deep("simulate", "extract")
def test_paths_may_hold_spaces_and_letters_of_any_alphabet(cli, cwd, name):
    assert cli(*line(name), "--out", "plain").code == 0
    done = cli(*line(name, cwd / "my modèle 模型"), "--out", "my results ä")
    assert (done.code, done.err) == (0, "")
    assert results(cwd / "my results ä").keys() == results(cwd / "plain").keys() > set()


# An ASCII locale that Python is kept from replacing by UTF-8, a home where no file can be made, and
# another order of sets.
BARE = {
    "HOME": os.devnull,
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "MPLCONFIGDIR": "",
    "XDG_CACHE_HOME": "",
    "XDG_CONFIG_HOME": "",
    "PYTHONHASHSEED": "1",
}


@others_deep("simulate")
def test_neither_a_home_nor_a_locale_is_needed(cli, cwd, process, name):
    assert cli(*line(name), "--out", "at-home").code == 0
    done = process(*line(name), "--out", "a b", **BARE)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    assert results(cwd / "a b") == results(cwd / "at-home")


@others_deep("simulate")
def test_two_runs_may_share_a_folder(cli, cwd, command, name):
    """Both finish, with the results of one, however their writes fall together."""
    assert cli(*line(name), "--out", "alone").code == 0
    words = [*command, *line(name), "--out", "shared"]
    runs = [subprocess.Popen(words, stderr=subprocess.PIPE, encoding="utf-8") for _ in range(2)]
    said = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert results(cwd / "shared") == results(cwd / "alone")
    assert not list((cwd / "shared").rglob("*.partial"))


@others_deep("simulate", without=["verify"])
def test_every_command_killed_again_and_again_ends_with_the_same_files(cli, cwd, killed, name):
    assert cli(*line(name), "--out", "undisturbed").code == 0
    kills = [(number, "again") for number in (1, 2, 3, 5, 7, 9, 12, 15)]
    outcome = killed([*kills, (0, "again")], *line(name))
    assert_finished(cwd, "again", outcome, minimum=3)


def assert_finished(cwd, folder, outcome, minimum):
    """After some kills it holds what it would have held undisturbed, and lost no point."""
    assert outcome.codes.count(-signal.SIGKILL) >= minimum
    assert outcome.codes[-1] == 0, outcome.err
    assert "recomputed" not in outcome.err, "no half-written file stands under a point's name"
    for before, after in itertools.pairwise(outcome.points):
        assert before <= after
    assert results(cwd / folder) == results(cwd / "undisturbed")


@pytest.mark.deep
def test_a_run_killed_at_any_change_of_a_file_can_be_finished(cli, cwd, killed):
    assert cli(*line("simulate"), "--out", "undisturbed").code == 0
    numbers = range(1, 41)
    kills = [(n, f"at-{number}") for number in numbers for n in (number, 0)]
    outcome = killed(kills, *line("simulate"))
    assert outcome.codes[1::2] == [0] * len(numbers), outcome.err
    survived = outcome.codes[::2].index(0)
    assert outcome.codes[::2] == [-signal.SIGKILL] * survived + [0] * (len(numbers) - survived)
    assert survived > 20
    assert "recomputed" not in outcome.err
    for number in numbers:
        assert results(cwd / f"at-{number}") == results(cwd / "undisturbed")


LARGE = ("simulate", "--K", "256", "--r", "4,8", "--methods", "R,D,F2", "--engine", "monte-carlo")
ENDLESS = 100_000


@pytest.mark.deep
def test_a_run_with_workers_killed_again_and_again_ends_with_the_same_bytes(cli, cwd, killed):
    command = (*LARGE, "--draws", 3000)
    assert cli(*command, "--jobs", 1, "--out", "undisturbed").code == 0
    moments = random.Random(2)
    kills = [(moments.randint(1, 60), "again") for _ in range(20)]
    outcome = killed([*kills, (0, "again")], *command, "--jobs", 2)
    assert_finished(cwd, "again", outcome, minimum=10)


@others_deep("simulate", "extract")
def test_files_that_find_no_room_are_one_line_and_can_follow(cli, cwd, name):
    """The system refuses every file above a size, as a full disk refuses all that do not fit."""
    # Imports leave files of their own, so they come first.
    assert cli(*line(name), "--out", "elsewhere").code == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    failures = []
    for limit in (300, 3000, 30_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            done = cli(*line(name), "--out", "kept")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        failures += [done] if done.code else []
        assert not list((cwd / "kept").rglob("*.partial"))
    assert failures
    for done in failures:
        assert (done.code, done.out) == (1, "")
        reason = re.escape(os.strerror(errno.EFBIG))
        assert re.fullmatch(rf"loca-theory: cannot write kept/[^\n]*{reason}[^\n]*\n", done.err)
    assert cli(*line(name), "--out", "kept").code == 0
    assert results(cwd / "kept") == results(cwd / "elsewhere")


def test_results_of_another_version_stay_and_are_not_used(cli, cwd, monkeypatch):
    sweep = ("simulate", "--K", "16,20", "--r", 2, "--methods", "LoCA", "--engine", "monte-carlo")
    sweep = (*sweep, "--draws", 2, "--jobs", 1, "--format", "csv")
    first = cli(*sweep)
    points = cwd / "loca-results" / "points"
    files = {path: path.read_bytes() for path in points.iterdir()}
    assert "another version" not in first.err
    monkeypatch.setattr(ErrorCell, "packages", ("loca_theory.sweeps",))
    second = cli(*sweep)
    assert (second.code, second.out) == (0, first.out)
    assert second.err == (
        f"note: {len(files)} results in loca-results/points were computed by another version of "
        "the code; they were neither used nor deleted\n"
    )
    assert all(path.read_bytes() == content for path, content in files.items())
    assert len(list(points.iterdir())) == 2 * len(files)


# A shell has its background jobs, and all that they start, ignore Ctrl-C.
HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
# Writes a byte to a pipe for every point that is stored.
COUNTING = (
    "import os; from loca_theory.sweeps.store import ResultStore; save = ResultStore.save; "
    "ResultStore.save = lambda *point: (save(*point), os.write({}, b'.')); "
)


@pytest.fixture
def endless(cwd, command, jobs):
    """A run without end, as the leader of a process group."""
    python, option, script = command
    words = (*LARGE, "--draws", str(ENDLESS), "--jobs", str(jobs), "--out", "results")
    read, write = os.pipe()
    process = subprocess.Popen(
        [python, option, HEEDING + COUNTING.format(write) + script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
        pass_fds=(write,),
    )
    os.close(write)
    with os.fdopen(read, "rb") as stored:
        yield process, stored
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finished_points(folder):
    points = folder / "points"
    return len(list(points.glob("*.json"))) if points.is_dir() else 0


@pytest.mark.parametrize(
    ("jobs", "signum", "to_all", "after"),
    [
        (1, signal.SIGINT, False, 1),
        (2, signal.SIGINT, True, 1),  # while workers start
        (2, signal.SIGTERM, True, 1),
        pytest.param(1, signal.SIGINT, True, 5, marks=pytest.mark.deep),
        pytest.param(2, signal.SIGINT, True, 400, marks=pytest.mark.deep),
        pytest.param(2, signal.SIGINT, False, 400, marks=pytest.mark.deep),
        pytest.param(2, signal.SIGTERM, False, 400, marks=pytest.mark.deep),
    ],
)
def test_an_interruption_is_one_line_and_the_rest_can_follow(cwd, endless, signum, to_all, after):
    """A terminal and a scheduler send it to workers as well; none of them may add a word."""
    process, stored = endless
    stored.read(after)  # waits until as many points are stored, or the process ends
    (os.killpg if to_all else os.kill)(process.pid, signum)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    said = re.fullmatch(
        r"loca-theory: interrupted: (\d+) of (\d+) points are stored; "
        r"run again to compute the rest\n",
        err,
    )
    assert said, err
    # The signal may come between the storing of a point and its counting.
    assert finished_points(cwd / "results") - int(said[1]) in (0, 1)
    assert int(said[2]) == 3 * ENDLESS // 25
    assert not (cwd / "results" / "simulate.parquet").exists()
