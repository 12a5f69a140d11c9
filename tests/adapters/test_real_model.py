"""A pretrained sentence transformer, fine-tuned with LoCA, saved and reloaded."""

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

from experiments.docstrings import model_folder, splits
from loca_theory.adapters import CosineSpectrum, LoCACallback, LoCAConfig, follow

from .tiny_roberta import of_peft

pytestmark = of_peft
STEPS = 80


def base():
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(model_folder(), num_labels=2)


def tokens_of(texts, length):
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    return tokenizer(
        texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
    )


def indices_of(model):
    return [m.indices.clone() for m in model.modules() if isinstance(m, CosineSpectrum)]


def test_a_few_steps_move_it_and_it_predicts_the_same_after_reloading(tmp_path):
    config = LoCAConfig(
        n_frequency=50, task_type="SEQ_CLS", coefficient_steps=1, location_steps=1,
        alternating_steps=4, location_lr=0.05,
    )  # fmt: skip
    model = get_peft_model(base(), config).eval()
    batch = tokens_of(["Return the inverse of a matrix.", "Apply a linear layer."], 12)
    start, before = model(**batch).logits.detach(), indices_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    follow(model, optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        model(**batch, labels=torch.tensor([0, 1])).loss.backward()
        optimizer.step()
    moved = indices_of(model)
    assert any(not torch.equal(a, b) for a, b in zip(before, moved, strict=True))
    with torch.no_grad():
        expected = model(**batch).logits
        assert (expected - start).abs().max() > 0.1
        model.save_pretrained(tmp_path)
        again = PeftModel.from_pretrained(base(), tmp_path).eval()
        torch.testing.assert_close(again(**batch).logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.deep
def test_it_learns_by_the_trainer_and_predicts_the_same_after_reloading(tmp_path):
    labels = {"numpy": 0, "torch": 4}
    train, test = (
        [(text, int(label == 4)) for text, label in part if label in labels.values()]
        for part in splits(0, (0.2,))
    )

    def dataset(part):
        texts, targets = zip(*part, strict=True)
        tokens = tokens_of(list(texts), 32)
        return [
            {**{name: values[i] for name, values in tokens.items()}, "labels": target}
            for i, target in enumerate(targets)
        ]

    config = LoCAConfig(
        n_frequency=1000, task_type="SEQ_CLS", coefficient_steps=5, location_steps=5,
        alternating_steps=40, location_lr=5e-3,
    )  # fmt: skip
    model = get_peft_model(base(), config)
    before = indices_of(model)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=STEPS, learning_rate=1e-2, per_device_train_batch_size=16,
        report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", logging_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip
    data = dataset(train[: 16 * STEPS])
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[LoCACallback()])
    trainer.train()
    assert any(not torch.equal(a, b) for a, b in zip(before, indices_of(model), strict=True))
    unseen = dataset(test[:: len(test) // 200])
    predicted = trainer.predict(unseen)
    right = (predicted.predictions.argmax(1) == predicted.label_ids).mean()
    # Chance is about one half, and 200 examples scatter by 0.035.
    assert right > 0.5 + 4 * 0.035
    trainer.save_model(str(tmp_path / "adapter"))
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter")
    repeated = Trainer(again, arguments).predict(unseen)
    torch.testing.assert_close(repeated.predictions, predicted.predictions, rtol=1e-5, atol=1e-5)
