"""Task ``generation``: bytes of docstrings, for a small GPT pretrained on source without them.

Source and docstrings are those of Python's standard library; training and test files differ.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.finetuning.tasks.prepared import Split
from experiments.finetuning.tasks.pretraining import pretrain
from loca_theory.errors import ResourceError

_BYTES, _BATCH = 256, 16
_EXCLUDED = ("test", "site-packages", "idlelib", "lib2to3", "encodings")
_FRACTIONS = {"validation": 0.15, "test": 0.25}


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of docstring bytes, and pretrain a model on the source without docstrings."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [
        path
        for path in sorted(root.rglob("*.py"))
        if not any(part in path.relative_to(root).as_posix() for part in _EXCLUDED)
    ]
    choice = random.Random(0)
    choice.shuffle(paths)
    bounds = [round(fraction * len(paths)) for fraction in _FRACTIONS.values()]
    parts = {
        "validation": paths[: bounds[0]],
        "test": paths[bounds[0] : sum(bounds)],
        "train": paths[sum(bounds) :],
    }
    length = chosen["length"]
    splits = {}
    for split, files in parts.items():
        words = "\n\n".join(text for path in files for text in _separated(path)[1])
        blocks = _blocks(words, length)
        order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))
        blocks = blocks[order[: chosen.get(split)]]
        splits[split] = {"input_ids": blocks, "labels": blocks}
    source = _blocks("\n".join(_separated(path)[0] for path in parts["train"]), length)
    if min(len(source), *(len(split["labels"]) for split in splits.values())) == 0:
        msg = f"{root} has no source files of Python's standard library; use a Python that does"
        raise ResourceError(msg)
    with torch.random.fork_rng(devices=[]):
        # Modules initialise from the global generator and take no other; it is restored afterwards.
        torch.default_generator.manual_seed(0)
        model = _model(chosen)
        pretrain(
            model,
            {"input_ids": source, "labels": source},
            steps=chosen["pretraining_steps"],
            batch=_BATCH,
            rate=chosen["pretraining_rate"],
        )
    return splits, {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}


def base(chosen: dict[str, Any], weights: Split) -> nn.Module:
    """The pretrained model; there is no new head."""
    model = _model(chosen)
    model.load_state_dict(weights, strict=False)
    return model


def _model(chosen: dict[str, Any]) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=_BYTES,
        n_positions=chosen["length"],
        n_embd=chosen["width"],
        n_layer=chosen["layers"],
        n_head=chosen["heads"],
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def _separated(path: Path) -> tuple[str, list[str]]:
    """Source without its docstrings, and the docstrings."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError, RecursionError):
        return "", []
    # Not splitlines(), which ends lines where Python's parser does not, at form feeds.
    lines, found = text.split("\n"), []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = ast.get_docstring(node)
        if words is None:
            continue
        found.append(words)
        target = node.body[0]
        if not isinstance(node, ast.Module) and target.lineno == node.lineno:
            continue  # definition and docstring are on one line
        lines[target.lineno - 1 : target.end_lineno] = [""] * (
            (target.end_lineno or target.lineno) - target.lineno + 1
        )
    return "\n".join(lines), found


def _blocks(text: str, length: int) -> torch.Tensor:
    values = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(torch.int64)
    whole = len(values) // length
    return values[: whole * length].view(whole, length)
