"""GLUE: fine-tune RoBERTa on eight tasks."""

from __future__ import annotations

from typing import Any

from experiments.paper import load
from experiments.paper_scale.loading import column, load_auto, package, read_data
from experiments.paper_scale.metrics import measure
from experiments.paper_scale.prepared import Paths, Prepared
from experiments.paper_scale.settings import Choice, Settings
from experiments.paper_scale.sources import Task
from loca_theory.errors import InvalidArgumentError


def prepare(choice: Choice, settings: Settings, paths: Paths) -> Prepared:
    """Prepare the model with a new head, the tokenised task, and the metric of the paper."""
    transformers, datasets = package("transformers"), package("datasets")
    task = choice.family.tasks[choice.task]
    source = paths.model or choice.family.sizes[choice.size].model
    parts = read_data(task, paths.data)
    tokenizer = load_auto(transformers.AutoTokenizer.from_pretrained, source)
    data = {name: _tokenised(part, task, tokenizer, settings) for name, part in parts.items()}
    model = load_auto(
        transformers.AutoModelForSequenceClassification.from_pretrained,
        source,
        num_labels=task.classes,
        problem_type="regression" if task.classes == 1 else None,
        use_safetensors=True,
    )
    metric = load(choice.family.results).fields[choice.task].metric
    return Prepared(
        model=model,
        train=data["train"],
        evaluation=datasets.concatenate_datasets([data[name] for name in task.evaluation]),
        collate=transformers.DataCollatorWithPadding(tokenizer),
        metric=metric,
        head=choice.family.head,
        measure=measure(metric),
        best_of_epochs=True,
    )


def _tokenised(part: Any, task: Task, tokenizer: Any, settings: Settings) -> Any:
    label = column(part, task.label)
    for name in task.columns:
        column(part, (name,))
    _check(part[label], task)
    longest = min(settings.max_length or tokenizer.model_max_length, tokenizer.model_max_length)

    def encode(rows: Any) -> Any:
        encoded = tokenizer(*(rows[name] for name in task.columns), truncation=True,
                            max_length=longest)  # fmt: skip
        labels = rows[label]
        return {
            **encoded,
            "labels": [float(one) for one in labels] if task.classes == 1 else labels,
        }

    return part.map(encode, batched=True, remove_columns=part.column_names)


def _check(labels: Any, task: Task) -> None:
    """Check that all labels are classes; the test sets of GLUE have labels of −1."""
    if task.classes > 1 and not set(labels) <= set(range(task.classes)):
        msg = f"{task.name} has labels from 0 to {task.classes - 1}, but the data have others; use "
        msg += "labelled data"
        raise InvalidArgumentError(msg)
