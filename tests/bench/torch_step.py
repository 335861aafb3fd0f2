#!/usr/bin/env python3
"""Full training steps (random batch, forward, loss, backward, clipping, AdamW) of bench train_step's workloads in PyTorch.

Usage: torch_step.py [WORKLOAD[:BATCH]...] [--device cpu|cuda[:N]] [--precision f32|tf32|bf16] [--steps N] [--seconds S] [--threads N]
                     [--compile [--graphs]] [--settings NAME]

One line of JSON a workload, with the keys of bench train_step; each workload has a process of its own, so that its peak memory is its
own. PyTorch at its best: packed projections, scaled_dot_product_attention with its causal hint, fused AdamW, clipping by foreach,
denormals flushed, and the process environment of --settings, which see. The models are those of the C++ bench, parameter for parameter:
GPT-2 with exact GELU and a tied head; an encoder and a decoder with a norm before each sublayer and at each end (torch.nn.Transformer
has as many norms, each in another place), two tables, a head of its own, sinusoids, smoothed labels.

On a GPU f32 forbids TF32 in matrix products and tf32 allows it. bf16 is torch.autocast: weights in f32, matrix products and attention in
bf16. Batches are drawn there, steps are timed until the GPU has done them, and peak_device_mib is torch.cuda.max_memory_allocated().
--graphs is torch.compile's mode reduce-overhead, which replays CUDA graphs.
"""

import argparse
import dataclasses
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time

from programs import positive, refuse, require_device

# What the process is started with. Threads that spin wait for the next operation without a system call; malloc that keeps what is
# freed spares the kernel clearing pages again in each step (buffers above 32 MiB would be mapped each time), for more peak memory.
SETTINGS = {
    "plain": {},
    "spin": {"OMP_WAIT_POLICY": "active", "OMP_PROC_BIND": "true"},
    "keep": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)},
}
SETTINGS["both"] = {**SETTINGS["spin"], **SETTINGS["keep"]}
DEFAULT_SETTINGS = "keep"
PRECISIONS = ("f32", "tf32", "bf16")
WARM_UP, LEARNING_RATE, MAX_NORM, SMOOTHING = 3, 1e-3, 1.0, 0.1
GPU_WARM_UP = 0.5  # seconds that a GPU takes at least, until its clocks are up


@dataclasses.dataclass
class Workload:
    layers: int
    heads: int
    width: int
    hidden: int
    vocabulary: int
    batch: int
    length: int
    source_length: int = 0  # of a translation
    dropout: float = 0.0

    @property
    def tokens(self):
        return self.batch * (self.length + self.source_length)


WORKLOADS = {
    "babygpt": Workload(4, 4, 128, 512, 65, 12, 64),
    "chargpt": Workload(6, 6, 384, 1536, 65, 64, 256, dropout=0.2),
    "gpt2-124m": Workload(12, 12, 768, 3072, 50257, 4, 64),
    "gpt2-124m-1k": Workload(12, 12, 768, 3072, 50257, 4, 1024),
    "gpt2-124m-h200": Workload(12, 12, 768, 3072, 50304, 64, 1024),
    "translate": Workload(3, 8, 256, 512, 8000, 128, 16, 16, dropout=0.1),
    "translate-base": Workload(6, 8, 512, 2048, 10000, 32, 32, 32, dropout=0.1),
}


