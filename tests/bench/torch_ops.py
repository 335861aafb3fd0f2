#!/usr/bin/env python3
"""Single operations in PyTorch, as bench ops times them: the same cases, the same form of answer. Needs PyTorch.

Usage: torch_ops.py [--threads N] [--dtype f32|f64] [--seconds S] CASE...
       torch_ops.py --device cuda[:N] [--dtype f32|tf32|bf16|f64] [--backend flash|cudnn] CASE...
                               on a GPU; --backend: of attention, [B, H, T, D] in one piece each; the one PyTorch takes unless given
       torch_ops.py --ask      reads cases from its input, a line each, and answers each at once
A CASE is an operation and its sizes, such as "linear_forward 256 768 3072"; bench ops --list has the usual ones.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from functools import partial

import torch
from torch.nn import functional as F

from programs import refuse, require_device

AHEAD, BACK = "forward", "backward"


on_gpu = False
attention_backend = None  # a context for scaled_dot_product_attention


def uniform(*shape):
    return torch.rand(*shape) * 2 - 1


def ran(which, f, of):
    """A call of `f` that records for a gradient of `of`, or only its backward pass."""
    for x in of:
        x.requires_grad_()
    if which == AHEAD:
        return f
    y = f()
    dy = None if y.dim() == 0 else uniform(*y.shape)
    return lambda: torch.autograd.grad(y, of, dy, retain_graph=True)


def linear(which, m, k, n):
    x, w, b = uniform(m, k), uniform(n, k), uniform(n)
    if which == AHEAD:
        return ran(AHEAD, lambda: F.linear(x, w, b), [x, w, b])
    return ran(BACK, lambda: F.linear(x, w), [x if which == "dgrad" else w])


def mapped(f, which, *shape):
    x = uniform(*shape)
    return ran(which, lambda: f(x), [x])


def layer_norm(which, rows, n):
    x, w, b = uniform(rows, n), uniform(n), uniform(n)
    return ran(which, lambda: F.layer_norm(x, (n,), w, b), [x, w, b])


def cross_entropy(which, rows, vocabulary):
    x, ids = uniform(rows, vocabulary), torch.randint(vocabulary, (rows,))
    return ran(which, lambda: F.cross_entropy(x, ids), [x])


def embedding(which, count, vocabulary, width):
    table, ids = uniform(vocabulary, width), torch.randint(vocabulary, (count,))
    return ran(which, lambda: F.embedding(ids, table), [table])


def expert_linear(which, m, k, n, experts):
    x, w = uniform(m, k), uniform(experts, n, k)
    ends = torch.tensor([(e + 1) * m // experts for e in range(experts)], dtype=torch.int32, device=x.device)
    return ran(which, lambda: F.grouped_mm(x, w.transpose(1, 2), offs=ends), [x, w])


def attention(which, batch, heads, length, width, *, causal=True):
    if on_gpu:
        query, key, value = (uniform(batch, heads, length, width) for _ in range(3))
        context = attention_backend or contextlib.nullcontext

        def attend():
            with context():
                return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

        return ran(which, attend, [query, key, value])
    packed = uniform(batch, length, 3 * heads * width)

    def f():
        parts = packed.split(heads * width, 2)
        q, k, v = (x.view(batch, length, heads, width).transpose(1, 2) for x in parts)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    return ran(which, f, [packed])


def add_layer_norm(which, rows, n):
    x, branch, w, b = uniform(rows, n), uniform(rows, n), uniform(n), uniform(n)
    return ran(which, lambda: F.layer_norm(x + branch, (n,), w, b), [x, branch, w, b])


def cross_entropy_both(rows, vocabulary):
    x, ids = uniform(rows, vocabulary).requires_grad_(), torch.randint(vocabulary, (rows,))
    return lambda: torch.autograd.grad(F.cross_entropy(x, ids), [x])


def rotary(which, batch, length, heads, width):
    x = uniform(batch, length, heads, width)
    angles = torch.rand(length, 1, width // 2)
    cosines, sines = angles.cos(), angles.sin()

    def turn():
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)

    return ran(which, turn, [x])


def cast(wanted, to, count):
    x = uniform(count).to(wanted)
    return lambda: x.to(to)


def column_sums(rows, n):
    x = uniform(rows, n)
    return lambda: x.sum(0)


def parameters_of(layers, width, vocabulary, context):
    """nanoGPT's model: each parameter with a gradient."""
    shapes = [(vocabulary, width), (context, width), (width,), (width,)]
    for _ in range(layers):
        for out in (3 * width, width, 4 * width):
            shapes += [(out, width), (out,)]
        shapes += [(width, 4 * width)] + 5 * [(width,)]
    wide = torch.promote_types(torch.get_default_dtype(), torch.float32)  # as under autocast
    parameters = [torch.nn.Parameter(uniform(*shape).to(wide)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = uniform(*parameter.shape).to(wide)
    return parameters


def adamw_step(*sizes):
    return torch.optim.AdamW(parameters_of(*sizes), 1e-4, fused=True).step


def gradient_norm(*sizes):
    gradients = [parameter.grad for parameter in parameters_of(*sizes)]
    return lambda: torch.nn.utils.get_total_norm(gradients).item()


def residual_add(count):
    a, b = uniform(count), uniform(count)
    return ran(AHEAD, lambda: a + b, [a, b])


def dropout_mask(count):
    mask = torch.empty(count, dtype=torch.bool)
    return lambda: mask.bernoulli_(0.8)


WITH_PASSES = {
    "gelu": partial(mapped, F.gelu), "gelu_tanh": partial(mapped, lambda x: F.gelu(x, approximate="tanh")),
    "softmax": partial(mapped, lambda x: x.softmax(-1)), "dropout": partial(mapped, lambda x: F.dropout(x, 0.2)),
    "layer_norm": layer_norm, "add_layer_norm": add_layer_norm, "cross_entropy": cross_entropy, "embedding": embedding,
    "expert_linear": expert_linear, "rotary": rotary, "attention": attention, "full_attention": partial(attention, causal=False),
}
OPERATIONS = {
    **{f"linear_{which}": partial(linear, which) for which in (AHEAD, "dgrad", "wgrad")},
    **{f"{name}_{which}": partial(make, which) for name, make in WITH_PASSES.items() for which in (AHEAD, BACK)},
    "cross_entropy_both": cross_entropy_both,
    "narrow": partial(cast, torch.float32, torch.bfloat16),
    "widen": partial(cast, torch.bfloat16, torch.float32),
    "column_sums": column_sums,
    "residual_add": residual_add,
    "adamw_step": adamw_step,
    "gradient_norm": gradient_norm,
    "dropout_mask": dropout_mask,
}


TYPES = {"f32": torch.float32, "f64": torch.float64, "tf32": torch.float32, "bf16": torch.bfloat16}


def timed(run, calls=1):
    begun = time.perf_counter()
    for _ in range(calls):
        run()
    if on_gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / calls


def time_of(run, seconds):
    """Of a call, in seconds; short ones are timed several at a time."""
    run()
    run()
    enough = 1e-2 if on_gpu else 1e-4  # a GPU is waited for at the end of them
    calls = min(max(int(enough / max(timed(run), 1e-7)), 1), 100)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end and len(times) < 2000:
        times.append(timed(run, calls))
    return statistics.median(times)


def show(case, arguments):
    operation, *sizes = case.split()
    record = {"table": "Single operations in PyTorch", "operation": case, "type": arguments.dtype, "threads": arguments.threads}
    try:
        run = OPERATIONS[operation](*map(int, sizes))
        seconds = time_of(run, arguments.seconds)
    except RuntimeError as error:  # a backend that does not take the case, memory that does not suffice
        print(json.dumps({**record, "ms": None, "error": str(error).splitlines()[0]}), flush=True)
        return
    except (KeyError, TypeError, ValueError):
        refuse(f"no such case: {case}; bench ops --list has the usual ones")
    print(json.dumps({**record, "ms": 1e3 * seconds}), flush=True)


def use_gpu(arguments):
    global on_gpu, attention_backend
    require_device(arguments.device)
    if not torch.cuda.is_available():
        refuse("this PyTorch finds no GPU; try --device cpu")
    on_gpu = True
    torch.cuda.set_device(arguments.device if ":" in arguments.device else 0)
    torch.set_default_device(arguments.device)
    torch.set_float32_matmul_precision("high" if arguments.dtype == "tf32" else "highest")
    if arguments.backend:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        chosen = SDPBackend.FLASH_ATTENTION if arguments.backend == "flash" else SDPBackend.CUDNN_ATTENTION
        attention_backend = lambda: sdpa_kernel(chosen)  # noqa: E731


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=TYPES, default="f32", help="tf32 and bf16 on a GPU alone")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--backend", choices=("flash", "cudnn"), help="of attention, on a GPU")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--ask", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.device != "cpu":
        use_gpu(arguments)
    elif arguments.dtype in ("tf32", "bf16") or arguments.backend:
        refuse("tf32, bf16 and --backend need --device cuda")
    torch.set_default_dtype(TYPES[arguments.dtype])
    torch.manual_seed(1)
    for case in (line.strip() for line in sys.stdin) if arguments.ask else arguments.cases:
        show(case, arguments)


if __name__ == "__main__":
    main()
