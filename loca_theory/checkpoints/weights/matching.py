"""Which tensors of two checkpoints belong together, by their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Checkpoint

# Modules that share one weight in many language models, in the order in which to look for one.
_HEADS = ("lm_head",)
_OTHER_HEADS = ("score", "classifier")
_EMBEDDINGS = ("shared", "embed_tokens", "wte", "word_embeddings")
_MATRIX_DIMENSIONS = 2
_MODULE = re.compile(r"(?:^|\.)(\w+)\.weight$")


def all_names(checkpoint: Checkpoint) -> list[str]:
    """Names of all tensors of a checkpoint, also of those that cannot be loaded."""
    return list(dict.fromkeys([*checkpoint.entries, *checkpoint.damaged, *checkpoint.ignored]))


def match_names(tuned: list[str], base: list[str]) -> tuple[dict[str, str], str]:
    """The base's name of each tensor in both, and the prefix that only one side has, if any."""
    in_base = set(base)
    plain = {name: name for name in tuned if name in in_base}
    best, best_prefix = plain, ""
    for prefix, is_longer in _prefixes(tuned, in_base):
        changed = {
            name: other
            for name in tuned
            if (other := name.removeprefix(prefix) if is_longer else prefix + name) in in_base
            and (not is_longer or name.startswith(prefix))
        }
        if len(changed) > len(best) - sum(name in changed for name in plain):
            taken = set(changed.values())
            exact = {n: n for n in plain if n not in changed and n not in taken}
            both = {**changed, **exact}
            if len(both) > len(best):
                best, best_prefix = both, prefix
    if not best:
        msg = "the two checkpoints have no tensor name in common; pass two of the same model"
        raise InvalidArgumentError(msg)
    return {name: best[name] for name in tuned if name in best}, best_prefix


def _prefixes(tuned: list[str], base: set[str]) -> Iterator[tuple[str, bool]]:
    """Prefixes that the names of one side may have, and whether this is the fine-tuned side."""
    for longer, shorter, is_tuned in ((tuned, base, True), (base, set(tuned), False)):
        counts: Counter[str] = Counter()
        for name in longer:
            parts = name.split(".")
            for i in range(1, len(parts)):
                if ".".join(parts[i:]) in shorter:
                    counts[".".join(parts[:i]) + "."] += 1
                    break
        for prefix, _ in counts.most_common(3):
            yield prefix, is_tuned


def tied_weight(name: str, shape: tuple[int, ...], other: Checkpoint) -> str | None:
    """The weight of another checkpoint that serves there as the output head or input embedding.

    Many models tie the two, and their files hold only one of them. It is the only embedding, or
    head, of as many columns there; None if there is none or there are several, if the configuration
    says that they are not tied, or if the other checkpoint has another head or none.
    """
    module = _module(name)
    if module in _HEADS:
        wanted = _EMBEDDINGS
    elif module in _EMBEDDINGS:
        wanted = _HEADS
    else:
        return None
    if not _may_be_tied(other.config) or any(_module(own) in _OTHER_HEADS for own in other.entries):
        return None
    if len(shape) != _MATRIX_DIMENSIONS:
        return None
    fitting = [
        own
        for own, entry in other.entries.items()
        if len(entry.shape) == _MATRIX_DIMENSIONS and entry.shape[1] == shape[1]
    ]
    for one in wanted:
        found = [own for own in fitting if _module(own) == one]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _module(name: str) -> str | None:
    found = _MODULE.search(name)
    return found[1] if found else None


def _may_be_tied(config: Any) -> bool:
    text = config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, dict) else None
    if config.get("tie_word_embeddings", inner) is False:
        return False
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        return True
    return any(re.search("LM|Generation", str(one)) for one in architectures)
