"""A device that is not the CPU, on the CPU: what is written for GPUs runs on it without one.

A tensor on it holds one of the CPU and shows it to nobody else: mixing it with tensors of the CPU
fails as on a GPU, and so does handing it to NumPy. Whatever would make the CPU wait for a GPU is
noted. It takes torch's location for a backend outside its tree, for good: processes that use it do
nothing else. ``LOCA_THEORY_PRETEND=1`` puts it in the place of ``cuda`` for tests of any device.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
# The size of the result, or a number for the CPU, is in the entries.
_READS = {
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "repeat_interleave",
    "unique_dim",
}
_COPIES = {"_to_copy", "copy_"}
_INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}
_aten = torch.ops.aten
_PRODUCTS = {_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default}

waits: list[str] = []


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


_setup_privateuseone_for_python_backend(rename=NAME, backend_module=_Backend())
DEVICE = torch.device(NAME, 0)
# Autocast casts nothing here.
_autocast = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_autocast.fallback(torch.library.fallthrough_kernel)


class _Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, raw):
        layout = {}
        if raw.layout is torch.strided:
            layout = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), dtype=raw.dtype, device=DEVICE, **layout
        )
        tensor.raw = raw
        return tensor

    @property
    def data(self):
        return _Tensor(self.raw)

    @data.setter
    def data(self, other):
        torch.Tensor.data.__set__(self, other)
        self.raw = other.raw

    def untyped_storage(self):
        return self.raw.untyped_storage()

    def __repr__(self, **_):
        return f"{self.raw!r} on {NAME}"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl


class _Mode(TorchDispatchMode):
    """Sees the making of tensors as well, which no tensor is an argument of."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ours = any(isinstance(leaf, _Tensor) for leaf in tree_leaves((args, kwargs)))
        return (_run if ours or _is_here(kwargs.get("device")) else _plain)(function, args, kwargs)


def _plain(function, args, kwargs):
    return function(*args, **kwargs)


def _is_here(device):
    return device is not None and torch.device(device).type == NAME


def _raw(value):
    return value.raw if isinstance(value, _Tensor) else value


def _doubled(value):
    return value.double() if isinstance(value, torch.Tensor) else value


def _run(function, args, kwargs):
    name = function._schema.name.removeprefix("aten::")
    if name in OPDEFS:  # an operator in Python: its body sees this device, as it would see a GPU
        with _Mode():
            return OPDEFS[name]._init_fn(*args, **kwargs)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, _Tensor)]
    # Numbers of the CPU may be taken anywhere.
    plain = [t for t in tensors if not isinstance(t, _Tensor) and t.ndim]
    target = kwargs.get("device")
    if name in _COPIES:
        device = torch.device(target or tensors[0].device)
        if len({*(t.device.type for t in tensors), device.type}) > 1:
            waits.append(name)
    elif plain and name not in _INDEXES and not name.endswith("_like"):  # of these only the shape
        msg = f"Expected all tensors to be on the same device: {name} of {NAME} and cpu"
        raise RuntimeError(msg)
    masks = name.startswith("index") and any(t.dtype == torch.bool for t in ours[1:])
    if ours and (name in _READS or masks or (plain and name in _INDEXES)):
        waits.append(name)
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    raw = tree_map(_raw, args)
    if function in _PRODUCTS and raw[0].dtype == torch.float32:
        # Rounded once: the CPU's BLAS differs between processors, and says nothing of a GPU's.
        output = function(*tree_map(_doubled, raw), **kwargs).float()
    else:
        output = function(*raw, **tree_map(_raw, kwargs))
    stays = _is_here(target) if target is not None else isinstance(tensors[0], _Tensor)
    stays = stays or (name != "copy_" and target is None)
    by_storage = {id(tensor.raw): tensor for tensor in ours}  # what is changed in place

    def placed(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in by_storage:
            return by_storage[id(value)]
        if not stays or name == "_local_scalar_dense":
            return value
        # A lazy conjugate would be taken for what it conjugates.
        return _Tensor(torch._conj_physical(_raw(args[0])) if value.is_conj() else value)

    return tree_map(placed, output)


def _tensor(original):
    """``torch.tensor`` of data of the CPU: a copy, before any mode sees it."""

    def make(data, *, dtype=None, device=None, requires_grad=False):
        tensor = original(data, dtype=dtype, device=None if _is_here(device) else device)
        return (tensor.to(device) if _is_here(device) else tensor).requires_grad_(requires_grad)

    return make


def _new_tensor(original):
    def make(self, data, *, dtype=None, **options):
        if isinstance(self, _Tensor):
            return torch.tensor(data, dtype=dtype or self.dtype, device=self.device)
        return original(self, data, dtype=dtype, **options)

    return make


def _sparse(original):
    """Compressed rows, which torch keeps from backends outside its tree."""

    def make(starts, columns, values, *shape, **options):
        if not isinstance(values, _Tensor):
            return original(starts, columns, values, *shape, **options)
        with _disable_current_modes():
            parts = (_raw(part.detach()) for part in (starts, columns, values))
            return _Tensor(original(*parts, *shape, **options))

    return make


@contextmanager
def active():
    """Inside, tensors can be made on the device."""
    patched = [
        (torch, "tensor", _tensor),
        (torch.Tensor, "new_tensor", _new_tensor),
        (torch, "sparse_csr_tensor", _sparse),
    ]
    before = [getattr(owner, name) for owner, name, _ in patched]
    for (owner, name, wrap), original in zip(patched, before, strict=True):
        setattr(owner, name, wrap(original))
    try:
        with _Mode():
            yield
    finally:
        for (owner, name, _), original in zip(patched, before, strict=True):
            setattr(owner, name, original)
