"""What bounds a step: its operations, bytes and products, counted on steps that are known."""

import pytest
import torch

from benchmarks._bounds import Rates, Work, bounds
from benchmarks.layer import LayerCase, measure
from loca_theory.adapters import CosineSpectrum
from loca_theory.adapters.pattern import compressed_rows

TWO = torch.tensor([1, 2])


def test_a_product_and_a_sum_are_counted():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    with Work() as work:
        (a @ b).T.add_(1)
    assert work.operations == 2  # a transpose moves nothing
    assert work.flops == {torch.float32: 2 * 3 * 5 * 7}
    product = 4 * (3 * 5 + 5 * 7 + 3 * 7)
    assert work.bytes == product + 4 * 2 * 3 * 7


@pytest.mark.parametrize(
    ("step", "operations", "numbers"),
    [
        (lambda x: x[TWO], 1, 2 * (4 + 4) + 4),  # an index has 8 bytes
        (lambda x: torch.empty(50, 50), 0, 0),
        (lambda x: x.zero_(), 1, 4000),
        (lambda x: torch.ones(1).expand(1000) + x[:, 0], 2, 1 + 1 + 1000 + 1000),
        (lambda x: x.sum(), 1, 4001),
    ],
    ids=["gather", "allocation", "fill", "expanded", "sum"],
)
def test_only_what_is_moved_counts(step, operations, numbers):
    x = torch.ones(1000, 4)
    with Work() as work:
        step(x)
    assert work.operations == operations
    assert work.bytes == 4 * numbers


def test_a_sparse_matrix_counts_its_entries():
    starts, columns = torch.arange(101), torch.arange(100)
    pattern = compressed_rows(starts, columns, torch.ones(100), 100)
    left, right = torch.ones(100, 3), torch.ones(3, 100)
    with Work() as work:
        torch.sparse.sampled_addmm(pattern, left, right, beta=0.0)
    assert work.bytes == 2 * 100 * (4 + 8) + 4 * 2 * 300


def test_the_operations_inside_of_locas_operator_count():
    """The layer's own operator is one operation for torch, and a gradient pass has another."""
    layer = CosineSpectrum((8, 12), 10)
    x = torch.ones(4, 12, requires_grad=True)
    with Work() as forward:
        y = layer(x)
    with Work() as backward:
        y.sum().backward()
    assert forward.operations > 2
    assert backward.operations > 2
    assert x.grad is not None
    assert layer.coefficients.grad is not None


@pytest.mark.parametrize(
    ("rates", "reason", "milliseconds"),
    [
        (Rates(1e3, 1e12, {torch.float32: 1e12}), "launches", 2.0),
        (Rates(1e6, 1e5, {torch.float32: 1e12}), "bytes", 4.52),
        (Rates(1e6, 1e12, {torch.float32: 1e5}), "flops", 2.1),
    ],
)
def test_the_largest_time_is_the_bound(monkeypatch, rates, reason, milliseconds):
    monkeypatch.setattr("benchmarks._bounds.rates", lambda _: rates)
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    row = bounds(lambda: (a @ b).add_(1), "cpu")
    assert row["operations"] == 2
    assert row["bound_by"] == reason
    assert row["bound_ms"] == row[f"{reason}_ms"] == pytest.approx(milliseconds)


def test_rivals_have_their_bound():
    load, names = LayerCase(16, 20, 8, 2, "bfloat16"), ("frozen", "LoRA", "LoCA", "LoCA locations")
    rows = {row["rival"]: row for row in measure(load, "cpu", 2, names, tiny=True)}
    assert list(rows) == list(names)
    counts = [row["operations"] for row in rows.values()]
    assert counts == sorted(counts)
    assert all(row["bound_ms"] > 0 for row in rows.values())


def test_nothing_is_known_of_a_step_without_torch():
    assert bounds(lambda: sum(range(10)), "cpu") == {}
