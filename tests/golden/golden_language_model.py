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
        self.weight = nn.Parameter(torch.ones(width))
        has_bias = config["norm_bias"] and self.kind == "layer"
        self.bias = nn.Parameter(torch.zeros(width)) if has_bias else None

    def forward(self, x):
        if self.kind == "rms":
            return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


def rms_normed(x, weight, epsilon=1e-6):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def window_of(config, number):
    """Tokens that the layer of this number sees; None for all."""
    pattern, layers = config.get("windows", ""), config["layers"]
    if not config.get("window") or (pattern and len(pattern) != layers and number == layers - 1):
        return None
    return config["window"] if not pattern or pattern[number % len(pattern)] == "S" else None


class Gain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


def frequencies_of(config, width):
    """Those of rotary positions, plain or with YaRN's scaling as its authors compute it."""
    base, pairs = config["rotary_base"], width // 2
    plain = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if not config.get("rotary_yarn"):
        return plain

    def place(turns):
        return width * math.log(config["rotary_original_context"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(place(config["rotary_high_frequency"])), 0)
    high = min(math.ceil(place(config["rotary_low_frequency"])), width - 1)
    ramp = ((torch.arange(pairs, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / config["rotary_factor"] * ramp + plain * (1 - ramp)


def turn(x, config):
    """Rotary positions 0, 1, ... of x [B, H, T, D]."""
    length, width = x.shape[-2:]
    layout, factor = config["rotary_layout"], config.get("rotary_attention_factor", 1)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies_of(config, width)
    cos, sin = (factor * angles.cos()).to(x.dtype), (factor * angles.sin()).to(x.dtype)
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
        self.has_keys = number % config.get("kv_sharing", 1) == 0
        if self.has_keys:
            self.key = linear(width, self.groups * head_width)
            self.value = linear(width, self.groups * head_width)
        self.output = linear(self.heads * head_width, width)
        self.norm_kind = {True: "rms", False: "none"}.get(config.get("qk_norm"), config.get("qk_norm")) or "none"
        if self.norm_kind == "l2":
            self.query_norm = Gain(self.heads)
        elif self.norm_kind != "none":
            joint = self.norm_kind == "joint"
            self.query_norm = Gain(head_width * (self.heads if joint else 1))
            if self.has_keys:
                self.key_norm = Gain(head_width * (self.groups if joint else 1))
        if config.get("value_residual") and number > 0:
            self.value_residual = nn.Parameter(torch.full((2,), 0.5))
        gates = {"head": self.heads, "element": self.heads * head_width}.get(config.get("output_gate"))
        if gates:
            self.gate = nn.Linear(width, gates, bias=False)
        self.window = window_of(config, number)

    def normed(self, x, heads, gain):
        """[B, T, H D] -> [B, H, T, D]; l2: queries times their factor, keys as they are."""
        epsilon = self.config.get("qk_norm_epsilon", 1e-6)
        if self.norm_kind == "joint":
            x = rms_normed(x, gain.weight, epsilon)
        x = x.unflatten(-1, (heads, -1)).transpose(1, 2)
        if self.norm_kind == "rms":
            return rms_normed(x, gain.weight, epsilon)
        if self.norm_kind == "l2":
            x = x / torch.sqrt(x.pow(2).sum(-1, keepdim=True) + x.shape[-1] * epsilon)
            return x if gain is None else x * gain.weight[:, None, None]
        return x

    def forward(self, x, mask, handed):
        """mask broadcasts to [B, H, T, T], true = may attend; None: causal. handed: values that layers pass to later ones."""
        rotary, length = self.config["positions"] == "rotary", x.shape[1]
        query = self.normed(self.query(x), self.heads, getattr(self, "query_norm", None))
        query = turn(query, self.config) if rotary else query
        if self.has_keys:
            key = self.normed(self.key(x), self.groups, getattr(self, "key_norm", None))
            key = turn(key, self.config) if rotary else key
            value = self.value(x).unflatten(-1, (self.groups, -1)).transpose(1, 2)
            if hasattr(self, "value_residual"):
                value = self.value_residual[0] * value + self.value_residual[1] * handed["first"]
            handed.setdefault("first", value)
            handed["shared"] = key, value
        key, value = handed["shared"]
        if self.groups != self.heads:
            key, value = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (key, value))
        if self.window:
            seen = torch.ones(length, length, dtype=torch.bool).tril().triu(1 - self.window)
            mask = seen if mask is None else mask & torch.ones_like(seen).triu(1 - self.window)
        scale = 1.0 if self.norm_kind == "l2" else None
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale)
        if self.config.get("exclusive"):
            mixed = mixed - (mixed * value).sum(-1, keepdim=True) / value.pow(2).sum(-1, keepdim=True) * value
        mixed = mixed.transpose(1, 2)
        if hasattr(self, "gate"):
            mixed = mixed * torch.sigmoid(self.gate(x)).unflatten(-1, (self.heads, -1))
        return self.output(mixed.flatten(2))


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
        self.norms_outputs = config.get("sublayer_norms") == "output"
        taps = config.get("short_convolution", 0)
        for name in ("attention_convolution", "feed_forward_convolution"):
            setattr(self, name, ShortConvolution(config["width"], taps) if taps else nn.Identity())

    def forward(self, x, mask, handed):
        if self.norms_outputs:
            x = x + self.attention_norm(self.attention(x, mask, handed))
            return x + self.feed_forward_norm(self.feed_forward(x))
        x = x + self.attention(self.attention_convolution(self.attention_norm(x)), mask, handed)
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
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config["layers"]))
        self.norm = Norm(config)
        self.head = nn.Linear(width, vocabulary, bias=config["head_bias"])
        if config["tie_head"]:
            self.head.weight = self.embedding.weight

    def forward(self, ids, prefix_lengths=None):
        """ids [B, T] -> logits [B, T, V]; the first prefix_lengths[b] tokens of a row see each other."""
        length, x, mask = ids.shape[1], self.embedding(ids), None
        if self.config["positions"] == "learned":
            x = x + self.positions.weight[:length]
        elif self.config["positions"] == "sinusoidal":
            x = x * math.sqrt(x.shape[-1]) + sinusoids(length, x.shape[-1]).to(x.dtype)
        if prefix_lengths is not None:
            causal = torch.ones(length, length, dtype=torch.bool).tril()
            mask = (causal | (torch.arange(length) < prefix_lengths[:, None, None]))[:, None]
        handed = {}
        for layer in self.layers:
            x = layer(x, mask, handed)
        logits, cap = self.head(self.norm(x)), self.config.get("logit_softcap", 0)
        return cap * torch.tanh(logits / cap) if cap else logits

    def loss(self, ids, targets, prefix_lengths=None):
        return F.cross_entropy(self(ids, prefix_lengths).flatten(0, 1), targets.flatten().long(), ignore_index=-1)
