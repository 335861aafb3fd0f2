#!/usr/bin/env python3
"""Tiny translation models as transformers writes them, their logits and ten fine-tuning losses; see README.md.

Usage: python golden_translation.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import logging
import pathlib
import shutil
import sys

import numpy
import torch
import torch.nn.functional as F
import transformers

from golden_file import GoldenFile, generator, integers, normal
from golden_hugging_face import TRAINING

MARIAN = {"vocab_size": 29, "d_model": 9, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
          "decoder_attention_heads": 3, "encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "max_position_embeddings": 13,
          "pad_token_id": 28, "decoder_start_token_id": 28, "eos_token_id": 0, "forced_eos_token_id": 0}
SEPARATE = {**MARIAN, "vocab_size": 17, "decoder_vocab_size": 29, "encoder_layers": 1, "pad_token_id": 16,
            "decoder_start_token_id": 16, "share_encoder_decoder_embeddings": False}
CASES = {  # name: configuration, type of the stored weights
    "marian": (transformers.MarianConfig(**MARIAN, activation_function="swish", scale_embedding=True), torch.float32),
    "marian_separate": (transformers.MarianConfig(
        **{**SEPARATE, "d_model": 12, "encoder_attention_heads": 2, "decoder_ffn_dim": 7}, activation_function="relu",
        dropout=0.25, attention_dropout=0.125, activation_dropout=0.5), torch.float16),
    "marian_untied": (transformers.MarianConfig(**SEPARATE, activation_function="gelu", tie_word_embeddings=False,
                                                scale_embedding=True), torch.bfloat16),
}
BATCH, SOURCE, TARGET, STEPS = 3, 7, 5, 10


def write_checkpoint(name, path):
    config, dtype = CASES[name]
    model, random = transformers.AutoModelForSeq2SeqLM.from_config(config), generator(name + "/parameters")
    with torch.no_grad():
        for key, tensor in sorted([*model.named_parameters(), ("final_logits_bias", model.final_logits_bias)]):
            if "embed_positions" in key:
                continue
            gain = tensor.dim() == 1 and key.endswith("weight")
            scale = 0.3 if min(tensor.shape) > 1 else 0.1
            tensor.copy_((normal(random, *tensor.shape, scale=scale) + gain).to(dtype))
    shutil.rmtree(path, ignore_errors=True)
    model.to(dtype).save_pretrained(path)
    (path / "generation_config.json").unlink()


def load(path, dtype):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).to(dtype).eval()
    for side in (model.get_encoder(), model.get_decoder()):
        side.embed_tokens.padding_idx = None  # whose row would not be trained where it is looked up
        positions = side.embed_positions.weight.requires_grad_(False)
        if dtype == torch.float64:  # the sinusoids, without the rounding to single precision
            count, width = positions.shape
            angles = numpy.arange(count)[:, None] / 10000.0 ** (2 * (numpy.arange(width) // 2) / width)
            table = numpy.concatenate([numpy.sin(angles[:, 0::2]), numpy.cos(angles[:, 1::2])], axis=1)
            positions.data.copy_(torch.from_numpy(table))
    model.final_logits_bias.requires_grad_()  # which transformers does not train
    return model


def logits_of(model, source, mask, target):
    return model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits


def fine_tune(path, batches, dtype):
    model, losses = load(path, dtype), []
    trained = [*(p for p in model.parameters() if p.requires_grad), model.final_logits_bias]
    is_vector = lambda p: min(p.shape) == 1 or p.dim() < 2
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in trained if not is_vector(p)], "weight_decay": TRAINING["weight_decay"]},
         {"params": [p for p in trained if is_vector(p)], "weight_decay": 0.0}],
        lr=TRAINING["learning_rate"], betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["adam_epsilon"])
    for source, mask, targets in batches:
        loss = F.cross_entropy(logits_of(model, source, mask, targets[:, :-1]).flatten(0, 1), targets[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return numpy.array(losses, dtype=numpy.float64 if dtype == torch.float64 else numpy.float32)


def make(folder):
    file = GoldenFile()
    for name, (config, _) in CASES.items():
        path, random = folder / "hugging_face" / name, generator(name)
        write_checkpoint(name, path)
        sources = integers(random, config.vocab_size, STEPS, BATCH, SOURCE)
        targets = integers(random, config.decoder_vocab_size, STEPS, BATCH, TARGET + 1)
        targets[:, :, 0] = config.decoder_start_token_id
        lengths = 2 + integers(random, SOURCE - 1, STEPS, BATCH, 1)
        masks = torch.arange(SOURCE) < lengths
        batches = list(zip(sources, masks, targets))
        with torch.no_grad():
            first = (sources[0], masks[0], targets[0][:, :-1])
            logits, logits_f32 = (logits_of(load(path, dtype), *first) for dtype in (torch.float64, torch.float32))
        print(f"{name}: f32 logits differ from f64 ones by {(logits - logits_f32).abs().max():.1e}")
        for key, value in {"sources": sources, "masks": masks, "targets": targets, "logits": logits,
                           "logits_f32": logits_f32, "losses": fine_tune(path, batches, torch.float64),
                           "losses_f32": fine_tune(path, batches, torch.float32)}.items():
            file.add(f"{name}/{key}", value)
        file.options[name] = TRAINING
    return file


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    here = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    make(here).save(here / "translation.safetensors")
