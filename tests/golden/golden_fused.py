"""Gated activations, and the linear map with its cross-entropy. Needs PyTorch and NumPy; see README.md."""

import torch
import torch.nn.functional as F

from golden_file import file_of, generator, integers, normal

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


def gated(file):
    for name, function in ACTIVATIONS.items():
        def gate(x):
            a, b = x.chunk(2, dim=-1)
            return function(a) * b

        file.case("gated_" + name, gate, {"x": normal(generator("gated_" + name), 2, 5, 38)}, activation=name)


def linear_cross_entropy(file):
    for name, biased, ignores, smoothing in [
        ("plain", True, False, 0.0), ("no_bias", False, False, 0.0), ("smoothed", True, False, 0.1),
        ("ignored", True, True, 0.0), ("ignored_smoothed", False, True, 0.2),
    ]:
        name = "linear_cross_entropy_" + name
        random = generator(name)
        inputs = {"x": normal(random, 3, 5, 7), "weight": normal(random, 13, 7)}
        if biased:
            inputs["bias"] = normal(random, 13)
        targets = integers(random, 13, 3, 5)
        if ignores:
            targets[0, 3:], targets[1, 0], targets[2, 1:3] = -1, -1, -1

        def loss(x, weight, targets, bias=None):
            logits = F.linear(x, weight, bias)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, label_smoothing=smoothing)

        file.case(name, loss, inputs, constants={"targets": targets}, ignored=-1, smoothing=smoothing)


def make():
    return file_of(gated, linear_cross_entropy)
