"""Train a vision transformer of timm with LoCA and a new head.

Run: python examples/timm_vit.py
Needs: pip install ".[adapters]" timm
"""

import sys

import torch
from peft import get_peft_model

from loca_theory.adapters import LoCAConfig

try:
    import timm
except (ImportError, RuntimeError) as error:  # a RuntimeError if torchvision does not fit torch
    sys.exit(f"{error}; pip install timm, and the torchvision that fits torch")

STEPS = 30
torch.manual_seed(0)
base = timm.create_model(  # pretrained=True downloads weights
    "vit_tiny_patch16_224", pretrained=False, img_size=32, patch_size=8, depth=2, num_classes=4
)
# The class of an image is its brightest quarter.
labels = torch.arange(64) % 4
images = torch.randn(64, 3, 32, 32)
for image, label in zip(images, labels.tolist(), strict=True):
    row, column = 16 * (label // 2), 16 * (label % 2)
    image[:, row : row + 16, column : column + 16] += 1

config = LoCAConfig(
    n_frequency=500,
    target_modules=["qkv", "proj", "fc1", "fc2"],
    exclude_modules=r"patch_embed\.proj",  # a convolution
    modules_to_save=["head"],
)
model = get_peft_model(base, config)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
losses = []
for _ in range(STEPS):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
