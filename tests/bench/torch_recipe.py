#!/usr/bin/env python3
"""Trains by the recipe of one of our runs in PyTorch for N minutes, and writes a run folder that our `evaluate` measures.

Usage: torch_recipe.py RUN OUTPUT --minutes N [--precision f32|bf16] [--threads N] [--compile] [--seed N]

RUN is a folder that `train` of one of our programs has written with Muon, rotary positions, RMS norms and squared ReLUs: a language
model, or a translation model with --validation-pairs and a shared SentencePiece vocabulary. Architecture, schedule and optimizers are
the same; initial values and batches are so in distribution, not draw for draw; bf16 is torch.autocast. The number of steps is chosen
from the first ones, as ours is. OUTPUT gets RUN's tokenizer and configuration, and PyTorch's last weights:
    train_language_model evaluate --run OUTPUT
"""

import argparse
import json
import math
import os
import pathlib
import random
import shutil
import sys
import time

from programs import positive, refuse
from torch_step import DEFAULT_SETTINGS, SETTINGS

if len(settings := {**SETTINGS[DEFAULT_SETTINGS], **os.environ}) > len(os.environ):
    os.execve(sys.executable, [sys.executable, *sys.argv], settings)  # malloc reads them as a process starts

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

TRIAL_STEPS = 10  # per shape of batch, timed to choose the number of steps
PARTS = ("query", "key", "value")


class Model(torch.nn.Module):
    """What both models share. Parameters have our names; packed projections are three matrices, which Muon orthogonalizes separately."""

    def __init__(self, config, shapes):
        super().__init__()
        self.config, self.shapes = config, shapes
        self.heads, self.width = config["heads"], config["width"]
        pairs = self.width // self.heads // 2
        frequencies = config["rotary_base"] ** (-torch.arange(pairs) / pairs)
        angles = torch.arange(config.get("context") or config["max_length"])[:, None] * frequencies
        self.cosines, self.sines = angles.cos(), angles.sin()
        self.values = torch.nn.ParameterDict()
        for name, shape in shapes.items():
            for part in self.parts_of(name):
                rows = shape[0] // len(self.parts_of(name))
                self.values[part.replace(".", "/")] = torch.nn.Parameter(self.initial(name, [rows, *shape[1:]]))

    @staticmethod
    def parts_of(name):
        return [name.replace("query_key_value", part) for part in PARTS] if "query_key_value" in name else [name]

    def value(self, name):
        parts = [self.values[part.replace(".", "/")] for part in self.parts_of(name)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def linear(self, x, name):
        bias = self.value(name + ".bias") if name + ".bias" in self.shapes else None
        return F.linear(x, self.value(name + ".weight"), bias)

    def norm(self, x, name, epsilon):
        return F.rms_norm(x, x.shape[-1:], self.value(name + ".weight").type_as(x), epsilon)

    def drop(self, x, place):
        return F.dropout(x, self.config.get(place + "_dropout", self.config.get("dropout", 0)), self.training)

    def rotated(self, x):
        cosines, sines = (table[:x.size(-2)].to(x.dtype) for table in (self.cosines, self.sines))
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)

    def attend(self, x, name, memory=None, mask=None, causal=False):
        if memory is None:
            heads = self.linear(x, name + ".query_key_value").chunk(3, -1)
        else:
            heads = [self.linear(memory if part != "query" else x, f"{name}.{part}") for part in PARTS]
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in heads)
        query, key = (self.norm(t, f"{name}.{part}_norm", self.config["qk_norm_epsilon"]) for t, part in ((query, "query"), (key, "key")))
        if memory is None:
            query, key = self.rotated(query), self.rotated(key)
        dropped = self.config.get("attention_dropout", self.config.get("dropout", 0))
        y = F.scaled_dot_product_attention(query, key, value, mask, dropped if self.training else 0, is_causal=causal)
        return self.linear(y.transpose(1, 2).flatten(2), name + ".output")

    def sublayer(self, x, name, function, convolution=None):
        y = self.norm(x, name + "_norm", self.config["epsilon"])
        if convolution and convolution + ".weight" in self.shapes:
            taps = self.value(convolution + ".weight").view(-1, self.width)
            y = y + sum(tap * F.pad(y, (0, 0, age, -age)) for age, tap in enumerate(taps))
        return x + self.drop(function(y), "residual")

    def feed_forward(self, x, name):
        hidden = F.relu(self.linear(x, name + ".up")).square()
        return self.linear(self.drop(hidden, "feed_forward"), name + ".down")

    def optimizers(self, training):
        matrices, others = [], []
        for name, value in self.values.items():
            (matrices if value.dim() == 2 and "embedding" not in name and "head" not in name else others).append(value)
        muon = torch.optim.Muon(matrices, weight_decay=training["weight_decay"], momentum=training["momentum"],
                                ns_steps=int(training["newton_schulz_steps"]))
        adamw = torch.optim.AdamW(others, betas=(training["beta1"], training["beta2"]), eps=1e-8, weight_decay=0, fused=True)
        return (muon, 1), (adamw, training["adam_rate"])

    def weights(self):
        return {name: self.value(name).detach().contiguous() for name in self.shapes}


