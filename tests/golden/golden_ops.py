"""Operations: inputs, output and gradients of each."""

import torch
import torch.nn.functional as F

from golden_file import file_of, generator, integers, normal
from golden_grouped_latent import frequencies, rotate


def elementwise(file):
    for name, function, options in [
        ("relu", lambda x: F.relu(x), {}),
        ("relu_squared", lambda x: F.relu(x).square(), {}),
        ("gelu", lambda x: F.gelu(x), {}),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), {}),
        ("silu", lambda x: F.silu(x), {}),
        ("softplus", lambda x: F.softplus(x), {}),
        ("tanh", lambda x: x.tanh(), {}),
        ("sigmoid", lambda x: x.sigmoid(), {}),
        ("exp", lambda x: x.exp(), {}),
        ("pow_cube", lambda x: x.pow(3), {"exponent": 3.0}),
    ]:
        file.case(name, function, {"x": normal(generator(name), 3, 5, 7)}, **options)
    for name, function, options in [
        ("log", lambda x: x.log(), {}),
        ("sqrt", lambda x: x.sqrt(), {}),
        ("pow_fraction", lambda x: x.pow(-1.5), {"exponent": -1.5}),
    ]:
        file.case(name, function, {"x": normal(generator(name), 3, 5, 7).abs() + 0.1}, **options)
    for name, function in [
        ("add", lambda a, b: a + b),
        ("subtract", lambda a, b: a - b),
        ("multiply", lambda a, b: a * b),
        ("divide", lambda a, b: a / b),
    ]:
        random = generator(name)
        b = normal(random, 5, 1)
        file.case(name, function, {"a": normal(random, 3, 1, 7), "b": b + b.sign()})

    random = generator("select")
    condition = integers(random, 2, 3, 5, 7).bool()
    file.case("where", lambda a, b, condition: torch.where(condition, a, b),
              {"a": normal(random, 3, 5, 7), "b": normal(random, 5, 1)}, constants={"condition": condition})
    file.case("masked_fill", lambda x, mask: x.masked_fill(mask, -2.5), {"x": normal(random, 3, 5, 7)},
              constants={"mask": condition}, value=-2.5)
    file.case("gather", lambda x, index: x.gather(1, index), {"x": normal(random, 3, 5, 7)},
              constants={"index": integers(random, 5, 3, 4, 7)}, axis=1)
    file.case("index_select", lambda x, index: x.index_select(1, index), {"x": normal(random, 3, 5, 7)},
              constants={"index": torch.tensor([4, 0, 4, 2])}, axis=1)


def reductions(file):
    for name, function, axes, options in [
        ("sum", lambda x, axes: x.sum(axes), [0, 2], {}),
        ("mean", lambda x, axes: x.mean(axes), [0, 2], {}),
        ("mean_last", lambda x, axes: x.mean(axes, keepdim=True), [-1], {"keep": True}),
        ("variance", lambda x, axes: x.var(axes, correction=0), [0, 2], {"correction": 0}),
        ("variance_middle", lambda x, axes: x.var(axes, correction=0), [1], {"correction": 0}),
        ("variance_sample", lambda x, axes: x.var(axes, correction=1), [-1], {"correction": 1}),
    ]:
        x = normal(generator(name), 3, 5, 7)
        file.case(name, lambda x: function(x, axes), {"x": x}, axes=axes, **options)
    for name, axis in [("softmax", -1), ("softmax_middle", 1)]:
        x = normal(generator(name), 3, 5, 7, scale=2)
        file.case(name, lambda x: x.softmax(axis), {"x": x}, axis=axis)
        file.case("log_" + name, lambda x: x.log_softmax(axis), {"x": x}, axis=axis)


