"""PyTorch's own attention and transformer layers, with their parameters under our names."""

import torch
import torch.nn.functional as F
from torch import nn

from golden_file import file_of, generator, normal

WIDTH, HEADS, FEED_FORWARD = 12, 3, 19
BATCH, TARGET, SOURCE = 3, 5, 7
KEY_INPUT, VALUE_INPUT = 9, 10  # widths of the keys' and values' inputs where they differ
SOURCE_LENGTHS = torch.tensor([7, 4, 6])
TARGET_LENGTHS = torch.tensor([3, 5, 4])


class MultiHeadAttention(nn.Module):
    """With d_k != d_v, which PyTorch's layer cannot do."""

    def __init__(self, width, heads, key_width, value_width):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * key_width)
        self.key = nn.Linear(width, heads * key_width)
        self.value = nn.Linear(width, heads * value_width)
        self.output = nn.Linear(heads * value_width, width)

    def forward(self, x, memory, mask):
        """mask broadcasts to [B, H, T, S]; true = may attend."""
        query, key, value = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for y in (self.query(x), self.key(memory), self.value(memory)))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


def may_attend(lengths, longest):
    return torch.arange(longest) < lengths[:, None]


def randomise(module, name):
    """Every parameter random, biases and norms too, so that none hides behind a zero or a one."""
    random = generator(name + "/parameters")
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            parameter.copy_(normal(random, *parameter.shape, scale=0.3) + ("norm" in key and "weight" in key))


def expose_attention(child, prefix):
    leaves = {}
    for kind in ("weight", "bias"):
        packed = getattr(child, "in_proj_" + kind)
        if packed is not None:
            parts = [part.detach().clone().requires_grad_() for part in packed.chunk(3)]
            leaves.update({f"{prefix}{part}.{kind}": leaf for part, leaf in zip(("query", "key", "value"), parts)})
            delattr(child, "in_proj_" + kind)
            setattr(child, "in_proj_" + kind, torch.cat(parts))
        if getattr(child.out_proj, kind) is not None:
            leaves[f"{prefix}output.{kind}"] = getattr(child.out_proj, kind)
    for part in ("query", "key", "value"):  # apart already, where the inputs have widths of their own
        if (weight := getattr(child, part[0] + "_proj_weight")) is not None:
            leaves[f"{prefix}{part}.weight"] = weight
    return leaves


def expose(module):
    """Splits the packed query/key/value projection of each nn.MultiheadAttention into leaves that it then reads.

    Returns {our name: leaf}; the module keeps PyTorch's own forward.
    """
    renames = {"self_attn": "self_attention", "multihead_attn": "cross_attention", "linear1": "feed_forward.up",
               "linear2": "feed_forward.down"}
    decoder = isinstance(module, nn.TransformerDecoderLayer)
    norms = ["self_attention_norm", *(["cross_attention_norm"] if decoder else []), "feed_forward_norm"]
    renames.update({f"norm{i + 1}": name for i, name in enumerate(norms)})
    leaves = {}
    for path, child in list(module.named_modules()):
        if isinstance(child, nn.MultiheadAttention):
            leaves.update(expose_attention(child, renames[path] + "." if path else ""))
        elif path in renames:
            leaves.update({f"{renames[path]}.{kind}": getattr(child, kind) for kind in ("weight", "bias")})
    return leaves


def key_biases(leaves):
    """A key bias adds the same to all scores of a row, so its gradient is zero apart from rounding."""
    return [name for name in leaves if name.endswith("key.bias")]


def add_layer(file, name, module, call, inputs, constants, **options):
    randomise(module, name)
    leaves = expose(module)
    file.case(name, lambda **given: call(module, **given), inputs, dict(sorted(leaves.items())), constants,
              heads=HEADS, zero_gradients=key_biases(leaves), **options)


