#!/usr/bin/env python3
"""Attention with modified scores, ours and PyTorch's compiled flex_attention in turn on the same CPU, one thread.

Usage: PYTHON torch_flex_attention.py [--build FOLDER] [--lengths T...] [--rounds N]

Causal, B 1, H 4, D 64, f32; processor time. On a CPU flex_attention has no backward pass, so ours stands beside that of the dense
formula, compiled too. A sink is one more key there, with a value of zeros: compiled, flex_attention does not return its sums.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, WIDTH = 4, 64


class Case:
    """The inputs of one length, and what each modifier makes of a score."""

    def __init__(self, length):
        draw = lambda *shape: torch.randn(*shape, requires_grad=True)
        self.qkv = [draw(1, HEADS, length, WIDTH) for _ in range(3)]
        self.dy = torch.randn(1, HEADS, length, WIDTH)
        self.block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
        self.sink_mask = create_block_mask(lambda b, h, q, k: (q >= k) | (k == length), None, None, length, length + 1, device="cpu")
        self.with_sink = [torch.nn.functional.pad(x.detach(), (0, 0, 0, 1)) for x in self.qkv[1:]]
        self.sees = torch.ones(length, length, dtype=torch.bool).tril()
        cap, bias = torch.full((HEADS,), 5.0, requires_grad=True), draw(HEADS, 2 * length - 1)
        mask, key_mask, sinks = draw(length, length), draw(HEADS, 1, length), draw(HEADS)
        c, r, m, k_m, b_h = (x.detach() for x in (cap, bias, mask, key_mask, sinks))  # flex_attention refuses what gets gradients
        row = torch.arange(length)
        distance = row[None, :] - row[:, None] + length - 1
        self.modifiers = {  # of a score for flex_attention, of all of them, and what learns
            "none": (None, lambda s: s, []),
            "softcap": (lambda s, b, h, q, k: c[h] * torch.tanh(s / c[h]),
                        lambda s: cap[:, None, None] * torch.tanh(s / cap[:, None, None]), [cap]),
            "relative": (lambda s, b, h, q, k: s + r[h, k - q + length - 1], lambda s: s + bias[:, distance], [bias]),
            "mask": (lambda s, b, h, q, k: s + m[q, k], lambda s: s + mask, [mask]),
            "key_mask": (lambda s, b, h, q, k: s + k_m[h, 0, k], lambda s: s + key_mask, [key_mask]),
            "sinks": (lambda s, b, h, q, k: torch.where(k == length, b_h[h], s), None, [sinks]),
        }

    def flex(self, modifier, function):
        qkv, block_mask = [x.detach() for x in self.qkv], self.block_mask
        if modifier == "sinks":
            qkv[1:], block_mask = self.with_sink, self.sink_mask
        return function(*qkv, score_mod=self.modifiers[modifier][0], block_mask=block_mask)

    def dense(self, modifier):
        query, key, value = self.qkv
        _, modify, learned = self.modifiers[modifier]
        scores = query @ key.transpose(-1, -2) * WIDTH**-0.5
        scores = (modify(scores) if modify else scores).masked_fill(~self.sees, -torch.inf)
        if modifier == "sinks":
            sink = learned[0][None, :, None, None].expand(*scores.shape[:-1], 1)
            return torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ value
        return scores.softmax(-1) @ value


def timed(function):
    """Milliseconds, the median of as many calls as half a second has room for."""
    times, end = [], time.process_time() + 0.5
    while not times or time.process_time() < end:
        begun = time.process_time()
        function()
        times.append(1e3 * (time.process_time() - begun))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"medians of {options.rounds} rounds in turn, ms: flex_attention's forward pass / ours; the dense formula's backward pass / ours")
    for length in options.lengths:
        torch._dynamo.reset()
        case = Case(length)
        for modifier in case.modifiers:
            function, dense = torch.compile(flex_attention), torch.compile(lambda: case.dense(modifier))

            def forward():
                with torch.no_grad():
                    return case.flex(modifier, function)

            learns = case.qkv + case.modifiers[modifier][2]
            has_backward = length < 8192  # else gigabytes of scores
            with torch.no_grad():
                assert torch.allclose(forward(), dense(), atol=1e-4), modifier
            command = [f"{options.build}/tests/bench", "attention", "--ask", "--processor-time", "--causal", "--heads", str(HEADS), "--width",
                       str(WIDTH), "--modifier", modifier, "--lengths", str(length)]
            ours, theirs = [], []
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}) as bench:
                for _ in range(options.rounds):
                    bench.stdin.write("\n")
                    bench.stdin.flush()
                    answer = json.loads(bench.stdout.readline())
                    ours.append((answer["forward_ms"], answer["backward_ms"]))
                    backward = float("nan")
                    if has_backward:
                        y = dense()
                        backward = timed(lambda: torch.autograd.grad(y, learns, case.dy, retain_graph=True))
                    theirs.append((timed(forward), backward))
                bench.stdin.close()
            a, b = ([statistics.median(column) for column in zip(*rows)] for rows in (ours, theirs))
            ratios = [statistics.median(t[i] / o[i] for t, o in zip(theirs, ours)) for i in (0, 1)]
            print(f"T={length} {modifier}: forward {b[0]:.2f} / {a[0]:.2f} = {ratios[0]:.2f}, backward {b[1]:.2f} / {a[1]:.2f} = {ratios[1]:.2f}",
                  flush=True)


if __name__ == "__main__":
    main()
