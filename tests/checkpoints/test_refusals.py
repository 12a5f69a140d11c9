"""What ``analyze`` and ``extract`` refuse: one line that says what is wrong and what to do."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from loca_theory.checkpoints import analyze, demo_pair, extract
from loca_theory.errors import InvalidArgumentError

SQUARE = np.random.default_rng(0).normal(size=(20, 20))
SIDES = {"a.fc.weight": SQUARE, "b.fc.weight": SQUARE}, {"a.fc.weight": 2 * SQUARE}
NORMED = {"a.weight_g": SQUARE[:, :1], "a.weight_v": SQUARE, "b.weight": SQUARE}
WEIGHTS = {f"{i}.weight": SQUARE for i in range(3)}
OTHER = nn.Sequential(nn.Linear(20, 25), nn.Linear(20, 20), nn.Linear(20, 20))
pair = partial(analyze, *SIDES)
demo = partial(extract, *demo_pair())
extracted = partial(demo, "lora", rank=2)
# Refused before anything is read.
nothing = partial(extract, "none", "none")
REFUSED = [
    (partial(analyze, SQUARE[0]), r"the array has shape \(20,\); pass a matrix"),
    (partial(analyze, SQUARE[None]), r"the array has shape \(1, 20, 20\); pass a matrix"),
    (partial(analyze, np.empty((0, 3))), r"the array has shape \(0, 3\); pass a matrix"),
    (partial(analyze, np.ones((9, 9))), "every entry of the increment is the same; pass a matrix"),
    (partial(analyze, np.zeros((9, 9))), "every entry of the increment is 0; pass a matrix"),
    (partial(analyze, SQUARE * np.inf), "not finite: 400 of 400 .* pass a matrix with finite"),
    (partial(analyze, SQUARE + 1j), "the array must be real .* pass its real part"),
    (partial(analyze, [[1.0, 2.0]]), "not a list; convert a matrix with numpy.asarray"),
    (partial(analyze, {"a": 3}), "holds no tensor; pass what model.state_dict"),
    (partial(analyze, nn.Linear(9, 9, device="meta")), "on the meta device .* load them"),
    (partial(analyze, SQUARE, epsilon=1.0), r"epsilon must be .* not 1\.0; .*=0\.001"),
    (partial(analyze, SQUARE, allocate=50), "can have an adapter, and there is none"),
    (partial(analyze, {"x": SQUARE}, {"y": SQUARE}), "in common"),
    (
        partial(analyze, *demo_pair(), demo_pair()[1]),
        rf"^{demo_pair()[1]} is given twice; give every fine-tune once",
    ),
    (partial(analyze, Path(__file__).parent, SQUARE), r"holds no checkpoint; pass a folder with"),
    *(
        (partial(analyze, f"hub:{name}", SQUARE), "does not name a repository")
        for name in ("a", "a/b/c", "/b", "a/")
    ),
    (partial(pair, max_size=100), r"is left .*: 1 tensors? \(larger than"),
    (partial(pair, include="("), "include must be a regular expression"),
    (partial(pair, group="("), "group must be a regular expression"),
    (partial(pair, experts="all"), "interpretation of experts 'all'"),
    (
        partial(pair, allocate=600, accounting="paper"),
        'splits 600 trainable numbers, which accounting="paper" would count otherwise; leave',
    ),
    (partial(pair, ranks=1, allocate="35B"), "35 bytes is too small: one coefficient costs 36"),
    (partial(nothing, "loca", rank=2, components=3), "or energy=0.9"),
    (partial(nothing, "lora", components=3), "components is for LoCA only; .*rank=8"),
    (partial(nothing, "lora"), 'exactly one size; pass one of rank=8, allocate="4MB" or energy'),
    (partial(nothing, "lora", rank=1, serve="vlm"), "unknown engine 'vlm'; did you mean vllm"),
    (partial(nothing, "loca", rank=1, serve="vllm"), "vLLM serves LoRA only, and method is loca"),
    (partial(nothing, "lora", rank=0), "rank must be at least 1, not 0"),
    (partial(nothing, "lora", energy=1.1), "must be above 0 and at most 1, not 1.1"),
    (partial(nothing, "lora", allocate=9, floor=3, cap=2), "at least 0 and at most cap, not 3"),
    (partial(nothing, "lora", allocate=9, floor=-1), "at least 0 and at most cap, not -1"),
    (partial(nothing, "best", allocate=9, cap=2), "which method best mixes"),
    (partial(nothing, "entries", allocate="4MB"), "one r for all; pass a rank"),
    (partial(nothing, "dora", rank=1), "unknown method 'dora'; did you mean lora.* from lora,"),
    (partial(extracted, check=True, requantise=5), "requantise must be 8 or 4 bits, not 5"),
    (partial(extracted, inputs="texts.txt"), "pass check=True as well"),
    (partial(extracted, serve="vlmm"), "unknown engine 'vlmm'; did you mean vllm"),
    (
        partial(extracted, serve="vllm", save_modules="head"),
        "vLLM reads no modules that are stored",
    ),
    (
        partial(extract, NORMED, NORMED, rank=1, save_modules="a"),
        "save_modules would store a.weight, .* match fewer modules",
    ),
    (
        partial(extract, {"wte.weight": SQUARE}, {"wte.weight": 2 * SQUARE}, rank=1),
        r"no layer is left to extract \(left out: 1 tensor \(embedding\)\)",
    ),
    (
        partial(extract, *2 * [WEIGHTS], rank=1, model=nn.Linear(2, 2)),
        "Linear is not the model of the base",
    ),
    (
        partial(extract, *2 * [WEIGHTS], rank=1, model=OTHER),
        r"other shapes: 0.weight \(20x20\); pass the",
    ),
    (partial(demo, "lora", rank=97), "rank=97 is above the smaller side of every .* at most 96"),
    (partial(demo, "loca", rank=2, serve="llama.cpp"), "llama.cpp serves LoRA only"),
    *(
        (partial(nothing, "lora", allocate=text), r"is not a size .* 500kB, 4MB or 1MiB")
        for text in ("", "many", "4MX", "1Mi", "1iB", "-5", "1e6", "0.3", "12 apples")
    ),
    (partial(nothing, "lora", allocate=0), "allocate must be at least 1, not 0"),
    (partial(nothing, "lora", allocate="0kB"), "allocate must be at least 1, not 0"),
    (partial(nothing, "lora", allocate=1.5), "allocate must be a whole number, not 1.5"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InvalidArgumentError, match=rf"^[^\n]*{message}[^\n]*$"):
        call()
