"""The package's exceptions. Each message names the cause and a way out, in one line."""


class LocaTheoryError(Exception):
    """Base of every error that the package raises on purpose (exit code 1 on the command line)."""


class InvalidArgumentError(LocaTheoryError, ValueError):
    """A value that the caller passed cannot be used (exit code 2 on the command line)."""


class ResourceError(LocaTheoryError, RuntimeError):
    """The machine lacks what the request needs: memory, a CUDA device, a writable folder."""
