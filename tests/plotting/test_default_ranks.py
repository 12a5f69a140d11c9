"""Checkpoints of all kinds have a page at the default ranks, whatever their shapes."""

import json
import re

import pytest
import torch

from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.increments import PrintedTest
from loca_theory.plotting import report

from ..checkpoints.conftest import trained_pair


def changed(shapes, fine_tunes=1):
    """A base with tensors of these shapes, and its fine-tunes."""
    source = torch.Generator().manual_seed(0)
    base, *others = (
        {name: torch.randn(*shape, generator=source) for name, shape in shapes.items()}
        for _ in range(1 + fine_tunes)
    )
    return base, *({name: base[name] + 0.1 * one[name] for name in base} for one in others)


def adapter(folder):
    extract(*demo_pair(), "lora", rank=2, include="layers.0").save(folder)
    return (folder,)


# Those of the tests of checkpoints and pages, and small matrices beside larger ones.
SOURCES = {
    "the demonstration": lambda _: demo_pair(),
    "a trained transformer": lambda _: trained_pair(),
    "an adapter": adapter,
    "one matrix": lambda _: (torch.randn(20, 20, generator=torch.Generator().manual_seed(0)),),
    "no rank that fits": lambda _: (torch.eye(12),),
    "16 rows": lambda _: changed({"fc.weight": (16, 16)}),
    "16 rows beside more": lambda _: changed({"q.weight": (80, 80), "fc.weight": (16, 16)}),
    "a bias of 32 heads": lambda _: changed(
        {"q.weight": (80, 80), "relative_attention_bias.weight": (32, 32)}
    ),
    "a small classifier": lambda _: changed({"q.weight": (80, 80), "classifier.weight": (16, 80)}),
    "two fine-tunes": lambda _: changed({"a.0.q_proj.weight": (40, 30)}, fine_tunes=2),
    "experts": lambda _: changed({"model.layers.0.mlp.experts.gate_up_proj": (3, 20, 24)}),
    "convolutions": lambda _: changed({"conv.weight": (20, 3, 3, 3), "fc.weight": (24, 20)}),
    "a head": lambda _: changed({"a.q.weight": (20, 20), "lm_head.weight": (30, 20)}),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_there_is_a_page_and_a_point_on_its_map_for_every_rank_that_fits(source, tmp_path):
    printed = PrintedTest(copies=10, samples=5000)
    found = analyze(*source(tmp_path / "adapter"), device="cpu", printed=printed)
    assert found.ranks == (8, 16, 32)
    page = report(found).html
    data = json.loads(re.search(r'<script [^>]*id="data">(.*?)</script>', page)[1])
    fitting = {(error.tuned, error.name, error.r) for error in found.errors}
    for r in found.ranks:
        expected = [(row.tuned, row.name, r) in fitting for row in found.matrices]
        fractions = data["coefficients"].get(str(r), [None] * len(expected))
        assert [one is not None for one in fractions] == expected
        for row, one in zip(found.matrices, fractions, strict=True):
            p, q = row.shape
            assert one is None or one == pytest.approx((p + q) * r // 2 / (p * q), rel=1e-5)