def workload_named(text):
    name, colon, batch = text.partition(":")
    if name not in WORKLOADS:
        refuse(f"there is no workload {text}; there are {', '.join(WORKLOADS)}")
    if not colon:
        return WORKLOADS[name]
    if not batch.isdecimal() or int(batch) == 0:
        refuse(f"the batch of a workload must be a number above 0; got {text}")
    return dataclasses.replace(WORKLOADS[name], batch=int(batch))


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def make_models(torch):
    """The two classes of models; a function, because torch is imported only in the process that measures."""
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        """Self-attention, or with `memory` attention to it."""

        def __init__(self, w, causal, cross=False):
            super().__init__()
            self.heads, self.dropout, self.causal = w.heads, w.dropout, causal
            self.packed = nn.Linear(w.width, (1 if cross else 3) * w.width)
            self.memory = nn.Linear(w.width, 2 * w.width) if cross else None
            self.output = nn.Linear(w.width, w.width)

        def forward(self, x, memory=None):
            def split(packed, count):  # [B, T, count C] -> count times [B, H, T, D]
                return packed.unflatten(-1, (count, self.heads, -1)).permute(2, 0, 3, 1, 4)

            if memory is None:
                query, key, value = split(self.packed(x), 3)
            else:
                (query,), (key, value) = split(self.packed(x), 1), split(self.memory(memory), 2)
            y = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal,
                                               dropout_p=self.dropout if self.training else 0.0)
            return self.output(y.transpose(1, 2).flatten(2))

    class FeedForward(nn.Sequential):
        def __init__(self, w, activation, dropout):
            inner = [nn.Dropout(dropout)] if dropout else []
            super().__init__(nn.Linear(w.width, w.hidden), activation, *inner, nn.Linear(w.hidden, w.width))

    class Layer(nn.Module):
        """x + dropout(sublayer(norm(x))) for each of two or, with a memory, three sublayers."""

        def __init__(self, w, feed_forward, causal, cross=False):
            super().__init__()
            self.attention, self.feed_forward = Attention(w, causal), feed_forward
            self.cross = Attention(w, False, cross=True) if cross else None
            self.norms = nn.ModuleList(nn.LayerNorm(w.width) for _ in range(3 if cross else 2))
            self.dropout = nn.Dropout(w.dropout)

        def forward(self, x, memory=None):
            x = x + self.dropout(self.attention(self.norms[0](x)))
            if self.cross is not None:
                x = x + self.dropout(self.cross(self.norms[1](x), memory))
            return x + self.dropout(self.feed_forward(self.norms[-1](x)))

    class LanguageModel(nn.Module):
        def __init__(self, w):
            super().__init__()
            self.table, self.positions = nn.Embedding(w.vocabulary, w.width), nn.Embedding(w.length, w.width)
            self.layers = nn.ModuleList(Layer(w, FeedForward(w, nn.GELU(), 0), True) for _ in range(w.layers))
            self.norm, self.dropout = nn.LayerNorm(w.width), nn.Dropout(w.dropout)
            self.head = nn.Linear(w.width, w.vocabulary, bias=False)
            self.head.weight = self.table.weight
            for table in (self.table, self.positions):
                nn.init.normal_(table.weight, std=0.02)
            self.shape = w.batch, w.length
            self.vocabulary = w.vocabulary

        def draw(self):
            return [torch.randint(self.vocabulary, self.shape, device=self.head.weight.device) for _ in range(2)]

        def forward(self, ids, targets):
            x = self.dropout(self.table(ids) + self.positions.weight[:ids.size(1)])
            for layer in self.layers:
                x = layer(x)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    class TranslationModel(nn.Module):
        def __init__(self, w):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(w.vocabulary, w.width) for _ in range(2))
            for table in self.tables:
                nn.init.normal_(table.weight, std=w.width**-0.5)
            self.encoder, self.decoder = (
                nn.ModuleList(Layer(w, FeedForward(w, nn.ReLU(), w.dropout), target, cross=target) for _ in range(w.layers))
                for target in (False, True))
            self.norms = nn.ModuleList(nn.LayerNorm(w.width) for _ in range(2))
            self.head = nn.Linear(w.width, w.vocabulary)
            angles = torch.arange(512)[:, None] / 10000 ** (torch.arange(0, w.width, 2) / w.width)
            self.register_buffer("sinusoids", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
            self.scale, self.vocabulary = math.sqrt(w.width), w.vocabulary
            self.shapes = [(w.batch, length) for length in (w.source_length, w.length, w.length)]

        def draw(self):
            return [torch.randint(self.vocabulary, shape, device=self.head.weight.device) for shape in self.shapes]

        def embed(self, table, ids):
            return table(ids) * self.scale + self.sinusoids[:ids.size(1)]

        def forward(self, source, target, expected):
            memory, x = self.embed(self.tables[0], source), self.embed(self.tables[1], target)
            for layer in self.encoder:
                memory = layer(memory)
            memory = self.norms[0](memory)
            for layer in self.decoder:
                x = layer(x, memory)
            logits = self.head(self.norms[1](x))
            return F.cross_entropy(logits.flatten(0, 1), expected.flatten(), label_smoothing=SMOOTHING)

    return LanguageModel, TranslationModel


def measure(name, arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        refuse("this PyTorch finds no GPU; try --device cpu")
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    baseline = resident_mib()
    workload = workload_named(name)
    model = make_models(torch)[bool(workload.source_length)](workload).to(device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, fused=True)
    loss_of = model
    if arguments.compile:
        import torch._inductor.config

        torch._inductor.config.cpp_wrapper = not on_gpu  # a tenth off a babygpt step: its kernels are called from C++
        loss_of = torch.compile(model, mode="reduce-overhead" if arguments.graphs else None)

    def step():
        begun = time.perf_counter()
        batch = model.draw()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = loss_of(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM, foreach=True)
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun

    warmed_up = [step() for _ in range(WARM_UP)]
    while on_gpu and sum(warmed_up[1:]) < GPU_WARM_UP:  # the first may have compiled for a minute
        warmed_up.append(step())
    steps = arguments.steps or max(5, min(200, int(arguments.seconds / step())))
    seconds = statistics.median(step() for _ in range(steps))
    memory = {"peak_device_mib": round(torch.cuda.max_memory_allocated(device) / 2**20)} if on_gpu else {}
    print(json.dumps({
        "workload": name, "program": "pytorch", "torch": torch.__version__, "device": arguments.device, "dtype": arguments.precision,
        "threads": torch.get_num_threads(), "compile": arguments.compile, "graphs": arguments.graphs, "settings": arguments.settings,
        "params": sum(parameter.numel() for parameter in parameters), "ms": round(1e3 * seconds, 2),
        "tokens_per_s": round(workload.tokens / seconds),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), "baseline_mib": round(baseline),
        **memory, "steps": steps}), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Times full training steps in PyTorch; one line of JSON a workload.")
    parser.add_argument("workloads", nargs="*", default=["babygpt"], help="as those of bench train_step; NAME:BATCH for another batch")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="bf16 is autocast")
    parser.add_argument("--steps", type=positive, help="measured ones; as many as take --seconds, 5 to 200, unless given")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="all cores unless given")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--graphs", action="store_true", help="on a GPU, compiled in the mode reduce-overhead: with CUDA graphs")
    parser.add_argument("--settings", choices=SETTINGS, default=DEFAULT_SETTINGS, help="the environment of the process")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # in the process that measures
    arguments = parser.parse_args()
    require_device(arguments.device)
    if arguments.precision == "tf32" and arguments.device == "cpu":
        refuse("--precision tf32 needs --device cuda")
    if arguments.graphs and (arguments.device == "cpu" or not arguments.compile):
        refuse("--graphs needs --device cuda and --compile")
    for name in arguments.workloads:
        workload_named(name)
    if arguments.alone:
        measure(arguments.workloads[0], arguments)
        return
    rest = [argument for argument in sys.argv[1:] if argument not in arguments.workloads]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), **SETTINGS[arguments.settings]}
    for name in arguments.workloads:
        done = subprocess.run([sys.executable, __file__, name, "--alone", *rest], env=environment, check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
