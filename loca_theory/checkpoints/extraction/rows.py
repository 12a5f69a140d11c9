"""Rows of the table of an extraction, and the card of its adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.change.comparable import reasons
from loca_theory.checkpoints.extraction.serving import serving_engines
from loca_theory.checkpoints.form.forms import FORMS
from loca_theory.checkpoints.form.loading import loading_code

_TEMPLATE = Path(__file__).with_name("card.md.j2")


@dataclass(frozen=True)
class ExtractedMatrix:
    """Size and error of the best adapter of one increment.

    Attributes:
        name: Name of the weight.
        shape: (p, q), after a ``Conv1D`` weight is transposed and a kernel is flattened; of experts
            in one parameter, with the rows of all.
        method: ``lora``, ``loca`` or ``entries``.
        r: The r of LoRA or SHiRA; None for LoCA; 0 if the split of a total left nothing for this
            matrix.
        components: Number of LoCA's coefficients; None for other methods.
        numbers: Number of learned parameters.
        error: Relative squared error of the stored difference, with the parameters as they are
            stored.
        gap: Estimate of how much smaller the error of the best adapter of this size and method is.
        energy: Squared norm of the increment.
        uniform_error: Relative squared error with the uniform size; None if no total was split, or
            if methods are mixed, as for the next three.
        uniform_size: Rank or number of coefficients if all matrices get the same: the largest that
            the total pays for, or all that this matrix can have.
        equal_error: Error over all increments together if the split has only what the uniform sizes
            cost; the same in every row.
        least_error: Lower bound of this error with any split of the total; the same in every row.
        loaded_error: Relative squared error of this weight in the model, after PEFT has loaded and
            merged the adapter; None before :meth:`Extraction.verify`.
        surviving_energy: Fraction of the adapter's energy that is left in a base of few bits, if
            the sum is rounded to as many; None if it was not asked for.
        format: Format of the fine-tune, by its values, if rounding cells were looked into; None if
            not, or if it has 24 significant bits, as for the next five.
        steps: Steps that led from the adapter that is nearest to the stored difference into the
            cells; 0 if it is that one.
        distance: Squared distance of the adapter to the cells, relative to the energy of the stored
            difference, as errors are.
        nearest_error: Error of the adapter that is nearest to the stored difference: the truncated
            singular value decomposition, or the largest coefficients.
        nearest_distance: Distance of that nearest adapter from the cells.
        held_out: Distance of entries that the adapter was not fitted to; it decided the steps.
        identical: Fraction of the entries that PEFT gives back to the bit if it merges the adapter
            in the format of the fine-tune, with the adapter in float32; None before
            :meth:`Extraction.verify`, as for the next three.
        identical_half: The same with the adapter in the type of the base.
        identical_safe: The same in float32 with ``safe_merge=True``, which rounds ΔW first.
        identical_half_safe: The same in the type of the base with ``safe_merge=True``.
    """

    name: str
    shape: tuple[int, int]
    method: str
    r: int | None
    components: int | None
    numbers: int
    error: float
    gap: float
    energy: float
    uniform_error: float | None = None
    uniform_size: int | None = None
    equal_error: float | None = None
    least_error: float | None = None
    loaded_error: float | None = None
    surviving_energy: float | None = None
    format: str | None = None
    steps: int | None = None
    distance: float | None = None
    nearest_error: float | None = None
    nearest_distance: float | None = None
    held_out: float | None = None
    identical: float | None = None
    identical_half: float | None = None
    identical_safe: float | None = None
    identical_half_safe: float | None = None


def card_of(extraction: Any, method: str) -> str:
    """The card of one of the adapters of an extraction, in Markdown."""
    from jinja2 import Template

    adapter, form = extraction.adapters[method], FORMS[method]
    config, grid = adapter.config, extraction.manifest["grid"]
    template = Template(_TEMPLATE.read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        extraction=extraction,
        grid=grid,
        form=form,
        matrices=[row for row in extraction.matrices if row.method == method],
        base=json.dumps(config["base_model_name_or_path"]),
        saved=[module.removeprefix(PREFIX) for module in config["modules_to_save"] or ()],
        left_out=reasons(extraction.skipped) or "nothing",
        engines=serving_engines(form, config, adapter.tensors),
        loading=loading_code(extraction.adapters, grid["model"], grid["vocabulary"]),
    )
