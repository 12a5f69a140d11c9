"""One small file per finished point."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from loca_theory.sweeps.files import TEMPORARY_SUFFIX, writable_folder, write_atomically
from loca_theory.sweeps.points import Point

_FORMAT = 1
# Partial files of a killed run are removed once no live run can still be writing them.
_ABANDONED_AFTER_S = 3600.0


class ResultStore:
    """Finished points in a folder, one JSON file each, named by experiment, version and key.

    JSON keeps every float exactly (``repr`` round-trips) and executes nothing when read. A file
    is believed only if it parses, carries the checksum of its own result and describes the very
    point asked for; any other is reported in :attr:`rejected` and computed again.

    Args:
        folder: Where the files stand; created when needed.
        version: Version of the computing code (:func:`~loca_theory.sweeps.code_version`).

    Attributes:
        rejected: One line for each file that was not believed, with the reason.
        loaded: How many stored results it has given since it was opened.
        saved: How many results it has taken since then.

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
        """Where the point's result stands, or would."""
        return self.folder / f"{self._prefix(point.experiment)}{point.key(self.version)}.json"

    def _prefix(self, experiment: str) -> str:
        return f"{experiment}@{self.version[:8]}-"

    def outdated(self) -> int:
        """How many results of the experiments asked for were left by another version of the code.

        They stay where they are, and are not used.
        """
        names = [path.name for path in self.folder.glob("*.json")]
        return sum(
            name.startswith(f"{experiment}@") and not name.startswith(self._prefix(experiment))
            for experiment in self._experiments
            for name in names
        )

    def load(self, point: Point) -> dict[str, Any] | None:
        """The stored result, or None if there is none that can be trusted."""
        path = self.path(point)
        self._experiments.add(point.experiment)
        try:
            content = json.loads(path.read_bytes())
            reason = self._distrust(content, point)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.rejected.append(f"{path.name}: unreadable ({type(error).__name__}), recomputed")
            return None
        if reason:
            self.rejected.append(f"{path.name}: {reason}, recomputed")
            return None
        self.loaded += 1
        return content["result"]

    def save(self, point: Point, result: dict[str, Any]) -> None:
        """Keep a result.

        Raises:
            ResourceError: it cannot be written; an earlier file stays as it was.
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

    def _distrust(self, content: Any, point: Point) -> str | None:
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return "of another format"
        if not isinstance(content.get("result"), dict):
            return "without a result"
        if content.get("checksum") != _checksum(content["result"]):
            return "damaged (checksum)"
        # As text: Python holds 1, 1.0 and True for equal, and NaN for unequal to itself.
        same_point = _canonical(content.get("point")) == _canonical(point.describe())
        if not same_point or content.get("version") != self.version:
            return "of another computation"
        return None

    def _remove_abandoned(self) -> None:
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self.folder.glob(f"*{TEMPORARY_SUFFIX}"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:
                continue  # another run removed it first, or it is not ours to remove


def _checksum(result: Any) -> str:
    return hashlib.sha256(_canonical(result).encode()).hexdigest()


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
