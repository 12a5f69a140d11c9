"""The lines of an adapter's card that load it with PEFT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from loca_theory.checkpoints.form.folder import Adapter
from loca_theory.checkpoints.form.forms import FORMS

_TEMPLATE = Path(__file__).with_name("loading.md.j2")


def loading_code(
    adapters: Mapping[str, Adapter], model: str | None, vocabulary: int | None = None
) -> str:
    """Python code, in Markdown, that loads adapters into their base.

    Args:
        adapters: The adapters by the keys of their forms, one or two.
        model: The class of the base; None if it is not known.
        vocabulary: The number of rows to which the embeddings are resized first, if they are.
    """
    from jinja2 import Template

    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    (base, *_) = (adapter.config["base_model_name_or_path"] for adapter in adapters.values())
    return template.render(
        adapters=adapters,
        packages={FORMS[key].config_class[0] for key in adapters} - {"peft"},
        model=model,
        of_transformers=_is_of_transformers(model),
        base=json.dumps(base),
        vocabulary=vocabulary,
    )


def _is_of_transformers(model: str | None) -> bool:
    """Whether transformers has a class of this name."""
    if model is None or find_spec("transformers") is None:
        return False
    import transformers

    return hasattr(transformers, model)
