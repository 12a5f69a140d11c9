"""A point: one computation of a sweep, and its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A parameter is any value that JSON stores exactly.
Parameter = int | float | str | bool | None | list["Parameter"] | dict[str, "Parameter"]


@dataclass(frozen=True)
class Point:
    """One independent computation.

    Attributes:
        experiment: Name of what is computed.
        parameters: Everything the result depends on besides the code: sizes, seed, replicates.
    """

    experiment: str
    parameters: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        """The point as plain data, as it is stored beside its result."""
        return {"experiment": self.experiment, "parameters": dict(self.parameters)}

    def key(self, version: str) -> str:
        """Hash that names the point's file: equal only for equal points and code versions."""
        text = json.dumps({**self.describe(), "version": version}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]
