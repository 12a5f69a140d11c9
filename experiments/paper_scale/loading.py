"""Load packages, checkpoints and data sets from the hub or from local folders.

Loaded files cannot run code: remote code is off, weights are safetensors, and data are JSON, CSV,
Parquet or images.
"""

from __future__ import annotations

import http.client
import importlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.paper_scale.sources import Task
from loca_theory.errors import InvalidArgumentError, ResourceError

_EXTRA = "pip install 'loca-theory[paper-scale]'"
_FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_IMAGES = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
# After this time the hub counts as out of reach; its libraries would retry for a minute.
_PATIENCE_S = 5.0
_REASON = 160


def package(name: str) -> Any:
    """Import a package of the extra ``paper-scale``."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{error.name or name} is not installed: {_EXTRA}"
        raise ResourceError(msg) from error


def load_pretrained(load: Callable[..., Any], source: str, **options: Any) -> Any:
    """Call a ``from_pretrained``."""
    with _reading(source, "--model"):
        return load(source, **options)


def load_auto(load: Callable[..., Any], source: str, **options: Any) -> Any:
    """Call a ``from_pretrained`` of an Auto class, restricted to classes of the library."""
    return load_pretrained(load, source, trust_remote_code=False, **options)


def read_data(task: Task, source: str | None, *, images: bool = False) -> dict[str, Any]:
    """Read the parts of a data set."""
    datasets = package("datasets")
    if source is None:
        with _reading(task.data, "--data"):
            found = datasets.load_dataset(task.data, task.config, revision=task.revision)
    else:
        builder, files = _local_files(Path(source), task.parts, images)
        with _reading(source, "--data"):
            found = datasets.load_dataset(builder, data_files=files)
    for part in task.parts:
        if part not in found:
            msg = f"{source or task.data} has no part {part!r}: it has {', '.join(found)}"
            raise InvalidArgumentError(msg)
    return {part: found[part] for part in task.parts}


def column(data: Any, names: tuple[str, ...]) -> str:
    """The first of these columns that the data have."""
    for name in names:
        if name in data.column_names:
            return name
    msg = f"the data lack the column {' or '.join(names)}: they have {', '.join(data.column_names)}"
    raise InvalidArgumentError(msg)


def fingerprint(source: str | None) -> list[str] | None:
    """Names, sizes and times of the files in a local folder, to detect changes."""
    path = Path(source) if source is not None else None
    if path is None or not path.exists():
        return None
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    state = [(file.relative_to(path).as_posix(), file.stat()) for file in files if file.is_file()]
    return [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in state]


def _local_files(
    folder: Path, parts: tuple[str, ...], images: bool
) -> tuple[str, dict[str, list[str]]]:
    if not folder.is_dir():
        msg = f"{folder} is not a folder; --data takes a folder with files {_expected(parts)}"
        raise InvalidArgumentError(msg)
    files = {part: _part(folder, part, images) for part in parts}
    endings = {Path(name).suffix.lower() for found in files.values() for name in found}
    builders = {_FORMATS.get(ending, "imagefolder") for ending in endings}
    if not all(files.values()):
        msg = f"{folder} has nothing for {', '.join(part for part in parts if not files[part])}; "
        msg += f"it needs files {_expected(parts)}"
        raise InvalidArgumentError(msg)
    if len(builders) != 1:
        msg = f"{folder} has files of several formats, {', '.join(sorted(endings))}; use only one"
        raise InvalidArgumentError(msg)
    return builders.pop(), files


def _part(folder: Path, part: str, images: bool) -> list[str]:
    known = {*_FORMATS, *(_IMAGES if images else ())}
    inside = sorted((folder / part).rglob("*")) if (folder / part).is_dir() else []
    beside = [file for file in sorted(folder.iterdir()) if _belongs(file, part)]
    return [str(file) for file in (*beside, *inside) if file.suffix.lower() in known]


def _belongs(file: Path, part: str) -> bool:
    return file.is_file() and (file.stem == part or file.stem.startswith(f"{part}-"))


def _expected(parts: tuple[str, ...]) -> str:
    return ", ".join(f"{part}.json" for part in parts) + " (or .jsonl, .csv, .parquet)"


@contextmanager
def _reading(source: str, option: str) -> Iterator[None]:
    """Turn errors of reading into one-line errors, and use the hub only if it can be reached."""
    local = Path(source).exists()
    if not local and source.startswith((".", "/", "~")):
        msg = f"{source} does not exist"
        raise InvalidArgumentError(msg)
    away = False if local else not hub_answers()
    try:
        with _offline(away):
            yield
    except (ResourceError, InvalidArgumentError):
        raise
    except Exception as error:  # the libraries raise errors of many types
        if away:
            msg = f"{source} cannot be fetched: the hub is out of reach; give a local folder "
            msg += f"with {option}"
            raise ResourceError(msg) from error
        reason = _reason(error)
        msg = f"{source} cannot be read ({reason}); give another with {option}"
        raise ResourceError(msg) from error


def _reason(error: Exception) -> str:
    """The cause of an error in one line; datasets wraps it in an uninformative error."""
    wrapped = type(error).__module__.startswith("datasets.") and error.__cause__ is not None
    cause = error.__cause__ if wrapped else error
    return " ".join(str(cause).split())[:_REASON] or type(cause).__name__


def hub_answers() -> bool:
    """Try once, with a short timeout, whether the hub can be reached."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return False
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if not address.startswith(("http://", "https://")):
        return False
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=_PATIENCE_S):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError, http.client.HTTPException):  # the last for a malformed address
        return False


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """If ``wanted``, let the libraries use only their caches instead of retrying the hub."""
    paths = [sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config")]
    known = [(module, getattr(module, "HF_HUB_OFFLINE", False)) for module in paths if module]
    try:
        for module, before in known:
            module.HF_HUB_OFFLINE = before or wanted  # pyright: ignore[reportAttributeAccessIssue]
        yield
    finally:
        for module, before in known:
            module.HF_HUB_OFFLINE = before  # pyright: ignore[reportAttributeAccessIssue]
