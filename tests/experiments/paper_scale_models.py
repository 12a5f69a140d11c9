"""Tiny random models and data of the hub's schema, for the tests of the paper's experiments."""

import json
import string

import datasets
import diffusers
import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

WORDS = ("<s>", "</s>", "<unk>", "<pad>", *string.ascii_lowercase, *string.digits, *" []|")
HALF = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
SMALL = {**HALF, "num_attention_heads": 2}


def tokenizer(folder):
    """A tokenizer of single characters."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="<pad>", model_max_length=48,
    ).save_pretrained(folder)  # fmt: skip


def save(model, folder):
    model.save_pretrained(folder)
    return folder


def roberta(folder):
    tokenizer(folder)
    config = transformers.RobertaConfig(
        vocab_size=len(WORDS), max_position_embeddings=64, pad_token_id=3, **SMALL
    )
    return save(transformers.RobertaModel(config), folder)


def gpt2(folder):
    tokenizer(folder)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=160,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return save(transformers.GPT2LMHeadModel(config), folder)


def llama(folder):
    tokenizer(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), num_key_value_heads=2, max_position_embeddings=512,
        bos_token_id=0, eos_token_id=1, **SMALL,
    )  # fmt: skip
    return save(transformers.LlamaForCausalLM(config), folder)


def vit(folder):
    save(
        transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)), folder
    )
    processor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "do_normalize": True,
        "do_rescale": True, "size": {"height": 16, "width": 16}, "rescale_factor": 1 / 255,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def pix2pix(folder):
    diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=8, out_channels=4, layers_per_block=1,
        block_out_channels=(8, 16), norm_num_groups=4, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ).save_pretrained(folder / "unet")  # fmt: skip
    diffusers.AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ).save_pretrained(folder / "vae")  # fmt: skip
    diffusers.DDPMScheduler(num_train_timesteps=20).save_pretrained(folder / "scheduler")
    config = transformers.CLIPTextConfig(
        vocab_size=60, max_position_embeddings=16, bos_token_id=0, eos_token_id=1, **SMALL
    )
    transformers.CLIPTextModel(config).save_pretrained(folder / "text_encoder")
    letters = string.ascii_lowercase
    vocabulary = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{one}</w>" for one in letters)]
    (folder / "tokenizer").mkdir()
    words, merges = (folder / "tokenizer" / name for name in ("vocab.json", "merges.txt"))
    words.write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    merges.write_text("#version: 0.2\n")
    return save(
        transformers.CLIPTokenizer(str(words), str(merges), model_max_length=16),
        folder / "tokenizer",
    ).parent


def write_json(folder, **parts):
    """One file of JSON lines a part."""
    folder.mkdir(exist_ok=True)
    for part, rows in parts.items():
        lines = [json.dumps(row) for row in rows]
        (folder / f"{part}.json").write_text("\n".join(lines) + "\n")
    return folder


def sentences(count, columns=("sentence1", "sentence2"), classes=2, seed=0):
    """Random words; a class, or a number for a regression."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        row = {name: "".join(rng.choice(list("abcde"), 6)) for name in columns}
        rows.append({**row, "label": i % classes if classes > 1 else float(i) / 2, "idx": i})
    return rows


def picture(seed, size=16):
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8))


def pets(folder):
    """Folders of images by class."""
    for part in ("train", "test"):
        for k, name in enumerate(("cat", "dog")):
            (folder / part / name).mkdir(parents=True)
            for i in range(2):
                picture(10 * k + i).save(folder / part / name / f"{i}.png")
    return folder


def cartoons(folder):
    folder.mkdir()
    kinds = {"original_image": datasets.Image(), "edit_prompt": datasets.Value("string"),
             "cartoonized_image": datasets.Image()}  # fmt: skip
    rows = {
        "original_image": [picture(i) for i in range(4)],
        "edit_prompt": ["make it a cartoon"] * 4,
        "cartoonized_image": [picture(i + 9) for i in range(4)],
    }
    data = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    data.to_parquet(folder / "train.parquet")
    return folder


def build(kind, folder):
    """A model with the same weights in every test."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    return globals()[kind](folder)
