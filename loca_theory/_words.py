"""Words for numbers."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and what it counts.

    >>> counted(1, "matrix", "matrices"), counted(1200, "tensor")
    ('1 matrix', '1,200 tensors')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
