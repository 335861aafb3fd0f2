"""How fast PyTorch writes with the language models that `bench_decoding --language` times, and the ratio.

Usage: python torch_generation.py [--bench BUILD/tests/bench_decoding] [--model character gpt2-124m] [--tokens 64]
                                  [--rounds 5] [--threads 2]

Greedy, one sample, a prompt of one token, a cache of keys and values. Each round runs every contestant once, in turn,
so that a noisy machine is noisy for all; the best round counts. Contestants: the same model written plainly in PyTorch
(scaled_dot_product_attention, keys and values concatenated or in a buffer), for gpt2-124m also transformers'
GPT2LMHeadModel.generate, and bench_decoding when it is named. Needs torch, and transformers for gpt2-124m.
"""

import argparse
import os
import re
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional as F

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

    def forward(self, x, cache):
        batch, length, width = x.shape
        packed = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        key, value = cache.extended(key, value)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
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


class Model(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, bias):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads, bias) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=bias)

    def forward(self, ids, first, caches):
        x = self.tokens(ids) + self.positions.weight[first : first + ids.shape[1]]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.norm(x[:, -1]) @ self.tokens.weight.T

    @torch.inference_mode()
    def generate(self, prompt, count, cache):
        caches = [cache(self.context) for _ in self.layers]
        ids, first = torch.tensor([prompt]), 0
        tokens = []
        for _ in range(count):
            logits = self(ids, first, caches)
            first += ids.shape[1]
            ids = logits.argmax(-1, keepdim=True)
            tokens.append(ids.item())
        return tokens


def transformers_gpt2(count):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).eval()
    prompt = torch.tensor([[1]])
    mask = torch.ones_like(prompt)

    def run():
        with torch.inference_mode():
            out = model.generate(prompt, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)
        assert out.shape[1] == count + 1

    return run


def timed(run):
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def tapeformer(program, name, tokens, threads):
    command = [program, "--language", name, "--tokens", str(tokens), "--rounds", "3", "--only", "contiguous"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return tokens / float(re.search(r"([\d.]+) tokens/s", out).group(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", help="bench_decoding, to compare with")
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    count = arguments.tokens
    for name in arguments.model:
        model = Model(**SHAPES[name]).eval()
        contestants = {
            "PyTorch, concatenated": lambda: timed(lambda: model.generate([1], count, Concatenated)),
            "PyTorch, in a buffer": lambda: timed(lambda: model.generate([1], count, Buffered)),
        }
        if name == "gpt2-124m":
            generate = transformers_gpt2(count)
            contestants["transformers"] = lambda: timed(generate)
        if arguments.bench:
            contestants["Tapeformer"] = lambda: tapeformer(arguments.bench, name, count, arguments.threads)
        for contestant in contestants.values():
            contestant()  # the first time is slower
        best = {contestant: float("inf") for contestant in contestants}
        for _ in range(arguments.rounds):
            for contestant, seconds in contestants.items():
                best[contestant] = min(best[contestant], seconds())
        print(f"{name}, {count} tokens, {arguments.threads} threads, torch {torch.__version__}")
        for contestant, seconds in best.items():
            line = f"{contestant:22s} {1e3 * seconds / count:8.3f} ms a token, {count / seconds:9.1f} tokens/s"
            if arguments.bench and contestant != "Tapeformer":
                line += f"; Tapeformer {seconds / best['Tapeformer']:.2f} times as fast"
            print(line, flush=True)


if __name__ == "__main__":
    main()
