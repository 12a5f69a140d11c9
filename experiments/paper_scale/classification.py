"""GLUE with RoBERTa, and images with ViT: a new head on a pretrained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import torch
import transformers

from experiments.finetuning.metrics import accuracy, correlation
from experiments.paper_scale.prepared import PreparedRun, column, load_pretrained, read_data
from experiments.paper_scale.settings import Choice, Settings, printed
from loca_theory.errors import InvalidArgumentError


def prepare(choice: Choice, settings: Settings) -> PreparedRun:
    """Prepare the model with a new head, the data, and the metric of the paper."""
    task, is_text = choice.family.tasks[choice.task], choice.family.name == "glue"
    parts = read_data(choice)
    for part in parts.values():
        # The test sets of GLUE have labels of −1.
        if task.classes > 1 and not set(part[column(part, task.label)]) <= {*range(task.classes)}:
            raise InvalidArgumentError(
                f"{choice.task} has labels from 0 to {task.classes - 1}, but the data have "
                "others; use labelled data"
            )
    options: dict[str, Any] = {"num_labels": task.classes, "trust_remote_code": False}
    if is_text:
        tokenizer = load_pretrained(transformers.AutoTokenizer, choice, trust_remote_code=False)
        data = {name: _tokenised(choice, settings, part, tokenizer) for name, part in parts.items()}
        kind = transformers.AutoModelForSequenceClassification
        options["problem_type"] = "regression" if task.classes == 1 else None
        collate = transformers.DataCollatorWithPadding(tokenizer)
    else:
        process = load_pretrained(transformers.AutoImageProcessor, choice, trust_remote_code=False)
        data = {name: _pixels(choice, part, process) for name, part in parts.items()}
        kind = transformers.AutoModelForImageClassification
        options["ignore_mismatched_sizes"] = True
        collate = transformers.default_data_collator
    metric = printed(choice.family.results)["fields"][choice.task]["metric"]
    return PreparedRun(
        model=load_pretrained(kind, choice, use_safetensors=True, **options),
        train=data["train"],
        evaluation=datasets.concatenate_datasets([data[name] for name in task.evaluation]),
        collate=collate,
        metric=metric,
        measure=measure(metric),
    )


def _tokenised(choice: Choice, settings: Settings, part: Any, tokenizer: Any) -> Any:
    task, limit = choice.family.tasks[choice.task], tokenizer.model_max_length
    label, columns = column(part, task.label), [column(part, (name,)) for name in task.columns]
    longest = min(settings.max_length or limit, limit)

    def encode(rows: Any) -> Any:
        texts = (rows[name] for name in columns)
        labels = [float(label) for label in rows[label]] if task.classes == 1 else rows[label]
        return {**tokenizer(*texts, truncation=True, max_length=longest), "labels": labels}

    return part.map(encode, batched=True, remove_columns=part.column_names)


def _pixels(choice: Choice, part: Any, process: Any) -> Any:
    task = choice.family.tasks[choice.task]
    label, image = column(part, task.label), column(part, task.columns)

    def transform(rows: Any) -> Any:
        pictures = [picture.convert("RGB") for picture in rows[image]]
        return {**process(pictures, return_tensors="pt"), "labels": rows[label]}

    return part.cast_column(image, datasets.Image()).with_transform(transform)


def measure(metric: str) -> Callable[[Any], dict[str, float]]:
    """Make a function that computes the metric in percent from the Trainer's predictions."""
    # Of two classes the correlation is that of Matthews.
    of = correlation if "correlation" in metric else accuracy

    def score(result: Any) -> dict[str, float]:
        predicted, labels = torch.as_tensor(result.predictions), torch.as_tensor(result.label_ids)
        predicted = predicted.flatten() if metric.startswith("Pearson") else predicted.argmax(-1)
        return {metric: 100 * of(predicted, labels.flatten())}

    return score
