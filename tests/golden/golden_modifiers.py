"""Attention whose scores are modified: PyTorch's flex_attention with a score_mod, transformers' T5 buckets and gpt-oss
sinks, sigmoid weights by the formula. Writes modifiers.safetensors."""

import math
import types

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
from transformers.models.t5.modeling_t5 import T5Attention

from golden_attention import inputs
from golden_file import file_of, generator, normal

INFINITY = float("inf")
SIZES = {"queries": 7, "keys": 11, "heads": 6, "groups": 2, "width": 5, "value_width": 3}


def flex(query, key, value, score_mod, causal):
    """On [B, T, H, D], causal aligned to the last query and key. flex_attention has no gradient on a CPU, so those are of
    the same formula on whole matrices, whose output is seen to be flex_attention's."""
    batch, queries, keys, heads = query.shape[0], query.shape[1], key.shape[1], query.shape[2]
    visible = lambda b, h, t, s: s <= t + keys - queries
    b, h, t, s = torch.meshgrid(*map(torch.arange, (batch, heads, queries, keys)), indexing="ij")
    repeated = [x.repeat_interleave(heads // key.shape[2], dim=2) for x in (key, value)]
    scores = torch.einsum("bthd,bshd->bhts", query, repeated[0]) / math.sqrt(query.shape[-1])
    scores = score_mod(scores, b, h, t, s)
    if causal:
        scores = scores.masked_fill(~visible(b, h, t, s), -INFINITY)
    y = torch.einsum("bhts,bshe->bthe", scores.softmax(-1), repeated[1])
    with torch.no_grad():
        mask = create_block_mask(visible, batch, None, queries, keys, device="cpu") if causal else None
        by_head = [x.detach().transpose(1, 2) for x in (query, key, value)]
        same = flex_attention(*by_head, score_mod=score_mod, block_mask=mask, enable_gqa=True).transpose(1, 2)
    assert torch.allclose(y, same, rtol=1e-12, atol=1e-12)
    return y


def softcap(file):
    for name, causal in [("softcap", False), ("softcap_causal", True)]:
        def run(query, key, value, score_parameter):
            cap = lambda score, b, h, t, s: score_parameter[h] * torch.tanh(score / score_parameter[h])
            return flex(query, key, value, cap, causal)

        caps = 0.5 + normal(generator(name + "/cap"), SIZES["heads"]).abs()
        file.case(name, run, {**inputs(name, **SIZES), "score_parameter": caps}, causal=causal, score_function="softcap")


def biases(file):
    heads, offset = SIZES["heads"], SIZES["keys"] - SIZES["queries"]
    reach = max(SIZES["queries"], SIZES["keys"]) - 1

    def relative(query, key, value, relative_bias):
        add = lambda score, b, h, t, s: score + relative_bias[h, s - (t + offset) + reach]
        return flex(query, key, value, add, True)

    bias = normal(generator("relative/bias"), heads, 2 * reach + 1)
    file.case("relative", relative, {**inputs("relative", **SIZES), "relative_bias": bias}, causal=True)

    def alibi(query, key, value, slopes):
        add = lambda score, b, h, t, s: score - slopes[h] * (s - (t + offset)).abs()
        return flex(query, key, value, add, True)

    slopes = normal(generator("alibi/slopes"), heads).abs()
    file.case("alibi", alibi, {**inputs("alibi", **SIZES), "slopes": slopes}, causal=True)

    for name, bidirectional in [("buckets", True), ("buckets_causal", False)]:
        def bucketed(query, key, value, table):
            positions = torch.arange(SIZES["keys"])[None] - torch.arange(SIZES["queries"])[:, None] - offset
            bucket = T5Attention._relative_position_bucket(positions, bidirectional, 8, 9)
            add = lambda score, b, h, t, s: score + table[bucket[t, s], h]
            return flex(query, key, value, add, not bidirectional)

        table = normal(generator(name + "/table"), 8, heads)
        file.case(name, bucketed, {**inputs(name, **SIZES), "table": table}, causal=not bidirectional, count=8,
                  max_distance=9, bidirectional=bidirectional)


def sinks(file):
    def run(query, key, value, sinks, causal):
        groups = query.shape[2] // key.shape[2]
        module = types.SimpleNamespace(num_key_value_groups=groups, sinks=sinks, training=False)
        mask = torch.zeros(query.shape[1], key.shape[1], dtype=torch.float64)
        if causal:
            mask = mask.masked_fill(torch.ones_like(mask).tril(key.shape[1] - query.shape[1]) == 0, -INFINITY)
        y, _ = eager_attention_forward(module, query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                                       mask[None, None], scaling=1 / math.sqrt(query.shape[-1]))
        return y

    for name, causal in [("sinks", False), ("sinks_causal", True)]:
        case = {**inputs(name, **SIZES), "sinks": normal(generator(name + "/sinks"), SIZES["heads"])}
        file.case(name, lambda query, key, value, sinks: run(query, key, value, sinks, causal), case, causal=causal)


def sigmoid(file):
    def run(query, key, value, mask):
        groups = query.shape[2] // key.shape[2]
        key, value = key.repeat_interleave(groups, dim=2), value.repeat_interleave(groups, dim=2)
        scores = torch.einsum("bthd,bshd->bhts", query, key) / math.sqrt(query.shape[-1]) + mask
        return torch.einsum("bhts,bshe->bthe", torch.sigmoid(scores), value)

    mask = normal(generator("sigmoid/mask"), 7, 11) - math.log(11)
    file.case("sigmoid", run, {**inputs("sigmoid", **SIZES), "mask": mask}, weighting="sigmoid")


def buckets(file):
    """Of every distance, for many tables."""
    reach = 300
    distances = torch.arange(-reach, reach + 1)
    for count, furthest in [(32, 128), (32, 64), (8, 20), (16, 300), (64, 256), (4, 3), (6, 50), (33, 100)]:
        for bidirectional in (True, False):
            name = f"bucket_ids/{count}_{furthest}_{'both' if bidirectional else 'before'}"
            file.add(name, T5Attention._relative_position_bucket(distances, bidirectional, count, furthest))


def make():
    return file_of(softcap, biases, sinks, sigmoid, buckets)
