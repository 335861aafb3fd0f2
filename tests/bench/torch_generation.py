#!/usr/bin/env python3
"""The speed of PyTorch with the language models that `bench decoding --language` times, and our speed relative to it.

Usage: torch_generation.py [--build BUILD] [--model character gpt2-124m] [--streams 1 16] [--tokens 64] [--rounds 5] [--threads 2]
                           [--device cuda[:N]] [--precision f32|tf32|bf16]

Greedy, each stream after a prompt of one token, with a cache of keys and values. Each round runs every contestant once, in turn, so
that a noisy machine is noisy for all; the best round counts. Contestants: bench decoding of the build folder; the same model written
plainly in PyTorch (scaled_dot_product_attention, keys and values concatenated or in a buffer); for gpt2-124m also transformers'
GPT2LMHeadModel.generate; on a GPU also the plain model with a token's step in a CUDA graph, its buffers as long as the text becomes.
Prints lines of JSON in the form that make_results reads: tokens of all streams a second, and what ours is as a multiple of the fastest
other. A contestant that fails is named with its error, and the others go on. On a GPU bf16 is bf16 weights on PyTorch's side. Needs
torch, and transformers for gpt2-124m. Exit code 77: PyTorch finds no GPU.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from programs import HERE, Contestant, bench_of, positive, refuse, require_device, skip

SHAPES = {
    "character": dict(vocabulary=65, context=64, layers=4, heads=4, width=128, bias=False),
    "gpt2-124m": dict(vocabulary=50257, context=1024, layers=12, heads=12, width=768, bias=True),
}


class Layer(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, bias=bias)
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)
        self.feed_forward_norm = nn.LayerNorm(width, bias=bias)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x, cache, mask=None):
        batch, length, width = x.shape
        packed = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        key, value = cache.extended(key, value)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=length > 1)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))


class Concatenated:
    """A layer's keys and values, copied at every token."""

    def __init__(self, _):
        self.keys = self.values = None

    def extended(self, key, value):
        if self.keys is not None:
            key, value = torch.cat([self.keys, key], 2), torch.cat([self.values, value], 2)
        self.keys, self.values = key, value
        return key, value


class Buffered:
    """A layer's keys and values, in room for a whole context."""

    def __init__(self, context):
        self.context, self.length = context, 0

    def extended(self, key, value):
        if self.length == 0:
            shape = (*key.shape[:2], self.context, key.shape[3])
            self.keys, self.values = torch.empty(shape), torch.empty(shape)
        end = self.length + key.shape[2]
        self.keys[:, :, self.length : end] = key
        self.values[:, :, self.length : end] = value
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Fixed:
    """A layer's keys and values in room for a whole text, all of which is attended to except where `mask` hides it."""

    def __init__(self, steps):
        self.steps, self.keys, self.values = steps, None, None

    def extended(self, key, value):
        if self.keys is None:
            shape = (*key.shape[:2], self.steps.length, key.shape[3])
            self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.keys.index_copy_(2, self.steps.position, key)
        self.values.index_copy_(2, self.steps.position, value)
        return self.keys, self.values


class RecordedSteps:
    """A token's step of some streams as a CUDA graph: values that change from step to step are in the GPU's memory."""

    @torch.inference_mode()
    def __init__(self, model, streams, length):
        self.length, self.position = length, torch.zeros(1, dtype=torch.long)
        self.ids = torch.zeros(streams, 1, dtype=torch.long)
        caches = [Fixed(self) for _ in model.layers]
        places = torch.arange(length)

        def step():
            mask = (places <= self.position)[None, None, None]
            self.ids.copy_(model(self.ids, self.position, caches, mask).argmax(-1, keepdim=True))
            self.position.add_(1)

        self.replay = captured(step, before=self.start)

    def start(self, token=0):
        self.ids.fill_(token)
        self.position.fill_(0)

    @torch.inference_mode()
    def generate(self, token, count):
        self.start(token)
        tokens = []
        for _ in range(count):
            self.replay()
            tokens.append(self.ids.tolist())
        return tokens