def products(file):
    for name, a, b, transpose_a, transpose_b in [
        ("matmul", (4, 5), (5, 6), False, False),
        ("matmul_batched", (3, 4, 5), (3, 5, 6), False, False),
        ("matmul_transpose_a", (3, 5, 4), (3, 5, 6), True, False),
        ("matmul_transpose_b", (3, 4, 5), (3, 6, 5), False, True),
        ("matmul_transpose_both", (3, 5, 4), (3, 6, 5), True, True),
        ("matmul_shared_b", (3, 4, 5), (5, 6), False, False),
        ("matmul_broadcast", (2, 1, 4, 5), (3, 5, 6), False, False),
        ("matmul_broadcast_transpose_b", (2, 1, 4, 5), (3, 6, 5), False, True),
    ]:
        random = generator(name)
        file.case(name, lambda a, b: (a.mT if transpose_a else a) @ (b.mT if transpose_b else b),
                  {"a": normal(random, *a), "b": normal(random, *b)}, transpose_a=transpose_a, transpose_b=transpose_b)
    for activation, function in [
        ("none", lambda y: y), ("relu", F.relu), ("gelu", F.gelu),
        ("gelu_tanh", lambda y: F.gelu(y, approximate="tanh")),
    ]:
        name = "linear" if activation == "none" else "linear_" + activation
        random = generator(name)
        inputs = {"x": normal(random, 2, 5, 7), "weight": normal(random, 9, 7, scale=0.5), "bias": normal(random, 9)}
        file.case(name, lambda x, weight, bias: function(F.linear(x, weight, bias)), inputs, activation=activation)
    random = generator("linear_no_bias")
    file.case("linear_no_bias", lambda x, weight: F.linear(x, weight),
              {"x": normal(random, 2, 5, 7), "weight": normal(random, 9, 7)}, activation="none")


def network(file):
    random = generator("network")
    file.case("layer_norm", lambda x, weight, bias: F.layer_norm(x, (7,), weight, bias, 1e-5),
              {"x": normal(random, 3, 5, 7, scale=2), "weight": normal(random, 7), "bias": normal(random, 7)},
              epsilon=1e-5)
    file.case("rms_norm", lambda x, weight: F.rms_norm(x, (7,), weight, 1e-6),
              {"x": normal(random, 3, 5, 7, scale=2), "weight": normal(random, 7)}, epsilon=1e-6)
    ids = torch.tensor([[3, 0, 3, 10], [7, 3, 0, 1], [10, 10, 2, 3]])
    file.case("embedding", lambda table, ids: F.embedding(ids, table), {"table": normal(random, 11, 5)},
              constants={"ids": ids})

    logits, targets = normal(random, 4, 6, 13, scale=2), integers(random, 13, 4, 6)
    ignored = targets.clone()
    ignored[0, 4:], ignored[2, 1:], ignored[3, 0] = -1, -1, -1
    for name, target, smoothing in [
        ("cross_entropy", targets, 0.0),
        ("cross_entropy_smoothed", targets, 0.1),
        ("cross_entropy_ignored", ignored, 0.0),
        ("cross_entropy_ignored_smoothed", ignored, 0.1),
    ]:
        file.case(name, lambda logits, targets: F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1, label_smoothing=smoothing),
                  {"logits": logits}, constants={"targets": target}, ignored=-1, smoothing=smoothing)

    for name, interleaved, offset in [
        ("rotary_interleaved", True, 0), ("rotary_half", False, 0),
        ("rotary_interleaved_offset", True, 4), ("rotary_half_offset", False, 4),
    ]:
        file.case(name, lambda x: rotate(x, torch.arange(5) + offset, frequencies(8, 10000.0), interleaved),
                  {"x": normal(generator(name), 2, 5, 3, 8)}, base=10000.0, offset=offset, interleaved=interleaved)

    for name, length, taps in [("causal_convolution", 7, 4), ("causal_convolution_short", 3, 5)]:
        random = generator(name)
        file.case(name, convolved, {"x": normal(random, 3, length, 5), "weight": normal(random, taps, 5)})


def convolved(x, weight):
    """x [B, T, C] and a convolution of each column; weight[j] is of the token j before."""
    columns, taps = x.transpose(1, 2), weight.shape[0]
    kernel = weight.flip(0).T[:, None]
    return x + F.conv1d(F.pad(columns, (taps - 1, 0)), kernel, groups=x.shape[-1]).transpose(1, 2)


def make():
    return file_of(elementwise, reductions, products, network)