class LanguageModel(Model):
    def initial(self, name, shape):
        if len(shape) == 1:
            return torch.ones(shape) if "norm" in name else torch.zeros(shape)
        writes = "attention.output" in name or "down" in name
        return torch.randn(shape) * (0.02 / math.sqrt(2 * self.config["layers"]) if writes else 0.02)

    def loss(self, ids, targets):
        x = self.drop(F.embedding(ids, self.value("embedding.weight")), "embedding")
        for i in range(self.config["layers"]):
            name = f"layers.{i}."
            x = self.sublayer(x, name + "attention", lambda y: self.attend(y, name + "attention", causal=True),
                              name + "attention_convolution")
            x = self.sublayer(x, name + "feed_forward", lambda y: self.feed_forward(y, name + "feed_forward"),
                              name + "feed_forward_convolution")
        logits = F.linear(self.norm(x, "norm", self.config["epsilon"]), self.value("embedding.weight"))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class TranslationModel(Model):
    def initial(self, name, shape):
        if "norm" in name:
            return torch.ones(shape)
        if "embedding" in name:
            return torch.randn(shape) / math.sqrt(self.width)
        if "attention" in name:
            return torch.zeros(shape) if len(shape) == 1 else torch.nn.init.xavier_uniform_(torch.empty(shape))
        inputs = self.config["feed_forward"] if "down" in name else self.width
        return torch.empty(shape).uniform_(-1, 1) / math.sqrt(inputs)

    def stack(self, side, ids, memory=None, mask=None):
        x = self.drop(F.embedding(ids, self.value("encoder.embedding.weight")) * math.sqrt(self.width), "embedding")
        decodes = memory is not None
        for i in range(self.config[side + "_layers"]):
            name = f"{side}.{i}."
            x = self.sublayer(x, name + "self_attention", lambda y: self.attend(y, name + "self_attention", causal=decodes,
                                                                                 mask=None if decodes else mask))
            if decodes:
                x = self.sublayer(x, name + "cross_attention", lambda y: self.attend(y, name + "cross_attention", memory, mask))
            x = self.sublayer(x, name + "feed_forward", lambda y: self.feed_forward(y, name + "feed_forward"))
        return self.norm(x, side + ".norm", self.config["epsilon"])

    def loss(self, source, inputs, targets):
        mask = (source != 0)[:, None, None]
        x = self.stack("decoder", inputs, self.stack("encoder", source, mask=mask), mask)
        logits = F.linear(x, self.value("encoder.embedding.weight"), self.value("head.bias"))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=0,
                               label_smoothing=self.config["training"]["label_smoothing"])


def phases(training, steps):
    """(first step, rows, context) of each part of a run; a translation's batches have shapes of their own."""
    if "batch_schedule" not in training:
        return [(0, 0, 0)]
    sizes = {0.0: {}}
    for name in ("batch", "context"):
        for entry in f"0:{training[name]},{training[name + '_schedule']}".rstrip(",").split(","):
            at, size = entry.split(":")
            sizes.setdefault(float(at), {})[name] = int(size)
    found, latest = [], {}
    for at in sorted(sizes):
        latest = {**latest, **sizes[at]}
        found.append((round(at * steps), latest["batch"], latest["context"]))
    return found


def language_batches(run, training):
    data = (run / "tokens/train.tokens").read_bytes()
    width = int.from_bytes(data[12:16], "little")
    ids = torch.frombuffer(bytearray(data[64:]), dtype=torch.uint16 if width == 2 else torch.int32).long()

    def draw(rows, context):
        starts = torch.randint(len(ids) - context, (rows,))
        windows = torch.stack([ids[start:start + context + 1] for start in starts.tolist()])
        return windows[:, :-1], windows[:, 1:]
    return draw


