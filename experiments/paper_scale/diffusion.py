"""InstructPix2Pix: fine-tune Stable Diffusion to turn photographs into cartoons."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from torch import nn

from experiments.paper_scale.prepared import PreparedRun, column, load_pretrained, read_data
from experiments.paper_scale.settings import Choice, Settings
from loca_theory.sweeps.files import writable_folder

diffusers: Any = importlib.import_module("diffusers")  # its types lack what it loads lazily
_SEED = 0


class NoiseLoss:
    """The loss of noise prediction, as in Brooks et al. (2023)."""

    def __init__(self, parts: dict[str, Any], dropout: float, empty: torch.Tensor) -> None:
        self._parts, self._dropout, self._empty = parts, dropout, empty

    def __call__(
        self, unet: nn.Module, batch: Mapping[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """The loss of a batch, as the Trainer asks; evaluation has no dropout and fixed noise."""
        device = batch["labels"].device
        vae, text, noise_of = (self._parts[name] for name in ("vae", "text_encoder", "scheduler"))
        vae.to(device)
        text.to(device)
        # A generator with a fixed seed, so that all methods are evaluated with the same noise.
        generator = None if unet.training else torch.Generator().manual_seed(_SEED)
        with torch.no_grad():
            after = vae.encode(batch["labels"]).latent_dist.mode() * vae.config.scaling_factor
            before = vae.encode(batch["before"]).latent_dist.mode()
            said = text(batch["tokens"])[0]
            nothing = text(self._empty.to(device))[0]
        size, levels = len(after), noise_of.config.num_train_timesteps
        noise = torch.randn(after.shape, generator=generator).to(device)
        times = torch.randint(levels, (size,), generator=generator).to(device)
        if unet.training:
            # Dropped: the text in [0, f), both in [f, 2f), the image in [2f, 3f).
            fraction, drawn = self._dropout, torch.rand(size, device=device)
            said = torch.where((drawn < 2 * fraction)[:, None, None], nothing, said)
            keeps = ~((drawn >= fraction) & (drawn < 3 * fraction))
            before = before * keeps[:, None, None, None]
        noisy = torch.cat([noise_of.add_noise(after, noise, times), before], dim=1)
        predicted = unet(noisy, times, encoder_hidden_states=said).sample
        loss = nn.functional.mse_loss(predicted.float(), noise)
        return (loss, {"loss": loss}) if return_outputs else loss


def prepare(choice: Choice, settings: Settings) -> PreparedRun:
    """Prepare the U-Net of the pipeline, the pairs of images, and the loss."""
    del settings
    task, options = choice.family.tasks[choice.task], choice.family.options
    size = options["resolution"]
    part = read_data(choice)["train"]
    before, instruction, after = (
        column(part, (name,)) for name in (*task.columns, *task.label)
    )  # of a photograph, the edit, and its result
    for name in (before, after):
        part = part.cast_column(name, datasets.Image())

    def loaded(kind: Any, folder: str, **options: Any) -> Any:
        return load_pretrained(kind, choice, subfolder=folder, **options)

    parts = {
        "vae": loaded(diffusers.AutoencoderKL, "vae", use_safetensors=True),
        "text_encoder": loaded(transformers.CLIPTextModel, "text_encoder", use_safetensors=True),
        "scheduler": loaded(diffusers.DDPMScheduler, "scheduler"),
        "tokenizer": loaded(transformers.AutoTokenizer, "tokenizer", trust_remote_code=False),
        "unet": loaded(diffusers.UNet2DConditionModel, "unet", use_safetensors=True),
    }
    for name in ("vae", "text_encoder"):
        parts[name].requires_grad_(False).eval()

    def tokens(texts: list[str]) -> torch.Tensor:
        padded = {"padding": "max_length", "truncation": True}
        return parts["tokenizer"](texts, return_tensors="pt", **padded)["input_ids"]

    def transform(rows: Any) -> Any:
        pixels = {
            key: [_pixels(_resized(picture, size)) for picture in rows[name]]
            for key, name in (("before", before), ("labels", after))
        }
        return {**pixels, "tokens": tokens(rows[instruction])}

    halves = part.train_test_split(min(options["held_out"], len(part) // 2), shuffle=False)

    def show(trained: nn.Module, folder: Path) -> dict[str, float]:
        sampler = diffusers.DDIMScheduler.from_config(parts["scheduler"].config)
        pipeline = diffusers.StableDiffusionInstructPix2PixPipeline(
            **{**parts, "scheduler": sampler},
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        trained.eval()
        for i, row in enumerate(halves["test"].take(min(choice.samples, len(halves["test"])))):
            photograph = _resized(row[before], size)
            edited = pipeline(
                row[instruction],
                image=photograph,
                num_inference_steps=options["sampling_steps"],
                generator=torch.Generator().manual_seed(_SEED + i),
            ).images[0]
            photograph.save(writable_folder(folder) / f"{i}-before.png")
            edited.save(folder / f"{i}-after.png")
        return {}

    return PreparedRun(
        model=parts["unet"],
        train=halves["train"].with_transform(transform),
        evaluation=halves["test"].with_transform(transform),
        collate=transformers.default_data_collator,
        metric="loss",
        loss=NoiseLoss(parts, options["conditioning_dropout"], tokens([""])),
        afterwards=show,
    )


def _resized(picture: Any, size: int) -> Any:
    return picture.convert("RGB").resize((size, size))


def _pixels(picture: Any) -> torch.Tensor:
    """The pixels of an image, scaled to −1 to 1."""
    return torch.tensor(np.asarray(picture)).permute(2, 0, 1).float() / 127.5 - 1
