"""InstructPix2Pix: fine-tune Stable Diffusion to turn photographs into cartoons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.paper_scale.loading import column, load_pretrained, package, read_data
from experiments.paper_scale.prepared import Paths, Prepared
from experiments.paper_scale.settings import Choice, Settings
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder

_SEED = 0


class Pairs(torch.utils.data.Dataset):
    """Photographs with an editing instruction and the edited image."""

    def __init__(
        self, part: Any, names: tuple[str, str, str], tokenizer: Any, resolution: int
    ) -> None:
        self._part, self._names = part, names
        self._tokenizer, self._resolution = tokenizer, resolution

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        before, instruction, after = (self._part[int(i)][name] for name in self._names)
        tokens = self._tokenizer(
            instruction, padding="max_length", truncation=True, return_tensors="pt",
            max_length=self._tokenizer.model_max_length,
        )  # fmt: skip
        return {
            "before": self._pixels(before),
            "after": self._pixels(after),
            "tokens": tokens["input_ids"][0],
        }

    def _pixels(self, picture: Any) -> torch.Tensor:
        """The pixels of an image, scaled to −1 to 1."""
        small = picture.convert("RGB").resize((self._resolution, self._resolution))
        return torch.tensor(np.asarray(small)).permute(2, 0, 1).float() / 127.5 - 1


class NoiseLoss:
    """The loss of noise prediction, as in Brooks et al. (2023)."""

    def __init__(self, parts: dict[str, Any], dropout: float, empty: torch.Tensor) -> None:
        self._parts, self._dropout, self._empty = parts, dropout, empty

    def __call__(self, unet: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch; evaluation has no dropout and uses fixed noise."""
        device = batch["after"].device
        vae, text, noise_of = (self._parts[name] for name in ("vae", "text_encoder", "scheduler"))
        vae.to(device)
        text.to(device)
        # A generator with a fixed seed, so that all methods are evaluated with the same noise.
        generator = None if unet.training else torch.Generator().manual_seed(_SEED)
        with torch.no_grad():
            after = vae.encode(batch["after"]).latent_dist.mode() * vae.config.scaling_factor
            before = vae.encode(batch["before"]).latent_dist.mode()
            said = text(batch["tokens"])[0]
            nothing = text(self._empty[None].to(device))[0]
        size = len(after)
        noise = torch.randn(after.shape, generator=generator).to(device)
        times = torch.randint(noise_of.config.num_train_timesteps, (size,), generator=generator).to(
            device
        )
        if unet.training:
            fraction, drawn = self._dropout, torch.rand(size, device=device)
            said = torch.where((drawn < 2 * fraction)[:, None, None], nothing, said)
            kept = ~((drawn >= fraction) & (drawn < 3 * fraction))
            before = before * kept[:, None, None, None]
        noisy = torch.cat([noise_of.add_noise(after, noise, times), before], dim=1)
        predicted = unet(noisy, times, encoder_hidden_states=said).sample
        return nn.functional.mse_loss(predicted.float(), noise)


def prepare(choice: Choice, settings: Settings, paths: Paths) -> Prepared:
    """Prepare the U-Net of the pipeline, the pairs of images, and the loss."""
    del settings
    diffusers, transformers = package("diffusers"), package("transformers")
    package("PIL")
    task, options = choice.family.tasks[choice.task], choice.family.options
    source = paths.model or choice.family.sizes[choice.size].model
    part = read_data(task, paths.data)["train"]
    names = (column(part, task.columns[:1]), column(part, task.columns[1:]),
             column(part, task.label))  # fmt: skip
    for name in (names[0], names[2]):
        part = part.cast_column(name, package("datasets").Image())
    held_out = min(options["held_out"], len(part) // 2)
    if not held_out:
        msg = f"the data must have at least 2 pairs, for training and evaluation, not {len(part)}"
        raise InvalidArgumentError(msg)
    parts = {
        "vae": load_pretrained(diffusers.AutoencoderKL.from_pretrained, source, subfolder="vae",
                               use_safetensors=True),
        "text_encoder": load_pretrained(transformers.CLIPTextModel.from_pretrained, source,
                                        subfolder="text_encoder", use_safetensors=True),
        "scheduler": load_pretrained(diffusers.DDPMScheduler.from_pretrained, source,
                                     subfolder="scheduler"),
    }  # fmt: skip
    for name in ("vae", "text_encoder"):
        parts[name].requires_grad_(False).eval()
    tokenizer = load_pretrained(
        transformers.CLIPTokenizer.from_pretrained, source, subfolder="tokenizer"
    )
    unet = load_pretrained(
        diffusers.UNet2DConditionModel.from_pretrained,
        source,
        subfolder="unet",
        use_safetensors=True,
    )
    cut = len(part) - held_out
    size = paths.extras.get("resolution") or options["resolution"]
    train = Pairs(part.select(range(cut)), names, tokenizer, size)
    unseen = part.select(range(cut, len(part)))
    empty = tokenizer("", padding="max_length", truncation=True, return_tensors="pt",
                      max_length=tokenizer.model_max_length)["input_ids"][0]  # fmt: skip

    def show(trained: nn.Module, folder: Path) -> dict[str, float]:
        chosen = unseen.select(range(min(paths.files.get("samples", 0), len(unseen))))
        sampler = diffusers.DDIMScheduler.from_config(parts["scheduler"].config)
        pipeline = diffusers.StableDiffusionInstructPix2PixPipeline(
            vae=parts["vae"], text_encoder=parts["text_encoder"], scheduler=sampler, unet=unet,
            tokenizer=tokenizer, safety_checker=None, feature_extractor=None,
            requires_safety_checker=False,
        )  # fmt: skip
        pipeline.set_progress_bar_config(disable=True)
        trained.eval()
        for i, row in enumerate(chosen):
            before = row[names[0]].convert("RGB").resize((size, size))
            edited = pipeline(
                row[names[1]], image=before, num_inference_steps=options["sampling_steps"],
                generator=torch.Generator().manual_seed(_SEED + i),
            ).images[0]  # fmt: skip
            before.save(writable_folder(folder) / f"{i}-before.png")
            edited.save(folder / f"{i}-after.png")
        return {}

    return Prepared(
        model=unet,
        train=train,
        evaluation=Pairs(unseen, names, tokenizer, size),
        collate=transformers.default_data_collator,
        metric="loss",
        loss=NoiseLoss(parts, options["conditioning_dropout"], empty),
        afterwards=show,
    )
