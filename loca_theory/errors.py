"""Exceptions of the package. Each message is one line: the cause, and how to fix it."""


class LocaTheoryError(Exception):
    """Base of every error that the package raises on purpose (exit code 1 on the command line)."""


class InvalidArgumentError(LocaTheoryError, ValueError):
    """A value that the caller passed cannot be used (exit code 2 on the command line)."""


class ResourceError(LocaTheoryError, RuntimeError):
    """The machine lacks a resource: memory, a CUDA device, a stored file, a writable folder."""
