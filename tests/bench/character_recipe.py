#!/usr/bin/env python3
"""nanoGPT's smaller character recipe in PyTorch: compares its losses with those that bench character_recipe wrote, or
trains it from PyTorch's own start. Needs PyTorch, NumPy and safetensors.

Usage: character_recipe.py FOLDER                       compare; FOLDER has weights, batches and losses of both types
       character_recipe.py --full --text FILE [--seeds N] [--steps N] [--schedule ours|nanogpt]
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from golden_language_model import LanguageModel, learning_rate  # noqa: E402

CONTEXT, ROWS, STEPS, WARMUP, PEAK, MINIMUM = 64, 12, 2000, 100, 1e-3, 1e-4
BETAS, WEIGHT_DECAY, CLIP, ESTIMATE_BATCHES = (0.9, 0.99), 0.1, 1.0, 20
MODEL = {"context": CONTEXT, "layers": 4, "width": 128, "attention": "mha", "heads": 4, "norm": "layer", "epsilon": 1e-5,
         "norm_bias": False, "positions": "learned", "feed_forward": 512, "activation": "gelu", "gated": False,
         "attention_bias": False, "feed_forward_bias": False, "tie_head": True, "head_bias": False}


def ours(step):
    return learning_rate(step, PEAK, MINIMUM, WARMUP, STEPS)


def nanogpt(step):
    """nanoGPT's get_lr, whose first update has the smallest rate above zero and whose peak comes one step later."""
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MINIMUM + 0.5 * (1 + math.cos(math.pi * progress)) * (PEAK - MINIMUM)


def train(model, batches, schedule):
    """The loss of every step; batches are [ROWS, CONTEXT + 1]."""
    optimizer = model.optimizer(PEAK, BETAS, WEIGHT_DECAY)
    losses = []
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses)


def with_packed_apart(weights):
    parts = {}
    for name, value in weights.items():
        if "query_key_value" in name:
            for part, rows in zip(("query", "key", "value"), value.chunk(3)):
                parts[name.replace("query_key_value", part)] = rows
        else:
            parts[name] = value
    return parts


def compare(folder):
    config = json.loads((folder / "config.json").read_text())
    config["feed_forward"] = config["feed_forward"] or 4 * config["width"]
    assert {**config, **MODEL} == config, "the folder's model is not the recipe's"
    weights = with_packed_apart(load_file(folder / "weights.safetensors"))
    batches = torch.from_numpy(numpy.load(folder / "batches.npy")).long()
    theirs = {}
    for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        model = LanguageModel(config).to(dtype)
        missing = model.load_state_dict({key: value.to(dtype) for key, value in weights.items()}, strict=False)
        assert not missing.unexpected_keys and missing.missing_keys == ["head.weight"], missing  # which is tied
        theirs[name] = train(model, batches, ours)
    written = {name: numpy.load(folder / f"losses_{name}.npy") for name in theirs}
    steps = len(written["f64"])

    def distance(a, b):
        difference = numpy.abs(a[:steps] - b[:steps])
        return f"{difference.max():.3e} at most, {difference.mean():.3e} on average", difference.max()

    print(f"{steps} steps, losses {theirs['f64'][0]:.4f} to {theirs['f64'][-1]:.4f} (PyTorch, f64)")
    for label, a, b in (("f64, Tapeformer and PyTorch", written["f64"], theirs["f64"]),
                        ("f32, Tapeformer and PyTorch", written["f32"], theirs["f32"]),
                        ("PyTorch, f32 and f64", theirs["f32"], theirs["f64"]),
                        ("Tapeformer, f32 and f64", written["f32"], written["f64"])):
        print(f"{label:28} {distance(a, b)[0]}")
    ratio = distance(written["f32"], theirs["f32"])[1] / distance(theirs["f32"], theirs["f64"])[1]
    print(f"f32: Tapeformer to PyTorch is {ratio:.2f} times PyTorch's own distance between f32 and f64")


def read_corpus(path):
    text = path.read_text(encoding="utf-8")
    id_of = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([id_of[character] for character in text])
    split = int(0.9 * len(ids))
    return ids[:split], ids[split:], len(id_of)


def random_windows(ids, random):
    starts = torch.randint(len(ids) - CONTEXT, (ROWS,), generator=random)
    return torch.stack([ids[start:start + CONTEXT + 1] for start in starts])


@torch.no_grad()
def exact_loss(model, ids):
    """Over windows side by side, so that every id but the first is a target once."""
    targets = len(ids) - 1
    whole = targets // CONTEXT
    total = 0.0
    for first in range(0, whole, 256):
        count = min(256, whole - first)
        part = ids[first * CONTEXT:(first + count) * CONTEXT + 1]
        loss = model.loss(part[:-1].view(count, CONTEXT), part[1:].view(count, CONTEXT))
        total += loss.item() * count * CONTEXT
    rest = ids[whole * CONTEXT:]
    if len(rest) > 1:
        total += model.loss(rest[None, :-1], rest[None, 1:]).item() * (len(rest) - 1)
    return total / targets


@torch.no_grad()
def estimated_loss(model, ids, random):
    """As nanoGPT estimates it."""
    losses = [model.loss(windows[:, :-1], windows[:, 1:]).item()
              for windows in (random_windows(ids, random) for _ in range(ESTIMATE_BATCHES))]
    return sum(losses) / len(losses)


def full(path, seeds, steps, schedule):
    training, validation, vocabulary = read_corpus(path)
    exact, estimated = [], []
    for seed in range(1, seeds + 1):
        torch.manual_seed(seed)
        model = LanguageModel({**MODEL, "vocabulary": vocabulary})
        model.initialise()
        random = torch.Generator().manual_seed(seed)
        begun = time.perf_counter()
        train(model, (random_windows(training, random) for _ in range(steps)), schedule)
        seconds = time.perf_counter() - begun
        exact.append(exact_loss(model, validation))
        estimated.append(estimated_loss(model, validation, random))
        print(f"seed {seed}: validation loss {exact[-1]:.4f}, estimated from {ESTIMATE_BATCHES} batches "
              f"{estimated[-1]:.4f}; {seconds:.0f} s", flush=True)
    print(f"mean of {seeds}: validation loss {numpy.mean(exact):.4f}, estimated {numpy.mean(estimated):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--schedule", choices=("ours", "nanogpt"), default="ours")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.full and arguments.text:
        full(arguments.text, arguments.seeds, arguments.steps, {"ours": ours, "nanogpt": nanogpt}[arguments.schedule])
    elif arguments.folder and not arguments.full:
        compare(arguments.folder)
    else:
        parser.error("give a folder to compare, or --full and --text")
