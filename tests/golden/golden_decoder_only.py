"""Logits, loss and gradients of small language models; see README.md."""

import torch

from golden_file import GoldenFile, generator, integers, normal
from golden_language_model import LanguageModel

GPT = {"vocabulary": 13, "context": 9, "layers": 2, "width": 12, "attention": "mha", "heads": 3, "norm": "layer",
       "epsilon": 1e-5, "norm_bias": False, "positions": "learned", "feed_forward": 19, "activation": "gelu",
       "gated": False, "attention_bias": False, "feed_forward_bias": False, "tie_head": True, "head_bias": False}
BIASED = {**GPT, "norm_bias": True, "attention_bias": True, "feed_forward_bias": True, "activation": "gelu_tanh"}
LLAMA = {**GPT, "attention": "gqa", "heads": 6, "groups": 2, "head_width": 4, "norm": "rms", "epsilon": 1e-6,
         "positions": "rotary", "rotary_base": 500.0, "rotary_layout": "half_split", "activation": "silu",
         "gated": True, "tie_head": False}
CASES = {
    "gpt": GPT,
    "gpt_biased": BIASED,
    "llama": LLAMA,
    "llama_interleaved": {**LLAMA, "attention": "mqa", "groups": 0, "rotary_layout": "interleaved", "tie_head": True},
    "prefix": {**BIASED, "positions": "sinusoidal", "activation": "relu", "tie_head": False, "head_bias": True},
}
CASES["modern"] = {**LLAMA, "attention": "mha", "groups": 0, "activation": "relu_squared", "gated": False,
                   "qk_norm": True, "logit_softcap": 2.5}
CASES["convolutions"] = {**LLAMA, "short_convolution": 4}
CASES["windows"] = {**LLAMA, "layers": 3, "window": 3, "windows": "SL", "value_residual": True, "qk_norm": "l2",
                    "output_gate": "element", "exclusive": True, "qk_norm_epsilon": 1e-3}
CASES["sharing"] = {**LLAMA, "layers": 3, "kv_sharing": 2, "qk_norm": "joint", "output_gate": "head",
                    "sublayer_norms": "output", "attention": "mha", "groups": 0, "window": 4}
CASES["yarn"] = {**LLAMA, "rotary_yarn": True, "rotary_factor": 4.0, "rotary_original_context": 16, "head_width": 12,
                 "rotary_low_frequency": 1.0, "rotary_high_frequency": 32.0, "rotary_attention_factor": 1.138629,
                 "qk_norm": "rms", "rotary_base": 10.0}
CASES["no_positions"] = {**GPT, "positions": "none", "value_residual": True, "window": 2,
                         "windows": "LS"}
BATCH, LENGTH = 3, 7


def model_of(name, config):
    """Values in double that a float holds exactly, so that both precisions start from the same point."""
    model, random = LanguageModel(config).double(), generator(name + "/parameters")
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
            gain = key.endswith("norm.weight")
            parameter.copy_((normal(random, *parameter.shape, scale=scale) + gain).float())
    return model


def key_biases(model):
    """Gradients that are zero in theory, unless there are rotary positions."""
    rotary = model.config["positions"] == "rotary"
    return [] if rotary else [key for key, _ in model.named_parameters() if key.endswith("key.bias")]


def add_case(file, name, config):
    model, random = model_of(name, config), generator(name)
    ids = integers(random, config["vocabulary"], BATCH, LENGTH)
    targets = integers(random, config["vocabulary"], BATCH, LENGTH)
    targets[0, 2] = targets[2, 6] = -1
    prefix_lengths = torch.tensor([4, 0, 7]) if name == "prefix" else None
    logits = model(ids, prefix_lengths)
    loss = model.loss(ids, targets, prefix_lengths)
    loss.backward()
    file.add(f"{name}/ids", ids)
    file.add(f"{name}/targets", targets)
    if prefix_lengths is not None:
        file.add(f"{name}/prefix_lengths", prefix_lengths)
    file.add(f"{name}/logits", logits)
    file.add(f"{name}/loss", loss)
    for key, parameter in model.named_parameters():
        file.add(f"{name}/param.{key}", parameter)
        file.add(f"{name}/grad.{key}", parameter.grad)
    file.options[name] = {**config, "zero_gradients": key_biases(model)}


def make():
    file = GoldenFile()
    for name, config in CASES.items():
        add_case(file, name, config)
    return file
