"""Train the attention of a diffusion model (a UNet of diffusers) with LoCA.

Run: python examples/diffusion_unet.py
Needs: pip install ".[adapters]" diffusers
"""

import sys

import torch
from peft import get_peft_model

from loca_theory.adapters import LoCAConfig

try:
    from diffusers import DDPMScheduler, UNet2DConditionModel
except ImportError as error:
    sys.exit(f"{error}; pip install diffusers")

STEPS = 30
torch.manual_seed(0)
unet = UNet2DConditionModel(  # or .from_pretrained(..., subfolder="unet")
    sample_size=8,
    in_channels=4,
    out_channels=4,
    block_out_channels=(32, 64),
    layers_per_block=1,
    norm_num_groups=8,
    cross_attention_dim=32,
    attention_head_dim=8,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
)
scheduler = DDPMScheduler()
latents, text = torch.randn(4, 4, 8, 8), torch.randn(4, 6, 32)  # of your images and captions

config = LoCAConfig(
    n_frequency=500,
    target_modules=["to_q", "to_k", "to_v", "to_out.0", "proj", "ff.net.2"],
)
model = get_peft_model(unet, config)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for _ in range(STEPS):
    noise, times = torch.randn_like(latents), torch.randint(0, 1000, (len(latents),))
    noisy = scheduler.add_noise(latents, noise, times)
    loss = torch.nn.functional.mse_loss(model(noisy, times, text).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss: {sum(losses[:10]) / 10:.4f} at first, {sum(losses[-10:]) / 10:.4f} at last")
