"""Names and sizes of modules as PEFT's configuration has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def wrapper_names(parameters: Sequence[str]) -> dict[str, str]:
    """The module that PEFT's wrapper of each parameter is named after, in the order of the model.

    It wraps a module once for each of its parameters; the first is innermost.

    >>> wrapper_names(["mlp.experts.up", "mlp.experts.down"])["mlp.experts.up"]
    'mlp.experts.base_layer'
    """
    wrappers: dict[str, str] = {}
    inside: Counter[str] = Counter()
    for name in reversed(parameters):
        owner = name.rpartition(".")[0]
        wrappers[name] = f"{owner}{'.base_layer' * inside[owner]}"
        inside[owner] += 1
    return wrappers


def usual_size(sizes: Mapping[str, int], usual: int = 0) -> tuple[int, dict[str, int]]:
    """The most frequent size, and the others by the key that PEFT finds their module by."""
    usual = usual or next((size for size, _ in Counter(sizes.values()).most_common(1)), 1)
    # PEFT takes a key to fit any name that ends with it after a dot: its rule is the expression
    # (.*\.)?(KEY)$. The ^ excludes what comes before.
    return usual, {f"^{re.escape(name)}": size for name, size in sizes.items() if size != usual}


def target_modules(modules: Iterable[str], *, is_ambiguous: bool) -> list[str] | str:
    """The modules as a list, or as one regular expression if the list would fit others as well.

    PEFT takes an entry of a list to fit any name that ends with it after a dot. It compares a
    regular expression with the whole name.
    """
    return "|".join(map(re.escape, modules)) if is_ambiguous else list(modules)
