#!/usr/bin/env python3
"""Writes special_values.json and single_precision.json; see README.md.

Usage: python golden_accuracy.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import itertools
import json
import math
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F

FUNCTIONS = {
    "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh, "erf": torch.erf,
    "sigmoid": torch.sigmoid, "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    **{f"pow {exponent}": lambda x, exponent=exponent: x.pow(exponent) for exponent in (2.0, 3.0, 0.75, -1.0, -1.5)},
}


def special_values():
    """Each function and its first two derivatives at 0, the smallest, the largest, infinities and NaN of a type."""
    table = {}
    for dtype, (name, function) in itertools.product((torch.float64, torch.float32), FUNCTIONS.items()):
        info = torch.finfo(dtype)
        subnormal = info.smallest_normal * info.eps
        positive = [0.0, subnormal, info.smallest_normal, 1e-8, 1.0, 30.0, 1000.0, math.sqrt(info.max), info.max, math.inf]
        for value in [math.nan] + [sign * value for value in positive for sign in (1, -1)]:
            x = torch.tensor(value, dtype=dtype, requires_grad=True)
            y = function(x)
            first, = torch.autograd.grad(y, x, create_graph=True)
            second = torch.autograd.grad(first, x)[0] if first.requires_grad else torch.zeros(())
            row = [repr(number.item()) for number in (x, y, first, second)]
            table.setdefault(str(dtype)[6:], {}).setdefault(name, []).append(row)
    return table


def numbers(stream, shape, scale):
    """Uniform numbers of standard deviation `scale` that fit f32, drawn alike by test_single_precision.cpp."""
    position = numpy.arange(math.prod(shape), dtype=numpy.uint64) + numpy.uint64(1 + 1000003 * stream)
    with numpy.errstate(over="ignore"):
        mixed = position * numpy.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> numpy.uint64(32))) * numpy.uint64(0xD6E8FEB86659FD93)
    uniform = ((mixed ^ (mixed >> numpy.uint64(32))) >> numpy.uint64(40)).astype(numpy.float64) / 2**24 - 0.5
    return torch.from_numpy((uniform * (math.sqrt(12) * scale)).astype(numpy.float32).reshape(shape))


def mask_of(case):
    position = torch.arange(case["rows"])
    if case["mask"] == "causal":
        return position[:, None] >= position
    if case["mask"] == "some":
        return (3 * position[:, None] + 5 * position) % 7 < 4
    return None


def attention(case, query, key, value):
    mask = mask_of(case)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def additive(case, query, key, value, weight):
    scores = torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ weight[0]
    return scores.softmax(-1) @ value


def modified_attention(case, query, key, value, *learned):
    """Whole matrices, as one would write it first."""
    rows, modifier = case["rows"], case["modifier"]
    scores = query @ key.transpose(-1, -2) / math.sqrt(case["width"])
    if modifier == "softcap":
        cap = learned[0][:, None, None] + 5
        scores = cap * torch.tanh(scores / cap)
    if modifier == "relative":
        position = torch.arange(rows)
        scores = scores + learned[0][:, position - position[:, None] + rows - 1]
    if modifier == "mask":
        scores = scores + learned[0]
    if case["mask"] == "causal":
        scores = scores.masked_fill(~mask_of(case), -math.inf)
    if modifier == "sinks":
        sink = learned[0][:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ value
    return (torch.sigmoid(scores) if modifier == "sigmoid" else scores.softmax(-1)) @ value


def targets(case):
    return (torch.arange(case["rows"]) * 7) % case["width"]


def operation(name):
    return {
        "attention": attention,
        "additive_attention": additive,
        "modified_attention": modified_attention,
        "softmax": lambda case, x: x.softmax(-1),
        "log_softmax": lambda case, x: x.log_softmax(-1),
        "cross_entropy": lambda case, x: F.cross_entropy(x, targets(case)),
        "layer_norm": lambda case, x, weight, bias: F.layer_norm(x, (case["width"],), weight, bias),
        "rms_norm": lambda case, x, weight: F.rms_norm(x, (case["width"],), weight, 1e-6),
    }[name]


def cases():
    """Each with the shape and the scale of every input, and a shift of the first."""
    scales = (0.1, 1, 10, 100, 300)
    for (rows, width), scale, mask in itertools.product(((5, 8), (33, 16), (129, 64)), scales, ("none", "causal", "some")):
        shape = [1, rows, 1, width]
        yield {"op": "attention", "rows": rows, "width": width, "mask": mask, "shapes": [shape] * 3, "scales": [scale, 1, 1]}
    for (rows, width), scale in itertools.product(((5, 8), (33, 16)), scales):
        shape = [1, rows, 1, width]
        yield {"op": "additive_attention", "rows": rows, "width": width, "shapes": [shape] * 3 + [[1, width]],
               "scales": [1, 1, 1, scale]}
    for op in ("softmax", "log_softmax", "cross_entropy"):
        for width, scale in itertools.product((1, 5, 33, 4099), scales):
            yield {"op": op, "rows": 9, "width": width, "shapes": [[9, width]], "scales": [scale]}
    for op, width, scale, shift in itertools.product(("layer_norm", "rms_norm"), (1, 5, 33, 1025), (0.1, 1, 300), (0, 3)):
        shapes = [[37, width]] + [[width]] * (2 if op == "layer_norm" else 1)
        yield {"op": op, "rows": 37, "width": width, "shapes": shapes, "scales": [scale, 1, 1][:len(shapes)],
               "shift": shift * scale}
    learned = {"softcap": lambda rows: [[4]], "relative": lambda rows: [[4, 2 * rows - 1]], "mask": lambda rows: [[rows, rows]],
               "sinks": lambda rows: [[4]], "sigmoid": lambda rows: []}
    sizes = ((5, 8), (33, 16), (129, 64))
    for (rows, width), scale, mask, modifier in [
            *itertools.product(sizes, (0.1, 1, 10, 30), ("none", "causal"), learned), *itertools.product(sizes, (100, 300), ("none", "causal"), learned)]:
        shapes = [[1, rows, 4, width]] * 3 + learned[modifier](rows)
        yield {"op": "modified_attention", "rows": rows, "width": width, "mask": mask, "modifier": modifier, "shapes": shapes,
               "scales": [scale] + [1] * (len(shapes) - 1)}


def squares_of_float(case, stream):
    """sum (f32 - f64)^2 and sum f64^2 of the output and of each gradient, for one draw."""
    inputs = [numbers(stream + i, shape, scale) for i, (shape, scale) in enumerate(zip(case["shapes"], case["scales"]))]
    inputs[0] = (inputs[0].double() + case.get("shift", 0)).float()

    def run(dtype):
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        # PyTorch wants heads before positions.
        given = [x.transpose(1, 2) if x.dim() == 4 else x for x in leaves]
        y = operation(case["op"])(case, *given)
        if y.dim() == 4:
            y = y.transpose(1, 2)
        seed = numbers(stream + 9, list(y.shape), 1).to(dtype)
        return [y.detach(), *torch.autograd.grad((y * seed).sum(), leaves)]

    return torch.tensor([[(single.double() - double).square().sum(), double.square().sum()]
                         for single, double in zip(run(torch.float32), run(torch.float64))])


def single_precision():
    """Root mean squares over all elements of several draws: a maximum depends on the processor."""
    result, stream = [], 0
    for case in cases():
        draws = max(4, min(64, 6000 // (case["rows"] * case["width"])))
        if case["op"] == "additive_attention" and case["scales"][-1] > 10:
            draws *= 4  # errors are those of the few rows where two keys are nearly alike, and there are two sizes alone
        squares = sum(squares_of_float(case, stream + 10 * draw) for draw in range(draws))
        errors = [float(f"{math.sqrt(error / exact) if exact > 0 else 0:.3g}") for error, exact in squares.tolist()]
        result.append({**case, "draws": draws, "stream": stream, "errors": errors})
        stream += 10 * draws
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent

    def write(name, lines):
        (folder / name).write_text(lines + "\n")

    special = special_values()
    write("special_values.json", "{\n" + ",\n".join(
        f'"{dtype}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(rows)}' for name, rows in table.items()) + "\n}"
        for dtype, table in special.items()) + "\n}")
    write("single_precision.json", "[\n" + ",\n".join(map(json.dumps, single_precision())) + "\n]")
