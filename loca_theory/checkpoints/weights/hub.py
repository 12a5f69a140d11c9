"""Download of checkpoints from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from loca_theory.checkpoints.weights.checkpoint import one_line
from loca_theory.errors import InvalidArgumentError, ResourceError

_FILES = ["*.safetensors", "*.safetensors.index.json", "adapter_config.json", "config.json"]


def download(name: str) -> Path:
    """Fetch the weights of ``org/name[@revision]`` (safetensors only) into the hub's own cache."""
    repository, _, revision = name.partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        msg = f"hub:{name} does not name a repository; write hub:org/name or hub:org/name@revision"
        raise InvalidArgumentError(msg)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError as error:
        msg = "reading from the hub needs huggingface_hub: pip install 'loca-theory[hub]'"
        raise ResourceError(msg) from error
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_FILES))
    except HFValidationError as error:
        msg = f"hub:{name} is not a valid repository name; write hub:org/name or "
        msg += "hub:org/name@revision"
        raise InvalidArgumentError(msg) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        msg = f"hub:{name} cannot be fetched ({one_line(error)}); download it yourself and pass "
        msg += "its folder"
        raise ResourceError(msg) from error
