"""Predictors against explicit matrices on tiny shapes."""

import numpy as np
import pytest
import torch
from torch import nn

from experiments.finetuning.methods import Method, find_method
from experiments.finetuning.prediction.curvature import LayerStatistics, record_statistics
from experiments.finetuning.prediction.predictors import predictors
from experiments.finetuning.prediction.reach import (
    Metric,
    cosines,
    family,
    first_steps,
    learned_locations,
    linear,
    low_rank,
    reach,
)
from loca_theory.expressivity import Accounting, Budget

P, Q = 4, 6


def psd(n, rng):
    root = torch.from_numpy(rng.standard_normal((n, n)))
    return root @ root.T


def orthonormal(n, rng):
    basis = torch.linalg.qr(torch.from_numpy(rng.standard_normal((P * Q, n))))[0]
    return basis.T.unflatten(1, (P, Q))


def dense(metric):
    """M as a matrix on row-major vectors."""
    return torch.kron(metric.outputs, metric.inputs) + metric.damping * torch.eye(P * Q).double()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def metric(rng):
    return Metric(psd(P, rng), psd(Q, rng), 0.3)


@pytest.fixture
def matrix(rng):
    return torch.from_numpy(rng.standard_normal((P, Q)))


def test_a_low_rank_retains_the_largest_eigenvalues(matrix, rng):
    """Those of G ΔW A ΔWᵀ, by Eckart and Young for √G ΔW √A."""
    metric, r = Metric(psd(P, rng), psd(Q, rng)), 2
    values = np.linalg.eigvals(metric.outputs @ matrix @ metric.inputs @ matrix.T)
    start = first_steps(matrix, r, rng, magnitudes=False)
    found = low_rank(r, start).retained(matrix, metric)
    assert found == pytest.approx(np.sort(values.real)[-r:].sum())


def test_learned_locations_weigh_coefficients_by_the_curvature(metric, matrix):
    everything = cosines(torch.arange(P * Q), P, Q)
    flat = everything.flatten(1)
    h = (flat @ dense(metric) * flat).sum(1)
    c = flat @ matrix.flatten()
    start = learned_locations(4).tangent(matrix, metric)
    want = everything[(c.square() / h).topk(4).indices]
    assert torch.allclose(start, want)
    undamped = Metric(metric.outputs, metric.inputs)
    h = (flat @ dense(undamped) * flat).sum(1)
    fitted = linear(everything[(c.square() * h).topk(4).indices])
    found = learned_locations(4).retained(matrix, undamped)
    assert found == pytest.approx(fitted.retained(matrix, undamped))


