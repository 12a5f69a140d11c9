"""The manifest says where a result came from."""

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

import loca_theory
from loca_theory.sweeps import manifest

# The package exports the function under the module's name.
module = sys.modules[manifest.__module__]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CHECKOUT = Path(loca_theory.__file__).resolve().parents[1]
GIVEN = {
    "argv": ["loca-theory", "simulate", "--K", "16"],
    "grid": {"shapes": [[16, 16]], "ranks": [1, 2]},
    "seed": 3,
    "device": "cpu",
    "dtype": "float64",
}


def git(*arguments, folder=CHECKOUT):
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_holds_what_it_takes_to_repeat_a_run():
    assert set(manifest(**GIVEN)) == {
        "package",
        "version",
        "git_commit",
        "git_dirty",
        "argv",
        "grid",
        "seed",
        "device",
        "dtype",
        "threads_per_point",
        "cores",
        "python",
        "platform",
        "machine",
        "libraries",
        "created",
    }


def test_it_repeats_what_it_is_given():
    made = manifest(**GIVEN)
    assert {name: made[name] for name in GIVEN} == GIVEN
    assert made["grid"] is not GIVEN["grid"]
    assert made["argv"] is not GIVEN["argv"]


def test_it_is_plain_json():
    made = manifest(**GIVEN)
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_it_names_the_versions_in_use():
    made = manifest(**GIVEN)
    assert made["package"] == "loca-theory"
    assert made["version"] == loca_theory.__version__
    assert made["python"] == platform.python_version()
    libraries = ("numpy", "scipy", "torch", "pandas", "joblib", "pyarrow")
    assert made["libraries"] == {name: version(name) for name in libraries}


def test_it_is_dated_with_a_time_zone():
    created = datetime.fromisoformat(manifest(**GIVEN)["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60


@needs_git
@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="the package is not in a checkout")
def test_it_names_the_commit_of_the_checkout():
    made = manifest(**GIVEN)
    assert made["git_commit"] == git("rev-parse", "HEAD")
    assert made["git_dirty"] == bool(git("status", "--porcelain", "--untracked-files=no"))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of one commit, from which the package seems to run."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    (root / "loca_theory" / "sweeps").mkdir(parents=True)
    for arguments in (
        ("init", "--quiet"),
        ("config", "user.name", "A. Tester"),
        ("config", "user.email", "tester@example.org"),
    ):
        git(*arguments, folder=root)
    (root / "file.txt").write_text("first\n")
    git("add", "file.txt", folder=root)
    git("commit", "--quiet", "--message", "first", folder=root)
    monkeypatch.setattr(module, "__file__", str(root / "loca_theory" / "sweeps" / "manifest.py"))
    return root


def test_a_clean_checkout_is_not_dirty(repository):
    (repository / "untracked.txt").write_text("")
    made = manifest(**GIVEN)
    assert (made["git_commit"], made["git_dirty"]) == (
        git("rev-parse", "HEAD", folder=repository),
        False,
    )


def test_a_changed_file_makes_it_dirty(repository):
    (repository / "file.txt").write_text("second\n")
    assert manifest(**GIVEN)["git_dirty"] is True


def test_the_index_is_left_alone(repository):
    """To refresh it `git status` takes a lock, and a commit made meanwhile fails."""
    os.utime(repository / "file.txt", (0, 0))
    before = (repository / ".git" / "index").read_bytes()
    assert manifest(**GIVEN)["git_dirty"] is False
    assert (repository / ".git" / "index").read_bytes() == before


def test_the_repository_where_the_user_stands_does_not_matter(repository, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git("init", "--quiet", folder=elsewhere)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    commit = manifest(**GIVEN)["git_commit"]
    monkeypatch.delenv("GIT_DIR")
    assert commit == git("rev-parse", "HEAD", folder=repository)


def test_outside_a_checkout_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "manifest.py"))
    made = manifest(**GIVEN)
    assert (made["git_commit"], made["git_dirty"]) == (None, None)


@needs_git
def test_without_commits_the_commit_is_unknown(tmp_path, monkeypatch):
    git("init", "--quiet", folder=tmp_path)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "manifest.py"))
    assert manifest(**GIVEN)["git_commit"] is None


def test_without_git_the_commit_is_unknown(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert manifest(**GIVEN)["git_commit"] is None


def test_no_library_is_imported_for_it():
    script = (
        "import sys\n"
        "from loca_theory.sweeps import manifest\n"
        f"manifest(**{GIVEN!r})\n"
        "print(sorted({'torch', 'pandas', 'pyarrow', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"


def test_the_command_line_names_the_program_without_its_path(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/loca-theory", "simulate", "--K", "16"])
    assert module.command_line() == ["loca-theory", "simulate", "--K", "16"]
