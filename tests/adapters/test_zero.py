"""A search that follows an engine with flat parameters, as DeepSpeed's ZeRO has them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LocationTraining, follow_deepspeed
from loca_theory.errors import InvalidArgumentError

from .searching import batches, close, same, small, spectra, train

SCHEDULE = AlternatingSchedule(2, 3, 12, recorded_steps=2)
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}


class FlatEngine:
    """A stand-in for DeepSpeed's engine at stage 2 in a single process, with DeepSpeed's names."""

    def __init__(self, model, parts):
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in self.trained]))
        self.optimizer = torch.optim.SGD([self.flat], **SGD)
        self.model, self.parts, self.micro_steps, self.has_fp16 = model, parts, 0, False
        self.grads, start = torch.zeros_like(self.flat), 0
        for p in self.trained:
            address = SimpleNamespace(start=0, numel=p.numel())
            master = self.flat.data.narrow(0, start, p.numel())
            p._hp_mapping = SimpleNamespace(
                lp_fragment_address=address, hp_fragment=master, optim_fragment=None, start=start
            )
            p.get_full_hp_param = master.clone
            start += p.numel()

    def fp16_enabled(self):
        return self.has_fp16

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.parts == 0

    def backward(self, loss):
        """It takes the gradients away, as ZeRO does."""
        (loss / self.parts).backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.trained]
        self.grads += torch.cat(found)
        for p in self.trained:
            p.grad = None

    def step(self):
        if self.is_gradient_accumulation_boundary():
            self.flat.grad = self.grads
            self.optimizer.step()
            self.grads = torch.zeros_like(self.flat)
            momentum = self.optimizer.state[self.flat]["momentum_buffer"]
            for p in self.trained:
                mapping = p._hp_mapping
                p.data.copy_(mapping.hp_fragment)
                mine = momentum.narrow(0, mapping.start, p.numel())
                mapping.optim_fragment = {"momentum_buffer": mine}
        self.micro_steps += 1


def searching(search, start="random"):
    model = small()
    model.requires_grad_(False)
    for layer in spectra(model):
        layer.coefficients.requires_grad_()
    return model, LocationTraining(
        model, SCHEDULE, search=search, init_locations=start, location_lr=0.1
    )


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("start", ["random", "gradient"])
@pytest.mark.parametrize("search", ["central", "reselect", "swap"])
def test_flat_parameters_learn_what_others_do(search, start, parts):
    (plain, _), (other, training) = searching(search, start), searching(search, start)
    optimizer = torch.optim.SGD([layer.coefficients for layer in spectra(plain)], **SGD)
    engine = FlatEngine(other, parts)
    follow_deepspeed(training, engine)
    before = [layer.indices.clone() for layer in spectra(other)]
    for step in range(15):
        torch.manual_seed(step)  # for the components that share a location
        train(plain, optimizer, 1, start=step)
        torch.manual_seed(step)
        ((x, y),) = batches(1, step)
        for part in range(parts):
            rows = slice(part, None, parts)
            engine.backward((other(x[rows]) - y[rows]).square().mean())
            engine.step()
        for mine, theirs in zip(spectra(other), spectra(plain), strict=True):
            assert torch.equal(mine.indices, theirs.indices), step
            close(mine.coefficients, theirs.coefficients)
    assert training.is_over
    assert not same(before, [layer.indices for layer in spectra(other)])


def test_a_search_that_does_not_follow_its_engine_is_an_error():
    model, _ = searching("central")
    engine = FlatEngine(model, 1)
    engine.backward(model(batches(1)[0][0]).sum())
    with pytest.raises(InvalidArgumentError, match="does not see the steps of DeepSpeed"):
        engine.step()

    other, _ = searching("central")  # the first model is used no more, and does not disturb it
    train(other, torch.optim.SGD([layer.coefficients for layer in spectra(other)], **SGD), 1)


def test_engines_that_cannot_be_followed_are_refused():
    model, training = searching("central")
    with pytest.raises(InvalidArgumentError, match="does not hold the coefficients"):
        follow_deepspeed(training, SimpleNamespace(step=None))
    engine = FlatEngine(model, 1)
    engine.has_fp16 = True
    with pytest.raises(InvalidArgumentError, match="loss scaling of fp16; use bf16"):
        follow_deepspeed(training, engine)