def captured(step, before):
    """A function that does on the GPU what `step` does there."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries are loaded and buffers made
            before()
            step()
    torch.cuda.current_stream().wait_stream(side)
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class Model(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, bias):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads, bias) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=bias)

    def forward(self, ids, positions, caches, mask=None):
        x = self.tokens(ids) + self.positions.weight[positions]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, mask)
        return self.norm(x[:, -1]) @ self.tokens.weight.T

    @torch.inference_mode()
    def generate(self, prompt, streams, count, cache):
        caches = [cache(self.context) for _ in self.layers]
        ids, first = torch.tensor(streams * [prompt]), 0
        tokens = []
        for _ in range(count):
            logits = self(ids, slice(first, first + ids.shape[1]), caches)
            first += ids.shape[1]
            ids = logits.argmax(-1, keepdim=True)
            tokens.append(ids.tolist())
        return tokens


def transformers_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).eval()

    def run(streams, count):
        prompt = torch.tensor(streams * [[1]])
        with torch.inference_mode():
            out = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, pad_token_id=0)
        assert out.shape == (streams, count + 1)

    return run


class Ours(Contestant):
    """bench decoding, which answers a number of streams with the seconds it took."""

    def __init__(self, name, arguments):
        super().__init__([bench_of(arguments.build), "decoding", "--language", name, "--tokens", str(arguments.tokens), "--ask",
                          "--device", arguments.device, "--precision", arguments.precision], OMP_NUM_THREADS=str(arguments.threads))

    def __call__(self, streams):
        answer = super().__call__(str(streams))
        if isinstance(answer, dict):
            raise RuntimeError(answer["error"])
        return answer


def recorded_generation(model, count):
    """Seconds by number of streams; the graph of each number is made before its first time."""
    steps = {}

    def seconds(streams):
        if streams not in steps:
            steps.clear()
            steps[streams] = RecordedSteps(model, streams, count + 1)
        return timed(steps[streams].generate, 1, count)

    return seconds


def timed(run, *arguments):
    begun = time.perf_counter()
    run(*arguments)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def best_seconds(contestants, streams, rounds):
    """By contestant: the best of the rounds, or the reason why there is none."""
    best, failed = dict.fromkeys(contestants, float("inf")), {}
    for number in range(rounds + 1):
        for contestant, seconds in contestants.items():
            if contestant in failed:
                continue
            time.sleep(0.05)  # until the threads of the one before have stopped spinning
            try:
                taken = seconds(streams)
            except Exception as error:  # whatever PyTorch's libraries throw, the others are measured
                failed[contestant] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            if number > 0:  # the first time is slower
                best[contestant] = min(best[contestant], taken)
    return {contestant: seconds for contestant, seconds in best.items() if contestant not in failed}, failed


def compare(name, arguments):
    count = arguments.tokens
    model = Model(**SHAPES[name]).eval()  # where PyTorch's defaults say, and of their type
    contestants = {
        "PyTorch, keys concatenated": lambda streams: timed(model.generate, [1], streams, count, Concatenated),
        "PyTorch, keys in a buffer": lambda streams: timed(model.generate, [1], streams, count, Buffered),
    }
    if arguments.device != "cpu":
        contestants["PyTorch, CUDA graph"] = recorded_generation(model, count)
    if name == "gpt2-124m":
        try:
            generate = transformers_gpt2()
            contestants["transformers"] = lambda streams: timed(generate, streams, count)
        except Exception as error:  # it is not there, or other than expected
            print(f"torch_generation.py: transformers is not measured: {error}", file=sys.stderr)
    contestants["ours"] = Ours(name, arguments)
    for streams in arguments.streams:
        best, failed = best_seconds(contestants, streams, arguments.rounds)
        record = {"table": "Writing with a cache", "model": name, "streams": streams, "tokens each": count,
                  "threads": arguments.threads, "device": arguments.device, "precision": arguments.precision}
        record.update({f"{contestant}, tokens/s": streams * count / seconds for contestant, seconds in best.items()})
        record.update({f"{contestant}, tokens/s": f"not measured: {error}" for contestant, error in failed.items()})
        if "ours" in best and len(best) > 1:
            ours = best.pop("ours")
            record["ratio"] = f"{min(best.values()) / ours:.2f}x"
        print(json.dumps(record), flush=True)
    contestants["ours"].close()


def use_gpu(arguments):
    require_device(arguments.device)
    if not torch.cuda.is_available():
        skip("this PyTorch finds no GPU")
    torch.cuda.set_device(arguments.device if ":" in arguments.device else 0)
    torch.set_default_device(arguments.device)
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    if arguments.precision == "bf16":
        torch.set_default_dtype(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build/release")
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--streams", nargs="+", type=positive, default=[1, 16])
    parser.add_argument("--tokens", type=positive, default=64)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32", help="tf32 and bf16 on a GPU alone")
    arguments = parser.parse_args()
    bench_of(arguments.build)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    if arguments.device != "cpu":
        use_gpu(arguments)
    elif arguments.precision != "f32":
        refuse("--precision needs --device cuda")
    command = "tests/bench/torch_generation.py " + " ".join(sys.argv[1:])
    print(json.dumps({"table": "Writing with a cache", "order": 80, "command": command.strip(),
                      "note": f"Greedy, a prompt of one token, the best of {arguments.rounds} rounds in turn; torch "
                              f"{torch.__version__}. The ratio is to the fastest other."}), flush=True)
    for name in arguments.model:
        compare(name, arguments)


if __name__ == "__main__":
    main()
