"""A store of results, one small file per finished point."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loca_theory.sweeps.files import TEMPORARY_SUFFIX, writable_folder, write_atomically
from loca_theory.sweeps.points import Point

_FORMAT = 1
# Partial files of a killed run are removed once no live run can still be writing them.
_ABANDONED_AFTER_S = 3600.0


class ResultStore:
    """A folder with one JSON file per finished point, named by experiment, version and key.

    JSON preserves every float exactly (``repr`` round-trips), and reading it executes no code. A
    file is used only if it parses, its checksum matches its result and it describes the requested
    point. Any other file is listed in :attr:`rejected`, and its point is computed again.

    Args:
        folder: Folder of the files; created if needed.
        version: Version of the computing code (:func:`~loca_theory.sweeps.code_version`).

    Attributes:
        rejected: One line for each rejected file, with the reason.
        loaded: Number of results loaded since the store was opened.
        saved: Number of results saved since the store was opened.

    Raises:
        ResourceError: the folder cannot be created or written to.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = writable_folder(folder)
        self.version = version
        self.rejected: list[str] = []
        self.loaded, self.saved = 0, 0
        self._experiments: set[str] = set()
        self._remove_abandoned()

    def path(self, point: Point) -> Path:
        """Path of the point's file, whether or not it exists."""
        prefix = _prefix(point.experiment, self.version)
        return self.folder / f"{prefix}{point.key(self.version)}.json"

    def outdated(self, present: Iterable[str] = ()) -> int:
        """Count results of the loaded experiments that another version of the code stored.

        They are neither used nor deleted.

        Args:
            present: Further versions of the present code, of computations that run the same
                experiments as a part of theirs.
        """
        names = [path.name for path in self.folder.glob("*.json")]
        versions = (self.version, *present)
        return sum(
            name.startswith(f"{experiment}@")
            and not any(name.startswith(_prefix(experiment, one)) for one in versions)
            for experiment in self._experiments
            for name in names
        )

    def load(self, point: Point) -> dict[str, Any] | None:
        """Load a stored result; None if it does not exist or is rejected."""
        path = self.path(point)
        self._experiments.add(point.experiment)
        try:
            content = json.loads(path.read_bytes())
            reason = self._reason_to_reject(content, point)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self._reject(path, f"is unreadable ({type(error).__name__})")
            return None
        if reason:
            self._reject(path, reason)
            return None
        self.loaded += 1
        return content["result"]

    def save(self, point: Point, result: dict[str, Any]) -> None:
        """Store a result.

        Raises:
            ResourceError: the file cannot be written; an earlier file is unchanged.
        """
        content = {
            "format": _FORMAT,
            "version": self.version,
            "point": point.describe(),
            "checksum": _checksum(result),
            "result": result,
        }
        text = json.dumps(content)
        write_atomically(self.path(point), lambda path: path.write_text(text, encoding="utf-8"))
        self.saved += 1

    def _reject(self, path: Path, reason: str) -> None:
        self.rejected.append(f"{path.name} {reason}; the result is recomputed")

    def _reason_to_reject(self, content: Any, point: Point) -> str | None:
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return "has another format"
        if not isinstance(content.get("result"), dict):
            return "has no result"
        if content.get("checksum") != _checksum(content["result"]):
            return "is damaged (checksum)"
        # Compared as text, because in Python 1 == 1.0 == True and NaN != NaN.
        same_point = _canonical(content.get("point")) == _canonical(point.describe())
        if not same_point or content.get("version") != self.version:
            return "belongs to another computation"
        return None

    def _remove_abandoned(self) -> None:
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self.folder.glob(f"*{TEMPORARY_SUFFIX}"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:
                continue  # another run removed it first, or it is not ours to remove


def _prefix(experiment: str, version: str) -> str:
    return f"{experiment}@{version[:8]}-"


def _checksum(result: Any) -> str:
    return hashlib.sha256(_canonical(result).encode()).hexdigest()


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
