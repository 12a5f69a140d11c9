"""Paths of checkpoints, looked at without torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from loca_theory.errors import InvalidArgumentError

HUB = "hub:"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w.-]+)?")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".tar")
"""Suffixes of files of PyTorch."""


def existing_path(text: str) -> Path:
    """The path of a file or folder that exists."""
    path = Path(text).expanduser()
    if not text or not path.exists():
        if not text:
            raise InvalidArgumentError("a path is empty; name a file or a folder")
        msg = f"there is no file or folder {text}"
        if HUB_NAME.fullmatch(text) and path.suffix not in (".safetensors", *PICKLES):
            msg += f"; write {HUB}{text} if it is on the hub"
        raise InvalidArgumentError(msg)
    return path


def check_paths(sources: Iterable[str]) -> None:
    """Check that all sources but those on the hub exist."""
    for source in sources:
        if not source.startswith(HUB):
            existing_path(source)
