"""The manifest of a result, which describes how it was computed."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loca_theory._version import __version__
from loca_theory.sweeps.version import library_version

_LIBRARIES = ("numpy", "scipy", "torch", "pandas", "joblib", "pyarrow")


def manifest(
    *, grid: Mapping[str, Any], seed: int | None, device: str = "cpu", dtype: str = "float64"
) -> dict[str, Any]:
    """Describe a run so that it can be understood and repeated.

    Returns:
        Plain data: version, git commit and dirty flag (null outside a checkout), the arguments,
        versions of the libraries (found without importing them), platform, threads, time.
    """
    commit, dirty = _git_state()
    return {
        "package": "loca-theory",
        "version": __version__,
        "git_commit": commit,
        "git_dirty": dirty,
        "grid": dict(grid),
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "threads_per_point": 1,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libraries": {name: library_version(name) for name in _LIBRARIES},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git_state() -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the checkout that the package runs from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None, None
    # Explicit, because GIT_DIR in the environment (of a git hook, say) may name another one.
    repository = (f"--git-dir={root / '.git'}", f"--work-tree={root}")
    # No lock, because the lock that `git status` takes on the index would disturb other processes.
    command = ["git", "--no-optional-locks", *repository, "status", "--porcelain=v2", "--branch"]
    command.append("--untracked-files=no")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None, None
    commit = done.stdout.split()[2]  # after "# branch.oid"
    is_dirty = any(not line.startswith("#") for line in done.stdout.splitlines())
    return (None, None) if commit == "(initial)" else (commit, is_dirty)