@pytest.mark.parametrize(
    ("name", "dimension"),
    [("V1", 40), ("SHiRA", 40), ("WaveFT-PEFT", 40), ("C3A", 24), ("FourierFT", None)],
)
def test_a_family_of_the_package_is_its_projection(name, dimension, rng):
    from loca_theory.expressivity import approximate

    budget = Budget(8, 12, 2, Accounting.TRAINABLE)
    matrix = torch.from_numpy(rng.standard_normal((8, 12)))
    atoms = family(name, budget, np.random.default_rng(1))
    flat = atoms.flatten(1)
    assert torch.allclose(flat @ flat.T, torch.eye(len(flat)).double())
    assert dimension is None or len(flat) == dimension
    want = approximate(matrix, name, budget, np.random.default_rng(1))
    assert torch.allclose((flat.T @ (flat @ matrix.flatten())).unflatten(0, (8, 12)), want)


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_the_first_steps_are_those_of_peft(kind):
    """Gradients of the adapter's first step, whatever the loss, span the family."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(Q, P, bias=False)).double()
    weight = inner[0].weight.detach().clone()
    model = get_peft_model(
        inner, LoraConfig(r=2, lora_alpha=2, target_modules=["0"], use_dora=kind == "dora")
    ).double()
    trained = [p for p in model.parameters() if p.requires_grad]
    moved = []
    for entry in range(P * Q):
        # The step of the trained numbers along one entry of ΔW, as an increment.
        y = model(torch.eye(Q).double()).T
        grads = torch.autograd.grad(y.flatten()[entry], trained)
        moved.append([g.flatten() for g in grads])
    jacobian = torch.stack([torch.cat(rows) for rows in moved])
    layer = next(m for m in model.modules() if hasattr(m, "lora_A"))
    a = layer.lora_A["default"].weight.detach()

    class Fixed:
        def uniform(self, low, high, size):
            assert (low, high, size) == (-(Q**-0.5), Q**-0.5, (2, Q))
            assert (a.abs() <= high).all()
            return a.numpy()

    atoms = first_steps(weight, 2, Fixed(), magnitudes=kind == "dora").flatten(1)
    assert torch.allclose(atoms @ atoms.T, torch.eye(len(atoms)).double())
    left, values, _ = torch.linalg.svd(jacobian)
    span = left[:, : int((values > 1e-6).sum())]
    assert torch.allclose(span @ span.T, atoms.T @ atoms, atol=1e-6)


def test_every_predictable_method_has_a_reach_of_its_budget(rng):
    weight, r = torch.from_numpy(rng.standard_normal((8, 12))), 2
    known = [Method(kind, kind, kind) for kind in ("waveft", "shira")]
    known += [find_method(name) for name in ("fourierft", "loca", "loca-charged", "loca-v1")]
    for method in known:
        start = reach(method, weight, r, rng).tangent(weight, None)
        most = max(int(method.fraction * 20 * r), 1)
        assert len(start) == most or (method.kind == "fourierft" and len(start) < most)
    for name, is_fixed in (("loca-v1", True), ("loca-gradient", False), ("lora", True)):
        found = reach(find_method(name), weight, r, rng)
        first, other = (found.tangent(one, None) for one in (weight, weight.cumsum(0)))
        assert torch.equal(first, other) == is_fixed
    assert len(first) == 8 * r


class Model(nn.Module):
    """Two layers applied to tokens; the second by its weight alone."""

    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Linear(3, 5), nn.Linear(5, 4)
        self.head, self.unused = nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, inputs, labels):
        h = torch.tanh(self.query(inputs))
        h = nn.functional.linear(h, self.value.weight, self.value.bias).mean(1)
        self.loss = nn.functional.cross_entropy(self.head(h), labels)
        return self


@pytest.fixture
def recorded():
    torch.manual_seed(0)
    model = Model()
    batches = [{"inputs": torch.randn(6, 2, 3), "labels": torch.randint(3, (6,))} for _ in range(2)]
    return model, batches, record_statistics(model, ["query", "value"], batches)


def test_the_statistics_are_those_of_each_example(recorded):
    model, batches, found = recorded
    assert list(found) == ["query.weight", "value.weight"]
    assert model.query.weight.grad is None
    sums = {"gradient": 0, "outputs": 0, "inputs": 0}
    for batch in batches:
        for x, label in zip(batch["inputs"], batch["labels"], strict=True):
            y = model.query(x)
            y.retain_grad()
            h = nn.functional.linear(torch.tanh(y), model.value.weight, model.value.bias).mean(0)
            nn.functional.cross_entropy(model.head(h), label).backward()
            # 12 examples, 2 tokens each; y.grad is of the example's own loss.
            sums["outputs"] += y.grad.T @ y.grad / 12
            sums["inputs"] += x.T @ x / 24
            sums["gradient"] += y.grad.T @ x / 12
    for name, want in sums.items():
        assert torch.allclose(getattr(found["query.weight"], name).float(), want, atol=1e-6)
    assert torch.equal(found["query.weight"].weight.float(), model.query.weight.detach())


@pytest.fixture
def layers(rng):
    return {
        name: LayerStatistics(
            *(torch.from_numpy(rng.standard_normal((P, Q))) for _ in range(2)),
            psd(P, rng),
            psd(Q, rng),
        )
        for name in ("a", "b")
    }


def test_predictors_are_sums_over_layers(layers, rng):
    increments = {name: torch.from_numpy(rng.standard_normal((P, Q))) for name in layers}
    atoms = [orthonormal(5, rng), orthonormal(3, rng)]
    found = predictors(layers, increments, [linear(one) for one in atoms])
    traces = sum(float(torch.kron(x.outputs, x.inputs).trace()) for x in layers.values())
    damping = traces / (2 * P * Q)
    kept = {name: [0.0, 0.0] for name in found}
    for (name, layer), one in zip(layers.items(), atoms, strict=True):
        t, g, w = one.flatten(1), layer.gradient.flatten(), increments[name].flatten()
        f = torch.kron(layer.outputs, layer.inputs)
        near = t.T @ torch.linalg.solve(t @ f @ t.T, t @ f @ w)
        full, own = f + damping * torch.eye(P * Q), t @ f @ t.T
        damped = own + damping * torch.eye(len(t))
        for key, part, whole in (
            ("retained_energy", (t @ w) @ (t @ w), w @ w),
            ("weighted_energy", w @ f @ w - (w - near) @ f @ (w - near), w @ f @ w),
            ("gradient_energy", (t @ g) @ (t @ g), g @ g),
            (
                "predicted_decrease",
                (t @ g) @ torch.linalg.solve(damped, t @ g),
                g @ torch.linalg.solve(full, g),
            ),
            ("effective_dimension", torch.trace(own @ torch.linalg.inv(damped)), 0.5),
        ):
            kept[key][0] += float(part)
            kept[key][1] += float(whole)
    assert found == pytest.approx({key: part / whole for key, (part, whole) in kept.items()})
