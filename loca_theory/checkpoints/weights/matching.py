"""Which tensors of two checkpoints belong together, by their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Checkpoint

# Modules of language models that share one weight, in the order in which to look for the other.
_EMBEDDINGS = ("shared", "embed_tokens", "wte", "word_embeddings")
_TIED = {"lm_head": _EMBEDDINGS, **dict.fromkeys(_EMBEDDINGS, ("lm_head",))}
_OTHER_HEADS = ("score", "classifier")
_MODULE = re.compile(r"(?:^|\.)(\w+)\.weight$")


def match_names(tuned: Sequence[str], base: Collection[str]) -> tuple[dict[str, str], str]:
    """The base's name of each tensor in both, and the prefix that only one side has, if any."""
    in_base = set(base)
    plain = {name: name for name in tuned if name in in_base}
    best, best_prefix = plain, ""
    for removed, added in _changes(tuned, in_base):
        own = {one: added + one.removeprefix(removed) for one in tuned if one.startswith(removed)}
        changed = {name: other for name, other in own.items() if other in in_base}
        # A prefix has to explain more than what matches without it.
        if len(changed) > len(best) - sum(name in changed for name in plain):
            taken = set(changed.values())
            exact = {n: n for n in plain if n not in changed and n not in taken}
            both = {**changed, **exact}
            if len(both) > len(best):
                best, best_prefix = both, removed + added
    return {name: best[name] for name in tuned if name in best}, best_prefix


def _changes(tuned: Iterable[str], base: set[str]) -> Iterator[tuple[str, str]]:
    """Prefixes that the names of one side may have: of the fine-tuned side, or of the base."""
    for longer, shorter, is_tuned in ((tuned, base, True), (base, set(tuned), False)):
        counts: Counter[str] = Counter()
        for name in longer:
            parts = name.split(".")
            for i in range(1, len(parts)):
                if ".".join(parts[i:]) in shorter:
                    counts[".".join(parts[:i]) + "."] += 1
                    break
        for prefix, _ in counts.most_common(3):
            yield (prefix, "") if is_tuned else ("", prefix)


def tied_weight(name: str, shape: tuple[int, ...], other: Checkpoint) -> str | None:
    """The weight of another checkpoint that serves there as the output head or input embedding.

    Many models tie the two, and their files hold only one of them. It is the only embedding, or
    head, of as many columns there; None if there is none or there are several, if the configuration
    says that they are not tied, or if the other checkpoint has another head or none.
    """
    if len(shape) != 2 or not _may_be_tied(other):
        return None
    for module in _TIED.get(_module(name), ()):
        found = [
            own
            for own, entry in other.entries.items()
            if _module(own) == module and len(entry.shape) == 2 and entry.shape[1] == shape[1]
        ]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _module(name: str) -> str:
    found = _MODULE.search(name)
    return found[1] if found else ""


def _may_be_tied(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    text = config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, dict) else None
    if config.get("tie_word_embeddings", inner) is False:
        return False
    if any(_module(name) in _OTHER_HEADS for name in checkpoint.entries):
        return False
    classes = config.get("architectures")
    if not isinstance(classes, list) or not classes:
        return True
    return any(re.search("LM|Generation", str(one)) for one in classes)
