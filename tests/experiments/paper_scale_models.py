"""Tiny random models and data of the hub's schema, for the tests of the paper's experiments."""

import string

import datasets
import diffusers
import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

WORDS = ("<s>", "</s>", "<unk>", "<pad>", *string.ascii_lowercase, *string.digits, *" []|")
WIDTHS = {"hidden_size": 16, "intermediate_size": 16}
SMALL = {**WIDTHS, "num_attention_heads": 2, "num_hidden_layers": 1}
TOKENS = {"vocab_size": len(WORDS), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
FOUR = range(4)  # rows of each data set
TEXT = {**TOKENS, "max_position_embeddings": 512}


def tokenizer(folder, longest=48):
    """A tokenizer of single characters."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    special = dict(zip(names, WORDS[:4], strict=True))
    kind = transformers.PreTrainedTokenizerFast
    kind(tokenizer_object=plain, model_max_length=longest, **special).save_pretrained(folder)


TEXT_MODELS = {
    "roberta": (transformers.RobertaModel, transformers.RobertaConfig),
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
}


def vit(folder):
    config = transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)
    transformers.ViTModel(config).save_pretrained(folder)
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)


def pix2pix(folder):
    sizes = {"sample_size": 8, "in_channels": 8, "out_channels": 4, "layers_per_block": 1}
    attention = {"cross_attention_dim": 16, "attention_head_dim": 4, "norm_num_groups": 4}
    blocks = {
        "block_out_channels": (8, 16),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    unet = diffusers.UNet2DConditionModel(**sizes, **attention, **blocks)
    unet.save_pretrained(folder / "unet")
    blocks = {
        "block_out_channels": (8, 8),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    vae = diffusers.AutoencoderKL(norm_num_groups=4, latent_channels=4, **blocks)
    vae.save_pretrained(folder / "vae")
    diffusers.DDPMScheduler(num_train_timesteps=20).save_pretrained(folder / "scheduler")
    config = transformers.CLIPTextConfig(
        vocab_size=len(WORDS), max_position_embeddings=16, bos_token_id=0, eos_token_id=1, **SMALL
    )
    transformers.CLIPTextModel(config).save_pretrained(folder / "text_encoder")
    tokenizer(folder / "tokenizer", longest=16)


def build(kind, folder):
    """A model with the same weights in every test."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    if kind in TEXT_MODELS:
        tokenizer(folder)
        model, config = TEXT_MODELS[kind]
        model(config(**SMALL, **TEXT)).save_pretrained(folder)
    else:
        {"vit": vit, "pix2pix": pix2pix}[kind](folder)
    return folder


def write(folder, **parts):
    """The parts of a data set, as the hub has them."""
    for part, rows in parts.items():
        (folder / "data").mkdir(parents=True, exist_ok=True)
        path = folder / "data" / f"{part}-00000-of-00001.parquet"
        datasets.Dataset.from_list(rows).to_parquet(path)
    return folder


def sentences(count, columns=("sentence1", "sentence2"), classes=2):
    """Words; a class, or a number for a regression."""
    return [
        {**dict.fromkeys(columns, f"ab{i}c"), "label": i % classes if classes > 1 else i / 2}
        for i in range(count)
    ]


def picture(seed):
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8))


def data(name, folder):
    """Data of a family or of a task."""
    pictures = [{"original_image": picture(i), "cartoonized_image": picture(i + 9)} for i in FOUR]
    restaurants = [(name, word) for name in ("ab", "cd") for word in ("good", "bad")]
    rows = {
        "pets": [{"image": picture(i), "label": i % 2} for i in FOUR],
        "cartoons": [{**pair, "edit_prompt": "make it a cartoon"} for pair in pictures],
        "e2e": [
            {"meaning_representation": f"name[{name}]", "human_reference": f"{name} is {word}"}
            for name, word in restaurants
        ],
        "instruct": [
            {"instruction": "say a", "input": context, "output": "a"} for context in ("", "b", "c")
        ],
    }
    if name in rows:
        return write(folder, train=rows[name], test=rows[name])
    if name == "MNLI":
        sizes = {"train": 9, "validation_matched": 3, "validation_mismatched": 4}
        columns = ("premise", "hypothesis")
        return write(folder, **{part: sentences(n, columns, 3) for part, n in sizes.items()})
    classes = 1 if name == "STS-B" else 2
    train, validation = (sentences(n, classes=classes) for n in (12, 6))
    return write(folder, train=train, validation=validation)
