"""The forms of adapters by name. A new one is a module beside this one, and a line here."""

from __future__ import annotations

from loca_theory.checkpoints.form.entries import PlainEntries
from loca_theory.checkpoints.form.form import AdapterType, Form
from loca_theory.checkpoints.form.fourierft import FourierFT
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.loca import LoCA
from loca_theory.checkpoints.form.lora import LoRA

LORA = LoRA()
LOCA = LoCA()
_TYPES = (LORA, LOCA, FourierFT(), PlainEntries())

TYPES: dict[str, AdapterType] = {kind.method: kind for kind in _TYPES}
"""The types of adapters that an analysis compares and proposes, by method."""

FORMS: dict[str, Form] = {form.key: form for form in _TYPES if isinstance(form, Form)}
"""Those of which the best adapter for an increment is known, by key."""

SPLIT = tuple(form for form in FORMS.values() if not form.one_size)
"""The forms that give each layer its own size, so that layers can share a total."""

CHOICES = {key: (form,) for key, form in FORMS.items()} | {"best": SPLIT}
"""The forms that a layer can have, by what is asked for; it gets the best of them."""


def forms_of(layer: Layer) -> tuple[Form, ...]:
    """The forms that a layer can have."""
    return tuple(form for form in FORMS.values() if form.obstacle(layer) is None)
