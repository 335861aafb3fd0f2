#!/usr/bin/env python3
"""Gated DeltaNet by chunks, ours and transformers' torch_chunk_gated_delta_rule in turn on the same CPU.

Usage: PYTHON torch_linear_attention.py [--build FOLDER] [--lengths T...] [--rounds N]
"""

import argparse
import subprocess
import time

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule


def timed(length, heads, width):
    """Seconds of the forward pass and of both."""
    draw = lambda *shape: torch.randn(1, length, heads, *shape).requires_grad_()
    query, key, value, dy = draw(width), draw(width), draw(width), torch.randn(1, length, heads, width)
    key = (key / width**0.5).detach().requires_grad_()
    decay = (-0.1 * torch.rand(1, length, heads)).requires_grad_()
    beta = torch.rand(1, length, heads).requires_grad_()
    begun = time.perf_counter()
    out, _ = torch_chunk_gated_delta_rule(query, key, value, decay, beta)
    forward = time.perf_counter() - begun
    torch.autograd.grad((out * dy).sum(), [query, key, value, decay, beta])
    return forward, time.perf_counter() - begun


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    heads, width = 8, 64
    print(f"B=1 H={heads} D=E={width}, best of {options.rounds} rounds in turn, ms: forward, both; transformers / ours")
    for length in options.lengths:
        command = [f"{options.build}/tests/bench", "linear_attention", "--ask", "--repeats", "3", "--heads", str(heads),
                   "--width", str(width), "--lengths", str(length)]
        ours, theirs = [], []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bench:
            for _ in range(options.rounds):
                bench.stdin.write("\n")
                bench.stdin.flush()
                ours.append([float(number) for number in bench.stdout.readline().split()])
                theirs.append([1e3 * min(seconds) for seconds in zip(*(timed(length, heads, width) for _ in range(3)))])
            bench.stdin.close()
        a, b = [min(column) for column in zip(*ours)], [min(column) for column in zip(*theirs)]
        print(f"T={length}: ours {a[0]:.2f} {a[1]:.2f}, transformers {b[0]:.2f} {b[1]:.2f}, "
              f"ratios {b[0] / a[0]:.1f} {b[1] / a[1]:.1f}", flush=True)
