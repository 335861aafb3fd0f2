#!/usr/bin/env python3
"""Tiny checkpoints as transformers writes them, their logits and ten fine-tuning losses; see README.md.

Usage: python golden_hugging_face.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import json
import logging
import pathlib
import shutil
import sys

import numpy
import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama import modeling_llama

from golden_file import GoldenFile, generator, integers, normal

GPT2 = {"vocab_size": 29, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 0}
LLAMA = {"vocab_size": 29, "hidden_size": 18, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 32}
CASES = {  # name: configuration, type of the stored weights, most bytes of a file
    "gpt2": (transformers.GPT2Config(**GPT2), torch.float32, None),
    "gpt2_half": (transformers.GPT2Config(**GPT2, n_inner=19, activation_function="gelu", layer_norm_epsilon=1e-3,
                                          tie_word_embeddings=False, attn_pdrop=0.25, resid_pdrop=0.125,
                                          embd_pdrop=0.5), torch.float16, None),
    "llama": (transformers.LlamaConfig(**LLAMA, rms_norm_eps=1e-5,
                                       rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0,
                                                        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                        "original_max_position_embeddings": 16}),
              torch.float32, "8KB"),
    "llama_bfloat": (transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 1}, attention_bias=True, mlp_bias=True,
                                              hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True,
                                              rope_parameters={"rope_type": "linear", "rope_theta": 100.0,
                                                               "factor": 2.5}), torch.bfloat16, None),
    "llama_equal_heads": (transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 6, "head_dim": 2,
                                                      "num_hidden_layers": 1}), torch.float32, None),
}
BATCH, LENGTH, STEPS = 3, 9, 10
TRAINING = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "adam_epsilon": 1e-8, "weight_decay": 0.1}


class DoubleNorm(torch.nn.Module):
    """LlamaRMSNorm without its detour through single precision."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class DoubleRotary(torch.nn.Module):
    """LlamaRotaryEmbedding likewise; the formulas are those of the types of scaling."""

    def __init__(self, config):
        super().__init__()
        rope, pairs = config.rope_parameters, config.head_dim // 2
        plain = rope["rope_theta"] ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        if rope["rope_type"] == "linear":
            plain = plain / rope["factor"]
        elif rope["rope_type"] == "llama3":
            turns = rope["original_max_position_embeddings"] * plain / (2 * torch.pi)
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            kept = ((turns - low) / (high - low)).clamp(0, 1)
            plain = (1 - kept) * plain / rope["factor"] + kept * plain
        self.frequencies = plain

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def in_double(model):
    model = model.double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                setattr(parent, name, DoubleNorm(child))
            elif isinstance(child, modeling_llama.LlamaRotaryEmbedding):
                setattr(parent, name, DoubleRotary(model.config))
    return model


def write_checkpoint(name, path):
    config, dtype, most = CASES[name]
    model, random = transformers.AutoModelForCausalLM.from_config(config), generator(name + "/parameters")
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            gain = parameter.dim() == 1 and key.endswith("weight")
            scale = 0.3 if parameter.dim() > 1 else 0.1
            parameter.copy_((normal(random, *parameter.shape, scale=scale) + gain).to(dtype))
    shutil.rmtree(path, ignore_errors=True)
    model.to(dtype).save_pretrained(path, **({} if most is None else {"max_shard_size": most}))
    (path / "generation_config.json").unlink()


def load(path, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa")
    return (in_double(model) if dtype == torch.float64 else model).eval()  # no dropout, in fine-tuning neither


def fine_tune(path, batches, dtype):
    """Returns the losses: in double from the logits, in single precision as transformers computes them."""
    model, losses = load(path, dtype), []
    parameters = [p for _, p in sorted(model.named_parameters())]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": TRAINING["weight_decay"]},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        lr=TRAINING["learning_rate"], betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["adam_epsilon"])
    for batch in batches:
        if dtype == torch.float64:
            logits = model(batch).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
        else:
            loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return numpy.array(losses, dtype=numpy.float64 if dtype == torch.float64 else numpy.float32)


def make(folder):
    file = GoldenFile()
    for name, (config, _, _) in CASES.items():
        path, random = folder / "hugging_face" / name, generator(name)
        write_checkpoint(name, path)
        ids = integers(random, config.vocab_size, BATCH, LENGTH)
        batches = integers(random, config.vocab_size, STEPS, BATCH, LENGTH)
        with torch.no_grad():
            logits, logits_f32 = load(path, torch.float64)(ids).logits, load(path, torch.float32)(ids).logits
        print(f"{name}: f32 logits differ from f64 ones by {(logits - logits_f32).abs().max():.1e}")
        file.add(f"{name}/ids", ids)
        file.add(f"{name}/logits", logits)
        file.add(f"{name}/logits_f32", logits_f32)
        file.add(f"{name}/batches", batches)
        file.add(f"{name}/losses", fine_tune(path, batches, torch.float64))
        file.add(f"{name}/losses_f32", fine_tune(path, batches, torch.float32))
        file.options[name] = TRAINING
    return file


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    here = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    make(here).save(here / "hugging_face.safetensors")
