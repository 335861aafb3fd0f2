"""A decoder-only language model in plain PyTorch, with our parameter names: GPT-2 with one configuration, Llama with
another. The configuration's keys are those of DecoderOnlyConfig."""

import math

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {"relu": F.relu, "relu_squared": lambda x: F.relu(x).square(), "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["width"]
        self.epsilon, self.kind = config["epsilon"], config["norm"]
        self.weight = nn.Parameter(torch.full((1,), width**0.5) if self.kind == "scale" else torch.ones(width))
        has_bias = config["norm_bias"] and self.kind == "layer"
        self.bias = nn.Parameter(torch.zeros(width)) if has_bias else None

    def forward(self, x):
        if self.kind == "scale":
            return self.weight * x / torch.sqrt(x.pow(2).sum(-1, keepdim=True) + x.shape[-1] * self.epsilon)
        if self.kind == "rms":
            return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


def rms_normed(x, weight):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def has_values(config, number):
    """Whether the layer of this number has value embeddings."""
    last = config["layers"] - 1
    return {"none": False, "ends": number in (0, last), "alternate": (last - number) % 2 == 0,
            "all": True}[config.get("value_embeddings", "none")]


class Gain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


def turn(x, base, layout):
    """Rotary positions 0, 1, ... of x [B, H, T, D]."""
    length, width = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.config, width = config, config["width"]
        self.heads = config["heads"]
        self.groups = {"mha": self.heads, "gqa": config.get("groups"), "mqa": 1}[config["attention"]]
        head_width = config.get("head_width") or width // self.heads
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=config["attention_bias"])
        self.query = linear(width, self.heads * head_width)
        self.key = linear(width, self.groups * head_width)
        self.value = linear(width, self.groups * head_width)
        self.output = linear(self.heads * head_width, width)
        if config.get("qk_norm"):
            self.query_norm, self.key_norm = Gain(head_width), Gain(head_width)
        if has_values(config, number):
            self.value_mixing = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, x, mask, values):
        """mask broadcasts to [B, H, T, T], true = may attend; None: causal. values [B, T, G D] or None."""
        query, key, value = (y.unflatten(-1, (heads, -1)).transpose(1, 2)
                             for y, heads in ((self.query(x), self.heads), (self.key(x), self.groups),
                                              (self.value(x), self.groups)))
        if values is not None:
            value = self.value_mixing[0] * value + self.value_mixing[1] * values.unflatten(
                -1, (self.groups, -1)).transpose(1, 2)
        if self.config.get("qk_norm"):
            query, key = rms_normed(query, self.query_norm.weight), rms_normed(key, self.key_norm.weight)
        if self.config["positions"] == "rotary":
            query, key = (turn(y, self.config["rotary_base"], self.config["rotary_layout"]) for y in (query, key))
        if self.groups != self.heads:
            key, value = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, hidden, bias = config["width"], config["feed_forward"], config["feed_forward_bias"]
        self.activation, self.gated = ACTIVATIONS[config["activation"]], config["gated"]
        self.up = nn.Linear(width, hidden * (2 if self.gated else 1), bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        if not self.gated:
            return self.down(self.activation(self.up(x)))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate) * up)


class ShortConvolution(nn.Module):
    """The weight is one row of numbers: those of the token itself, of the one before it, ..."""

    def __init__(self, width, taps):
        super().__init__()
        self.width, self.taps, self.weight = width, taps, nn.Parameter(torch.zeros(taps * width))

    def forward(self, x):
        kernel = self.weight.view(self.taps, self.width).flip(0).T[:, None]
        columns = F.pad(x.transpose(1, 2), (self.taps - 1, 0))
        return x + F.conv1d(columns, kernel, groups=self.width).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.attention_norm, self.attention = Norm(config), Attention(config, number)
        self.feed_forward_norm, self.feed_forward = Norm(config), FeedForward(config)
        self.mixes = config.get("embedding_mixing", False)
        if self.mixes:
            self.embedding_mixing = nn.Parameter(torch.tensor([1.0, 0.0]))
        taps = config.get("short_convolution", 0)
        for name in ("attention_convolution", "feed_forward_convolution"):
            setattr(self, name, ShortConvolution(config["width"], taps) if taps else nn.Identity())
        if has_values(config, number):
            self.value_embedding = nn.Embedding(config["vocabulary"], self.attention.value.out_features)

    def forward(self, x, mask, ids, first):
        if self.mixes:
            x = self.embedding_mixing[0] * x + self.embedding_mixing[1] * first
        values = self.value_embedding(ids) if hasattr(self, "value_embedding") else None
        x = x + self.attention(self.attention_convolution(self.attention_norm(x)), mask, values)
        return x + self.feed_forward(self.feed_forward_convolution(self.feed_forward_norm(x)))


def sinusoids(length, width):
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width]


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, width, vocabulary = config, config["width"], config["vocabulary"]
        self.embedding = nn.Embedding(vocabulary, width)
        if config["positions"] == "learned":
            self.positions = nn.Embedding(config["context"], width)
        if config.get("embedding_norm"):
            self.embedding_norm = Norm(config)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config["layers"]))
        self.norm = Norm(config)
        self.head = nn.Linear(width, vocabulary, bias=config["head_bias"])
        if config["tie_head"]:
            self.head.weight = self.embedding.weight

    def initialise(self):
        """As nanoGPT does: what writes into the residual sum starts smaller, by the number of sublayers."""
        residual = 0.02 / math.sqrt(2 * self.config["layers"])
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                writes = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                nn.init.normal_(parameter, std=residual if writes else 0.02)

    def forward(self, ids, prefix_lengths=None):
        """ids [B, T] -> logits [B, T, V]; the first prefix_lengths[b] tokens of a row see each other."""
        length, x, mask = ids.shape[1], self.embedding(ids), None
        if self.config.get("fix_norm"):
            x = rms_normed(x, 1)
        if self.config["positions"] == "learned":
            x = x + self.positions.weight[:length]
        elif self.config["positions"] == "sinusoidal":
            x = x * math.sqrt(x.shape[-1]) + sinusoids(length, x.shape[-1]).to(x.dtype)
        if prefix_lengths is not None:
            causal = torch.ones(length, length, dtype=torch.bool).tril()
            mask = (causal | (torch.arange(length) < prefix_lengths[:, None, None]))[:, None]
        if self.config.get("embedding_norm"):
            x = self.embedding_norm(x)
        first = x
        for layer in self.layers:
            x = layer(x, mask, ids, first)
        words = self.head.weight
        if self.config.get("fix_norm"):
            words = rms_normed(words, words.shape[-1] ** -0.5)
        logits, cap = F.linear(self.norm(x), words, self.head.bias), self.config.get("logit_softcap", 0)
        return cap * torch.tanh(logits / cap) if cap else logits

    def loss(self, ids, targets, prefix_lengths=None):
        return F.cross_entropy(self(ids, prefix_lengths).flatten(0, 1), targets.flatten().long(), ignore_index=-1)

    def optimizer(self, learning_rate, betas, weight_decay):
        """AdamW that decays matrices and tables, and neither gains nor biases."""
        parameters = list(self.parameters())
        return torch.optim.AdamW([{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
                                  {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
                                 lr=learning_rate, betas=betas)


def learning_rate(step, peak, minimum, warmup, total):
    """Update n = step + 1 of a linear rise to n = warmup and half a cosine wave down to n = total."""
    n = step + 1
    if n < warmup:
        return peak * n / warmup
    progress = min((n - warmup) / (total - warmup), 1)
    return minimum + (peak - minimum) * (1 + math.cos(math.pi * progress)) / 2
