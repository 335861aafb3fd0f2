#!/usr/bin/env python3
"""Prints the constants of tests/optim/test_{sgd,adamw,lion,schedule_free,adafactor,clip}.cpp. Needs PyTorch; see README.md."""

import math

import torch

RATES = [0.1, 0.05, 0.02, 0.2, 0.01]
WITHOUT_BIAS_GRADIENT = 2


def row(x):
    return "{" + ", ".join(f"{v:.15g}" for v in x.flatten().tolist()) + "}"


def gradient(step, size, shift):
    return torch.tensor([math.sin((step + 1) * (i + 1) + shift) for i in range(size)])


def parameters():
    weight = torch.tensor([[0.5, -1.25, 2.0], [0.75, -0.3, 1.1]], requires_grad=True)
    bias = torch.tensor([0.1, -0.2, 0.3], requires_grad=True)
    return weight, bias


def set_gradients(weight, bias, step):
    weight.grad = gradient(step, 6, 0.0).reshape(2, 3)
    bias.grad = None if step == WITHOUT_BIAS_GRADIENT else gradient(step, 3, 0.5)


def run(name, make, steps=5, scale=1):
    weight, bias = parameters()
    optimizer = make(weight, bias)
    for step in range(steps):
        set_gradients(weight, bias, step)
        for group in optimizer.param_groups:
            group["lr"] = scale * RATES[step % 5]
        optimizer.step()
    print(name, "weight", row(weight), "bias", row(bias))


# What PyTorch does not have is written here as the papers have it, for one parameter.
class Lion:
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

    def __init__(self, x, beta1, beta2, decay):
        self.m, self.beta1, self.beta2, self.decay = torch.zeros_like(x), beta1, beta2, decay

    def step(self, x, lr):
        direction = torch.sign(self.beta1 * self.m + (1 - self.beta1) * x.grad)
        self.m = self.beta2 * self.m + (1 - self.beta2) * x.grad
        return x - lr * (direction + self.decay * x)


class ScheduleFree:
    """Defazio et al. 2024, arXiv:2405.15682, algorithm 1; `x` there is self.average."""

    def __init__(self, x, beta1, beta2, decay, epsilon):
        self.beta1, self.beta2, self.decay, self.epsilon = beta1, beta2, decay, epsilon
        self.z = self.average = x.detach().clone()
        self.v, self.t, self.sum = torch.zeros_like(x), 0, 0

    def step(self, y, lr):
        self.t += 1
        self.v = self.beta2 * self.v + (1 - self.beta2) * y.grad**2
        rate = lr * math.sqrt(1 - self.beta2**self.t)
        self.z = self.z - rate * y.grad / (self.v.sqrt() + self.epsilon) - rate * self.decay * y
        self.sum += rate**2
        c = rate**2 / self.sum
        self.average = (1 - c) * self.average + c * self.z
        return (1 - self.beta1) * self.z + self.beta1 * self.average


def run_papers(name, make):
    weight, bias = parameters()
    optimizers = [(weight, make(weight, 0.1)), (bias, make(bias, 0.0))]
    for step in range(10):
        set_gradients(weight, bias, step)
        for x, optimizer in optimizers:
            if x.grad is not None:
                x.data = optimizer.step(x, RATES[step % 5]).detach()
    print(name, "weight", row(weight), "bias", row(bias))
    if name == "schedule-free":
        print(name, "average", *(row(optimizer.average) for _, optimizer in optimizers))


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    run("sgd", lambda w, b: torch.optim.SGD([w, b], lr=1))
    run("sgd with momentum", lambda w, b: torch.optim.SGD([w, b], lr=1, momentum=0.9, weight_decay=0.01))
    run("adamw", lambda w, b: torch.optim.AdamW(
        [{"params": [w], "weight_decay": 0.1}, {"params": [b], "weight_decay": 0.0}],
        lr=1, betas=(0.8, 0.95), eps=1e-6))
    run_papers("lion", lambda x, decay: Lion(x, 0.8, 0.95, decay))
    run_papers("schedule-free", lambda x, decay: ScheduleFree(x, 0.8, 0.95, decay, 1e-6))
    run("adafactor", lambda w, b: torch.optim.Adafactor([w, b], lr=1), 10)
    run("adafactor with its options", lambda w, b: torch.optim.Adafactor(
        [w, b], lr=1, beta2_decay=-0.5, eps=(1e-2, 0.3), d=1.5, weight_decay=0.1), 10)
    run("adafactor at ten times the rates", lambda w, b: torch.optim.Adafactor([w, b], lr=1), 10, 10)
    weight, bias = parameters()
    set_gradients(weight, bias, 0)
    norm = torch.nn.utils.clip_grad_norm_([weight, bias], 0.75)
    print("clip", f"{norm.item():.15g}", row(weight.grad), row(bias.grad))
