"""Write files atomically, so that a reader never sees a partial file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from loca_theory.errors import ResourceError

TEMPORARY_SUFFIX = ".partial"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name in its folder, and rename it when it is complete."""
    # Absolute: pyarrow would take the path s3:/table.parquet for an address.
    name = f"{path.stem}.{uuid4().hex}{path.suffix}{TEMPORARY_SUFFIX}"
    temporary = path.absolute().with_name(name)
    with naming_file(path):
        try:
            write(temporary)
            # safetensors makes files that only their owner can read.
            os.umask(mask := os.umask(0))
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn a failure of the system into an error that names the file to be written."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f'cannot write {path}: {error.strerror or error}; choose another folder="..."'
        ) from error


def writable_folder(folder: Path, argument: str = "folder") -> Path:
    """Create a folder if needed, and check that files can be created in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        in_the_way = next(
            (parent for parent in (folder, *folder.parents) if parent.is_file()), None
        )
        reason = f"{in_the_way} is a file" if in_the_way else error.strerror or str(error)
        raise ResourceError(
            f'cannot write to {folder}: {reason}; choose another {argument}="..."'
        ) from error
    return folder
