"""Write files atomically, so that a reader never sees a partial file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from loca_theory.errors import ResourceError

TEMPORARY_SUFFIX = ".partial"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name in its folder, and rename it when it is complete.

    Args:
        path: Path of the file. Its folder must exist.
        write: Function that writes the content to the path it is given.

    Raises:
        ResourceError: the file cannot be written; nothing is left behind under either name.
    """
    try:
        handle, name = tempfile.mkstemp(
            prefix=f"{path.stem}.", suffix=f"{path.suffix}{TEMPORARY_SUFFIX}", dir=path.parent
        )
        os.close(handle)
    except OSError as error:
        raise _cannot_write(path, error) from error
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot_write(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def writable_folder(folder: Path, argument: str = "folder") -> Path:
    """Create a folder if needed, and check that files can be created in it.

    Args:
        folder: The folder.
        argument: Name of the caller's argument, for the message.

    Raises:
        ResourceError: the folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        in_the_way = next((one for one in (folder, *folder.parents) if one.is_file()), None)
        reason = f"{in_the_way} is a file" if in_the_way else error.strerror or str(error)
        msg = f'cannot write to {folder}: {reason}; choose another {argument}="..."'
        raise ResourceError(msg) from error
    return folder


def _cannot_write(where: Path | str, error: OSError) -> ResourceError:
    reason = error.strerror or str(error)
    return ResourceError(f'cannot write {where}: {reason}; choose another folder="..."')


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
