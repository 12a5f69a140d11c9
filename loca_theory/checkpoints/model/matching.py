"""Where the tensors of one checkpoint belong in another one, or in a model, by their names.

The names of one side may have a prefix that the other side lacks, such as that of a model without
its head, or of the half that was trained: the encoder of an encoder and decoder. Where several
prefixes explain names, the one counts under which most shapes fit, then most names; if these are
equal, the values decide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import cosine_similarity

from loca_theory.errors import InvalidArgumentError

Partners = dict[str, str]
"""The other side's name of each tensor."""

# The values decide between two matches if the mean cosines differ by so much, or if the distance
# from the nearer one is at most half of that from the other.
_GAP, _NEARER = 0.1, 0.25
_ROUNDING = 1e-9
# Prefixes that are tried, of the most frequent.
_CANDIDATES = 8


# Modules that wrap others for checkpointing, sharding and compiling.
_WRAPPER = "(_checkpoint_wrapped_module|_fsdp_wrapped_module|_forward_module|_orig_mod)"
_WRAPPERS = re.compile(rf"(^|(?<=\.)){_WRAPPER}\.|(^|\.){_WRAPPER}$")


def plain_name(name: str) -> str:
    """A name without the modules that wrap others.

    >>> plain_name("layers.0._checkpoint_wrapped_module.mlp.weight")
    'layers.0.mlp.weight'
    """
    return _WRAPPERS.sub("", name)


@dataclass(frozen=True)
class NameMatch:
    """Where the tensors of one side belong in the other.

    Attributes:
        partners: The other side's name of each tensor that it has as well.
        removed: Prefix that the names have only on the first side; usually "".
        added: Prefix that they have only on the other side; usually "".
    """

    partners: Partners
    removed: str = ""
    added: str = ""

    def first_name(self, name: str) -> str:
        """The name that a tensor of the other side would have on the first one."""
        return self.removed + name.removeprefix(self.added) if name.startswith(self.added) else name

    @property
    def prefix(self) -> str:
        """The prefix that only one side has; usually ""."""
        return self.removed + self.added


class AmbiguousError(InvalidArgumentError):
    """The tensors belong equally well to several parts of the other side.

    Attributes:
        count: Number of tensors that each match explains.
    """

    count = 0


def match_names(
    names: Collection[str],
    others: Collection[str],
    *,
    fits: Callable[[str, str], bool] = lambda _, __: True,
    likeness: Callable[[Partners], float | None] = lambda _: None,
    part: str | None = None,
) -> NameMatch:
    """Find where tensors belong in the other side.

    Args:
        names: Names of the tensors.
        others: Names of the other side's tensors.
        fits: Whether the shapes of a tensor and of its partner agree.
        likeness: Mean cosine of the values of partners; None if there are none to compare.
        part: The other side's prefix of the part that the tensors are said to be of.

    Raises:
        AmbiguousError: several matches are equally good.
    """
    known = dict.fromkeys(others)
    matches = [_with_prefix(names, known, *change) for change in _changes(names, known)]
    # Without a prefix comes first, so that a prefix has to explain more.
    matches.insert(0, NameMatch({name: name for name in names if name in known}))

    def score(match: NameMatch) -> tuple[int, int]:
        partners = match.partners
        return sum(fits(name, partner) for name, partner in partners.items()), len(partners)

    best = max(matches, key=score)
    equal = [match for match in matches if score(match) == score(best)]
    if not best.prefix or len(equal) == 1:
        return best
    if said := [match for match in equal if match.added == part]:
        return said[0]
    return _most_alike(equal, likeness)


def _most_alike(
    matches: list[NameMatch], likeness: Callable[[Partners], float | None]
) -> NameMatch:
    """The match whose values are most like those of the tensors."""
    measured = [likeness(match.partners) for match in matches]
    cosines = [cosine for cosine in measured if cosine is not None]
    if len(cosines) == len(matches):
        ranked = sorted(zip(cosines, range(len(matches)), strict=True), reverse=True)
        (first, best), (second, _) = ranked[:2]
        if first - second >= _GAP or 1 - first < _NEARER * (1 - second) - _ROUNDING:
            return matches[best]
    names = " and ".join(f"{match.prefix}*" for match in matches)
    way_out = "that part of the base alone, or give the names their prefix"
    msg = f"the tensors belong equally well to several parts of the model: {names}; pass "
    error = AmbiguousError(msg + (way_out if matches[0].added else "one of them alone"))
    error.count = len(matches[0].partners)
    raise error


def _with_prefix(
    names: Collection[str], others: Collection[str], removed: str, added: str
) -> NameMatch:
    """The partners if one side has a prefix; names that match as they are stay as they are."""
    changed = {
        name: other
        for name in names
        if name.startswith(removed) and (other := added + name.removeprefix(removed)) in others
    }
    taken = set(changed.values())
    exact = {n: n for n in names if n in others and n not in changed and n not in taken}
    matched = {**changed, **exact}
    return NameMatch({name: matched[name] for name in names if name in matched}, removed, added)


def _changes(names: Iterable[str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Prefixes that only the names of the first side may have, or only those of the other."""
    for longer, shorter, is_first in ((names, others, True), (others, set(names), False)):
        counts: Counter[str] = Counter()
        for name in longer:
            parts = name.split(".")
            for i in range(1, len(parts)):
                if ".".join(parts[i:]) in shorter:
                    counts[".".join(parts[:i]) + "."] += 1
                    break
        for prefix, _ in counts.most_common(_CANDIDATES):
            yield (prefix, "") if is_first else ("", prefix)


def mean_cosine(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float | None:
    """Mean cosine of the tensors of some pairs that have as many entries; None if none has."""
    cosines = [
        cosine_similarity(first.double().flatten(), second.double().flatten(), dim=0).item()
        for first, second in pairs
        if first.numel() == second.numel()
    ]
    return sum(cosines) / len(cosines) if cosines else None
