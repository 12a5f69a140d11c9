"""CI types what README.md tells a stranger to type, and says so where it cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt"
TESTS = next(line for line in README.splitlines() if line.startswith(f'{INSTALL} ".[test]"'))
MAIN = next(line for line in README.splitlines() if line.startswith(f"{INSTALL} . "))


def ci(folder, readme):
    """What ``.ci/run`` comes to in a checkout that has nothing but a README."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return subprocess.run(
        ["bash", folder / ".ci" / "run"], capture_output=True, text=True, check=False
    )


NO_COMPARISON = "has 0 commands that install the package and run the main comparison; it needs one"
NO_TESTS = "has 0 commands that install the package and run the tests; it needs one"
BAD = {
    "no comparison": (README.replace(MAIN, ""), NO_COMPARISON),
    "no tests": (README.replace(TESTS, ""), NO_TESTS),
    "another runner": (README.replace("-m pytest", "-m unittest"), NO_TESTS),
    "other versions": (README.replace("-c constraints.txt ", ""), NO_COMPARISON),
    "twice": (README.replace(TESTS, f"{TESTS}\n```\n\n```sh\n{TESTS}"), "has 2 commands"),
    "a test of nothing": (README.replace(TESTS, f"{TESTS} --collect-only"), NO_TESTS),
    "a failure that is passed over": (README.replace(TESTS, f"{TESTS} || true"), NO_TESTS),
    "some tests": (README.replace(TESTS, f"{TESTS} tests/test_ci.py"), NO_TESTS),
    "no size": (README.replace(MAIN, f"{MAIN}; true"), NO_COMPARISON),
    "empty": ("", NO_COMPARISON),
}


@pytest.mark.parametrize(("readme", "says"), BAD.values(), ids=BAD.keys())
def test_ci_fails_where_the_readme_has_not_the_two_commands(tmp_path, readme, says):
    done = ci(tmp_path, readme)
    assert done.returncode == 1
    assert says in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ci", "README.md"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["none", "of another encoding"])
def test_a_readme_that_cannot_be_read_is_one_line(tmp_path, content):
    if content:
        (tmp_path / "README.md").write_bytes(content)
    command = ["python3", ROOT / ".ci" / "readme.py", tmp_path / "README.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("README.md cannot be read: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_readme_has_them():
    script = ROOT / ".ci" / "readme.py"
    command = ["python3", script, ROOT / "README.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [MAIN, TESTS]
