"""A pretrained sentence transformer, fine-tuned with LoCA, saved and reloaded."""

import torch
from peft import PeftModel, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from experiments.docstrings import model_folder
from loca_theory.adapters import CosineSpectrum, LoCAConfig, follow

from .tiny_models import of_peft

pytestmark = of_peft


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
