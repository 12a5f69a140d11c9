"""Image classification: fine-tune ViT on eight data sets."""

from __future__ import annotations

from typing import Any

import torch

from experiments.paper import load
from experiments.paper_scale.loading import column, load_auto, package, read_data
from experiments.paper_scale.metrics import measure
from experiments.paper_scale.prepared import Paths, Prepared
from experiments.paper_scale.settings import Choice, Settings
from loca_theory.errors import InvalidArgumentError


class Images(torch.utils.data.Dataset):
    """Images as inputs of the model, processed on access."""

    def __init__(self, part: Any, image: str, labels: list[int], process: Any) -> None:
        self._part, self._image, self._labels, self._process = part, image, labels, process

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, i: int) -> dict[str, Any]:
        picture = self._part[int(i)][self._image].convert("RGB")
        pixels = self._process(picture, return_tensors="pt")["pixel_values"][0]
        return {"pixel_values": pixels, "labels": self._labels[int(i)]}


def prepare(choice: Choice, settings: Settings, paths: Paths) -> Prepared:
    """Prepare the model with a new head and the images; the paper reports the final accuracy."""
    del settings
    transformers = package("transformers")
    package("PIL")
    task = choice.family.tasks[choice.task]
    source = paths.model or choice.family.sizes[choice.size].model
    parts = read_data(task, paths.data, images=True)
    process = load_auto(transformers.AutoImageProcessor.from_pretrained, source)
    data = {}
    for name, part in parts.items():
        labels, image = part[column(part, task.label)], column(part, task.columns)
        if not set(labels) <= set(range(task.classes)):
            msg = f"{task.name} has classes 0 to {task.classes - 1}, but the data have others; use "
            msg += "data with these classes"
            raise InvalidArgumentError(msg)
        pictures = part.cast_column(image, package("datasets").Image())
        data[name] = Images(pictures, image, list(labels), process)
    model = load_auto(
        transformers.AutoModelForImageClassification.from_pretrained,
        source,
        num_labels=task.classes,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
    )
    metric = load(choice.family.results).fields[choice.task].metric
    return Prepared(
        model=model,
        train=data["train"],
        evaluation=data[task.evaluation[0]],
        collate=transformers.default_data_collator,
        metric=metric,
        head=choice.family.head,
        measure=measure(metric),
    )