def translation_batches(run, training):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(
        model_proto=(run / "source.vocabulary").read_bytes().partition(b"\n")[2])
    with open(training["pairs"], encoding="utf-8") as file:
        sides = zip(*(line.rstrip("\n").split("\t")[:2] for line in file))
        pairs = list(zip(*(processor.encode(list(side), add_eos=True) for side in sides)))

    def padded(rows):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)

    def epochs():
        while True:
            random.shuffle(pairs)
            batches, longest = [[]], 0
            for pair in sorted(pairs, key=lambda pair: (max(map(len, pair)), sum(map(len, pair)))):
                longest = max(longest, *map(len, pair))
                if (len(batches[-1]) + 1) * longest > training["batch_tokens"]:
                    batches.append([])
                    longest = max(map(len, pair))
                batches[-1].append(pair)
            yield from random.sample(batches, len(batches))

    stream = epochs()

    def draw(*_):
        sources, targets = zip(*next(stream))
        return padded(sources), padded([[processor.bos_id(), *target[:-1]] for target in targets]), padded(targets)
    return draw


def rate_of(training, step, steps):
    peak, least, warmup = training["learning_rate"], training["minimum_learning_rate"], min(training["warmup"], steps // 10)
    if step < warmup:
        return peak * (step + 1) / warmup
    return least + (peak - least) * (1 + math.cos(math.pi * (step + 1 - warmup) / (steps - warmup))) / 2


def main():
    begun = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    config = json.loads((arguments.run / "config.json").read_text(encoding="utf-8"))
    training = config["training"]
    of_muon = {"adam_weight_decay": 0, "update_rms": 0}
    needed = {"optimizer": "muon", "schedule": "cosine", "accumulate": 1, "positions": "rotary", "norm": "rms", "activation": "relu_squared"}
    if found := {name: value for name, value in {**needed, **of_muon}.items() if {**of_muon, **training, **config}[name] != value}:
        refuse(f"{arguments.run} must have {found}")
    is_language = config["model"] == "decoder_only"
    if arguments.compile and not is_language:
        refuse("--compile would take minutes for the lengths of a translation model's batches; try without it")
    if arguments.output.exists():
        refuse(f"{arguments.output} exists already; try another OUTPUT")
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    with safe_open(arguments.run / "weights.safetensors", "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
    model = (LanguageModel if is_language else TranslationModel)(config, shapes)
    draw = (language_batches if is_language else translation_batches)(arguments.run, training)
    loss_of = torch.compile(model.loss, dynamic=False, options={"cpp_wrapper": True}) if arguments.compile else model.loss
    optimizers = model.optimizers(training)

    def step(rows, context, rate):
        for optimizer, share in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate * share
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = loss_of(*draw(rows, context))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip"] or math.inf, foreach=True)
        for optimizer, _ in optimizers:
            optimizer.step()
        return loss.detach()

    def seconds_of(rows, context):
        """The mean time of a step; the weights stay as they are, because the learning rate is 0."""
        step(rows, context, 0)
        start = time.perf_counter()
        for _ in range(TRIAL_STEPS):
            step(rows, context, 0)
        return (time.perf_counter() - start) / TRIAL_STEPS

    parts = phases(training, 1000)
    ends = [first for first, *_ in parts[1:]] + [1000]
    mean = sum(seconds_of(*sizes) * (end - first) / 1000 for (first, *sizes), end in zip(parts, ends))
    steps = int((60 * arguments.minutes - (time.perf_counter() - begun)) / mean)
    if steps < 10:
        refuse(f"{arguments.minutes} minutes are too few: {time.perf_counter() - begun:.0f} s passed before the first step")
    shutil.copytree(arguments.run, arguments.output,
                    ignore=shutil.ignore_patterns("checkpoint*", "weights*", "metrics*", "report*", "evaluation*", "events*"))
    parts, optimizers = phases(training, steps), model.optimizers(training)  # without the trial's moments
    losses = []
    for number in range(steps):
        sizes = next(part[1:] for part in reversed(parts) if part[0] <= number)
        losses.append(step(*sizes, rate_of(training, number, steps)))
        if (number + 1) % max(1, steps // 20) == 0:
            print(f"step {number + 1}/{steps}  loss {torch.stack(losses).mean():.4f}  {time.perf_counter() - begun:.0f} s", flush=True)
            losses = []
    save_file(model.weights(), arguments.output / "weights.safetensors")
    print(json.dumps({"run": str(arguments.run), "steps": steps, "seconds": round(time.perf_counter() - begun, 1),
                      "precision": arguments.precision, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