def attention(file):
    future = torch.ones(SOURCE, SOURCE, dtype=torch.bool).triu(1)  # PyTorch: true = may not attend
    source, target = (lambda name, length=length: normal(generator(name), BATCH, length, WIDTH)
                      for length in (SOURCE, TARGET))
    seen = {"memory_may_attend": may_attend(SOURCE_LENGTHS, SOURCE)}
    multi_head = lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    add_layer(file, "attention_self", multi_head(), lambda module, x: module(x, x, x)[0],
              {"x": source("attention_self")}, {})
    add_layer(file, "attention_causal", multi_head(), lambda module, x: module(x, x, x, attn_mask=future)[0],
              {"x": source("attention_causal")}, {}, causal=True)
    add_layer(file, "attention_cross", multi_head(),
              lambda module, x, memory, memory_may_attend: module(
                  x, memory, memory, key_padding_mask=~memory_may_attend)[0],
              {"x": target("attention_cross"), "memory": source("attention_cross/memory")}, seen)

    # Masks of each query and head, with no row that sees nothing.
    random = generator("attention_masks")
    boolean = (normal(random, BATCH, HEADS, TARGET, SOURCE) > 0) | torch.eye(TARGET, SOURCE, dtype=torch.bool)
    floating = normal(random, BATCH, HEADS, TARGET, SOURCE).where(boolean, -torch.inf)
    for name, mask in (("attention_boolean_mask", boolean), ("attention_floating_mask", floating)):
        add_layer(file, name, multi_head(),
                  lambda module, x, memory, mask: module(
                      x, memory, memory, attn_mask=(~mask if mask.dtype == torch.bool else mask).flatten(0, 1))[0],
                  {"x": target(name), "memory": source(name + "/memory")}, {"mask": mask})
    add_layer(file, "attention_is_causal", multi_head(),
              lambda module, x: module(x, x, x, attn_mask=future, is_causal=True, need_weights=False)[0],
              {"x": source("attention_is_causal")}, {})
    add_layer(file, "attention_padded_causal", multi_head(),
              lambda module, x, may_attend: module(x, x, x, attn_mask=future, key_padding_mask=~may_attend)[0],
              {"x": source("attention_padded_causal")}, {"may_attend": may_attend(SOURCE_LENGTHS, SOURCE)})

    name = "attention_no_bias"
    add_layer(file, name, nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True, dtype=torch.float64),
              lambda module, x: module(x, x, x)[0], {"x": source(name)}, {})
    three_inputs = {"key": normal(generator("attention/key"), BATCH, SOURCE, KEY_INPUT),
                    "value": normal(generator("attention/value"), BATCH, SOURCE, VALUE_INPUT)}
    for name, is_batch_first in (("attention_three_inputs", True), ("attention_three_inputs_sequence_first", False)):
        module = nn.MultiheadAttention(WIDTH, HEADS, kdim=KEY_INPUT, vdim=VALUE_INPUT, batch_first=is_batch_first,
                                       dtype=torch.float64)
        inputs = {"x": target(name), **three_inputs}
        if not is_batch_first:
            inputs = {key: value.transpose(0, 1).contiguous() for key, value in inputs.items()}
        add_layer(file, name, module,
                  lambda module, x, key, value, memory_may_attend: module(
                      x, key, value, key_padding_mask=~memory_may_attend)[0],
                  inputs, seen, memory_width=KEY_INPUT, value_memory_width=VALUE_INPUT)
    name = "attention_self_sequence_first"
    add_layer(file, name, nn.MultiheadAttention(WIDTH, HEADS, dtype=torch.float64),
              lambda module, x: module(x, x, x, attn_mask=future)[0],
              {"x": source(name).transpose(0, 1).contiguous()}, {}, causal=True)
    for name, averages in (("attention_weights_of_heads", False), ("attention_weights_averaged", True)):
        # The output and the weights end to end, so that gradients flow back from both.
        add_layer(file, name, multi_head(),
                  lambda module, x, memory, memory_may_attend: torch.cat([part.flatten() for part in module(
                      x, memory, memory, key_padding_mask=~memory_may_attend, average_attn_weights=averages)]),
                  {"x": target(name), "memory": source(name + "/memory")}, seen)

    name = "attention_cross_wide"
    module = MultiHeadAttention(WIDTH, HEADS, 5, 7).double()
    randomise(module, name)
    leaves = dict(sorted(module.named_parameters()))
    file.case(name, lambda x, memory, memory_may_attend: module(x, memory, memory_may_attend[:, None, None, :]),
              {"x": target(name), "memory": source(name + "/memory")}, leaves, seen, heads=HEADS,
              key_width=5, value_width=7, zero_gradients=key_biases(leaves))


def transformer(file):
    for norm_first in (False, True):
        for activation in ("relu", "gelu"):
            suffix = ("pre" if norm_first else "post") + "_" + activation
            choices = {"norm_first": norm_first, "activation": activation}
            options = {**choices, "feed_forward": FEED_FORWARD, "epsilon": 1e-5}
            arguments = dict(d_model=WIDTH, nhead=HEADS, dim_feedforward=FEED_FORWARD, dropout=0.0, batch_first=True,
                             dtype=torch.float64, **choices)

            name = "encoder_layer_" + suffix
            add_layer(file, name, nn.TransformerEncoderLayer(**arguments),
                      lambda module, x, may_attend: module(x, src_key_padding_mask=~may_attend),
                      {"x": normal(generator(name), BATCH, SOURCE, WIDTH)},
                      {"may_attend": may_attend(SOURCE_LENGTHS, SOURCE)}, **options)

            name = "decoder_layer_" + suffix
            future = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
            random = generator(name)
            add_layer(file, name, nn.TransformerDecoderLayer(**arguments),
                      lambda module, x, memory, may_attend, memory_may_attend: module(
                          x, memory, tgt_mask=future, tgt_key_padding_mask=~may_attend,
                          memory_key_padding_mask=~memory_may_attend),
                      {"x": normal(random, BATCH, TARGET, WIDTH), "memory": normal(random, BATCH, SOURCE, WIDTH)},
                      {"may_attend": may_attend(TARGET_LENGTHS, TARGET),
                       "memory_may_attend": may_attend(SOURCE_LENGTHS, SOURCE)}, causal=True, **options)


def make():
    return file_of(attention, transformer)
