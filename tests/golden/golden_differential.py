"""Differential attention in plain PyTorch, with two softmaxes written out; see README.md."""

import torch
import torch.nn.functional as F

from golden_file import GoldenFile, generator, normal
from golden_language_model import turn

WIDTH, HEADS, LENGTH = 12, 4, 7
ROTARY = {"rotary_base": 100.0, "rotary_layout": "half_split"}


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def weights_of(query, key, causal):
    """[B, H, T, S] from query [B, H, T, D] and key [B, G, S, D]."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~allowed, float("-inf"))
    return scores.softmax(-1)


def add_case(file, name, groups, key_width, value_width, rotary, cross=False, initial=0.8):
    random, parameters = generator(name), {}
    memory_width = 9 if cross else WIDTH

    def parameter(key, *shape, scale=0.4, gain=0.0):
        parameters[key] = (normal(random, *shape, scale=scale) + gain).requires_grad_()
        return parameters[key]

    queries = HEADS * key_width
    parameter("query.weight", queries, WIDTH), parameter("query.bias", queries)
    rows = groups * (key_width + value_width)
    parameter("key_value.weight", rows, memory_width), parameter("key_value.bias", rows)
    parameter("lambda_vectors", 2 * key_width)
    parameter("head_norm.weight", value_width, gain=1.0)
    parameter("output.weight", WIDTH, HEADS * value_width), parameter("output.bias", WIDTH)

    def call(x, memory=None):
        memory, p = x if memory is None else memory, parameters
        query = F.linear(x, p["query.weight"], p["query.bias"])
        key_value = F.linear(memory, p["key_value.weight"], p["key_value.bias"])
        key, value = key_value.split([groups * key_width, groups * value_width], dim=-1)
        value = heads_of(value, groups).repeat_interleave(HEADS // groups, dim=1)
        query = heads_of(query, 2 * HEADS)  # neighbours make a pair
        key = heads_of(key, 2 * groups)
        if rotary:
            query, key = turn(query, ROTARY), turn(key, ROTARY)
        first, second = query[:, 0::2], query[:, 1::2]
        weights = weights_of(first, key[:, 0::2], not cross), weights_of(second, key[:, 1::2], not cross)
        a1, b1, a2, b2 = p["lambda_vectors"].chunk(4)
        factor = torch.exp(a1 @ b1) - torch.exp(a2 @ b2) + initial
        heads = (weights[0] - factor * weights[1]) @ value
        heads = heads / torch.sqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-5) * p["head_norm.weight"]
        heads = heads * (1 - initial)
        return F.linear(heads.transpose(1, 2).flatten(2), p["output.weight"], p["output.bias"])

    inputs = {"x": normal(random, 2, LENGTH, WIDTH)}
    if cross:
        inputs["memory"] = normal(random, 2, 5, memory_width)
    file.case(name, call, inputs, parameters, heads=HEADS, groups=groups, key_width=key_width, value_width=value_width,
              rotary=rotary, cross=cross, memory_width=memory_width, initial=initial,
              zero_gradients=[], **ROTARY)


def make():
    file = GoldenFile()
    add_case(file, "plain", 4, 6, 5, False)
    add_case(file, "grouped_rotary", 2, 8, 6, True, initial=0.35)
    add_case(file, "cross", 4, 4, 5, False, cross=True)
    return file
