"""scaled_dot_product_attention over a grid of its options; windows and prefixes by the formula."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from golden_file import file_of, generator, integers, normal

INFINITY = float("inf")


def inputs(name, batch=2, queries=7, keys=9, heads=4, groups=4, width=5, value_width=3):
    random = generator(name)
    return {"query": normal(random, batch, queries, heads, width), "key": normal(random, batch, keys, groups, width),
            "value": normal(random, batch, keys, groups, value_width)}


def sdpa(query, key, value, mask=None, **options):
    """On [B, T, H, D]; PyTorch wants [B, H, T, D]."""
    return F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                                          attn_mask=mask, enable_gqa=True, **options).transpose(1, 2)


def plain(file):
    run = lambda query, key, value: sdpa(query, key, value)
    file.case("plain", run, inputs("plain"))
    file.case("one_query", run, inputs("one_query", queries=1))
    file.case("one_key", run, inputs("one_key", keys=1))
    file.case("wide_values", run, inputs("wide_values", width=3, value_width=11))
    file.case("long", run, inputs("long", batch=1, queries=33, keys=65, heads=2, groups=1, width=8, value_width=17))
    file.case("scale", lambda query, key, value: sdpa(query, key, value, scale=0.3), inputs("scale"), scale=0.3)
    for groups in (1, 2, 3):
        name = f"grouped_{groups}"
        file.case(name, run, inputs(name, heads=6, groups=groups))


def causal(file):
    for name, queries, keys in [("causal", 7, 7), ("causal_more_keys", 5, 9), ("causal_more_queries", 9, 5)]:
        file.case(name, lambda query, key, value: sdpa(query, key, value, is_causal=True),
                  inputs(name, queries=queries, keys=keys), causal=True, top_left=True)
    for name, queries, keys in [("causal_last", 5, 9), ("causal_last_long", 33, 70)]:
        case = inputs(name, queries=queries, keys=keys, groups=2)
        file.case(name, lambda query, key, value: sdpa(query, key, value, causal_lower_right(queries, keys)), case,
                  causal=True)
    file.case("causal_grouped", lambda query, key, value: sdpa(query, key, value, is_causal=True, scale=0.7),
              inputs("causal_grouped", queries=7, keys=7, heads=6, groups=2), causal=True, top_left=True, scale=0.7)


def masks(file):
    """Every way to broadcast; in `_rows` some rows see nothing."""
    run = lambda query, key, value, mask: sdpa(query, key, value, mask)
    for shape in [(1, 9), (7, 9), (7, 1), (4, 1, 9), (2, 1, 1, 9), (2, 1, 7, 9), (1, 4, 7, 9), (2, 4, 7, 9)]:
        suffix = "_".join(map(str, shape))
        random = generator("mask" + suffix)
        may = integers(random, 3, *shape) > 0
        if shape[-1] > 1:
            may[..., 0] = True
        added = normal(random, *shape)
        file.case("bool_" + suffix, run, inputs("bool_" + suffix), constants={"mask": may})
        file.case("float_" + suffix, run, inputs("float_" + suffix), constants={"mask": added})
        if shape[-1] == 1 or shape[-2] == 1:
            continue
        may = may.clone()
        may[..., -1, :] = False
        file.case("bool_rows_" + suffix, run, inputs("bool_rows_" + suffix, groups=2), constants={"mask": may})
        file.case("float_rows_" + suffix, run, inputs("float_rows_" + suffix, groups=2),
                  constants={"mask": added.masked_fill(~may, -INFINITY)})


def formula(query, key, value, may):
    """softmax(query key^T / sqrt(D)) value over the pairs of `may` [B, T, S], head by head."""
    groups = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(groups, dim=2), value.repeat_interleave(groups, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", query, key) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~may[:, None], -INFINITY).softmax(-1)
    return torch.einsum("bhts,bshe->bthe", weights, value)


def windows_and_prefixes(file):
    def pairs(queries, keys, before, after, causal, prefix):
        position = torch.arange(queries)[None, :, None] + keys - queries
        key = torch.arange(keys)[None, None, :]
        may = (key >= position - before) & (key <= position + after)
        return may & ((key <= position) | (key < prefix[:, None, None])) if causal else may.expand(2, -1, -1)

    nothing, prefix, limit = torch.tensor([0, 0]), torch.tensor([3, 6]), 10**6
    for name, queries, keys, before, after, causal, lengths in [
        ("window_back", 7, 9, 2, 0, False, nothing),
        ("window_both", 7, 9, 1, 2, False, nothing),
        ("window_ahead", 7, 9, 0, 3, False, nothing),
        ("window_before_only", 7, 9, 2, limit, False, nothing),
        ("window_causal", 9, 9, 3, limit, True, nothing),
        ("window_long", 66, 66, 32, 5, False, nothing),
        ("prefix", 7, 7, limit, limit, True, prefix),
        ("prefix_more_keys", 5, 9, limit, limit, True, prefix),
        ("prefix_window", 8, 8, 3, 2, True, prefix),
    ]:
        may = pairs(queries, keys, before, after, causal, lengths)
        assert may.any(-1).all(), name
        file.case(name, lambda query, key, value, prefix: formula(query, key, value, may),
                  inputs(name, queries=queries, keys=keys, groups=2), constants={"prefix": lengths}, causal=causal,
                  before=-1 if before == limit else before, after=-1 if after == limit else after)


def make():
    return file_of(plain, causal, masks, windows_and_prefixes)
