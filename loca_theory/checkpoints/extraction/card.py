"""The card of an extracted adapter: what it is, its error, and how to load it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.sizing.adapter_size import TITLES
from loca_theory.checkpoints.sizing.engines import engines_of
from loca_theory.checkpoints.sizing.peft_config import PREFIX

_TEMPLATE = Path(__file__).with_name("card.md.j2")


def card_of(found: Any, method: str) -> str:
    """The card of one of the adapters of an extraction, in Markdown."""
    from jinja2 import Template

    adapter = found.adapters[method]
    config = adapter.config
    template = Template(_TEMPLATE.read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        found=found,
        grid=found.manifest["grid"],
        method=method,
        title=TITLES[method],
        matrices=[one for one in found.matrices if one.method == method],
        base=json.dumps(config["base_model_name_or_path"]),
        saved=[one.removeprefix(PREFIX) for one in config["modules_to_save"] or ()],
        left_out=reasons(found.skipped),
        engines=engines_of(method, config, adapter.tensors),
    )


def reasons(skipped: Sequence[Skipped]) -> str:
    """How many tensors were left out for each of the most frequent reasons."""
    counts = Counter(one.reason.partition(":")[0] for one in skipped)
    found = [f"{n} tensor{'s' * (n > 1)} ({reason})" for reason, n in counts.most_common(6)]
    return ", ".join(found) or "nothing"
