"""Words for numbers and lists."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and what it counts.

    >>> counted(1, "matrix", "matrices"), counted(1200, "tensor")
    ('1 matrix', '1,200 tensors')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def first_of(texts: Sequence[str], most: int) -> str:
    """The first of some texts, and how many more there are.

    >>> first_of(["q_proj", "k_proj", "v_proj"], 2)
    'q_proj, k_proj and 1 more'
    """
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def ends(values: Sequence[float], form: str) -> str:
    """The smallest and the largest of some values, or one if they look the same.

    >>> ends([0.25, 0.5, 0.75], ".0%")
    '25% to 75%'
    """
    low, high = (format(end(values), form) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def listed(texts: Sequence[str]) -> str:
    """Texts as a list in a sentence.

    >>> listed(["LoRA", "LoCA", "entries"])
    'LoRA, LoCA and entries'
    """
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
