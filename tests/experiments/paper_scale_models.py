"""Tiny random models and data of the hub's schema, for the tests of the paper's experiments."""

import json
import string

import numpy as np
import torch

WORDS = (
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    *string.ascii_lowercase,
    *string.digits,
    " ",
    "[",
    "]",
    "|",
)


def tokenizer(folder):
    """A tokenizer of single characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(WORDS)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=48,
    ).save_pretrained(folder)


def save(model, folder):
    torch.manual_seed(0)
    model.save_pretrained(folder)
    return folder


def roberta(folder):
    from transformers import RobertaConfig, RobertaModel

    tokenizer(folder)
    config = RobertaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64, pad_token_id=3,
    )  # fmt: skip
    return save(RobertaModel(config), folder)


def gpt2(folder):
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer(folder)
    config = GPT2Config(
        vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=160,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return save(GPT2LMHeadModel(config), folder)


def llama(folder):
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer(folder)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return save(LlamaForCausalLM(config), folder)


def vit(folder):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        image_size=16, patch_size=8,
    )  # fmt: skip
    save(ViTModel(config), folder)
    processor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "do_normalize": True,
        "do_rescale": True, "size": {"height": 16, "width": 16}, "rescale_factor": 1 / 255,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def pix2pix(folder):
    import diffusers
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
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
    CLIPTextModel(
        CLIPTextConfig(
            vocab_size=60, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=1,
        )
    ).save_pretrained(folder / "text_encoder")  # fmt: skip
    vocabulary = ["<|startoftext|>", "<|endoftext|>", *string.ascii_lowercase]
    vocabulary += [f"{letter}</w>" for letter in string.ascii_lowercase]
    (folder / "tokenizer").mkdir()
    words = folder / "tokenizer" / "vocab.json"
    words.write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    merges = folder / "tokenizer" / "merges.txt"
    merges.write_text("#version: 0.2\n")
    CLIPTokenizer(str(words), str(merges), model_max_length=16).save_pretrained(
        folder / "tokenizer"
    )
    return folder


def write_json(folder, **parts):
    """One file of JSON lines a part."""
    folder.mkdir(exist_ok=True)
    for part, rows in parts.items():
        lines = [json.dumps(row) for row in rows]
        (folder / f"{part}.json").write_text("\n".join(lines) + "\n")
    return folder


def sentences(count, columns, classes, seed=0):
    """Random words; a class, or a number for a regression."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        row = {name: "".join(rng.choice(list("abcde"), 6)) for name in columns}
        rows.append({**row, "label": i % classes if classes > 1 else float(i) / 2, "idx": i})
    return rows


def picture(seed, size=16):
    from PIL import Image

    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8))
