"""Layers that are split over processes are refused with one line."""

from types import SimpleNamespace

import pytest
import torch
from peft import get_peft_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from loca_theory.adapters import LoCAConfig
from loca_theory.errors import InvalidArgumentError

from .tiny_models import of_peft

pytestmark = of_peft
SPLIT = "lin: its weight is split over processes for tensor parallelism"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 6)
        self.config = SimpleNamespace(model_type="none", tie_word_embeddings=False)

    def forward(self, x):
        return self.lin(x)


def adapt(model):
    return get_peft_model(model, LoCAConfig(n_frequency=3, target_modules=["lin"]))


@pytest.fixture
def group():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["of the layer", "of the model"])
def test_a_plan_of_transformers_is_refused(kind):
    model = Model()
    if kind == "of the layer":
        model.lin._hf_tp_plan = "colwise"
    else:
        model._device_mesh = SimpleNamespace(mesh_dim_names=None, ndim=1)
        model.config.distributed_config = SimpleNamespace(tp_size=2)
        model.tp_plan = {"lin": "colwise"}
    with pytest.raises(InvalidArgumentError, match=f"{SPLIT}.*by the plan 'colwise'"):
        adapt(model)


@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
def test_a_weight_that_torch_has_split_is_refused(style, group):
    named = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    with pytest.raises(InvalidArgumentError, match=f"{SPLIT}.*over the mesh"):
        adapt(parallelize_module(Model(), named, {"lin": style()}))
    model = adapt(Model())
    parallelize_module(model.base_model.model.lin, init_device_mesh("cpu", (1,)),
                       {"base_layer": style()})  # fmt: skip
    with pytest.raises(InvalidArgumentError, match=f"{SPLIT}.*as a DTensor"):
        model(torch.randn(2, 4))
