"""The manifest says where a result came from."""

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

import pytest

import loca_theory
from loca_theory.sweeps.manifest import manifest

# The package exports the function under the module's name.
module = sys.modules[manifest.__module__]
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
GIVEN = {
    "grid": {"shapes": [[16, 16]], "ranks": [1, 2]},
    "seed": 3,
    "device": "cpu",
    "dtype": "float64",
}


def git(folder, *arguments):
    """What git says in a folder, with no settings but its own."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **alone},
    )
    return done.stdout.strip()


def test_it_holds_what_it_takes_to_repeat_a_run():
    before = datetime.now(UTC).replace(microsecond=0)
    written = manifest(**GIVEN)
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert before <= datetime.fromisoformat(written.pop("created")) <= datetime.now(UTC)
    beside = {"git_commit", "git_dirty", "cores", "platform", "machine"}
    libraries = ("numpy", "scipy", "torch", "pandas", "joblib", "pyarrow")
    assert written == {
        **GIVEN,
        "package": "loca-theory",
        "version": loca_theory.__version__,
        "threads_per_point": 1,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
        **{name: written[name] for name in beside},
    }


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder from which the package seems to run, in no repository."""
    root = tmp_path / "checkout"
    (root / "loca_theory" / "sweeps").mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(root / "loca_theory" / "sweeps" / "manifest.py"))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def repository(root):
    """The same as a repository of one commit."""
    (root / "file.txt").write_text("first\n")
    git(root, "init", "--quiet")
    git(root, "add", "file.txt")
    author = ("-c", "user.name=A. Tester", "-c", "user.email=tester@example.org")
    git(root, *author, "commit", "--quiet", "--message", "first")
    return root


def state():
    written = manifest(**GIVEN)
    return written["git_commit"], written["git_dirty"]


@needs_git
def test_a_changed_file_makes_a_checkout_dirty_and_a_new_one_does_not(repository):
    """The index is left alone: to refresh it `git status` takes a lock that disturbs others."""
    (repository / "untracked.txt").write_text("")
    os.utime(repository / "file.txt", (0, 0))
    before = (repository / ".git" / "index").read_bytes()
    commit = git(repository, "rev-parse", "HEAD")
    assert state() == (commit, False)
    (repository / "file.txt").write_text("second\n")
    assert state() == (commit, True)
    assert (repository / ".git" / "index").read_bytes() == before


@needs_git
def test_the_repository_where_the_user_stands_does_not_matter(repository, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "--quiet")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    commit = state()
    monkeypatch.delenv("GIT_DIR")
    assert commit == (git(repository, "rev-parse", "HEAD"), False)


@needs_git
def test_outside_a_checkout_without_commits_and_without_git_the_commit_is_unknown(
    root, tmp_path, monkeypatch
):
    assert state() == (None, None)
    git(root, "init", "--quiet")
    assert state() == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert state() == (None, None)
